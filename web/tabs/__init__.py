"""The tabs of the dashboard: what people come to do.

A tab is a row of tabs.toml, and how it answers, an entry of `web.tabs.answers`: the verb that it
asks, and the view that the command line prints. The route, the form with each field's error beside
it, the navigation and the document over HTTP (`/api/VERB`, typed) come from the row. Every address
holds the whole scenario: what the verb does not take stays in it, and the page says so.

A row without a verb is a page with a route and a template of its own, which extends `base.html`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.inputs.readers import read_toml
from web.state import PAGE
from web.tabs.answers import ANSWERS
from web.tabs.base import Page, Tab

__all__ = ["ANSWERED", "BY_PATH", "TABS", "Page", "Tab"]

_MODEL = {"never": False, "open": None}


def _page(path: str, name: str, **row: Any) -> Page:
    """A row of tabs.toml."""
    if path not in ANSWERS:
        return Page(path, name)
    start = [*(PAGE if row.pop("plan", False) else []), *map(tuple, row.pop("start", []))]
    return Tab(
        path,
        name,
        ANSWERS[path],
        start=start,
        usual=[*map(tuple, row.pop("usual", []))],
        shown=tuple(row.pop("shown")),
        folded=tuple(row.pop("folded", ())),
        alone=frozenset(row.pop("alone", ())),
        of_layout=row.pop("layout", False),
        model=_MODEL.get(row.pop("model", ""), True),
        **row,
    )


TABS: tuple[Page, ...] = tuple(
    _page(**row)
    for row in read_toml(Path(__file__).with_name("tabs.toml").read_text(encoding="utf-8"))["tab"]
)
"""In the order of the navigation."""

BY_PATH = {tab.path: tab for tab in TABS}
ANSWERED = {tab.address: tab for tab in TABS if isinstance(tab, Tab) and tab.documents}
