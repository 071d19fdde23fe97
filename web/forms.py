"""The form: the option table as fields, group by group. Plain fields; sliders are made of them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import takewhile
from typing import Any

from planner import api
from planner.specs.options import Group, Options, Row, rows
from planner.views.view import words
from web.panels.legal import Choice
from web.state import DEFAULT, SEPARATOR, START, State, catalogue_id
from web.texts import text

# groups in the order in which a person thinks of them; others follow
_ORDER = ("model", "cluster", "training", "layout", "stack", "run", "ranks", "data")
_CHOSEN = ("model", "gpu")  # once one is chosen, another replaces it: the list has no empty entry
# a stage by its number says little
_WORDS = {
    ("zero", 0): "0: replicated",
    ("zero", 1): "1: optimizer",
    ("zero", 2): "2: and gradients",
    ("zero", 3): "3: and parameters (FSDP)",
}


def groups_of(record: type[Options]) -> list[tuple[Group, list[Row], list[Row]]]:
    """(group, rows shown at once, rows folded) of every option that the form offers."""
    by_group: dict[str, tuple[Group, list[Row], list[Row]]] = {}
    for row in rows(record).values():
        if row.says.form != "absent":
            _, shown, folded = by_group.setdefault(row.group.name, (row.group, [], []))
            (shown if row.says.form == "shown" else folded).append(row)
    place = {name: i for i, name in enumerate(_ORDER)}
    return sorted(by_group.values(), key=lambda part: place.get(part[0].name, len(place)))


def form(
    state: State, choices: dict[str, list[Choice]], layout: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(groups of fields for the template, choices by field for the script)."""
    groups: list[dict[str, Any]] = []
    for group, shown, folded in groups_of(Options):
        values = {
            row.name: _field(
                row, getattr(state.options, row.name), state.config, choices.get(row.name), layout
            )
            for row in (*shown, *folded)
        }
        for name in values.keys() & START.keys():  # what the page itself begins with
            shown_as = str(START[name])
            is_default = state.marks.get(name, "").startswith(DEFAULT)
            values[name] |= {"start": shown_as, "default": shown_as if is_default else ""}
        more = [values[row.name] for row in folded]
        groups.append(
            {
                "name": group.name,
                "title": group.title,
                "hint": group.hint,
                "fields": [values[row.name] for row in shown],
                "more": more,
                "open": any(field["value"] != field["start"] for field in more),
            }
        )
    fields = [field for group in groups for field in [*group["fields"], *group["more"]]]
    # what the catalogue offers never changes with the state
    legal = {f["name"]: f["choices"] for f in fields if f["choices"] and not f["families"]}
    return groups, legal


def field(row: Row, value: Any, config: str | None = None) -> dict[str, Any]:
    """A field outside the form of the page, with the value of its option."""
    result = _field(row, value, config, None, {})
    # pasted texts have no place of their own there
    chosen = row.name == "model" and result["value"]
    return {**result, "auto": ""} if chosen else result


def _field(
    row: Row, value: Any, config: str | None, offered: list[Choice] | None, layout: dict[str, Any]
) -> dict[str, Any]:
    default = "" if row.is_needed or row.default in (None, False, ()) else _text(row.default)
    out: dict[str, Any] = {
        "name": row.name,
        "label": row.says.label or words(row.name).capitalize(),
        "help": row.says.help,
        "kind": "text",
        "choices": [],
        "families": None,  # choices by family, where the catalogue has them
        "slider": row.says.slider,
        "value": "" if value is None or value == row.default else _text(value),
        "default": default,  # what leaving it out means
        "start": "",  # what it shows then
        "placeholder": row.unset or (f"e.g. {row.says.example}" if row.says.example else ""),
        "auto": "",
    }
    if row.is_catalogued:
        return out | _listed_field(row, value, config)
    if offered is None and (row.choices or row.is_switch):
        offered = [Choice(choice, None) for choice in row.choices or (True, False)]
    if default and (offered is not None or row.says.form == "shown"):
        out["start"], out["value"] = default, _text(value)
    if offered is None:
        return out
    out["kind"] = "select"
    out["choices"] = [
        {"value": _text(c.value), "label": _label(row.name, c.value), "reason": c.reason}
        for c in offered
    ]
    out["auto"] = "" if default else _auto(row.name, layout)
    if out["value"] and out["value"] not in [c["value"] for c in out["choices"]]:
        out["choices"].append({"value": out["value"], "label": out["value"], "reason": None})
    return out


@cache
def _listed(catalogue: str) -> tuple[tuple[str, str], ...]:
    """(id, title) of every entry of the catalogue that an input offers."""
    kind, _, scope = catalogue.partition("/")
    entries = api.list_catalog(kind)
    return tuple((e.id, e.title) for e in entries if not scope or getattr(e, "scope", "") == scope)


def _listed_field(row: Row, value: str | None, config: str | None) -> dict[str, Any]:
    entries = [
        {"value": i, "label": title, "reason": None} for i, title in _listed(row.says.catalogue)
    ]
    pasted = row.name == "model" and bool(config)
    chosen = catalogue_id(row, value)
    shown = "" if value is None else chosen or ("" if pasted else value)
    if shown and shown not in [c["value"] for c in entries]:
        entries.insert(0, {"value": shown, "label": shown, "reason": None})
    optional = value is None or row.name not in _CHOSEN
    auto = text("config_chosen") if row.name == "model" else text("usual") if optional else ""
    return {
        "kind": "select",
        "choices": entries,
        "families": _families(entries) if row.name == "model" else [("", entries)],
        "value": shown,
        "auto": auto,
    }


def _families(entries: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """(family, choices) by the words that titles begin with; the only model of a family last."""
    by: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        first = entry["label"].split()[0]
        letters = re.match(r"[^\W\d]{2,}", first)
        by.setdefault((letters.group() if letters else first).casefold(), []).append(entry)
    several, alone = [], []
    for members in by.values():
        if len(members) == 1:
            alone += members
            continue
        words = zip(
            *(re.findall(r"[^\W\d]{2,}", member["label"]) for member in members), strict=False
        )
        same = takewhile(lambda each: len({word.casefold() for word in each}) == 1, words)
        name = " ".join(Counter(each).most_common(1)[0][0] for each in same)
        name = name or members[0]["label"].split()[0]
        several.append((name, sorted(members, key=_natural)))
    several.sort(key=lambda family: family[0].casefold())
    return [*several, *([(text("other_models"), alone)] if alone else [])]


def _natural(entry: dict[str, Any]) -> list[tuple[float, str]]:
    """Order of titles in which 7B comes before 13B."""
    parts = re.split(r"(\d+(?:\.\d+)?)", entry["label"].casefold())
    return [(float(p), "") if i % 2 else (0.0, p) for i, p in enumerate(parts)]


def _auto(name: str, layout: dict[str, Any]) -> str:
    """Label of "auto": with what the search chose, where it is known."""
    if layout.get(name) is None:
        return text("auto")
    return text("auto_is", value=_label(name, layout[name]))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return SEPARATOR.join(value) if isinstance(value, tuple) else str(value)


def _label(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return text("yes") if value else text("no")
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    return _WORDS.get((name, value), shown)
