"""Defaults of fine-tuning, the same for every verb: the length, batch and stacks of a person who
trains a published model further."""

from __future__ import annotations

import math

from planner.specs.options import Options
from planner.specs.task import TASKS

# how transformers' Trainer runs, with which most people fine-tune: the plainest first
TRAINERS = ("hf-trainer", "hf-fsdp", "hf-deepspeed")
ALONE = ("unsloth", "torchtune")  # that people take on one GPU where the Trainer does not fit
PERSONAL = (*TRAINERS, *ALONE)
USUAL_SEQUENCE = 2048  # a choice: what fits most chat data, and most recipes take
USUAL_BATCH = 16  # sequences per step: a choice, as in most published recipes for one node
LENGTH_SOURCE = "a usual length of chat data"
STACK_SOURCE = "as most who fine-tune run"
BATCH_SOURCE = "as recipes of fine-tuning have it"
# options that only a model whose weights are there already is trained with
_SIGNS = ("lora", "base_precision", "trainable_layers", "lisa", "task")


def is_fine_tuning(options: Options) -> bool:
    """Whether a request trains adapters, beside a quantised base, some of the layers, or with a
    loss of preferences, rewards or a teacher."""
    return any(getattr(options, name) is not None for name in _SIGNS)


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
