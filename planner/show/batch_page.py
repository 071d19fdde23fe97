"""Time to a target over the number of GPUs as one HTML page that opens without a network."""

from __future__ import annotations

from html import escape

from planner.show.batch import batch_blocks
from planner.show.page import Figure, Report, drawing, table, whole
from planner.show.text import Block

_COLORS = {"strong": "#4477aa", "weak": "#ee6677", "best": "#228833"}
_GRID = {"gridcolor": "#e6e6e6", "zerolinecolor": "#888888"}
_CURVES = (
    (
        "days",
        "Days to the target",
        "log",
        "Fewer GPU-hours are needed where a curve falls in proportion to the GPUs.",
    ),
    ("cost_usd", "Cost", "linear", "US dollars to the target, failures and restarts included."),
    (
        "efficiency",
        "Efficiency",
        "linear",
        "GPU-time to the target at the first count over that here.",
    ),
    (
        "communication_ratio",
        "Communication over computation",
        "linear",
        "Seconds of communication of a step, hidden and exposed, over those of computation.",
    ),
    (
        "of_critical",
        "Batch over the critical one",
        "log",
        "Above 1 a larger batch needs more tokens than it saves steps.",
    ),
)


def page(r: Report) -> str:
    """The document as one page with plotly's script inside. Raises PlanError where plotly is not
    installed."""
    drawn = drawing()
    title = f"{r['model']['title']} on {r['gpu_title']}: time to the target"
    body = [f"<h1>{escape(title)}</h1>"]
    for key, name, scale, caption in _CURVES:
        chart = curves_figure(r, key, name, scale)
        if chart["data"]:
            body += [f"<h2>{escape(name)}</h2>", drawn(key, chart, caption)]
    for block in batch_blocks(r):
        body += _section(block)
    return whole(title, body)


def curves_figure(r: Report, key: str, title: str, scale: str) -> Figure:
    """One line per regime over the GPUs that fit."""
    data = []
    for name, curve in r["regimes"].items():
        points = [p for p in curve["points"] if p["fits"] and p[key] is not None]
        if points:
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": curve["title"],
                    "x": [p["value"] for p in points],
                    "y": [p[key] for p in points],
                    "line": {"color": _COLORS[name]},
                }
            )
    across = {**_GRID, "type": "log", "title": {"text": "GPUs"}}
    up = {
        **_GRID,
        "type": scale,
        "title": {"text": title.lower()},
        **({"rangemode": "tozero"} if scale == "linear" else {}),
    }
    layout = {
        "plot_bgcolor": "#ffffff",
        "margin": {"t": 30, "r": 20},
        "legend": {"orientation": "h", "y": -0.2},
    }
    return {"data": data, "layout": {**layout, "xaxis": across, "yaxis": up}}


def _section(block: Block) -> list[str]:
    """A table of the text output; its chart of characters is left to the figures above."""
    if not block.header and block.title != "Notes":
        return []
    out = [
        f"<h2>{escape(block.title)}</h2>",
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in block.text) + "</ul>",
    ]
    if block.header:
        names = [name.lstrip(">") for name in block.header]
        numbers = [i for i, name in enumerate(block.header) if name.startswith(">")]
        out.append(table(names, block.rows, numbers))
    return out
