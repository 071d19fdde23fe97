"""TrainingArguments of transformers, as YAML or JSON, behind a command or in Python: of run_clm.py
and of scripts like it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import adapted, dialects, sharding, trainer, trainer_script, written
from planner.formats.packed import Rows, read_rows
from planner.formats.record import Answer, Argument, Format, Value, unread

LENGTH = Argument(
    "block_size",
    "seq_len",
    meaning=trainer.whole,
    also=("max_seq_length", "model_max_length", "max_seq_len", "max_length"),
)
TABLE = (*trainer.TABLE, trainer.CHECKPOINTING, LENGTH)
_FROZEN = adapted.Frozen(doubled="use_bnb_nested_quant", default_doubled=False)
UNREAD = unread("hf_trainer")


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    sharding.read_sharding(answer)
    trainer.read_precision(answer)
    trainer.read_subspace(answer)
    trainer.read_liger(answer, "use_liger_kernel")
    trainer.read_degrees(answer)
    if "use_peft" in values:  # a Python script; one with only arguments may train adapters anyway
        adapted.read(answer, adapted.Names(), "use_peft")
        adapted.read_frozen(answer, _FROZEN)
    trainer_script.read(answer)
    read_rows(answer, Rows(packed=(), usual=""))  # a script of its own pads or joins
    trainer.mark_off(answer, UNREAD["lacks"])


def write(options: Mapping[str, Any]) -> str:
    return trainer.as_yaml(_arguments(options))


def as_json(options: Mapping[str, Any]) -> str:
    """The arguments that run_clm.py accepts; it refuses unknown names."""
    config = {name: value for name, value in _arguments(options).items() if name not in _NOT_TAKEN}
    return trainer.as_json(trainer.nested(config))


_NOT_TAKEN = ("attn_implementation",)


def _arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    config = (
        trainer.written(TABLE, options)
        | trainer.subspace_of(options)
        | trainer.types(options)
        | sharding.written(options)
    )
    config |= trainer.liger_of(options, "use_liger_kernel")
    return config


_OTHERS = re.compile(
    r"^\s*\"?(finetuning_type|cutoff_len|base_model|dist_config|distributed_type|max_length|"
    r"dataset_name|dataset_mixture|dataset_mixer|max_completion_length|max_prompt_length|use_peft|"
    r"beta|zero_optimization|tuner_type|template)\"?\s*:",
    re.MULTILINE,
)
_is_trainer = trainer.has_key("per_device_train_batch_size", "per_gpu_train_batch_size")


FORMAT = Format(
    kind="hf-trainer",
    title="Hugging Face TrainingArguments (YAML, JSON, commands, Python)",
    detect=lambda name, text: (
        (_is_trainer(name, text) and not _OTHERS.search(text))
        or trainer_script.is_of(trainer_script.HF, name, text)
    ),
    parse=trainer_script.parse,
    table=TABLE,
    read_more=read_more,
    added=dialects.added,
    left=dialects.irrelevant,
    **UNREAD,
)

TARGET = written.target(
    "hf-trainer",
    "Hugging Face TrainingArguments",
    as_json,
    "run_clm.py {}",
    file="train.json",
    checkout="transformers/examples/pytorch/language-modeling",
)
