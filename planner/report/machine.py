"""The numbers of the machine behind a step time: sources, and what the step time makes of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.estimate.machine import Machine, machine, moved_one_by_one
from planner.estimate.step import step_time
from planner.ledger import Sourced
from planner.specs.columns import Columns
from planner.specs.documents.estimate import MachineNumber, Provenance
from planner.specs.plan import Plan

# each number is moved by this share to see what the step time makes of it; a choice: small against
# the numbers' own errors, large against rounding
SENSITIVITY_STEP = 0.02


def elasticities(plan: Plan, table: Columns) -> list[MachineNumber]:
    """Every number of the machine with its source, and by how many percent the step time changes
    when it grows by one.

    Found by moving each number by 2 % in a row of its own.
    """
    return elasticities_of_rows(plan, table)[0]


def elasticities_of_rows(plan: Plan, table: Columns) -> list[list[MachineNumber]]:
    """`elasticities` of every row of a table."""
    base, rows = machine(plan), len(table)
    moved, names = moved_one_by_one(base, SENSITIVITY_STEP, rows)
    many = table.each(lambda column: np.repeat(column, len(names) + 1))
    seconds = step_time(plan, many, moved).seconds.reshape(rows, len(names) + 1)
    slopes = np.log(seconds[:, 1:] / seconds[:, :1]) / np.log1p(SENSITIVITY_STEP)
    return [
        [_number(base, name, float(slope)) for name, slope in zip(names, row, strict=True)]
        for row in slopes
    ]


def _number(base: Machine, name: str, slope: float) -> MachineNumber:
    number = getattr(base, name)
    if not isinstance(number, Sourced):
        return MachineNumber(name, float(number), "1", "assumed", "choice of the stack", "", slope)
    return MachineNumber(
        name, float(number), number.unit, number.kind, number.source, number.date, slope
    )


def provenance(numbers: Sequence[MachineNumber]) -> Provenance:
    """Shares of the step time's sensitivity that rest on measured, vendor and assumed numbers."""
    shares = {"measured": 0.0, "vendor": 0.0, "assumed": 0.0}
    for number in numbers:
        shares[number.kind] += abs(number.elasticity)
    whole = sum(shares.values()) or 1.0
    return Provenance(**{f"{kind}_frac": share / whole for kind, share in shares.items()})
