"""OLMo's YAML (the release before OLMo-core).

Names and defaults: olmo/config.py of allenai/OLMo@59a53e3f.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.formats import sharding, trainer
from planner.formats.record import Answer, Argument, Format, Value, unread

_DETECT = (
    re.compile(r"(?m)^device_train_microbatch_size[ \t]*:"),
    re.compile(r"(?m)^[ \t]+(?:mlp_ratio|mlp_hidden_size|embedding_size|block_type)[ \t]*:"),
)
_PRECISIONS = {"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"}
_NORMS = {"default": "layernorm", "low_precision": "layernorm", "rms": "rmsnorm"}
_CHECKPOINTS = {"whole_layer": "full", None: "none"}
_OPTIMIZERS = {"adamw": "adam", "lionw": "lion"}
_RATIO = 4  # mlp_ratio, where neither it nor mlp_hidden_size is given
_GATED = "swiglu"  # whose two halves mlp_hidden_size counts together
_TABLE = (
    Argument("global_train_batch_size", "global_batch", default=512, meaning=trainer.whole),
    Argument("device_train_microbatch_size", "micro_batch", default=16, meaning=trainer.whole),
    Argument("model.max_sequence_length", "seq_len", default=1024, meaning=trainer.whole),
    Argument("precision", "precision", words=_PRECISIONS, default="fp32"),
    Argument("activation_checkpointing", "recompute", words=_CHECKPOINTS, default=None),
    Argument("optimizer.name", "optimizer", words=_OPTIMIZERS, default="lionw"),
    Argument("model.d_model", "model.hidden", default=768, meaning=trainer.whole),
    Argument("model.n_layers", "model.layers", default=12, meaning=trainer.whole),
    Argument("model.n_heads", "model.heads", default=12, meaning=trainer.whole),
    Argument("model.n_kv_heads", "model.kv_heads", meaning=trainer.whole),
    Argument("model.vocab_size", "model.vocab", default=50257, meaning=trainer.whole),
    Argument("model.weight_tying", "model.tied_embeddings", default=True),
    Argument("model.layer_norm_type", "model.norm", words=_NORMS, default="default"),
)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    name = "distributed_strategy"
    if answer.get(name, "fsdp") == "fsdp":
        how = "fsdp.sharding_strategy"
        answer.imply("stack", "pytorch-fsdp", "FSDP by default", name)
        stage = sharding.SHARDING.get(str(answer.get(how, "FULL_SHARD")).lower())
        if stage is None:
            answer.mark(how, "not understood")
        else:
            answer.imply("zero", stage, "FULL_SHARD by default", how)
    else:
        answer.imply("stack", "pytorch-ddp", "of the distributed strategy", name)
        answer.imply("zero", 0, "of the distributed strategy", name)
    _model(answer)
    if answer.get("compile.mode") or answer.get("compile.backend"):
        answer.imply("compile", True, "", "compile.mode", "compile.backend")
    trainer.read_degrees(answer)
    trainer.mark_empty(answer)


def _model(answer: Answer) -> None:
    """Width of the MLP, positions, biases and dropout."""
    get = answer.get
    hidden, heads = answer.option("model.hidden") or 768, answer.option("model.heads")
    if answer.option("model.kv_heads") is None and heads:
        shared = "model.multi_query_attention"
        answer.imply("model.kv_heads", 1 if get(shared) else heads, "no n_kv_heads", shared)
    kind = str(get("model.activation_type", _GATED))
    gated = kind == _GATED
    if gated:
        answer.imply("model.mlp", "gated", "swiglu by default", "model.activation_type")
    else:
        answer.imply("model.activation", kind, "", "model.activation_type")
    both = get("model.mlp_hidden_size") or hidden * get("model.mlp_ratio", _RATIO)
    wide = both // 2 if gated else both
    named = "model.mlp_hidden_size" if get("model.mlp_hidden_size") else "model.mlp_ratio"
    answer.imply("model.ffn_hidden", wide, "half of it is the gate", named)
    positions = "model.rope" if get("model.rope") else "model.alibi" if get("model.alibi") else ""
    word = {"model.rope": "rotary", "model.alibi": "alibi"}.get(positions, "learned")
    answer.imply("model.positions", word, "neither rope nor alibi", positions)
    for switch in ("model.rope", "model.alibi"):
        answer.mark(switch, "implied", "off")
    bias = bool(get("model.include_bias", True))
    for part in ("qkv", "attention_out", "mlp"):
        answer.imply(f"model.bias_{part}", bias, "on by default", "model.include_bias")
    norm_bias = get("model.bias_for_layer_norm", bias)
    answer.imply("model.norm_bias", bool(norm_bias), "", "model.bias_for_layer_norm")
    if get("model.attention_layer_norm"):
        answer.imply("model.qk_norm", "full", "over all heads", "model.attention_layer_norm")
    answer.mark("model.attention_layer_norm", "implied", "off")
    names = [f"model.{part}_dropout" for part in ("attention", "residual", "embedding")]
    given = [name for name in names if name in answer.values]
    answer.imply("model.dropout", any(get(name, 0.1) for name in names), "0.1 by default", *given)
    if get("model.flash_attention"):
        answer.state("flash_attention", True, "model.flash_attention")
    answer.mark("model.flash_attention", "implied", "off: torch chooses")
    if get("model.embedding_size"):
        answer.mark("model.embedding_size", "implied", "the padded vocabulary")


def _parse(text: str) -> Mapping[str, Value]:
    return trainer.resolved(trainer.parse(text))


FORMAT = Format(
    kind="olmo",
    title="OLMo YAML",
    detect=trainer.detector(*_DETECT),
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("olmo"),
)
