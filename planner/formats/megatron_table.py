"""Arguments of Megatron-LM by the name of their flag, and what they are here: the table that its
command line, the YAML files around it, Megatron-Bridge and Primus share.

Names and defaults: megatron/training/arguments.py, megatron/core/transformer/transformer_config.py
and megatron/core/optimizer/optimizer_config.py of NVIDIA/Megatron-LM at d98e8a64 (2026-08).
"""

from __future__ import annotations

from typing import Any

from planner.formats.record import Argument, of_mechanisms
from planner.specs.names import CONTEXT_WAYS, ContextWay
from planner.specs.options.aliases import words
from planner.specs.pipeline_layout import layout_name

# of --cp-comm-type, and the names here; validated runs are read by it, too
CONTEXT_WAY_WORDS: dict[str, ContextWay] = {
    **words("context_ways", "megatron"),
    **{way: way for way in CONTEXT_WAYS},
}
_ATTENTION = {"auto": None, **words("attentions", "megatron")}
_OPTIMIZERS = words("optimizers", "megatron")
_TYPES = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
_NORMS = {"layernorm": "layernorm", "rmsnorm": "rmsnorm"}
_POSITIONS = {
    "learned_absolute": "learned",
    "rope": "rotary",
    "yarn": "rotary",
    "mrope": "rotary",
    "rotary": "rotary",
    "alibi": "alibi",
    "none": "none",
}


def _whole(value: Any) -> Any:
    """A positive whole number. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError("must be a whole number")
    if value == 0:
        return None  # off
    if value < 1:
        raise ValueError("must be at least 1")
    return int(value)


def _first_way(value: Any) -> Any:
    """How context-parallel ranks share a sequence; one word, or one per layer that agree."""
    words = value if isinstance(value, list) else [value]
    ways = {CONTEXT_WAY_WORDS.get(str(word)) for word in words}
    if len(ways) != 1 or None in ways:
        raise ValueError(f"is not one of {', '.join(CONTEXT_WAY_WORDS)}")
    return ways.pop()


def _way_written(value: Any) -> Any:
    return next(word for word, way in CONTEXT_WAY_WORDS.items() if way == value)


def _number(name: str, option: str, default: Any = None, **rest: Any) -> Argument:
    stated = {} if default is None else {"default": default}
    return Argument(name, option, meaning=_whole, **stated, **rest)


def _layout(value: Any) -> Any:
    return None if value is None else layout_name(str(value))


PARALLEL = (
    _number("tensor-model-parallel-size", "tp", 1, also=("tensor-parallel", "model-parallel-size")),
    _number("pipeline-model-parallel-size", "pp", 1),
    _number("context-parallel-size", "cp", 1),
    _number("expert-model-parallel-size", "ep", 1, also=("moe-expert-parallel-size",)),
    _number("expert-tensor-parallel-size", "etp"),
    _number(
        "num-virtual-stages-per-pipeline-rank",
        "vpp",
        also=("virtual-pipeline-model-parallel-size",),
    ),
    Argument("pipeline-model-parallel-layout", "pipeline_layout", meaning=_layout),
    Argument(
        "use-tp-pp-dp-mapping",
        "placement",
        words={True: "tp-cp-pp-dp", False: "tp-cp-dp-pp"},
        default=False,
    ),
    Argument("cp-comm-type", "cp_comm_type", meaning=_first_way, writes=_way_written),
    Argument("tp-comm-overlap", "tp_overlap", words={True: "user-buffers", False: "none"}),
    *of_mechanisms("megatron"),
    Argument("ddp-bucket-size", "dp_bucket", factor=4, note="elements of fp32 gradients"),
)
TRAINING = (
    _number("micro-batch-size", "micro_batch", 1, also=("batch-size",)),
    _number("global-batch-size", "global_batch"),
    _number("seq-length", "seq_len", also=("encoder-seq-length",)),
    _number("mtp-num-layers", "mtp"),
    Argument("optimizer", "optimizer", words=_OPTIMIZERS, default="adam"),
    Argument("grad-reduce-in-bf16", "grad_reduce_precision", words={True: "bf16", False: None}),
    Argument("attention-backend", "attention", words=_ATTENTION),
)
MODEL = (
    _number("num-layers", "model.layers"),
    _number("hidden-size", "model.hidden"),
    _number("num-attention-heads", "model.heads"),
    _number("ffn-hidden-size", "model.ffn_hidden"),
    _number("kv-channels", "model.head_dim"),
    _number("max-position-embeddings", "model.max_positions"),
    _number("make-vocab-size-divisible-by", "model.vocab_multiple"),
    Argument("swiglu", "model.mlp", words={True: "gated", False: "plain"}, default=False),
    Argument("normalization", "model.norm", words=_NORMS, default="LayerNorm"),
    Argument(
        "position-embedding-type", "model.positions", words=_POSITIONS, default="learned_absolute"
    ),
    Argument(
        "untie-embeddings-and-output-weights", "model.tied_embeddings", negated=True, default=False
    ),
    Argument("qk-layernorm", "model.qk_norm", words={True: "per_head", False: "none"}),
    _number("num-experts", "model.moe.experts", also=("num-moe-experts",)),
    _number("moe-router-topk", "model.moe.experts_per_token", 2),
    _number("moe-ffn-hidden-size", "model.moe.ffn_hidden"),
    _number("moe-shared-expert-intermediate-size", "model.moe.shared_ffn_hidden"),
    Argument("moe-shared-expert-gate", "model.moe.shared_gate"),
    _number("moe-latent-size", "model.moe.latent"),
    _number("moe-router-group-topk", "model.moe.group_limit"),
    _number("q-lora-rank", "model.latent.query_rank"),
    _number("kv-lora-rank", "model.latent.kv_rank"),
    _number("qk-head-dim", "model.latent.nope_head_dim"),
    _number("qk-pos-emb-head-dim", "model.latent.rope_head_dim"),
    _number("v-head-dim", "model.latent.value_head_dim"),
)
EXPERTS = (
    Argument(
        "moe-expert-rank-capacity-factor", "capacity_factor", also=("moe-expert-capacity-factor",)
    ),
    _number(
        "moe-flex-dispatcher-num-sms",
        "dispatcher_sms",
        also=("moe-hybridep-num-sms", "moe-deepep-num-sms"),
    ),
)
TABLE = (*PARALLEL, *TRAINING, *MODEL, *EXPERTS)
# arguments of latent attention that act only with --multi-latent-attention, with their defaults
LATENT = {"kv-lora-rank": 32, "qk-head-dim": 128, "qk-pos-emb-head-dim": 64, "v-head-dim": 128}
STATE_TYPES = _TYPES
