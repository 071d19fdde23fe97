"""The tabs of the dashboard: what people come to do, each an entry of TABS.

How a tab is added:

1. A module of this folder declares one `Tab`: its path, the words of its form, the verb that
   answers, the verb's own option records, which options the form shows at once and which folded,
   what the form begins with, and two functions. `find` asks the verb; `show` makes the page of what
   was found: a verdict, and tables and charts in order (`Found`). Tables are the blocks of the
   command line, so that page and terminal say the same numbers; `Table.commands` and `Table.links`
   say where each row leads.
2. The module's `TAB` is named below, where it stands in the navigation. A part of the planner that
   may be left out has its own in TABS of `web/tabs.py` in its folder, each `after` another.

The route, the form with each field's error beside it, the navigation and the document over HTTP
(`/api/VERB`, typed) come from the entry. Every address holds the whole scenario: what the verb does
not take stays in it, and the page says so.

A page with a route and a template of its own is a `Page` in TABS: its template extends `base.html`
and is rendered with `page=PATH`.
"""

from __future__ import annotations

from collections.abc import Iterable

from planner import plugins
from web.tabs import allreduce, batch, loading, recommend, schedule, strategies, sweep, tune
from web.tabs.base import Page, Tab

__all__ = ["ANSWERED", "BY_PATH", "PLAN", "TABS", "Page", "Tab"]

PLAN = Page(path="/", name="Plan")

_CORE: tuple[Page, ...] = (
    PLAN,
    recommend.TAB,
    batch.TAB,
    sweep.TAB,
    strategies.TAB,
    allreduce.TAB,
    tune.TAB,
    schedule.TAB,
    loading.TAB,
)


def _placed(pages: Iterable[Page]) -> tuple[Page, ...]:
    """The tabs of the core, and each of these pages behind the one that it names, or last."""
    out = list(_CORE)
    for page in pages:
        before = next((i for i, one in enumerate(out) if one.path == page.after), len(out) - 1)
        out.insert(before + 1, page)
    return tuple(out)


TABS = _placed(page for part in plugins.modules("web.tabs") for page in part.TABS)
"""In the order of the navigation."""

BY_PATH = {tab.path: tab for tab in TABS}
ANSWERED = {tab.address: tab for tab in TABS if isinstance(tab, Tab) and tab.documents}
