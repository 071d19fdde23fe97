"""Validity of a schedule: every action runs exactly once, in an order without deadlock."""

from __future__ import annotations

from planner.error import PlanError
from planner.schedules.base import BACKWARD, FORWARD, INPUT, WEIGHT, Action, Actions, leaves
from planner.schedules.timing import Deadlock, Program, compiled


def checked(actions: Actions, field: str = "schedule", name: str = "") -> Program:
    """The compiled schedule. Raises PlanError, which names the first action that is wrong, where

    an action runs twice or never, a backward is whole and split at once, a weight gradient comes
    before its input gradient, a backward runs on another rank than its forward, or the ranks wait
    for each other.
    """
    rank_of: dict[tuple[str, int, int], int] = {}
    for rank, row in enumerate(actions):
        for a in leaves(row):
            if (a.kind, a.stage, a.microbatch) in rank_of:
                raise PlanError(
                    field,
                    name or str(a),
                    f"{a} runs twice; each micro-batch passes each stage once",
                )
            rank_of[a.kind, a.stage, a.microbatch] = rank
    if not rank_of:
        raise PlanError(field, name, "holds no action")
    stages = 1 + max(stage for _, stage, _ in rank_of)
    microbatches = 1 + max(i for _, _, i in rank_of)
    if stages * microbatches > len(
        rank_of
    ):  # some are missing for sure; the largest number may be a slip of the pen
        raise PlanError(
            field,
            name or str(len(rank_of)),
            f"{len(rank_of)} actions cannot be the forward passes of {microbatches} micro-batches"
            f" through {stages} stages",
        )
    for stage in range(stages):
        for i in range(microbatches):
            _complete(rank_of, stage, i, field, name)
    for row in actions:
        done: set[Action] = set()
        for a in leaves(row):
            if a.kind == WEIGHT and Action(a.stage, INPUT, a.microbatch) not in done:
                raise PlanError(
                    field, name or str(a), f"{a} comes before {a.stage}I{a.microbatch}; swap them"
                )
            if a.kind in (BACKWARD, INPUT) and Action(a.stage, FORWARD, a.microbatch) not in done:
                raise PlanError(
                    field, name or str(a), f"{a} comes before {a.stage}F{a.microbatch}; swap them"
                )
            done.add(a)
    try:
        return compiled(actions)
    except Deadlock as stuck:
        flat = [action for row in actions for action in row]
        first = _heads(actions, {i - 1 for i in stuck.nodes})
        waiting = ", ".join(f"rank {rank} at {a}" for rank, a in list(first.items())[:4])
        raise PlanError(
            field,
            name or str(flat[stuck.nodes[0] - 1]),
            f"the ranks wait for each other: {waiting}; reorder these",
        ) from None


def _complete(
    rank_of: dict[tuple[str, int, int], int], stage: int, i: int, field: str, name: str
) -> None:
    """One micro-batch on one stage: F, and either B or I with W, all on one rank."""
    forward = rank_of.get((FORWARD, stage, i))
    if forward is None:
        raise PlanError(
            field,
            name or f"{stage}F{i}",
            f"{stage}F{i} is missing; micro-batch {i} never passes stage {stage}",
        )
    whole, given, weight = (rank_of.get((kind, stage, i)) for kind in (BACKWARD, INPUT, WEIGHT))
    if whole is not None and (given is not None or weight is not None):
        raise PlanError(
            field,
            name or f"{stage}B{i}",
            f"{stage}B{i} is the whole backward, yet I or W of it runs as well; drop one",
        )
    if whole is None and (given is None or weight is None):
        lacks = "B" if given is None and weight is None else "I" if given is None else "W"
        raise PlanError(
            field,
            name or f"{stage}{lacks}{i}",
            f"{stage}{lacks}{i} is missing; each micro-batch goes back once",
        )
    for kind, rank in ((BACKWARD, whole), (INPUT, given), (WEIGHT, weight)):
        if rank is not None and rank != forward:
            raise PlanError(
                field,
                name or f"{stage}{kind}{i}",
                f"{stage}{kind}{i} runs on rank {rank}, but rank {forward} has the activations of"
                f" {stage}F{i}",
            )


def _heads(actions: Actions, stuck: set[int]) -> dict[int, Action]:
    """The first action of each rank that never starts."""
    out: dict[int, Action] = {}
    at = 0
    for rank, row in enumerate(actions):
        for action in row:
            if at in stuck and rank not in out:
                out[rank] = action
            at += 1
    return out


def peak_live(actions: Actions, held_frac: float = 1.0) -> list[float]:
    """Most forward passes of each rank whose activations are kept at once, in passes of one stage.

    held_frac: share of a pass's activations that stays between its input gradient and its weight
    gradient.
    """
    out = []
    for row in actions:
        live = peak = 0.0
        for a in leaves(row):
            live += {FORWARD: 1.0, BACKWARD: -1.0, INPUT: held_frac - 1.0, WEIGHT: -held_frac}[
                a.kind
            ]
            peak = max(peak, live)
        out.append(peak)
    return out
