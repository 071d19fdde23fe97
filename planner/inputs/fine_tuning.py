"""Defaults of fine-tuning, the same for every verb: the length, batch and stacks of a person who
trains a published model further."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Sequence

from planner.specs.options import Options, flag, rows
from planner.specs.options.line import command_line
from planner.specs.options.tune import RANK
from planner.specs.task import TASKS

# programs of a person who fine-tunes, the plainest way of each first: TRL as pip installs it; other
# losses and objectives by its trainers that leave the loss to transformers
PROGRAMS = {
    "TRL": ("trl", "trl-fsdp", "trl-deepspeed"),
    "TRL's earlier and experimental trainers": ("trl-0.25", "hf-fsdp", "hf-deepspeed"),
}
TRAINERS = tuple(itertools.chain(*PROGRAMS.values()))
ALONE = ("unsloth", "torchtune")  # that people take on one GPU where the Trainer does not fit
PERSONAL = (*TRAINERS, *ALONE)
# programs whose answers stand beside it, on one GPU and on several: transformers' Trainer with
# PEFT's preparation, LLaMA-Factory for those that keep logits and cast nothing, and others
BESIDE_ALONE = ("hf-trainer", "llama-factory-ddp", *ALONE)
BESIDE = ("hf-trainer", "hf-fsdp", "hf-deepspeed", "torchtune")
USUAL_SEQUENCE = 2048  # a choice: what fits most chat data, and most recipes take
USUAL_BATCH = 16  # sequences per step: a choice, as in most published recipes for one node
LENGTH_SOURCE = "a usual length of chat data"
STACK_SOURCE = "what one person who fine-tunes starts with"
MOST_GPUS = 8  # of a question that names no number: a node, as most fine-tune on
BATCH_SOURCE = "as recipes of fine-tuning have it"
# method of adapters, by the base that they are beside
_OF_BASE: dict[str | None, str] = {
    **{None: "lora", "fp32": "lora", "int8": "lora-int8"},
    **dict.fromkeys(("nf4", "nf4-double"), "qlora"),
}
# options that only a model whose weights are there already is trained with
FINE_TUNES = ("lora", "base_precision", "trainable_layers", "lisa", "task")


def is_fine_tuning(options: Options) -> bool:
    """Whether a request trains adapters, beside a quantised base, some of the layers, or with a
    loss of preferences, rewards or a teacher."""
    return any(getattr(options, name) is not None for name in FINE_TUNES)


def each_of(options: Options) -> int:
    """Sequences of an example: pairs have two."""
    return TASKS[options.task or "sft"].sequences


def replicas(options: Options) -> int:
    """Most replicas that the GPUs hold: as many as the degrees that are given leave."""
    inside = math.prod((options.tp or 1, options.pp or 1, options.cp or 1))
    return options.dp or max(1, options.gpus // inside)


def usual_batch(options: Options) -> int:
    """Sequences of a step: USUAL_BATCH, rounded up to what all replicas take at a time."""
    each = replicas(options) * math.lcm(options.micro_batch or 1, each_of(options))
    return math.ceil(USUAL_BATCH / each) * each


def tune_command(base: Options, gpus: Sequence[str], most: int) -> str:
    """The command of `dpplan tune` with what a request states, its adapters as a method, over these
    kinds of GPUs and up to this many of each."""
    table = rows(Options)
    taken = {name: value for name, value in base.given().items() if "tune" in table[name].verbs}
    words = [command_line(Options(**taken), "tune")]
    words += [f"{flag('gpu')} {shlex.quote(name)}" for name in gpus]
    words += [f"{flag('max_gpus')} {most}"]
    words += [] if (method := _method(base)) is None else [f"{flag('method')} {method}"]
    words += [] if base.lora in (None, RANK) else [f"{flag('rank')} {base.lora}"]
    return " ".join(words)


def _method(base: Options) -> str | None:
    """The method of fine-tuning that a request states, None where it leaves it open or states a
    base that no method has."""
    return None if base.lora is None else _OF_BASE.get(base.base_precision)
