"""Pipeline schedules as data: one file per schedule, and passes over the lists of actions that each
yields.

A module in `library` offers CHUNKS, how many chunks of layers a rank holds ("one", "two" in a V,
"several"); `allows(p, m, v)`, booleans, with NEEDS as their sentence; `actions(p, m, v)`, what each
rank runs in order, or `lists(p, m, v)`, the same as columns, which many ranks are timed by sooner;
`idle_s(fill, slow, p, m, v)`, seconds that stay idle given the seconds that all ranks but the
slowest, and the slowest, spend on one micro-batch; `live_chunks(stage, pp, vpp, m)`, forward chunks
(layers / (pp v) each) whose activations a stage holds at its peak. These three take and give plain
arrays of one value per row. FREE_RUNNING: no rank waits for the others between steps. SIMULATED:
the closed form holds for some durations only, and the estimator simulates. DOMINATED: another is as
fast in less memory; searched only when --schedule names it.

`timing` times the lists, `checks` checks them and counts what is alive, `intervals` draws them.
"""

from __future__ import annotations

import difflib
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType

import numpy as np

from planner import plugins
from planner.error import PlanError
from planner.ledger import Array, rowwise
from planner.schedules.base import MOST_ACTIONS, Actions, Work
from planner.schedules.lists import Lists
from planner.schedules.timing import Program, compiled

_NAMES = plugins.names("schedules")


def _left_out(name: str) -> ModuleType:
    """The place of a schedule that cannot be imported: it never runs, and no search takes it."""
    out = ModuleType(name)
    out.__dict__.update(
        CHUNKS="one",
        NEEDS="its distribution, which cannot be imported",
        DOMINATED="every other",
        allows=lambda p, m, v: np.zeros(np.shape(p), bool),
        idle_s=lambda fill, slow, p, m, v: np.zeros(np.shape(p)),
        live_chunks=lambda stage, pp, vpp, m: np.zeros(np.shape(pp)),
    )
    return out


_LOADED = plugins.loaded("schedules")
BY_NAME = {name: _LOADED.get(name) or _left_out(name) for name in _NAMES}
_MODULES = tuple(BY_NAME.values())  # codes of rows are positions in it


def module_of(name: str, field: str = "--schedule") -> ModuleType:
    """The schedule of this name. Raises PlanError with near matches."""
    module = BY_NAME.get(name)
    if module is None:
        near = difflib.get_close_matches(name, BY_NAME, 3, 0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise PlanError(field, name, f"is not a schedule; {hint}there are {', '.join(BY_NAME)}")
    return module


def free_running(name: str) -> bool:
    """Whether ranks start the next step without waiting for each other (post-validated optimizer,
    arXiv 2401.10241 section 4)."""
    return bool(getattr(BY_NAME.get(name), "FREE_RUNNING", False))


def is_dominated(name: str) -> bool:
    """Whether another schedule is as fast in less memory."""
    return hasattr(BY_NAME[name], "DOMINATED")


def is_simulated(name: str) -> bool:
    """Whether the idle time is simulated, since the closed form holds for some durations only."""
    return getattr(BY_NAME[name], "SIMULATED", False)


def is_automatic(name: str) -> bool:
    """Whether the order of actions is made for the seconds at hand."""
    return hasattr(BY_NAME.get(name), "actions_for")


def chunks_fit(name: str, v: Array) -> Array:
    """Whether a schedule can run with v chunks of layers per rank: one, two, or two and more.
    Looped ones need no ring of one."""
    kind = BY_NAME[name].CHUNKS
    return v == {"one": 1, "two": 2}[kind] if kind != "several" else v > 1


def default_chunks(name: str) -> int:
    """Default number of chunks per rank."""
    return 1 if BY_NAME[name].CHUNKS == "one" else 2


def actions(name: str, p: int, m: int, v: int | None = None) -> Actions:
    """The actions of each of p ranks, in order, for m micro-batches and v chunks per rank. Raises
    PlanError naming the option."""
    lists = _lists(name, p, m, v)
    return lists.actions() if isinstance(lists, Lists) else lists


def _lists(name: str, p: int, m: int, v: int | None) -> Actions | Lists:
    """`actions`, as columns where the schedule makes these."""
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
    if not runs(name, p, m, v):
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
    out: Actions | Lists = (module.lists if hasattr(module, "lists") else module.actions)(p, m, v)
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


# actions of all remembered programs, at some 200 bytes each: as many as one search of a cluster
# needs, which uses the same programs for every stack and number of GPUs
_MOST_KEPT = 2_000_000
_kept: OrderedDict[tuple[str, int, int, int], Program] = OrderedDict()
_keeping = threading.Lock()


def program(name: str, p: int, m: int, v: int) -> Program:
    """The compiled schedule. Those used last are remembered."""
    key = (name, p, m, v)
    with _keeping:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    new = compiled(_lists(*key))
    with _keeping:
        _kept[key] = new
        total = sum(len(each) for each in _kept.values())
        while total > _MOST_KEPT and len(_kept) > 1:
            _, dropped = _kept.popitem(last=False)
            total -= len(dropped)
    return new


# What a schedule says of rows: of plain arrays of its own rows, whatever the table is made of


def _by_schedule(ask: Callable[..., Array], dtype: type, code: Array, *columns: Array) -> Array:
    """For every row the answer of its schedule; codes are positions among those."""
    out: Array = np.empty(len(code), dtype)
    for index in np.flatnonzero(np.bincount(code.astype(np.intp))):
        rows = code == index
        out[rows] = ask(_MODULES[index], *(column[rows] for column in columns))
    return out


def _allowed(*columns: Array) -> Array:
    return _by_schedule(lambda module, p, m, v: module.allows(p, m, v), bool, *columns)


def _idle_s(*columns: Array) -> Array:
    def ask(module: ModuleType, *x: Array) -> Array:
        return module.idle_s(Work(*x[:3]), Work(*x[3:6]), *x[6:])

    return _by_schedule(ask, float, *columns)


def _live_chunks(*columns: Array) -> Array:
    def ask(module: ModuleType, stage: Array, pp: Array, vpp: Array, m: Array) -> Array:
        return module.live_chunks(stage, pp, vpp, m)

    return _by_schedule(ask, float, *columns)


def allowed(code: Array, p: Array, m: Array, v: Array) -> Array:
    """Whether each row's schedule can run with its ranks, micro-batches and chunks."""
    return rowwise(_allowed, code, p, m, v, boolean=True)


def idle_s(code: Array, fill: Work, slow: Work, p: Array, m: Array, v: Array) -> Array:
    """Seconds per step that stay idle, in closed form. fill: one micro-batch on all ranks but the
    slowest; slow: on that one."""
    return rowwise(_idle_s, code, *fill, *slow, p, m, v)


def live_chunks(code: Array, stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Live forward chunks per row."""
    return rowwise(_live_chunks, code, stage, pp, vpp, microbatches)


def runs(name: str, p: float, m: float, v: float) -> bool:
    """Whether one schedule can run with these ranks, micro-batches and chunks."""
    return bool(allowed(list(BY_NAME).index(name), p, m, v))
