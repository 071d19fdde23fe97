"""Steps of nanotron's own DistributedTrainer on CPUs, by the data of its run_train.py:
`torchrun step_of_nanotron.py CHECKOUT config.yaml`.

The file is taken as it is except for the number of steps. Kernels of packages that need CUDA are
replaced by the same arithmetic of PyTorch: flash_attn's attention over packed sequences, its
rotary embedding and its RMSNorm. Devices named "cuda" are the CPU, and the collectives run on Gloo,
which has no mean.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))  # of a process that torchrun starts

from benchmarks.frameworks import nanotron_modules as modules

STEPS = 2  # nanotron's first step has a learning rate of zero


def attention(q: Any, k: Any, v: Any, ends_q: Any, *_: Any, causal: bool, **rest: Any) -> Any:
    """Causal attention within each of the packed sequences, (tokens, heads, width) in and out."""
    ends = ends_q.tolist()
    out = []
    for start, end in itertools.pairwise(ends):
        parts: list[Any] = [part[start:end].transpose(0, 1) for part in (q, k, v)]
        attend: Any = functional.scaled_dot_product_attention
        out.append(attend(*parts, is_causal=causal, enable_gqa=True).transpose(0, 1))
    whole = torch.cat(out)
    return (whole, whole.new_zeros(1), None) if rest["return_attn_probs"] else whole


def packed_attention(q: Any, kv: Any, *positional: Any, **rest: Any) -> Any:
    return attention(q, *kv.unbind(1), *positional, **rest)


class RotaryEmbedding(torch.nn.Module):
    """Rotates queries and keys, (batch, tokens, heads, width), by halves of their width."""

    def __init__(self, dim: int, base: float = 10000.0, *_: Any, **__: Any) -> None:
        super().__init__()
        self.frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)

    def forward(self, q: Any, kv: Any, seqlen_offset: int = 0, **_: Any) -> Any:
        positions = torch.arange(q.shape[1]) + seqlen_offset
        angles = torch.outer(positions, self.frequencies)[:, None]

        def rotated(part: Any) -> Any:
            first, second = part.float().chunk(2, dim=-1)
            cos, sin = angles.cos(), angles.sin()
            both = (first * cos - second * sin, second * cos + first * sin)
            return torch.cat(both, dim=-1).to(part.dtype)

        k, v = kv.unbind(2)
        return rotated(q), torch.stack((rotated(k), v), dim=2)


def norm(x: Any, weight: Any, bias: Any, eps: float, is_rms_norm: bool, **_: Any) -> Any:
    assert is_rms_norm
    assert bias is None
    return functional.rms_norm(x, weight.shape, weight, eps)


class Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls)


class Done:
    """A collective that is over."""

    def wait(self) -> None:
        return None


def mean_of(reduce: Any) -> Any:
    """all_reduce with a mean, which Gloo lacks; NCCL takes leaves of a graph, too."""

    def all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, **rest: Any) -> Any:
        mean = op == dist.ReduceOp.AVG
        handle = reduce(tensor.detach(), dist.ReduceOp.SUM if mean else op, group, **rest)
        if mean:
            if handle is not None:
                handle.wait()
            tensor.detach().div_(dist.get_world_size(group))
            return Done()
        return handle

    return all_reduce


def all_by(reduce: Any) -> Any:
    """all_reduce_coalesced, which Gloo has not for a mean."""

    def all_reduce_coalesced(tensors: Any, op: Any, group: Any, **_: Any) -> Any:
        for tensor in tensors:
            reduce(tensor, op=op, group=group)
        return Done()

    return all_reduce_coalesced


def main() -> None:
    checkout, path = sys.argv[1], Path(sys.argv[2])
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["tokens"]["train_steps"] = STEPS
    path = path.with_name("here.yaml")
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    modules.install(attention, packed_attention, RotaryEmbedding, norm)
    torch_itself: Any = torch
    torch_itself.Generator = Generator
    torch_itself.cuda.set_device = torch_itself.cuda.reset_peak_memory_stats = lambda *_: None
    torch_itself.cuda.current_device = lambda: "cpu"
    sys.path[:0] = [f"{checkout}/src", checkout]
    importlib.import_module("nanotron.logging")  # in this order: they import each other
    collectives: Any = importlib.import_module("nanotron.distributed")
    trainer_of = importlib.import_module("nanotron.trainer").DistributedTrainer
    timers = importlib.import_module("nanotron.logging.timers").nanotron_timer
    dist.init_process_group("gloo")
    of_torch: Any = torch_itself.distributed
    of_torch.all_reduce = collectives.all_reduce = mean_of(of_torch.all_reduce)
    of_torch.all_reduce_coalesced = all_by(of_torch.all_reduce)

    class Trainer(trainer_of):  # type: ignore[misc, valid-type]
        outputs: Any = ()

        def training_step(self, dataloader: Any) -> Any:
            timers._timers.clear()  # timers of GPUs become ones of CPUs, which then contradict
            self.outputs = super().training_step(dataloader)
            return self.outputs

    with modules.OnCpu():
        trainer = Trainer(str(path))
        weights = list(trainer.model.parameters())
        before = [weight.detach().clone() for weight in weights]
        trainer.train(importlib.import_module("run_train").get_dataloader(trainer))
        changed = sum(not torch.equal(old, new) for old, new in zip(before, weights, strict=True))
    if dist.get_rank() == 0:
        loss = float(trainer.outputs[1])
        kinds = dataclasses.asdict(trainer.config.parallelism)
        print(
            json.dumps(
                {
                    "steps": trainer.iteration_step,
                    "loss": loss,
                    "changed": changed,
                    "weights": len(weights),
                    "tp": kinds["tp"],
                    "dp": kinds["dp"],
                }
            )
        )


if __name__ == "__main__":
    main()
