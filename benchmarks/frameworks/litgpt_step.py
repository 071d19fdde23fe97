"""A step of LitGPT's own models as its fine-tuning programs run it, on one GPU or in Lightning's
FSDP, one rank of a fake world."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from lightning.fabric.plugins.precision import FSDPPrecision, HalfPrecision, MixedPrecision
from lightning.fabric.strategies import FSDPStrategy
from lightning.fabric.strategies.fsdp import _setup_activation_checkpointing
from lightning.fabric.wrappers import _FabricModule
from litgpt import lora, model
from litgpt.utils import chunked_cross_entropy, instantiate_torch_optimizer
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from benchmarks.frameworks import gpu_rules, stepping
from benchmarks.frameworks.fake_world import late_frees, world
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting

_CHUNK = 128  # lm_head_chunk_size of finetune/lora.py
_MATRICES = ("query", "key", "value", "projection", "mlp")
_PYTHIA = {
    "parallel_residual": True,
    "bias": True,
    "rotary_percentage": 0.25,
    "norm_class_name": "LayerNorm",
    "mlp_class_name": "GptNeoxMLP",
}
_LLAMA = {
    "parallel_residual": False,
    "bias": False,
    "rotary_percentage": 1.0,
    "norm_class_name": "RMSNorm",
    "mlp_class_name": "LLaMAMLP",
}


def model_of(setting: Setting) -> nn.Module:
    """The model in training mode, with weights in the type of the setting."""
    fields = setting.config
    family = fields["model_type"]
    config: dict[str, Any] = dict(_PYTHIA if family == "gpt_neox" else _LLAMA)
    config |= {
        "n_layer": fields["num_hidden_layers"],
        "n_embd": fields["hidden_size"],
        "n_head": fields["num_attention_heads"],
        "n_query_groups": fields.get("num_key_value_heads", fields["num_attention_heads"]),
        "head_size": fields.get("head_dim"),
        "intermediate_size": fields["intermediate_size"],
        "block_size": setting.seq_len,
        "padded_vocab_size": fields["vocab_size"],
        "attn_bias": family == "qwen2",
        "norm_qk": family == "qwen3",
    }
    config["head_size"] = config["head_size"] or config["n_embd"] // config["n_head"]
    adapted = setting.lora > 0
    if adapted:
        config |= {"lora_r": setting.lora, **{f"lora_{name}": True for name in _MATRICES}}
    kind: Any = lora if adapted else model
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if setting.base == "fp32" else torch.bfloat16)
    try:
        gpt = kind.GPT(kind.Config(**config))
    finally:
        torch.set_default_dtype(dtype)
    if adapted:
        lora.mark_only_lora_as_trainable(gpt)
    trained: nn.Module = gpt.train()
    return trained


def prepared(setting: Setting, gpt: nn.Module) -> nn.Module:
    """Fabric.setup on a GPU."""
    words: Any = "bf16-mixed" if setting.precision == "mixed" else "bf16-true"
    if setting.ranks == 1:
        mixed = setting.precision == "mixed"
        precision = MixedPrecision(words, "cpu") if mixed else HalfPrecision(words)
        return _FabricModule(gpt, SimpleNamespace(precision=precision), gpt)
    # of finetune/full.py
    policy = {model.Block} if setting.recompute == "full" else None
    strategy = FSDPStrategy(
        auto_wrap_policy={model.Block},
        activation_checkpointing_policy=policy,
        state_dict_type="full",
        limit_all_gathers=True,
        cpu_offload=False,
        sharding_strategy="FULL_SHARD" if setting.zero == 3 else "SHARD_GRAD_OP",
    )
    precision = FSDPPrecision(words)
    strategy.precision = precision
    precision.forward_context = (
        (lambda: torch.autocast("cpu", torch.bfloat16))
        if setting.precision == "mixed"
        else precision.tensor_init_context
    )
    whole = FullyShardedDataParallel(
        gpt,
        mixed_precision=strategy.mixed_precision_config,
        sharding_strategy=strategy.sharding_strategy,
        device_id=torch.device("cpu"),
        **strategy._fsdp_kwargs,
    )
    _setup_activation_checkpointing(whole, strategy._activation_checkpointing_kwargs)
    return _FabricModule(whole, strategy, gpt)


def marked(gpt: Any, live: LiveBytes) -> None:
    """Backward of the layers begins where the gradient of the head's input is there."""

    def enters(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        if args[0].requires_grad:
            args[0].register_hook(lambda gradient: live.phase("backward"))

    gpt.lm_head.register_forward_pre_hook(enters)


def logits_of(setting: Setting, live: LiveBytes, gpt: nn.Module, words: torch.Tensor) -> Any:
    """Logits as finetune/full.py asks for them, or chunks of them as finetune/lora.py does."""
    if not setting.lora:
        return gpt(words)
    logits = gpt(words, lm_head_chunk_size=_CHUNK)
    logits[-1] = logits[-1][..., :-1, :]
    return logits


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    if setting.ranks > 1:
        world(setting.ranks)
    # as Fabric.backward sets it
    inside = patch("lightning.fabric.wrappers._in_fabric_backward", True)
    with gpu_rules.rules(), inside, fake() as live, late_frees(live):
        gpt = model_of(setting)
        marked(gpt, live)
        whole = prepared(setting, gpt)
        # lists of tensors, torch's choice on a GPU
        optimizer = instantiate_torch_optimizer("AdamW", whole.parameters(), foreach=True)
        gradients = 0  # not stepping.two_steps: logits of a step live until the next ones

        def labelled() -> None:
            nonlocal gradients
            live.label_model(whole, optimizer)
            gradients = live.by_origin["gradients"]

        labelled()
        shape = setting.micro_batch, setting.seq_len
        for _ in range(2):
            live.restart()
            for i in range(setting.accumulation):  # which keeps logits until there are others
                words = torch.zeros(shape, dtype=torch.long)
                live.label([words], "batch")
                live.phase("forward")
                waits = setting.ranks > 1 and i < setting.accumulation - 1
                sharded: Any = whole._forward_module
                with sharded.no_sync() if waits else contextlib.nullcontext():
                    logits = logits_of(setting, live, whole, words)
                    live.label(logits if setting.lora else [logits], "logits")
                    live.at_loss = dict(live.by_origin)
                    live.phase("loss")
                    scores = logits if setting.lora else logits[..., :-1, :]
                    loss = chunked_cross_entropy(scores, words[..., 1:])
                    del scores
                    (loss / setting.accumulation).backward()
                del loss
            labelled()
            live.phase("step")
            optimizer.step()
            labelled()
            optimizer.zero_grad()
        return stepping.counted(live, gradients)
