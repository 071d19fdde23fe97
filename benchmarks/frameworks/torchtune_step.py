"""A step of torchtune's own models as its recipes for fine-tuning run it, on one GPU or sharded by
its own FSDP2, one rank of a fake world."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torchtune import training
from torchtune.models.llama3 import llama3, lora_llama3
from torchtune.models.qwen2 import lora_qwen2, qwen2
from torchtune.modules import TransformerSelfAttentionLayer
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params
from torchtune.training.memory import set_activation_checkpointing

from benchmarks.frameworks import gpu_rules, stepping
from benchmarks.frameworks.fake_world import world
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting

_ALL = ["q_proj", "k_proj", "v_proj", "output_proj"]


def model_of(setting: Setting) -> Any:
    """The model in training mode, in bf16, as training.set_default_dtype of the recipes makes
    it."""
    fields = setting.config
    shape: dict[str, Any] = {
        "vocab_size": fields["vocab_size"],
        "num_layers": fields["num_hidden_layers"],
        "num_heads": fields["num_attention_heads"],
        "num_kv_heads": fields["num_key_value_heads"],
        "embed_dim": fields["hidden_size"],
        "max_seq_len": setting.seq_len,
        "intermediate_dim": fields["intermediate_size"],
    }
    wide = fields["model_type"] == "qwen2"
    if wide:
        shape["tie_word_embeddings"] = fields["tie_word_embeddings"]
    with training.set_default_dtype(torch.bfloat16):
        if setting.lora:
            adapters = {"apply_lora_to_mlp": True, "lora_rank": setting.lora, "lora_alpha": 16}
            build: Any = lora_qwen2 if wide else lora_llama3
            decoder = build(lora_attn_modules=_ALL, **shape, **adapters)
            set_trainable_params(decoder, get_adapter_params(decoder))
        else:
            decoder = (qwen2 if wide else llama3)(**shape)
    if setting.recompute == "full":
        set_activation_checkpointing(decoder, auto_wrap_policy={TransformerSelfAttentionLayer})
    return decoder.train()


def marked(decoder: Any, live: LiveBytes) -> None:
    """The loss begins with the head, whose chunks are made for it; backward of the layers where the
    gradient of the head's input is there."""

    def enters(hidden: torch.Tensor) -> list[torch.Tensor]:
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: live.phase("backward"))
        logits = chunked(hidden)
        live.label(logits, "logits")
        live.at_loss = dict(live.by_origin)
        live.phase("loss")
        return logits

    chunked, decoder.chunked_output = decoder.chunked_output, enters


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    mesh = world(setting.ranks) if setting.ranks > 1 else None
    with gpu_rules.rules(), fake() as live:
        decoder = model_of(setting)
        loss_fn = CEWithChunkedOutputLoss()
        decoder.set_num_output_chunks(loss_fn.num_output_chunks)
        marked(decoder, live)
        if mesh is not None:
            layers = partial(training.get_shard_conditions, names_to_match=None)
            training.shard_model(
                model=decoder,
                shard_conditions=[layers],
                cpu_offload=False,
                reshard_after_forward=setting.zero == 3,
                dp_mesh=mesh,
            )
        weights: list[nn.Parameter] = [p for p in decoder.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=2e-5, fused=True)
        shape = setting.micro_batch, setting.seq_len

        def once(labelled: Callable[[], None]) -> None:
            for _ in range(setting.accumulation):
                words = torch.zeros(shape, dtype=torch.long)
                live.label([words], "batch")
                live.phase("forward")
                logits = decoder(words)
                loss = loss_fn(logits, words) * shape[1]
                del logits
                loss.backward()
                del loss
            labelled()
            live.phase("step")
            training.scale_grads(decoder, torch.ones(()))
            optimizer.step()
            labelled()
            optimizer.zero_grad(set_to_none=True)

        return stepping.two_steps(live, decoder, optimizer, once)
