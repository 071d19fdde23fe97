"""The bar of lenses and their pages, each with the scenario of the page that it stands on."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from planner.specs.options import Options, rows
from web import limits
from web.state import MARK, TEXTS, Pairs, stated
from web.tabs import BY_PATH, TABS, Tab
from web.tabs.strip import chips


def navigation(path: str, pairs: Pairs) -> dict[str, Any]:
    """Every tab as the template takes it; path: of the page that is shown. `own`: names of its
    address that mean nothing elsewhere. A pasted text is left to the script, which adds it to the
    link that is chosen: each would repeat it."""
    page = BY_PATH.get(path)
    table = rows(Options)
    names = (
        set(page.own_rows) - (table.keys() - {"reference"}) if isinstance(page, Tab) else set[str]()
    )
    carried: Pairs = []
    for name, text in stated(pairs):
        row = table.get(name.removeprefix(MARK))
        again = row is not None and not row.is_several and name in dict(carried)  # of many to try
        if row is not None and not again and name not in names and name not in TEXTS:
            carried.append((name, text))
    query = urlencode(carried[: limits.MOST_PAIRS])
    entries: list[dict[str, Any]] = [
        {
            "path": tab.path,
            "name": tab.name,
            "lens": tab.lens,
            "carried": tab.carried,
            "current": tab is page,
            "href": f"{tab.path}?{query}" if query and tab.carried else tab.path,
        }
        for tab in TABS
    ]
    lenses: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        lenses.setdefault(entry["lens"], []).append(entry)
    return {
        "path": path,
        "chips": chips(path, pairs) if path else [],
        "own": " ".join(names),
        "tabs": entries,
        "lenses": [
            (name, within, any(entry["current"] for entry in within))
            for name, within in lenses.items()
        ],
    }
