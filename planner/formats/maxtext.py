"""MaxText on GPUs: its YAML, and `name=value` behind its command.

Names and defaults are those of src/maxtext/configs/base.yml at e591f30c (2026-08). A mesh has one
axis per kind of parallelism, inside a slice (`ici_`) and across slices (`dcn_`); a degree is the
product of both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats.record import Answer, Argument, Format, Value, patterns
from planner.formats.shell import script
from planner.formats.target import SHARDED, Asked, Target, as_comments, theirs
from planner.inputs.readers import yaml_places, yaml_text
from planner.specs.names import REMAT_POLICIES

_FILE = "config.yml"
_DETECT = re.compile(
    r"(?m)^(?:base_config|per_device_batch_size|base_emb_dim|base_num_decoder_layers)\s*:"
)
_PROGRAM = re.compile(r"maxtext\S*\.train\b|MaxText/train\.py|per_device_batch_size=")
_PAIR = re.compile(r"([a-z]\w*)=(.*)", re.S)
# models that have one name in MaxText and in the catalogue
_ALIKE = """
    gpt3-175b gpt-oss-20b gpt-oss-120b mistral-7b mixtral-8x7b mixtral-8x22b qwen2.5-1.5b
    qwen2.5-7b qwen2.5-14b qwen3-0.6b qwen3-1.7b qwen3-4b qwen3-8b qwen3-14b qwen3-32b
    qwen3-30b-a3b qwen3-235b-a22b qwen3-next-80b-a3b qwen3.5-35b-a3b qwen3.5-397b-a17b
"""
# catalogue names by MaxText's, where they differ; others are alike
_MODELS = {
    "llama2-7b": "llama-2-7b",
    "llama2-13b": "llama-2-13b",
    "llama2-70b": "llama-2-70b",
    "llama3-8b": "llama-3-8b",
    "llama3-70b": "llama-3-70b",
    "llama3.1-8b": "llama-3.1-8b",
    "llama3.1-70b": "llama-3.1-70b",
    "llama3.1-405b": "llama-3.1-405b",
    "llama3-405b": "llama-3.1-405b",
    "llama4-17b-16e": "llama-4-scout",
    "llama4-17b-128e": "llama-4-maverick",
    "deepseek2-16b": "deepseek-v2-lite",
    "deepseek2-236b": "deepseek-v2",
    "deepseek3-671b": "deepseek-v3",
    "deepseek3.2-671b": "deepseek-v3.2",
    "gemma2-2b": "gemma-2-2b",
    "gemma2-9b": "gemma-2-9b",
    "gemma2-27b": "gemma-2-27b",
    "gemma3-12b": "gemma-3-12b",
    "gemma3-27b": "gemma-3-27b",
    "gemma4-26b": "gemma-4-26b-a4b",
    "gemma4-31b": "gemma-4-31b",
    "kimi-k2-1t": "kimi-k2",
    "olmo3-7b": "olmo-3-7b",
    "olmo3-7b-pt": "olmo-3-7b",
    "olmo3-32b": "olmo-3-32b",
    **{name: name for name in patterns(_ALIKE)},
}
_QUANTIZATION = {
    "": "bf16",
    "fp8": "fp8-delayed",
    "nanoo_fp8": "fp8-delayed",
    "fp8_full": "fp8-delayed",
    "te_fp8_delayedscaling": "fp8-delayed",
    "te_fp8_currentscaling": "fp8-tensorwise",
    "te_mxfp8": "mxfp8",
    "te_nvfp4": "nvfp4",
}
_WAYS = {"all_gather": "all-gather", "ring": "ring", "ulysses": "ulysses", "usp": "hybrid"}
# remat_policy of base.yml by what we call it; custom lists every tensor
_REMAT = {"full": "full", "none": "none", **dict.fromkeys(REMAT_POLICIES, "")}
_AXES = (
    *("data", "fsdp", "fsdp_transpose", "tensor", "tensor_sequence", "tensor_transpose"),
    *("context", "context_usp_ulysses", "pipeline", "expert", "sequence"),
)
_DEFAULTS = {"dcn_data_parallelism": -1, "ici_fsdp_parallelism": -1}


def _detect(name: str, text: str) -> bool:
    return bool(_DETECT.search(text) or _PROGRAM.search(text))


def _parse(text: str) -> Mapping[str, Value]:
    if _DETECT.search(text):
        return {name: Value(value, line) for name, (value, line) in yaml_places(text).items()}
    out: dict[str, Value] = {}
    for command in script(text).commands:
        if not any(_PROGRAM.search(word.text) for word in command.words):
            continue
        for word in command.words:
            if found := _PAIR.fullmatch(word.text):
                out[found[1]] = Value(_plain(found[2]), word.line, word.unknown)
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


_TABLE = (
    Argument("model_name", "model", words={**_MODELS, "default": None}),
    Argument("max_target_length", "seq_len"),
    Argument("optimizer_memory_host_offload", "offload", words={True: "optimizer", False: None}),
    Argument(
        "opt_type",
        "optimizer",
        words={"adamw": "adam", "adam_pax": "adam", "sgd": "sgd", "muon": "muon"},
    ),
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
    Argument("q_lora_rank", "model.latent.query_rank"),
    Argument("kv_lora_rank", "model.latent.kv_rank"),
    Argument("qk_nope_head_dim", "model.latent.nope_head_dim"),
    Argument("qk_rope_head_dim", "model.latent.rope_head_dim"),
    Argument("v_head_dim", "model.latent.value_head_dim"),
    Argument("mtp_num_layers", "mtp"),
    Argument("use_qk_norm", "model.qk_norm", words={True: "per_head", False: "none"}),
    Argument("sliding_window_size", "model.attention_window"),
)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    if answer.option("model") is None:
        _shape(answer)
    else:
        answer.drop(*(f"model.{one}" for one in answer.model))
    if "per_device_batch_size" not in values and "max_target_length" not in values:
        return  # a file of a model alone
    answer.imply("stack", "maxtext", "MaxText")
    degrees = _degrees(answer)
    _sharding(answer, degrees)
    _batch(answer, degrees)
    _recompute(answer)
    _precision(answer)


def _degrees(answer: Answer) -> dict[str, int | None]:
    """The product of both parts of every axis; None where one is left to MaxText."""
    out: dict[str, int | None] = {}
    for axis in _AXES:
        parts = [f"{part}_{axis}_parallelism" for part in ("ici", "dcn")]
        given = [answer.get(name, _DEFAULTS.get(name, 1)) for name in parts]
        auto = any(not isinstance(one, int) or one < 1 for one in given)
        # dcn_data is -1 by itself: 1 where the slices are as many as other axes across them say
        left = auto and not (axis == "data" and given[0] == 1 and parts[1] not in answer.values)
        out[axis] = None if left else max(given[0], 1) * max(given[1], 1)
        for name in parts:
            answer.mark(name, "read")
    return out


def _sharding(answer: Answer, degrees: Mapping[str, int | None]) -> None:
    tensor = [degrees[one] for one in ("tensor", "tensor_sequence", "tensor_transpose")]
    tp = tensor[0] or 1
    for one in tensor[1:]:
        tp *= one or 1
    answer.imply("tp", tp, "axes of tensor parallelism")
    if tp > 1:
        answer.imply("sequence_parallel", True, "activations of norms are sharded, too")
    cp = (degrees["context"] or 1) * (degrees["context_usp_ulysses"] or 1)
    answer.imply("cp", cp, "axes of context parallelism")
    way = "context_parallel_strategy"
    if cp > 1:
        answer.imply("cp_comm_type", _WAYS.get(answer.get(way, "all_gather")), "its way", way)
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
    """Sequences of a step: those of a device count ranks of tensor parallelism, too."""
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
    if micro == int(micro) and micro >= 1:
        answer.imply("micro_batch", int(micro), "of a replica", name)
        answer.mark(name, "read")
    else:
        answer.mark(name, "not understood", "gives a replica no whole number of sequences")
    if gpus and dp and at_once * dp * times == int(at_once * dp * times):
        batch = int(at_once * dp * times)
        answer.imply("global_batch", batch, "per device x devices x accumulation", name)
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
        answer.mark(name, "not understood", "is no policy that is timed here")
    answer.mark(name, "read")


def _precision(answer: Answer) -> None:
    name = "quantization"
    word = _QUANTIZATION.get(str(answer.get(name, "") or ""))
    wide = answer.get("dtype", "bfloat16") == "float32"
    if word is None:
        answer.mark(name, "not understood", "is no precision that is timed here")
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
    """Of a model that is written out by its widths: blocks of Llama."""
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
    table=_TABLE,
    irrelevant=patterns(
        """
        normalize_embedding_logits global_parameter_scale
        base_config run_name hardware base_output_directory dataset* tokenizer* tfds_*
        grain_* hf_* eval_* enable_checkpoint* async_checkpoint* checkpoint* load_*
        save_* learning_rate* warmup_steps* adam_* gradient_clipping* profiler*
        skip_first_n_steps* log_* enable_goodput* monitor_goodput gcs_*
        reuse_example_batch packing max_segments_per_seq normalization_layer_epsilon
        rope_* routed_* n_routing_groups mscale beta_* original_max_position_embeddings
        max_position_embeddings enable_dropout dropout_rate use_iota_embed scan_layers
        decoder_block mlp_activations* load_balance_loss_weight data_shuffle_seed
        init_weights_seed logits_dot_in_fp32 hlo_* dump_* jax_* tensorboard* use_vertex*
        steps add_bos add_eos pipeline_parallel_layers compiled_trainstep_file
        compile_topology*
        """
    ),
    lacks={
        "*_for_vit": "a tower of images: give --model",
        "vision_*": "a tower of images: give --model",
        "attention_type": "attention of its own: give --model",
        "capacity_factor": "tokens beyond it are dropped: give --capacity-factor",
        "megablox": "how experts are computed: give --expert-kernels",
        "sparse_matmul": "how experts are computed: give --expert-kernels",
    },
    read_more=_more,
)


# ----- writing -----


def _write(asked: Asked, comments: tuple[str, ...]) -> Mapping[str, str]:
    named = {ours: word for word, ours in reversed(_MODELS.items())}.get(asked.model.name)
    own = theirs(_TABLE, asked)
    widths = {one.name for one in _TABLE if one.option.startswith("model.")}
    plan: dict[str, Any] = {
        "base_config": "base.yml",
        "run_name": asked.model.name,
        "hardware": "gpu",
        "model_name": named or "default",
        "steps": asked.steps,
    }
    plan |= {name: value for name, value in own.items() if name not in (*widths, "model_name")}
    if named is None:
        plan |= {name: value for name, value in own.items() if name in widths}
        plan["mlp_activations"] = ["silu", "linear"] if asked.model.mlp == "gated" else ["gelu"]
    plan |= {**_mesh(asked), **_sizes(asked)}
    text = yaml_text(plan)
    return {_FILE: as_comments(comments) + text}


def _mesh(asked: Asked) -> dict[str, Any]:
    """The axes; all within one slice, which is how MaxText sees GPUs."""
    cp, ep, dp = asked.get("cp", 1), asked.get("ep", 1), asked.replicas
    zero, outer = asked.get("zero", 0), max(1, dp // ep)
    whole = asked.get("shard_group", dp * cp)  # the axes of a weight: fsdp, context and expert
    sharded = max(1, whole // (cp * ep)) if zero == SHARDED else 1
    out: dict[str, Any] = {
        "ici_data_parallelism": outer // sharded,
        "ici_fsdp_parallelism": sharded,
        "ici_tensor_parallelism": asked.get("tp", 1),
        "ici_context_parallelism": cp,
        "ici_pipeline_parallelism": asked.get("pp", 1),
        "ici_expert_parallelism": ep,
        "dcn_data_parallelism": 1,
        "shard_optimizer_over_data": zero == 1,
    }
    if cp > 1:
        ways = {ours: word for word, ours in _WAYS.items()}
        out["context_parallel_strategy"] = ways[asked.get("cp_comm_type", "all-gather")]
    return out


def _sizes(asked: Asked) -> dict[str, Any]:
    """Batch, recomputation and precision."""
    pp = asked.get("pp", 1)
    split = asked.get("tp", 1) * asked.get("cp", 1) * pp
    parts = asked.micro_batches if pp > 1 else 1
    each = asked.options["micro_batch"] * parts / split
    out: dict[str, Any] = {
        "per_device_batch_size": int(each) if each == int(each) else each,
        "gradient_accumulation_steps": asked.micro_batches // parts,
    }
    if pp > 1:
        out["num_pipeline_microbatches"] = parts
    mode = asked.get("recompute", "none")
    kept = mode.removeprefix("keep:").split("+")
    policy = next((p for p, names in REMAT_POLICIES.items() if set(names) == set(kept)), None)
    if mode in ("none", "full") or policy:
        out["remat_policy"] = policy or mode
    precision = asked.get("precision", "bf16")
    words = {"fp8": "fp8", "fp8-tensorwise": "te_fp8_currentscaling", "fp8-delayed": "fp8"}
    words |= {"mxfp8": "te_mxfp8", "nvfp4": "te_nvfp4"}
    out["quantization"] = words.get(precision, "")
    out["dtype"] = "float32" if precision == "fp32" else "bfloat16"
    out["attention"] = "dot_product" if asked.get("attention") == "eager" else "cudnn_flash_te"
    if asked.get("state_precision") == "bf16":
        out["weight_dtype"] = "bfloat16"
    return out


TARGET = Target(
    kind="maxtext",
    title="MaxText",
    stacks=("maxtext",),
    program='python3 -m maxtext.trainers.pre_train.train "$RECIPE/config.yml"',
    write=_write,
    environment={
        "JAX_COORDINATOR_IP": '"${MASTER_ADDR:-127.0.0.1}"',
        "JAX_COORDINATOR_PORT": '"${MASTER_PORT:-29500}"',
    },
    per_node=True,
    where=("zero != 2",),
    lost={
        "model": "MaxText has no configuration of its shape",
        "zero": "its mesh shards parameters, or the optimizer over the axis data",
        "sequence_parallel": "activations of norms are sharded with the axis tensor",
        "schedule": "its pipelines are circular; none that is timed here",
        "placement": "its order of axes is fixed",
        "micro_batch": "devices get no whole share of it",
    },
    fill=("base_output_directory, dataset and tokenizer in config.yml", "learning rate"),
)
