"""Time collectives over the groups a plan would use, and a GEMM beside one: what they cost each
other.

On a CPU a collective is timed between GEMMs, as a step has it. Back to back it finds its buffers in
the cache, the threads that serve it awake and the other ranks at the same point: an all-reduce of
4 KiB then takes 0.2 ms, and 0.6 ms after ten milliseconds of work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist

from planner.calibrate import cases
from planner.calibrate.device import Device
from planner.calibrate.measure import Task, Timed
from planner.calibrate.record import Record

_REPEAT_BYTES = 4 * cases.MIB  # one sample moves about this much, in up to _MOST_REPEATS calls
_MOST_REPEATS = 30
# of calls between work on a CPU, whose mean is a sample; and GEMMs between two of them, some
# milliseconds as between the collectives of a layer; choices
_ROUNDS, _GEMMS_BETWEEN = 8, 2
_PAIR_BYTES_CPU, _PAIR_BYTES_GPU = 4 * cases.MIB, 64 * cases.MIB
_BESIDE_BYTES = 8 * cases.MIB
_BESIDE_WIDTH_CPU, _BESIDE_WIDTH_GPU = 512, 8192


def tasks(device: Device, mode: cases.Mode, rank: int, ranks: int, per_node: int) -> Iterator[Task]:
    """Every operation, size and group; every rank makes all groups, in the same order, and takes
    part in its own."""
    for name, members in cases.groups(ranks, per_node).items():
        mine = None
        for group_ranks in members:
            group = dist.new_group(group_ranks)
            if rank in group_ranks:
                mine = (group, group_ranks)
        size = len(members[0])
        for operation in cases.COLLECTIVES:
            for i, whole in enumerate(cases.sizes(mode, device.gpu)):
                record: Record = {
                    "kind": "collective",
                    "operation": operation,
                    "group": name,
                    "ranks": size,
                    "bytes": whole,
                    "held_out": i % cases.HELD_OUT_EVERY == 1,
                }
                yield record, partial(_timed, device, operation, whole, mine)
    for first, second in cases.pairs(ranks):
        whole = _PAIR_BYTES_GPU if device.gpu else _PAIR_BYTES_CPU
        record = {"kind": "pair", "first": first, "second": second, "bytes": whole}
        yield record, partial(_between, device, whole, first, second)
    for part in ("product", "collective", "both"):
        yield (
            {"kind": "overlap", "part": part, "bytes": _BESIDE_BYTES, "ranks": ranks},
            partial(_beside, device, part),
        )


Mine = tuple[dist.ProcessGroup, list[int]] | None


def _between(device: Device, whole: int, first: int, second: int) -> Timed:
    """Seconds of one message between two ranks, there and back over two; the other ranks wait at
    the next case."""
    if dist.get_rank() not in (first, second):
        return lambda: 0.0
    tensor = device.tensor(whole // 4)

    def there_and_back() -> None:
        if dist.get_rank() == first:
            dist.send(tensor, second)
            dist.recv(tensor, second)
        else:
            dist.recv(tensor, first)
            dist.send(tensor, first)

    there_and_back()

    def timed() -> float:
        device.wait()
        start = time.perf_counter()
        there_and_back()
        device.wait()
        return (time.perf_counter() - start) / 2

    return timed


def _timed(device: Device, operation: str, whole: int, mine: Mine) -> Timed:
    """Seconds per call. A rank outside all groups of a kind waits."""
    if mine is None:
        return lambda: 0.0
    group, members = mine
    call = _call(device, operation, whole, group, members)
    call()
    if not device.gpu:
        return _between_work(device, call, group)
    repeats = max(1, min(_MOST_REPEATS, _REPEAT_BYTES // whole))

    def timed() -> float:
        dist.barrier(group=group)
        device.wait()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        device.wait()
        return (time.perf_counter() - start) / repeats

    return timed


def _between_work(device: Device, call: Callable[[], object], group: dist.ProcessGroup) -> Timed:
    """Seconds that a call adds to the work of the slowest rank: waking up, waiting for each other
    and the time of the call itself."""
    a, b = (device.tensor(_BESIDE_WIDTH_CPU, _BESIDE_WIDTH_CPU) for _ in range(2))

    def timed() -> float:
        dist.barrier(group=group)
        working_s, start_s = 0.0, time.perf_counter()
        for _ in range(_ROUNDS):
            begin_s = time.perf_counter()
            for _ in range(_GEMMS_BETWEEN):
                torch.mm(a, b)
            working_s += time.perf_counter() - begin_s
            call()
        whole_s = time.perf_counter() - start_s
        slowest = torch.tensor([working_s], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
        return (whole_s - float(slowest)) / _ROUNDS

    return timed


def _call(
    device: Device, operation: str, whole: int, group: dist.ProcessGroup, members: list[int]
) -> Callable[[], object]:
    count = len(members)
    elements = max(whole // 4 // count, 1) * count
    full = device.tensor(elements)
    part = device.tensor(elements // count)
    if operation == "all_reduce":
        return lambda: dist.all_reduce(full, group=group)
    if operation == "all_gather":
        return lambda: dist.all_gather_into_tensor(full, part, group=group)
    if operation == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, full, group=group)
    if operation == "all_to_all":
        other = torch.empty_like(full)
        return lambda: dist.all_to_all_single(other, full, group=group)
    if operation == "broadcast":
        return lambda: dist.broadcast(full, src=members[0], group=group)
    me = dist.get_rank()
    first, second = members[0], members[1]

    def message() -> None:
        """There and back: two messages are two calls."""
        if me == first:
            dist.send(full, second, group=group)
        elif me == second:
            dist.recv(full, first, group=group)

    return message


def _beside(device: Device, part: str) -> Timed:
    """A GEMM, an all-reduce, or both at the same time."""
    width = _BESIDE_WIDTH_GPU if device.gpu else _BESIDE_WIDTH_CPU
    a, b = device.tensor(width, width), device.tensor(width, width)
    full = device.tensor(_BESIDE_BYTES // 4)

    def gemms() -> None:
        for _ in range(3):
            torch.mm(a, b)

    def timed() -> float:
        dist.barrier()
        device.wait()
        start = time.perf_counter()
        work = dist.all_reduce(full, async_op=True) if part != "product" else None
        if part != "collective":
            gemms()
        if work is not None:
            work.wait()
        device.wait()
        return time.perf_counter() - start

    timed()
    return timed
