"""A step of transformers' models sharded by accelerate's FSDP2, one rank of a fake world."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.frameworks import gpu_rules, transformers_step
from benchmarks.frameworks.live import fake
from benchmarks.frameworks.setting import Counted, Setting

_NAMES = ("dp_shard_cp",)
_WHOLE = 2  # the ZeRO stage whose gathered parameters stay until backward


def world(ranks: int) -> DeviceMesh:
    """A process group of so many ranks, of which this is the first."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    return init_device_mesh("cpu", (ranks,), mesh_dim_names=_NAMES)


def sharded(mesh: DeviceMesh, setting: Setting, model: nn.Module) -> nn.Module:
    """The model as Accelerator.prepare shards it."""
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
    prepare = functools.partial(sharded, world(setting.ranks))
    with gpu_rules.rules(), transformers_step.traced(), fake() as live:
        return transformers_step.train(setting, live, prepare)
