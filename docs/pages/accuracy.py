"""docs/accuracy: what `dpplan validate` says over the shipped runs, what the bands mean, and
what mechanisms are worth."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import get_args

from benchmarks.studies import ablation, chances, crossval, residuals, worth
from benchmarks.studies import bands as studied_bands
from benchmarks.studies.runs import Runs, read_runs
from pages import bands, crossvalidation, finetuning, meaning, projects, trust
from pages.sheets import sheets
from pages.text import NOTICE, percent, table
from planner.estimate.ties import TIE
from planner.evidence import band as uncertainty
from planner.evidence.case import Case
from planner.studies.documents.validate import Errors, Run, Summary, Task, Validation
from planner.studies.validate.errors import KINDS as BY_KIND
from planner.studies.validate.errors import complete, errors, noise_floor
from planner.studies.validate.rows import FRESH
from planner.studies.views.validate import KINDS

_WORST = 15


@cache
def _shipped() -> Runs:
    return read_runs()


def validated() -> Validation:
    """The document of `dpplan validate` over the shipped runs."""
    return _shipped().document


@cache
def crossed() -> crossval.CrossValidation:
    """Cross-validation over the shipped runs."""
    return crossval.cross_validate(_shipped().cases, validated().summary.noise.mean or 0.0)


@cache
def _ablated() -> list[ablation.Ablation]:
    return ablation.ablations(_shipped().complete)


@cache
def _coverage() -> studied_bands.Coverage:
    """Coverage by the bands of the recorded residuals, which are written first."""
    return studied_bands.coverage()


@cache
def _fresh() -> Validation:
    """The document over suites that nothing was chosen with."""
    return read_runs([FRESH]).document


@cache
def unseen() -> dict[str, float]:
    """Step times (s) of shipped runs by numbers fitted without their suites."""
    pairs = ((run.run_id, run.predicted_step_s["suites"]) for run in crossed().rows)
    return {run_id: seconds for run_id, seconds in pairs if seconds is not None}


def recorded() -> str:
    """planner/data/residuals.csv: the residuals that the bands of every answer come from."""
    shipped = residuals.time_rows(validated().rows, unseen())
    return residuals.time_lines([*shipped, *residuals.time_rows(_fresh().rows)])


def recorded_memory() -> str:
    """planner/data/memory_residuals.csv: what runs say of their need, for every chance to fit."""
    return residuals.memory_lines(residuals.memory_rows(validated().rows))


def runs() -> list[Run]:
    """Shipped runs with a time and a complete recipe."""
    return [row for row in validated().rows if row.time_error is not None and complete(row)]


def _four(e: Errors) -> list[str]:
    return [percent(value) for value in (e.mape, e.median_ape, e.bias, e.worst)]


def _cells(runs: list[Run]) -> list[str]:
    e, noise = errors([r.time_error for r in runs]), noise_floor(runs)
    return [str(e.n), *_four(e), percent(noise.mean)]


def _by(runs: list[Run], key: Callable[[Run], str]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return dict(sorted(groups.items()))


def _band(runs: list[Run]) -> str:
    def case(r: Run) -> Case:
        features = tuple(r.features.values())
        return Case(r.gpu, r.architecture, r.stack, r.family, features, r.mfu)

    ends = [uncertainty.shipped_ends(case(run), run.suite) for run in runs]
    low, high = (sum(side) / len(runs) for side in zip(*ends, strict=True))
    return f"{low:.2f} .. {high:.2f}"


_HEADER = [">runs", ">MAPE", ">median", ">bias", ">worst", ">noise"]


def _trust() -> list[str]:
    fresh = [row for row in _fresh().rows if row.time_error is not None and not row.not_expressed]
    return trust.parts(runs(), fresh)


def _bands() -> list[str]:
    return bands.parts(_coverage(), chances.coverage(validated().rows))


def _ranking() -> list[str]:
    groups, summary = validated().groups, validated().summary.ranking
    noise = validated().summary.noise.mean
    return [
        "## Order of layouts\n",
        (
            f"{summary.groups} groups of five or more layouts that differ in nothing else. Mean"
            f" rank correlation {summary.spearman:.2f}; pick-regret, the time of the layout"
            f" predicted fastest over the best measured one, {percent(summary.pick_regret_mean)}"
            f" on average and {percent(summary.pick_regret_max)} at worst. In {summary.ties}"
            f" groups other predictions lie within the noise floor of {percent(noise)} of the pick:"
            f" ties. The pick is, of those within {percent(TIE)} of the fastest, the one that"
            " repeats the least work; where that is equal, too, the one whose GPU is busy for less"
            " time, then the one with fewer collectives.\n"
        ),
        table(
            [
                "suite",
                ">GPUs",
                "model",
                ">layouts",
                ">rank corr.",
                ">regret",
                ">ties",
                ">worst tie",
                "pick",
                "best",
            ],
            [
                [
                    f"`{g.suite}`",
                    g.gpus,
                    g.model,
                    g.layouts,
                    f"{g.spearman:.2f}",
                    percent(g.pick_regret),
                    g.ties,
                    percent(g.worst_tie_regret),
                    f"`{g.pick.run_id}`",
                    f"`{g.best.run_id}`",
                ]
                for g in groups[:_WORST]
            ],
        ),
    ]


def _memory() -> list[str]:
    def line(name: str, s: Summary) -> list[object]:
        right = [f"{kind.right}/{kind.n}" if kind.n else "-" for kind in (s.oom, s.ran)]
        return [name, s.memory.n, *_four(s.memory), *right]

    document = validated()
    some = {k: s for k, s in document.suites.items() if s.memory.n or s.oom.n}
    return [
        "## Memory\n",
        (
            "Predicted over measured peak, the statistic the source gives. `oom right`: runs that"
            " ran out of memory and were predicted to; `ran right`: runs that ran and were"
            " predicted to fit.\n"
        ),
        table(
            ["suite", *_HEADER[:-1], ">oom right", ">ran right"],
            [*(line(f"`{k}`", s) for k, s in some.items()), line("all", document.summary)],
        ),
    ]


def worth_of(names: str) -> str:
    """Lines of the ablations by name, separated by semicolons: error with and without, over the
    runs that a mechanism acts on."""
    known = {x.mechanism: x for x in _ablated()}
    chosen = [known[name.strip()] for name in names.split(";")]
    return table(
        ["mechanism", "switched off means", ">runs it acts on", ">MAPE", ">MAPE without"],
        [
            [x.mechanism, x.off, x.acts.n, percent(x.acts.before), percent(x.acts.after)]
            for x in chosen
        ],
    )


def _ablations() -> list[str]:
    return [
        "## What single mechanisms are worth\n",
        (
            "`python -m benchmarks.studies.ablation`: mean absolute error with each mechanism off,"
            " nothing fitted again. Defaults were chosen with all mechanisms on, so a change says"
            " what the model leans on, not what a model without it could reach. Where the error"
            " falls with a mechanism off, something else is wrong in the other direction, or the"
            " mechanism is. The last columns are the suite whose errors change most in sum.\n"
        ),
        table(
            [
                "mechanism off",
                "that is",
                ">MAPE",
                ">off",
                ">runs it acts on",
                ">MAPE",
                ">off",
                "suite",
                ">runs",
                ">MAPE",
                ">off",
            ],
            [
                [
                    x.mechanism,
                    x.off,
                    percent(x.mape_before),
                    percent(x.mape_after),
                    x.acts.n,
                    percent(x.acts.before),
                    percent(x.acts.after),
                    f"`{x.most.suite}`" if x.most.suite else "-",
                    x.most.n,
                    percent(x.most.before),
                    percent(x.most.after),
                ]
                for x in _ablated()
            ],
        ),
    ]


def _worths() -> list[str]:
    return [
        "## What single options are worth\n",
        (
            "`python -m benchmarks.studies.worth`: runs that state an option, predicted as they are"
            " and without it. Without a word of `options` the stack's own default holds; recompute,"
            " sequence parallelism and offload are off. Changes are predicted with it over without"
            " it. Where the error without it is no larger, runs do not show what it is worth.\n"
        ),
        table(
            [
                *("option", ">runs", ">suites", ">step", ">least", ">most", ">memory"),
                *(">MAPE as stated", ">MAPE without"),
            ],
            [
                [
                    f"`{x.option}`",
                    x.runs,
                    x.suites,
                    *(_change(c) for c in (x.step_change, x.step_least, x.step_most)),
                    _change(x.memory_change),
                    percent(x.mape_stated),
                    percent(x.mape_left_out),
                ]
                for x in worth.worths(_shipped().complete)
            ],
        ),
    ]


def _change(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _errors() -> list[str]:
    every = runs()
    by_suite = _by(every, lambda r: r.suite)
    return [
        "## By suite\n",
        table(
            ["suite", *_HEADER],
            [*([f"`{k}`", *_cells(v)] for k, v in by_suite.items()), ["all", *_cells(every)]],
        ),
        "## By kind of run\n",
        (
            "Within suites: MAPE once the predictions of each suite are divided by their median"
            " ratio to what was measured, the floor that no number of a machine or a stack could"
            " undercut.\n"
        ),
        table(
            KINDS,
            [
                [
                    k,
                    e.n,
                    e.suites,
                    *map(
                        percent,
                        (
                            e.mape,
                            e.mape_of_suites,
                            e.median_ape,
                            e.bias,
                            e.worst,
                            e.mape_within_suites,
                        ),
                    ),
                ]
                for k, e in validated().kinds.items()
            ],
        ),
        "## By GPU\n",
        table(
            ["gpu", *_HEADER],
            [[f"`{k}`", *_cells(v)] for k, v in _by(every, lambda r: r.gpu).items()],
        ),
        "## By stack\n",
        table(
            ["stack", *_HEADER],
            [[f"`{k}`", *_cells(v)] for k, v in _by(every, lambda r: r.stack).items()],
        ),
        "## By GPU and stack, with the band it gives\n",
        (
            "The band is measured over predicted: the factor on a predicted step time, the mean"
            " over these runs, of residuals without their suites.\n"
        ),
        table(
            ["gpu", "stack", *_HEADER, ">band"],
            [
                [f"`{v[0].gpu}`", f"`{v[0].stack}`", *_cells(v), _band(v)]
                for v in _by(every, lambda r: f"{r.gpu}\t{r.stack}").values()
            ],
        ),
    ]


def _not_printed() -> list[str]:
    not_printed = validated().not_printed
    cells = ", ".join(f"`{name}` ({rows})" for name, rows in not_printed.cells.items())
    return [
        "## Recipes that are not printed\n",
        (
            f"{not_printed.rows} rows leave cells of their layout open: {cells}. Each has the"
            " fastest layout that is expected to fit among those it allows, so its error includes"
            " the errors of search and memory. No other table of this page counts them; the bands"
            " do.\n"
        ),
        table(
            ["suite", *_HEADER],
            [
                [name, s.time.n, *_four(s.time), percent(s.noise.mean)]
                for name, s in [
                    *((f"`{k}`", s) for k, s in not_printed.suites.items()),
                    ("all", not_printed.summary),
                ]
                if s.time.n
            ],
        ),
    ]


def _worst() -> list[str]:
    return [
        f"## The {_WORST} worst runs\n",
        table(
            ["run", "gpu", "stack", ">error"],
            [
                [f"`{r.run_id}`", f"`{r.gpu}`", f"`{r.stack}`", percent(r.time_error)]
                for r in sorted(runs(), key=lambda r: (-abs(math.log1p(r.time_error)), r.run_id))[
                    :_WORST
                ]
            ],
        ),
    ]


def _cross_validation() -> list[str]:
    return crossvalidation.parts(validated(), crossed())


def _fine_tuning() -> list[str]:
    return finetuning.parts([row for row in validated().rows if complete(row)])


# the sections in their order; each gives Markdown parts
SECTIONS: tuple[Callable[[], list[str]], ...] = (
    _trust,
    _errors,
    _not_printed,
    _fine_tuning,
    _cross_validation,
    _bands,
    projects.parts,
    _ranking,
    _memory,
    _ablations,
    _worths,
    _worst,
)


# sections that share a page; the first stands on the index
_TOGETHER = {
    "What the words mean": "",
    "Do the bands hold": "Bands",
    "Do the chances to fit hold": "Bands",
    **dict.fromkeys(
        (
            "By suite",
            "By kind of run",
            "By GPU",
            "By stack",
            "By GPU and stack, with the band it gives",
            "Recipes that are not printed",
            f"The {_WORST} worst runs",
        ),
        "Errors by suite, kind, GPU and stack",
    ),
    "Order of layouts": "Order of layouts, and memory",
    "Memory": "Order of layouts, and memory",
    "What single mechanisms are worth": "What mechanisms and options are worth",
    "What single options are worth": "What mechanisms and options are worth",
}


def folder() -> dict[str, str]:
    """Pages of docs/accuracy by name."""
    return sheets(_text(), "accuracy", _TOGETHER)


def _text() -> str:
    e, noise = errors([r.time_error for r in runs()]), validated().summary.noise
    suites = len(_by(runs(), lambda r: r.suite))
    head = (
        f"{NOTICE}# Accuracy\n\nPredicted against measured step time over {e.n:,} published runs"
        f" in {suites} suites: mean absolute error {percent(e.mape)}, median"
        f" {percent(e.median_ape)}, bias {percent(e.bias)}, worst {percent(e.worst)}."
        f" Noise floor of the data: {noise.n} runs that repeat another lie"
        f" {percent(noise.mean)} from their median on average. `dpplan validate` prints these"
        " numbers.\n"
    )
    return "\n".join([head, meaning.MEANING, *(part for section in SECTIONS for part in section())])


_CLASSES = ("mixture of experts", "fp8", "offload", *get_args(Task))


def _classes(runs: list[Run]) -> str:
    """Errors of classes of runs, predicted by numbers fitted without their suites."""
    times = unseen()
    by_class = {
        name: errors(
            [
                times[run.run_id] / run.measured_step_s - 1
                for run in runs
                if run.run_id in times and run.measured_step_s and BY_KIND[name](run)
            ]
        )
        for name in _CLASSES
    }
    return ", ".join(
        f"{name} {percent(e.mape)} and {percent(e.median_ape)} ({e.n:,} runs)"
        for name, e in sorted(by_class.items(), key=lambda item: -item[1].n)
        if e.n
    )


def status() -> str:
    """One paragraph for the README."""
    every = runs()
    e, noise = errors([r.time_error for r in every]), validated().summary.noise
    coverage = _coverage().left_out["suites"].all.mean_of_suites
    held_out = crossed().kinds["suites"].all
    within = sum(abs(r.time_error) <= 0.2 for r in every)
    return (
        f"Step time was compared with {e.n:,} published runs on"
        f" {len(_by(every, lambda r: r.gpu))} GPUs and {len(_by(every, lambda r: r.stack))}"
        f" training stacks: mean absolute error {percent(e.mape)}, median"
        f" {percent(e.median_ape)}, bias {percent(e.bias)}, worst {percent(e.worst)};"
        f" {within / len(every):.0%} of them within 20 %. Repeats of one run lie"
        f" {percent(noise.mean)} from their median. Predicted by numbers fitted without its"
        f" suite, a run is {percent(held_out.mape)} off on average, half of them at most"
        f" {percent(held_out.median_ape)}; by class, mean and median: {_classes(every)}. Bands made"
        f" without a suite hold {coverage:.0%} of its runs, on average over suites."
        " The defaults were chosen while looking at these runs, so this is not a blind test."
        " [docs/accuracy](docs/accuracy/index.md) has the tables; `dpplan validate` computes"
        " them.\n"
    )
