"""The form is the option table: every field is there, keeps what it is given, and a new option
needs no second entry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Annotated, Any
from urllib.parse import parse_qs

import pytest
from fastapi.testclient import TestClient

from planner.specs.options import Group, Options, option, rows
from web import tasks
from web.app import app
from web.forms import form, groups_of
from web.state import State

REQUEST = {"model": "gpt2", "gpu": "a100-sxm4-80gb", "gpus": "16"}
_TURNS = 20
# a dataset sets the lengths of documents
FIELDS = [
    row for row in rows(Options).values() if row.says.form != "absent" and row.name != "lengths"
]


class Form(HTMLParser):
    """The value of each control, as a browser would send it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._select = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "input" and given.get("name"):
            self.values[str(given["name"])] = given.get("value") or ""
        elif tag == "select":
            self._select = str(given["name"])
            self.values[self._select] = ""
        elif tag == "option" and "selected" in given:
            self.values[self._select] = given.get("value") or ""


def page_of(given: dict[str, str]) -> tuple[Form, dict[str, Any]]:
    """(controls, document) of the form of a state."""
    document = json.loads(tasks.inputs(list(given.items())))
    return Form(document["form"]), document


@pytest.mark.parametrize("first", range(_TURNS))
def test_a_field_keeps_what_it_is_given(first: int) -> None:
    """Every twentieth field at a time: a form takes a quarter of a second."""
    some = FIELDS[first::_TURNS]
    controls, document = page_of(REQUEST | {row.name: row.says.example for row in some})
    # what the page sends back is the same state: ids stand for aliases
    again, _ = page_of({n: value for n, value in controls.values.items() if value})
    assert again.values == controls.values
    for row in some:
        kept = parse_qs(document["query"])[row.name]
        shown = controls.values[row.name]
        assert shown != "", row.name
        assert len(kept) == 1, row.name
        if not row.is_catalogued:
            assert shown == kept[0]


def test_every_option_of_the_form_has_a_label_and_the_sentence_of_the_table() -> None:
    _, document = page_of(REQUEST)
    for row in FIELDS:
        assert row.says.label
        assert f'for="f-{row.name}">{row.says.label}<' in document["form"]
    assert [row.name for row in FIELDS if row.says.slider] != []


def test_the_link_to_host_memory_does_not_lose_the_form() -> None:
    with TestClient(app, "http://localhost") as client:
        given = REQUEST | {"host_link": "pcie4"}
        answer = client.get("/page/form", params=given)
    assert answer.status_code == 200
    assert answer.json()["choices"]
    assert page_of(given)[0].values["host_link"] == "pcie4"


@dataclass(frozen=True, kw_only=True)
class More(Options):
    """The option table with one more option."""

    made_up: Annotated[
        str | None,
        option(
            "Time that nobody needs",
            label="Made up",
            unit="s",
            example="3 s",
            group=Group("made", "Made up"),
            form="shown",
        ),
    ] = None


def test_a_new_option_of_the_table_is_on_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    (group, shown, folded) = groups_of(More)[-1]
    assert (group.title, [row.name for row in shown], folded) == ("Made up", ["made_up"], [])
    monkeypatch.setattr("web.forms.Options", More)
    groups, _ = form(State(More(model="gpt2", gpu="a100", made_up="4 s")), {}, {})
    (field,) = groups[-1]["fields"]
    assert (field["label"], field["value"], field["placeholder"]) == ("Made up", "4 s", "e.g. 3 s")
