"""Rows of options.json match fields of option records, with valid cells."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import pytest
from command import ROOT
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from planner import plugins
from planner.specs import options
from planner.specs.options import Group, Record, option, rows, table

_NAMED = dict.fromkeys(("verbs", "several", "needs", "read", "group", "aliases"), str)
_NUMBERS = dict.fromkeys(("least", "most", "length"), int | float | str)
_LISTS: dict[str, Any] = {
    **dict.fromkeys(("needs_unit", "strategies"), list[str]),
    "free": bool | Literal["words"] | list[Any],
}


def _records(base: type) -> dict[tuple[Path, str], type]:
    """Records by their name in the file beside their module."""
    out: dict[tuple[Path, str], type] = {}
    each: type
    for each in base.__subclasses__():
        out |= _records(each)
        out[table.file_of(each), table.key(each)] = each
    return out


FILES = sorted((ROOT / "planner").rglob("options.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_every_section_is_a_record_and_every_row_a_line(file: Path) -> None:
    for module in (*pkgutil.iter_modules(options.__path__), *plugins.modules("options")):
        if isinstance(module, pkgutil.ModuleInfo):
            import_module(f"{options.__name__}.{module.name}")
    records, sections = _records(Record), table.tables(file)
    for name, section in sections.items():
        fields = rows(records[file, name])
        assert [*section] == [each for each in fields if each in section], name
    lines = file.read_text("utf-8").splitlines()
    named = [name for section in sections.values() for name in section]
    assert len(lines) == 2 * len(sections) + len(named) + 2
    assert [line.split('"')[1] for line in lines if line.startswith(" " * 4)] == named


def test_every_column_has_its_type() -> None:
    hints = {name: each for name, each in get_type_hints(option).items() if name not in _NAMED}
    make: Any = TypedDict
    row: Any = make("Row", {**hints, **_NAMED, **_NUMBERS, **_LISTS}, total=False)
    row.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    rows_of: TypeAdapter[Any] = TypeAdapter(row)
    for section in (entry for file in FILES for entry in table.tables(file).values()):
        for each in section.values():
            rows_of.validate_python(each)


ROW = {"help": "Made up"}
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no row": ({}, r"made_up has no row: add it to options\.json"),
    "no field": ({"made_up": ROW, "other": ROW}, "has no field other"),
    "column": ({"made_up": {**ROW, "lest": 1}}, "made_up has no column lest"),
    "condition": ({"made_up": {**ROW, "needs": "OF_NOBODY"}}, "made_up refers to no OF_NOBODY"),
    "reader": ({"made_up": {**ROW, "read": "nobody"}}, "made_up refers to no nobody"),
    "bound": ({"made_up": {**ROW, "most": "MOST_NONE"}}, "made_up refers to no MOST_NONE"),
    "verbs": ({"made_up": {**ROW, "verbs": "REQUESTS - NONE"}}, "made_up refers to no NONE"),
    "verb": ({"made_up": {**ROW, "verbs": "REQUESTS - estimat"}}, "made_up refers to no estimat"),
    "text": ({"made_up": {**ROW, "why_not": "is {NOTHING}"}}, "made_up refers to no NOTHING"),
    "words": ({"made_up": {**ROW, "aliases": "NOTHING"}}, "made_up refers to no NOTHING"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_error(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class MadeUp(Record):
        GROUP: ClassVar = Group("made", "Made up")

        made_up: int = 1

    section, text = FAULTS[fault]
    tables = {table.key(MadeUp): section}
    monkeypatch.setattr(table, "tables", lambda file: tables)
    with pytest.raises(TypeError, match=text):
        rows(MadeUp)
    tables[table.key(MadeUp)] = {"made_up": ROW}
    assert rows(MadeUp)["made_up"].says.help == "Made up"


def test_a_default_is_of_the_type_of_its_field() -> None:
    @dataclass(frozen=True, kw_only=True)
    class MadeUp(Record):
        GROUP: ClassVar = Group("made", "Made up")

        made_up: Annotated[int | None, option("Made up")] = "1"  # type: ignore[assignment]

    with pytest.raises(TypeError, match=r"MadeUp\.made_up is .*, not '1'"):
        rows(MadeUp)
