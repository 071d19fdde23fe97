"""A method on one card as a row of the answer of `dpplan tune`."""

from __future__ import annotations

from planner.inputs.fine_tuning import each_of
from planner.specs.documents.estimate import Figures
from planner.specs.documents.tune import FittingModel, TuneMethod
from planner.specs.options.recommend import Limits
from planner.units import show
from planner.verbs.recommend.limits import DAY_S, Spread, chance
from planner.verbs.requests import Point
from planner.verbs.tune import sizes
from planner.verbs.tune.card import Attempt
from planner.verbs.tune.data import Data


def row_of(
    attempt: Attempt,
    point: Point,
    context: sizes.Rung | None,
    micro: sizes.Rung | None,
    models: tuple[FittingModel, ...],
    limits: Limits,
) -> TuneMethod:
    """The row of a method whose run is `point`."""
    method, data, figures = attempt.method, attempt.data, point.report
    step, run = (None, None) if figures is None else (figures.step, figures.run)
    low, high = (1.0, 1.0) if run is None else (run.low, run.high)
    run_s, before, cost = run_of(data, figures)
    days, dollars = (
        None if value is None else Spread(value, value * low, value * high)
        for value in (None if run_s is None else run_s / DAY_S, cost)
    )
    each = each_of(point.options)
    return TuneMethod(
        name=method.name,
        title=method.title,
        options=method.pairs,
        fits=point.fits,
        why=_why(point),
        memory=None if figures is None else figures.memory,
        stack=None if figures is None else figures.stack,
        layout=None if figures is None else figures.layout,
        useful_frac=None if run is None else data.useful_tokens * data.epochs / (run.tokens or 1.0),
        step_seconds=None if step is None else step.seconds,
        step_low=None if step is None else step.low,
        step_high=None if step is None else step.high,
        before_s=before,
        run_s=run_s,
        run_low_s=None if run_s is None else run_s * low,
        run_high_s=None if run_s is None else run_s * high,
        cost_usd=cost,
        cost_low_usd=None if cost is None else cost * low,
        cost_high_usd=None if cost is None else cost * high,
        chance=chance(days, dollars, limits) if point.fits else None,
        largest_micro_batch=None if micro is None else micro.size * each,
        even_micro_batch=None if micro is None else micro.larger[0].size * each,
        most_micro_batch=None if micro is None else micro.larger[1].size * each,
        micro_batch_command=None if micro is None else micro.point.command,
        longest_context=None if context is None else context.size,
        even_context=None if context is None else context.larger[0].size,
        most_context=None if context is None else context.larger[1].size,
        context_command=None if context is None else context.point.command,
        largest_model=models[0] if models else None,
        even_model=models[1] if models else None,
        most_model=models[2] if models else None,
        merge=None if figures is None else figures.merge,
        command=point.command,
        pick=point.pick,
    )


def run_of(data: Data, figures: Figures | None) -> tuple[float | None, float | None, float | None]:
    """Seconds of a run including passes over its examples before it, the seconds of these passes,
    and the cost."""
    if figures is None or figures.run.days is None:
        return None, None, None
    steps = data.sequences / figures.layout.global_batch
    run_s, before = figures.run.days * DAY_S, figures.step.before_seconds * steps
    cost = figures.run.cost_usd
    more = 1 + before / run_s
    return run_s + before, before, None if cost is None else cost * more


def _why(point: Point) -> str | None:
    """Why a method does not fit, None where it does."""
    if point.report is None:
        return point.refused
    if point.fits:
        return None
    memory = point.report.memory
    if memory.headroom_bytes < 0:
        short = show(-memory.headroom_bytes, "B")
        return f"{short} short of GPU memory with --stack {point.report.stack}"
    return "host memory does not suffice"
