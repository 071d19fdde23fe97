"""A step of transformers' models sharded by accelerate's FSDP 1 or 2, one rank of a fake world."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel

from benchmarks.frameworks import gpu_rules, transformers_step
from benchmarks.frameworks.fake_world import NAMES, late_frees, world
from benchmarks.frameworks.live import fake
from benchmarks.frameworks.setting import Counted, Setting

_WHOLE = 2  # the ZeRO stage whose gathered parameters stay until backward


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
        parallelism_config=SimpleNamespace(fsdp_dim_names=NAMES),
    )
    return fsdp2_prepare_model(accelerator, model)


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    shard = flattened if setting.framework == "fsdp1" else sharded
    prepare = functools.partial(shard, world(setting.ranks))
    with gpu_rules.rules(), transformers_step.traced(), fake() as live, late_frees(live):
        return transformers_step.train(setting, live, prepare)
