"""Step time of models of images, as published, beside the planner's (planner/studies/data/images).

python -m benchmarks.studies.images              # errors by suite
python -m benchmarks.studies.images --rows       # every row
python -m benchmarks.studies.images --only timm-nhwc mlperf-images-01
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner import studies
from planner.inputs.options import read_options
from planner.specs.options import Options, options_of_command, refuse
from planner.verbs.estimate import estimate
from planner.views.text import show_blocks
from planner.views.view import Block

FOLDER = Path(studies.__file__).parent / "data" / "images"


@dataclass(frozen=True)
class Row:
    """A published run."""

    id: str
    suite: str
    source: str
    printed: str  # settings as the source prints them
    quoted: str
    step_s: float
    tier: str
    model: str  # a file of models/, or a model of the catalogue
    options: str  # of `dpplan estimate`
    assumed: str

    def request(self) -> Options:
        """The request. Raises PlanError where it is refused."""
        file = FOLDER / "models" / f"{self.model}.toml"
        model = file if file.exists() else self.model
        line = f"dpplan estimate --model {model} {self.options}"
        options = read_options(options_of_command(line, Options, "estimate"))
        refuse(options, "estimate")
        return options


@dataclass(frozen=True)
class Scored:
    """A run beside its estimate; seconds of a step."""

    row: Row
    seconds: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.seconds / self.row.step_s - 1

    @property
    def is_in_band(self) -> bool:
        """Whether the 80 % band has the measured time."""
        return self.low <= self.row.step_s <= self.high


def read() -> list[Row]:
    """The table."""
    with (FOLDER / "rows.csv").open(encoding="utf-8", newline="") as file:
        lines: list[dict[str, Any]] = list(csv.DictReader(file))
    return [Row(**cells | {"step_s": float(cells["step_s"])}) for cells in lines]


def scores(rows: Sequence[Row]) -> Iterator[Scored]:
    """Every row estimated."""
    for row in rows:
        step = estimate(row.request(), brief=True).step
        yield Scored(row, step.seconds, step.low, step.high)


def summary(scored: Sequence[Scored]) -> Block:
    """Errors by suite and in all."""
    lines = []
    for suite in (*dict.fromkeys(each.row.suite for each in scored), ""):
        group = [each for each in scored if suite in ("", each.row.suite)]
        errors = [each.error for each in group]
        absolute = [abs(error) for error in errors]
        lines.append(
            [
                suite or "all",
                f"{len(group)}",
                f"{100 * statistics.mean(absolute):.1f}",
                f"{100 * statistics.median(absolute):.1f}",
                f"{100 * statistics.mean(errors):+.1f}",
                f"{100 * max(errors, key=abs):+.0f}",
                f"{100 * statistics.mean(each.is_in_band for each in group):.0f}",
            ]
        )
    header = ["suite", ">rows", ">mean %", ">median %", ">bias %", ">worst %", ">in band %"]
    return Block("Models of images: errors of step time", header=header, rows=lines)


def listed(scored: Sequence[Scored]) -> Block:
    """Every row."""
    lines = [
        [
            each.row.id,
            f"{1e3 * each.row.step_s:.4g}",
            f"{1e3 * each.seconds:.4g}",
            f"{100 * each.error:+.1f}",
            each.row.printed,
        ]
        for each in scored
    ]
    return Block("Every row", header=["row", ">ms", ">ours", ">error %", ""], rows=lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="SUITE or ID")
    parser.add_argument("--rows", action="store_true")
    given = parser.parse_args()
    rows = [row for row in read() if not given.only or {row.id, row.suite} & {*given.only}]
    scored = list(scores(rows))
    show_blocks([*([listed(scored)] if given.rows else []), summary(scored)], plain=True)


if __name__ == "__main__":
    main()
