"""How a request scales over the number of GPUs: the curve of `dpplan compare --sweep gpus=...`
around the number of the request."""

from __future__ import annotations

from planner.api import PlanError
from planner.inputs.scenario import resolve
from planner.specs.documents.compare import Curve, CurvePoint
from planner.specs.options import command_line
from planner.specs.options.own import CompareOptions
from planner.units import percent, show
from planner.verbs.compare.scaling import over_gpus
from planner.views.cells import Column
from planner.views.chart import Chart
from planner.views.figures import BLUE, GREEN, GREY, LOG, axis, counted, figure, line, vline
from web.state import State

_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_PER_GPU = ("dp", "shard_group")  # follow from the number of GPUs
_STOP_BELOW = CompareOptions().stop_below
_MOST_REASONS = 2  # counts without a layout that are named
_COLUMNS = (
    Column("GPUs", "number"),
    Column("answer"),
    Column("step", "s"),
    Column("throughput", "tokens/s"),
    Column("MFU", "%"),
    Column("efficiency", "%"),
    Column("added GPU brings", "%"),
    Column("days", "number"),
    Column("cost", "USD"),
)


def counts(gpus: int, most: int) -> list[int]:
    """Numbers of GPUs around the request's number, by factors of two."""
    around = (gpus * factor for factor in _FACTORS)
    return sorted(int(n) for n in around if 1 <= n <= most and n.is_integer())


def chart(state: State, most: int) -> Chart:
    """Estimates with the same global batch; dp follows the number of GPUs. Raises PlanError where
    nothing fits at any of them."""
    options = state.options
    _, cluster, training = resolve(options).parts
    batch = training.global_batch
    others = {"global_batch": batch, **dict.fromkeys(_PER_GPU)}
    requests = [
        options if gpus == options.gpus else options.changed(gpus=gpus, **others)
        for gpus in counts(options.gpus, most)
    ]
    curve = over_gpus(requests, _STOP_BELOW)
    updates = [
        state.update(state.picked(command_line(request), ("gpus",))) if point.fits else None
        for request, point in zip(requests, curve.points, strict=True)
    ]
    fitting = [point for point in curve.points if point.fits]
    if not fitting:
        why = next(point.why for point in curve.points if point.value == options.gpus)
        raise PlanError("--gpus", options.gpus, f"and counts around it do not run this: {why}")
    return Chart(
        "scaling",
        "Scaling over GPUs",
        _summary(curve, fitting, batch),
        _figure(curve, fitting, [update for update in updates if update is not None]),
        _COLUMNS,
        [_cells(point) for point in curve.points],
        "Same global batch, layout as requested. Efficiency is throughput per GPU over that of the"
        f" first count; more GPUs stop paying where an added one brings less than"
        f" {percent(_STOP_BELOW, 0)} of one at the first count. Cost: {cluster.price.sentence}.",
        select="gpus",
        states=updates,
        order="fewest GPUs first",
    )


def _cells(point: CurvePoint) -> list[float | str | None]:
    if not point.fits:
        return [int(point.value), point.why, *[None] * (len(_COLUMNS) - 2)]
    return [
        int(point.value),
        "fits",
        point.step_seconds,
        point.tokens_per_s,
        point.mfu,
        point.efficiency,
        point.marginal_frac,
        point.days,
        point.cost_usd,
    ]


def _summary(curve: Curve, fitting: list[CurvePoint], batch: int) -> str:
    fastest = min(fitting, key=lambda point: point.step_seconds)
    pays = (
        f"More GPUs pay up to {curve.pays_until:,.0f}; at {curve.stops_at:,.0f} an added one"
        f" brings less than {percent(_STOP_BELOW, 0)} of one at {fitting[0].value:,.0f}."
        if curve.stops_at
        else f"More GPUs pay up to {curve.pays_until:,.0f}, the most that run this here."
    )
    refused = [point for point in curve.points if not point.fits]
    reasons = "; ".join(f"{point.value:,.0f} ({point.why})" for point in refused[:_MOST_REASONS])
    return (
        f"Global batch {batch:,}: from {fitting[0].value:,.0f} to {fitting[-1].value:,.0f} GPUs the"
        f" fastest step is {show(fastest.step_seconds, 's')} on {fastest.value:,.0f}, at"
        f" {percent(fastest.efficiency, 0)} efficiency. {pays}"
        + (f" Not possible: {reasons}." if reasons else "")
    )


def _figure(
    curve: Curve, fitting: list[CurvePoint], updates: list[dict[str, str]]
) -> dict[str, object]:
    gpus, first = [point.value for point in fitting], fitting[0]
    ideal = [first.tokens_per_s * n / first.value for n in gpus]
    rates = [point.tokens_per_s for point in fitting]
    shares = [100 * point.efficiency for point in fitting]
    return figure(
        [
            line("perfect scaling", gpus, ideal, GREY, dash="dot"),
            line(
                "tokens/s",
                gpus,
                rates,
                BLUE,
                [
                    f"{n:,.0f} GPUs: {rate:,.0f} tokens/s"
                    for n, rate in zip(gpus, rates, strict=True)
                ],
                symbol="circle",
                customdata=updates,
            ),
            line(
                "efficiency",
                gpus,
                shares,
                GREEN,
                [f"{n:,.0f} GPUs: {share:.0f} %" for n, share in zip(gpus, shares, strict=True)],
                "dash",
                "diamond",
                yaxis="y2",
            ),
        ],
        counted("GPUs", gpus),
        axis("tokens/s", LOG),
        yaxis2=axis(
            "efficiency (%)",
            overlaying="y",
            side="right",
            tickmode="auto",  # its own: else those of tokens/s, which are logarithmic
            rangemode="tozero",
            showgrid=False,
        ),
        margin={"t": 20, "r": 60},
        shapes=[] if curve.stops_at is None else [vline(curve.stops_at)],
    )
