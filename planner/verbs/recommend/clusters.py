"""Which cluster: of every kind of GPU the smallest, cheapest and fastest number that trains the
model within the limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.formulas.params import parameter_count
from planner.inputs.batch import default_batch
from planner.inputs.cluster import price_of
from planner.inputs.model import model_spec
from planner.inputs.options import number, read_options
from planner.inputs.training import sequence_length
from planner.specs.document import SCHEMA_VERSION, extended
from planner.specs.documents.batch import SizedModel
from planner.specs.documents.estimate import Figures
from planner.specs.documents.prices import Prices
from planner.specs.documents.recommend import (
    Answers,
    Below,
    ClusterLimits,
    ClusterRow,
    MachineKind,
    SmallestCluster,
    TriedCount,
)
from planner.specs.options import refuse
from planner.specs.options.recommend import GOALS, Limits
from planner.specs.price import Price
from planner.units import in_unit, show
from planner.verbs.prices import Bill, PriceAt, bill, prices
from planner.verbs.recommend.kinds import MOST_GPUS, Kind, kinds
from planner.verbs.recommend.limits import Spread, chance, checked, verdict
from planner.verbs.requests import Point, Progress, answer


@dataclass(frozen=True)
class _Count:
    """One number of GPUs that was evaluated. row: None where it has no layout. why: why it is not
    within the limits, or what it takes."""

    gpus: int
    row: ClusterRow | None
    why: str | None


def cluster(
    limits: Limits,
    given: Mapping[str, Any],
    gpus: Sequence[str] = (),
    clusters: Sequence[str] = (),
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> SmallestCluster:
    """Every count of every kind of GPU over which the batch divides, compared with the limits.

    given: options of a request without gpu, gpus and cluster. gpus, clusters: the kinds to try; by
    default every GPU of the catalogue in its usual node.
    """
    base, limits = read_options(given), checked(limits, given.get("tokens"))
    refuse(base, "recommend cluster")
    model, _ = model_spec(base.model)
    tokens = number(base, "tokens")
    notes = []
    batch = base.global_batch
    if batch is None:
        default = default_batch(base, model, sequence_length(base, model))
        batch = default.sequences
        notes.append(default.sentence)
    if limits.max_gpus is None:
        notes.append(f"clusters of up to {MOST_GPUS:,} GPUs (set --max-gpus)")
    tried_kinds = kinds(gpus, clusters, base.changed(global_batch=batch), model, tokens, limits)
    requests = [options for kind in tried_kinds for options in kind.requests]
    points = iter(answer(requests, jobs=jobs, progress=progress, reasons=False))
    answered = [[next(points) for _ in kind.requests] for kind in tried_kinds]
    counts = [
        [_count(kind.name, point, limits, price_of(point.options)) for point in tried]
        for kind, tried in zip(tried_kinds, answered, strict=True)
    ]
    within = [row for row in _rows(count for tried in counts for count in tried) if row.within]
    types = [_type(kind, tried, limits) for kind, tried in zip(tried_kinds, counts, strict=True)]
    return SmallestCluster(
        schema_version=SCHEMA_VERSION,
        question="cluster",
        model=SizedModel(model.name, model.title or model.name, parameter_count(model)),
        limits=ClusterLimits(
            days=limits.days,
            budget_usd=limits.budget,
            max_gpus=limits.max_gpus or MOST_GPUS,
            power_kw=limits.power_kw,
            sure=limits.sure,
        ),
        tokens=tokens,
        global_batch=batch,
        goal=limits.goal,
        tried=len(requests),
        answers=Answers(**{aim: _best(within, aim) for aim in GOALS}),
        types=sorted(types, key=lambda kind: _rank(kind.answer, limits.goal)),
        prices=_prices(tried_kinds, answered, limits, "hour" if tokens is None else "run"),
        notes=notes,
    )


def _prices(
    tried: Sequence[Kind], answered: Sequence[Sequence[Point]], limits: Limits, per: str
) -> Prices:
    """Prices of the kinds of which some count fits, and the cheapest within the limits at any."""
    fitting = [
        (kind, [point for point in points if point.fits])
        for kind, points in zip(tried, answered, strict=True)
    ]

    def cheapest(price: PriceAt) -> tuple[str, Bill, float] | None:
        rows = [
            (row, point)
            for kind, points in fitting
            for point in points
            if (row := _count(kind.name, point, limits, price(kind.requests[0])).row) and row.within
        ]
        row, point = min(rows, key=lambda one: _ORDER["cheapest"](one[0]), default=(None, None))
        if row is None or point is None or math.isinf(_cost(row)):
            return None
        label = f"{row.gpus:,} x {row.machine}"
        return label, Bill(label, point.options, 0.0), _cost(row)

    asked = (
        (kind.requests[0], points[0].report.cluster)
        for kind, points in fitting
        if points and points[0].report is not None
    )
    return prices(asked, per, cheapest)


def _count(machine: str, point: Point, limits: Limits, price: Price) -> _Count:
    """One count: its plan, what the run takes at this price, and whether it is within the
    limits."""
    if point.report is None:
        return _Count(point.options.gpus, None, point.refused)
    figures = point.report
    step, run = figures.step, figures.run
    cost = None if run.days is None else bill(machine, point.options, figures).usd(price)
    days, dollars = (
        None if value is None else Spread(value, value * run.low, value * run.high)
        for value in (run.days, cost)
    )
    likely, why = (
        verdict(days, dollars, limits, price.missing) if point.fits else (None, _short(figures))
    )
    held = (None, "very likely") if limits.sure else (None, "very likely", "likely")
    usd = price.usd_per_gpu_hour
    row = ClusterRow(
        machine=machine,
        gpus=point.options.gpus,
        fits=point.fits,
        within=point.fits and likely in held,
        verdict=likely,
        chance=chance(days, dollars, limits) if point.fits else None,
        why=why,
        command=point.command,
        layout=figures.layout,
        stack=figures.stack,
        step_seconds=step.seconds,
        mfu=figures.throughput.mfu,
        bottleneck=step.bottleneck,
        headroom_bytes=figures.memory.headroom_bytes,
        goodput=run.goodput,
        days=run.days,
        days_low=None if days is None else days.low,
        days_high=None if days is None else days.high,
        cost_usd=cost,
        cost_usd_low=None if dollars is None else dollars.low,
        cost_usd_high=None if dollars is None else dollars.high,
        energy_kwh=run.energy_kwh,
        usd_per_hour=None if usd is None else in_unit(float(usd), "USD/h") * point.options.gpus,
        price_source=price.words,
    )
    return _Count(row.gpus, row, why)


def _short(figures: Figures) -> str:
    """What a layout that does not fit is short of."""
    headroom = figures.memory.headroom_bytes
    if headroom < 0:
        return f"does not fit, {show(-headroom, 'B')} short"
    return "does not fit host memory"


def _rows(counts: Iterable[_Count]) -> list[ClusterRow]:
    return [count.row for count in counts if count.row is not None]


def _cost(row: ClusterRow) -> float:
    """Dollars of the run, or of an hour without its length; infinite without a price."""
    known = row.usd_per_hour if row.cost_usd is None else row.cost_usd
    return math.inf if known is None else known


# what makes a row better for a goal; smaller is better
_ORDER: dict[str, Callable[[ClusterRow], tuple[float, ...]]] = {
    "cheapest": lambda row: (_cost(row), row.gpus),
    "smallest": lambda row: (row.gpus, _cost(row), row.step_seconds),
    "fastest": lambda row: (row.step_seconds, row.gpus),
}


def _rank(row: ClusterRow | None, goal: str) -> tuple[bool, tuple[float, ...]]:
    """Kinds with an answer first."""
    return row is None, () if row is None else _ORDER[goal](row)


def _best(rows: Sequence[ClusterRow], goal: str) -> ClusterRow | None:
    """The best row; None where the best has no price."""
    best = min(rows, key=_ORDER[goal], default=None)
    return best if best is not None and _ORDER[goal](best)[0] < math.inf else None


def _type(kind: Kind, counts: Sequence[_Count], limits: Limits) -> MachineKind:
    """One kind: its best count, or why there is none; and what stands against the count below its
    smallest."""
    within = [row for row in _rows(counts) if row.within]
    smallest = _best(within, "smallest")
    smaller = [count for count in counts if smallest and count.gpus < smallest.gpus]
    return MachineKind(
        machine=kind.name,
        answer=min(within, key=_ORDER[limits.goal], default=None),
        smallest_gpus=smallest.gpus if smallest else None,
        below=Below(smaller[-1].gpus, smaller[-1].why) if smaller else None,
        left_out=kind.left_out,
        reason=None if within else kind.reason or _reason(counts, limits),
        tried=[_tried(count) for count in counts],
    )


def _tried(count: _Count) -> TriedCount:
    row = count.row
    if row is None:
        return TriedCount(count.gpus, False, False, None, None, count.why, None, None, None)
    return extended(TriedCount, row)


def _reason(counts: Sequence[_Count], limits: Limits) -> str:
    """Why no count of a kind is within the limits: the nearest miss."""
    most, rows = counts[-1].gpus, _rows(counts)
    fitting = [row for row in rows if row.fits]
    if not rows:
        return f"no layout divides the batch at any count up to {most:,} GPUs"
    if not fitting:
        nearest = max(rows, key=lambda row: row.headroom_bytes)
        return f"{nearest.why} at best, up to {most:,} GPUs"
    if any(row.verdict == "unknown" for row in fitting):
        return next(row.why for row in fitting if row.verdict == "unknown") or ""

    def days(row: ClusterRow) -> float:
        return math.inf if row.days is None else row.days

    in_time = [row for row in fitting if limits.days is None or days(row) <= limits.days]
    if not in_time:
        fastest = min(fitting, key=days)
        return f"{fastest.why} at best, on {fastest.gpus:,} GPUs"
    cheapest = min(in_time, key=_ORDER["cheapest"])
    return f"{cheapest.why} at least, on {cheapest.gpus:,} GPUs"
