"""Steps of torchtitan's own Trainer on CPUs: `torchrun step_of_torchtitan.py train.toml`.

The file is taken as it is, with torchtitan's debugmodel of the same family as flavor and another
number of steps. Replaced are the type of device, the monitor of its memory, the barrier that sets
timeouts, and the dataset with its tokenizer, by random tokens; gradients are summed without a
factor, which Gloo's reductions lack.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch._utils
from torch.distributed.fsdp import FSDPModule

torch._utils._get_available_device_type = lambda: "cpu"  # read when torchtitan is imported

from torchtitan import train  # noqa: E402
from torchtitan.components import metrics  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.protocols import train_spec  # noqa: E402

STEPS = 2  # torchtitan warms up: its first step has a learning rate near zero
_NO_STATS = metrics.DeviceMemStats(*[0.0] * 6)


class Tokens:
    """Random tokens."""

    def __init__(self, config: Any, words: int, rank: int) -> None:
        self.shape = (config.training.local_batch_size, config.training.seq_len)
        self.words, self.generator = words, torch.Generator().manual_seed(rank)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            tokens = torch.randint(self.words, self.shape, generator=self.generator)
            yield {"input": tokens}, tokens.roll(-1, dims=1)


def main() -> None:
    metrics.build_device_memory_monitor = lambda: SimpleNamespace(
        device_name="cpu", get_peak_stats=lambda: _NO_STATS, reset_peak_stats=lambda: None
    )
    train.dist_utils.set_pg_timeouts = lambda *_, **__: None  # by a barrier of GPUs
    words = [f"--job.config_file={sys.argv[1]}", "--model.flavor=debugmodel"]
    config = ConfigManager().parse_args([*words, f"--training.steps={STEPS}"])
    spec = train_spec.get_train_spec(config.model.name)
    size = spec.model_args["debugmodel"].vocab_size
    train_spec.register_train_spec(
        config.model.name,
        dataclasses.replace(
            spec,
            build_tokenizer_fn=None,
            build_dataloader_fn=lambda dp_rank, job_config, **rest: Tokens(
                job_config, size, dp_rank
            ),
        ),
    )
    trainer = train.Trainer(config)
    for part in trainer.model_parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):  # Gloo has no reduction that scales
                module.set_force_sum_reduction_for_comms(True)
    weights = [weight for part in trainer.model_parts for weight in part.parameters()]
    before = [weight.detach().clone() for weight in weights]
    trainer.train()
    changed = sum(not torch.equal(old, new) for old, new in zip(before, weights, strict=True))
    if torch.distributed.get_rank() == 0:
        print(json.dumps({"steps": trainer.step, "changed": changed, "weights": len(weights)}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
