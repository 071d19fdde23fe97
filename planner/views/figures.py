"""Charts: plotly figures as plain data, in one palette, each with the table that says the same.

A figure here is what plotly.js takes, `{"data": [...], "layout": {...}}`; plotly itself is not
imported. What all figures share (ground, grid, margins, legend) is TEMPLATE, which is added where
a figure is drawn: by planner.views.page and by the dashboard's script.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.specs.document import changed
from planner.units import show
from planner.views.cells import Cell, Column, column
from planner.views.chart import Chart, Figure, Trace
from planner.views.view import Block, words

GIB = 2.0**30

# color-blind safe: Paul Tol, "bright" and "muted"
BLUE, ROSE, GREEN, OCHRE, CYAN, PURPLE, INDIGO, SAND = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#332288",
    "#ddcc77",
)
RED, INK, GROUND, GRID_LINE = "#aa2233", "#222222", "#ffffff", "#e6e6e6"
SILVER, GREY, SLATE = "#bbbbbb", "#888888", "#555555"
CYCLE = (
    *(BLUE, ROSE, OCHRE, GREEN, CYAN, PURPLE, INDIGO, SAND),
    *("#117733", "#88ccee", "#882255", "#44aa99", "#999933", "#bb9977"),
)
SYMBOLS = ("circle", "diamond", "square", "triangle-up")
# what a color becomes on a dark ground; those that are not here stand out from either
DARK_TWINS = {
    BLUE: "#6ea4dc",
    GREEN: "#4fb965",
    PURPLE: "#d77fc8",
    INDIGO: "#8f80e8",
    RED: "#ff7b86",
    "#117733": "#46b56f",
    "#882255": "#d7689f",
    "#44aa99": "#5fc9b7",
    "#999933": "#c2c25a",
    INK: "#e6e8ec",
    SLATE: "#8d95a1",
    GREY: "#a6adb8",
    SILVER: "#5c646f",
    GRID_LINE: "#2c333d",
    GROUND: "#161a20",
}

_AXIS = {
    "gridcolor": GRID_LINE,
    "linecolor": GRID_LINE,
    "tickcolor": GRID_LINE,
    "zerolinecolor": GREY,
    "automargin": True,
    "showline": True,
    "ticks": "outside",
    "title": {"standoff": 10},
}
TEMPLATE: dict[str, Any] = {
    "layout": {
        "colorway": CYCLE,
        "font": {"color": INK},
        "paper_bgcolor": GROUND,
        "plot_bgcolor": GROUND,
        "margin": {"t": 30, "r": 20},
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": -0.2, "traceorder": "normal"},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}
LOG = {"type": "log"}
FROM_ZERO = {"rangemode": "tozero"}
BESIDE = {"orientation": "v", "x": 1.02, "y": 1, "traceorder": "reversed"}  # a legend as stacked
_ROW_PX, _AROUND_PX, _AXIS_PX = 26, 150, 55  # a row of level bars, what is around them, their axis


# ------------------------------------------------------------------------------- parts of a figure


def figure(
    data: Sequence[Trace], x: dict[str, Any] | str = "", y: dict[str, Any] | str = "", **layout: Any
) -> Figure:
    """Traces on two axes; an axis is its title or what `axis` makes."""
    axes = {"xaxis": axis(x) if isinstance(x, str) else x}
    axes["yaxis"] = axis(y) if isinstance(y, str) else y
    return {"data": list(data), "layout": {**axes, **layout}}


def axis(title: str = "", *kinds: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An axis; kinds: LOG, FROM_ZERO."""
    out: dict[str, Any] = {"title": {"text": title}} if title else {}
    for kind in kinds:
        out |= kind
    return out | more


_MOST_TICKS = 12


def counted(title: str, values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis with ticks at the values that were tried, at some of many: between powers
    of ten plotly would put 2 to 9."""
    distinct = sorted(set(values))
    shown = distinct[:: -(-len(distinct) // _MOST_TICKS) or 1]
    return axis(title, LOG, tickvals=shown, ticktext=[f"{value:,g}" for value in shown])


def _hover(text: Sequence[str] | None, template: str) -> dict[str, Any]:
    if text is None:
        return {"hoverinfo": "skip"}
    return {"text": list(text), "hovertemplate": f"{template}<extra></extra>"}


def line(
    name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    color: str,
    text: Sequence[str] | None = None,
    dash: str = "solid",
    symbol: str = "",
    **more: Any,
) -> Trace:
    """A line, with a marker at each point where a symbol is given. text: what each point says."""
    marked = {"marker": {"symbol": symbol, "color": color, "size": 6}} if symbol else {}
    return {
        "type": "scatter",
        "mode": "lines+markers" if symbol else "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": color, "dash": dash, "width": 2},
        **marked,
        **_hover(text, "%{text}"),
        **more,
    }


def markers(
    name: str,
    x: Sequence[Any],
    y: Sequence[float],
    color: str,
    text: Sequence[str] | None = None,
    size: float = 9,
    symbol: str = "circle",
    opacity: float = 1.0,
    **more: Any,
) -> Trace:
    """Points; text: what each says."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "marker": {"color": color, "size": size, "symbol": symbol, "opacity": opacity},
        **_hover(text, "%{text}"),
        **more,
    }


def bars(
    name: str, x: Sequence[str], y: Sequence[float], color: str, text: Sequence[str], **more: Any
) -> Trace:
    """Upright bars; text: the height as it is read."""
    return {
        "type": "bar",
        "name": name,
        "x": list(x),
        "y": list(y),
        "marker": {"color": color},
        "textposition": "none",
        **_hover(text, "%{x}, %{fullData.name}: %{text}"),
        **more,
    }


def stack(
    x: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    unit: str,
    colors: Mapping[str, str] | None = None,
    scale: float = 1.0,
) -> list[Trace]:
    """One bar trace per part, for barmode stack or relative. scale: heights are values over it."""
    colors = colors or colored(parts)
    drawn = heights(parts, unit, scale)
    return [
        bars(words(part), x, y, colors[part], text)
        for part, y, text in zip(parts, drawn["y"], drawn["text"], strict=True)
    ]


def heights(
    parts: Mapping[str, Sequence[float]], unit: str, scale: float
) -> dict[str, list[list[Any]]]:
    """Differences between stacks of the same parts: heights of each part, and their texts."""
    return {
        "y": [[value / scale for value in values] for values in parts.values()],
        "text": [[show(value, unit) for value in values] for values in parts.values()],
    }


def spans(
    name: str,
    rows: Sequence[str],
    spanned: Sequence[tuple[float, float]],
    marker: dict[str, Any],
    text: Sequence[str],
    **more: Any,
) -> Trace:
    """Level bars, each of (start, length), one or more in a row; text: what each says."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(rows),
        "base": [start for start, _ in spanned],
        "x": [length for _, length in spanned],
        "marker": marker,
        **_hover(text, "%{y}: %{text}"),
        **more,
    }


def rows_figure(data: Sequence[Trace], rows: Sequence[str], x: Any, **layout: Any) -> Figure:
    """Spans over each other, their rows in this order from the top."""
    order = axis(autorange="reversed", categoryorder="array", categoryarray=list(rows))
    inside = _ROW_PX * len(rows)
    more = {"height": inside + _AROUND_PX, "legend": {"y": -_AXIS_PX / inside}, **layout}
    return figure(data, x, order, barmode="overlay", **more)


def hline(y: float, color: str = RED, dash: str = "dash", **more: Any) -> dict[str, Any]:
    """A shape: a level line over the whole figure."""
    ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, **more}
    return {"type": "line", **ends, "line": {"color": color, "dash": dash, "width": 1.5}}


def vline(x: float, color: str = GREY) -> dict[str, Any]:
    """A shape: an upright line over the whole figure."""
    ends = {"yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x}
    return {"type": "line", **ends, "line": {"color": color, "dash": "dot", "width": 1.5}}


def note(text: str, x: Any, y: Any, color: str = GREY, **more: Any) -> dict[str, Any]:
    """An annotation without an arrow."""
    place = {"x": x, "y": y, "showarrow": False}
    return {"text": text, **place, "font": {"color": color, "size": 11}, **more}


def guides(values: Iterable[float], shares: Sequence[float]) -> list[Trace]:
    """Lines of a plot of predicted over measured values: equal, and off by each share. The lines
    span all values with some room."""
    known = list(values) or [1.0]
    ends = [0.7 * min(known), 1.4 * max(known)]
    lines = [
        line(f"{share:+.0%}", ends, [end * (1 + share) for end in ends], SILVER, dash="dot")
        for share in shares
    ]
    return [{**trace, "showlegend": False} for trace in (*lines, line("equal", ends, ends, GREY))]


def colored(names: Iterable[str]) -> dict[str, str]:
    """A color for each name, in order."""
    return {name: CYCLE[i % len(CYCLE)] for i, name in enumerate(names)}


# ------------------------------------------------------------------------------- whole charts


def marked(chart: Chart, at: Mapping[str, float]) -> Chart:
    """The chart with an upright line at each value of its axis, named above it."""
    layout = dict(chart.figure["layout"])
    is_log = layout["xaxis"].get("type") == "log"
    names: dict[float, list[str]] = {}
    for name, value in at.items():
        if value > 0:
            names.setdefault(value, []).append(name)
    lines = [vline(x, SLATE if "now" in name else RED) for x, name in names.items()]
    notes = [
        note(
            " and ".join(name),
            math.log10(x) if is_log else x,
            0.0,
            yref="paper",
            yanchor="bottom",
            xanchor="left",
            xshift=4,
            yshift=4 + 14 * (i % 2),
        )
        for i, (x, name) in enumerate(sorted(names.items()))
    ]
    layout["shapes"] = [*layout.get("shapes", []), *lines]
    layout["annotations"] = [*layout.get("annotations", []), *notes]
    return changed(chart, figure={**chart.figure, "layout": layout})


def tabled(chart: Chart) -> Chart:
    """A chart of curves with their points as its table, where it has none."""
    if chart.columns:
        return chart
    traces = [trace for trace in chart.figure["data"] if "hovertemplate" in trace]
    by: dict[float, list[Cell]] = {}
    for i, trace in enumerate(traces):
        for x, y in zip(trace["x"], trace["y"], strict=True):
            by.setdefault(x, [None] * len(traces))[i] = y
    axis = chart.figure["layout"]["xaxis"].get("title", {}).get("text", "")
    return changed(
        chart,
        columns=(Column(axis, "number"), *(Column(trace["name"], "number") for trace in traces)),
        rows=[[x, *cells] for x, cells in sorted(by.items())],
        order="smallest first",
    )


def with_table(chart: Chart, block: Block) -> Chart:
    """A chart with the rows of a block as its table, where it has none."""
    if chart.columns:
        return chart
    columns = tuple(column(heading) for heading in block.header)
    return changed(chart, columns=columns, rows=block.rows, order=block.order)


def alone(block: Block) -> Chart:
    """The chart of a block without it: with its rows as the table, its first line as summary."""
    assert block.chart is not None
    chart = with_table(block.chart, block)
    return changed(chart, summary=chart.summary or block.text[0])
