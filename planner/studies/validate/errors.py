"""Errors over rows: mean, median, bias and worst of step time and memory, out-of-memory rows called
right, the noise floor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from planner.specs.document import plain
from planner.specs.precision import is_low
from planner.studies.documents.validate import (
    Errors,
    ErrorsOfSuites,
    Noise,
    Right,
    Run,
    Summary,
    Task,
)
from planner.studies.runs.cells import Row
from planner.studies.validate.ranking import groups_of, ranked, ranking
from planner.studies.validate.rows import NOTE

# columns that say who measured and what came out; two runs equal in all others are one recipe
# measured twice
_NOT_RECIPE = (
    "run_id",
    "source",
    "source_ref",
    "assumptions",
    "tier",
    "step_s",
    "peak_memory_gib",
    "memory_kind",
)


def complete(run: Run) -> bool:
    """Whether the row states its recipe and the estimate holds all of it: so that it tests only the
    estimate."""
    return not (run.not_expressed or run.not_printed)


def summarise(runs: Sequence[Run], noise: float | None = None) -> Summary:
    """Errors of step time and memory, out-of-memory rows called right, ranking over groups, and the
    noise floor.

    noise: the noise floor that decides ties; by default estimated from these runs.
    """
    ran = [run for run in runs if run.outcome != "oom"]
    oom = [run for run in runs if run.outcome == "oom"]
    floor = noise_floor(runs)
    groups = groups_of(ranked(ran), floor.mean or 0.0 if noise is None else noise)
    return Summary(
        time=errors([r.predicted_step_s / r.measured_step_s - 1 for r in ran if r.measured_step_s]),
        memory=errors(
            [r.predicted_peak_gib / r.measured_peak_gib - 1 for r in ran if r.measured_peak_gib]
        ),
        oom=Right(n=len(oom), right=sum(not run.predicted_fits for run in oom)),
        ran=Right(n=len(ran), right=sum(run.predicted_fits for run in ran)),
        ranking=ranking(groups),
        noise=floor,
    )


_SHORT = 1024  # tokens per micro-batch and rank up to which launches and small kernels weigh most
_LARGE = 128  # GPUs
_NODE = 8  # GPUs
_LONG = 32_768  # tokens


def _trains(task: Task) -> Callable[[Run], bool]:
    """Whether a run trains this task."""
    return lambda run: run.task == task


# kinds of runs whose errors are reported apart
KINDS: dict[str, Callable[[Run], bool]] = {
    "all": lambda run: True,
    "tier A": lambda run: run.tier == "A",
    "tier B": lambda run: run.tier == "B",
    "mixture of experts": lambda run: run.experts > 0,
    "fp8": lambda run: is_low(run.precision) and run.precision != "nvfp4",
    "nvfp4": lambda run: run.precision == "nvfp4",
    "Volta": lambda run: run.architecture == "volta",
    "Blackwell": lambda run: run.architecture.startswith("blackwell"),
    "AMD": lambda run: run.architecture.startswith("cdna"),
    "FSDP and ZeRO on up to one node": lambda run: (
        run.family in ("fsdp", "deepspeed") and run.gpus <= _NODE
    ),
    "offload": lambda run: run.features.get("offload", 0.0) > 0,
    f"sequences from {_LONG} tokens": lambda run: run.seq_len >= _LONG,
    **{task: _trains(task) for task in get_args(Task)},
    f"up to {_SHORT} tokens per micro-batch": lambda run: run.micro_batch_tokens <= _SHORT,
    f"more than {_LARGE} GPUs": lambda run: run.gpus > _LARGE,
}


def kinds(runs: Sequence[Run]) -> dict[str, ErrorsOfSuites]:
    """Errors of step time of each kind of run, over its runs and as mean over its suites."""
    return {name: _kind([run for run in runs if belongs(run)]) for name, belongs in KINDS.items()}


def of_tasks(runs: Sequence[Run], noise: float) -> dict[Task, Summary]:
    """Errors of step time and memory by what is trained, of tasks that some run has."""
    by_task = {task: [run for run in runs if run.task == task] for task in get_args(Task)}
    return {task: summarise(members, noise) for task, members in by_task.items() if members}


def _kind(runs: Sequence[Run]) -> ErrorsOfSuites:
    suites: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.time_error is not None:
            suites[run.suite].append(run.time_error)
    return errors_of_suites(suites)


def errors_of_suites(suites: Mapping[str, list[float]]) -> ErrorsOfSuites:
    """Errors over all runs, and the mean over suites of their mean absolute errors."""
    each = [errors(values).mape or 0.0 for values in suites.values()]
    return ErrorsOfSuites(
        **plain(errors([error for values in suites.values() for error in values])),
        suites=len(each),
        mape_of_suites=sum(each) / len(each) if each else None,
        mape_within_suites=errors(
            [error for values in suites.values() for error in _centred(values)]
        ).mape,
    )


_FEWEST = 3  # runs that have a median worth removing


def _centred(relative: list[float]) -> list[float]:
    """Errors left when all predictions are divided by their median ratio to the measured value."""
    if len(relative) < _FEWEST:
        return relative
    middle = 1 + median(sorted(relative))
    return [(1 + error) / middle - 1 for error in relative]


def errors(relative: list[float]) -> Errors:
    """n, mean and median absolute percentage error, bias (median signed error) and the worst, all
    as fractions."""
    if not relative:
        return Errors(n=0, mape=None, median_ape=None, bias=None, worst=None)
    absolute = sorted(abs(x) for x in relative)
    return Errors(
        n=len(relative),
        mape=sum(absolute) / len(absolute),
        median_ape=median(absolute),
        bias=median(sorted(relative)),
        worst=max(relative, key=abs),
    )


def median(ordered: list[float]) -> float:
    """Middle of ordered values, the mean of both middles of an even number of them."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def recipe_of(row: Row) -> str:
    """Everything in a row about a run but who measured it and what came out."""
    return "|".join(
        f"{name}={value}"
        for name, value in sorted(row.items())
        if value and name not in _NOT_RECIPE and not name.startswith(NOTE)
    )


def repeat_deviations(recipes: list[str], seconds: list[float | None]) -> list[float | None]:
    """Deviation of each time from the median of its recipe; None where a recipe was measured
    once."""
    by_recipe: dict[str, list[float]] = defaultdict(list)
    for recipe, value in zip(recipes, seconds, strict=True):
        if value:
            by_recipe[recipe].append(value)
    middle = {
        recipe: median(sorted(values)) for recipe, values in by_recipe.items() if len(values) > 1
    }
    return [
        value / middle[recipe] - 1 if value and recipe in middle else None
        for recipe, value in zip(recipes, seconds, strict=True)
    ]


def noise_floor(runs: Sequence[Run]) -> Noise:
    """How far repeats of one recipe lie from their median: what no prediction can be expected to
    undercut."""
    deviations = sorted(
        abs(run.repeat_deviation) for run in runs if run.repeat_deviation is not None
    )
    if not deviations:
        return Noise(n=0, mean=None, median=None, worst=None)
    return Noise(
        n=len(deviations),
        mean=sum(deviations) / len(deviations),
        median=median(deviations),
        worst=deviations[-1],
    )
