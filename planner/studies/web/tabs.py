"""Tabs of the studies: a run of one's own, with the measured runs like it."""

from __future__ import annotations

from planner.studies.web import mine
from web.tabs.base import pages_of

TABS = pages_of(__file__, {"/run": mine.ANSWERS})
