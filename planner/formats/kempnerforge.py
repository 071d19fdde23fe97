"""KempnerForge's TOML: FSDP2, tensor, pipeline and expert parallelism of its own loop.

Names and defaults: kempnerforge/config of KempnerInstitute/KempnerForge@5666d0d1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from planner.formats import trainer
from planner.formats.record import STEPS, Answer, Argument, Format, Value, unread
from planner.inputs.readers import read_toml

_DETECT = (
    re.compile(r"(?m)^\[train\]"),
    re.compile(r"(?m)^\[model\]"),
    re.compile(r"(?m)^(?:dim|n_layers|grad_accum_steps|mixed_precision|dp_shard)[ \t]*="),
)
_TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8-tensorwise"}
_OPTIMIZERS = {"adamw": "adam", "muon": "muon", "lion": "lion"}
_RECOMPUTE = {"none": "none", "full": "full", "selective": "selective"}
_SCHEDULES = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved_1f1b": "interleaved"}
_NORMS = {"rmsnorm": "rmsnorm", "layernorm": "layernorm"}
_DEGREES = ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep")
_MULTIPLE = 256  # to which the width of an MLP is rounded up (config/model.py)
_TABLE = (
    Argument("train.batch_size", "micro_batch", default=8, meaning=trainer.whole),
    Argument("train.seq_len", "seq_len", default=2048, meaning=trainer.whole),
    Argument("train.grad_accum_steps", "grad_accum", default=1, meaning=trainer.whole),
    Argument("train.max_steps", STEPS, meaning=trainer.steps),
    Argument("train.mixed_precision", "precision", words=_TYPES, default="bf16"),
    Argument("train.activation_checkpointing", "recompute", words=_RECOMPUTE, default="none"),
    Argument("train.compile_model", "compile", default=True, meaning=trainer.switch),
    Argument("optimizer.name", "optimizer", words=_OPTIMIZERS, default="adamw"),
    *(
        Argument(f"distributed.{name}", name, default=1, meaning=trainer.whole)
        for name in _DEGREES[2:]
    ),
    Argument("model.dim", "model.hidden", default=4096, meaning=trainer.whole),
    Argument("model.n_layers", "model.layers", default=32, meaning=trainer.whole),
    Argument("model.n_heads", "model.heads", default=32, meaning=trainer.whole),
    Argument("model.n_kv_heads", "model.kv_heads", meaning=trainer.whole),
    Argument("model.vocab_size", "model.vocab", default=32000, meaning=trainer.whole),
    Argument("model.max_seq_len", "model.max_positions", meaning=trainer.whole),
    Argument("model.tie_embeddings", "model.tied_embeddings", default=False),
    Argument("model.norm_type", "model.norm", words=_NORMS, default="rmsnorm"),
    Argument("model.qk_norm", "model.qk_norm", words={True: "per_head", False: "none"}),
    Argument("model.moe_top_k", "model.moe.experts_per_token", meaning=trainer.whole),
)


def _parse(text: str) -> Mapping[str, Value]:
    return {name: Value(value) for name, value in _flat("", read_toml(text))}


def _flat(path: str, table: Mapping[str, Any]) -> Any:
    for name, value in table.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from _flat(key, value)
        else:
            yield key, value


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.imply("stack", "kempnerforge", "a file of KempnerForge")
    answer.imply("zero", 3, "fully_shard")
    if (answer.option("pp") or 1) > 1:
        schedule = _SCHEDULES.get(str(answer.get("distributed.pp_schedule", "1f1b")))
        answer.imply("schedule", schedule, "1f1b by default", "distributed.pp_schedule")
    answer.mark("distributed.pp_schedule", "irrelevant", "no pipeline")
    _model(answer)
    degrees = [answer.get(f"distributed.{name}", 1) for name in _DEGREES]
    names = [f"distributed.{name}" for name in _DEGREES]
    shard = answer.get("distributed.dp_shard", -1)
    if isinstance(shard, int) and shard > 0 and all(isinstance(n, int) for n in degrees):
        answer.imply("gpus", math.prod(degrees), "the product of all degrees", *names)
    replicas = answer.get("distributed.dp_replicate", 1)
    if isinstance(replicas, int) and replicas > 1 and isinstance(shard, int) and shard > 0:
        answer.state("shard_group", shard, "distributed.dp_shard")
    for name in ("distributed.dp_shard", "distributed.dp_replicate"):
        answer.mark(name, "implied", "follows from the GPUs")
    for name in values:
        if name.startswith(("vision_encoder.", "adapter.", "vlm.", "video.")):
            answer.mark(name, "not understood", "of an encoder of images beside the decoder")
    trainer.mark_empty(answer)


def _model(answer: Answer) -> None:
    """Width of the MLP as the program works it out, and experts."""
    hidden, heads = answer.option("model.hidden") or 4096, answer.option("model.heads")
    if answer.option("model.kv_heads") is None and heads:
        answer.imply("model.kv_heads", heads, "no n_kv_heads")
    gated = str(answer.get("model.activation", "silu")) == "silu"
    answer.imply("model.mlp", "gated" if gated else "plain", "silu by default", "model.activation")
    if not gated:
        answer.imply("model.activation", str(answer.get("model.activation")), "")
    name, factor = "model.ffn_hidden_dim", answer.get("model.ffn_dim_multiplier", 1.0)
    raw = int((int(8 * hidden / 3) if gated else 4 * hidden) * factor)
    wide = answer.get(name) or (raw + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE
    answer.imply("model.ffn_hidden", wide, "of the width", name, "model.ffn_dim_multiplier")
    answer.imply("model.positions", "rotary", "RoPE")
    experts = answer.get("model.num_experts", 0)
    if isinstance(experts, int) and experts > 1:
        answer.state("model.moe.experts", experts, "model.num_experts")
        each = int(wide * answer.get("model.moe_expert_ffn_multiplier", 1.0))
        answer.imply("model.moe.ffn_hidden", each, "", "model.moe_expert_ffn_multiplier")
        every = answer.get("model.moe_frequency", 1)
        if every != 1:
            answer.mark("model.moe_frequency", "not understood", "experts in some layers only")
    else:
        answer.drop("model.moe.experts_per_token")
        for entry in answer.values:
            if entry.startswith(("model.moe_", "model.num_experts")):
                answer.mark(entry, "irrelevant", "no experts")


def _detect(name: str, text: str) -> bool:
    return name.endswith(".toml") and all(pattern.search(text) for pattern in _DETECT)


FORMAT = Format(
    kind="kempnerforge",
    title="KempnerForge TOML",
    detect=_detect,
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("kempnerforge"),
)
