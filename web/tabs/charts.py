"""Charts of tabs: points marked on an axis, and the table that says the same as curves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.specs.document import changed
from planner.views.cells import Cell, Column
from planner.views.figures import RED, SLATE, Chart, note, vline


def marked(chart: Chart, at: Mapping[str, float]) -> Chart:
    """The chart with an upright line at each value of its axis, named above it."""
    layout = dict(chart.figure["layout"])
    is_log = layout["xaxis"].get("type") == "log"
    names: dict[float, list[str]] = {}
    for name, value in at.items():
        if value > 0:
            names.setdefault(value, []).append(name)
    lines = [vline(x, SLATE if "now" in said else RED) for x, said in names.items()]
    notes = [
        note(
            " and ".join(said),
            math.log10(x) if is_log else x,
            0.0,
            yref="paper",
            yanchor="bottom",
            xanchor="left",
            xshift=4,
            yshift=4 + 14 * (i % 2),
        )
        for i, (x, said) in enumerate(sorted(names.items()))
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
