"""Whether the command that is printed for a measured run gives the number that `dpplan validate`
scores, for every row of every table: step time and peak memory of the command, read as the command
line reads it, and of the row by its table and id (`--recipe FILE.csv:RUN`).

    python benchmarks/run_commands.py                # the tables that ship, a minute
    python benchmarks/run_commands.py TABLE.csv ...
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from math import isclose
from pathlib import Path

from answers import answered

from planner.cli.app import app
from planner.formats.plan import Planned
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.options import Options, options_of_command, refuse
from planner.studies.documents.validate import Run
from planner.studies.validate import as_recipe, memory
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.rows import SHIPPED, read_rows
from planner.verbs.estimate import chosen

SAME = 1e-9  # relative; both are made by the same functions
GIB = 2**30


def typed(command: str) -> Options:
    """The request of a command, as the command line reads it."""
    options = read_options(options_of_command(command, Options, "estimate"))
    refuse(options, "estimate")
    return options


def step_s(command: str) -> float:
    """Seconds of a step of reinforcement learning that a command plans."""
    seconds: float = answered(app, f"{command.removeprefix('dpplan ')} --json")["stdout"]["step_s"]
    return seconds


def outcome(run: Run, table: Path) -> str:
    """ "equal", or what differs."""
    if run.phases:
        return "equal" if isclose(step_s(run.command), run.predicted_step_s) else "another step"
    try:
        estimates = chosen(options := typed(run.command))
        plan: Planned = as_recipe.planned((f"{table}:{run.run_id}",), {})
    except PlanError as error:
        return f"refused: {error}"
    peak = memory.peak_bytes(estimates, run.memory_kind) / GIB
    if not isclose(float(estimates.time.seconds[0]), run.predicted_step_s, rel_tol=SAME):
        return "another step"
    if not isclose(peak, run.predicted_peak_gib, rel_tol=SAME):
        return "another peak"
    return "equal" if read_options(plan.options) == options else "another recipe"


def outcomes(table: Path) -> Iterator[str]:
    validation = validate_rows(list(read_rows(table)))
    for run in validation.rows:
        verdict = outcome(run, table)
        if verdict != "equal":
            print(f"{run.run_id}: {verdict}: {shlex.quote(run.command)}", flush=True)
        yield verdict.partition(":")[0]
    yield from ["not expressible" for _ in validation.skipped]


def main() -> int:
    tables = [Path(name) for name in sys.argv[1:]] or sorted(SHIPPED.glob("*.csv"))
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update(outcomes(table))
    print(", ".join(f"{verdict} {count}" for verdict, count in counts.most_common()))
    return 0 if {*counts} <= {"equal", "not expressible"} else 1


if __name__ == "__main__":
    sys.exit(main())
