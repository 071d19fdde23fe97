"""Defaults that decide an answer by more than its band, with the answer the other way."""

from __future__ import annotations

from collections.abc import Sequence

from planner.error import PlanError
from planner.inputs.batch import largest_published
from planner.inputs.cluster import every_price
from planner.inputs.scenario import resolve
from planner.report import layout as report
from planner.search.answer import answer_of
from planner.specs.documents.advice import Advice
from planner.specs.documents.estimate import Figures, Report
from planner.specs.options import Options
from planner.units import in_unit, show

_WORTH = 0.1  # gain of a batch twice the default from which a much larger one is evaluated
_LARGER = 16  # times the default, at most the largest published one


def both_ways(options: Options, report: Report, advice: Sequence[Advice]) -> list[str]:
    """Sentences, each with the answer by a default and by another value of it."""
    sentences = (_batch(options, report, advice), _precision(options, report, advice))
    return [sentence for sentence in (*sentences, _price(options, report)) if sentence is not None]


def _beyond(report: Report, ratio: float) -> bool:
    """Whether an answer so many times this one lies outside of its band."""
    step = report.step
    return not step.low / step.seconds <= ratio <= step.high / step.seconds


def _batch(options: Options, report: Report, advice: Sequence[Advice]) -> str | None:
    """A default batch on so many GPUs that it limits."""
    if options.global_batch is not None or options.grad_accum is not None:
        return None
    doubled = [item for item in advice if set(item.changes) == {"global_batch"}]
    if not any(item.tokens_change_frac >= _WORTH for item in doubled):
        return None
    default, length = report.layout.global_batch, report.training.seq_len
    most = largest_published()[1] // (default * length)
    times = min(_LARGER, 1 << most.bit_length() >> 1)  # a power of two
    other = _answer(_with_batch(options, report, default * times)) if times > 1 else None
    if other is None:
        return None
    gain = other.throughput.tokens_per_s / report.throughput.tokens_per_s
    if not _beyond(report, 1 / gain):
        return None
    stack = f" --stack {report.stack.id}" if options.stack is None else ""
    return (
        f"the default batch decides: {default:,} sequences ({show(default * length, 'count')}"
        f" tokens) per step are {_whole(report)}, and --global-batch {default * times}{stack}"
        f" ({show(default * times * length, 'count')} tokens) {_whole(other)}"
    )


def _with_batch(options: Options, report: Report, batch: int) -> Options:
    """The request with another batch on the stack of the answer: a search of all stacks takes
    several times as long, and seldom changes the stack."""
    return options.changed(global_batch=batch, stack=report.stack.id)


def _precision(options: Options, report: Report, advice: Sequence[Advice]) -> str | None:
    """The default precision, and the fastest other one."""
    if options.precision is not None:
        return None
    others = [item for item in advice if set(item.changes) == {"precision"} and item.fits]
    best = max(others, key=lambda item: item.tokens_change_frac, default=None)
    if best is None or not _beyond(report, 1 / (1 + best.tokens_change_frac)):
        return None
    return (
        f"the default precision decides: {report.training.precision} takes"
        f" {show(report.step.seconds, 's')} per step, and --precision {best.changes['precision']}"
        f" {show(best.step_seconds, 's')}"
    )


def _price(options: Options, report: Report) -> str | None:
    """The default kind of price, and all others."""
    cost, usd = report.run.cost_usd, report.cluster.usd_per_gpu_hour
    if cost is None or not usd or options.market is not None:
        return None
    prices = [in_unit(float(price), "USD/h") for price in every_price(options)]
    low, high = min(prices) / usd, max(prices) / usd
    if not (_beyond(report, low) or _beyond(report, high)):
        return None
    return (
        f"the kind of price decides: {show(cost, 'USD')} at {report.cluster.price_market},"
        f" {show(cost * low, 'USD')} to {show(cost * high, 'USD')} over all kinds (--market)"
    )


def _answer(options: Options) -> Figures | None:
    """Figures of the best layout of a request, as its own command finds it; None: none fits."""
    try:
        answer = answer_of(resolve(options))
    except PlanError:
        return None
    if answer is None or not answer.fits:
        return None
    return report.figures(report.evaluate_row(answer.chosen, answer.row))


def _whole(report: Report | Figures) -> str:
    """Outcome of an answer: days and cost, or the rate without tokens of the whole run."""
    if report.run.days is None:
        return f"{show(report.throughput.tokens_per_s, '')} tokens/s"
    cost = "" if report.run.cost_usd is None else f" and {show(report.run.cost_usd, 'USD')}"
    return f"{show(report.run.days, 'days')}{cost}"
