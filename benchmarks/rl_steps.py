"""Published steps of reinforcement learning (planner/studies/data/rl_steps.csv, and the phased rows
of planner/studies/data/runs) against `dpplan rl`: steps, their phases, and the order of settings.

    python -m benchmarks.rl_steps              # errors by tier and phase, and pairs
    python -m benchmarks.rl_steps --rows       # every step with its phases
    python -m benchmarks.rl_steps --only p32-h

A row is a command of `dpplan rl`. Tier A: its lengths and settings are printed; what else is
assumed stands in the column `assumed`. Tier B: the mean length of its responses is not printed, and
read off the training time of one row of its table (`reads`), which counts in no error; nor do the
two rows that say what a loop takes.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from planner import studies
from planner.inputs.options import read_options
from planner.rl.documents import Reinforcement
from planner.rl.options import RlOptions
from planner.rl.verb import rl, step_of
from planner.specs.base import PlanError
from planner.specs.options import Options, options_of_command, rows
from planner.specs.options.row import flag
from planner.studies.runs.cells import Skip
from planner.studies.validate import reinforcement
from planner.views.text import show_blocks
from planner.views.view import Block

DATA = Path(studies.__file__).parent / "data"
STEPS = DATA / "rl_steps.csv"
PHASES = ("generation", "logprobs", "training", "sync")
_OF_PHASE = {
    "old log-probabilities": "logprobs",
    "reference log-probabilities": "logprobs",
    "moves": "sync",
    "refit": "sync",
}
_LENGTH = re.compile(r"--response-length \d+")
_ALIKE = 0.05  # relative: measured steps that differ by less have no order


@dataclass(frozen=True)
class Step:
    """A published step. measured: seconds by phase, and of the whole as `step`."""

    id: str
    source: str
    recipe: str  # the file whose settings the command has
    quoted: str
    measured: dict[str, float]
    tier: str
    command: str  # options of `dpplan rl`; "" where none describe it
    assumed: str  # or why it has none
    family: str  # one job on several settings
    reads: bool  # a number was read off it: a length, or what a loop takes

    @property
    def setting(self) -> str:
        """The command except for the length of responses, which runs of one setting differ in."""
        return _LENGTH.sub("", self.command)

    def request(self) -> tuple[RlOptions, Options]:
        """Its options. Raises PlanError or ValueError."""
        of_rl, shared = ["dpplan", "rl"], ["dpplan", "rl"]
        names = {flag(name) for name in rows(RlOptions)}
        command = of_rl
        for word in shlex.split(self.command):
            if word.startswith("--"):
                command = of_rl if word in names else shared
            command.append(word)
        settings = options_of_command(shlex.join(of_rl), RlOptions, "rl")
        given = options_of_command(shlex.join(shared), Options, "rl")
        return RlOptions().changed(**settings), read_options(given)


@dataclass(frozen=True)
class Answered:
    step: Step
    answer: Reinforcement

    @cached_property
    def predicted(self) -> dict[str, float]:
        """Seconds by phase, and of the step, whose time counts whether it fits or not."""
        if self.answer.step_s is None:
            settings, options = self.step.request()
            ran = step_of(settings, options).step
            whole, phases = ran.seconds, [(each.name, each.seconds) for each in ran.phases]
        else:
            whole = self.answer.step_s
            phases = [(each.name, each.seconds or 0.0) for each in self.answer.phases]
        out = {"step": whole}
        for phase, seconds in phases:
            name = _OF_PHASE.get(phase, phase)
            out[name] = out.get(name, 0.0) + seconds
        return out

    def error(self, part: str) -> float | None:
        """Relative error of a phase; None if not measured."""
        measured = self.step.measured.get(part)
        return self.predicted.get(part, 0.0) / measured - 1 if measured else None


def read(path: Path = STEPS) -> list[Step]:
    """The table. Raises ValueError for a cell of numbers with text in it."""
    with path.open(encoding="utf-8", newline="") as file:
        out = []
        for row in csv.DictReader(file):
            cells = {name: row.pop(f"{name}_s") for name in ("step", *PHASES)}
            measured = {name: float(cell) for name, cell in cells.items() if cell}
            reads = row.pop("reads") == "yes"
            out.append(Step(measured=measured, reads=reads, **row))
    return out


def shipped() -> Iterator[Step]:
    """Phased rows of the shipped runs, of which only totals are published."""
    for path in sorted((DATA / "runs").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if not reinforcement.is_phased(row):
                    continue
                try:
                    command = reinforcement.requested(row).command
                except (Skip, PlanError, ValueError):
                    continue
                words = command.removeprefix("dpplan rl ")
                yield Step(
                    id=row["run_id"],
                    source=row["source_ref"],
                    recipe=row["options"],
                    quoted=row["step_s"],
                    measured={"step": float(row["step_s"])},
                    tier="A",
                    command=words,
                    assumed=row["assumptions"],
                    family=f"{row['model']} of {row['suite']}",
                    reads=False,
                )


def answers(steps: Sequence[Step]) -> Iterator[Answered | tuple[Step, str]]:
    """Every step answered, or why it is not."""
    for step in steps:
        if not step.command:
            yield step, step.assumed
            continue
        try:
            settings, options = step.request()
            yield Answered(step, rl(settings, options.given()))
        except (PlanError, ValueError) as error:
            yield step, str(error)


def summary(answered: Sequence[Answered]) -> Block:
    """Errors by tier and phase; rows that a number was read off are left out."""
    out = []
    for tier, part in itertools.product(("A", "B"), ("step", *PHASES)):
        of_tier = [each for each in answered if each.step.tier == tier and not each.step.reads]
        errors = [error for each in of_tier if (error := each.error(part)) is not None]
        if errors:
            sizes = [abs(error) for error in errors]
            out.append(
                [
                    f"tier {tier}",
                    part,
                    f"{len(errors)}",
                    f"{100 * statistics.median(sizes):.0f}",
                    f"{100 * statistics.mean(sizes):.0f}",
                    f"{100 * statistics.mean(errors):+.0f}",
                    f"{100 * max(errors, key=abs):+.0f}",
                ]
            )
    header = ["", "part", ">rows", ">median %", ">mean %", ">bias %", ">worst %"]
    return Block("Steps of reinforcement learning: errors", header=header, rows=out)


def pairs(answered: Sequence[Answered]) -> Block:
    """Pairs of settings of one job, and how many are in the measured order."""
    out, right_of_all, all_pairs = [], 0, 0
    by_family: dict[str, list[Answered]] = {}
    for each in answered:
        by_family.setdefault(each.step.family, []).append(each)
    for family, members in by_family.items():
        right, count, wrong = 0, 0, []
        for first, second in itertools.combinations(members, 2):
            measured = second.step.measured["step"] / first.step.measured["step"]
            if abs(measured - 1) <= _ALIKE or first.step.setting == second.step.setting:
                continue
            count += 1
            if (second.predicted["step"] > first.predicted["step"]) == (measured > 1):
                right += 1
            else:
                wrong.append(f"{first.step.id} {second.step.id}")
        if count:
            out.append([family, f"{count}", f"{right}", ", ".join(wrong) or "-"])
        right_of_all, all_pairs = right_of_all + right, all_pairs + count
    out.append(["all", f"{all_pairs}", f"{right_of_all}", ""])
    return Block("Order of settings", header=["job", ">pairs", ">right", "wrong"], rows=out)


def listed(answered: Sequence[Answered]) -> Block:
    """Every step, predicted over measured seconds by phase."""
    out = []
    for each in answered:
        predicted, measured = each.predicted, each.step.measured
        cells = [
            f"{predicted.get(part, 0.0):.1f} / {measured[part]:g}" if part in measured else "-"
            for part in ("step", *PHASES)
        ]
        error = each.error("step") or 0.0
        read_off = "*" if each.step.reads else ""
        out.append([each.step.id, f"{each.step.tier}{read_off}", f"{100 * error:+.0f}", *cells])
    header = ["step", "tier", ">error %", *(f">{part} s" for part in ("step", *PHASES))]
    return Block("Predicted over measured", header=header, rows=out)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--rows", action="store_true")
    given = parser.parse_args()
    steps = [*read(), *shipped()]
    results = list(answers([step for step in steps if not given.only or step.id in given.only]))
    answered = [each for each in results if isinstance(each, Answered)]
    refused: list[list[Any]] = [
        [each[0].id, each[1]] for each in results if isinstance(each, tuple)
    ]
    blocks = [] if given.only else [summary(answered), pairs(answered)]
    blocks += [listed(answered)] if given.rows or given.only else []
    blocks += [Block("Not described by options", header=["step", "why"], rows=refused)]
    show_blocks(blocks, plain=True)


if __name__ == "__main__":
    main()
