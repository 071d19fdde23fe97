"""MaxText, written: its config.yml for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.formats.maxtext import TABLE
from planner.formats.target import SHARDED, PlanToWrite, Target, as_comments, theirs
from planner.inputs.readers import yaml_text
from planner.specs.decoder import decoder_of
from planner.specs.names import REMAT_POLICIES
from planner.specs.options.aliases import written

_FILE = "config.yml"
_NAMED = written("models", "maxtext")


def _write(request: PlanToWrite, comments: tuple[str, ...]) -> Mapping[str, str]:
    named = _NAMED.get(request.model.name)
    arguments = theirs(TABLE, request)
    widths = {row.name for row in TABLE if row.option.startswith("model.")}
    plan: dict[str, Any] = {
        "base_config": "base.yml",
        "run_name": request.model.name,
        "hardware": "gpu",
        "model_name": named or "default",
        "steps": request.steps,
    }
    plan |= {
        name: value for name, value in arguments.items() if name not in (*widths, "model_name")
    }
    if named is None:
        plan |= {name: value for name, value in arguments.items() if name in widths}
        plain = decoder_of(request.model)
        word = plain.activation if plain else "silu"
        activation = "relu" if word == "relu2" else word  # jax.nn has no square of it
        plan["mlp_activations"] = [activation, *["linear"] * request.model.gated]
    plan |= {**_mesh(request), **_sizes(request)}
    text = yaml_text(plan)
    return {_FILE: as_comments(comments) + text}


def _mesh(request: PlanToWrite) -> dict[str, Any]:
    """The axes; all within one slice, which is how MaxText sees GPUs."""
    cp, ep, dp = request.get("cp", 1), request.get("ep", 1), request.replicas
    zero, outer = request.get("zero", 0), max(1, dp // ep)
    whole = request.get("shard_group", dp * cp)  # the axes of a weight: fsdp, context and expert
    sharded = max(1, whole // (cp * ep)) if zero == SHARDED else 1
    out: dict[str, Any] = {
        "ici_data_parallelism": outer // sharded,
        "ici_fsdp_parallelism": sharded,
        "ici_tensor_parallelism": request.get("tp", 1),
        "ici_context_parallelism": cp,
        "ici_pipeline_parallelism": request.get("pp", 1),
        "ici_expert_parallelism": ep,
        "dcn_data_parallelism": 1,
        "shard_optimizer_over_data": zero == 1,
    }
    if cp > 1:
        ways = written("context_ways", "maxtext")
        out["context_parallel_strategy"] = ways[request.get("cp_comm_type", "all-gather")]
    return out


def _sizes(request: PlanToWrite) -> dict[str, Any]:
    """Batch, recomputation and precision."""
    pp = request.get("pp", 1)
    split = request.get("tp", 1) * request.get("cp", 1) * pp
    parts = request.micro_batches if pp > 1 else 1
    each = request.options["micro_batch"] * parts / split
    out: dict[str, Any] = {
        "per_device_batch_size": int(each) if each == int(each) else each,
        "gradient_accumulation_steps": request.micro_batches // parts,
    }
    if pp > 1:
        out["num_pipeline_microbatches"] = parts
    mode = request.get("recompute", "none")
    kept = mode.removeprefix("keep:").split("+")
    policy = next((p for p, names in REMAT_POLICIES.items() if set(names) == set(kept)), None)
    if mode in ("none", "full") or policy:
        out["remat_policy"] = policy or mode
    precision = request.get("precision", "bf16")
    words = {"fp8": "fp8", "fp8-tensorwise": "te_fp8_currentscaling", "fp8-delayed": "fp8"}
    words |= {"mxfp8": "te_mxfp8", "nvfp4": "te_nvfp4"}
    out["quantization"] = words.get(precision, "")
    out["dtype"] = "float32" if precision == "fp32" else "bfloat16"
    out["attention"] = "dot_product" if request.get("attention") == "eager" else "cudnn_flash_te"
    if request.get("state_precision") == "bf16":
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
    names=lambda model: model.name in _NAMED,
    lost={
        "model": "MaxText has no configuration of its shape",
        "zero": "its mesh shards parameters, or the optimizer over the axis data",
        "schedule": "its pipelines are circular; none that is timed here",
        "placement": "its order of axes is fixed",
        "micro_batch": "devices get no whole share of it",
    },
    fill=("base_output_directory, dataset and tokenizer in config.yml", "learning rate"),
)
