"""The report of a state: one HTML file that opens and prints anywhere, and that the page reads
back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from planner import __version__
from planner.specs.documents.estimate import Estimate
from planner.specs.options import rows
from planner.units import percent, show
from planner.views.view import words
from web import view
from web.render import rendered
from web.state import SEPARATOR, State
from web.texts import text


def report(estimate: Estimate, state: State) -> str:
    """The whole answer with its inputs, what was assumed, the date and the version."""
    return rendered(
        "report.html",
        a=view.answer(estimate, state),
        l=view.late(estimate, state),
        query=state.query,
        version=__version__,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        inputs=_inputs(state),
        split=[
            (text("report_step"), _parts(estimate.step.components, "s")),
            (text("report_memory"), _parts(estimate.memory.components, "B")),
        ],
    )


def _inputs(state: State) -> list[dict[str, str]]:
    """The request in the words of the form; the rest is named as assumed."""
    table = rows(type(state.options))
    given = {name: value for name, value in state.given.items() if name in table}
    return [
        {
            "label": table[name].says.label or words(name),
            "value": SEPARATOR.join(map(str, value)) if isinstance(value, tuple) else str(value),
            "flag": table[name].flag,
        }
        for name, value in given.items()
    ]


def _parts(components: Mapping[str, float], unit: str) -> list[dict[str, Any]]:
    """Parts of a whole, the largest first, each as long as its share of the largest."""
    shown = sorted(((n, v) for n, v in components.items() if v > 0), key=lambda pair: -pair[1])
    whole, most = sum(v for _, v in shown), max((v for _, v in shown), default=1.0)
    return [
        {
            "name": words(name),
            "shown": show(value, unit),
            "share": percent(value / whole),
            "width": 100 * value / most,
        }
        for name, value in shown
    ]
