"""Ranks of small distributed trainings on a CPU: prints their bytes and DDP's buckets as JSON. Run
by tests/test_ranks.py.

python ranks.py RANKS PORT
"""

from __future__ import annotations

from typing import Any

import ddp_ranks
import torch
from rank_processes import as_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

LAYERS, HIDDEN, HEADS, FFN, VOCAB, TOKENS = 4, 64, 4, 192, 256, 32
MODES = ("ddp", "zero-1", "fsdp", "fsdp, gathered once", "tensor", "pipeline")


class Stage(nn.Module):
    """Some layers of a Llama, with its embedding and head where asked."""

    def __init__(self, layers: int, first: bool = True, last: bool = True) -> None:
        super().__init__()
        config = LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            intermediate_size=FFN,
            num_attention_heads=HEADS,
            num_hidden_layers=layers,
            attn_implementation="sdpa",
        )
        self.embed = nn.Embedding(VOCAB, HIDDEN) if first else None
        self.layers = nn.ModuleList(LlamaDecoderLayer(config, i) for i in range(layers))
        self.rotary = LlamaRotaryEmbedding(config)
        self.norm = LlamaRMSNorm(HIDDEN) if last else None
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False) if last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.embed is None else self.embed(x)
        where = self.rotary(x, torch.arange(x.shape[1])[None])
        for layer in self.layers:
            x = layer(x, position_embeddings=where)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_bytes(tensors: Any) -> int:
    return sum(local(t).nbytes for t in tensors)


def gathered_of(model: nn.Module) -> list[torch.Tensor]:
    """Parameters that FSDP has gathered now; released ones have no bytes."""
    groups = [
        m._get_fsdp_state()._fsdp_param_group for m in model.modules() if isinstance(m, FSDPModule)
    ]
    return [
        t
        for group in groups
        if group is not None
        for fsdp_param in group.fsdp_params
        for t in fsdp_param.all_gather_outputs
    ]


def loss_of(logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())


def run(mode: str, rank: int, ranks: int) -> dict[str, int]:
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (ranks,))
    words = torch.randint(
        0, VOCAB, (2 * ranks, TOKENS), generator=torch.Generator().manual_seed(rank)
    )
    model: nn.Module = Stage(LAYERS)
    gathered = 0
    if mode == "pipeline":
        model = Stage(LAYERS // ranks, rank == 0, rank == ranks - 1)
    elif mode == "tensor":
        columns, rows = ColwiseParallel(), RowwiseParallel()
        plan: dict[str, Any] = {
            "embed": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Replicate()),
        }
        for i in range(LAYERS):
            for name in (
                "self_attn.q_proj",
                "self_attn.k_proj",
                "self_attn.v_proj",
                "mlp.gate_proj",
                "mlp.up_proj",
            ):
                plan[f"layers.{i}.{name}"] = columns
            for name in ("self_attn.o_proj", "mlp.down_proj"):
                plan[f"layers.{i}.{name}"] = rows
        parallelize_module(model, mesh, plan)
    elif mode.startswith("fsdp"):
        again = mode == "fsdp"
        layers: Any = model.layers
        for layer in layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=again)
        fully_shard(model, mesh=mesh, reshard_after_forward=again)
    runs = DistributedDataParallel(model) if mode in ("ddp", "zero-1") else model
    listed: list[Any] = list(model.parameters())
    optimizer: Any = (
        ZeroRedundancyOptimizer(listed, torch.optim.AdamW, foreach=False)
        if mode == "zero-1"
        else torch.optim.AdamW(listed, foreach=False)
    )
    if mode == "pipeline":
        stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
        schedule = Schedule1F1B(stage, 2 * ranks, loss_fn=loss_of)
        target = words if rank == ranks - 1 else None
        schedule.step(*([words] if rank == 0 else []), target=target)
    else:
        out = runs(words)
        gathered = sum(t.untyped_storage().nbytes() for t in gathered_of(model))
        loss_of(out, words).backward()
    # the embedding's gradient of a tensor-parallel rank is a partial sum until something reads it
    # as its shard
    sharded = [
        p.grad.redistribute(placements=p.placements) if isinstance(p.grad, DTensor) else p.grad
        for p in listed
    ]
    gradients = local_bytes(sharded)
    optimizer.step()
    inner = optimizer.optim if mode == "zero-1" else optimizer
    moments = [v for state in inner.state.values() for k, v in state.items() if k != "step"]
    return {
        "parameters": local_bytes(listed),
        "gradients": gradients,
        "optimizer": local_bytes(moments),
        "gathered": gathered,
    }


def results(rank: int, ranks: int) -> dict[str, Any]:
    bytes_ = {mode: run(mode, rank, ranks) for mode in MODES}
    return {"bytes": bytes_, "buckets": ddp_ranks.results()}


if __name__ == "__main__":
    as_ranks(results)
