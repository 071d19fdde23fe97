"""torchtitan, written: its TOML for a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.formats.target import GATHERED, PlanToWrite, Target, as_comments, nested, theirs
from planner.formats.torchtitan import (
    FLAVORS,
    FLOAT8,
    MX,
    ONE_CHUNK,
    PART,
    SCHEDULE_WORDS,
    TABLE,
    USUAL_CHUNKS,
    WAYS,
)

_FILE = "train.toml"


def _write(request: PlanToWrite, comments: tuple[str, ...]) -> Mapping[str, str]:
    import tomli_w

    plan = {**theirs(TABLE, request), **_sizes(request), **_kinds(request)}
    return {_FILE: as_comments(comments) + "\n" + tomli_w.dumps(nested(plan))}


def _sizes(request: PlanToWrite) -> dict[str, Any]:
    """Degrees, batch and length."""
    cp, pp, dp = request.get("cp", 1), request.get("pp", 1), request.replicas
    zero, sharding = request.get("zero", 0), request.get("shard_group", dp * cp) // cp
    shard = dp if sharding < 1 else sharding
    whole = zero == 0 and cp == 1
    out: dict[str, Any] = {
        "training.global_batch_size": request.options["global_batch"],
        "training.local_batch_size": request.options["micro_batch"],
        "training.steps": request.steps,
        f"{PART}data_parallel_replicate_degree": dp if whole else dp // shard,
        f"{PART}data_parallel_shard_degree": 1 if whole else shard,
    }
    if not whole:
        out[f"{PART}fsdp_reshard_after_forward"] = "never" if zero == GATHERED else "always"
    if pp > 1:
        out["training.local_batch_size"] = request.options["global_batch"] // dp
        out[f"{PART}pipeline_parallel_microbatch_size"] = request.options["micro_batch"]
        schedule = request.get("schedule", "1f1b")
        out[f"{PART}pipeline_parallel_schedule"] = SCHEDULE_WORDS.get(schedule, schedule)
        chunks = pp * request.get("vpp", 1)
        if schedule not in ONE_CHUNK and chunks != pp * USUAL_CHUNKS:
            each = math.ceil((request.model.layers + 2) / chunks)
            out[f"{PART}pipeline_parallel_layers_per_stage"] = each
    return out


def _kinds(request: PlanToWrite) -> dict[str, Any]:
    """Model, recomputation, precision, and options of each kind of parallelism."""
    out: dict[str, Any] = {}
    if request.model.name in FLAVORS:
        family, flavor = FLAVORS[request.model.name]
        out |= {"model.name": family, "model.flavor": flavor}
    mode = request.get("recompute", "none")
    if mode in ("none", "selective", "full"):
        out["activation_checkpoint.mode"] = mode
    if mode == "selective":
        out["activation_checkpoint.selective_ac_option"] = "op"
    if request.get("cp", 1) > 1:
        way = request.get("cp_comm_type", "all-gather")
        word = next((word for word, ours in WAYS.items() if ours == way), None)
        out |= {} if word is None else {f"{PART}context_parallel_rotate_method": word}
    if request.get("tp_overlap") == "async":
        out[f"{PART}enable_async_tensor_parallel"] = True
    return {**out, **_of_experts(request), **_types(request)}


def _of_experts(request: PlanToWrite) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if request.get("ep", 1) > 1:
        out[f"{PART}expert_parallel_degree"] = request.get("ep")
        out[f"{PART}expert_tensor_parallel_degree"] = request.get("etp", 1)
        if request.get("dispatcher") == "deepep":
            out[f"{PART}expert_parallel_comm_backend"] = "deepep"
    return out


def _types(request: PlanToWrite) -> dict[str, Any]:
    """Precision of GEMMs and of gathered weights."""
    out: dict[str, Any] = {}
    precision = request.get("precision", "bf16")
    if precision in ("bf16", "fp32"):
        wide = "float32" if precision == "fp32" else "bfloat16"
        out["training.mixed_precision_param"] = wide
    elif precision in ("fp8", "fp8-tensorwise", "fp8-rowwise"):
        out["model.converters"] = [FLOAT8]
        out[f"{FLOAT8}.recipe_name"] = precision.partition("-")[2] or "tensorwise"
        if "weights" in request.get("low_precision", ""):
            out[f"{FLOAT8}.enable_fsdp_float8_all_gather"] = True
    elif precision == "mxfp8":
        out["model.converters"] = [MX]
    return out


_STACKS = ("torchtitan", "torchtitan-25.04")
TARGET = Target(
    kind="torchtitan",
    title="torchtitan 0.2",
    stacks=_STACKS,
    program='-m torchtitan.train --job.config_file "$RECIPE/train.toml"',
    write=_write,
    checkout="torchtitan",
    names=lambda model: model.name in FLAVORS,
    lost={
        "model": "torchtitan has no flavor of its shape: write one in torchtitan/models",
        "zero": "FSDP shards parameters or nothing",
        "placement": "its order of ranks is fixed",
        "offload": "it offloads parameters with their states or nothing",
        "optimizer": "it has only Adam and AdamW",
        "pipeline_layout": "parts of a pipeline are listed by modules there",
        "schedule": "torch.distributed.pipelining does not have it",
        "vpp": "no number of layers per stage gives as many chunks",
    },
    fill=(
        "hf_assets_path (the tokenizer) and dataset in train.toml",
        "learning rate and its warm-up",
    ),
)
