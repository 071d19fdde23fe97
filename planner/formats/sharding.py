"""Sharding and offloading under transformers' Trainer: FSDP of accelerate, DeepSpeed in a file of
its own or inside, or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.formats import deepspeed
from planner.formats.record import Answer, Value
from planner.formats.trainer import DDP, is_off, is_on, number

SHARDING = {
    "full_shard": 3,
    "shard_grad_op": 2,
    "no_shard": 0,
    "hybrid_shard": 3,
    "hybrid_shard_zero2": 2,
    "1": 3,
    "2": 2,
    "3": 0,
    "4": 3,
    "5": 2,
}
_HYBRID = {"hybrid_shard", "hybrid_shard_zero2", "4", "5"}


SYNC_EACH = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
FSDP, DEEPSPEED = "hf-fsdp", "hf-deepspeed"
BY_DEEPSPEED = (DEEPSPEED, "deepspeed", "llama-factory")
DEEPSPEED_FILE = "ds_config.json"  # as the trainer's file names it
GRADIENTS, PARAMETERS = 2, 3  # stages of ZeRO that shard these
ALONE = "neither fsdp nor deepspeed is on: every GPU has the whole model"
_STAGE = re.compile(r"z(?:ero|ero_?stage|ero-stage)?[_-]?([0-3])(?!\d)", re.I)
_FSDP = "fsdp_config."
_HOST = re.compile(r"cpu|offload", re.I)


def read_sharding(answer: Answer, stack: str = DEEPSPEED) -> None:
    """fsdp, fsdp_config and deepspeed. stack: ours under DeepSpeed."""
    by_fsdp = read_fsdp(answer)
    by_deepspeed = read_deepspeed(answer, "deepspeed", stack)
    cap = "ddp_bucket_cap_mb"
    if by_fsdp or by_deepspeed:
        answer.mark(cap, "irrelevant", "only of torch's DDP")
    elif (size := number(answer, cap, 0)) > 0:
        answer.state("dp_bucket", size * 2**20, cap)
    if not (by_fsdp or by_deepspeed):
        answer.imply("zero", 0, ALONE)
        answer.imply("stack", DDP, ALONE)


def read_deepspeed(answer: Answer, name: str, stack: str) -> bool:
    """A configuration of DeepSpeed: another file, of which only the name is known here, or inside.
    Whether there is one."""
    inside = {key: value for key, value in answer.values.items() if key.startswith(f"{name}.")}
    value = answer.get(name)
    if inside:
        _read_inside(answer, f"{name}.", inside)
    elif is_off(value):
        answer.mark(name, "implied", "off")
        return False
    else:
        named = str(value).replace("\\", "/").rpartition("/")[2]
        known = named_plan(named)
        note = "another file: give it, too, or --zero"
        if known:
            sentence = ", ".join(f"{ours} {value}" for ours, value in known.items())
            note = f"another file: give it, too; its name says {sentence}"
        for ours, value in known.items():
            answer.imply(ours, value, note)
        answer.mark(name, "implied", note)
    given = name if name in answer.values else next(iter(inside))
    if answer.option("stack") is None:
        used = answer.arguments.get(given)
        answer.state("stack", stack, given)
        answer.arguments[given] = used or answer.arguments[given]
    return True


def named_plan(name: str) -> dict[str, Any]:
    """Options that the name of a DeepSpeed file tells: zero3_bf16_cpuoffload_all.json."""
    match = _STAGE.search(name)
    if not match:
        return {}
    stage = int(match[1])
    out: dict[str, Any] = {"zero": stage}
    if _HOST.search(name):
        out["offload"] = (
            "params" if stage == PARAMETERS and "param" not in name.lower() else "optimizer"
        )
    return out


def _read_inside(answer: Answer, prefix: str, inside: Mapping[str, Value]) -> None:
    """DeepSpeed's arguments inside another file."""
    values = {name.removeprefix(prefix): replace(value, alias="") for name, value in inside.items()}
    inner = deepspeed.FORMAT.read(values)
    inner.options.pop("stack", None)
    for ours, stated in inner.options.items():
        if not stated.implied:
            answer.state(ours, stated.value, prefix + stated.argument)
        else:
            answer.imply(ours, stated.value, "as DeepSpeed has it")
    for name, used in inner.arguments.items():
        answer.mark(prefix + name, used.use, used.note)


def read_fsdp(answer: Answer) -> bool:
    """fsdp and fsdp_config, of accelerate or of the trainer, with names that begin with fsdp_ or
    not. True if they are on."""
    words = answer.get("fsdp")
    listed = [words] if isinstance(words, str) else words if isinstance(words, list) else []
    items = [word for text in listed for word in str(text).lower().replace(",", " ").split()]
    by_key = {key(name, _FSDP): name for name in answer.values if name.startswith(_FSDP)}
    answer.mark("fsdp_config", "irrelevant", "empty")
    if not (items or by_key or words is True):
        answer.mark("fsdp", "implied", "off")
        return False
    named = (by_key[key] for key in ("version", "auto_wrap_policy", *by_key) if key in by_key)
    name = "fsdp" if items or words is True else next(named)
    strategy = next((word for word in items if word in SHARDING), "full_shard")
    stage = SHARDING[strategy]
    for short in ("sharding_strategy", "reshard_after_forward"):
        word = str(answer.get(by_key.get(short, ""), "")).lower()
        if word in SHARDING:
            stage, name, strategy = SHARDING[word], by_key[short], word
        elif word in ("true", "false") and strategy == "full_shard":
            stage, name = (PARAMETERS if word == "true" else GRADIENTS), by_key[short]
    if is_on(answer, SYNC_EACH):
        answer.state("gradient_sync", "each", SYNC_EACH)
    _fsdp_rest(answer, by_key, "offload" in items)
    note = "--shard-group says over how many GPUs" if strategy in _HYBRID else ""
    used = answer.arguments.get(name)
    if used is None or used.use != "not understood":
        answer.state("zero", stage, name, note)
    else:  # it has been found to mean nothing
        answer.imply("zero", stage, "FSDP is on")
    answer.imply("stack", FSDP, "FSDP is on")
    answer.mark("fsdp", "read")
    return True


def key(name: str, prefix: str) -> str:
    """The short name of a setting of FSDP."""
    return name.removeprefix(prefix).removeprefix("fsdp_").lower()


def _fsdp_rest(answer: Answer, by_key: Mapping[str, str], offloads: bool) -> None:
    offload = by_key.get("offload_params", by_key.get("cpu_offload", ""))
    if is_on(answer, offload):
        answer.state("offload", "params", offload)
    elif offloads:
        answer.state("offload", "params", "fsdp")
    repeats = by_key.get("activation_checkpointing", "")
    if is_on(answer, repeats):
        answer.state("recompute", "full", repeats)
    wrap = str(answer.get(by_key.get("auto_wrap_policy", ""), "")).upper()
    for short, name in by_key.items():
        if short == "backward_prefetch":
            _prefetch(answer, name)
        elif short == "cpu_ram_efficient_loading":
            readers = "each-host" if is_on(answer, name) else "each-rank"
            answer.state("weight_readers", readers, name)
        elif short == "auto_wrap_policy" and wrap == "NO_WRAP":
            answer.mark(name, "not understood", "layers are taken to be wrapped one by one")
        elif short in _FSDP_OFF:
            answer.mark(name, "implied", "as it is taken to be")
        elif short in _FSDP_IRRELEVANT:
            answer.mark(name, "irrelevant")


def _prefetch(answer: Answer, name: str) -> None:
    """FSDP 1 may gather a layer for backward only when it is needed: nothing runs beside that."""
    word = str(answer.get(name)).upper()
    if word in ("NO_PREFETCH", "NONE", "3") and answer.get(name) is not None:
        answer.state("dp_overlap", "reduce+forward", name)
    else:
        answer.mark(name, "implied", "as it is taken to be")


_FSDP_OFF = {
    *(
        "offload_params",
        "cpu_offload",
        "activation_checkpointing",
        "sharding_strategy",
        "reshard_after_forward",
    ),
    *("auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "limit_all_gathers"),
    *("version", "fsdp_version", "forward_prefetch", "use_orig_params"),
    *("mixed_precision_policy", "ignored_modules", "cpu_offload_pin_memory"),
}
_FSDP_IRRELEVANT = {
    *("state_dict_type", "final_state_dict_type", "sync_module_states"),
    *("save_policy", "nan_check"),
}


def optimizer_of(options: Mapping[str, Any], name: str = "optim") -> dict[str, Any]:
    """Under this name the optimizer that takes the shards of FSDP 2, where that is another than
    without: the 8-bit kernels of bitsandbytes fail on them (Axolotl's schema), torchao's do not."""
    return {name: "adamw_torch_8bit"} if options.get("optimizer") == "adam8bit" else {}


def written(options: Mapping[str, Any], optimizer: str = "optim") -> dict[str, Any]:
    """fsdp and fsdp_config of a plan, with the optimizer that takes such shards under its name;
    DeepSpeed by the name of its file."""
    stack, stage = options.get("stack"), options.get("zero")
    if stack in BY_DEEPSPEED:
        return {"deepspeed": DEEPSPEED_FILE}
    if stack != FSDP or stage not in (GRADIENTS, PARAMETERS):
        return {}
    out: dict[str, Any] = {"fsdp": True, "fsdp_config.version": 2}
    out["fsdp_config.reshard_after_forward"] = stage == PARAMETERS
    if options.get("offload") == "params":
        out["fsdp_config.cpu_offload"] = True
    if options.get("gradient_sync") == "each":
        out[SYNC_EACH] = True
    out |= optimizer_of(options, optimizer)
    return out | {"fsdp_config.auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
