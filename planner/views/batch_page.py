"""Time to a target over the number of GPUs as one HTML page."""

from __future__ import annotations

from planner.specs.documents.batch import Regime, TimeToTarget
from planner.views.batch import batch_blocks
from planner.views.figures import (
    BLUE,
    FROM_ZERO,
    GREEN,
    LOG,
    ROSE,
    Chart,
    Trace,
    axis,
    counted,
    figure,
    line,
)
from planner.views.page import page as whole_page

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


def page(document: TimeToTarget) -> str:
    """The document as one page. Raises PlanError where plotly is not installed."""
    # of the text output, tables and notes; its chart of characters is left to the figures
    blocks = [block for block in batch_blocks(document) if block.header or block.title == "Notes"]
    title = f"{document.model.title} on {document.gpu_title}: time to the target"
    return whole_page(title, [*curves(document), *blocks])


def curves(document: TimeToTarget) -> list[Chart]:
    """Quantities over the GPUs that fit, one line per regime; those that have no point are left
    out."""
    charts = []
    for key, title, kind, caption in _CURVES:
        lines = [_line(name, regime, key) for name, regime in document.regimes.items()]
        data = [trace for trace in lines if trace["x"]]
        if data:
            across = counted("GPUs", (x for trace in data for x in trace["x"]))
            drawn = figure(data, across, axis(title.lower(), kind))
            charts.append(Chart(key, title, "", drawn, caption=caption))
    return charts


def _line(name: str, regime: Regime, key: str) -> Trace:
    """One quantity of a regime, where it is known."""
    fitting = [point for point in regime.points if point.fits]
    known = [(float(p.value), value) for p in fitting if (value := getattr(p, key)) is not None]
    hover = [f"{x:,g} GPUs: {y:,.4g}" for x, y in known]
    x, y = [x for x, _ in known], [y for _, y in known]
    return line(regime.title, x, y, _COLORS[name], hover, symbol="circle")
