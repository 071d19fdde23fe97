"""accelerate's YAML: how many processes, in which precision, and FSDP, DeepSpeed or Megatron-LM.

Names and defaults: commands/config/cluster.py, commands/launch.py and utils/dataclasses.py of
accelerate 1.15.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import deepspeed, sharding, trainer
from planner.formats.record import Answer, Argument, Format, Value, unread

_DEEPSPEED, _MEGATRON = "deepspeed_config.", "megatron_lm_config.megatron_lm_"
_PARALLEL = "parallelism_config.parallelism_config_"
_BACKENDS = {"te": "fp8-delayed", "ao": "fp8-tensorwise"}


def _compiles(value: Any) -> bool:
    return not trainer.is_off(str(value).lower())


def _megatron(name: str, option: str, **more: Any) -> Argument:
    return Argument(_MEGATRON + name, option, meaning=trainer.whole, **more)


_OWNERS = {"FSDP": "fsdp_config", "DEEPSPEED": _DEEPSPEED, "MEGATRON_LM": "megatron_lm_config"}
TABLE = (
    Argument("num_processes", "gpus", meaning=trainer.whole),
    Argument(
        "dynamo_config.dynamo_backend",
        "compile",
        meaning=_compiles,
        writes=lambda ours: "INDUCTOR" if ours else None,
        also=("dynamo_backend", "dynamo_config.dynamo_config_backend"),
    ),
    _megatron("tp_degree", "tp"),
    _megatron("pp_degree", "pp"),
    _megatron("num_micro_batches", "grad_accum"),
    _megatron("expert_model_parallel_size", "ep"),
    _megatron("context_parallel_size", "cp"),
    Argument(_MEGATRON + "sequence_parallelism", "sequence_parallel", meaning=trainer.switch),
    Argument(
        _MEGATRON + "recompute_activations", "recompute", words={True: "selective", False: "none"}
    ),
    Argument(_PARALLEL + "tp_size", "tp", meaning=trainer.whole),
    Argument(_PARALLEL + "cp_size", "cp", meaning=trainer.whole),
    Argument(_DEEPSPEED + "gradient_accumulation_steps", "grad_accum", meaning=trainer.whole),
    Argument(_DEEPSPEED + "zero_stage", "zero", meaning=trainer.whole),
)
UNREAD = unread("accelerate")


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    """Who shards, in which precision, and where ranks are."""
    kind = str(answer.get("distributed_type", "NO")).upper().rpartition(".")[2]
    _nodes(answer)
    _precision(answer)
    if kind == "FSDP":
        sharding.read_fsdp(answer)
        if answer.option("zero") is None:
            answer.state("zero", 3, "distributed_type")
        answer.options.pop("stack", None)
        answer.state("stack", sharding.FSDP, "distributed_type")
    elif kind == "DEEPSPEED":
        _read_deepspeed(answer)
    elif kind == "MEGATRON_LM":
        distributed = _MEGATRON + "use_distributed_optimizer"
        on = trainer.is_on(answer, distributed, True)
        answer.imply("zero", int(on), "of the optimizer", distributed)
        answer.state("stack", "megatron-core", "distributed_type")
    elif kind in ("NO", "MULTI_GPU"):
        answer.imply("zero", 0, sharding.ALONE, "distributed_type")
        answer.imply("stack", trainer.DDP, sharding.ALONE)
    _parallel(answer)
    if kind in ("FSDP", "DEEPSPEED"):  # both keep fp32 under mixed precision
        answer.leave("state_precision", "distributed_type")
    for name in values:
        if name.startswith(tuple(_OWNERS.values())) and not name.startswith(_owner(kind)):
            answer.mark(name, "irrelevant", "not of this distributed_type")
    trainer.mark_off(answer, UNREAD["lacks"])


def _owner(kind: str) -> str:
    return _OWNERS.get(kind, "none")


def _nodes(answer: Answer) -> None:
    number, processes = trainer.number(answer, "num_machines", 1), answer.option("gpus")
    if processes and number > 1 and processes % number == 0:
        answer.state("gpus_per_node", processes // number, "num_machines")
    else:
        answer.mark("num_machines", "implied", "follows from the GPUs and those of a node")


def _precision(answer: Answer) -> None:
    kind = str(answer.get("mixed_precision", "no")).lower()
    backend = str(answer.get("fp8_config.backend", "")).lower()
    if kind in ("bf16", "fp16"):
        answer.state("precision", kind, "mixed_precision")
    elif kind == "fp8":
        answer.state("precision", _BACKENDS.get(backend, "fp8"), "mixed_precision")
        answer.mark("fp8_config.backend", "implied", "the recipe that this library has by default")
    elif kind in ("no", "none"):
        note = "mixed precision is off here"
        answer.imply("precision", "fp32", note)
        answer.mark("mixed_precision", "implied", note)
    for name in ("fp8_config.fp8_format", "fp8_config.override_linear_precision"):
        value = str(answer.get(name, "")).lower()
        if "true" not in value:
            answer.mark(name, "implied", "as it is taken to be")
    if answer.get("fp8_config.enable_fsdp_float8_all_gather") is True:
        answer.state("low_precision", "weights", "fp8_config.enable_fsdp_float8_all_gather")


def _read_deepspeed(answer: Answer) -> None:
    """DeepSpeed in accelerate's own few names, or in another file."""
    zero = {}
    for part in ("optimizer", "param"):
        name = f"{_DEEPSPEED}offload_{part}_device"
        if answer.get(name) is not None:
            zero[f"zero_optimization.offload_{part}.device"] = answer.values[name]
            answer.mark(name, "implied", "as it is taken to be")
    offload = deepspeed.FORMAT.read(zero).options.get("offload")
    if offload is not None:
        at = "optimizer" if "optimizer" in offload.argument else "param"
        answer.state("offload", offload.value, f"{_DEEPSPEED}offload_{at}_device")
    file = _DEEPSPEED + "deepspeed_config_file"
    sharding.read_deepspeed(answer, file, sharding.DEEPSPEED)
    answer.state("stack", sharding.DEEPSPEED, "distributed_type")


def _parallel(answer: Answer) -> None:
    """Torch's own parallelism: replicas of shards, tensor, context and sequence parallelism."""
    shards = trainer.number(answer, _PARALLEL + "dp_shard_size", 1)
    copies = trainer.number(answer, _PARALLEL + "dp_replicate_size", 1)
    if shards > 1 and copies > 1:
        answer.state("zero", 3, _PARALLEL + "dp_shard_size")
        answer.state("shard_group", shards, _PARALLEL + "dp_shard_size")
        answer.state("dp", shards * copies, _PARALLEL + "dp_replicate_size")
    for name in ("dp_shard_size", "dp_replicate_size"):
        answer.mark(_PARALLEL + name, "implied", "as it is taken to be")
    ways = trainer.number(answer, _PARALLEL + "sp_size", 1)
    if ways > 1:
        answer.state("cp", ways, _PARALLEL + "sp_size")
        answer.imply("cp_comm_type", "ulysses", "", _PARALLEL + "sp_backend")
    elif str(answer.get(_PARALLEL + "cp_comm_strategy", "")) == "allgather":
        answer.state("cp_comm_type", "all-gather", _PARALLEL + "cp_comm_strategy")
    elif (answer.option("cp") or 1) > 1 and answer.get("distributed_type") == "FSDP":
        answer.imply("cp_comm_type", "all-gather", "torch's context parallelism")
    for name in (
        "sp_size",
        "sp_seq_length*",
        "sp_seq_length_is_variable",
        "sp_attn_implementation",
    ):
        answer.mark(_PARALLEL + name, "implied", "as it is taken to be")


def write(options: Mapping[str, Any]) -> str:
    """The YAML of a plan."""
    stack, gpus = options.get("stack"), options.get("gpus") or 1
    each = options.get("gpus_per_node") or gpus
    config: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE", "machine_rank": 0}
    shards = stack in (sharding.FSDP, "torchtitan", "pytorch-fsdp")
    if shards and options.get("zero") != 0:
        config |= {"distributed_type": "FSDP"} | _fsdp_of(options) | _parallel_of(options)
    elif stack in sharding.BY_DEEPSPEED:
        config |= {"distributed_type": "DEEPSPEED"} | _deepspeed_of(options)
    elif stack == "megatron-core":
        config |= {"distributed_type": "MEGATRON_LM"} | _megatron_of(options)
    else:
        config["distributed_type"] = "MULTI_GPU" if gpus > 1 else "NO"
    config |= {"num_processes": gpus, "num_machines": max(1, gpus // each)}
    return trainer.as_yaml(config | _types_of(options))


def _types_of(options: Mapping[str, Any]) -> dict[str, Any]:
    kind = options.get("precision") or "bf16"
    backend = next((word for word, ours in _BACKENDS.items() if ours == kind), "")
    out: dict[str, Any] = {"mixed_precision": kind if kind in ("bf16", "fp16") else "no"}
    if kind.startswith("fp8"):
        out["mixed_precision"] = "fp8"
        if backend:
            out["fp8_config.backend"] = backend.upper()
    if options.get("compile"):
        out["dynamo_config.dynamo_backend"] = "INDUCTOR"
    return out


def _fsdp_of(options: Mapping[str, Any]) -> dict[str, Any]:
    name = "fsdp_config.fsdp_"
    return {
        name + "version": 2,
        name + "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        name + "reshard_after_forward": options.get("zero") != sharding.GRADIENTS,
        name + "offload_params": options.get("offload") == "params",
        name + "activation_checkpointing": options.get("recompute") == "full",
        name + "state_dict_type": "SHARDED_STATE_DICT",
    }


def _parallel_of(options: Mapping[str, Any]) -> dict[str, Any]:
    tp, cp = options.get("tp") or 1, options.get("cp") or 1
    group, gpus = options.get("shard_group"), options.get("gpus") or 1
    dp = options.get("dp") or gpus // (tp * cp)
    if tp == 1 and cp == 1 and (group is None or group == dp):
        return {}
    shards = group or dp
    out = {"dp_replicate_size": dp // shards, "dp_shard_size": shards, "tp_size": tp, "cp_size": cp}
    return {_PARALLEL + name: value for name, value in out.items()}


def _deepspeed_of(options: Mapping[str, Any]) -> dict[str, Any]:
    config = deepspeed.zero_of(options)
    out = {_DEEPSPEED + "zero_stage": config.pop("zero_optimization.stage")}
    for part in ("optimizer", "param"):
        device = config.get(f"zero_optimization.offload_{part}.device", "none")
        out[f"{_DEEPSPEED}offload_{part}_device"] = device
    if options.get("grad_accum"):
        out[_DEEPSPEED + "gradient_accumulation_steps"] = options["grad_accum"]
    return out


def _megatron_of(options: Mapping[str, Any]) -> dict[str, Any]:
    table = [row for row in TABLE if row.name.startswith(_MEGATRON)]
    out = trainer.written(table, options)
    return out | {_MEGATRON + "use_distributed_optimizer": options.get("zero", 1) == 1}


_is_launch = re.compile(r"^(compute_environment|distributed_type)\s*:", re.MULTILINE)
FORMAT = Format(
    kind="accelerate",
    title="accelerate YAML",
    detect=lambda name, text: trainer.is_data(name) and _is_launch.search(text) is not None,
    parse=trainer.parse,
    table=TABLE,
    read_more=read_more,
    **UNREAD,
)
