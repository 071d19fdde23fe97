"""One number of GPUs of `recommend cluster`, against the limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from planner.evidence.band import on_gpu
from planner.specs.documents.estimate import Figures
from planner.specs.documents.recommend import ClusterRow
from planner.specs.options.recommend import Limits
from planner.specs.price import Price
from planner.units import chance_text, in_unit, show
from planner.verbs.prices import bill
from planner.verbs.recommend.limits import Spread, chance, verdict
from planner.verbs.requests import Point


@dataclass(frozen=True)
class Count:
    """One number of GPUs that was evaluated. row: None where it has no layout. why: why it is not
    within the limits, or what it takes."""

    gpus: int
    row: ClusterRow | None
    why: str | None


def judged(machine: str, point: Point, limits: Limits, price: Price) -> Count:
    """One count: its plan, what the run takes at this price, and whether it is within the
    limits."""
    if point.report is None:
        return Count(point.options.gpus, None, point.refused)
    figures = point.report
    step, run = figures.step, figures.run
    cost = None if run.days is None else bill(machine, point.options, figures).usd(price)
    days, dollars = (
        None if value is None else Spread(value, value * run.low, value * run.high)
        for value in (run.days, cost)
    )
    likely, why = (
        verdict(days, dollars, limits, price.missing) if point.roomy else (None, _short(figures))
    )
    held = (None, "very likely") if limits.sure else (None, "very likely", "likely")
    usd = price.usd_per_gpu_hour
    row = ClusterRow(
        machine=machine,
        gpus=point.options.gpus,
        fits=point.fits,
        within=point.roomy and likely in held,
        verdict=likely,
        chance=chance(days, dollars, limits) if point.fits else None,
        why=why,
        command=point.command,
        pick=point.pick,
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
        thin=on.words(figures.cluster.gpu) if (on := on_gpu(figures.cluster.gpu)).is_thin else None,
    )
    return Count(row.gpus, row, why)


def _short(figures: Figures) -> str:
    """The shortfall of a layout that does not fit, or not with the wanted headroom."""
    memory = figures.memory
    if memory.headroom_bytes < 0:
        return f"does not fit, {show(-memory.headroom_bytes, 'B')} short"
    if not memory.fits:
        return "does not fit host memory"
    return (
        f"may not fit, {show(memory.headroom_bytes, 'B')} free, chance"
        f" {chance_text(memory.fit_chance)} (set --headroom)"
    )


def rows_of(counts: Iterable[Count]) -> list[ClusterRow]:
    return [count.row for count in counts if count.row is not None]


def cost_of(row: ClusterRow) -> float:
    """Dollars of the run, or of an hour without its length; infinite without a price."""
    known = row.usd_per_hour if row.cost_usd is None else row.cost_usd
    return math.inf if known is None else known


# what makes a row better for a goal; smaller is better
ORDER: dict[str, Callable[[ClusterRow], tuple[float, ...]]] = {
    "cheapest": lambda row: (cost_of(row), row.gpus),
    "smallest": lambda row: (row.gpus, cost_of(row), row.step_seconds),
    "fastest": lambda row: (row.step_seconds, row.gpus),
}


def undecided(rows: Iterable[ClusterRow], goal: str) -> list[str]:
    """Machines of the best clusters of each kind whose order with the best of all is within the
    80 % bands of both: what they are ranked by differs by less than the slow half of the best and
    the fast half of the other, in quadrature."""
    known = sorted(rows, key=ORDER[goal])
    if goal == "smallest" or not known or math.isinf(ORDER[goal](known[0])[0]):
        return []
    best, *others = known

    def sides(row: ClusterRow) -> tuple[float, float]:
        if row.days is None or row.days_low is None or row.days_high is None:
            return 0.0, 0.0
        return math.log(row.days / row.days_low), math.log(row.days_high / row.days)

    slow, out = sides(best)[1], []
    for row in others:
        apart = math.log(ORDER[goal](row)[0] / ORDER[goal](best)[0])
        if apart < math.hypot(slow, sides(row)[0]):
            out.append(row.machine)
    return out
