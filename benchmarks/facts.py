"""Facts of people who fine-tune (planner/studies/data/facts.csv) against the answers to what they
would have typed: memory, verdicts, seconds.

    python -m benchmarks.facts              # errors and verdicts
    python -m benchmarks.facts --rows       # every fact, the worst first
    python -m benchmarks.facts --only ex15 --ledger   # its bytes by phase

A fact is a command of `dpplan estimate`, read as the command line reads it. Settings that the
source does not print are in its column `assumed`; facts with such a setting are tier B.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from planner import studies
from planner.estimate import Estimates
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.options import Options, options_of_command, refuse
from planner.studies.validate import memory
from planner.verbs.estimate import chosen
from planner.views.text import show_blocks
from planner.views.view import Block

FACTS = Path(studies.__file__).parent / "data" / "facts.csv"
GIB = 2**30
# a figure whose statistic the source does not name is compared with the nearer of two
_EITHER = " or "
_EVEN = 0.5  # chance from which a run counts as fitting


@dataclass(frozen=True)
class Fact:
    """A line of the table."""

    id: str
    source: str
    printed: str  # settings as the source prints them
    quoted: str
    verdict: str  # fits or oom
    memory_gib: float | None
    memory_kind: str
    step_s: float | None
    tier: str
    command: str  # options of `dpplan estimate`; "" where none describe it
    config: str  # config.json of a model that the catalogue lacks
    assumed: str  # or why it has none

    def options(self, folder: Path) -> Options:
        """The request; raises PlanError where it is refused."""
        line = f"dpplan estimate {self.command}"
        if self.config:
            path = folder / f"{self.id}.json"
            path.write_text(self.config, encoding="utf-8")
            line += f" --model {path}"
        options = read_options(options_of_command(line, Options, "estimate"))
        refuse(options, "estimate")
        return options


@dataclass(frozen=True)
class Answered:
    """A fact beside its estimate."""

    fact: Fact
    estimates: Estimates

    @cached_property
    def peak_gib(self) -> float | None:
        """The statistic that was measured, or the nearer one of two."""
        measured = self.fact.memory_gib
        if measured is None:
            return None
        peaks = [
            memory.peak_bytes(self.estimates, kind) / GIB
            for kind in self.fact.memory_kind.split(_EITHER)
        ]
        low, high = min(peaks), max(peaks)
        return min(max(measured, low), high)

    @property
    def error(self) -> float | None:
        """Relative error of the peak."""
        known = self.peak_gib is not None and self.fact.memory_gib
        return self.peak_gib / self.fact.memory_gib - 1 if known else None

    @property
    def time_error(self) -> float | None:
        step = self.fact.step_s
        return None if step is None else float(self.estimates.time.seconds[0]) / step - 1

    @cached_property
    def chance(self) -> float:
        """Chance to fit."""
        return memory.chance(self.estimates)

    @property
    def fits(self) -> bool:
        """The verdict: the estimate fits, at an even chance or better."""
        return bool(self.estimates.fits[0]) and self.chance >= _EVEN

    @property
    def right(self) -> bool:
        return self.fits == (self.fact.verdict != "oom")


def read(path: Path = FACTS) -> list[Fact]:
    """The table. Raises ValueError for a cell of numbers with text in it."""
    numbers = ("memory_gib", "step_s")
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Fact(**row | {name: float(row[name]) if row[name] else None for name in numbers})
            for row in csv.DictReader(file)
        ]


def answers(facts: Sequence[Fact]) -> Iterator[Answered | tuple[Fact, str]]:
    """Every fact answered, or why it is not."""
    with tempfile.TemporaryDirectory() as folder:
        for fact in facts:
            if not fact.command:
                yield fact, fact.assumed
                continue
            try:
                yield Answered(fact, chosen(fact.options(Path(folder))))
            except PlanError as error:
                yield fact, str(error)


def summary(answered: Sequence[Answered]) -> Block:
    """Errors by tier and in all."""
    rows = []
    for name in ("A", "B", ""):
        group = [each for each in answered if name in ("", each.fact.tier)]
        errors = [each.error for each in group if each.error is not None]
        times = [abs(each.time_error) for each in group if each.time_error is not None]
        absolute = [abs(error) for error in errors]
        rows.append(
            [
                f"tier {name}" if name else "all",
                f"{len(errors)}",
                *(
                    f"{100 * x:.1f}"
                    for x in (statistics.mean(absolute), statistics.median(absolute))
                ),
                f"{100 * statistics.mean(errors):+.1f}",
                f"{100 * max(errors, key=abs):+.0f}",
                f"{len(times)}",
                f"{100 * statistics.median(times):.1f}" if times else "-",
            ]
        )
    header = ["", ">peaks", ">mean %", ">median %", ">bias %", ">worst %", ">times", ">median %"]
    return Block("Facts of fine-tuning: errors of memory and step time", header=header, rows=rows)


def verdicts(answered: Sequence[Answered]) -> Block:
    """Runs that ran and runs out of memory, by their verdict."""
    rows = []
    for verdict, words in (("fits", "ran"), ("oom", "ran out of memory")):
        group = [each for each in answered if each.fact.verdict == verdict]
        fitting = sum(each.fits for each in group)
        wrong = [each.fact.id for each in group if not each.right]
        rows.append([words, f"{fitting}", f"{len(group) - fitting}", " ".join(wrong) or "-"])
    header = ["", ">said to fit", ">said not to", "wrong"]
    return Block("Verdicts", header=header, rows=rows)


def listed(answered: Sequence[Answered]) -> Block:
    """Every fact, the worst first."""
    rows = []
    for each in sorted(answered, key=lambda each: -abs(each.error or 0)):
        fact = each.fact
        rows.append(
            [
                fact.id,
                "-" if each.error is None else f"{100 * each.error:+.1f}",
                "-" if fact.memory_gib is None else f"{fact.memory_gib:g}",
                "-" if each.peak_gib is None else f"{each.peak_gib:.1f}",
                fact.memory_kind or "-",
                f"{each.chance:.2f}",
                fact.verdict,
                "-" if each.time_error is None else f"{100 * each.time_error:+.0f}",
                fact.printed,
            ]
        )
    header = ["fact", ">error %", ">GiB", ">ours", "statistic", ">chance", "ran", ">time %", ""]
    return Block("Every fact", header=header, rows=rows)


def ledger(each: Answered) -> Block:
    """Bytes of the fullest stage by phase."""
    m = each.estimates.memory
    stage = int(m.stage_reserved[:, 0].argmax())
    rows = [
        [name, f"{float(value[0]) / GIB:.2f}"]
        for name, value in m.stage_components[stage].items()
        if float(value[0])
    ]
    totals = {"peak": m.stage_peaks[stage, 0], "reserved": m.stage_reserved[stage, 0]}
    totals |= {"context": m.context[0], "communicators": m.communicators[0]}
    rows += [[name, f"{float(value) / GIB:.2f}"] for name, value in totals.items()]
    return Block(f"{each.fact.id}: {each.fact.command}", header=["", ">GiB"], rows=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--ledger", action="store_true")
    given = parser.parse_args()
    facts = [fact for fact in read() if not given.only or fact.id in given.only]
    results = list(answers(facts))
    answered = [each for each in results if isinstance(each, Answered)]
    blocks = [summary(answered), verdicts(answered)] if not given.only else []
    blocks += [listed(answered)] if given.rows or given.only else []
    blocks += [ledger(each) for each in answered] if given.ledger else []
    refused = [[each[0].id, each[1]] for each in results if isinstance(each, tuple)]
    blocks += [Block("Not described by options", header=["fact", "why"], rows=refused)]
    show_blocks(blocks, plain=True)


if __name__ == "__main__":
    main()
