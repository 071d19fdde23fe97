"""Sweeps of `dpplan compare`: curves of throughput, the knee, and what scales with the GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.specs.documents.compare import Amdahl, Comparison, Curve, CurvePoint, Point
from planner.specs.documents.compare import Parts as PartsOfStep
from planner.units import percent, show
from planner.views.cells import Cell
from planner.views.characters import chart_lines, legend
from planner.views.chart import Chart, Trace
from planner.views.figures import (
    CYCLE,
    FROM_ZERO,
    LOG,
    axis,
    counted,
    figure,
    hline,
    line,
    marked,
    tabled,
)
from planner.views.parts import parts_chart
from planner.views.view import Block, Caption, Link, Mark, Parts, words

_AXES = 2  # swept numbers of a map
_KNEE = 0.95  # of the best tokens/s per GPU: from there on more of a number brings little


def sweep_parts(comparison: Comparison, given: Mapping[str, object]) -> Parts:
    first = comparison.curves[0]
    by_gpus, now = first.axis == "gpus", _now(first, given)
    alone = len(comparison.curves) == 1
    knee = _knee(first) if alone else None
    at = {} if knee is None else {"knee": knee}
    at |= {} if now is None else {"now": now}
    charts = [tabled(marked(chart, at)) for chart in _curve_charts(comparison)]
    if alone and charts:
        steps = {row.label: row.step.components for row in comparison.points if row.fits}
        charts.append(parts_chart(steps))
    blocks = []
    for curve in comparison.curves:
        blocks.append(_curve_block(curve, comparison, now))
        if curve.parts is not None:
            blocks.append(_parts_block(curve.parts, curve.label, comparison.scaling))
    key = "tokens_per_s" if by_gpus else "tokens_per_s_per_gpu"
    lines = [
        (curve.label, [(point.value, getattr(point, key)) for point in curve.points if point.fits])
        for curve in comparison.curves
    ]
    lines = [(label, line) for label, line in lines if line]
    if lines:
        title = f"{'tokens/s' if by_gpus else 'tokens/s/GPU'} over {axis_name(first)}"
        drawing = Block(title, chart_lines(lines, by_gpus), only="text")
        if not alone:
            drawing.text.append(legend([label for label, _ in lines]))
        if by_gpus:
            drawing.text.append(Caption(". in proportion to the first point"))
        blocks.append(drawing)
    grid = _grid(comparison, key)
    if grid:
        blocks = [replace(block, folded=True) for block in blocks]
    return [*grid, *charts[:2], *blocks, *charts[2:]]


def _grid(comparison: Comparison, key: str) -> list[Block]:
    """The two swept numbers as a map; none beside other options or where one is swept."""
    names = [option.name for option in comparison.dimensions if option.swept]
    if len(names) != _AXES or len(comparison.dimensions) != _AXES:
        return []
    across = comparison.curves[0].axis
    down = next(name for name in names if name != across)
    named = {
        option.name: words(option.name)
        + (f" ({unit})" if (unit := option.values[0].partition(" ")[2]) else "")
        for option in comparison.dimensions
    }
    title = "tokens/s" if key == "tokens_per_s" else "tokens/s/GPU"
    at = {(p.values[down], p.values[across]): p for p in comparison.points}
    ys, xs = (sorted({pair[i] for pair in at}) for i in (0, 1))

    def value(y: float, x: float) -> float | None:
        point = at[y, x]
        return getattr(point.throughput, key) if point.fits else None

    values = [[value(y, x) for x in xs] for y in ys]
    data: Trace = {
        "type": "heatmap",
        "x": [f"{x:,g}" for x in xs],
        "y": [f"{y:,g}" for y in ys],
        "z": values,
        "text": [["" if v is None else show(v, "") for v in row] for row in values],
        "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
        "customdata": [[at[y, x].command for x in xs] for y in ys],
    }
    axes_of = [axis(named[name], type="category") for name in (across, down)]
    chart = Chart(
        "map",
        f"{title} by {named[down]} and {named[across]}",
        "",
        figure([data], *axes_of),
        caption="From blue, the least, to red, the most; empty: it does not fit.",
    )
    return [
        Block(
            chart.title,
            header=[named[down], *(f"{x:,g}|number" for x in xs)],
            rows=[[f"{y:,g}", *row] for y, row in zip(ys, values, strict=True)],
            order="smallest first",
            chart=chart,
        )
    ]


def _now(curve: Curve, given: Mapping[str, object]) -> float | None:
    """The value of the request on the axis."""
    value = given.get(curve.axis)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _knee(curve: Curve) -> float | None:
    """GPUs: up to which more pay. Else the least value that is within a share of the best."""
    if curve.axis == "gpus":
        return curve.pays_until
    return min(_near(curve), default=None)


def _near(curve: Curve) -> list[float]:
    """Values of the axis that are within that share of the best."""
    fitting = [point for point in curve.points if point.fits]
    best = max((point.tokens_per_s_per_gpu for point in fitting), default=0.0)
    return [p.value for p in fitting if p.tokens_per_s_per_gpu >= _KNEE * best]


def label_of(label: str, axis: str) -> str:
    """The label of a request without what it says of the axis."""
    named = axis.replace("_", " ")
    return ", ".join(part for part in label.split(", ") if not part.startswith(f"{named} "))


def _mark(fits: bool, value: float, knee: float | None, now: float | None) -> Mark:
    if not fits:
        return "no"
    return "here" if value == knee else "now" if value == now else ""


def knee_said(comparison: Comparison, given: Mapping[str, object]) -> str:
    """Position of the knee, and the value of the request relative to it."""
    curve = comparison.curves[0]
    if len(comparison.curves) > 1:
        return _best_said(comparison, curve)
    knee, now = _knee(curve), _now(curve, given)
    if knee is None:
        return ""
    name = axis_name(curve)
    if curve.axis == "gpus":
        sentence = f"More GPUs pay up to {knee:,g}"
    else:
        last, most = max(_near(curve)), max(p.value for p in curve.points if p.fits)
        where = f"at {name} {knee:,g}" if last == knee else f"from {name} {knee:,g} to {last:,g}"
        where = f"from {name} {knee:,g} on" if last == most else where
        sentence = f"Within 5 % of the best throughput per GPU {where}"
    here = next((p for p in curve.points if p.value == now and p.fits), None)
    best = max((p.tokens_per_s_per_gpu for p in curve.points if p.fits), default=0.0)
    if here is None:
        return sentence
    share = here.tokens_per_s_per_gpu / best
    return f"{sentence}; the current {here.value:,g} has {share:.0%} of the best per GPU"


def _best_said(comparison: Comparison, curve: Curve) -> str:
    """Which request of several curves is the best."""
    total = curve.axis == "gpus"
    key, title = ("tokens_per_s", "tokens/s") if total else ("tokens_per_s_per_gpu", "tokens/s/GPU")
    fitting = [point for point in comparison.points if point.fits]
    if not fitting:
        return ""
    best = max(fitting, key=lambda point: getattr(point.throughput, key))
    return f"Most {title}: {best.label}, {show(getattr(best.throughput, key), '')}"


def axis_name(curve: Curve) -> str:
    """The swept quantity with its unit."""
    return words(curve.axis) + (f" ({curve.unit})" if curve.unit else "")


def _curve_block(curve: Curve, comparison: Comparison, now: float | None) -> Block:
    axis, by_gpus = axis_name(curve), curve.axis == "gpus"
    first = next((row for row in comparison.points if row.refused is None), None)
    subject = curve.label or (f"{first.model} on {first.cluster.gpu_title}" if first else "")
    days = any(point.fits and point.days is not None for point in curve.points)
    block = Block(
        f"{subject}: {axis} swept" + (f", {comparison.scaling} scaling" if by_gpus else ""),
        header=[
            *(f"{axis}|,g", "step|s", "tokens/s|number", "tokens/s/GPU|number", "MFU|%"),
            *(("days|days", "USD|number") if days else ()),
            *(("speed-up|,.2f", "efficiency|%", "added GPU brings|%") if by_gpus else ()),
            "bottleneck",
        ],
        order="smallest first",
        drop=("tokens/s/GPU", "speed-up", "MFU", "USD", "efficiency"),
        marks=[_mark(point.fits, point.value, _knee(curve), now) for point in curve.points],
        links=_links(curve, comparison.points),
        note="Shaded: the knee. Outlined: the current value.",
    )
    for point in curve.points:
        cells = _point_cells(point, days, by_gpus) if point.fits else [point.why]
        block.rows.append([point.value, *[""] * (len(block.header) - 1 - len(cells)), *cells])
    if curve.best is None:
        block.text.append("nothing fits")
    elif by_gpus:
        block.text += _scaling_text(curve, comparison.stop_below)
    else:
        block.text.append(f"most tokens/s per GPU at {axis} {curve.best:,g}")
    return block


def _links(curve: Curve, points: Sequence[Point]) -> list[Link | None]:
    """The command of each point of a curve."""
    commands = {
        (label_of(point.label, curve.axis), point.values[curve.axis]): Link(point.command)
        for point in points
    }
    return [commands.get((curve.label, point.value)) for point in curve.points]


def _point_cells(point: CurvePoint, days: bool, by_gpus: bool) -> list[Cell]:
    return [
        *(point.step_seconds, point.tokens_per_s, point.tokens_per_s_per_gpu, point.mfu),
        *((point.days, point.cost_usd) if days else ()),
        *((point.speed_up, point.efficiency, point.marginal_frac) if by_gpus else ()),
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
    """Amdahl's law as a line; more: a text before the error of the fit."""
    most = f", at most {fitted.most_speed_up:,.0f} times the first" if fitted.most_speed_up else ""
    return (
        f"Amdahl      step = {show(fitted.serial_s, 's')} + {show(fitted.parallel_gpu_s, 's')} /"
        f" GPUs{most}{more}; misses by up to {percent(abs(fitted.worst_residual_frac))}"
    )


def _parts_block(parts: PartsOfStep, label: str, scaling: str) -> Block:
    block = Block(
        f"What {'shrinks' if scaling == 'strong' else 'stays'} from {parts.first:,g} to"
        f" {parts.last:,g} GPUs{', ' + label if label else ''}",
        header=[
            *("part", f"at {parts.first:,g}|s", f"at {parts.last:,g}|s", "in proportion|s"),
            *("beyond it|+s", "~ GPUs ^|+.2f"),
        ],
        order="what is furthest from proportion first",
        drop=("~ GPUs ^", "in proportion"),
    )
    lines = sorted(parts.components.items(), key=lambda item: -abs(item[1].excess_s))
    block.rows = [
        [words(name), line.first_s, line.last_s, line.ideal_s, line.excess_s, line.exponent]
        for name, line in lines
        if max(line.first_s, line.last_s) > 0
    ]
    first, last = sum(part.first_s for _, part in lines), sum(part.last_s for _, part in lines)
    block.rows.append(["step", first, last, parts.ideal_s, parts.excess_s, ""])
    return block


def _curve_charts(comparison: Comparison) -> list[Chart]:
    """The curves of a sweep."""
    curves = [
        (curve, [point for point in curve.points if point.fits], color)
        for curve, color in zip(comparison.curves, CYCLE * len(comparison.curves), strict=False)
        if curve.best is not None
    ]
    if not curves:
        return []
    named = axis_name(curves[0][0])
    across = counted(named, (point.value for _, points, _ in curves for point in points))

    def lines(key: str, dash: str = "solid", more: str = "") -> list[Trace]:
        return [_line(curve, points, color, key, dash, more) for curve, points, color in curves]

    if curves[0][0].axis == "gpus":
        ideal = [_in_proportion(curve, points, color) for curve, points, color in curves]
        charts = [
            Chart(
                "throughput",
                "Throughput",
                "",
                figure([*lines("tokens_per_s"), *ideal], across, axis("tokens/s", LOG)),
                caption="Dotted: in proportion to the first point.",
            ),
            Chart(
                "efficiency",
                "Scaling efficiency",
                "",
                figure(
                    [*lines("efficiency"), *lines("marginal_frac", "dash", ", added GPU")],
                    across,
                    axis("share", FROM_ZERO),
                    shapes=[hline(comparison.stop_below)],
                ),
                caption=(
                    "Solid: throughput per GPU over that of the first count. Dashed: what each"
                    " added GPU brings; below the red line more GPUs stop paying."
                ),
            ),
        ]
    else:
        upright = axis("tokens/s per GPU", FROM_ZERO)
        drawn = figure(lines("tokens_per_s_per_gpu"), across, upright)
        charts = [Chart("throughput", "Throughput per GPU", "", drawn, caption=f"Over {named}.")]
    return charts


def _line(
    curve: Curve, points: Sequence[CurvePoint], color: str, key: str, dash: str, more: str
) -> Trace:
    """One quantity along a curve, where it is known."""
    name = (curve.label or words(key)) + more
    known = [(p.value, value) for p in points if (value := getattr(p, key)) is not None]
    hover = [f"{name}: {y:,.4g} at {x:,g}" for x, y in known]
    return line(name, [x for x, _ in known], [y for _, y in known], color, hover, dash, "circle")


def _in_proportion(curve: Curve, points: Sequence[CurvePoint], color: str) -> Trace:
    """Throughput as it would grow with the GPUs from the first point on."""
    first = points[0]
    ends = [first.value, points[-1].value]
    rates = [first.tokens_per_s * value / first.value for value in ends]
    return line(f"{curve.label} in proportion".strip(), ends, rates, color, dash="dot")
