"""NeMo AutoModel's YAML of pretraining and fine-tuning.

Names and defaults: nemo_automodel/components/distributed/config.py, components/_peft/lora.py and
recipes of NVIDIA-NeMo/Automodel@36044ad3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import adapted, trainer
from planner.formats.record import STEPS, Answer, Argument, Format, Value, unread

STACK = "automodel"
_DETECT = (
    re.compile(r"(?m)^step_scheduler[ \t]*:"),
    re.compile(r"(?m)^model[ \t]*:"),
    re.compile(r"nemo_automodel|(?m:^recipe[ \t]*:)"),
)
_TYPES = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "fp32": "fp32"}
_ALSO = ("model.config.pretrained_model_name_or_path",)
_DEGREES = ("tp", "cp", "pp", "ep")
_KEPT = "distributed.activation_checkpointing"
_ADAPTED = adapted.Names(
    rank="peft.dim",
    targets=("peft.target_modules",),
    dropout="peft.dropout",
    scaled="",
    parted="peft.use_dora",
    saved="",
    default_rank=8,
    default_targets="all-linear",
)


def _optimizer(value: Any) -> str:
    """Our optimizer by the last word of a class. Raises ValueError."""
    name = str(value).rpartition(".")[2].lower()
    return trainer.optimizer({"fusedadam": "adamw", "adam": "adamw"}.get(name, name))


_TABLE = (
    Argument("step_scheduler.global_batch_size", "global_batch", meaning=trainer.whole),
    Argument("step_scheduler.local_batch_size", "micro_batch", meaning=trainer.whole),
    Argument("step_scheduler.max_steps", STEPS, meaning=trainer.steps),
    Argument(
        "model.pretrained_model_name_or_path", "model", meaning=trainer.model_name, also=_ALSO
    ),
    Argument("optimizer._target_", "optimizer", meaning=_optimizer),
    Argument("packed_sequence.packed_sequence_size", "seq_len", meaning=trainer.steps),
)


def _parse(text: str) -> Mapping[str, Value]:
    return trainer.resolved(trainer.parse(text))


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    strategy = str(answer.get("distributed.strategy", "fsdp2"))
    answer.imply("stack", STACK, "a file of NeMo AutoModel")
    zero = {"fsdp2": 3, "ddp": 0}.get(strategy)
    if zero is None:
        answer.mark("distributed.strategy", "not understood", f"{strategy} has no stack here")
    answer.imply("zero", zero, "fsdp2 by default", "distributed.strategy")
    for option in _DEGREES:
        name = f"distributed.{option}_size"
        size = answer.get(name, 1)
        if isinstance(size, int) and (size > 1 or option != "ep"):
            answer.imply(option, size, "1 where it is not given", name)
        answer.mark(name, "implied", "none")
    shared = "distributed.sequence_parallel"
    if (answer.option("tp") or 1) > 1:
        answer.imply("sequence_parallel", trainer.is_on(answer, shared), "off by default", shared)
    answer.mark(shared, "irrelevant", "no tensor parallelism")
    kept = answer.get(_KEPT, False)
    if isinstance(kept, bool):
        answer.imply("recompute", "full" if kept else "none", "off by default", _KEPT)
    else:
        answer.mark(_KEPT, "not understood", f"{kept} is not modelled: --recompute")
    word = _TYPES.get(str(answer.get("model.torch_dtype", "bf16")).rpartition(".")[2])
    answer.imply("precision", word, "the type in which weights are loaded", "model.torch_dtype")
    if any(name.startswith("peft.") for name in values):
        adapter = "peft._target_"
        answer.values = {**answer.values, adapter: Value("lora")}
        adapted.read(answer, _ADAPTED, adapter)
    frozen = "quantization.load_in_4bit"
    if trainer.is_on(answer, frozen):
        answer.state("base_precision", "nf4", frozen)
    if answer.get("packed_sequence.packed_sequence_size"):
        answer.imply("packing", "packed", "documents are joined to full rows")
    trainer.mark_empty(answer)


FORMAT = Format(
    kind="automodel",
    title="NeMo AutoModel YAML",
    detect=trainer.detector(*_DETECT),
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("automodel"),
)
