"""LitGPT's YAML: pretraining, and fine-tuning of all weights or of adapters.

Names and defaults: litgpt/args.py, pretrain.py and finetune/{full,lora}.py of
Lightning-AI/litgpt@26857050.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import trainer
from planner.formats.packed import Rows, read_rows
from planner.formats.record import STEPS, Answer, Argument, Format, Value, unread

STACK = "litgpt"
_DETECT = (
    re.compile(r"(?m)^(?:out_dir|checkpoint_dir|model_name)[ \t]*:"),
    re.compile(r"(?m)^train[ \t]*:"),
    re.compile(r"(?m)^[ \t]+(?:lr_warmup_steps|max_norm|save_interval|lr_warmup_fraction)[ \t]*:"),
    re.compile(r"(?m)^[ \t]+micro_batch_size[ \t]*:"),
)
_PRECISIONS = {
    "bf16-true": "bf16",
    "bf16-mixed": "bf16",
    "16-true": "fp16",
    "16-mixed": "fp16",
    "32-true": "fp32",
    "null": None,
    None: None,
}
_QUANTISED = {
    "bnb.nf4": "nf4",
    "bnb.nf4-dq": "nf4-double",
    "bnb.fp4": "fp4",
    "bnb.fp4-dq": "fp4-double",
    "bnb.int8-training": "int8",
}
_MATRICES = {
    "lora_query": ("q_proj",),
    "lora_key": ("k_proj",),
    "lora_value": ("v_proj",),
    "lora_projection": ("o_proj",),
    "lora_mlp": ("gate_proj", "up_proj", "down_proj"),
}
_ON = ("lora_query", "lora_value")  # where they are left out


def _model(value: Any) -> str | None:
    """The Hub's name of a folder below checkpoints/. Raises ValueError."""
    return trainer.model_name(str(value).removeprefix("checkpoints/"))


def _optimizer(value: Any) -> str:
    return trainer.optimizer(str(value).rpartition(".")[2].lower())


_TABLE = (
    Argument("checkpoint_dir", "model", meaning=_model, also=("model_name",)),
    Argument("precision", "precision", words=_PRECISIONS),
    Argument("train.global_batch_size", "global_batch", meaning=trainer.whole),
    Argument("train.micro_batch_size", "micro_batch", meaning=trainer.whole),
    Argument("train.max_seq_length", "seq_len", meaning=trainer.whole),
    Argument("train.max_steps", STEPS, meaning=trainer.steps),
    Argument("train.max_tokens", "tokens", meaning=trainer.whole),
    Argument("optimizer", "optimizer", meaning=_optimizer, also=("optimizer.class_path",)),
    Argument("lora_r", "lora", meaning=trainer.whole),
    Argument("lora_dropout", "lora_dropout", meaning=lambda share: float(share) or None),
)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    adapted = "lora_r" in values
    pretrains = "checkpoint_dir" not in values and "model_name" in values
    _gpus(answer)
    several = answer.option("gpus") != 1
    answer.imply("stack", STACK, "a file of LitGPT")
    if not several:
        answer.imply("zero", 0, "one device: no FSDP")
        answer.imply("recompute", "none", "one device: blocks are checkpointed only with FSDP")
    else:
        answer.imply("zero", 3, "several devices: FSDP")
        kept = "none" if pretrains else "full"
        answer.imply("recompute", kept, "activation_checkpointing_policy of the program")
    if answer.get("precision") in ("bf16-true", "16-true"):
        answer.imply("state_precision", "bf16", "weights and moments are in it", "precision")
    kept_in = str(answer.get("quantize"))
    if kept_in in _QUANTISED:
        answer.state("base_precision", _QUANTISED[kept_in], "quantize")
    answer.mark("quantize", "implied", "off")
    if adapted:
        _targets(values, answer)
    if not pretrains:
        read_rows(answer, Rows(packed=(), grouped=()))
    trainer.read_degrees(answer)
    trainer.mark_empty(answer)


def _gpus(answer: Answer) -> None:
    devices, nodes = answer.get("devices", 1), answer.get("num_nodes", 1)
    if isinstance(devices, int) and isinstance(nodes, int) and devices > 0:
        answer.imply("gpus", devices * nodes, "devices x nodes", "devices", "num_nodes")
    else:
        answer.mark("devices", "not understood", "all that there are: --gpus says how many")


def _targets(values: Mapping[str, Value], answer: Answer) -> None:
    """The matrices that have adapters, each behind a switch."""
    words: list[str] = []
    for name, matrices in _MATRICES.items():
        if trainer.is_on(answer, name, name in _ON):
            words += matrices
        answer.mark(name, "read")
    if words:
        named = next((name for name in _MATRICES if name in values), "lora_r")
        answer.imply("lora_targets", "+".join(words), "switches of the matrices", named)
    if trainer.is_on(answer, "lora_head"):
        answer.mark("lora_head", "not understood", "adapters of the head are not counted")
    answer.mark("lora_head", "implied", "off")


FORMAT = Format(
    kind="litgpt",
    title="LitGPT YAML",
    detect=trainer.detector(*_DETECT),
    parse=trainer.parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("litgpt"),
)
