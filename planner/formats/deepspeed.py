"""DeepSpeed's JSON. "auto" stands for what the arguments of transformers' Trainer say beside it.

Names and defaults: deepspeed/runtime/config.py, constants.py and zero/config.py of 0.19.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import trainer
from planner.formats.record import SQUARE, Answer, Argument, Format, Value, unread
from planner.specs.options.aliases import words

_ZERO = "zero_optimization."
_PLACES = {"none": "", "cpu": "cpu", "nvme": "nvme"}
_OPTIMIZERS = words("optimizers", "deepspeed")
_TYPES = {"fp32": "fp32", "bf16": "bf16", "bfp16": "bf16"}
# our --offload by where optimizer states and parameters go
_OFFLOADS = {
    ("", ""): "none",
    ("cpu", ""): "optimizer",
    ("nvme", ""): "optimizer-nvme",
    ("cpu", "cpu"): "params",
    ("nvme", "cpu"): "params-optimizer-nvme",
    ("nvme", "nvme"): "params-nvme",
}
_BUCKET = 500_000_000  # elements, ZeRO's default
_NARROW = 2  # bytes of an element of a bucket, which has the type of the weights
_CODES = {"qwz": "zero_quantized_weights", "qgz": "zero_quantized_gradients"}
_EVERYTHING = 3  # the stage that shards parameters, too
_TURN = 1_000_000_000  # elements that ZeRO-3 updates at a time by default (sub_group_size)


def _optimizer(value: Any) -> str:
    optimizer = _OPTIMIZERS.get(str(value).lower().replace("_", ""))
    if optimizer is None:
        raise ValueError(f"{value!r} is not modelled; the estimate assumes adam")
    return optimizer


def _bucket(value: Any) -> Any:
    """Bytes of a bucket of this many elements; auto follows from the widths of the model."""
    if value == "auto":
        return None
    elements = trainer.whole(value)
    return None if elements is None or elements == _BUCKET else _NARROW * elements


def _elements(ours: Any) -> int:
    return int(ours // _NARROW)


def _turn(value: Any) -> float | None:
    """Elements of an update; auto is the default."""
    elements = None if value == "auto" else trainer.whole(value)
    return float(elements) if elements else None


def _several(value: Any) -> int | None:
    count = trainer.whole(value)
    return count if count and count > 1 else None


TABLE = (
    Argument("train_batch_size", "global_batch", meaning=trainer.whole),
    Argument(
        "train_micro_batch_size_per_gpu",
        "micro_batch",
        meaning=trainer.whole,
        also=("train_micro_batch_size",),
    ),
    Argument("gradient_accumulation_steps", "grad_accum", meaning=trainer.whole),
    Argument(_ZERO + "stage", "zero", default=0, meaning=trainer.whole),
    Argument(
        "optimizer.type", "optimizer", meaning=_optimizer, writes=trainer.name_of(_OPTIMIZERS)
    ),
    Argument("data_types.grad_accum_dtype", "gradient_precision", words=_TYPES),
    Argument(_ZERO + "reduce_bucket_size", "dp_bucket", meaning=_bucket, writes=_elements),
    Argument(_ZERO + "sub_group_size", "sub_group_size", meaning=_turn, writes=int),
    Argument(_ZERO + "zero_hpz_partition_size", "hpz", meaning=_several),
    Argument("communication_data_type", "grad_reduce_precision", words=_TYPES),
    Argument("sequence_parallel_size", "cp", meaning=trainer.whole, writes=_several),
    Argument("tensor_parallel.autotp_size", "tp", meaning=_several, writes=_several),
)
UNREAD = unread("deepspeed")
# of ZeRO: modelled only at their defaults
_TAKEN = {
    # what is gathered ahead is the next layer, whole
    *("allgather_bucket_size", "stage3_prefetch_bucket_size"),
    *("contiguous_gradients", "allgather_partitions", "reduce_scatter", "round_robin_gradients"),
    *("stage3_max_live_parameters", "stage3_max_reuse_distance", "max_live_parameters"),
    *("max_reuse_distance", "stage3_param_persistence_threshold", "param_persistence_threshold"),
    *(
        "stage3_model_persistence_threshold",
        "cpu_offload_use_pin_memory",
        "memory_efficient_linear",
    ),
    *("use_multi_rank_bucket_allreduce", "allgather_sequential"),
    *(
        "stage3_module_granularity_threshold",
        "use_all_reduce_for_fetch_params",
        "log_trace_cache_warnings",
    ),
    *("pipeline_loading_checkpoint", "override_module_apply", "leaf_module"),
}


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    """Precision, offloading, and the buckets that are modelled only at their defaults."""
    precision(answer)
    read_zero(answer, _ZERO)
    is_auto = any(answer.get(name, "") == "auto" for name in ("bf16.enabled", "fp16.enabled"))
    if answer.option("precision") is None and not is_auto:
        answer.imply("precision", "fp32", "neither fp16 nor bf16 is on: the default")
    if answer.option("cp"):
        answer.imply("cp_comm_type", "ulysses", "DeepSpeed's sequence parallelism")
    known = next((key for key, used in answer.arguments.items() if used.use == "read"), "")
    answer.imply("stack", "deepspeed", "a file of DeepSpeed", known)
    for name in values:
        if name.startswith("activation_checkpointing."):
            answer.mark(name, "implied", "acts where the model calls DeepSpeed's checkpoints")
        elif name.startswith(("aio.",)):
            answer.mark(name, "implied", "drives are taken at --nvme-read and --nvme-write")
    trainer.mark_off(answer, UNREAD["lacks"])
    _mark_disabled(answer)


def precision(answer: Answer) -> None:
    """bf16 and fp16, and states that are kept in bf16."""
    for name in ("bf16", "fp16", "bfloat16"):
        on = trainer.is_on(answer, f"{name}.enabled")
        ours = "fp16" if name == "fp16" else "bf16"
        if on:
            answer.state("precision", ours, f"{name}.enabled")
        answer.mark(f"{name}.enabled", "implied", "off, or as the trainer's arguments say")
    narrow = [f"bf16.bf16_{key}" for key in ("master_weights_and_grads", "optimizer_states")]
    if known := next(iter(answer.values), ""):
        answer.leave("state_precision", known)
    if all(answer.get(name) is True for name in narrow):
        answer.state("state_precision", "bf16", narrow[0])
        answer.state("state_precision", "bf16", narrow[1])


def read_zero(answer: Answer, prefix: str) -> None:
    """Offloading of ZeRO, and its sizes."""
    places = []
    for part in ("optimizer", "param"):
        name = f"{prefix}offload_{part}.device"
        old = f"{prefix}cpu_offload{'_params' if part == 'param' else ''}"
        value = str(answer.get(name, "none")).lower()
        if answer.get(old) is True:
            name, value = old, "cpu"
        answer.mark(name, "read" if value in _PLACES else "not understood")
        answer.mark(old, "implied", "as it is taken to be")
        places.append((name, _PLACES.get(value, "")))
    (states, to), (weights, parameters_to) = places
    if offload := _OFFLOADS.get((to, parameters_to)):
        if offload != "none":
            answer.state("offload", offload, states if states in answer.values else weights)
    else:
        why = "parameters away and optimizer states not there is not modelled"
        answer.arguments.pop(weights, None)
        answer.mark(weights, "not understood", why)
    for name in answer.values:
        short = name.removeprefix(prefix)
        if not name.startswith(prefix):
            continue
        if short.startswith(("offload_optimizer.", "offload_param.")):
            answer.mark(name, "implied", "buffers are taken as they are by default")
        elif short in _TAKEN:
            answer.mark(name, "implied", "as it is taken to be")
    _turns(answer, f"{prefix}sub_group_size")
    _communication(answer, prefix)


def _turns(answer: Answer, name: str) -> None:
    """Elements of an update: of ZeRO-3, for drives as many as DeepSpeed takes by itself."""
    on_drives = "nvme" in str(answer.option("offload"))
    stated = answer.option("sub_group_size")
    if answer.option("zero") != _EVERYTHING:
        answer.drop("sub_group_size")
        answer.arguments.pop(name, None)
        answer.mark(name, "irrelevant", "of ZeRO-3")
    elif stated == _TURN and not on_drives:
        answer.drop("sub_group_size")
        answer.arguments.pop(name, None)
        answer.mark(name, "implied", "the default")
    elif stated is None and on_drives:
        answer.imply("sub_group_size", float(_TURN), "the default", name)


def _communication(answer: Answer, prefix: str) -> None:
    """Overlap flags, quantised collectives (ZeRO++) and bucket sizes."""
    name, stage = f"{prefix}overlap_comm", answer.option("zero") or 0
    beside = answer.get(name)
    if beside is False:
        answer.state("dp_overlap", "none", name)
    elif beside is True:
        answer.leave("dp_overlap", name)
        answer.mark(name, "implied", "as the stack has it")
    elif 0 < stage < _EVERYTHING:
        answer.imply("dp_overlap", "none", "overlap_comm is off by default below stage 3", name)
    parts_on = [part for part, code in _CODES.items() if trainer.is_on(answer, prefix + code)]
    for part, code in _CODES.items():
        answer.mark(prefix + code, "read" if part in parts_on else "implied")
    if parts_on:
        answer.state("zeropp", "+".join(parts_on), prefix + _CODES[parts_on[0]])
    bucket = f"{prefix}reduce_bucket_size"
    if answer.get(bucket) == "auto":
        note = "hidden size x hidden size, as transformers has it"
        answer.arguments.pop(bucket, None)
        answer.state(SQUARE, _NARROW, bucket, note)


def _mark_disabled(answer: Answer) -> None:
    """All of a part whose `enabled` is false."""
    off = [
        name.removesuffix("enabled")
        for name, value in answer.values.items()
        if name.endswith(".enabled") and value.value is False
    ]
    off = [key.removesuffix("shared_parameters.") for key in off]
    for name in answer.values:
        if name not in answer.arguments and name.startswith(tuple(off)):
            answer.mark(name, "implied", "of a part that is off")


def zero_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """ZeRO and offloading of these options as DeepSpeed writes them."""
    config: dict[str, Any] = {_ZERO + "stage": options.get("zero", 0)}
    if config[_ZERO + "stage"]:
        config[_ZERO + "overlap_comm"] = options.get("dp_overlap") != "none"
    offload = options.get("offload") or "none"
    for (states, weights), ours in _OFFLOADS.items():
        if ours == offload and offload != "none":
            config[_ZERO + "offload_optimizer.device"] = states
            if weights:
                config[_ZERO + "offload_param.device"] = weights
    return config


def document(options: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a plan, nested."""
    config: dict[str, Any] = {}
    for argument in TABLE:
        value = options.get(argument.option)
        theirs = None if value is None else argument.theirs(value)
        if theirs is not None:
            config[argument.name] = theirs
    config |= zero_of(options)
    parts = str(options.get("zeropp") or "").split("+")
    config |= {_ZERO + name: True for part, name in _CODES.items() if part in parts}
    kind = options.get("precision")
    if kind in ("bf16", "fp16"):
        config[f"{kind}.enabled"] = True
    if options.get("state_precision") == "bf16":
        config["bf16.bf16_master_weights_and_grads"] = True
        config["bf16.bf16_optimizer_states"] = True
    return trainer.nested(config)


def write(options: Mapping[str, Any]) -> str:
    """The JSON of a plan."""
    return trainer.as_json(document(options))


_has_own_keys = trainer.has_key(
    "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "zero_stage3"
)
_OF_VERL = re.compile(r"^actor_rollout_ref\s*:|^[ \t]+partial_pretrain\s*:", re.M)  # its tables
FORMAT = Format(
    kind="deepspeed",
    title="DeepSpeed JSON",
    detect=lambda name, text: _has_own_keys(name, text) and not _OF_VERL.search(text),
    parse=trainer.parse,
    table=TABLE,
    read_more=read_more,
    **UNREAD,
)
