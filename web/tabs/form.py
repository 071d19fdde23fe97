"""The form of a tab: what was typed, right or wrong, with the error beside its field."""

from __future__ import annotations

from typing import Any

from planner.specs.base import PlanError
from planner.specs.options import Row
from web.forms import field
from web.state import TEXTS, Pairs, typed
from web.tabs.base import Tab, several
from web.texts import text


def form(tab: Tab, pairs: Pairs, error: PlanError | None) -> dict[str, Any]:
    """Fields shown and folded, the error that belongs to none of them, and pasted texts."""
    given: dict[str, list[str]] = {}
    for name, value in pairs:
        if value != "":
            given.setdefault(name, []).append(value)
    wrong = "" if error is None else error.field.removeprefix("--").replace("-", "_")
    pasted = {name: given[name][0] for name in TEXTS if name in given}
    shown, folded = (
        [_field(tab, tab.row(name), given.get(name, []), pasted) for name in names]
        for names in (tab.shown, tab.folded)
    )
    beside = ""
    for one in (*shown, *folded):
        if error is not None and one["name"] == wrong and not beside:
            one["error"] = beside = _said(error)
    return {
        "shown": shown,
        "folded": folded,
        "open": any(one["set"] or one["error"] for one in folded),
        "problem": "" if error is None or beside else str(error),
        "pasted": pasted,
        # what the address asks beside the fields stays asked
        "kept": _kept(tab, given),
    }


def _field(tab: Tab, row: Row, texts: list[str], pasted: dict[str, str]) -> dict[str, Any]:
    """One field with what was typed into it, be it what it takes or not."""
    said = texts[0] if texts else ""
    out = field(row, typed(row, said) if said else _start(row), pasted.get("config"))
    if said and out["kind"] == "text":
        out["value"] = "; ".join(texts) if row.is_several else said
    if several(tab, row):
        known = [choice["value"] for choice in out["choices"]]
        more = [{"value": one, "label": one} for one in texts if one not in known]
        out |= {
            "kind": "several",
            "choices": [*out["choices"], *more],
            "values": texts,
            "auto": text("all_kinds"),
        }
    return {**out, "set": bool(said), "error": ""}


def _start(row: Row) -> Any:
    return None if row.is_needed else row.default


def _kept(tab: Tab, given: dict[str, list[str]]) -> list[tuple[str, str]]:
    fields = {*tab.shown, *tab.folded, *TEXTS}
    return [(name, one) for name, many in given.items() if name not in fields for one in many]


def _said(error: PlanError) -> str:
    """The error without the name of the field that it stands beside."""
    return str(error).removeprefix(f"{error.field}: ")
