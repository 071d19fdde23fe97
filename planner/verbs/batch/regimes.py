"""The regimes of `dpplan batch`: the batch kept, grown with the GPUs, or the best between, each
followed over GPUs with what makes it saturate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from planner.formulas import critical_batch as formulas
from planner.formulas import scaling as ratios
from planner.specs.components import COMMUNICATION, class_of
from planner.specs.document import changed
from planner.specs.documents.batch import Regime, RegimeEnd, RegimePoint, Sensitivity, Why
from planner.specs.documents.estimate import StepByWire
from planner.verbs.batch.critical import Target
from planner.verbs.batch.runs import Run
from planner.verbs.compare import scaling

REGIMES = {
    "strong": "batch kept (strong scaling)",
    "weak": "batch grown with the GPUs (weak scaling)",
    "best": "batch with the shortest time to the target, from the kept one to the grown one",
}
_COMPUTE = ("compute", "memory bandwidth", "launch")
_DAY_S = 86400.0
_SHOWN = 0.005  # factors nearer to one are left out of the sentence: a choice
_FACTOR_NAMES = {
    "tokens": "more tokens for the larger batch",
    "communication": "exposed communication",
}


def regime(
    name: str, runs: Sequence[Run], base: Target, target: Target, stop_below: float
) -> Regime:
    """A regime followed over the GPUs. base: the target that the runs were evaluated for, from
    which `target` may differ."""
    stretch = {
        run.batch: target.tokens_with(run.tokens_per_step) / base.tokens_with(run.tokens_per_step)
        for run in runs
    }
    points = _followed(
        [_point(run, stretch[run.batch], target) for run in _chosen(name, runs, stretch)]
    )
    fitting = [point for point in points if point.fits]
    if not fitting:
        return Regime(REGIMES[name], points, None, None, None, None, None, None, None)
    stop = scaling.stop_index([point.marginal_frac for point in fitting], stop_below)
    shown = fitting[-1] if stop is None else fitting[stop]
    return Regime(
        title=REGIMES[name],
        points=points,
        pays_until=fitting[-1 if stop is None else stop - 1].value,
        stops_at=None if stop is None else fitting[stop].value,
        critical_crossed_at=next((p.value for p in fitting if p.of_critical > 1), None),
        accumulation_gone_at=next((p.value for p in fitting if p.layout.grad_accum == 1), None),
        floor_days=_floor_days(fitting, target) if name == "weak" else None,
        amdahl=scaling.amdahl([(p.value, p.step_seconds) for p in fitting])
        if name == "strong"
        else None,
        why=_why(fitting[0], shown, stop is not None, stop_below),
    )


def _chosen(name: str, runs: Sequence[Run], stretch: Mapping[int, float]) -> list[Run]:
    """One run per number of GPUs, as the regime chooses it. stretch: by batch, days over the days
    of its run."""

    def days(run: Run) -> float:
        assert run.point.report is not None
        assert run.point.report.run.days is not None  # tokens are given
        return run.point.report.run.days * stretch[run.batch]

    out = []
    for gpus in dict.fromkeys(run.gpus for run in runs):
        by_batch = [run for run in runs if run.gpus == gpus]  # ascending
        fitting = [run for run in by_batch if run.point.fits]
        if name == "best" and fitting:
            out.append(min(fitting, key=days))
        else:
            out.append(by_batch[0 if name == "strong" else -1])
    return out


def _point(run: Run, stretch: float, target: Target) -> RegimePoint:
    point = RegimePoint(
        value=run.gpus,
        global_batch=run.batch,
        tokens_per_step=run.tokens_per_step,
        of_critical=run.tokens_per_step / target.critical.tokens,
        steps=run.steps * stretch,
        tokens=run.tokens * stretch,
        fits=run.point.fits,
        command=run.point.command,
    )
    figures = run.point.report
    if figures is None or not run.point.fits:
        return changed(point, why=run.point.refused or "does not fit")
    assert figures.run.days is not None  # tokens are given
    step, layout, cost = figures.step, figures.layout, figures.run.cost_usd
    seconds = _by_class(step)
    exposed, days = seconds.get(COMMUNICATION, 0.0), figures.run.days * stretch
    return changed(
        point,
        step_seconds=step.seconds,
        tokens_per_s=figures.throughput.tokens_per_s,
        days=days,
        cost_usd=None if cost is None else cost * stretch,
        goodput=figures.run.goodput,
        useful_tokens_per_s=target.least_tokens / (days * _DAY_S),
        exposed_s=exposed,
        exposed_frac=exposed / step.seconds,
        communication_ratio=_communication_ratio(step, seconds),
        bottleneck=step.bottleneck,
        gpu_seconds_per_token={
            name.replace(" ", "_"): run.gpus * taken / run.tokens_per_step
            for name, taken in seconds.items()
        },
        smallest_batch=int(formulas.global_batch(layout.micro_batch, 1, layout.dp)),
        layout=layout,
        stack=figures.stack,
    )


def _by_class(step: StepByWire) -> dict[str, float]:
    """Seconds of the step by regime."""
    seconds: dict[str, float] = {}
    for component, taken in step.components.items():
        seconds[class_of(component)] = seconds.get(class_of(component), 0.0) + taken
    return seconds


def _communication_ratio(step: StepByWire, seconds: Mapping[str, float]) -> float:
    """Communication, hidden and exposed, over computation."""
    hidden = sum(taken for name, taken in step.hidden.items() if class_of(name) == COMMUNICATION)
    compute = sum(seconds.get(name, 0.0) for name in _COMPUTE)
    return float(ratios.communication_ratio(seconds.get(COMMUNICATION, 0.0), hidden, compute))


def _followed(points: Sequence[RegimePoint]) -> list[RegimePoint]:
    """The points, with what GPUs bring of those that fit."""
    fitting = [point for point in points if point.fits]
    gained = iter(scaling.gains([(point.value, point.useful_tokens_per_s) for point in fitting]))
    return [
        changed(point, **vars(next(gained)), gpu_time_factors=gpu_time_factors(fitting[0], point))
        if point.fits
        else point
        for point in points
    ]


def gpu_time_factors(first: RegimePoint, here: RegimePoint) -> dict[str, float]:
    """GPU-time to the target over that at the first point, as factors whose product is the whole:
    one over the efficiency.

    tokens: the batch needs more of them; failures: less of the time advances the run; the others
    are parts of the step, whose GPU-seconds per token changed. Parts share the change of the step
    by the logarithmic mean, so that no order matters.
    """
    before, after = first.gpu_seconds_per_token, here.gpu_seconds_per_token
    mean = float(ratios.log_mean_s(sum(after.values()), sum(before.values())))
    parts = {
        name: math.exp((after.get(name, 0.0) - before.get(name, 0.0)) / mean)
        for name in {**before, **after}
    }
    return {"tokens": here.tokens / first.tokens, **parts, "failures": first.goodput / here.goodput}


def _floor_days(fitting: Sequence[RegimePoint], target: Target) -> float:
    """Days of the least steps, each without exposed communication; the shortest of all points,
    since more GPUs may have a faster layout."""
    free = min(point.step_seconds - point.exposed_s for point in fitting)
    return target.least_steps * free / max(point.goodput for point in fitting) / _DAY_S


def _why(first: RegimePoint, here: RegimePoint, stops: bool, stop_below: float) -> Why:
    """Factors of GPU-time to the target from the first point to this one, the largest first."""
    factors = dict(sorted(here.gpu_time_factors.items(), key=lambda item: -item[1]))
    whole = 1 / here.efficiency
    brings = (
        f"at {here.value:,} GPUs an added one brings less than"
        if stops
        else f"up to {here.value:,} GPUs an added one brings at least"
    )
    named = ", ".join(
        f"{_FACTOR_NAMES.get(name, name.replace('_', ' '))} x {factor:.2f}"
        for name, factor in factors.items()
        if abs(factor - 1) >= _SHOWN
    )
    if named and factors["tokens"] >= 1 + _SHOWN:
        named += f", at {here.of_critical:.2g} critical batches a step"
    sentence = (
        f"{brings} {100 * stop_below:g} % of one at {first.value:,}: GPU-time to the target is"
        f" {whole:.2f} times as much" + (f" ({named})" if named else "")
    )
    return Why(here.value, stops, whole, factors, next(iter(factors)), sentence)


def sensitivity(runs: Sequence[Run], base: Target, factor: float, stop_below: float) -> Sensitivity:
    """The answer at the largest number of GPUs with the critical batch scaled by factor."""
    target = base.scaled(factor)
    weak, best = (_end(regime(name, runs, base, target, stop_below)) for name in ("weak", "best"))
    return Sensitivity(factor, target.critical.tokens, weak, best)


def _end(followed: Regime) -> RegimeEnd:
    fitting = [point for point in followed.points if point.fits]
    if not fitting:
        return RegimeEnd(None, None, None, None, None, None)
    last = fitting[-1]
    return RegimeEnd(
        followed.pays_until,
        last.value,
        last.global_batch,
        last.days,
        last.cost_usd,
        last.efficiency,
    )
