"""Time the memory of a host and an optimizer on its processors, as an offloaded optimizer finds
them: a vector that is scaled in place, and torch's fused AdamW, on one core and on all.

One rank of every node measures while the others wait: the ranks of a node share its memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import torch

from planner.calibrate import cases
from planner.calibrate.detect import usable_cores
from planner.calibrate.fit import Fit, Number, Unsupported
from planner.calibrate.measure import Task, Timed
from planner.calibrate.record import Record

_Work = Callable[[], object]

# parameters of which four fp32 vectors are more than any cache holds
_PARAMETERS: dict[cases.Mode, int] = {"quick": 2**24, "default": 2**26, "thorough": 2**28}
_VECTOR_BYTES, _SCALED_BYTES = 4, 8  # of an element; read and written
# that an update moves: parameter, gradient and two moments read, all but the gradient written
UPDATE_BYTES = 28.0
_NEARLY_ONE = 0.999999


def tasks(mode: cases.Mode, first_of_node: bool) -> Iterator[Task]:
    """Seconds per byte of a scaled vector, and per parameter of an update."""
    for threads in sorted({1, usable_cores()}):
        for work in ("stream", "update"):
            record: Record = {"kind": "host", "what": work, "threads": threads}
            size = _PARAMETERS[mode]
            yield record, partial(_timed, work, threads, size, first_of_node)


def _timed(kind: str, threads: int, size: int, first_of_node: bool) -> Timed:
    """Other ranks of a node wait: they return nothing that counts."""
    if not first_of_node:
        return lambda: 0.0
    work, items = _stream(size) if kind == "stream" else _update(size)

    def timed() -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            start_s = time.perf_counter()
            work()
            return (time.perf_counter() - start_s) / items
        finally:
            torch.set_num_threads(before)

    timed()  # pages and threads exist from here on
    return timed


def _stream(size: int) -> tuple[_Work, float]:
    vector = torch.ones(_VECTOR_BYTES * size)
    return lambda: vector.mul_(_NEARLY_ONE), _SCALED_BYTES * vector.numel()


def _update(size: int) -> tuple[_Work, float]:
    parameter = torch.nn.Parameter(torch.ones(size))
    parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer = torch.optim.AdamW([parameter], lr=1e-6, fused=True)
    return lambda: optimizer.step(), size


def memory(records: Sequence[Record]) -> Fit:
    """Stream bandwidth of all cores and of one, and the share that an update on all cores reaches.
    Its error: the update on one core against that core's stream bandwidth, the bound of an
    estimate."""
    mine = {
        (r["what"], r["threads"]): 1.0 / r["seconds"]
        for r in records
        if r["kind"] == "host" and r["seconds"] > 0
    }
    used = [threads for _, threads in mine]
    every = max(used, default=0)
    wanted = {(kind, threads) for kind in ("stream", "update") for threads in (1, every)}
    if not every or not wanted <= mine.keys():
        raise Unsupported("no update on one core and on all was measured beside a stream")
    rates = {
        key: rate * (UPDATE_BYTES if key[0] == "update" else 1.0) for key, rate in mine.items()
    }
    error = abs(rates["update", 1] / rates["stream", 1] - 1.0)
    numbers = {
        "stream_bandwidth": Number(rates["stream", every]),
        "core_bandwidth": Number(rates["stream", 1]),
        "update_frac": Number(rates["update", every] / rates["stream", every]),
    }
    return Fit("host", numbers, len(mine), error, error)


def copies(records: Sequence[Record]) -> Fit:
    """Bytes per second between a GPU and its host while all of its GPUs copy: page-locked, the
    slower way, and from pageable memory."""
    mine = [r for r in records if r["kind"] == "host copy" and r["seconds"] > 0]
    locked = [1.0 / r["seconds"] for r in mine if r["pinned"]]
    pageable = [1.0 / r["seconds"] for r in mine if not r["pinned"] and r["way"] == "to device"]
    if not locked or not pageable:
        raise Unsupported("no copy between host and device was measured")
    numbers = {"copy_bandwidth": Number(min(locked)), "staged_bandwidth": Number(median(pageable))}
    return Fit("host copies", numbers, len(mine))
