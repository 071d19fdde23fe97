"""The measured runs of a study: their rows, scored as `dpplan validate` does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from planner.inputs.calibration import Calibration, read_calibration
from planner.studies.documents.validate import Validation
from planner.studies.runs.cells import Row
from planner.studies.validate.errors import complete
from planner.studies.validate.files import read_all
from planner.studies.validate.fit import Case, cases
from planner.studies.validate.predict import has_time, validated
from planner.views.text import show_blocks
from planner.views.view import Block


@dataclass(frozen=True)
class Runs:
    """rows: those that can be expressed, in the order of `document.rows`; shipped: they are the
    tables that ship, predicted by the shipped numbers."""

    document: Validation
    rows: Sequence[Row]
    calibration: Calibration | None
    shipped: bool

    @cached_property
    def complete(self) -> list[Row]:
        """Rows of training steps with a complete recipe."""
        pairs = zip(self.rows, self.document.rows, strict=True)
        return [row for row, run in pairs if complete(run) and not run.phases]

    @cached_property
    def cases(self) -> list[Case]:
        """Rows with a time, as fits take them."""
        pairs = zip(self.rows, self.document.rows, strict=True)
        return cases([row for row, run in pairs if has_time(run)], self.calibration)


def read_runs(
    paths: Sequence[Path] = (), suites: Sequence[str] = (), calibration: str | None = None
) -> Runs:
    """Runs of these tables or folders, by default the shipped ones; arguments and errors as of
    `planner.studies.validate.validate`."""
    node = read_calibration(calibration) if calibration else None
    document, rows = validated(read_all(paths, suites), node)
    return Runs(document, rows, node, shipped=not (paths or suites or calibration))


def named(description: str | None) -> Runs:
    """Runs that the command line names."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUNS.csv")
    parser.add_argument("--suite", action="append", default=[], help="only runs of this suite")
    parser.add_argument("--calibration", help="calibration file of a measured node")
    options = parser.parse_args()
    return read_runs(options.runs, options.suite, options.calibration)


def show(*blocks: Block) -> None:
    """Print the tables of a study."""
    show_blocks(blocks, plain=True)
