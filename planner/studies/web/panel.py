"""Predicted against measured step time of the shipped runs, with those most like the request
marked."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from planner.evidence.band import RESIDUALS
from planner.inputs.scenario import resolve
from planner.specs.documents.estimate import Estimate
from planner.specs.options import Options
from planner.studies.validate.files import read_all
from planner.units import show
from planner.views.cells import Cell, Column
from planner.views.chart import Chart, Trace
from planner.views.figures import BLUE, LOG, RED, axis, figure, guides, markers
from planner.views.view import Block, Link, View

_GUIDES = (-0.2, 0.2)


@dataclass(frozen=True)
class Run:
    """A measured run, and the step time that the shipped numbers predict (planner/data)."""

    run_id: str
    suite: str
    gpu: str
    gpus: int
    measured_s: float
    predicted_s: float


@cache
def runs() -> tuple[Run, ...]:
    """The shipped runs with a time."""
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        ratio = {row["run_id"]: float(row["measured_over_default"]) for row in csv.DictReader(file)}
    return tuple(
        Run(
            row["run_id"],
            row["suite"],
            row["gpu"],
            int(float(row["gpus"])),
            float(row["step_s"]),
            float(row["step_s"]) / ratio[row["run_id"]],
        )
        for row in read_all(())
        if row["run_id"] in ratio and row.get("step_s")
    )


def _errors(members: Iterable[Run]) -> list[float]:
    return sorted(abs(run.predicted_s / run.measured_s - 1) for run in members)


def _median(errors: list[float]) -> float:
    return errors[len(errors) // 2]


def chart(options: Options) -> Chart:
    """All validated runs; those on the GPU of the request stand out."""
    gpu = resolve(options).parts[1].gpu
    validated = runs()
    alike = [run for run in validated if run.gpu == gpu.id]
    others = [run for run in validated if run.gpu != gpu.id]
    errors = _errors(validated)
    mine = (
        f"{len(alike)} of them on {gpu.title}: median {_median(_errors(alike)):.1%}."
        if alike
        else f"None on {gpu.title}."
    )
    data = guides((run.measured_s for run in validated), _GUIDES)
    if others:
        data.append(_points("other GPUs", others, BLUE, 5, "circle"))
    if alike:
        data.append(_points(gpu.title, alike, RED, 9, "diamond"))
    return Chart(
        "measured",
        "Predicted against measured",
        f"{len(validated):,} measured runs: mean error {fmean(errors):.1%}, median"
        f" {_median(errors):.1%}. {mine}",
        figure(data, axis("measured step (s)", LOG), axis("predicted step (s)", LOG)),
        (
            Column("suite"),
            Column("GPU"),
            Column("runs", "number"),
            Column("mean error", "%"),
            Column("median error", "%"),
            Column("worst", "%"),
        ),
        _suites(validated),
        "Every validated run that has a time; dotted lines are 20 % off. docs/accuracy lists"
        " them all.",
        order="by suite",
    )


def _points(name: str, members: list[Run], color: str, size: float, symbol: str) -> Trace:
    return markers(
        f"{name} ({len(members):,})",
        [run.measured_s for run in members],
        [run.predicted_s for run in members],
        color,
        [
            f"{run.run_id}: {run.gpus:,} x {run.gpu}, measured {show(run.measured_s, 's')},"
            f" predicted {show(run.predicted_s, 's')}"
            for run in members
        ],
        size,
        symbol,
        opacity=0.6,
    )


def _suites(members: Iterable[Run]) -> list[list[Cell]]:
    suites: dict[tuple[str, str], list[Run]] = {}
    for run in members:
        suites.setdefault((run.suite, run.gpu), []).append(run)
    errors = {group: _errors(of_suite) for group, of_suite in sorted(suites.items())}
    return [[*group, len(off), fmean(off), _median(off), off[-1]] for group, off in errors.items()]


_SIZES = ((1, "1"), (8, "2 to 8"), (64, "9 to 64"), (512, "65 to 512"), (10**9, "more"))


def view(report: Estimate, options: Options, drawing: str) -> View:
    """How far predictions were off by GPU and by number of GPUs, the request's own first. drawing:
    address of all runs as a chart."""
    return View(
        f"{len(runs()):,} measured runs beside the prediction",
        f"This plan: {report.step.confidence}",
        parts=_trust(options),
        links=[Link(word="Draw all runs", address=drawing)],
    )


def _trust(options: Options) -> list[Block]:
    gpu, cluster = resolve(options).parts[1].gpu, options.gpus
    validated = runs()
    by_gpu: dict[str, list[Run]] = {}
    by_size: dict[str, list[Run]] = {}
    for run in validated:
        by_gpu.setdefault(run.gpu, []).append(run)
        by_size.setdefault(_size(run.gpus), []).append(run)
    kinds = sorted(by_gpu, key=lambda group: (group != gpu.id, -len(by_gpu[group])))
    sizes = [name for _, name in _SIZES if name in by_size]
    return [
        _trusted("By GPU", "GPU", {name: by_gpu[name] for name in kinds}, gpu.id),
        _trusted("By number of GPUs", "GPUs", {n: by_size[n] for n in sizes}, _size(cluster)),
    ]


def _size(gpus: int) -> str:
    return next(name for most, name in _SIZES if gpus <= most)


def _trusted(title: str, subject: str, groups: dict[str, list[Run]], mine: str) -> Block:
    """How far each group of runs is off, and how many of them are close."""
    near = (0.1, 0.2)
    block = Block(
        title,
        header=[
            *(subject, "plan", "runs|,", "mean error|%", "median|%", "bias|+%", "within 10 %|%0"),
            "within 20 %|%0",
        ],
        marks=["here" if name == mine else "" for name in groups],
    )
    for name, members in groups.items():
        off = [run.predicted_s / run.measured_s - 1 for run in members]
        errors = sorted(map(abs, off))
        close = [sum(error <= share for error in errors) / len(errors) for share in near]
        block.rows.append(
            [
                *(name, "yours" if name == mine else "", len(members), fmean(errors)),
                *(_median(errors), fmean(off), *close),
            ]
        )
    if mine not in groups:
        block.text.append(f"No measured run has {mine}: the answer rests on other hardware.")
    return block
