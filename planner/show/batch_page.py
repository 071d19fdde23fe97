"""Time to a target over the number of GPUs as one HTML page."""

from __future__ import annotations

from typing import Any

from planner.show.batch import batch_blocks
from planner.show.figures import BLUE, FROM_ZERO, GREEN, LOG, ROSE, Chart, axis, figure, line
from planner.show.page import page as whole

Report = dict[str, Any]

_COLORS = {"strong": BLUE, "weak": ROSE, "best": GREEN}
_CURVES = (
    (
        "days",
        "Days to the target",
        LOG,
        "Fewer GPU-hours are needed where a curve falls in proportion to the GPUs.",
    ),
    ("cost_usd", "Cost", FROM_ZERO, "US dollars to the target, failures and restarts included."),
    (
        "efficiency",
        "Efficiency",
        FROM_ZERO,
        "GPU-time to the target at the first count over that here.",
    ),
    (
        "communication_ratio",
        "Communication over computation",
        FROM_ZERO,
        "Seconds of communication of a step, hidden and exposed, over those of computation.",
    ),
    (
        "of_critical",
        "Batch over the critical one",
        LOG,
        "Above 1 a larger batch needs more tokens than it saves steps.",
    ),
)


def page(r: Report) -> str:
    """The document as one page. Raises PlanError where plotly is not installed."""
    # of the text output, tables and notes; its chart of characters is left to the figures
    blocks = [block for block in batch_blocks(r) if block.header or block.title == "Notes"]
    title = f"{r['model']['title']} on {r['gpu_title']}: time to the target"
    return whole(title, [*curves(r), *blocks])


def curves(r: Report) -> list[Chart]:
    """Quantities over the GPUs that fit, one line per regime; those that have no point are left
    out."""
    charts = []
    for key, title, kind, caption in _CURVES:
        data = []
        for name, curve in r["regimes"].items():
            points = [p for p in curve["points"] if p["fits"] and p[key] is not None]
            if points:
                x, y = [p["value"] for p in points], [p[key] for p in points]
                said = [f"{p['value']:,g} GPUs: {p[key]:,.4g}" for p in points]
                data.append(line(curve["title"], x, y, _COLORS[name], said, symbol="circle"))
        if data:
            drawn = figure(data, axis("GPUs", LOG), axis(title.lower(), kind))
            charts.append(Chart(key, title, "", drawn, caption=caption))
    return charts
