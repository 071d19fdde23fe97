"""One rank of a DDP training on a CPU: its buckets. Run by ranks.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB = 5, 512, 8, 4, 1408, 4096


def run(tied: bool, cap_mb: int | None) -> dict[str, Any]:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            intermediate_size=FFN,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            num_hidden_layers=LAYERS,
            tie_word_embeddings=tied,
            attn_implementation="sdpa",
        )
    )
    order: list[int] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: order.append(p.numel()))
    ddp = DistributedDataParallel(model, bucket_cap_mb=cap_mb)
    reduced: list[list[int]] = []

    def hook(_, bucket):  # type: ignore[no-untyped-def]  # torch refuses annotations that are text
        reduced.append([p.numel() for p in bucket.parameters()])
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    ddp.register_comm_hook(None, hook)
    words = torch.randint(0, VOCAB, (1, 16))
    for _ in range(2):  # buckets are rebuilt in the order of the first backward pass
        order.clear()
        reduced.clear()
        ddp(input_ids=words, labels=words).loss.backward()
    return {"buckets": reduced, "arrived": order}


def results() -> dict[str, Any]:
    """By tied embeddings and the capacity of buckets."""
    return {
        f"{tied} {cap}": run(tied, cap) for tied, cap in ((False, None), (True, None), (False, 4))
    }
