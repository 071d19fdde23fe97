"""The tabs of the dashboard: what people come to do.

A tab is a row of tabs.toml, and how it answers, an entry of `web.tabs.answers`: the verb that it
asks, and the view that the command line prints. The route, the form with each field's error beside
it, the navigation and the document over HTTP (`/api/VERB`, typed) come from the row. Every address
holds the whole scenario: what the verb does not take stays in it, and the page says so. A part of
the planner that may be left out has the same two of its own, in TABS of `web/tabs.py` in its
folder; each row says `after` which tab it stands.

A row without an answer is a page with a route and a template of its own, which extends `base.html`.
"""

from __future__ import annotations

from collections.abc import Iterable

from planner import plugins
from web.tabs.answers import ANSWERS
from web.tabs.base import Page, Tab, pages_of

__all__ = ["ANSWERED", "BY_PATH", "STEPS", "TABS", "Page", "Tab"]


def _placed(pages: Iterable[Page]) -> tuple[Page, ...]:
    """The tabs of the core, and each of these pages behind the one that it names, or last."""
    out = list(pages_of(__file__, ANSWERS))
    for page in pages:
        before = next((i for i, entry in enumerate(out) if entry.path == page.after), len(out) - 1)
        out.insert(before + 1, page)
    return tuple(out)


_PAGES = _placed(page for part in plugins.modules("web.tabs") for page in part.TABS)

BY_PATH = {tab.path: tab for tab in _PAGES}
TABS = tuple(tab for tab in _PAGES if tab.within not in BY_PATH)
"""In the order of the navigation."""

STEPS = tuple(tab for tab in _PAGES if tab.within in BY_PATH)
"""Shown as steps of another page, to which their addresses lead."""

ANSWERED = {tab.address: tab for tab in _PAGES if isinstance(tab, Tab) and tab.documents}
