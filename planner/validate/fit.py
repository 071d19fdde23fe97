"""Fit few physical numbers on measured runs: multipliers on a plan's machine numbers, pulled towards 1 by what is known of them.

The estimate is the maximum of the posterior: squared log errors of step time with large ones counted less (Huber 1964), and a
normal prior on the logarithm of every multiplier. A number that the runs say nothing about stays where the profile has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner import request
from planner.estimate.machine import Machine, machine
from planner.estimate.step import step_time
from planner.estimate.table import Table, to_table
from planner.ledger import Array
from planner.specs.base import PlanError
from planner.specs.plan import Plan
from planner.validate.plans import row_plan
from planner.validate.rows import Row, measured

_STEP = 0.02  # relative step of the finite differences
_NOISE = 0.05  # spread of the log error of a good fit: noise of the data and what formulas leave out
_HUBER = 1.5  # spreads beyond which an error counts linearly
_MATTERS = 0.02  # elasticity of the step time from which a run says something about a number


@dataclass(frozen=True)
class Parameter:
    """A multiplier on numbers of the machine that move together."""

    name: str
    numbers: tuple[str, ...]
    meaning: str
    spread: float  # standard deviation of the log multiplier before any run is seen
    low: float  # bounds of the multiplier
    high: float
    scope: Callable[[Plan], str | None] = lambda plan: ""  # plans that share one value; None: it has none there


# what a cluster and its software may shift against the defaults: the numbers that a calibration measures
PLATFORM = (
    Parameter("clock", ("sustained_clock",), "tensor clock under load", 0.12, 0.7, 1.3),
    Parameter("elementwise", ("elementwise_limit",), "rate of elementwise kernels on unlimited memory", 0.3, 0.5, 1.6),
    Parameter("launch", ("operator_launch",), "CPU time to issue an operator", 0.25, 0.5, 2.0),
    Parameter("attention", ("attention_forward", "attention_backward"), "share of the rate of attention kernels", 0.25, 0.5, 1.8),
    Parameter("contention", ("slowdown",), "slow-down of compute beside a collective", 0.5, 0.25, 2.5),
    Parameter("network", ("nic_per_gpu",), "bandwidth between nodes", 0.2, 0.5, 1.5),
    Parameter("node link", ("intra_bandwidth",), "bandwidth inside a node", 0.15, 0.6, 1.6),
)  # fmt: skip
CLOCK_ONLY = PLATFORM[:1]


def _compiled(plan: Plan) -> str:
    return "compiled" if float(plan.stack.launch.operator) < 20e-6 else "PyTorch"  # C++ and XLA against Python


# what one value serves in all profiles and stacks
SHARED = (
    Parameter("clock", ("sustained_clock",), "tensor clock under load, pulled towards the power law", 0.06, 0.7, 1.3,
              lambda plan: plan.cluster.gpu.id.rpartition("-")[0] or plan.cluster.gpu.id),
    Parameter("elementwise", ("elementwise_limit",), "rate of elementwise kernels on unlimited memory", 0.3, 0.5, 1.6, _compiled),
    Parameter("attention", ("attention_forward", "attention_backward"), "share of the rate of attention kernels", 0.25, 0.5, 1.8,
              lambda plan: plan.cluster.gpu.architecture),
    Parameter("launch", ("operator_launch",), "CPU time to issue an operator", 0.3, 0.5, 2.0, _compiled),
    Parameter("operators of a collective", ("operators_per_collective",), "CPU cost of a collective, in operators", 0.7, 0.2, 4.0),
    Parameter("contention", ("slowdown",), "slow-down of compute beside a collective", 0.5, 0.25, 2.5),
    Parameter("network", ("nic_per_gpu",), "bandwidth between nodes", 0.2, 0.5, 1.5,
              lambda plan: ("EFA" if plan.cluster.inter_node.id.startswith("efa") else "") if plan.cluster.nodes > 1 else None),
    Parameter("fp8 casts", ("cast_bytes",), "bytes moved per operand to make its 8-bit copies", 0.7, 0.2, 4.0,
              lambda plan: "" if plan.training.precision == "fp8" else None),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A measured run ready to be estimated under other numbers."""

    row: Row
    plan: Plan
    table: Table
    numbers: Machine
    log_seconds: float  # measured

    @property
    def platform(self) -> str:
        """Cluster and software: runs of one source on one GPU with one program."""
        return "/".join((self.row["suite"], self.row["gpu"], self.row["stack"]))


@dataclass(frozen=True)
class Value:
    """A fitted multiplier."""

    parameter: Parameter
    label: str
    multiplier: float
    spread: float  # standard deviation of its logarithm afterwards
    runs: int  # runs whose step time depends on it by more than 2 % of its own change
    on_bound: bool


def cases(rows: Sequence[Row], calibration: request.Calibration | None = None) -> list[Case]:
    """Runs with a time that can be expressed."""
    found = []
    for row in rows:
        try:
            seconds = measured(row, "step_s")
            if seconds is None or row.get("outcome", "") == "oom":
                continue
            plan, layout = row_plan(row, calibration)
            found.append(Case(row, plan, to_table([layout]), machine(plan), float(np.log(seconds))))
        except (PlanError, ValueError):
            continue
    return found


def labels(case: Case, parameters: Sequence[Parameter]) -> dict[str, Parameter]:
    """The multipliers that apply to a case: label to parameter."""
    out = {}
    for parameter in parameters:
        scope = parameter.scope(case.plan)
        if scope is not None:
            out[f"{parameter.name} {scope}".strip()] = parameter
    return out


def moved(case: Case, parameters: Sequence[Parameter], multipliers: dict[str, float]) -> Machine:
    """The numbers of a case under these multipliers."""
    changes = {}
    for label, parameter in labels(case, parameters).items():
        factor = multipliers.get(label, 1.0)
        for name in parameter.numbers:
            changes[name] = getattr(case.numbers, name) * factor
    return replace(case.numbers, **changes)


def log_time(case: Case, numbers: Machine) -> float:
    """Logarithm of the predicted step time."""
    return float(np.log(step_time(case.plan, case.table, numbers).seconds[0]))


def gradient(case: Case, parameters: Sequence[Parameter], multipliers: dict[str, float]) -> tuple[float, dict[str, float]]:
    """Log of the predicted step time and its elasticity in every multiplier, in one evaluation of several rows."""
    base, known = moved(case, parameters, multipliers), labels(case, parameters)
    rows = len(known) + 1
    columns: dict[str, Array] = {name: np.full(rows, float(getattr(base, name))) for name in base.names()}
    for i, parameter in enumerate(known.values()):
        for name in parameter.numbers:
            columns[name][i + 1] *= 1 + _STEP
    table = {name: np.repeat(column, rows) for name, column in case.table.items()}
    seconds = step_time(case.plan, table, replace(base, **columns)).seconds  # type: ignore[arg-type]
    slopes = np.log(seconds[1:] / seconds[0]) / np.log(1 + _STEP)
    return float(np.log(seconds[0])), dict(zip(known, (float(s) for s in slopes), strict=True))


class Problem:
    """Step times of cases, linear in the log multipliers around one point."""

    def __init__(self, found: Sequence[Case], parameters: Sequence[Parameter], multipliers: dict[str, float] | None = None) -> None:
        self.cases, self.parameters = list(found), tuple(parameters)
        start = multipliers or {}
        lines = [gradient(case, parameters, start) for case in found]
        known: dict[str, Parameter] = {}
        for case in found:
            known.update(labels(case, parameters))
        self.known = dict(sorted(known.items()))
        self.slopes = np.array([[line[1].get(label, 0.0) for label in self.known] for line in lines]).reshape(len(lines), -1)
        self.at = np.array([np.log(start.get(label, 1.0)) for label in self.known])
        self.residual = np.array([case.log_seconds - line[0] for case, line in zip(found, lines, strict=True)])

    def solve(self, weight: Array) -> tuple[dict[str, float], list[Value]]:
        """Multipliers for these weights of the cases (0 leaves a case out), within their bounds."""
        count = len(self.known)
        if not count:
            return {}, []
        spread = np.array([p.spread for p in self.known.values()])
        low, high = (np.log([getattr(p, side) for p in self.known.values()]) for side in ("low", "high"))
        shift = np.zeros(count)
        precision = np.diag(1 / spread**2)
        for _ in range(8):
            rest = self.residual - self.slopes @ shift
            robust = weight / np.maximum(1.0, np.abs(rest) / (_HUBER * _NOISE)) / _NOISE**2
            hessian = self.slopes.T @ (self.slopes * robust[:, None]) + precision
            step = np.linalg.solve(hessian, self.slopes.T @ (rest * robust) - precision @ (self.at + shift))
            shift = np.clip(self.at + shift + step, low, high) - self.at
        total = self.at + shift
        error = np.sqrt(np.diag(np.linalg.inv(hessian)))
        matters = ((np.abs(self.slopes) > _MATTERS) & (weight[:, None] > 0)).sum(axis=0)
        values = [
            Value(parameter, label, float(np.exp(total[i])), float(error[i]), int(matters[i]),
                  bool(total[i] <= low[i] + 1e-9 or total[i] >= high[i] - 1e-9))
            for i, (label, parameter) in enumerate(self.known.items())
        ]  # fmt: skip
        return {v.label: v.multiplier for v in values}, values


def suite_weights(found: Sequence[Case]) -> Array:
    """One over the root of the size of a case's platform: a suite of 300 runs counts more than one of 30, but not ten times."""
    names = [case.platform for case in found]
    weight = np.array([names.count(name) ** -0.5 for name in names])
    return weight * len(found) / weight.sum()


def fit(found: Sequence[Case], parameters: Sequence[Parameter], weight: Array | None = None) -> tuple[Problem, list[Value]]:
    """Fit around the defaults, then once more around the answer: the problem linear at the optimum, and the values."""
    weights = np.ones(len(found)) if weight is None else weight
    first, _ = Problem(found, parameters).solve(weights)
    problem = Problem(found, parameters, first)
    return problem, problem.solve(weights)[1]
