"""A comparison as one HTML page: side by side, what makes the difference, curves of sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.specs.documents.compare import (
    FIGURES,
    Comparison,
    Curve,
    CurvePoint,
    Difference,
    Point,
)
from planner.views.cells import Column
from planner.views.compare import axis_name, cell, compare_prices, layout_cell
from planner.views.figures import (
    CYCLE,
    FROM_ZERO,
    INK,
    LOG,
    Chart,
    Figure,
    Trace,
    axis,
    counted,
    figure,
    hline,
    line,
    markers,
    stack,
)
from planner.views.page import Part
from planner.views.page import page as whole_page
from planner.views.view import Block, words

_MOST_ROWS = 500  # of the table of requests on the page; --csv has all


def page(comparison: Comparison) -> str:
    """The comparison as one HTML page. Raises PlanError where plotly is not installed."""
    answered = [row for row in comparison.points if row.refused is None]
    names = ", ".join(words(option.name) for option in comparison.dimensions)
    parts: list[Part] = []
    if comparison.difference is not None:
        parts += [_parts_chart(answered), difference_chart(comparison.difference)]
    parts += [*sweep_charts(comparison), _requests(comparison.points)]
    parts.append(compare_prices(comparison))
    if comparison.notes:
        parts.append(Block("Notes", comparison.notes))
    return whole_page(f"{answered[0].model}: {names}", parts)


def parts_chart(name: str, steps: Mapping[str, Mapping[str, float]]) -> Chart:
    """Step times as stacked bars of their parts. steps: components in seconds, by label."""
    names = dict.fromkeys(part for parts in steps.values() for part in parts)
    seconds = {part: [parts.get(part, 0.0) for parts in steps.values()] for part in names}
    shown = {part: values for part, values in seconds.items() if any(values)}
    fastest = min(steps, key=lambda label: sum(steps[label].values()))
    return Chart(
        name,
        "Step time by part",
        f"The fastest step is that of {fastest}.",
        _stacked(list(steps), shown, "seconds per step", "stack"),
        (Column("part"), *(Column(label, "s") for label in steps)),
        [[words(part), *values] for part, values in shown.items()],
        "Parts that add up to the step.",
        order="parts as declared",
    )


def _parts_chart(rows: Sequence[Point]) -> Chart:
    return parts_chart("parts", {row.label: row.step.components for row in rows})


def _stacked(
    labels: list[str], parts: Mapping[str, list[float]], y: str, barmode: str, *more: Trace
) -> Figure:
    """Seconds of each part that any request has, a bar per request."""
    data = stack(labels, {name: s for name, s in parts.items() if any(s)}, "s")
    return figure([*data, *more], axis(type="category"), y, barmode=barmode)


def difference_chart(difference: Difference) -> Chart:
    """What each part adds or takes against the first, for every other request."""
    others = [row for row in difference.rows if row.label != difference.to]
    labels, per = [row.label for row in others], f"seconds per {difference.per}"
    parts = {name: [row.components[name] for row in others] for name in others[0].components}
    apart = [row.difference_s for row in others]
    hover = [f"{row.label}, whole difference: {row.difference_s:+.4g} s" for row in others]
    total = markers("whole difference", labels, apart, INK, hover, size=10, symbol="diamond")
    return Chart(
        "difference",
        f"What makes the difference to {difference.to}",
        "",
        _stacked(labels, parts, per, "relative", total),
        caption=f"{per.capitalize()} beyond the first; the parts of a bar sum to its whole"
        " difference.",
    )


def sweep_charts(comparison: Comparison) -> list[Chart]:
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
    if len(curves) == 1:
        charts.append(_parts_chart([row for row in comparison.points if row.fits]))
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


def _requests(rows: Sequence[Point]) -> Block:
    block = Block(
        "Requests",
        header=["request", *(f">{f.heading or f.label}" for f in FIGURES), "layout", "command"],
        order="as asked",
    )
    for row in rows[:_MOST_ROWS]:
        if row.refused is not None:
            cells = [row.label, *["-"] * len(FIGURES), row.refused]
        else:
            label = row.label + ("" if row.fits else " (does not fit)")
            cells = [label, *(cell(f, row) for f in FIGURES), layout_cell(row)]
        block.rows.append([*cells, row.command])
    if len(rows) > _MOST_ROWS:
        block.text.append(f"{_MOST_ROWS} of {len(rows)} requests; --csv has all.")
    return block
