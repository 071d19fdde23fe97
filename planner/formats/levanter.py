"""Levanter's YAML.

Names and defaults: src/levanter/trainer.py, models/ and optim/config.py of
stanford-crfm/levanter@9263f81e.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import trainer
from planner.formats.record import Answer, Argument, Format, Value, unread

_DETECT = (
    re.compile(r"(?m)^trainer[ \t]*:"),
    re.compile(
        r"(?m)^[ \t]+(?:tracker|fsdp_axis|tensor_parallel_axes|num_train_steps|axis_resources|mp)"
        r"[ \t]*:"
    ),
    re.compile(r"(?m)^(?:optimizer|model)[ \t]*:"),
)
_INCLUDE = re.compile(r"!include[ \t]+(\S+)")
_TYPES = {
    "f32": "fp32",
    "p=f32,c=bfloat16": "bf16",
    "p=f32,c=bf16": "bf16",
    "p=bfloat16,c=bfloat16": "bf16",
    "bfloat16": "bf16",
}
_NARROW = ("bfloat16", "p=bfloat16,c=bfloat16")  # weights and moments, too
_OPTIMIZERS = {"adam": "adam", "adamw": "adam", "muon": "muon", "lion": "lion"}
# of models that are built here: hidden, layers, heads, key-value heads, width of the MLP, length
_LLAMA = (4096, 32, 32, 32, 11008, 2048)
_FAMILIES: dict[str, tuple[int | None, ...]] = {
    "gpt2": (768, 12, 12, None, None, 1024),
    "llama": _LLAMA,
    "mistral": (4096, 32, 32, 8, 14336, 8192),
    "mixtral": (4096, 32, 32, 8, 14336, 8192),
    "olmo2": (4096, 32, 32, 32, 11008, 4096),
    "qwen": (4096, 32, 32, 32, 11008, 2048),
}
_WIDTHS = {
    "model.hidden": "hidden_dim",
    "model.layers": "num_layers",
    "model.heads": "num_heads",
    "model.kv_heads": "num_kv_heads",
    "model.ffn_hidden": "intermediate_dim",
    "seq_len": "seq_len",
}
_OWN = "NousResearch/Llama-2-7b-hf"  # reference_checkpoint of its Llama
_SCALE = 4  # mlp_scale of GPT-2


def _optimizer(value: Any) -> str:
    """Our optimizer. Raises ValueError where it is not modelled."""
    if value not in _OPTIMIZERS:
        raise ValueError(f"{value!r} is not modelled; the estimate assumes adam")
    return _OPTIMIZERS[value]


_TABLE = (
    Argument("trainer.train_batch_size", "global_batch", default=512, meaning=trainer.whole),
    Argument("trainer.model_axis_size", "tp", default=1, meaning=trainer.whole),
    Argument("trainer.mp", "precision", words=_TYPES, default="f32"),
    Argument("optimizer.type", "optimizer", default="adam", meaning=_optimizer),
)


def _parse(text: str) -> Mapping[str, Value]:
    """Values by their path; a file that is included is a word, and unknown."""
    out = {}
    for name, value in trainer.parse(_INCLUDE.sub(r"'!include \1'", text)).items():
        included = isinstance(value.value, str) and value.value.startswith("!include ")
        out[name] = Value(value.value, value.line, (str(value.value),)) if included else value
        if included and name == "optimizer":  # whose type the other file says
            out["optimizer.type"] = out[name]
    return out


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.imply("stack", "maxtext", "compiled by XLA, as MaxText is")
    _sharding(values, answer)
    if answer.get("trainer.mp") in _NARROW:
        answer.imply("state_precision", "bf16", "weights and moments are in it", "trainer.mp")
    _micro_batch(answer)
    _model(values, answer)
    for name in ("pp", "cp"):
        answer.imply(name, 1, "its mesh has only data and model")
    steps = "trainer.num_train_steps"
    batch, length = answer.option("global_batch"), answer.option("seq_len")
    if isinstance(answer.get(steps), int) and batch and length:
        answer.state("tokens", answer.get(steps) * batch * length, steps, "steps x tokens a step")
    answer.mark(steps, "irrelevant", "steps of the run")
    eight = "trainer.quantization.fp8"
    if trainer.is_on(answer, eight):
        answer.drop("precision")
        answer.state("precision", "fp8", eight)
    trainer.mark_empty(answer)


def _sharding(values: Mapping[str, Value], answer: Answer) -> None:
    axis, old = "trainer.fsdp_axis", "trainer.parameter_axis_resources.embed"
    name = axis if axis in values else old
    whole = axis in values and values[axis].value is None
    answer.imply("zero", 0 if whole else 3, "fsdp_axis embed shards weights and states", name)
    for name in values:
        if name.startswith(("trainer.axis_resources.", "trainer.tensor_parallel_axes")):
            answer.mark(name, "implied", "axes that tensor parallelism splits")


def _micro_batch(answer: Answer) -> None:
    """Sequences of a device at once; -1 is all of them."""
    name = "trainer.per_device_parallelism"
    each = answer.get(name, -1)
    if isinstance(each, int) and each > 0:
        answer.state("micro_batch", each, name)
    else:
        answer.imply("grad_accum", 1, "all sequences of a device at once", name)


def _model(values: Mapping[str, Value], answer: Answer) -> None:
    """The model: of a checkpoint of the Hub, or by its widths."""
    _checkpoint(answer)
    kind = answer.get("model.type")
    usual = _FAMILIES.get(str(kind))
    if usual is None:
        answer.mark("model.type", "not understood", "is not a known family: --model")
    elif answer.option("model") is None:
        answer.mark("model.type", "read")
        _family(answer, str(kind))
    answer.mark("model.type", "implied", "the model is that checkpoint")
    _widths(answer, usual or (None,) * len(_WIDTHS), str(kind))
    words = answer.get("data.tokenizer", answer.get("data.cache_options.tokenizer"))
    if words is not None:
        answer.imply("model.vocab_of", trainer.model_name(words), "", "data.tokenizer")
    _recompute(answer)


def _checkpoint(answer: Answer) -> None:
    """The model of a checkpoint, where its configuration is taken."""
    start = "initialize_from_hf"
    hub = answer.get(start)
    if trainer.is_on(answer, "use_hf_model_config") and hub:
        name = _OWN if hub is True else str(hub).partition("@")[0]
        answer.state("model", trainer.model_name(name), start)
        answer.mark("use_hf_model_config", "implied", "the model is that checkpoint")
    for name in (start, "use_hf_model_config"):
        answer.mark(name, "irrelevant", "weights to start from")


def _widths(answer: Answer, usual: tuple[int | None, ...], kind: str) -> None:
    """Widths and length, by default as the family has them."""
    whole = answer.option("model") is None
    for (option, word), width in zip(_WIDTHS.items(), usual, strict=True):
        name = f"model.{word}"
        if isinstance(answer.get(name), int):
            answer.state(option, answer.get(name), name)
        elif width is not None and whole and answer.option(option) is None:
            answer.imply(option, width, f"of {kind} by default")
    if isinstance(answer.get("train_seq_len"), int):
        answer.state("seq_len", answer.get("train_seq_len"), "train_seq_len")
    if answer.option("model.kv_heads") is None and answer.option("model.heads"):
        answer.imply("model.kv_heads", answer.option("model.heads"), "no grouped queries")
    if kind == "gpt2" and answer.option("model.hidden"):
        wide = answer.option("model.hidden") * answer.get("model.mlp_scale", _SCALE)
        answer.imply("model.ffn_hidden", wide, "mlp_scale of the width", "model.mlp_scale")


def _family(answer: Answer, kind: str) -> None:
    """Parts that the family has whatever its widths."""
    plain = kind == "gpt2"
    answer.imply("model.mlp", "plain" if plain else "gated", kind)
    answer.imply("model.positions", "learned" if plain else "rotary", kind)
    answer.imply("model.norm", "layernorm" if plain else "rmsnorm", kind)
    bias = trainer.is_on(answer, "model.use_bias", plain)
    for part in ("qkv", "attention_out", "mlp"):
        answer.imply(f"model.bias_{part}", bias, kind, "model.use_bias")
    tied = trainer.is_on(answer, "model.tie_word_embeddings", plain)
    answer.imply("model.tied_embeddings", tied, kind, "model.tie_word_embeddings")
    drops = [f"model.{part}_pdrop" for part in ("embed", "resid", "attn")]
    given = [name for name in drops if name in answer.values]
    if plain:
        answer.imply("model.dropout", any(answer.get(n) for n in given), "off", *given)
    if kind == "mixtral":
        name = "model.n_routed_experts"
        answer.imply("model.moe.experts", answer.get(name, 8), "of mixtral", name)
        name = "model.num_experts_per_tok"
        answer.imply("model.moe.experts_per_token", answer.get(name, 2), "of mixtral", name)


def _recompute(answer: Answer) -> None:
    name = "model.gradient_checkpointing"
    kind = answer.get(name, True)
    if isinstance(kind, bool):
        answer.imply("recompute", "full" if kind else "none", "on by default", name)
    elif str(kind) in ("recompute", "full"):
        answer.imply("recompute", "full", "of every layer", name)
    else:
        answer.mark(name, "not understood", "a policy of checkpoints")


FORMAT = Format(
    kind="levanter",
    title="Levanter YAML",
    detect=trainer.detector(*_DETECT),
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("levanter"),
)
