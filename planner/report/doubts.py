"""Implausible values of an answer, with the option that is the likely cause.

The limits are choices: some times beyond the largest that is published (54 days of pre-training on
16,384 GPUs: Llama 3, arXiv 2407.21783), so that an answer beyond them is rather a unit or a number
that was typed wrong than a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.evidence.utilisation import highest
from planner.specs.documents.estimate import Figures, Report
from planner.specs.documents.run import Run
from planner.units import show

_DAY_S = 86400.0
_LONGEST_STEP_S = _DAY_S
_LONGEST_RUN_DAYS = 3652.5  # ten years: hardware is written off in four
_DEAREST_USD = 1e11
_MOST_GPUS = 500_000
_LEAST_GOODPUT = 0.1
_MOST_CHECKPOINTING = 0.25  # of the work between two; the best interval stops for far less
_HOUR_S = 3600.0
_LONGEST_WRITE_S = 4 * _HOUR_S  # longer than most published jobs run between two failures


@dataclass(frozen=True)
class Answered:
    """The values of an answer that are checked."""

    gpu: str  # profile id
    gpus: int
    step_tokens: float
    step_s: float
    mfu: float
    run: Run


def answered_of(answer: Report | Figures) -> Answered:
    """Subject of a check of an answer."""
    if isinstance(answer, Report):
        tokens = float(answer.layout.global_batch * answer.training.seq_len)
    else:
        tokens = answer.tokens_per_step
    seconds, mfu = answer.step.seconds, answer.throughput.mfu
    return Answered(answer.cluster.gpu, answer.cluster.gpus, tokens, seconds, mfu, answer.run)


@dataclass(frozen=True)
class Limit:
    """A figure that is believed up to a limit, or from one on."""

    value: Callable[[Answered], float | None]
    believed: Callable[[float], bool]
    says: Callable[[float], str]


_LIMITS = (
    Limit(
        lambda a: a.step_s,
        lambda s: s <= _LONGEST_STEP_S,
        lambda s: (
            f"a step of {show(s / _DAY_S, 'days')} is implausible: look at --global-batch, --gpus"
            " and the bandwidths"
        ),
    ),
    Limit(
        lambda a: a.run.days,
        lambda days: days <= _LONGEST_RUN_DAYS,
        lambda days: (
            f"a run of {show(days / 365.25, 'count')} years is implausible: look at --tokens,"
            " --gpus and --mtbf"
        ),
    ),
    Limit(
        lambda a: a.run.cost_usd,
        lambda usd: usd <= _DEAREST_USD,
        lambda usd: (
            f"a run for {show(usd, 'USD')} is implausible: look at --tokens, --price and --gpus"
        ),
    ),
    Limit(
        lambda a: float(a.gpus),
        lambda gpus: gpus <= _MOST_GPUS,
        lambda gpus: f"no job of {gpus:,.0f} GPUs is known: look at --gpus",
    ),
    Limit(
        lambda a: a.run.goodput,
        lambda share: share >= _LEAST_GOODPUT,
        lambda share: (
            f"only {100 * share:.2g} % of the time advances training: look at --mtbf, --restart,"
            " --storage and --gpus"
        ),
    ),
    Limit(
        lambda a: a.run.reliability.checkpoint_stop_s / a.run.reliability.interval_s,
        lambda share: share <= _MOST_CHECKPOINTING,
        lambda share: (
            f"writing checkpoints stops training for {share:.2g} times as long as it runs in"
            " between: look at --checkpoint-interval and --storage, or leave the interval out"
        ),
    ),
    Limit(
        lambda a: a.run.reliability.checkpoint_write_s,
        lambda s: s <= _LONGEST_WRITE_S,
        lambda s: f"a checkpoint takes {show(s / _HOUR_S, 'h')} to be written: look at --storage",
    ),
    Limit(
        lambda a: None if a.run.tokens is None else a.run.tokens / a.step_tokens,
        lambda steps: steps >= 1,
        lambda steps: (
            f"the run is {100 * steps:.2g} % of one step: look at --tokens (15T is 15,000 billion)"
        ),
    ),
)


_MFU_BEYOND = 1.15  # times the highest MFU of the card


def _utilisation(answered: Answered) -> list[str]:
    """An MFU beyond what anybody has measured on the card."""
    best = highest(answered.gpu)
    if answered.mfu <= _MFU_BEYOND * best.mfu:
        return []
    return [
        f"an MFU of {answered.mfu:.0%} is beyond the highest of {best.runs} validated runs on"
        f" {best.where}, {best.mfu:.0%} ({best.run_id}): look at --clock, --calibration and the"
        " profile of the GPU"
    ]


def doubts(answered: Answered) -> list[str]:
    """Sentences about implausible values of a step and a run; empty for an ordinary answer."""
    values = ((limit, limit.value(answered)) for limit in _LIMITS)
    sentences = [
        limit.says(value)
        for limit, value in values
        if value is not None and not limit.believed(value)
    ]
    return sentences + _utilisation(answered)
