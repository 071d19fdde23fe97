"""ZB-V: two chunks per rank in a V, no bubble within 1F1B's memory. Qi et al. 2023 (arXiv
2401.10241) section 6, 2405.15362."""

import numpy as np

from planner.ledger import Array
from planner.schedules.base import Action, Actions, Work, forward, input_gradient, weight_gradient

CHUNKS = "two"
NEEDS = "one micro-batch or more"
SIMULATED = True
FREE_RUNNING = True


def allows(p: Array, m: Array, v: Array) -> Array:
    """Any number of micro-batches; below 2p - 1 the missing ones leave gaps."""
    return m >= 1


def actions(p: int, m: int, v: int = 2) -> Actions:
    """Rank r holds stages r and 2p - 1 - r."""
    return [_rank(p, m, r) for r in range(p)]


def _rank(p: int, m: int, r: int) -> list[Action]:
    """Warm-up, steady state and drain as if there were 2p - 1 micro-batches; those beyond m are
    left out."""
    down, up, whole = r, 2 * p - 1 - r, max(2 * p - 1, m)
    out: list[Action] = []
    done = {(kind, stage): 0 for kind in "FIW" for stage in (down, up)}

    def run(kind: str, stage: int) -> None:
        i = done[kind, stage]
        done[kind, stage] += 1
        if i < m:
            out.append({"F": forward, "I": input_gradient, "W": weight_gradient}[kind](stage, i))

    for _ in range(2 * (p - r) - 1):
        run("F", down)
    for _ in range(r):
        run("F", up)
        run("F", down)
    for _ in range(p - r):
        for kind in "FIW":
            run(kind, up)
    while done["F", up] < done["F", down] or done["F", down] < whole:
        if done["F", down] < whole:
            run("F", down)
        run("I", down)
        run("W", down)
        for kind in "FIW":
            run(kind, up)
    for _ in range(r):
        run("I", down)
        run("I", up)
    for _ in range(p - r):
        run("I", down)
        run("W", down)
    for stage in (up, down):
        while done["W", stage] < done["I", stage]:
            run("W", stage)
    return out


def idle_s(fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """None where F, I and W take equally long, (p-1)(I - W) for W <= F <= I; the simulation tells
    otherwise."""
    return np.maximum(fill.input_gradient - fill.weight_gradient, 0.0) + 0.0 * fill.forward


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """2p chunks on every rank, the memory of p micro-batches."""
    return np.minimum(2 * microbatches, 2 * pp) + 0 * stage
