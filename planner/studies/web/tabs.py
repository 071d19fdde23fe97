"""Tabs of the studies: a run of one's own, and all that ship."""

from __future__ import annotations

from planner.studies.web import mine, panel
from planner.verbs.estimate import estimate
from web.tabs.base import Answers, pages_of

TABS = pages_of(
    __file__,
    {
        "/run": mine.ANSWERS,
        "/measured": Answers(
            lambda request: estimate(request.state.options, brief=True),
            lambda report, request: panel.view(report, request.state.options),
            lambda report, request: "dpplan validate",
        ),
    },
)
