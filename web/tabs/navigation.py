"""The bar of tabs, each with the values that it takes over from the page it stands on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from planner.specs.options import Options, rows
from web import limits
from web.state import TEXTS, Pairs
from web.tabs import BY_PATH, TABS, Page, Tab


def navigation(path: str, pairs: Pairs) -> list[dict[str, Any]]:
    """Every tab as the template takes it; path: of the page that is shown. A pasted text is left
    to the script, which adds it to the one that is chosen: each would repeat it."""
    page = BY_PATH.get(path)
    mine = set(page.own) if isinstance(page, Tab) else set()  # which mean something else elsewhere
    return [
        {
            "path": tab.path,
            "name": tab.name,
            "current": tab is page,
            "href": _address(tab.path, pairs, taken),
            "carries": " ".join((*taken, *TEXTS)),
        }
        for tab in TABS
        for taken in [[name for name in _carried(tab) if name not in mine]]
    ]


def _carried(tab: Page) -> Iterable[str]:
    return rows(Options) if tab.carries is None else tab.carries


def _address(path: str, pairs: Pairs, names: Sequence[str]) -> str:
    kept = [(name, text) for name, text in pairs if text and name in names and name not in TEXTS]
    query = urlencode(kept[: limits.MOST_PAIRS])
    return f"{path}?{query}" if query else path
