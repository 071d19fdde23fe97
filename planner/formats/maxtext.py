"""MaxText on GPUs: its YAML, and `name=value` behind its command.

Names and defaults: src/maxtext/configs/base.yml at e591f30c (2026-08). A mesh has one axis per kind
of parallelism, inside a slice (`ici_`) and across slices (`dcn_`); a degree is the product of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from planner.formats.record import Answer, Argument, Format, Value, unread
from planner.formats.shell import script
from planner.inputs.readers import yaml_places
from planner.specs.names import REMAT_POLICIES
from planner.specs.options.aliases import words

_DETECT = re.compile(
    r"(?m)^(?:base_config|per_device_batch_size|base_emb_dim|base_num_decoder_layers)\s*:"
)
# what says of a model no more than its name does
_OF_MODEL = (
    *("attention_type", "gdn_*", "*indexer*", "engram_*", "use_post_*_norm", "global_*", "fused_*"),
    *("inhomogeneous_layer_cycle_interval", "interleave_moe_layer_step", "nope_layer_interval"),
    *("chunk_attn_window_size", "attention_bias", "mlp_bias", "attention_sink", "topk_routing_*"),
    *("share_kv_projections", "*_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp"),
    *("mhc_*", "sinkhorn_*", "trainable_position_size", "moe_expert_input_dim"),
)
_OF_IMAGES = ("*_for_vit", "vision_*", "freeze_vision*", "image_*", "num_position_embeddings*")
_OF_SOUND = ("*_for_audio", "audio_*", "position_id_per_seconds")
_PROGRAM = re.compile(r"maxtext\S*\.train\b|MaxText/train\.py|per_device_batch_size=")
MODELS = words("models", "maxtext")
_QUANTIZATION = words("precisions", "maxtext")
WAYS = words("context_ways", "maxtext")
_PAIR = re.compile(r"([a-z]\w*)=(.*)", re.S)
_AXES = (
    *("data", "fsdp", "fsdp_transpose", "tensor", "tensor_sequence", "tensor_transpose"),
    *("context", "context_usp_ulysses", "pipeline", "expert", "sequence"),
)
_AXES_TABLES = ("logical_axis_rules", "data_sharding", "mesh_axes")
_DEFAULTS = {"dcn_data_parallelism": -1, "ici_fsdp_parallelism": -1}


def _detect(name: str, text: str) -> bool:
    return bool(_DETECT.search(text) or _PROGRAM.search(text))


def _parse(text: str) -> Mapping[str, Value]:
    if _DETECT.search(text):
        return _whole((name, Value(*place)) for name, place in yaml_places(text).items())
    out: dict[str, Value] = {}
    for command in script(text).commands:
        if not any(_PROGRAM.search(word.text) for word in command.words):
            continue
        for word in command.words:
            if match := _PAIR.fullmatch(word.text):
                out[match[1]] = Value(_plain(match[2]), word.line, word.unknown)
    return out


def _whole(pairs: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Arguments by name, tables of axes as the one argument that they are."""
    out: dict[str, Value] = {}
    for name, value in pairs:
        table = name.partition(".")[0]
        if table in _AXES_TABLES:
            out.setdefault(table, Value("a table", value.line))
        else:
            out[name] = value
    return out


def _plain(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text.replace("_", ""))
        except ValueError:
            continue
    return text


def _or_none(value: Any) -> Any:
    """A width; None for 0."""
    return value or None


TABLE = (
    Argument("model_name", "model", words={**MODELS, "default": None}),
    Argument("max_target_length", "seq_len"),
    Argument("optimizer_memory_host_offload", "offload", words={True: "optimizer", False: None}),
    Argument("opt_type", "optimizer", words=words("optimizers", "maxtext")),
    Argument("base_emb_dim", "model.hidden"),
    Argument("base_num_decoder_layers", "model.layers"),
    Argument("base_num_query_heads", "model.heads"),
    Argument("base_num_kv_heads", "model.kv_heads"),
    Argument("head_dim", "model.head_dim"),
    Argument("base_mlp_dim", "model.ffn_hidden"),
    Argument("vocab_size", "model.vocab"),
    Argument("logits_via_embedding", "model.tied_embeddings"),
    Argument("num_experts", "model.moe.experts"),
    Argument("num_experts_per_tok", "model.moe.experts_per_token"),
    Argument("base_moe_mlp_dim", "model.moe.ffn_hidden"),
    Argument("first_num_dense_layers", "model.moe.dense_layers"),
    Argument("q_lora_rank", "model.latent.query_rank", meaning=_or_none),
    Argument("kv_lora_rank", "model.latent.kv_rank"),
    Argument("qk_nope_head_dim", "model.latent.nope_head_dim"),
    Argument("qk_rope_head_dim", "model.latent.rope_head_dim"),
    Argument("v_head_dim", "model.latent.value_head_dim"),
    Argument("mtp_num_layers", "mtp"),
    Argument("use_qk_norm", "model.qk_norm", words={True: "per_head", False: "none"}),
    Argument("sliding_window_size", "model.attention_window", meaning=_or_none),
    Argument("attention_bias", "model.bias_qkv"),
)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    if answer.option("model") is None:
        _shape(answer)
    else:
        answer.drop(*(f"model.{key}" for key in answer.model))
        _of_named_model(answer)
    _towers(answer)
    _experts(answer)
    # a file with only a model, a mesh or kernels: settings of other files are not known
    answer.is_part = "per_device_batch_size" not in values and "max_target_length" not in values
    answer.imply("stack", "maxtext", "MaxText")
    degrees = _degrees(answer)
    _sharding(answer, degrees)
    _batch(answer, degrees)
    _recompute(answer)
    _precision(answer)


def _of_named_model(answer: Answer) -> None:
    """Mark arguments that a named model already implies."""
    for name in answer.values:
        if any(fnmatchcase(name, key) for key in _OF_MODEL):
            answer.mark(name, "implied", "of the model that is named")


def _towers(answer: Answer) -> None:
    """Vision and audio encoders, built only if configured."""
    switches = {"use_multimodal": _OF_IMAGES, "use_audio": _OF_SOUND}
    for switch, names in switches.items():
        if answer.get(switch):
            continue
        for name in answer.values:
            if name == switch or any(fnmatchcase(name, key) for key in names):
                answer.mark(name, "implied", "no tower is built without its switch")


def _experts(answer: Answer) -> None:
    """How experts are computed: in grouped GEMMs, as MaxText does by default, or in a dense product
    over buffers of a capacity."""
    capacity = answer.get("capacity_factor", -1)
    if answer.get("sparse_matmul", True) is False:
        if isinstance(capacity, int | float) and capacity >= 1:
            answer.state("capacity_factor", float(capacity), "capacity_factor")
            note = "one batched product over buffers of that capacity, as fast as grouped ones"
            answer.imply("expert_kernels", "grouped", note, "sparse_matmul")
        else:
            note = "every expert computes every token: is not modelled"
            answer.mark("sparse_matmul", "not understood", note)
    elif answer.get("sparse_matmul") is not None or answer.get("megablox") is not None:
        names = ("sparse_matmul", "megablox")
        answer.imply("expert_kernels", "grouped", "grouped GEMMs, of any library", *names)
    for name in ("megablox", "use_tokamax_gmm"):
        answer.mark(name, "implied", "which library has the kernels is not looked at")
    if not isinstance(capacity, int | float) or capacity < 1:
        answer.mark("capacity_factor", "implied", "no token is dropped")


def _degrees(answer: Answer) -> dict[str, int | None]:
    """The product of both parts of every axis; None where one is left to MaxText."""
    out: dict[str, int | None] = {}
    for axis in _AXES:
        parts = [f"{part}_{axis}_parallelism" for part in ("ici", "dcn")]
        given = [answer.get(name, _DEFAULTS.get(name, 1)) for name in parts]
        auto = any(not isinstance(key, int) or key < 1 for key in given)
        # dcn_data is -1 by itself: 1 where the slices are as many as other axes across them say
        left = auto and not (axis == "data" and given[0] == 1 and parts[1] not in answer.values)
        out[axis] = None if left else max(given[0], 1) * max(given[1], 1)
        for name in parts:
            answer.mark(name, "read")
    return out


def _sharding(answer: Answer, degrees: Mapping[str, int | None]) -> None:
    tensor = [degrees[name] for name in ("tensor", "tensor_sequence", "tensor_transpose")]
    tp = tensor[0] or 1
    for name in tensor[1:]:
        tp *= name or 1
    answer.imply("tp", tp, "axes of tensor parallelism")
    if tp > 1:
        answer.imply("sequence_parallel", True, "activations of norms are sharded, too")
    cp = (degrees["context"] or 1) * (degrees["context_usp_ulysses"] or 1)
    answer.imply("cp", cp, "axes of context parallelism")
    way = "context_parallel_strategy"
    if cp > 1:
        answer.imply("cp_comm_type", WAYS.get(answer.get(way, "all_gather")), "its way", way)
    answer.mark(way, "irrelevant", "no context parallelism")
    pp = degrees["pipeline"] or 1
    answer.imply("pp", pp, "axis of pipeline parallelism")
    expert = degrees["expert"]
    if expert and expert > 1:
        answer.imply("ep", expert, "axis of experts")
    sharded, copies = degrees["fsdp"], degrees["data"]
    others = (degrees["fsdp_transpose"] or 1) * cp * (expert or 1)
    if sharded is None or sharded * others > 1:
        answer.imply("zero", 3, "weights have the axes fsdp, context and expert")
        if sharded and copies and copies > 1:
            answer.imply("shard_group", sharded * others, "ranks that shard")
    else:
        stage = 1 if answer.get("shard_optimizer_over_data") else 0
        answer.imply("zero", stage, "parameters are replicated", "shard_optimizer_over_data")
    answer.mark("shard_optimizer_over_data", "irrelevant", "parameters are sharded")
    if sharded and copies:
        ranks = sharded * (degrees["fsdp_transpose"] or 1) * copies * (expert or 1)
        answer.imply("dp", ranks, "axes that share the batch")
        answer.imply("gpus", ranks * tp * cp * pp, "product of the axes")


def _batch(answer: Answer, degrees: Mapping[str, int | None]) -> None:
    """Sequences of a step: per-device batch times all devices, tensor-parallel ranks included."""
    name, pieces = "per_device_batch_size", "num_pipeline_microbatches"
    each, times = answer.get(name), answer.get("gradient_accumulation_steps", 1)
    if not isinstance(each, int | float):
        return
    gpus, dp, pp = answer.option("gpus"), answer.option("dp"), answer.option("pp") or 1
    split = (answer.option("tp") or 1) * (answer.option("cp") or 1) * pp
    at_once = each * split  # of a replica, in all micro-batches of a pipeline
    parts = answer.get(pieces, -1)
    parts = (pp if pp > 1 else 1) if parts < 1 else parts
    answer.mark(pieces, "read")
    micro = at_once / parts
    if float(micro).is_integer() and micro >= 1:
        answer.imply("micro_batch", int(micro), "of a replica", name)
        answer.mark(name, "read")
    else:
        answer.mark(name, "not understood", "gives a replica no whole number of sequences")
    if gpus and dp and float(batch := at_once * dp * times).is_integer():
        answer.imply("global_batch", int(batch), "per device x devices x accumulation", name)
        _tokens(answer, batch)
    else:
        answer.imply("grad_accum", int(times * parts), "micro-batches of a step")
    answer.mark("gradient_accumulation_steps", "read")
    answer.mark(name, "read")


def _tokens(answer: Answer, batch: int) -> None:
    steps, seq_len = answer.get("steps"), answer.option("seq_len")
    if steps and seq_len and steps > 0:
        answer.state("tokens", steps * batch * seq_len, "steps", "steps x tokens a step")


def _recompute(answer: Answer) -> None:
    name = "remat_policy"
    policy = answer.get(name, "full")
    if policy in REMAT_POLICIES:
        answer.imply("recompute", f"keep:{'+'.join(REMAT_POLICIES[policy])}", "a policy", name)
    elif policy in ("full", "none"):
        answer.imply("recompute", policy, "full where none is named", name)
    else:
        answer.mark(name, "not understood", "is not a policy that is timed here")
    answer.mark(name, "read")


def _precision(answer: Answer) -> None:
    name = "quantization"
    word = _QUANTIZATION.get(str(answer.get(name, "") or ""))
    wide = answer.get("dtype", "bfloat16") == "float32"
    if word is None:
        answer.mark(name, "not understood", "is not a precision that is timed here")
    else:
        precision = "fp32" if wide and word == "bf16" else word
        answer.imply("precision", precision, "of kernels", name, "dtype")
    kernel = str(answer.get("attention", "autoselected"))
    if kernel == "dot_product":
        answer.state("attention", "eager", "attention")
    answer.mark("attention", "implied", "as MaxText does on GPUs")
    if answer.get("weight_dtype") == "bfloat16":
        answer.state("state_precision", "bf16", "weight_dtype")
    answer.mark("weight_dtype", "implied", "fp32 weights")


def _shape(answer: Answer) -> None:
    """Shape of a model that is stated by its widths: blocks of Llama."""
    if answer.option("model.hidden") is None:
        return
    gated = "linear" in str(answer.get("mlp_activations", "linear"))
    answer.imply(
        "model.mlp", "gated" if gated else "plain", "by its activations", "mlp_activations"
    )
    shared, wide = answer.get("shared_experts", 0), answer.option("model.moe.ffn_hidden")
    if shared and wide:
        answer.state("model.moe.shared_ffn_hidden", shared * wide, "shared_experts")
    answer.imply("model.norm", "rmsnorm", "blocks of Llama")
    answer.imply("model.positions", "rotary", "blocks of Llama")


FORMAT = Format(
    kind="maxtext",
    title="MaxText YAML or name=value arguments",
    detect=_detect,
    parse=_parse,
    table=TABLE,
    read_more=_more,
    **unread("maxtext"),
)
