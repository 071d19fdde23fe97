"""Predicted against measured, and where to trust it."""

from __future__ import annotations

from planner.specs.documents.estimate import Estimate
from planner.studies.web import panel as measured
from web.state import PAGE
from web.tabs.base import Asked, Found, Tab, Table


def _find(asked: Asked) -> Estimate:
    from planner import api

    return api.estimate(asked.state.options, brief=True)


def _show(found: Estimate, asked: Asked) -> Found:
    runs = measured.runs()
    trusted = [
        Table(block, marks=tuple("here" if row[1] else "" for row in block.rows))
        for block in measured.trust(asked.state.options)
    ]
    return Found(
        title=f"{len(runs):,} measured runs beside the prediction",
        verdict=f"This plan: {found.step.confidence}",
        command="dpplan validate",
        mark="",
        parts=(measured.chart(asked.state.options), *trusted),
    )


TAB = Tab(
    path="/measured",
    after="/run",
    name="Measured",
    title="Predicted against measured",
    lead=(
        "Every measured run that ships with dpplan, against its prediction. Runs like your plan"
        " are highlighted, and say how far to trust the answer."
    ),
    ask="Show runs like mine",
    shown=("model", "gpu", "gpus"),
    start=PAGE,
    of_layout=True,
    find=_find,
    show=_show,
)
