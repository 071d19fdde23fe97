"""LLM Foundry's YAML (MosaicML Composer): MPT by its widths, models of Hugging Face by name.

Names and defaults: llmfoundry/utils/config_utils.py, command_utils/train.py and
models/mpt/configuration_mpt.py of mosaicml/llm-foundry@8c8dd48f.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import adapted, sharding, trainer
from planner.formats.record import Answer, Argument, Format, Value, unread

STACK = "composer-fsdp"
_DETECT = (
    re.compile(r"(?m)^(?:global_train_batch_size|device_train_microbatch_size)[ \t]*:"),
    re.compile(r"(?m)^train_loader[ \t]*:"),
)
_PRECISIONS = {"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32", "amp_fp8": "fp8-delayed"}
_OPTIMIZERS = {"decoupled_adamw": "adam", "adamw": "adam", "decoupled_lionw": "lion"}
_ATTENTIONS = {"flash": True, "torch": None, "triton": None}
_NAMES = adapted.Names(
    rank="model.peft_config.r",
    targets=("model.peft_config.target_modules",),
    dropout="model.peft_config.lora_dropout",
    scaled="model.peft_config.use_rslora",
    parted="model.peft_config.use_dora",
    saved="model.peft_config.modules_to_save",
    default_rank=8,
)
_MPT = "mpt_causal_lm"


def _size(value: Any) -> int | None:
    """A number of sequences. Raises ValueError for auto."""
    if value == "auto":
        raise ValueError("is found by trying: give --micro-batch")
    return trainer.whole(value)


_TABLE = (
    Argument("global_train_batch_size", "global_batch", meaning=trainer.whole),
    Argument("device_train_microbatch_size", "micro_batch", meaning=_size),
    Argument("max_seq_len", "seq_len", meaning=trainer.whole),
    Argument("precision", "precision", words=_PRECISIONS, default="amp_bf16"),
    Argument("expandable_segments", "expandable_segments", meaning=bool),
    Argument("optimizer.name", "optimizer", words=_OPTIMIZERS),
    Argument("model.pretrained_model_name_or_path", "model", meaning=trainer.model_name),
)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    _sharding(values, answer)
    kind = str(answer.get("model.name", ""))
    if kind == _MPT:
        _mpt(answer)
    answer.mark("model.name", "implied", "the kind of model")
    if _NAMES.rank in values or "model.peft_config.peft_type" in values:
        name = "model.peft_config.peft_type"
        adapted.read(answer, _NAMES, name, "lora")
    for name in values:
        if name.startswith("model.attn_config.attn_impl"):
            answer.state("flash_attention", _ATTENTIONS.get(str(answer.get(name))), name)
    if trainer.is_on(answer, "model.use_flash_attention_2"):
        answer.state("flash_attention", True, "model.use_flash_attention_2")
    trainer.read_degrees(answer)
    trainer.mark_empty(answer)


def _sharding(values: Mapping[str, Value], answer: Answer) -> None:
    how, saves = "fsdp_config.sharding_strategy", "fsdp_config.activation_checkpointing"
    answer.imply("stack", STACK, "a file of LLM Foundry")
    if any(name.startswith("fsdp_config.") for name in values):
        stage = sharding.SHARDING.get(str(answer.get(how, "FULL_SHARD")).lower())
        if stage is None:
            answer.mark(how, "not understood")
        else:
            answer.imply("zero", stage, "FULL_SHARD by default", how)
        on = trainer.is_on(answer, saves)
        answer.imply("recompute", trainer.RECOMPUTE[on], "off by default", saves)
        if trainer.is_on(answer, "fsdp_config.activation_cpu_offload"):
            answer.state("offload", "activations", "fsdp_config.activation_cpu_offload")
        answer.mark("fsdp_config.activation_cpu_offload", "implied", "off")
        if answer.get("fsdp_config.mixed_precision") in ("DEFAULT", "PURE", None):
            answer.mark("fsdp_config.mixed_precision", "implied", "fp32 shards")
    else:
        answer.imply("zero", 0, "no fsdp_config")
        answer.imply("recompute", "none", "no fsdp_config")


def _mpt(answer: Answer) -> None:
    """MPT by its widths: GPT with a plain MLP, no biases where no_bias says so."""
    get = answer.get
    widths = {"layers": "n_layers", "hidden": "d_model", "heads": "n_heads", "vocab": "vocab_size"}
    usual = {"layers": 24, "hidden": 2048, "heads": 16, "vocab": 50368}
    for ours, name in widths.items():
        value = get(f"model.{name}", usual[ours])
        answer.imply(f"model.{ours}", value, "of MPTConfig", f"model.{name}")
    hidden, heads = get("model.d_model", usual["hidden"]), get("model.n_heads", usual["heads"])
    factor = get("model.expansion_ratio", 4)
    kind = str(get("model.ffn_config.ffn_type", "mptmlp"))
    wide = get("model.ffn_config.ffn_hidden_size") or int(hidden * factor)
    answer.imply("model.ffn_hidden", wide, "of MPTConfig", "model.expansion_ratio")
    answer.mark("model.ffn_config.ffn_hidden_size", "implied", "of the MLP")
    if "glu" in kind:
        answer.imply("model.mlp", "gated", "", "model.ffn_config.ffn_type")
    else:
        answer.imply("model.activation", "gelu", "of MPT")
        answer.mark("model.ffn_config.ffn_type", "implied", "of the MLP")
    shared = {"multiquery_attention": 1, "multihead_attention": heads}
    attention = str(get("model.attn_config.attn_type", "multihead_attention"))
    count = get("model.attn_config.kv_n_heads") or shared.get(attention)
    if count:
        answer.imply("model.kv_heads", count, "of MPTConfig", "model.attn_config.attn_type")
    for name in ("attn_type", "kv_n_heads"):
        answer.mark(f"model.attn_config.{name}", "implied", "of attention")
    places = {"model.attn_config.alibi": "alibi", "model.attn_config.rope": "rotary"}
    named = next((name for name in places if get(name)), "")
    learned = "learned" if get("model.learned_pos_emb", True) else "none"
    answer.imply("model.positions", places.get(named, learned), "of MPTConfig", named)
    bias = not get("model.no_bias", False)
    for part in ("qkv", "attention_out", "mlp"):
        answer.imply(f"model.bias_{part}", bias, "no_bias is off", "model.no_bias")
    kinds = {"rmsnorm": "rmsnorm", "low_precision_rmsnorm": "rmsnorm"}
    norm = str(get("model.norm_type", "low_precision_layernorm")).lower()
    answer.imply("model.norm", kinds.get(norm, "layernorm"), "of MPTConfig", "model.norm_type")
    answer.imply("model.norm_bias", bias and norm not in kinds, "of MPTConfig")
    tied = get("model.tie_word_embeddings", True)
    answer.imply("model.tied_embeddings", tied, "on by default", "model.tie_word_embeddings")


def _parse(text: str) -> Mapping[str, Value]:
    values = trainer.resolved(trainer.parse(text))
    return {name: value for name, value in values.items() if not name.startswith("variables.")}


FORMAT = Format(
    kind="llm-foundry",
    title="LLM Foundry YAML",
    detect=trainer.detector(*_DETECT),
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("llm_foundry"),
)
