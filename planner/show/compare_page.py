"""A comparison as one HTML page: side by side, what makes the difference, curves of sweeps. Opens
without a network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from planner.show.compare import FIGURES, NAMES, axis_name, figure, words
from planner.show.page import CONFIG, STYLE, Figure, Report, table
from planner.show.text import layout_text
from planner.specs.base import PlanError
from planner.units import show

_COLORS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#aa3377",
    "#ccbb44",
    "#66ccee",
    "#332288",
    "#882255",
    "#44aa99",
    "#999933",
    "#bbbbbb",
)
_GRID = {"gridcolor": "#e6e6e6", "zerolinecolor": "#888888"}
_MOST_ROWS = 500  # of the table of requests on the page; --csv has all


def page(r: Report) -> str:
    """The comparison as one HTML page with plotly's script inside. Raises PlanError where plotly is
    not installed."""
    try:
        from plotly.io import to_html
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise PlanError(
            "--html", None, "needs plotly, which this environment lacks: pip install 'plotly>=6'"
        ) from None

    def drawn(name: str, chart: Figure, caption: str) -> str:
        text: str = to_html(
            chart,
            config=CONFIG,
            include_plotlyjs=False,
            full_html=False,
            validate=True,
            div_id=name,
            default_height="460px",
        )
        return f"<figure>{text}<figcaption>{escape(caption)}</figcaption></figure>"

    answered = [row for row in r["points"] if row["refused"] is None]
    title = f"{answered[0]['model']}: " + ", ".join(words(d["name"]) for d in r["dimensions"])
    body = [f"<h1>{escape(title)}</h1>"]
    if r["difference"] is not None:
        body += [
            "<h2>Step time by part</h2>",
            drawn("parts", parts_figure(answered), "Parts that add up to the step."),
            f"<h2>What makes the difference to {escape(r['difference']['to'])}</h2>",
            drawn(
                "difference",
                difference_figure(r["difference"]),
                f"Seconds per {r['difference']['per']} beyond the first; the parts of a bar sum to"
                " its whole difference.",
            ),
        ]
    for i, chart in enumerate(sweep_figures(r)):
        body += [f"<h2>{escape(chart[0])}</h2>", drawn(f"sweep-{i}", chart[2], chart[1])]
    body += ["<h2>Requests</h2>", _requests(r["points"])]
    if r["notes"]:
        body += [
            "<h2>Notes</h2>",
            "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in r["notes"]) + "</ul>",
        ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f"<script>{get_plotlyjs()}</script>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>",
            "",
        ]
    )


def _layout(**more: object) -> Figure:
    return {
        "plot_bgcolor": "#ffffff",
        "margin": {"t": 30, "r": 20},
        "legend": {"orientation": "h", "y": -0.2},
        **more,
    }


def _names(rows: Sequence[Report]) -> list[str]:
    """Components that any of the rows spends time on."""
    found = list(dict.fromkeys(name for row in rows for name in row["step"]["components"]))
    return [
        name for name in found if any(row["step"]["components"].get(name, 0.0) > 0 for row in rows)
    ]


def parts_figure(rows: Sequence[Report]) -> Figure:
    """Step time of every request as a stacked bar of its parts."""
    labels = [row["label"] for row in rows]
    data = []
    for i, name in enumerate(_names(rows)):
        seconds = [row["step"]["components"].get(name, 0.0) for row in rows]
        data.append(_bars(i, name, labels, seconds))
    return {
        "data": data,
        "layout": _layout(
            barmode="stack",
            yaxis={**_GRID, "title": {"text": "seconds per step"}},
            xaxis={"type": "category"},
        ),
    }


def _bars(i: int, name: str, labels: list[str], seconds: list[float]) -> Figure:
    """The seconds of one part, a bar per request."""
    return {
        "type": "bar",
        "name": words(name),
        "x": labels,
        "y": seconds,
        "marker": {"color": _COLORS[i % len(_COLORS)]},
        "text": [show(s, "s") for s in seconds],
        "textposition": "none",
        "hovertemplate": "%{x}, %{fullData.name}: %{text}<extra></extra>",
    }


def difference_figure(d: Report) -> Figure:
    """What each part adds or takes against the first, for every other request."""
    others = [row for row in d["rows"] if row["label"] != d["to"]]
    labels, data = [row["label"] for row in others], []
    names = [
        name
        for name in d["rows"][0]["components"]
        if any(row["components"][name] for row in others)
    ]
    for i, name in enumerate(names):
        seconds = [row["components"][name] for row in others]
        data.append(_bars(i, name, labels, seconds))
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "whole difference",
            "x": labels,
            "y": [row["difference_s"] for row in others],
            "marker": {"color": "#000000", "symbol": "diamond", "size": 10},
        }
    )
    return {
        "data": data,
        "layout": _layout(
            barmode="relative",
            yaxis={**_GRID, "title": {"text": f"seconds per {d['per']}"}},
            xaxis={"type": "category"},
        ),
    }


def sweep_figures(r: Report) -> list[tuple[str, str, Figure]]:
    """(title, caption, figure) for the curves of a sweep."""
    curves = [c for c in r["curves"] if any(p["fits"] for p in c["points"])]
    if not curves:
        return []
    axis = curves[0]["axis"]
    across = {**_GRID, "type": "log", "title": {"text": axis_name(curves[0])}}

    def lines(key: str) -> list[Figure]:
        out = []
        for i, c in enumerate(curves):
            points = [p for p in c["points"] if p["fits"] and p.get(key) is not None]
            out.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": c["label"] or words(key),
                    "x": [p["value"] for p in points],
                    "y": [p[key] for p in points],
                    "line": {"color": _COLORS[i % len(_COLORS)]},
                }
            )
        return out

    found: list[tuple[str, str, Figure]] = []
    if axis == "gpus":
        rate, ideal = lines("tokens_per_s"), []
        for i, c in enumerate(curves):
            ends = [p for p in c["points"] if p["fits"]]
            first, last = ends[0], ends[-1]["value"]
            ideal.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": f"{c['label']} in proportion".strip(),
                    "x": [first["value"], last],
                    "y": [first["tokens_per_s"], first["tokens_per_s"] * last / first["value"]],
                    "line": {"color": _COLORS[i % len(_COLORS)], "dash": "dot", "width": 1},
                }
            )
        found.append(
            (
                "Throughput",
                "Dotted: in proportion to the first point.",
                {
                    "data": [*rate, *ideal],
                    "layout": _layout(
                        xaxis=across, yaxis={**_GRID, "type": "log", "title": {"text": "tokens/s"}}
                    ),
                },
            )
        )
        limit = {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": r["stop_below"],
            "y1": r["stop_below"],
            "line": {"color": "#aa2233", "dash": "dash"},
        }
        marginal = [
            {**line, "name": f"{line['name']}, added GPU", "line": {**line["line"], "dash": "dash"}}
            for line in lines("marginal_frac")
        ]
        found.append(
            (
                "Scaling efficiency",
                (
                    "Solid: throughput per GPU over that of the first count. Dashed: what each"
                    " added GPU brings; below the red line more GPUs stop paying."
                ),
                {
                    "data": [*lines("efficiency"), *marginal],
                    "layout": _layout(
                        xaxis=across,
                        yaxis={**_GRID, "rangemode": "tozero", "title": {"text": "share"}},
                        shapes=[limit],
                    ),
                },
            )
        )
    else:
        found.append(
            (
                "Throughput per GPU",
                f"Over {axis_name(curves[0])}.",
                {
                    "data": lines("tokens_per_s_per_gpu"),
                    "layout": _layout(
                        xaxis=across,
                        yaxis={
                            **_GRID,
                            "rangemode": "tozero",
                            "title": {"text": "tokens/s per GPU"},
                        },
                    ),
                },
            )
        )
    if len(curves) == 1:
        rows = [row for row in r["points"] if row["refused"] is None and row["memory"]["fits"]]
        found.append(("Step time by part", "Parts that add up to the step.", parts_figure(rows)))
    return found


def _requests(rows: Sequence[Report]) -> str:
    shown = list(FIGURES)
    header = ["request", *(NAMES[name] for name in shown), "layout", "command"]
    lines = []
    for row in rows[:_MOST_ROWS]:
        if row["refused"] is not None:
            lines.append([row["label"], *["-"] * len(shown), row["refused"], row["command"]])
            continue
        cells = [figure(name, row[FIGURES[name][0]][FIGURES[name][1]]) for name in shown]
        verdict = "" if row["memory"]["fits"] else " (does not fit)"
        lines.append(
            [
                row["label"] + verdict,
                *cells,
                f"{layout_text(row['layout'])} [{row['stack']}]",
                row["command"],
            ]
        )
    more = (
        ""
        if len(rows) <= _MOST_ROWS
        else f"<p>{_MOST_ROWS} of {len(rows)} requests; --csv has all.</p>"
    )
    return more + table(header, lines, range(1, len(shown) + 1))
