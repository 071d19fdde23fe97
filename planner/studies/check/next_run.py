"""The run of a cluster that would tell a calibration most: of the fastest layouts of every
combination of degrees, the one after which the steps of all of them are known best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.estimate import Estimates
from planner.estimate.machine import machine
from planner.inputs.scenario import resolve
from planner.ledger import Array
from planner.report import layout as report
from planner.report.search import best_of
from planner.search import Wanted
from planner.search.answer import answer_of
from planner.specs.document import extended
from planner.specs.layout import Layout
from planner.specs.options import LAYOUT, Options
from planner.studies.documents.check import NextRun
from planner.studies.validate import design, fit
from planner.studies.validate.parameters import PLATFORM, Parameter

# layouts that are looked at: several of a combination of degrees differ only in micro-batch
_FASTEST = 96
_CANDIDATES = 24
# spread of the log error of a layout around what its calibrated platform has in common, which
# counts as much as four runs of the cluster: errors named beforehand are then 0.98 to 1.13 of those
# there are after 1 to 5 runs, geometric means of 20 platforms (benchmarks/studies/next_runs.py)
REST, REST_RUNS = 0.055, 4.0
_NUMBERS = tuple(parameter.name for parameter in PLATFORM)
SPREAD = np.array([parameter.spread for parameter in PLATFORM])


def next_run(
    options: Options, cases: Sequence[fit.Case], residual: Array, noise: float
) -> NextRun | None:
    """The most informative layout of the request that these runs have not had; None where there is
    no other that fits.

    residual: (runs,) log of measured over predicted with the calibration of these runs; noise:
    spread of the log error of a run around its platform.
    """
    candidates = _candidates(options)
    if not candidates:
        return None
    had = {_kind(case.table.layout(0)) for case in cases}
    slopes = np.stack([_slopes(_case(*pair)) for pair in candidates])
    of_runs = np.stack([_slopes(case) for case in cases])
    new = [i for i, (e, row) in enumerate(candidates) if _kind(e.table.layout(row)) not in had]
    if not new:
        return None
    known = design.covariance(of_runs, SPREAD, noise)
    prior = design.likeness(np.vstack([slopes, of_runs]), SPREAD, noise)
    gains = design.gains(prior, range(len(slopes), len(prior)), noise)
    chosen = max(new, key=lambda i: float(gains[i]))
    estimates, row = candidates[chosen]
    rest = design.remaining(residual, REST, REST_RUNS)
    after = design.with_run(known, slopes[chosen], noise)
    return extended(
        NextRun,
        report.line(options, estimates, row),
        tells=_tells(slopes[chosen], known),
        error_now=design.expected_error(slopes, known, rest),
        error_after=design.expected_error(slopes, after, rest),
    )


def _candidates(options: Options) -> list[tuple[Estimates, int]]:
    """The fastest layout with room of each combination of degrees, recompute and ZeRO stage."""
    opened = options.changed(**dict.fromkeys(LAYOUT), stack_defaults=True)
    answer = answer_of(resolve(opened), wanted=Wanted(_FASTEST))
    if answer is None or not answer.fits:
        return []
    kinds: dict[tuple[object, ...], tuple[Estimates, int]] = {}
    for estimates, row in best_of(answer.searches, _FASTEST, "time"):
        kinds.setdefault(_kind(estimates.table.layout(row)), (estimates, row))
    return list(kinds.values())[:_CANDIDATES]


def _kind(layout: Layout) -> tuple[object, ...]:
    """Values of a layout that distinguish runs: all but the order of its pipeline chunks."""
    names = ("tp", "pp", "cp", "ep", "zero", "recompute", "micro_batch")
    return tuple(getattr(layout, name) for name in names)


def _case(estimates: Estimates, row: int) -> fit.Case:
    plan = estimates.plan
    return fit.Case({}, plan, estimates.table.pick([row]), machine(plan), 0.0)


def _slopes(case: fit.Case) -> Array:
    """(numbers of the platform,) change of the log step time with the logarithm of each."""
    ((_, slopes),) = fit.elasticities(case, [(PLATFORM, [{}])])
    out = np.zeros(len(PLATFORM))
    out[[_NUMBERS.index(label) for label in fit.labels(case, PLATFORM)]] = slopes[0]
    return out


def _tells(slopes: Array, known: Array) -> str:
    """The number that the run would narrow most, in words."""
    shares = np.square(known @ slopes) / np.diag(known)
    parameter: Parameter = PLATFORM[int(np.argmax(shares))]
    return parameter.meaning
