"""The elements of a schedule: actions, in the order in which each rank runs them.

An action reads `3F5`: stage 3, forward, micro-batch 5. The words follow
torch.distributed.pipelining: F forward, B the whole backward, I its input gradient, W its weight
gradient, SEND_F, RECV_F, SEND_B, RECV_B, and `(0F5;7B2)OVERLAP_F_B` for a forward and a backward
that run as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from planner.error import PlanError
from planner.ledger import Array

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"
SENDS = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
OVERLAP = "OVERLAP_F_B"
_SHARDING = ("UNSHARD", "RESHARD", "REDUCE_GRAD")  # of FSDP; no part of a pipeline's order

# of one schedule: 20 s and 1 GB with its trace and its page
MOST_ACTIONS = 600_000


class Action(NamedTuple):
    """One thing a rank does; `parts` are the two actions of an overlapped pair."""

    stage: int
    kind: str
    microbatch: int
    parts: tuple[Action, ...] = ()

    def __str__(self) -> str:
        if self.parts:
            return f"({';'.join(map(str, self.parts))}){self.kind}"
        return f"{self.stage}{self.kind}{self.microbatch}"


Actions = list[list[Action]]  # one list per rank


class Work(NamedTuple):
    """Seconds of one micro-batch, by what they compute; summed over some stages."""

    forward: Array
    input_gradient: Array
    weight_gradient: Array


def total_s(work: Work) -> Array:
    """Forward and whole backward."""
    return work.forward + work.input_gradient + work.weight_gradient


def forward(stage: int, microbatch: int) -> Action:
    return Action(stage, FORWARD, microbatch)


def backward(stage: int, microbatch: int) -> Action:
    return Action(stage, BACKWARD, microbatch)


def input_gradient(stage: int, microbatch: int) -> Action:
    return Action(stage, INPUT, microbatch)


def weight_gradient(stage: int, microbatch: int) -> Action:
    return Action(stage, WEIGHT, microbatch)


def pair(first: Action, second: Action) -> Action:
    """A forward and a backward that run as one, their kernels and messages interleaved."""
    return Action(-1, OVERLAP, -1, (first, second))


def warm_then_alternate(
    warm: int, forwards: Sequence[Action], backwards: Sequence[Action]
) -> list[Action]:
    """`warm` forwards, then one forward and one backward in turn, then the backwards that are
    left."""
    out = list(forwards[:warm])
    rest = forwards[warm:]
    for action, other in zip(rest, backwards, strict=False):
        out += (action, other)
    return out + list(backwards[len(rest) :])


def leaves(actions: Iterable[Action]) -> Iterator[Action]:
    """Actions with pairs taken apart."""
    for action in actions:
        if action.parts:
            yield from action.parts
        else:
            yield action


def placement(actions: Actions) -> dict[tuple[int, int], int]:
    """Rank that runs each (stage, micro-batch). DualPipe runs a stage on two ranks, for different
    micro-batches."""
    return {
        (a.stage, a.microbatch): rank
        for rank, row in enumerate(actions)
        for a in leaves(row)
        if a.kind == FORWARD
    }


def with_sends(actions: Actions) -> Actions:
    """The lists with a send after each action whose result another rank needs, and a receive
    before each that needs one."""
    where = placement(actions)
    last = max(stage for stage, _ in where)
    out: Actions = []
    for rank, row in enumerate(actions):
        lowered: list[Action] = []
        for action in row:
            before, after = [], []
            for a in action.parts or (action,):
                if a.kind == WEIGHT:
                    continue
                way, word = (1, "F") if a.kind == FORWARD else (-1, "B")
                if 0 <= a.stage - way <= last and where[a.stage - way, a.microbatch] != rank:
                    before.append(Action(a.stage, f"RECV_{word}", a.microbatch))
                if 0 <= a.stage + way <= last and where[a.stage + way, a.microbatch] != rank:
                    after.append(Action(a.stage, f"SEND_{word}", a.microbatch))
            lowered += [*before, action, *after]
        out.append(lowered)
    return out


_ONE = re.compile(
    r"(\d{1,9})(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD|F|B|I|W)(\d{1,9})?"
)
_PAIR = re.compile(rf"\(([^();]++);([^();]++)\){OVERLAP}")


def parse_action(text: str) -> Action | None:
    """One cell: `0F3`, `(0F3;5B1)OVERLAP_F_B`; None for an empty cell and for FSDP's own actions.
    Raises ValueError."""
    cell = text.strip()
    if cell in ("", "None"):
        return None
    if both := _PAIR.fullmatch(cell):
        first, second = parse_action(both.group(1)), parse_action(both.group(2))
        if (
            first is None
            or second is None
            or {first.kind, second.kind} - {FORWARD, BACKWARD}
            or first.kind == second.kind
        ):
            raise ValueError(f"{cell!r} must pair one F with one B")
        return pair(first, second) if first.kind == FORWARD else pair(second, first)
    match = _ONE.fullmatch(cell)
    if match is None:
        raise ValueError(f"{cell!r} is not an action, STAGE F|B|I|W MICROBATCH, such as 0F3")
    stage, kind, microbatch = match.groups()
    if kind in _SHARDING:
        return None
    if microbatch is None:
        raise ValueError(f"{cell!r} lacks its micro-batch, such as {cell}0")
    return Action(int(stage), kind, int(microbatch))


def parse_actions(text: str, field: str, name: str) -> Actions:
    """One row of comma-separated actions per rank, as torch.distributed.pipelining writes them;
    sends are left out.

    `field` and `name` say whose text it is in a PlanError, which names the line.
    """
    out: Actions = []
    count = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        row = []
        for cell in line.split(","):
            try:
                action = parse_action(cell)
            except ValueError as error:
                raise PlanError(field, name, f"line {number}: {error}") from None
            if action is not None and action.kind not in SENDS:
                row.append(action)
        count += len(row)
        if count > MOST_ACTIONS:
            raise PlanError(field, name, f"holds more than {MOST_ACTIONS:,} actions")
        out.append(row)
    if not count:
        raise PlanError(
            field, name, "holds no action; write one row per rank, such as 0F0,0F1,0B0,0B1"
        )
    return out


def format_actions(actions: Actions) -> str:
    """One row per rank, the text that `parse_actions` and torch.distributed.pipelining read."""
    return "".join(",".join(map(str, row)) + "\n" for row in actions)
