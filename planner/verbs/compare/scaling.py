"""How far a request scales: efficiency over GPUs, the point where more GPUs stop paying, and what
of a step shrinks with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from planner.formulas import scaling as formulas
from planner.specs.documents.compare import Amdahl, AmdahlPoint, Curve, CurvePoint, Part, Parts
from planner.specs.documents.estimate import Figures
from planner.verbs.requests import Point

FEWEST_FITTED = 3  # points of a fit with two unknowns that leave a residual


@dataclass(frozen=True)
class Gain:
    """Gain from the GPUs of one count, against the first count.

    speed_up: work per second over the first count's. efficiency: the same per GPU. marginal_frac:
    the gain of each GPU added since the previous count, over the work per GPU at the first count;
    None at the first.
    """

    speed_up: float
    efficiency: float
    marginal_frac: float | None


def gains(rates: Sequence[tuple[float, float]]) -> list[Gain]:
    """The gain of every (GPUs, work per second), ascending in GPUs; any unit of work."""
    if not rates:
        return []
    first_gpus, first_rate = rates[0]
    out = [Gain(1.0, 1.0, None)]
    for (before_gpus, before_rate), (gpus, rate) in pairwise(rates):
        out.append(
            Gain(
                rate / first_rate,
                float(formulas.efficiency(rate, gpus, first_rate, first_gpus)),
                float(
                    formulas.marginal_frac(
                        rate, gpus, before_rate, before_gpus, first_rate, first_gpus
                    )
                ),
            )
        )
    return out


def stop_index(marginal: Sequence[float | None], stop_below: float) -> int | None:
    """Index of the first count where an added GPU brings less than `stop_below` of one at the first
    count; None: each brings as much. marginal: `Gain.marginal_frac` of every count."""
    below = (i for i, frac in enumerate(marginal) if frac is not None and frac < stop_below)
    return next(below, None)


def curve(
    axis: str,
    unit: str,
    label: str,
    rows: Sequence[tuple[float, Point]],
    scaling: str,
    stop_below: float,
) -> Curve:
    """One line of a sweep.

    rows: (value on the axis, answer), ascending; what does not fit or was refused stays in `points`
    without figures.
    """
    fitting = [
        (value, point.report) for value, point in rows if point.report is not None and point.fits
    ]
    gpus_swept = axis == "gpus" and bool(fitting)
    rates = [(value, figures.throughput.tokens_per_s) for value, figures in fitting]
    gained = gains(rates) if gpus_swept else []
    stop = stop_index([gain.marginal_frac for gain in gained], stop_below)
    followed = iter(gained)
    return Curve(
        label=label,
        axis=axis,
        unit=unit,
        points=[
            _point(value, point, next(followed, None) if point.fits else None)
            for value, point in rows
        ],
        amdahl=amdahl([(value, figures.step.seconds) for value, figures in fitting])
        if gpus_swept and scaling == "strong"
        else None,
        parts=parts(fitting[0], fitting[-1], scaling) if gpus_swept and len(fitting) > 1 else None,
        pays_until=fitting[-1 if stop is None else stop - 1][0] if gpus_swept else None,
        stops_at=None if stop is None else fitting[stop][0],
        best=max(fitting, key=lambda row: row[1].throughput.tokens_per_s_per_gpu)[0]
        if fitting
        else None,
    )


def _point(value: float, point: Point, gain: Gain | None) -> CurvePoint:
    if point.report is None or not point.fits:
        return CurvePoint(value=value, fits=False, why=point.refused or "does not fit")
    throughput, step, run = point.report.throughput, point.report.step, point.report.run
    return CurvePoint(
        value=value,
        fits=True,
        step_seconds=step.seconds,
        tokens_per_s=throughput.tokens_per_s,
        tokens_per_s_per_gpu=throughput.tokens_per_s_per_gpu,
        mfu=throughput.mfu,
        days=run.days,
        cost_usd=run.cost_usd,
        bottleneck=step.bottleneck,
        **({} if gain is None else vars(gain)),
    )


def amdahl(times: Sequence[tuple[float, float]]) -> Amdahl | None:
    """Serial and parallel seconds fitted to (GPUs, step seconds), with what the fit misses; None
    where so few times leave no residual."""
    if len(times) < FEWEST_FITTED:
        return None
    gpus, seconds = (np.array(column) for column in zip(*times, strict=True))
    serial, parallel = formulas.amdahl_fit(gpus, seconds)
    fitted = formulas.amdahl_s(serial, parallel, gpus)
    missed = fitted / seconds - 1
    return Amdahl(
        serial_s=serial,
        parallel_gpu_s=parallel,
        serial_share_at_last=serial / float(fitted[-1]),
        most_speed_up=float(seconds[0] / serial) if serial > 0 else None,
        points=[
            AmdahlPoint(*map(float, row)) for row in zip(gpus, seconds, fitted, missed, strict=True)
        ],
        worst_residual_frac=float(missed[np.abs(missed).argmax()]),
    )


def parts(first: tuple[float, Figures], last: tuple[float, Figures], scaling: str) -> Parts:
    """Each component of the step at the first and the last count: what shrinks as it should, and
    what is left over. Sums hold for every column."""
    growth = last[0] / first[0]
    before, after = first[1].step.components, last[1].step.components
    lines = {
        name: _part(before.get(name, 0.0), after.get(name, 0.0), growth, scaling)
        for name in {**before, **after}
    }
    ideal = sum(line.ideal_s for line in lines.values())
    return Parts(
        first=first[0],
        last=last[0],
        components=lines,
        ideal_s=ideal,
        excess_s=sum(line.last_s for line in lines.values()) - ideal,
    )


def _part(first_s: float, last_s: float, growth: float, scaling: str) -> Part:
    ideal = first_s / growth if scaling == "strong" else first_s
    known = first_s > 0 and last_s > 0 and growth != 1
    return Part(
        first_s=first_s,
        last_s=last_s,
        ideal_s=ideal,
        excess_s=last_s - ideal,
        exponent=math.log(last_s / first_s) / math.log(growth) if known else None,
    )
