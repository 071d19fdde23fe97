"""Blocks of text for `dpplan compare`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.specs.documents.compare import (
    FIGURES,
    Amdahl,
    Comparison,
    Curve,
    CurvePoint,
    Difference,
    Figure,
    Parts,
    Point,
)
from planner.specs.documents.plan import describe
from planner.units import percent, show
from planner.views.prices import cheapest_lines, prices_block
from planner.views.view import Block, Fixed, words

_WIDTH, _HEIGHT = 64, 16  # characters of the chart
_MARKS = "*o+x#@%&"
_MOST_NOTES = 8
_SMALL = 0.005  # parts of a difference below this share of the step are left out of the table
# figures that a narrow line leaves out, the first one first
_LESS = ("kWh", "free", "tokens/s/GPU", "GPUs", "MFU", "memory", "tokens/s")


def cell(figure: Figure, document: Point) -> str:
    """A figure of an answered point; its unit is in the heading where it is not written."""
    value = figure.of(document)
    if figure.unit == "%":
        return percent(value)
    unit = "days" if figure.name == "days" else figure.unit
    return show(value, unit if unit in ("s", "B", "days") else "")


def layout_cell(row: Point) -> str:
    return f"{describe(row.layout)} [{row.stack}]"


def compare_blocks(comparison: Comparison) -> list[Block]:
    """Side by side with differences, or the curves of a sweep; refused requests and notes at the
    end."""
    if comparison.difference is None:
        blocks = _sweep_blocks(comparison)
    else:
        blocks = _side_blocks(comparison, comparison.difference)
    if comparison.prices.per == "run" or comparison.at == "cost":
        blocks.append(compare_prices(comparison))
    refused = [row for row in comparison.points if row.refused is not None]
    if refused:
        block = Block(
            f"Without an answer: {len(refused)} of {len(comparison.points)}",
            header=["request", "why"],
            rows=[[row.label, row.refused or ""] for row in refused[:_MOST_NOTES]],
            order="as asked",
        )
        if len(refused) > _MOST_NOTES:
            block.below.append(f"{_MOST_NOTES} shown (--csv and --json list all)")
        blocks.append(block)
    if comparison.notes:
        blocks.append(Block("Notes", text=comparison.notes))
    return blocks


# side by side


def compare_prices(comparison: Comparison) -> Block:
    """The prices, with the cheapest request at them and elsewhere."""
    block = prices_block(comparison.prices)
    block.text = cheapest_lines(comparison.prices) + block.text
    return block


def _basis(comparison: Comparison) -> str:
    """What is equal, and how nearly."""
    if comparison.at == "count":
        return "at the GPUs given"
    apart = max(abs(row.equal.off_frac) for row in comparison.points if row.equal)
    return f"at equal {comparison.at}" + (f" within {percent(apart)}" if apart else "")


def _side_blocks(comparison: Comparison, difference: Difference) -> list[Block]:
    answered = [row for row in comparison.points if row.refused is None]
    shown = [
        figure
        for figure in FIGURES
        if figure.heading and any(figure.of(row) is not None for row in answered)
    ]
    headings = [f">{figure.heading}" for figure in shown]
    models = {row.model for row in answered}
    names = ", ".join(option.name for option in comparison.dimensions)
    table = Block(
        f"{answered[0].model if len(models) == 1 else 'Models'}: by {names}, {_basis(comparison)}",
        text=[_most(answered)],
        header=["request", *headings],
        rows=[
            [
                row.label + ("" if row.fits else " (does not fit)"),
                *(cell(figure, row) for figure in shown),
            ]
            for row in answered
        ],
        order="as asked",
        drop=_LESS,
        below=[f"{row.label}: {layout_cell(row)}" for row in answered],
    )
    against = Block(
        f"Against {difference.to}",
        header=["request", *headings],
        order="as asked",
        drop=_LESS,
        rows=[
            [change.label, *(percent(change.change_frac[f.name], sign=True) for f in shown)]
            for change in difference.rows
            if change.label != difference.to
        ],
    )
    return [table, against, _difference_block(difference)]


def _most(answered: Sequence[Point]) -> str:
    """Which request trains most tokens a second."""
    fitting = [row for row in answered if row.fits]
    if not fitting:
        return "NOTHING FITS"
    best = max(fitting, key=lambda row: row.throughput.tokens_per_s)
    return f"most tokens/s: {best.label}, {show(best.throughput.tokens_per_s, '')}"


def _difference_block(difference: Difference) -> Block:
    """Seconds of each part beyond the first answer; the columns sum to the last line."""
    others = [row for row in difference.rows if row.label != difference.to]
    base = next(row for row in difference.rows if row.label == difference.to)
    least = _SMALL * max(row.seconds for row in difference.rows)
    large = [
        name
        for name in base.components
        if max((abs(row.components[name]) for row in others), default=0.0) >= least
    ]
    small = [
        sum(value for name, value in row.components.items() if name not in large) for row in others
    ]
    block = Block(
        f"What makes the difference: seconds per {difference.per} beyond {difference.to}'s"
        f" {show(base.seconds, 's')}",
        header=["part", *(f">{row.label}" for row in others)],
        rows=[[words(name), *(_signed(row.components[name]) for row in others)] for name in large],
        order="parts of the step, then the whole",
    )
    if any(small):
        block.rows.append(["smaller parts together", *map(_signed, small)])
    block.rows.append(["whole", *(_signed(row.difference_s) for row in others)])
    for row in others:
        most = sorted(row.components.items(), key=lambda item: -abs(item[1]))[:2]
        named = ", ".join(f"{words(name)} {_signed(value)}" for name, value in most if value)
        if named:
            block.text.append(
                f"{row.label}: {_signed(row.difference_s)}"
                f" ({percent(row.difference_s / base.seconds, sign=True)}), most of it {named}"
            )
    return block


def _signed(seconds: float) -> str:
    return show(seconds, "s", sign=True)


# sweeps


def _sweep_blocks(comparison: Comparison) -> list[Block]:
    blocks = []
    for curve in comparison.curves:
        blocks.append(_curve_block(curve, comparison))
        if curve.parts is not None:
            blocks.append(_parts_block(curve.parts, curve.label, comparison.scaling))
    first = comparison.curves[0]
    by_gpus = first.axis == "gpus"
    lines = [
        (
            curve.label,
            [
                (point.value, point.tokens_per_s if by_gpus else point.tokens_per_s_per_gpu)
                for point in curve.points
                if point.fits
            ],
        )
        for curve in comparison.curves
    ]
    lines = [(label, line) for label, line in lines if line]
    if lines:
        block = Block(
            f"{'tokens/s' if by_gpus else 'tokens/s/GPU'} over {axis_name(first)}",
            text=chart_lines(lines, by_gpus),
        )
        if len(comparison.curves) > 1:
            block.text.append(legend([label for label, _ in lines]))
        if by_gpus:
            block.text.append(". in proportion to the first point")
        blocks.append(block)
    return blocks


def axis_name(curve: Curve) -> str:
    """What is swept, with its unit."""
    return words(curve.axis) + (f" ({curve.unit})" if curve.unit else "")


def _curve_block(curve: Curve, comparison: Comparison) -> Block:
    axis, by_gpus = axis_name(curve), curve.axis == "gpus"
    first = next((row for row in comparison.points if row.refused is None), None)
    of = curve.label or (f"{first.model} on {first.cluster.gpu_title}" if first else "")
    days = any(point.fits and point.days is not None for point in curve.points)
    block = Block(
        f"{of}: {axis} swept" + (f", {comparison.scaling} scaling" if by_gpus else ""),
        header=[
            *(f">{axis}", ">step", ">tokens/s", ">tokens/s/GPU", ">MFU"),
            *((">days", ">USD") if days else ()),
            *((">speed-up", ">efficiency", ">added GPU brings") if by_gpus else ()),
            "bottleneck",
        ],
        order="smallest first",
        drop=("tokens/s/GPU", "speed-up", "MFU", "USD", "efficiency"),
    )
    for point in curve.points:
        cells = _point_cells(point, days, by_gpus) if point.fits else [point.why]
        missing = len(block.header) - 1 - len(cells)
        block.rows.append([f"{point.value:,g}", *[""] * missing, *cells])
    if curve.best is None:
        block.text.append("nothing fits")
    elif by_gpus:
        block.text += _scaling_text(curve, comparison.stop_below)
    else:
        block.text.append(f"most tokens/s per GPU at {axis} {curve.best:,g}")
    return block


def _point_cells(point: CurvePoint, days: bool, by_gpus: bool) -> list[str]:
    return [
        show(point.step_seconds, "s"),
        show(point.tokens_per_s, ""),
        show(point.tokens_per_s_per_gpu, ""),
        percent(point.mfu),
        *((show(point.days, "days"), show(point.cost_usd, "")) if days else ()),
        *(
            (f"{point.speed_up:,.2f}", percent(point.efficiency), percent(point.marginal_frac))
            if by_gpus
            else ()
        ),
        point.bottleneck,
    ]


def _scaling_text(curve: Curve, stop_below: float) -> list[str]:
    lines = [
        f"pays up to  {curve.pays_until:,g} GPUs: each added GPU brings at least"
        f" {percent(stop_below)} of one at the start"
        + (f", at {curve.stops_at:,g} less" if curve.stops_at else " at every count tried")
    ]
    if curve.amdahl:
        share = percent(curve.amdahl.serial_share_at_last)
        lines.append(amdahl_text(curve.amdahl, f"; serial is {share} of the last step"))
    return lines


def amdahl_text(fitted: Amdahl, more: str = "") -> str:
    """Amdahl's law as a line; more: what is said before the error of the fit."""
    most = f", at most {fitted.most_speed_up:,.0f} times the first" if fitted.most_speed_up else ""
    return (
        f"Amdahl      step = {show(fitted.serial_s, 's')} + {show(fitted.parallel_gpu_s, 's')} /"
        f" GPUs{most}{more}; misses by up to {percent(abs(fitted.worst_residual_frac))}"
    )


def _parts_block(parts: Parts, label: str, scaling: str) -> Block:
    block = Block(
        f"What {'shrinks' if scaling == 'strong' else 'stays'} from {parts.first:,g} to"
        f" {parts.last:,g} GPUs{', ' + label if label else ''}",
        header=[
            "part",
            f">at {parts.first:,g}",
            f">at {parts.last:,g}",
            ">in proportion",
            ">beyond it",
            ">~ GPUs ^",
        ],
        order="what is furthest from proportion first",
        drop=("~ GPUs ^", "in proportion"),
    )
    lines = sorted(parts.components.items(), key=lambda item: -abs(item[1].excess_s))
    for name, line in lines:
        if max(line.first_s, line.last_s) > 0:
            seconds = (show(value, "s") for value in (line.first_s, line.last_s, line.ideal_s))
            power = "-" if line.exponent is None else f"{line.exponent:+.2f}"
            block.rows.append([words(name), *seconds, _signed(line.excess_s), power])
    sums = (
        sum(line.first_s for _, line in lines),
        sum(line.last_s for _, line in lines),
        parts.ideal_s,
    )
    block.rows.append(["step", *(show(value, "s") for value in sums), _signed(parts.excess_s), ""])
    return block


# curves in characters


def chart_lines(
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], ideal: bool
) -> list[str]:
    """Curves in characters, both axes logarithmic; ideal: dots in proportion to the first point of
    the first curve."""
    points = [point for _, curve in curves for point in curve]
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low_y, high_y = min(y for _, y in points), max(y for _, y in points)
    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def put(x: float, y: float, mark: str) -> None:
        across = math.log(x / low_x) / math.log(high_x / low_x) if high_x > low_x else 0.0
        up = math.log(y / low_y) / math.log(high_y / low_y) if high_y > low_y else 0.0
        if 0 <= up <= 1:
            rows[round((1 - up) * (_HEIGHT - 1))][round(across * (_WIDTH - 1))] = mark

    if ideal and high_x > low_x:
        first_x, first_y = curves[0][1][0]
        for i in range(_WIDTH):
            x = low_x * (high_x / low_x) ** (i / (_WIDTH - 1))
            put(x, first_y * x / first_x, ".")
    for i, (_, curve) in enumerate(curves):
        for x, y in curve:
            put(x, y, _MARKS[i % len(_MARKS)])
    labels = {0: show(high_y, "count"), _HEIGHT - 1: show(low_y, "count")}
    lines = [
        *(f"{labels.get(i, ''):>8} |{''.join(row).rstrip()}" for i, row in enumerate(rows)),
        " " * 9 + "+" + "-" * _WIDTH,
        " " * 10 + f"{low_x:,g}".ljust(_WIDTH - 12) + f"{high_x:,g}".rjust(12),
    ]
    return [Fixed(line) for line in lines]


def legend(labels: Sequence[str]) -> str:
    """Marks of the curves in characters."""
    return "  ".join(f"{_MARKS[i % len(_MARKS)]} {label}" for i, label in enumerate(labels))
