"""Numbers that were read off runs of fine-tuning, the waits of the CPU in a trainer: fitted again
without the runs of one model or method, which are then predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.estimate.machine import machine
from planner.estimate.step import step_time
from planner.ledger import Array, first
from planner.specs.base import PlanError
from planner.studies.runs.cells import Row, Skip
from planner.studies.validate.reinforcement import is_phased
from planner.studies.validate.rows import measured, outcome_of
from planner.studies.validate.scored import scored
from planner.studies.validate.words import task_of

NUMBERS = ("layer_idle", "adapter_idle", "token_idle")  # of a stack's launches
_ROUNDS, _LEAST = 200, 1e-6  # of the fit: reweighted squares become absolute errors


@dataclass(frozen=True)
class Waiting:
    """A measured run whose step holds some of the numbers: its seconds are linear in them."""

    run_id: str
    model: str
    method: str
    measured_s: float
    bare_s: float  # without them
    slopes: Array  # calls per step, one value per number
    shipped: Array  # seconds of each

    def error(self, numbers: Array) -> float:
        """Predicted over measured, minus one."""
        return float((self.bare_s + self.slopes @ numbers) / self.measured_s - 1)


def waiting(rows: Sequence[Row]) -> list[Waiting]:
    """The runs of fine-tuning among these rows that hold some of the numbers."""
    out = []
    for row in rows:
        if is_phased(row) or outcome_of(row) == "oom" or not measured(row, "step_s"):
            continue
        try:
            known = scored(row)
        except (PlanError, Skip, ValueError):
            continue
        plan, table = known.plan, known.estimates.table
        numbers = machine(plan)
        shipped = np.array([float(getattr(numbers, name)) for name in NUMBERS])
        method = task_of(row, plan)
        if not shipped.any() or method == "pre-training":
            continue

        def seconds(changes: dict[str, Any]) -> float:
            return first(step_time(plan, table, replace(numbers, **changes)).seconds)  # noqa: B023

        whole = seconds({})
        slopes = np.array(
            [
                (seconds({name: 2 * each}) - whole) / each if each else 0.0
                for name, each in zip(NUMBERS, shipped, strict=True)
            ]
        )
        out.append(
            Waiting(
                run_id=row["run_id"],
                model=plan.model.name,
                method=f"{method}, {plan.stack.title}",
                measured_s=float(row["step_s"]),
                bare_s=whole - float(slopes @ shipped),
                slopes=slopes,
                shipped=shipped,
            )
        )
    return out


def fitted(runs: Sequence[Waiting]) -> Array:
    """The numbers with the least sum of absolute relative errors over these runs; 0 of what none
    of them holds."""
    calls = np.array([run.slopes / run.measured_s for run in runs]).reshape(-1, len(NUMBERS))
    lacks = np.array([1 - run.bare_s / run.measured_s for run in runs])
    known = calls.any(axis=0)
    out, weights = np.zeros(len(NUMBERS)), np.ones(len(runs))
    for _ in range(_ROUNDS if known.any() else 0):
        root = np.sqrt(weights)
        solution = np.linalg.lstsq(calls[:, known] * root[:, None], lacks * root, rcond=None)[0]
        out[known] = np.maximum(solution, 0.0)
        weights = 1 / np.maximum(np.abs(calls @ out - lacks), _LEAST)
    return out


def left_out(
    runs: Sequence[Waiting], key: Callable[[Waiting], str]
) -> dict[str, tuple[Array, list[float]]]:
    """By the name of what is left out: the numbers fitted to all other runs, and the errors of its
    own with them."""
    out = {}
    for name in sorted({key(run) for run in runs}):
        numbers = fitted([run for run in runs if key(run) != name])
        out[name] = numbers, [run.error(numbers) for run in runs if key(run) == name]
    return out
