"""A step of transformers' models in torch's DistributedDataParallel, one rank of a fake world, with
an optimizer of all weights or torch's ZeroRedundancyOptimizer.

Its reducer reads data in C++, which fake tensors have none of: models are small, and real.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from benchmarks.frameworks import gpu_rules, stepping, transformers_step
from benchmarks.frameworks.fake_world import world
from benchmarks.frameworks.live import LiveBytes
from benchmarks.frameworks.setting import Counted, Setting


def whole(buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """A bucket that is reduced in place: the fake process group returns no result."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(buffer)
    return done


def replicated(setting: Setting, model: nn.Module) -> nn.Module:
    """The model as Accelerator.prepare wraps it."""
    replica = DistributedDataParallel(model)
    replica.register_comm_hook(None, lambda state, bucket: whole(bucket.buffer()))
    return replica


def fullest(setting: Setting) -> int:
    """The rank whose part of the weights is the largest."""
    world(setting.ranks)
    with torch.device("meta"):
        model = transformers_step.model_of(setting)
    optimizer = stepping.optimizer_of(setting, list(model.parameters()))
    assert isinstance(optimizer, ZeroRedundancyOptimizer)
    parts = [
        sum(weight.numel() for group in groups for weight in group["params"])
        for groups in optimizer._partition_parameters()
    ]
    return parts.index(max(parts))


def run(setting: Setting) -> Counted:
    """Two steps on real tensors, of which the second is counted."""
    world(setting.ranks, fullest(setting) if setting.zero else 0)
    with gpu_rules.autocast_lists(), transformers_step.traced(), LiveBytes() as live:
        return transformers_step.train(setting, live, replicated)
