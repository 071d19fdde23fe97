"""A step of transformers' models in torch's DistributedDataParallel, one rank of a fake world.

Its reducer reads data in C++, which fake tensors have none of: models are small, and real.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.frameworks import gpu_rules, transformers_step
from benchmarks.frameworks.accelerate_step import world
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


def run(setting: Setting) -> Counted:
    """Two steps on real tensors, of which the second is counted."""
    world(setting.ranks)
    with gpu_rules.autocast_lists(), transformers_step.traced(), LiveBytes() as live:
        return transformers_step.train(setting, live, replicated)
