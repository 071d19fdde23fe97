"""A step of transformers' models sharded by accelerate's FSDP 1 or 2, one rank of a fake world."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, _flat_param
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp._limiter_utils import _FreeEventQueue
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.frameworks import gpu_rules, transformers_step
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting

_NAMES = ("dp_shard_cp",)
_WHOLE = 2  # the ZeRO stage whose gathered parameters stay until backward


def world(ranks: int, rank: int = 0) -> DeviceMesh:
    """A process group of so many ranks, of which this is that one."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    return init_device_mesh("cpu", (ranks,), mesh_dim_names=_NAMES)


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


def flattened(mesh: DeviceMesh, setting: Setting, model: nn.Module) -> nn.Module:
    """The model as Accelerator.prepare_model shards it by FSDP 1, with the answers that
    `accelerate config` offers first."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=1,
        sharding_strategy="FULL_SHARD" if setting.zero > _WHOLE else "SHARD_GRAD_OP",
        auto_wrap_policy="transformer_based_wrap",
        backward_prefetch="BACKWARD_PRE",
        use_orig_params=True,
        cpu_ram_efficient_loading=False,
    )
    plugin.set_mixed_precision("bf16")
    plugin.set_auto_wrap_policy(model)
    return FullyShardedDataParallel(
        model,
        sharding_strategy=plugin.sharding_strategy,
        auto_wrap_policy=plugin.auto_wrap_policy,
        mixed_precision=plugin.mixed_precision_policy,
        backward_prefetch=plugin.backward_prefetch,
        forward_prefetch=plugin.forward_prefetch,
        use_orig_params=plugin.use_orig_params,
        limit_all_gathers=plugin.limit_all_gathers,
        device_id=torch.device("cpu"),
    )


def sharded(mesh: DeviceMesh, setting: Setting, model: nn.Module) -> nn.Module:
    """The model as Accelerator.prepare shards it by FSDP 2."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=setting.zero > _WHOLE,
        auto_wrap_policy="transformer_based_wrap",
        cpu_ram_efficient_loading=False,
    )
    plugin.set_mixed_precision("bf16")
    accelerator: Any = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16",
        is_main_process=False,
        device=torch.device("cpu"),
        torch_device_mesh=mesh,
        parallelism_config=SimpleNamespace(fsdp_dim_names=_NAMES),
    )
    return fsdp2_prepare_model(accelerator, model)


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    shard = flattened if setting.framework == "fsdp1" else sharded
    prepare = functools.partial(shard, world(setting.ranks))
    with gpu_rules.rules(), transformers_step.traced(), fake() as live, late_frees(live):
        return transformers_step.train(setting, live, prepare)
