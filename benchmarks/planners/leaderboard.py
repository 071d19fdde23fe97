"""docs/record/leaderboard.md: the answers of all planners against what was measured."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.planners.peers import PLANNERS, RECORD, Planner, listed
from benchmarks.planners.recipes import CLASSES, class_of, measured
from planner.inputs.tables import csv_text
from planner.studies.runs.cells import Row
from planner.studies.validate.errors import errors
from planner.units import percent

ANSWERS = RECORD / "answers.csv"
PAGE = RECORD / "leaderboard.md"
OURS = "dpplan"
COLUMNS = ("planner", "run_id", "step_s", "low_step_s", "high_step_s", "peak_gib")
TIME, MEMORY = ("step_s", "step_s"), ("peak_memory_gib", "peak_gib")  # measured, answered

Answers = Mapping[str, Mapping[str, Mapping[str, float]]]  # by planner, run and quantity


def read() -> Answers:
    """The recorded answers."""
    answers: dict[str, dict[str, dict[str, float]]] = {plan.planner: {} for plan in listed()}
    with ANSWERS.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            numbers = {name: float(line[name]) for name in COLUMNS[2:] if line[name]}
            answers[line["planner"]][line["run_id"]] = numbers
    return answers


def write(answers: Answers) -> None:
    """Record answers, four digits each."""
    lines = (
        [planner, run_id, *(_cell(numbers.get(name)) for name in COLUMNS[2:])]
        for planner, runs in answers.items()
        for run_id, numbers in sorted(runs.items())
    )
    ANSWERS.write_text(csv_text(COLUMNS, lines), encoding="utf-8")


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def write_planners(planners: Sequence[Planner]) -> None:
    """Record which planners answered."""
    names = list(Planner.__dataclass_fields__)
    lines = ([getattr(planner, name) for name in names] for planner in planners)
    PLANNERS.write_text(csv_text(names, lines), encoding="utf-8")


@dataclass(frozen=True)
class Board:
    """Relative errors of answers over measured rows, in one quantity."""

    quantity: tuple[str, str]
    rows: Mapping[str, Row]
    answers: Answers

    def known(self, planner: str, among: Iterable[str] | None = None) -> list[str]:
        """Runs that a planner answers and that were measured."""
        mine = self.answers[planner]
        runs = mine if among is None else [run for run in among if run in mine]
        measured_name, answered_name = self.quantity
        return [
            run for run in runs if self.rows[run].get(measured_name) and answered_name in mine[run]
        ]

    def errors(self, planner: str, runs: Iterable[str]) -> list[float]:
        """Answered over measured, minus one."""
        measured_name, answered_name = self.quantity
        return [
            self.answers[planner][run][answered_name] / float(self.rows[run][measured_name]) - 1
            for run in runs
        ]

    def cell(self, planner: str, runs: Iterable[str]) -> str:
        """Median error and, in brackets, of how many runs."""
        missed = self.errors(planner, self.known(planner, runs))
        return f"{percent(errors(missed).median_ape)} ({len(missed):,})" if missed else "-"


def _coverage(board: Board, runs: Sequence[str]) -> str:
    """Share of the runs whose measured step lies in dpplan's band."""
    mine = board.answers[OURS]
    inside = [
        mine[run]["low_step_s"] <= float(board.rows[run]["step_s"]) <= mine[run]["high_step_s"]
        for run in runs
    ]
    return percent(sum(inside) / len(inside)) if inside else "-"


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    marks = ["---" if i == 0 else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, marks, *lines)) + "\n"


def side_by_side(board: Board, titles: Mapping[str, str]) -> str:
    """Each other planner on the runs that it answers, beside dpplan on the same."""
    lines = []
    for planner, title in titles.items():
        runs = board.known(planner)
        theirs, ours = (errors(board.errors(name, runs)) for name in (planner, OURS))
        figures = (theirs.median_ape, theirs.mape, ours.median_ape, ours.mape)
        lines.append([title, f"{len(runs):,}", *map(percent, figures)])
    return _table(["planner", "runs", "median", "mean", "dpplan's median", "its mean"], lines)


def _by_class(board: Board, planners: Sequence[str], more: Callable[[list[str]], list[str]]) -> str:
    known = board.known(OURS)
    lines = []
    for name in (*CLASSES, "all"):
        runs = [run for run in known if name in ("all", class_of(board.rows[run]))]
        if runs:
            lines.append([name, *more(runs), *(board.cell(planner, runs) for planner in planners)])
    return _table(["class", *more([]), *planners], lines)


def boards() -> tuple[Board, Board]:
    """Boards of step time and of memory."""
    rows, answers = measured(), read()
    return Board(TIME, rows, answers), Board(MEMORY, rows, answers)


def titles(planners: Iterable[Planner]) -> dict[str, str]:
    """Other planners with their pins, by name."""
    return {
        each.planner: f"[{each.repository}](https://github.com/{each.repository}) at"
        f" `{each.commit[:8]}` of {each.date}"
        for each in planners
        if each.planner != OURS
    }


def page() -> str:
    """The text of the leaderboard."""
    planners = listed()
    (ours,) = (each for each in planners if each.planner == OURS)
    names = [OURS, *(each.planner for each in planners if each.planner != OURS)]
    times, peaks = boards()

    def band(runs: list[str]) -> list[str]:
        return [_coverage(times, runs)] if runs else ["dpplan's 80 % band holds"]

    return f"""# Leaderboard

dpplan {ours.commit} of {ours.date} and {len(names) - 1} other public planners on the same measured
runs. Written by `python -m benchmarks.planners`; [how it is made](index.md#leaderboard).

## Step time

Error of the answered step time against the measured one, over the runs that a planner answers, and
that of dpplan on the same runs:

{side_by_side(times, titles(planners))}
Median error by class, with the number of runs answered in brackets:

{_by_class(times, names, band)}
## Memory

Peak memory per GPU, likewise. Each planner has one number; what was measured is what the run's
source prints, allocated, reserved or by nvidia-smi, and dpplan answers with the same:

{side_by_side(peaks, titles(planners))}
{_by_class(peaks, names, lambda _runs: [])}"""
