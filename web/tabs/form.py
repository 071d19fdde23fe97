"""The form of a tab: what was typed, right or wrong, with the error beside its field."""

from __future__ import annotations

from typing import Any

from planner.specs.base import PlanError
from planner.specs.options import Options, Row
from planner.specs.options.tune import ANY
from web.forms import field, groups_of
from web.state import TEXTS, Pairs, catalogue_id, typed
from web.tabs.base import Tab, several
from web.texts import text


def form(tab: Tab, pairs: Pairs, error: PlanError | None) -> dict[str, Any]:
    """Fields shown and folded, the error that belongs to no field, and pasted texts."""
    given: dict[str, list[str]] = {}
    freed = tab.freed(pairs)
    for name, value in pairs:
        if value != "" and (name not in freed or name not in (*tab.shown, *tab.folded)):
            given.setdefault(name, []).append(value)
    wrong = "" if error is None else error.field.removeprefix("--").replace("-", "_")
    pasted = {name: given[name][0] for name in TEXTS if name in given}
    shown, folded = (
        [_field(tab, tab.row(name), given.get(name, []), pasted) for name in names]
        for names in (tab.shown, tab.folded)
    )
    rest = _rest(tab, pairs, given, pasted)
    beside = ""
    for entry in (*shown, *folded, *(entry for group in rest for entry in group["fields"])):
        if error is not None and entry["name"] == wrong and not beside:
            entry["error"] = beside = error.sentence
    return {
        "shown": shown,
        "folded": folded,
        "rest": rest,
        "open": any(name["set"] or name["error"] for name in folded),
        "problem": "" if error is None or beside else str(error),
        "pasted": pasted,
        # what the address asks beside the fields stays asked
        "kept": _kept(given, {entry["name"] for entry in shown + folded}, rest),
    }


def _rest(
    tab: Tab, pairs: Pairs, given: dict[str, list[str]], pasted: dict[str, str]
) -> list[dict[str, Any]]:
    """The other inputs of a plan that the verb takes, by group; a default is the empty choice, so
    that sending the form states only what was chosen."""
    without = {*tab.shown, *tab.folded, *tab.left(pairs), *tab.own_rows, *tab.freed(pairs)}
    groups = []
    for group, *parts in groups_of(Options):
        fields = []
        for row in (row for part in parts for row in part if row.name not in without):
            out = _field(tab, row, given.get(row.name, []), pasted)
            if not out["set"] and out["value"] and out["kind"] == "select":
                names = {choice["value"]: choice["label"] for choice in out["choices"]}
                out |= {"auto": names.get(out["value"], out["value"]), "value": ""}
            elif not out["set"]:
                out["value"] = ""
            fields.append(out)
        if fields:
            groups.append({"title": group.title, "fields": fields})
    return groups


def _field(tab: Tab, row: Row, texts: list[str], pasted: dict[str, str]) -> dict[str, Any]:
    """One field with what was typed into it, be it what it takes or not."""
    sentence = texts[0] if texts else ""
    out = field(row, typed(row, sentence) if sentence else _start(row), pasted.get("config"))
    if sentence and out["kind"] == "text":
        out["value"] = "; ".join(texts) if row.is_several else sentence
    if several(tab, row):
        texts = [catalogue_id(row, value) or value for value in texts]
        if row.name == "gpu" and tab.verb == "tune":
            every = {"value": ANY, "label": text("any_kind")}
            out["choices"] = [every, *out["choices"]]
        known = [choice["value"] for choice in out["choices"]]
        more = [{"value": value, "label": value} for value in texts if value not in known]
        out |= {
            "kind": "several",
            "choices": [*out["choices"], *more],
            "values": texts,
            "auto": text("all_kinds"),
            "said": ", ".join(c["label"] for c in [*out["choices"], *more] if c["value"] in texts),
        }
    elif row.name in tab.answers.choices:
        out |= _listed(tab.answers.choices[row.name](), sentence, out["placeholder"])
    if row.is_switch and row.default is False:
        yes = [choice for choice in out["choices"] if choice["value"] == "true"]
        out |= {"choices": yes, "auto": text("no")}
    if row.name == "model" and tab.model is None and not pasted:
        out |= {"auto": text("no_model")}
    if tab.files:  # which say what is left open here
        out |= {"auto": text("as_files"), "placeholder": text("as_files"), "default": ""}
        out |= {"start": "", "value": out["value"] if sentence else ""}
    # only the plan's form has sliders, where each move is answered
    return {**out, "set": bool(sentence), "error": "", "slider": False}


def _listed(choices: list[tuple[str, str]], sentence: str, unset: str) -> dict[str, Any]:
    """A field whose values are a list here."""
    known = [
        *choices,
        *([(sentence, sentence)] if sentence and sentence not in dict(choices) else []),
    ]
    offered = [{"value": value, "label": label, "reason": None} for value, label in known]
    return {"kind": "select", "choices": offered, "value": sentence, "auto": unset or text("auto")}


def _start(row: Row) -> Any:
    return None if row.is_needed else row.default


def _kept(
    given: dict[str, list[str]], names: set[str], rest: list[dict[str, Any]]
) -> list[tuple[str, str]]:
    fields = {*names, *TEXTS, *(entry["name"] for group in rest for entry in group["fields"])}
    return [(name, value) for name, many in given.items() if name not in fields for value in many]
