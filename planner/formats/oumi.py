"""oumi's YAML of training.

Names and defaults: src/oumi/core/configs/params of oumi-ai/oumi@d8ed0777.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.formats import adapted, sharding, trainer
from planner.formats.packed import Rows, read_rows
from planner.formats.record import Answer, Argument, Format, Value, unread

_DETECT = (
    re.compile(r"(?m)^model[ \t]*:"),
    re.compile(r"(?m)^[ \t]+model_name[ \t]*:"),
    re.compile(r"(?m)^training[ \t]*:"),
    re.compile(
        r"(?m)^[ \t]+(?:trainer_type|enable_gradient_checkpointing|include_performance_metrics)"
        r"[ \t]*:"
    ),
)
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "bf16": "bf16", "fp16": "fp16"}
_OBJECTIVES = {"trl_dpo": "dpo", "trl_kto": "kto"}
_GENERATES = ("trl_grpo", "verl_grpo", "trl_gkd", "trl_gold")
_NAMES = adapted.Names(
    rank="peft.lora_r",
    targets=("peft.lora_target_modules",),
    dropout="peft.lora_dropout",
    scaled="peft.use_rslora",
    parted="peft.use_dora",
    saved="peft.lora_modules_to_save",
    default_rank=8,
)
_FROZEN = adapted.Frozen(
    four="",
    eight="",
    bits="peft.q_lora_bits",
    kind="peft.bnb_4bit_quant_type",
    doubled="peft.use_bnb_nested_quant",
    default_doubled=False,
)
_TABLE = (
    Argument("model.model_name", "model", meaning=trainer.model_name, note=trainer.COPIES),
    Argument("model.model_max_length", "seq_len", meaning=trainer.whole),
    Argument("model.attn_implementation", "attention", meaning=trainer.attention),
    Argument(
        "training.per_device_train_batch_size", "micro_batch", default=8, meaning=trainer.whole
    ),
    Argument(
        "training.gradient_accumulation_steps", "grad_accum", default=1, meaning=trainer.whole
    ),
    Argument("training.max_steps", "steps", meaning=trainer.steps, note=trainer.MAX_STEPS.note),
    Argument("training.optimizer", "optimizer", default="adamw_torch", meaning=trainer.optimizer),
    Argument(
        "training.enable_gradient_checkpointing",
        "recompute",
        default=False,
        meaning=trainer.recompute,
    ),
    Argument("training.compile", "compile", meaning=trainer.switch, also=("model.compile",)),
)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    _sharding(answer)
    _precision(answer)
    _objective(answer)
    adapted.read(answer, _NAMES, "training.use_peft", "false")
    if trainer.is_on(answer, "peft.q_lora"):
        answer.mark("peft.q_lora", "read")
        usual = {} if "peft.q_lora_bits" in values else {"peft.q_lora_bits": Value(4)}
        answer.values = {**values, **usual}
        adapted.read_frozen(answer, _FROZEN)
        answer.values = values
        answer.arguments = {n: used for n, used in answer.arguments.items() if n not in usual}
    else:
        for name in values:
            if name.startswith(("peft.q_lora", "peft.bnb_", "peft.use_bnb")):
                answer.mark(name, "irrelevant", "frozen weights are not quantised")
    trainer.read_liger(answer, "model.enable_liger_kernel")
    packed = tuple(name for name in values if name.endswith(".pack"))
    read_rows(answer, Rows(packed=packed, grouped=()))
    if "data.train.pack" in values:
        answer.mark("data.train.pack", "implied", "off, or another switch wins")
    trainer.read_degrees(answer)
    trainer.mark_empty(answer)


def _sharding(answer: Answer) -> None:
    name, how = "fsdp.enable_fsdp", "fsdp.sharding_strategy"
    if trainer.is_on(answer, name):
        strategy = str(answer.get(how, "full_shard")).lower()
        answer.mark(name, "read")
        if strategy in sharding.SHARDING:
            note = "--shard-group says over how many GPUs" if "hybrid" in strategy else ""
            answer.imply("zero", sharding.SHARDING[strategy], note or "FSDP is on", how, name)
        answer.imply("stack", sharding.FSDP, "FSDP is on", name)
        if trainer.is_on(answer, "fsdp.cpu_offload"):
            answer.state("offload", "params", "fsdp.cpu_offload")
        answer.mark("fsdp.cpu_offload", "implied", "off")
        return
    if trainer.is_on(answer, "deepspeed.enable_deepspeed"):
        stage = str(answer.get("deepspeed.zero_stage", "")).lower().removeprefix("zero_")
        answer.imply("stack", sharding.DEEPSPEED, "DeepSpeed is on", "deepspeed.enable_deepspeed")
        if stage in ("0", "1", "2", "3"):
            answer.state("zero", int(stage), "deepspeed.zero_stage")
        return
    for entry in answer.values:
        if entry.startswith(("fsdp.", "deepspeed.")):
            answer.mark(entry, "irrelevant", "FSDP and DeepSpeed are off")
    answer.imply("zero", 0, sharding.ALONE)
    answer.imply("stack", trainer.DDP, sharding.ALONE)


def _precision(answer: Answer) -> None:
    """The type in which weights are loaded, and mixed precision beside it."""
    mixed, loaded = "training.mixed_precision_dtype", "model.torch_dtype_str"
    word = _TYPES.get(str(answer.get(mixed, "none")).lower())
    narrow = _TYPES.get(str(answer.get(loaded, "auto")).lower())
    if word:
        answer.state("precision", word, mixed)
    elif narrow:
        answer.imply("precision", narrow, "weights are loaded in it", loaded)
        if narrow == "bf16" and answer.option("stack") == trainer.DDP:
            note = "weights, gradients and moments stay in the type in which weights are loaded"
            answer.imply("state_precision", "bf16", note, loaded)
    answer.mark(mixed, "implied", "off")
    answer.mark(loaded, "implied", "the type in which weights are loaded")


def _objective(answer: Answer) -> None:
    name = "training.trainer_type"
    word = str(answer.get(name, "")).lower()
    if word in _OBJECTIVES:
        answer.state("task", _OBJECTIVES[word], name)
        trainer.read_pairs(answer, trainer.BATCH[0].default)
    elif word in _GENERATES:
        answer.mark(name, "not understood", "generation is not part of the estimate of a step")
    else:
        answer.mark(name, "implied", "every word of the answer is trained")


FORMAT = Format(
    kind="oumi",
    title="oumi YAML",
    detect=trainer.detector(*_DETECT),
    parse=trainer.parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("oumi"),
)
