"""AReaL's YAML: supervised fine-tuning, models of rewards, and of reinforcement learning the actor.

Names and defaults: areal/api/cli_args.py and areal/api/alloc_mode.py of inclusionAI/AReaL@4aef98d8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from planner.formats import trainer
from planner.formats.record import Answer, Argument, Format, Value, unread

_DETECT = (
    re.compile(r"(?m)^(?:actor|rw|model)[ \t]*:"),
    re.compile(r"(?m)^(?:experiment_name|allocation_mode)[ \t]*:"),
    re.compile(r"(?m)^[ \t]+(?:mb_spec|max_tokens_per_mb)[ \t]*:"),
)
_MODELS = ("actor.", "rw.", "model.")
_BACKEND = re.compile(r"(fsdp|megatron|archon):((?:[a-z]\d{1,6})+)")
_SIZE = re.compile(r"([a-z])(\d+)")
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_LETTERS = {"t": "tp", "p": "pp", "c": "cp", "e": "ep"}
_OPTIMIZERS = {"adam": "adam", "adamw": "adam", "sgd": "sgd", "adam_bf16": "adam"}
_STACKS = {"fsdp": "hf-fsdp", "megatron": "megatron-core", "archon": "torchtitan"}
_RANK = 32  # lora_rank, where it is left out
_TABLE = (
    Argument("path", "model", meaning=trainer.model_name),
    Argument("dtype", "precision", words=_TYPES, default="bfloat16"),
    Argument("optimizer.type", "optimizer", words=_OPTIMIZERS, default="adam"),
    Argument("train_dataset.batch_size", "global_batch", meaning=trainer.whole),
)


def _parse(text: str) -> Mapping[str, Value]:
    """The trained model's arguments without its name before them, the others by their path."""
    values = trainer.resolved(trainer.parse(text))
    before = next((word for word in _MODELS if any(path.startswith(word) for path in values)), "")
    return {path.removeprefix(before): value for path, value in values.items()}


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    _backend(answer)
    kept = "gradient_checkpointing"
    on = trainer.is_on(answer, kept)
    answer.imply("recompute", "full" if on else "none", "off by default", kept)
    if trainer.is_on(answer, "use_lora"):
        answer.mark("use_lora", "read")
        rank = answer.get("lora_rank", _RANK)
        answer.imply("lora", rank, "rank of the adapters", "lora_rank")
        answer.imply("lora_targets", "all-linear", "all matrices", "target_modules")
    for name in ("use_lora", "lora_rank", "lora_alpha", "target_modules", "peft_type"):
        answer.mark(name, "implied", "adapters are off")
    samples = answer.get("gconfig.n_samples", 1)
    steps = answer.get("ppo_n_minibatches", 1)
    batch = answer.option("global_batch")
    generates = any(name.startswith("gconfig.") for name in values)
    if generates and batch and isinstance(samples, int) and isinstance(steps, int) and steps:
        answer.drop("global_batch")
        names = ("train_dataset.batch_size", "gconfig.n_samples", "ppo_n_minibatches")
        answer.imply("global_batch", batch * samples // steps, "prompts x answers", *names)
    answer.mark("mb_spec.max_tokens_per_mb", "not understood", "tokens at once: --micro-batch")
    answer.mark("mb_spec.n_mbs", "not understood", "parts of a batch: --micro-batch")
    if answer.get("archon.fp8_config.mode") not in (None, "disabled"):
        answer.drop("precision")
        answer.state("precision", "fp8", "archon.fp8_config.mode")
    trainer.mark_empty(answer)


def _backend(answer: Answer) -> None:
    """Degrees of the trained model, such as megatron:d4p1t1, also inside of `allocation_mode`."""
    name = "backend" if answer.get("backend") else "allocation_mode"
    backends = _BACKEND.findall(str(answer.get(name, "")))
    if not backends:
        answer.mark(name, "not understood", "degrees that are not plain: --tp, --pp, --cp")
        return
    kind, text = backends[-1]
    sizes: dict[str, Any] = {letter: int(size) for letter, size in _SIZE.findall(text)}
    gpus = math.prod(sizes.get(letter, 1) for letter in "dtpc")
    answer.state("gpus", gpus, name, "the product of its degrees")
    for letter, option in _LETTERS.items():
        if option != "ep" or letter in sizes:
            answer.state(option, sizes.get(letter, 1), name)
    answer.imply("stack", _STACKS[kind], f"its engine {kind}", name)
    answer.imply("zero", 1 if kind == "megatron" else 3, f"its engine {kind}", name)


FORMAT = Format(
    kind="areal",
    title="AReaL YAML",
    detect=trainer.detector(*_DETECT),
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("areal"),
)
