"""A step of transformers' models in DeepSpeed's engine, one rank of a fake world.

Its ZeRO optimizers read addresses of tensors, which fake ones have none of: models are small, and
real, and buckets are as much smaller as the models are.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": "0"}

import deepspeed
import torch
from deepspeed.comm import comm
from deepspeed.utils import groups
from torch import nn

from benchmarks.frameworks import gpu_rules, stepping, transformers_step
from benchmarks.frameworks.fake_world import world
from benchmarks.frameworks.live import LiveBytes
from benchmarks.frameworks.setting import DEEPSPEED_BUCKET, Counted, Setting


def config_of(setting: Setting) -> dict[str, Any]:
    """The file of a user, with the defaults of zero/config.py except for sizes."""
    return {
        "train_micro_batch_size_per_gpu": setting.micro_batch,
        "gradient_accumulation_steps": setting.accumulation,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": setting.zero,
            "overlap_comm": True,
            "reduce_bucket_size": DEEPSPEED_BUCKET,
            "allgather_bucket_size": DEEPSPEED_BUCKET,
            "stage3_prefetch_bucket_size": DEEPSPEED_BUCKET // 10,
            "stage3_param_persistence_threshold": 0,
            "sub_group_size": 2 * DEEPSPEED_BUCKET,
        },
    }


def run(setting: Setting) -> Counted:
    """Two steps on real tensors, of which the second is counted."""
    world(setting.ranks)
    comm.cdb = None  # groups of the world before
    importlib.reload(groups)
    with gpu_rules.autocast_lists(), transformers_step.traced(), LiveBytes() as live:
        model = transformers_step.model_of(setting)
        transformers_step.marked(model, live)
        weights: list[nn.Parameter] = list(model.parameters())
        optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=config_of(setting)
        )
        zero = engine.optimizer
        gradients = 0

        def labelled() -> None:
            nonlocal gradients
            live.label(model.buffers(), "buffers")
            if setting.zero == 3:
                live.label((weight.ds_tensor for weight in weights), "parameters")
                live.label(zero.fp32_partitioned_groups_flat, "states")
                flat = zero._DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition
                live.label(flat.values(), "gradients")
            else:
                live.label(weights, "parameters")
                live.label(zero.single_partition_of_fp32_groups, "states")
            live.label_states(optimizer)
            gradients = live.by_origin["gradients"]

        labelled()
        shape = setting.micro_batch, setting.seq_len
        words = torch.zeros(shape, dtype=torch.long)
        for _ in range(2):
            live.restart()
            for _ in range(setting.accumulation):
                live.phase("forward")
                loss = engine(input_ids=words, labels=words)["loss"]
                engine.backward(loss)
                del loss
                engine.step() if not engine.is_gradient_accumulation_boundary() else None
            live.phase("step")
            engine.step()
            labelled()
        return stepping.counted(live, gradients)
