"""A comparison as one HTML page: side by side, what makes the difference, curves of sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.show.compare import FIGURES, NAMES, axis_name, words
from planner.show.compare import figure as text_of
from planner.show.figures import (
    CYCLE,
    FROM_ZERO,
    INK,
    LOG,
    Chart,
    Figure,
    Trace,
    axis,
    figure,
    hline,
    line,
    markers,
    stack,
)
from planner.show.page import Part
from planner.show.page import page as whole
from planner.show.text import Block, layout_text

Report = dict[str, Any]

_MOST_ROWS = 500  # of the table of requests on the page; --csv has all


def page(r: Report) -> str:
    """The comparison as one HTML page. Raises PlanError where plotly is not installed."""
    answered = [row for row in r["points"] if row["refused"] is None]
    title = f"{answered[0]['model']}: " + ", ".join(words(d["name"]) for d in r["dimensions"])
    parts: list[Part] = []
    if r["difference"] is not None:
        parts += [parts_chart(answered), difference_chart(r["difference"])]
    parts += [*sweep_charts(r), _requests(r["points"])]
    if r["notes"]:
        parts.append(Block("Notes", r["notes"]))
    return whole(title, parts)


def parts_chart(rows: Sequence[Report]) -> Chart:
    """Step time of every request as a stacked bar of its parts."""
    names = dict.fromkeys(name for row in rows for name in row["step"]["components"])
    seconds = {name: [row["step"]["components"].get(name, 0.0) for row in rows] for name in names}
    return Chart(
        "parts",
        "Step time by part",
        "",
        _stacked([row["label"] for row in rows], seconds, "seconds per step", "stack"),
        caption="Parts that add up to the step.",
    )


def _stacked(
    labels: list[str], parts: dict[str, list[float]], y: str, barmode: str, *more: Trace
) -> Figure:
    """Seconds of each part that any request has, a bar per request."""
    data = stack(labels, {name: s for name, s in parts.items() if any(s)}, "s")
    return figure([*data, *more], axis(type="category"), y, barmode=barmode)


def difference_chart(d: Report) -> Chart:
    """What each part adds or takes against the first, for every other request."""
    others = [row for row in d["rows"] if row["label"] != d["to"]]
    labels = [row["label"] for row in others]
    parts = {name: [row["components"][name] for row in others] for name in others[0]["components"]}
    apart = [row["difference_s"] for row in others]
    said = [f"{row['label']}, whole difference: {row['difference_s']:+.4g} s" for row in others]
    total = markers("whole difference", labels, apart, INK, said, size=10, symbol="diamond")
    return Chart(
        "difference",
        f"What makes the difference to {d['to']}",
        "",
        _stacked(labels, parts, f"seconds per {d['per']}", "relative", total),
        caption=(
            f"Seconds per {d['per']} beyond the first; the parts of a bar sum to its whole"
            " difference."
        ),
    )


def sweep_charts(r: Report) -> list[Chart]:
    """The curves of a sweep."""
    curves = [c for c in r["curves"] if any(p["fits"] for p in c["points"])]
    if not curves:
        return []
    named = axis_name(curves[0])
    across = axis(named, LOG)

    def lines(key: str, dash: str = "solid", more: str = "") -> list[Trace]:
        out = []
        for c, color in zip(curves, CYCLE * len(curves), strict=False):
            points = [p for p in c["points"] if p["fits"] and p.get(key) is not None]
            name = (c["label"] or words(key)) + more
            x, y = [p["value"] for p in points], [p[key] for p in points]
            said = [f"{name}: {p[key]:,.4g} at {p['value']:,g}" for p in points]
            out.append(line(name, x, y, color, said, dash, "circle"))
        return out

    if curves[0]["axis"] == "gpus":
        ideal = []
        for c, color in zip(curves, CYCLE * len(curves), strict=False):
            fitting = [p for p in c["points"] if p["fits"]]
            ends = [fitting[0]["value"], fitting[-1]["value"]]
            rate = [fitting[0]["tokens_per_s"] * value / ends[0] for value in ends]
            ideal.append(line(f"{c['label']} in proportion".strip(), ends, rate, color, dash="dot"))
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
                    shapes=[hline(r["stop_below"])],
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
        fitting = [row for row in r["points"] if row["refused"] is None and row["memory"]["fits"]]
        charts.append(parts_chart(fitting))
    return charts


def _requests(rows: Sequence[Report]) -> Block:
    block = Block("Requests")
    block.header = ["request", *(f">{NAMES[name]}" for name in FIGURES), "layout", "command"]
    for row in rows[:_MOST_ROWS]:
        if row["refused"] is not None:
            cells = [row["label"], *["-"] * len(FIGURES), row["refused"]]
        else:
            verdict = "" if row["memory"]["fits"] else " (does not fit)"
            cells = [
                row["label"] + verdict,
                *(text_of(name, row[of][key]) for name, (of, key) in FIGURES.items()),
                f"{layout_text(row['layout'])} [{row['stack']}]",
            ]
        block.rows.append([*cells, row["command"]])
    if len(rows) > _MOST_ROWS:
        block.text.append(f"{_MOST_ROWS} of {len(rows)} requests; --csv has all.")
    return block
