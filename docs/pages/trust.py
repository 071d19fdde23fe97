"""Where docs/accuracy trusts a step time and where not, in words, by kind of run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

from pages.text import percent, table
from planner.studies.documents.validate import Run
from planner.studies.validate.errors import KINDS, errors, errors_of_suites

_FEWEST_RUNS, _FEWEST_SUITES = 10, 2
_VERDICTS = (  # mean error up to which one says it
    (0.08, "trust it"),
    (0.15, "trust it to choose; measure before money depends on the number"),
    (math.inf, "do not rely on it: measure, or take the slow end of the band"),
)


def _verdict(runs: list[Run]) -> str:
    """In words, by the larger of the mean over runs and over suites."""
    suites: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        suites[run.suite].append(run.time_error or 0.0)
    if len(runs) < _FEWEST_RUNS or len(suites) < _FEWEST_SUITES:
        return "too few runs to say: measure"
    e = errors_of_suites(suites)
    off = max(e.mape or 0.0, e.mape_of_suites or 0.0)
    return next(words for limit, words in _VERDICTS if off <= limit)


def parts(known: list[Run], fresh: list[Run]) -> list[str]:
    """The section, of runs in view and of runs never in view, each with a time."""
    classes: dict[str, Callable[[Run], bool]] = {
        **{k: v for k, v in KINDS.items() if not k.startswith("tier")},
        **{
            f"{family} stacks": lambda run, family=family: run.family == family
            for family in sorted({run.family for run in known})
        },
        **{
            f"{architecture} GPUs": lambda run, architecture=architecture: (
                run.architecture == architecture
            )
            for architecture in sorted({run.architecture for run in [*known, *fresh]})
        },
    }
    rows = []
    for name, belongs in classes.items():
        seen, unseen = ([r for r in some if belongs(r)] for some in (known, fresh))
        e, other = (errors([r.time_error for r in some]) for some in (seen, unseen))
        rows.append(
            [
                name,
                *(e.n, percent(e.mape), percent(e.median_ape)),
                *(other.n, percent(other.mape), percent(other.median_ape)),
                _verdict([*seen, *unseen]),
            ]
        )
    return [
        "## Where to trust it, and where not\n",
        (
            "Runs in view while the defaults were chosen, runs of suites never in view, and what"
            " follows of both, by the larger of the mean error over runs and over suites: up to"
            f" {percent(_VERDICTS[0][0], 0)}, up to {percent(_VERDICTS[1][0], 0)}, more. Fewer than"
            f" {_FEWEST_RUNS} runs or {_FEWEST_SUITES} suites say nothing.\n"
        ),
        table(
            [
                "class of run",
                ">in view",
                ">MAPE",
                ">median",
                ">never in view",
                ">MAPE",
                ">median",
                "verdict",
            ],
            rows,
        ),
    ]
