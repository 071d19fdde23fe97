"""GPT-NeoX: its YAML, whose names have dashes or underscores, with DeepSpeed's tables in it.

Names and defaults: megatron/neox_arguments/neox_args.py and deepspeed_args.py of
EleutherAI/gpt-neox@252ddc52.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import deepspeed, trainer
from planner.formats.record import STEPS, Answer, Argument, Format, Value, unread
from planner.inputs.readers import yaml_places

_DETECT = re.compile(
    r"(?m)^(?:[ \t]*\"(?=\w)|[ \t]*'(?=\w)|)"
    r"(?:pipe[-_]parallel[-_]size|model[-_]parallel[-_]size)[\"']?[ \t]*:"
)
_TYPES = {"fp16": "fp16", "bfloat16": "bf16", "bf16": "bf16", "fp32": "fp32"}
_NORMS = {"layernorm": "layernorm", "rmsnorm": "rmsnorm"}
_POSITIONS = {
    "learned": "learned",
    "rotary": "rotary",
    "alibi": "alibi",
    "none": "none",
    "sinusoidal": "none",
}
_ACTIVATIONS = {"gelu": "gelu", "geglu": None, "swiglu": None, "relu": "relu", "silu": "silu"}
_GATED = ("geglu", "swiglu", "reglu", "liglu", "bilinear")
_MULTIPLE = 128  # make_vocab_size_divisible_by, where it is not given
_OF_DEEPSPEED = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "zero_optimization.stage",
    "zero_optimization.reduce_bucket_size",
    "optimizer.type",
)
_TABLE = (
    *(row for row in deepspeed.TABLE if row.name in _OF_DEEPSPEED),
    Argument(
        "pipe_parallel_size", "pp", meaning=lambda value: trainer.whole(value) or 1, default=1
    ),
    Argument("model_parallel_size", "tp", meaning=trainer.whole, default=1),
    Argument("context_parallel_size", "cp", meaning=trainer.whole, default=1),
    Argument("seq_length", "seq_len", meaning=trainer.whole),
    Argument("train_iters", STEPS, meaning=trainer.whole),
    Argument("num_layers", "model.layers", meaning=trainer.whole),
    Argument("hidden_size", "model.hidden", meaning=trainer.whole),
    Argument("num_attention_heads", "model.heads", meaning=trainer.whole),
    Argument("num_kv_heads", "model.kv_heads", meaning=trainer.whole),
    Argument("intermediate_size", "model.ffn_hidden", meaning=trainer.whole),
    Argument("max_position_embeddings", "model.max_positions", meaning=trainer.whole),
    Argument("norm", "model.norm", words=_NORMS, default="layernorm"),
    Argument("pos_emb", "model.positions", words=_POSITIONS, default="learned"),
    Argument("no_weight_tying", "model.tied_embeddings", negated=True, default=False),
    Argument("gpt_j_residual", "model.parallel_block", default=False),
    Argument("make_vocab_size_divisible_by", "model.vocab_multiple", default=_MULTIPLE),
    Argument("sequence_parallel", "sequence_parallel", default=False),
)


def _parse(text: str) -> Mapping[str, Value]:
    """Arguments by their name with underscores, DeepSpeed's by their path."""
    places = yaml_places(text).items()  # braces, trailing commas and True included
    return {name.replace("-", "_"): Value(value, line) for name, (value, line) in places}


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.imply("stack", "gpt-neox", "GPT-NeoX")
    deepspeed.read_zero(answer, "zero_optimization.")
    if answer.option("zero") is None:
        answer.imply("zero", 0, "no zero_optimization")
    _precision(answer)
    _model(answer)
    _recompute(answer)
    _gpus(answer)
    _batch(answer)
    if (answer.option("pp") or 1) > 1:
        answer.imply("schedule", "1f1b", "DeepSpeed's pipeline")
        answer.imply("vpp", 1, "DeepSpeed's pipeline")
    listed = str(answer.get("attention_config", ""))
    if "flash" in listed:
        answer.state("flash_attention", True, "attention_config")
    else:
        answer.mark("attention_config", "implied" if "global" in listed else "not understood")


def _precision(answer: Answer) -> None:
    named = answer.get("precision")
    if named in _TYPES:
        answer.state("precision", _TYPES[named], "precision")
    for name in ("fp16", "bf16"):
        switch = f"{name}.enabled"
        if answer.get(switch) is True:
            kind = _TYPES.get(str(answer.get(f"{name}.type", name)), name)
            answer.state("precision", kind, switch)
        for entry in (switch, f"{name}.type", "fp16.fp16"):
            answer.mark(entry, "implied", "of the precision")
    if answer.option("precision") is None:
        answer.imply("precision", "fp16", "fp16 by default")


def _model(answer: Answer) -> None:
    """Widths and biases that are not one to one."""
    hidden, heads = answer.option("model.hidden"), answer.option("model.heads")
    if heads and answer.option("model.kv_heads") is None:
        answer.imply("model.kv_heads", heads, "no num_kv_heads")
    word = str(answer.get("activation", "gelu"))
    if word in _GATED:
        answer.state("model.mlp", "gated", "activation")
        wide = int(hidden * 4 * 2 / 3) if hidden else None
    else:
        answer.imply("model.mlp", "plain", "no gated activation")
        answer.imply("model.activation", _ACTIVATIONS.get(word, "gelu"), "gelu", "activation")
        wide = 4 * hidden if hidden else None
    if wide and answer.option("model.ffn_hidden") is None:
        answer.imply("model.ffn_hidden", wide, "no intermediate_size")
    switches = {"use_bias_in_attn_linear": ("qkv", "attention_out"), "use_bias_in_mlp": ("mlp",)}
    for name, parts in switches.items():
        for part in parts:
            answer.imply(f"model.bias_{part}", answer.get(name, True), "on by default", name)
    is_layernorm = answer.get("norm", "layernorm") == "layernorm"
    answer.imply("model.norm_bias", is_layernorm, "LayerNorm has a bias")
    shares = ("attention_dropout", "hidden_dropout")
    stated = [name for name in shares if name in answer.values]
    dropped = any(answer.get(name, 0) for name in shares)
    answer.imply("model.dropout", dropped, "0 by default", *stated)
    if answer.get("tokenizer_type") in ("HFTokenizer", None):
        return
    if answer.get("tokenizer_type") == "GPT2BPETokenizer":
        answer.imply("model.vocab", 50257, "of the tokenizer", "tokenizer_type")


def _recompute(answer: Answer) -> None:
    switch, count = "checkpoint_activations", "checkpoint_num_layers"
    if answer.get(switch):
        layers = answer.get(count, 1)
        answer.state("recompute", "full" if layers == 1 else f"group:{layers}", switch)
        answer.mark(count, "read")
    elif switch in answer.values:
        answer.state("recompute", "none", switch)
    else:
        answer.imply("recompute", "none", "no checkpoint_activations")
    answer.mark(count, "irrelevant", "acts with checkpoint_activations")


def _gpus(answer: Answer) -> None:
    """GPUs in all, from nodes and GPUs of each node."""
    each, nodes = answer.get("num_gpus"), answer.get("num_nodes", 1)
    if isinstance(each, int) and isinstance(nodes, int) and each > 0 and nodes > 0:
        answer.imply("gpus_per_node", each, "GPUs of a node", "num_gpus")
        answer.imply("gpus", nodes * each, "nodes x GPUs", "num_gpus", "num_nodes")
    world = answer.get("global_num_gpus")
    if isinstance(world, int):
        answer.state("gpus", world, "global_num_gpus")


def _batch(answer: Answer) -> None:
    """train_batch_size counts a step of all replicas; without it accumulation says it, of
    which there is none where neither is given."""
    if answer.option("global_batch") is None:
        answer.imply("grad_accum", 1, "neither train_batch_size nor gradient_accumulation_steps")
    whole, micro, times = (answer.option(n) for n in ("global_batch", "micro_batch", "grad_accum"))
    degrees: list[Any] = [answer.option(name) or 1 for name in ("tp", "pp", "cp")]
    if whole and micro and times and answer.option("gpus") is None:
        gpus = whole // (micro * times) * degrees[0] * degrees[1] * degrees[2]
        answer.imply("gpus", gpus, "batch / (micro-batch x accumulation) replicas")


FORMAT = Format(
    kind="gpt-neox",
    title="GPT-NeoX YAML",
    detect=lambda name, text: trainer.is_data(name) and _DETECT.search(text) is not None,
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("gpt_neox"),
)
