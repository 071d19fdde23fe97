"""Every measured run that ships has a command, and that command gives the number that is scored."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from planner.formats.runs.read import read
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.specs.options import Options, command_line, options_of_command, refuse
from planner.verbs.estimate import chosen
from planner.verbs.validate import memory
from planner.verbs.validate.predict import validate_rows
from planner.verbs.validate.reinforcement import is_phased
from planner.verbs.validate.rows import SHIPPED, read_rows

TABLES = sorted(SHIPPED.glob("*.csv"))


def typed(command: str) -> Options:
    """The request of a command, as the command line reads it."""
    options = read_options(options_of_command(command, Options, "estimate"))
    refuse(options, "estimate")
    return options


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_the_command_of_a_run_is_the_scenario_that_is_scored(table: Path) -> None:
    """All that an answer is made from: the plans of the search."""
    seen: set[str] = set()
    for row in read_rows(table):
        if is_phased(row):  # its optimizer step is one of the runs below
            continue
        run = read(row)
        command = command_line(run.options)
        if command not in seen:
            assert resolve(typed(command)).plans == run.scenario.plans, row["run_id"]
        seen.add(command)


def test_the_command_of_a_run_gives_the_number_that_is_scored() -> None:
    rows = list(chain.from_iterable(map(read_rows, TABLES)))
    every = [row for i, row in enumerate(rows) if is_phased(row) or i % 25 == 0]
    found = validate_rows(every)
    assert [run.run_id for run in found.rows] == [row["run_id"] for row in every]
    for run in found.rows:
        one = chosen(typed(run.command))
        if not run.phases:  # of reinforcement learning it is the optimizer's step alone
            assert float(one.time.seconds[0]) == pytest.approx(run.predicted_step_s, rel=1e-9)
        peak = memory.peak_bytes(one, run.memory_kind) / 2**30
        assert peak == pytest.approx(run.predicted_peak_gib, rel=1e-9), run.command


def test_a_run_says_where_each_value_comes_from() -> None:
    row = next(r for r in read_rows(SHIPPED / "torchtune.csv") if "compile" in r["options"])
    options = read(row).options
    assert {name: options.origin(name) for name in ("tp", "compile")} == {
        "tp": options.origins["tp"],
        "compile": options.origins["compile"],
    }
    assert (options.origins["tp"].kind, options.origins["compile"].where) == ("run", "word compile")
