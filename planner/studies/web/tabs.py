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
            lambda asked: estimate(asked.state.options, brief=True),
            lambda found, asked: panel.view(found, asked.state.options),
            lambda found, asked: "dpplan validate",
        ),
    },
)
