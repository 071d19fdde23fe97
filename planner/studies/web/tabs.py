"""Tabs of the studies."""

from planner.studies.web import measured, mine

TABS = (mine.TAB, measured.TAB)
