"""Texts that strangers send are read in time proportional to their length, and refused where they
are longer, deeper or larger than anything they could mean."""

from __future__ import annotations

import contextlib
import inspect
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import clock
import pytest
from command import ROOT

from planner import api
from planner.error import PlanError
from planner.inputs.readers import MOST_KEYS, read_json, read_toml, read_yaml
from planner.report import require
from planner.schedules.base import parse_action
from planner.specs.options import Options, Record, Row, commands, own, rows
from planner.specs.options.schema import option_schemas
from planner.specs.where import constraint

LONG = 150_000  # characters: what a posted body holds, and any file
SECONDS = 1.0  # of the processor; what grows with the square takes far longer
TABLES = [Options] + [
    kind
    for module in (own, commands)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, Record) and kind.__module__ == module.__name__
]
PARTS = (*" 1,([-/:\n", "9.", "1_", "1,000,", "(t|)*", "a.", "per ", "²")


def nasty(example: str, length: int) -> Iterator[str]:
    """Texts of this length that make readers go back."""
    for part in PARTS:
        yield (part * length)[:length]
    for begin in filter(None, (example, "tp", "tp <= ")):
        yield (begin + " " * length)[: length - 1] + "x"
        yield (begin + "1" * length)[: length - 1] + "\n"


def read_value(table: type[Record], row: Row, text: str) -> None:
    if table is Options:
        api.read_options({"model": "gpt2", "gpu": "a100", "gpus": 4, row.name: text})
    else:
        given = {row.name: ["x"] for row in rows(table).values() if row.is_needed}
        table(**given | {row.name: [text] if row.is_several else text})


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_no_text_of_an_option_takes_long(table: type[Record]) -> None:
    for row in rows(table).values():
        started = time.process_time()
        for text in nasty(row.says.example, LONG):
            with pytest.raises((PlanError, ValueError)):
                read_value(table, row, text)
        for text in nasty(row.says.example, row.length):
            with contextlib.suppress(PlanError):
                read_value(table, row, text)
        assert clock.ordinary_seconds(time.process_time() - started, SECONDS) < SECONDS, row.name


def test_every_text_has_a_length_in_the_schema() -> None:
    def texts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if schema.get("type") == "string" and "enum" not in schema:
            yield schema
        for inner in (*schema.get("anyOf", ()), schema.get("items", {})):
            yield from texts(inner) if inner else ()

    for table in (Options, own.ScheduleOptions):  # of which the API makes a schema
        for name, schema in option_schemas(table).items():
            for text in texts(schema):
                assert text["maxLength"] == rows(table)[name].length, name


@pytest.mark.parametrize(
    "read", [constraint, require._read, parse_action], ids=lambda r: r.__name__
)
def test_readers_of_conditions_are_linear(read: Callable[[str], Any]) -> None:
    started = time.process_time()
    for text in nasty("", LONG):
        with pytest.raises(ValueError):
            read("x" + text)
    with pytest.raises(ValueError):
        read("(" * 5000 + ";0F0)OVERLAP_F_B" * 5000)
    with pytest.raises(ValueError):
        read("tp <= " + "9" * 4000)
    assert clock.ordinary_seconds(time.process_time() - started, SECONDS) < SECONDS


DIGITS = "1" * 5000
HOSTILE: dict[Callable[[str], Any], list[tuple[str, str]]] = {
    read_toml: [
        ("a." * (LONG // 2), "nested deeper"),
        ('"a".' * (LONG // 4), "nested deeper"),
        ("[" + "a . " * (LONG // 4), "nested deeper"),
        ("a = " + "[" * LONG, "nested deeper"),
        ("\n".join(f"k{i} = 1" for i in range(MOST_KEYS + 1)), "keys"),
        ("a = 0x" + "f" * LONG, "digits"),
        ("a = " + DIGITS, "digits"),
        ("a = nan", "a: nan"),
        ("a = [1, inf]", "a[1]: inf"),
        ("a = 1\na = 2", "Cannot overwrite"),
        ('a = "\\ud800"', "not valid TOML"),
        ("# " + "x" * 600_000, "larger than"),
    ],
    read_json: [
        ("[" * LONG, "nested deeper"),
        ('{"a":' * LONG, "nested deeper"),
        ("[" * 40 + "]" * 40, "nested deeper"),
        ("{" + ",".join(f'"k{i}":1' for i in range(MOST_KEYS + 1)) + "}", "keys"),
        ("{" + ",".join(f'"k{i}":1' for i in range(40_000)) + ',"k39999":2}', "given twice"),
        (DIGITS, "digits"),
        ('{"a": [NaN]}', "a[0]: nan"),
        ("1e400", "inf"),
        ('["\\ud800"]', "surrogate"),
        ('{"\\ud800": 1}', "surrogate"),
    ],
    read_yaml: [
        ("a: " + "[" * LONG, "nested deeper"),
        ("a: " + "{a: " * (LONG // 4), "nested deeper"),
        ("- " * (LONG // 2), "nested deeper"),
        ("a: " + DIGITS, "digits"),
        ("a: .nan", "a: nan"),
        ("a: 1\na: 2", "given twice"),
        ('a: "\\ud800"', "surrogate"),
    ],
}


@pytest.mark.parametrize("read", HOSTILE, ids=lambda read: read.__name__)
def test_a_hostile_document_is_refused_at_once(read: Callable[[str], Any]) -> None:
    for text, sentence in HOSTILE[read]:
        started = time.process_time()
        with pytest.raises(ValueError, match=" ") as refusal:
            read(text)
        assert sentence in str(refusal.value), text[:30]
        assert len(str(refusal.value)) < 1000
        assert clock.ordinary_seconds(time.process_time() - started, SECONDS) < SECONDS, text[:30]


def test_there_is_one_reader_of_toml_and_yaml() -> None:
    sources = [path for folder in ("planner", "web") for path in (ROOT / folder).rglob("*.py")]
    for word in ("tomllib", "yaml"):
        begins = re.compile(rf"^ *(import|from) {word}\b", re.MULTILINE)
        items = {p.name for p in sources if begins.search(p.read_text(encoding="utf-8"))}
        assert items == {"readers.py"}, word
