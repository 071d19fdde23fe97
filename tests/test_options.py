"""The option table: what is declared once appears everywhere."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from command import ROOT, dpplan, python, refused

from planner.cli.group import Commands
from planner.specs.base import PlanError
from planner.specs.options import Options, Row, rows
from planner.specs.options.checked import from_text
from planner.specs.options.numbers import number
from planner.specs.options.schema import from_example, scenario_schema
from planner.specs.options.verbs import INPUT, LINKS, REQUESTS

# one more entry of the table, and everything that is made of it
ADDED = """
import dataclasses, json, sys
from typing import Annotated
sys.path.insert(0, "docs")
from planner.specs import options
from planner.specs.options.verbs import REQUESTS
record = options.Options
record.origins = dataclasses.field(default_factory=dict, compare=False)
record.spelled = dataclasses.field(default=(), compare=False)
record.undecided = dataclasses.field(default_factory=dict, compare=False)
record.__annotations__ = {**record.__annotations__, "made_up": Annotated[str | None, options.option(
    "Made up for a test", label="Made up", unit="B/s", needs_unit=("GB/s",), least=1e3, most=1e15,
    example="3 GB/s", group=options.rows(record)["tp"].group, verbs=REQUESTS - {"schedule"},
)]}
record.made_up = None
del record.__init__, record.__setattr__, record.__delattr__, record.__hash__
dataclasses.dataclass(frozen=True, kw_only=True)(record)
options.table._rows.cache_clear()

from typer.testing import CliRunner
from planner.cli.app import app
from planner.inputs.options import read_options
from planner.specs.options.numbers import number
from planner.inputs.scenario_file import read
from planner.specs.options.schema import scenario_schema
from planner.verbs.compare.dimensions import swept
from pages.options import request as documented

def help_of(verb):
    return CliRunner().invoke(app, [verb, "--help", "all"]).stdout

given = read(sys.argv[1])
print(json.dumps({
    "help": {verb: "--made-up" in help_of(verb) for verb in ("estimate", "compare", "schedule")},
    "read": number(read_options(given), "made_up"),
    "schema": "made_up" in scenario_schema()["properties"],
    "swept": [value.number for value in swept("made_up=2..8 GB/s").values],
    "documented": "`--made-up`" in documented(),
}))
"""


def test_an_entry_of_the_table_appears_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text('model = "gpt2"\nmade-up = "4 GB/s"\n')
    answer = python(ADDED, str(file))
    assert answer.status == 0, answer.stderr
    assert json.loads(answer.stdout) == {
        "help": {"estimate": True, "compare": True, "schedule": False},
        "read": 4e9,
        "schema": True,
        "swept": [2.0, 4.0, 8.0],
        "documented": True,
    }


@pytest.mark.parametrize("row", rows(Options).values(), ids=lambda row: row.name)
def test_an_entry_says_what_it_is(row: Row) -> None:
    says = row.says
    assert says.label
    assert says.help[0].isupper() or says.help[0].isdigit()
    assert not says.help.endswith(".")
    assert row.verbs <= REQUESTS | LINKS | INPUT
    assert row.verbs >= REQUESTS or says.why_not or len(row.verbs) <= 2, "why do others not?"
    options = Options(**{"model": "gpt2", row.name: from_example(row)})
    if says.unit and not says.catalogue:
        value = number(options, row.name)
        assert value is not None
        assert value >= 0


def test_examples_are_what_the_schema_allows() -> None:
    schema = scenario_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    check.validate({name: from_example(row) for name, row in rows(Options).items()})
    for file in (ROOT / "docs/examples").glob("*.toml"):
        if file.stem in ("scenario", "preflight"):
            check.validate(tomllib.loads(file.read_text(encoding="utf-8")))
    assert not check.is_valid({"model": "gpt2", "gpuss": 8})
    assert not check.is_valid({"model": "gpt2", "gpus": "8"})
    assert not check.is_valid({"model": "gpt2", "schedule": "1f2b"})


def test_the_schema_that_ships_is_printed_by_the_command() -> None:
    shipped = (ROOT / "docs/scenario.schema.json").read_text(encoding="utf-8")
    assert dpplan("schema").json() == json.loads(shipped)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"gpus": True}, "--gpus"),
        ({"gpus": 0}, "between 1 and 1,000,000"),
        ({"model": ""}, "must not be empty"),
        ({"price": "x" * 300}, "longer than 200 characters"),
        ({"where": 3}, "or a list of them"),
        ({"recompute": "some"}, "must be none, selective"),
    ],
)
def test_options_are_checked_when_they_are_made(given: dict[str, object], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        Options(**{"model": "gpt2", **given})  # type: ignore[arg-type]


def test_a_text_is_read_as_its_option_has_it() -> None:
    table = rows(Options)
    assert from_text(table["gpus"], "16") == 16
    assert from_text(table["clock"], "0.8") == 0.8
    assert from_text(table["flash_attention"], "false") is False
    with pytest.raises(ValueError, match="whole number"):
        from_text(table["gpus"], "many")


def test_help_shows_defaults_by_group() -> None:
    text = " ".join(dpplan("recommend", "--help").stdout.split())
    assert "Limits:" in text
    assert "--max-gpus <int> GPUs of the cluster, at most [default: 16384; tune: --gpus]" in text
    assert "--jobs" not in text  # as set by few
    assert "--tp <int> Tensor-parallel degree [default: searched]" in text


def test_help_is_short_and_shows_groups_on_request() -> None:
    short, every = (dpplan("estimate", "--help", *more).stdout for more in ((), ("all",)))
    for row in rows(Options).values():
        assert (f"{row.flag} " in short) == bool(row.says.brief), row.flag
        assert f"{row.flag} " in every or "estimate" not in row.verbs, row.flag
    assert "zero-3" not in every  # synonyms are in docs/reference/options.md
    layout = dpplan("estimate", "--help", "layout").stdout
    assert "--vpp" in layout
    assert "--gpu " not in layout
    assert "one of 1f1b, breadth-first" in " ".join(layout.split())
    assert dpplan("help", "layout").stdout == dpplan("help", "estimate", "layout").stdout == layout
    assert dpplan("estimate", "--tp", 2, "--help-all").stdout == every
    assert dpplan("help", "estimate").stdout == short
    assert dpplan("help").stdout == dpplan("--help").stdout
    refused(dpplan("estimate", "--help", "lay"), "--help", "unknown group 'lay'", "layout")


@pytest.mark.parametrize("verb", sorted({name.split()[0] for name in REQUESTS}))
def test_short_help_fits_a_screen_at_100_columns(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = Commands(name="dpplan").get_command(None, verb)
    context = command.context_class(command, info_name=verb, max_content_width=100)
    lines = command.get_help(context).splitlines()
    assert len(lines) <= (50 if verb in ("estimate", "search") else 60)
    options = lines[lines.index("Common options:") :]
    assert all(len(line) <= 100 for line in options)
    assert [line for line in options if line.startswith(" " * 10)] == []


def test_what_a_verb_does_not_take_says_why() -> None:
    answer = dpplan("schedule", "--pp", 4, "--jitter", "1%")
    refused(answer, "--jitter", "changes whole steps", "leave it out of `dpplan schedule`")
    assert "--jitter" not in dpplan("schedule", "--help", "all").stdout
