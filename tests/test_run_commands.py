"""Every measured run that ships has a command, and that command gives the number that is scored."""

from __future__ import annotations

import shlex
from itertools import chain
from pathlib import Path

import pytest
from command import dpplan

from planner.inputs.options import read_options
from planner.specs.options import Options, command_line, options_of_command, refuse
from planner.studies.runs.read import read
from planner.studies.validate import as_recipe, memory
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.reinforcement import is_phased
from planner.studies.validate.rows import SHIPPED, read_rows
from planner.verbs.estimate import chosen

TABLES = sorted(SHIPPED.glob("*.csv"))


def typed(command: str) -> Options:
    """The request of a command, as the command line reads it."""
    options = read_options(options_of_command(command, Options, "estimate"))
    refuse(options, "estimate")
    return options


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_the_command_of_a_run_is_the_request_that_is_scored(table: Path) -> None:
    """All that an answer is made from; benchmarks/run_commands.py compares all numbers."""
    seen: set[str] = set()
    for row in read_rows(table):
        if is_phased(row):
            continue  # below
        run = read(row)
        command = command_line(run.options)
        if command not in seen:
            assert typed(command) == run.options, row["run_id"]
        seen.add(command)


def test_the_command_of_a_run_gives_the_number_that_is_scored() -> None:
    rows = list(chain.from_iterable(map(read_rows, TABLES)))
    every = [row for i, row in enumerate(rows) if not is_phased(row) and i % 25 == 0]
    document = validate_rows(every)
    assert [run.run_id for run in document.rows] == [row["run_id"] for row in every]
    for run in document.rows:
        estimates = chosen(typed(run.command))
        assert float(estimates.time.seconds[0]) == pytest.approx(run.predicted_step_s, rel=1e-9)
        peak = memory.peak_bytes(estimates, run.memory_kind) / 2**30
        assert peak == pytest.approx(run.predicted_peak_gib, rel=1e-9), run.command


def test_the_command_of_a_run_of_reinforcement_learning_is_of_rl() -> None:
    """It gives the step that is scored, and the row as a recipe of another verb names it."""
    phased = [row for table in TABLES for row in read_rows(table) if is_phased(row)]
    document = validate_rows(phased)
    assert [run.run_id for run in document.rows] == [row["run_id"] for row in phased]
    for run in document.rows:
        verb, *words = shlex.split(run.command)[1:]
        answer = dpplan(verb, *words, "--json").json()
        assert answer["step_s"] == pytest.approx(run.predicted_step_s, rel=1e-9)
    refused = dpplan("estimate", "--recipe", f"nemo-rl.csv:{document.rows[0].run_id}")
    assert document.rows[0].command in refused.stderr


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_a_row_is_a_recipe(table: Path) -> None:
    """By its table and id it is the request of its command, whose number the tests above hold."""
    row = next((row for row in read_rows(table) if not is_phased(row)), None)
    if row is None:
        return
    planned = as_recipe.planned((f"{table.name}:{row['run_id']}",), {})
    assert (planned.refused, planned.missing) == ("", ())
    assert read_options(planned.options) == typed(command_line(read(row).options))


def test_a_row_answers_the_number_of_its_validation_and_typed_options_beat_it() -> None:
    row = next(read_rows(SHIPPED / "torchtune.csv"))
    name = f"torchtune.csv:{row['run_id']}"
    (run,) = validate_rows([row]).rows
    answer = dpplan("estimate", "--recipe", name, "--json").json()
    assert answer["step"]["seconds"] == pytest.approx(run.predicted_step_s, rel=1e-9)
    where = f"row {row['run_id']} of torchtune.csv, column seq_len"
    length = int(row["seq_len"])
    assert answer["scenario"]["seq_len"] == {"value": length, "from": "run", "where": where}
    other = dpplan("read", name, "--seq-len", length // 2, "--json").json()["estimate"]
    assert other["scenario"]["seq_len"]["over"] == f"{where} says {length}"
    assert other["training"]["seq_len"] == length // 2
    wrong = dpplan("estimate", "--recipe", "torchtune.csv:torchtune-")
    assert "has no run 'torchtune-'; it has " in wrong.stderr


def test_a_run_says_where_each_value_comes_from() -> None:
    row = next(r for r in read_rows(SHIPPED / "torchtune.csv") if "compile" in r["options"])
    options = read(row).options
    assert {name: options.origin(name) for name in ("tp", "compile")} == {
        "tp": options.origins["tp"],
        "compile": options.origins["compile"],
    }
    assert (options.origins["tp"].kind, options.origins["compile"].where) == ("run", "word compile")
