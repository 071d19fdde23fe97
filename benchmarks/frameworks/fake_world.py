"""Ranks of a fake process group, of which one runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import _flat_param
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp._limiter_utils import _FreeEventQueue
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.frameworks.live import LiveBytes

NAMES = ("dp_shard_cp",)


def world(ranks: int, rank: int = 0) -> DeviceMesh:
    """A process group of this many ranks, of which this is that one."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    return init_device_mesh("cpu", (ranks,), mesh_dim_names=NAMES)


@contextlib.contextmanager
def late_frees(live: LiveBytes) -> Iterator[None]:
    """A gathered unit of FSDP 1 is free when the GPU has used it, while the CPU queues work ahead:
    two units are in flight at most (_FreeEventQueue), the one in use and the one before, until the
    optimizer's step."""
    handles, queues, phase = FlatParamHandle, _FreeEventQueue, live.phase
    before = handles.reshard, queues.enqueue
    freed = waiting = 0

    def wait(size: int) -> None:
        nonlocal waiting
        live.hold(size - waiting)
        waiting = size

    def reshard(handle: Any, *args: Any) -> None:
        nonlocal freed
        freed = live.now
        before[0](handle, *args)
        freed -= live.now

    def enqueue(queue: Any, event: Any) -> None:
        wait(freed)
        before[1](queue, event)

    def begins(name: str) -> None:
        if name == "step":
            wait(0)
        phase(name)

    handles.reshard, queues.enqueue = reshard, enqueue
    live.phase = begins  # type: ignore[method-assign]
    allocated = _flat_param._data_ptr_allocated  # of an address, which fake tensors have none of
    _flat_param._data_ptr_allocated = lambda tensor: tensor.untyped_storage().nbytes() > 0
    try:
        yield
    finally:
        handles.reshard, queues.enqueue = before
        _flat_param._data_ptr_allocated = allocated
