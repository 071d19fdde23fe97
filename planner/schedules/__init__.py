"""Pipeline schedules as data: one file per schedule, and passes over the lists of actions that each
yields.

A module offers NAME; CHUNKS, how many chunks of layers a rank holds ("one", "two" in a V,
"several"); `allows(p, m, v)`, a column of booleans with NEEDS as its sentence; `actions(p, m, v)`,
what each rank runs in order; `idle_s(fill, slow, p, m, v)`, seconds that stay idle given the
seconds that all ranks but the slowest, and the slowest, spend on one micro-batch;
`live_chunks(stage, pp, vpp, m)`, forward chunks (layers / (pp v) each) whose activations a stage
holds at its peak. FREE_RUNNING: no rank waits for the others between steps. SIMULATED: the closed
form holds for some durations only, and the estimator simulates.

`timing` times the lists, `checks` checks them and counts what is alive, `drawing` draws them.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from planner.ledger import Array
from planner.schedules import (
    breadth_first,
    dualpipe,
    dualpipev,
    gpipe,
    interleaved,
    one_f_one_b,
    sequential,
    zb_h1,
    zb_h2,
    zb_v,
    zero_bubble_1p,
    zero_bubble_2p,
)
from planner.schedules.base import MOST_ACTIONS, Actions, Work
from planner.schedules.timing import Program, compiled
from planner.specs.base import PlanError

BY_NAME: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        one_f_one_b,
        gpipe,
        interleaved,
        zero_bubble_1p,
        zero_bubble_2p,
        dualpipe,
        zb_h1,
        zb_h2,
        zb_v,
        dualpipev,
        breadth_first,
        sequential,
    )
}
DOMINATED = (
    "gpipe",
    "sequential",
    "breadth-first",
)  # another is as fast in less memory: searched only when --schedule names it


def module_of(name: str, field: str = "--schedule") -> ModuleType:
    """The schedule of this name. Raises PlanError with near matches."""
    found = BY_NAME.get(name)
    if found is None:
        near = difflib.get_close_matches(name, BY_NAME, 3, 0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise PlanError(field, name, f"is no schedule; {hint}there are {', '.join(BY_NAME)}")
    return found


def free_running(name: str) -> bool:
    """Whether ranks start the next step without waiting for each other (post-validated optimizer,
    arXiv 2401.10241 section 4)."""
    return bool(getattr(BY_NAME.get(name), "FREE_RUNNING", False))


def is_automatic(name: str) -> bool:
    """Whether the order of actions is made for the seconds at hand."""
    return hasattr(BY_NAME.get(name), "actions_for")


def chunks_fit(name: str, v: Array) -> Array:
    """Whether a schedule can run with v chunks of layers per rank: one, two, or two and more.
    Looped ones need no ring of one."""
    kind = BY_NAME[name].CHUNKS
    return v == {"one": 1, "two": 2}[kind] if kind != "several" else v > 1


def default_chunks(name: str) -> int:
    """Chunks per rank when none are asked for."""
    return 1 if BY_NAME[name].CHUNKS == "one" else 2


def actions(name: str, p: int, m: int, v: int | None = None) -> Actions:
    """What each of p ranks runs, in order, for m micro-batches and v chunks per rank. Raises
    PlanError naming the option."""
    module = module_of(name)
    for field, value, most in (
        ("--pp", p, 4096),
        ("--microbatches", m, 65536),
        ("--vpp", v or 1, 1024),
    ):
        if not 1 <= value <= most:
            raise PlanError(field, value, f"must be between 1 and {most:,}")
    v = default_chunks(name) if v is None else v
    if not bool(chunks_fit(name, v)):
        needs = {
            "one": "1 chunk of layers per rank",
            "two": "2 chunks per rank",
            "several": "2 or more chunks per rank",
        }
        raise PlanError("--vpp", v, f"{name} runs with {needs[module.CHUNKS]}")
    if not bool(np.all(module.allows(p, m, v))):
        field = "--pp" if name == "dualpipe" and p % 2 else "--microbatches"
        raise PlanError(
            field,
            p if field == "--pp" else m,
            f"{name} needs {module.NEEDS}; pp is {p}, micro-batches are {m}",
        )
    if 3 * p * m * v > MOST_ACTIONS:
        raise PlanError(
            "--microbatches",
            m,
            f"more than {MOST_ACTIONS:,} actions; take fewer micro-batches, ranks or chunks",
        )
    out: Actions = module.actions(p, m, v)
    return out


def fitted_actions(
    name: str, p: int, m: int, v: int, f: Array, i: Array, w: Array, send: float
) -> Actions:
    """As `actions`; automatic schedules are made for these seconds, one per rank."""
    module_of(name)
    if not is_automatic(name) or len(f) != p:
        return actions(name, p, m, v)
    actions("1f1b", p, m)  # refuses sizes out of range
    fitted: Actions = BY_NAME[name].actions_for(
        p, m, tuple(f.tolist()), tuple(i.tolist()), tuple(w.tolist()), send
    )
    return fitted


@functools.lru_cache(maxsize=128)
def program(name: str, p: int, m: int, v: int) -> Program:
    """The compiled schedule, remembered."""
    return compiled(actions(name, p, m, v))


def _by_row(names: Sequence[str], code: Array, value: Array, of: dict[str, Array]) -> Array:
    """`value`, overwritten in the rows of each schedule."""
    for index, name in enumerate(names):
        if name in of:
            value = np.where(code == index, of[name], value)
    return value


def _present(names: Sequence[str], code: Array) -> list[str]:
    return [name for index, name in enumerate(names) if np.any(code == index)]


def allowed(names: Sequence[str], code: Array, p: Array, m: Array, v: Array) -> Array:
    """Whether each row's schedule can run with its ranks, micro-batches and chunks; codes index
    `names`."""
    found = {name: BY_NAME[name].allows(p, m, v) for name in _present(names, code)}
    return _by_row(names, code, np.ones_like(code, dtype=bool), found)


def idle_s(
    names: Sequence[str], code: Array, fill: Work, slow: Work, p: Array, m: Array, v: Array
) -> Array:
    """Seconds per step that stay idle, in closed form. fill: one micro-batch on all ranks but the
    slowest; slow: on that one."""
    found = {name: BY_NAME[name].idle_s(fill, slow, p, m, v) for name in _present(names, code)}
    return _by_row(names, code, fill.forward + np.zeros_like(code), found)


def live_chunks(
    names: Sequence[str], code: Array, stage: Array, pp: Array, vpp: Array, microbatches: Array
) -> Array:
    """Live forward chunks per row for schedule codes that index `names`."""
    found = {
        name: BY_NAME[name].live_chunks(stage, pp, vpp, microbatches)
        for name in _present(names, code)
    }
    return _by_row(names, code, np.ones_like(code), found)
