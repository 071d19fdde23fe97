"""Requirements of each batch of `dpplan batch`: steps and tokens to the target, learning rate and
warm-up."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.formulas import critical_batch as formulas
from planner.specs.documents.batch import BatchNeeds, LearningRate, Rates
from planner.specs.options.numbers import number
from planner.specs.options.own import BatchOptions
from planner.verbs.batch.critical import Target
from planner.verbs.batch.runs import Question, Run


def learning_rate(own: BatchOptions, optimizer: str) -> LearningRate:
    """The learning rate of the reference batch, and the scaling rule of this optimizer."""
    rule, source = (
        ("linear", "Goyal et al. 2017, arXiv 1706.02677: SGD")
        if optimizer.startswith("sgd")
        else ("root", "Malladi et al. 2022, arXiv 2205.10287: Adam, RMSprop")
    )
    return LearningRate(own.learning_rate, rule, source, number(own, "warmup"))


def needs_of_batches(
    question: Question, runs: Sequence[Run], reference: LearningRate
) -> list[BatchNeeds]:
    """Each batch once, ascending; learning rates by the rules, from 1 where none is given."""
    by_batch = {run.batch: run for run in runs}
    return [
        _needs(by_batch[batch], question.seq_len, question.target, reference)
        for batch in sorted(by_batch)
    ]


def _needs(run: Run, seq_len: int, target: Target, reference: LearningRate) -> BatchNeeds:
    tokens, warmup = float(run.batch * seq_len), reference.warmup_tokens
    scaled = (reference.reference or 1.0, tokens, target.reference_tokens)
    return BatchNeeds(
        global_batch=run.batch,
        tokens_per_step=tokens,
        of_critical=tokens / target.critical.tokens,
        steps=run.steps,
        tokens=run.tokens,
        tokens_factor=run.tokens / target.tokens,
        least_tokens_factor=run.tokens / target.least_tokens,
        least_steps_factor=run.steps / target.least_steps,
        rates=Rates(
            linear=float(formulas.linear_rate(*scaled)),
            root=float(formulas.root_rate(*scaled)),
            saturating=float(formulas.saturating_rate(*scaled, target.critical.tokens)),
        ),
        warmup_steps=None if warmup is None else math.ceil(warmup / tokens),
        warmup_frac=None if warmup is None else warmup / run.tokens,
    )
