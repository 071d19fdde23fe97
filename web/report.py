"""The report of a state: the page of `dpplan estimate --html` without its script, which the page
reads back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from planner import __version__
from planner.specs.documents.estimate import Estimate
from planner.views import full
from planner.views.page import sheet
from planner.views.view import with_doubts
from web.state import State
from web.texts import text


def report(estimate: Estimate, state: State) -> str:
    """The whole answer with its inputs, what was assumed, the date and the version."""
    view = with_doubts(full.view(estimate), estimate)
    origin = text("report_made", version=__version__, date=f"{datetime.now(UTC):%Y-%m-%d}")
    view = replace(view, text=[origin, text("report_load")])
    return sheet(view, estimate.command, state.query)
