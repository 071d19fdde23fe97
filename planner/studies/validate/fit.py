"""Fit few physical numbers on measured runs: multipliers on a plan's machine numbers, pulled
towards 1 by what is known of them.

The estimate is the maximum of the posterior: squared log errors of step time with large ones
counted less (Huber 1964), and a normal prior on the logarithm of every multiplier. A number that
the runs say nothing about stays where the profile has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.estimate.machine import Machine, machine
from planner.estimate.step import StepTime, step_time
from planner.evidence.weights import suite_members, suite_weight
from planner.inputs.calibration import Calibration
from planner.ledger import Array
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.plan import Plan
from planner.studies.runs.cells import Row
from planner.studies.validate.parameters import Parameter
from planner.studies.validate.rows import measured
from planner.studies.validate.scored import scored

# correlation of errors within a suite: between-suite over total variance over the shipped runs
_WITHIN_SUITE = 0.16
_STEP = 0.02  # relative step of the finite differences
HUBER = 1.5  # spreads beyond which an error counts linearly
_MATTERS = 0.02  # elasticity of the step time from which a run says something about a number
_ROUNDS = 50  # at most, of reweighting and solving; about ten are needed
_SETTLED = 1e-10  # change of a log multiplier below which nothing moves any more


@dataclass(frozen=True)
class Trust:
    """How far runs are trusted."""

    # spread of the log error of a good fit: noise of the data and what formulas leave out
    noise: float
    fewest: int = 3  # runs that a number must rest on; with fewer it is not fitted


WITHIN = Trust(0.05)  # runs of one platform
# Runs of many suites: what their platforms do differently is noise to a number they share. The
# logarithm of measured over predicted spreads by 0.11. At 0.05, as tried before, a suite of 20 runs
# moved a GPU's clock as if nothing else could be the reason, and the suites left out were 9.0
# instead of 8.2 % off.
ACROSS = Trust(0.10)

Multipliers = dict[str, float]  # by label; what is not named is 1


@dataclass(frozen=True)
class Case:
    """A measured run ready to be estimated under other numbers."""

    row: Row
    plan: Plan
    table: Columns  # one layout
    numbers: Machine
    log_seconds: float  # measured
    complete: bool = True  # the row states its whole layout, so that errors are the estimate's

    @property
    def seconds(self) -> float:
        """Measured step time."""
        return float(np.exp(self.log_seconds))

    @property
    def platform(self) -> str:
        """Cluster and stack: runs of one suite on one GPU."""
        return "/".join((self.row["suite"], self.row["gpu"], self.row["stack"]))


@dataclass(frozen=True)
class Value:
    """A fitted multiplier."""

    parameter: Parameter
    label: str
    multiplier: float
    spread: float  # standard deviation of its logarithm afterwards
    runs: int  # runs whose step time moves by more than 2 % of its own relative change
    on_bound: bool


def cases(rows: Sequence[Row], calibration: Calibration | None = None) -> list[Case]:
    """Runs with a time that can be expressed; the others are left out, as in validation, which
    names them."""
    result = []
    for row in rows:
        try:
            seconds = measured(row, "step_s")
            if seconds is None or row.get("outcome", "") == "oom":
                continue
            known = scored(row, calibration)
            plan = known.plan
            result.append(
                Case(
                    row,
                    plan,
                    known.estimates.table,
                    machine(plan),
                    float(np.log(seconds)),
                    complete=not known.run.open,
                )
            )
        except (PlanError, ValueError):
            continue
    return result


def labels(case: Case, parameters: Sequence[Parameter]) -> dict[str, Parameter]:
    """The multipliers that apply to a case: label to parameter."""
    out = {}
    for parameter in parameters:
        scope = parameter.scope(case.plan)
        if scope is not None:
            out[f"{parameter.name} {scope}".strip()] = parameter
    return out


def multipliers(values: Sequence[Value]) -> Multipliers:
    """Fitted multipliers by label."""
    return {value.label: value.multiplier for value in values}


Evaluations = tuple[Sequence[Parameter], Sequence[Multipliers]]  # points, and what they multiply


def step_times(
    case: Case,
    parameters: Sequence[Parameter],
    points: Sequence[Multipliers],
    *,
    moved: bool = False,
) -> StepTime:
    """Step time of a case under each of these sets of multipliers, evaluated together: one row per
    point.

    moved: after each point, a row more for every multiplier of the case (in the order of `labels`)
    with that one 2 % larger.
    """
    return times_of(case, [(parameters, points)], moved=moved)


def times_of(case: Case, questions: Sequence[Evaluations], *, moved: bool = False) -> StepTime:
    """`step_times` of several questions in turn, in one evaluation, which takes as long as a single
    question."""
    parts = [_numbers(case, *question, moved) for question in questions]
    rows = sum(count for count, _ in parts)
    numbers: dict[str, Any] = {}
    for name in case.numbers.names():
        shipped = float(getattr(case.numbers, name))
        numbers[name] = (
            np.concatenate([part.get(name, np.full(count, shipped)) for count, part in parts])
            if any(name in part for _, part in parts)
            else np.full(rows, shipped)
        )
    table = case.table.each(lambda column: np.repeat(column, rows))
    return step_time(case.plan, table, replace(case.numbers, **numbers))


def _numbers(
    case: Case, parameters: Sequence[Parameter], points: Sequence[Multipliers], moved: bool
) -> tuple[int, dict[str, Array]]:
    """(rows, the numbers of the machine that differ between them)."""
    known = labels(case, parameters)
    each = len(known) + 1 if moved else 1
    columns: dict[str, Array] = {}
    for i, (label, parameter) in enumerate(known.items()):
        factor = np.repeat([point.get(label, 1.0) for point in points], each)
        if moved:
            factor[i + 1 :: each] *= 1 + _STEP
        for name in parameter.numbers:
            columns[name] = columns.get(name, float(getattr(case.numbers, name))) * factor
    return each * len(points), columns


def elasticities(case: Case, questions: Sequence[Evaluations]) -> list[tuple[Array, Array]]:
    """For each question the log of the step time at each point (points,), and d log time / d log
    multiplier there (points, multipliers of the case)."""
    seconds = times_of(case, questions, moved=True).seconds
    lengths = [
        len(points) * (len(labels(case, parameters)) + 1) for parameters, points in questions
    ]
    out = []
    for part, (_, points) in zip(
        np.split(seconds, np.cumsum(lengths)[:-1]), questions, strict=True
    ):
        each = part.reshape(len(points), -1)
        out.append((np.log(each[:, 0]), np.log(each[:, 1:] / each[:, :1]) / np.log(1 + _STEP)))
    return out


@dataclass(frozen=True)
class Problem:
    """Step times of runs, linear in the log multipliers around one point."""

    known: dict[str, Parameter]
    at: Array  # (multipliers,) log multipliers of the point
    slopes: Array  # (runs, multipliers) d log time / d log multiplier
    residual: Array  # (runs,) log of measured over predicted time at the point

    def solve(self, weight: Array, trust: Trust = WITHIN) -> list[Value]:
        """Multipliers within their bounds for these weights of the runs; 0 leaves a run out.

        A number that fewer than `trust.fewest` of the runs depend on is not fitted: it has no value
        here and stays at 1.
        """
        count = len(self.known)
        spread = np.array([p.spread for p in self.known.values()])
        low, high = (
            np.log([getattr(p, side) for p in self.known.values()]) for side in ("low", "high")
        )
        runs = ((np.abs(self.slopes) > _MATTERS) & (weight[:, None] > 0)).sum(axis=0)
        fitted = runs >= trust.fewest
        total = np.where(fitted, self.at, 0.0)
        hessian = np.diag(1 / spread**2)
        for _ in range(_ROUNDS):
            rest = self.residual - self.slopes @ (total - self.at)
            robust = weight / np.maximum(1.0, np.abs(rest) / (HUBER * trust.noise)) / trust.noise**2
            hessian = self.slopes.T @ (self.slopes * robust[:, None]) + np.diag(1 / spread**2)
            downhill = self.slopes.T @ (rest * robust) - total / spread**2
            # what presses on its bound is held there, and the others find their best without it
            at_bound = ((total <= low) & (downhill < 0)) | ((total >= high) & (downhill > 0))
            free = np.flatnonzero(fitted & ~at_bound)
            step = np.zeros(count)
            step[free] = np.linalg.solve(hessian[np.ix_(free, free)], downhill[free])
            before, total = total, np.clip(total + step, low, high)
            if np.abs(total - before).max(initial=0.0) < _SETTLED:
                break
        at = np.flatnonzero(fitted)
        error = np.zeros(count)
        error[at] = np.sqrt(np.diag(np.linalg.inv(hessian[np.ix_(at, at)])))
        return [
            Value(
                parameter,
                label,
                float(np.exp(total[i])),
                float(error[i]),
                int(runs[i]),
                bool(total[i] in (low[i], high[i])),
            )
            for i, (label, parameter) in enumerate(self.known.items())
            if fitted[i]
        ]


@dataclass(frozen=True)
class Question:
    """Fits on some of the runs: these numbers, once for each set of weights of the members."""

    members: Sequence[int]  # places of the runs
    parameters: Sequence[Parameter]
    weights: Sequence[Array]
    trust: Trust = WITHIN


def _problems(
    cases: Sequence[Case], questions: Sequence[Question], points: Sequence[Sequence[Multipliers]]
) -> list[list[Problem]]:
    """For each question its runs, linear around each of its points."""
    at_points = []
    asking: dict[int, list[tuple[int, int]]] = {}  # by run: questions, and its place in each
    for q, (question, starts) in enumerate(zip(questions, points, strict=True)):
        known = {
            label: parameter
            for i in question.members
            for label, parameter in labels(cases[i], question.parameters).items()
        }
        runs = len(question.members)
        at_points.append(
            [
                Problem(
                    dict(sorted(known.items())),
                    np.log([point.get(label, 1.0) for label in sorted(known)]),
                    np.zeros((runs, len(known))),
                    np.zeros(runs),
                )
                for point in starts
            ]
        )
        for place, i in enumerate(question.members if starts else ()):
            asking.setdefault(i, []).append((q, place))
    for i, here in asking.items():
        case = cases[i]
        answers = elasticities(case, [(questions[q].parameters, points[q]) for q, _ in here])
        for (q, place), (log_seconds, slopes) in zip(here, answers, strict=True):
            order = sorted(at_points[q][0].known)
            columns = [order.index(label) for label in labels(case, questions[q].parameters)]
            for problem, log_s, each in zip(at_points[q], log_seconds, slopes, strict=True):
                problem.residual[place] = case.log_seconds - log_s
                problem.slopes[place, columns] = each
    return at_points


def suite_weights(cases: Sequence[Case]) -> Array:
    """Weights where suites err together: 300 runs of one are hardly more evidence than 30."""
    suites = np.array([case.row["suite"] for case in cases], dtype=str)
    return suite_weight(suite_members(suites), _WITHIN_SUITE)


def answers(cases: Sequence[Case], questions: Sequence[Question]) -> list[list[list[Value]]]:
    """For each question one fit for each set of weights: linear around the defaults, then once
    more around its own first answer.

    A run of weight 0 has no part in its fit, the point of linearisation included.
    """
    starts = _problems(cases, questions, [[{}] for _ in questions])
    points = [
        [multipliers(start.solve(weight, question.trust)) for weight in question.weights]
        for question, (start,) in zip(questions, starts, strict=True)
    ]
    again = _problems(cases, questions, points)
    return [
        [
            problem.solve(weight, question.trust)
            for problem, weight in zip(problems, question.weights, strict=True)
        ]
        for question, problems in zip(questions, again, strict=True)
    ]


def fits(
    cases: Sequence[Case],
    parameters: Sequence[Parameter],
    weights: Sequence[Array],
    trust: Trust = WITHIN,
) -> list[list[Value]]:
    """The answers to one question of all these runs."""
    if not cases:
        return [[] for _ in weights]
    return answers(cases, [Question(range(len(cases)), parameters, weights, trust)])[0]


def fit(
    cases: Sequence[Case],
    parameters: Sequence[Parameter],
    weight: Array | None = None,
    trust: Trust = WITHIN,
) -> list[Value]:
    """Multipliers fitted on these runs, all of weight 1 by default."""
    return fits(cases, parameters, [np.ones(len(cases)) if weight is None else weight], trust)[0]
