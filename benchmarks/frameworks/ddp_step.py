"""A step of transformers' models in torch's DistributedDataParallel, one rank of a fake world.

Its reducer reads data in C++, which fake tensors have none of: models are small, and real.
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.frameworks import gpu_rules, transformers_step
from benchmarks.frameworks.accelerate_step import world
from benchmarks.frameworks.live import LiveBytes
from benchmarks.frameworks.setting import Counted, Setting


def replicated(setting: Setting, model: nn.Module) -> nn.Module:
    """The model as Accelerator.prepare wraps it."""
    return DistributedDataParallel(model)


def run(setting: Setting) -> Counted:
    """Two steps on real tensors, of which the second is counted."""
    world(setting.ranks)
    with gpu_rules.autocast_lists(), transformers_step.traced(), LiveBytes() as live:
        return transformers_step.train(setting, live, replicated)
