"""Later releases of a stack: which profile a run gets, and what fused experts change."""

from __future__ import annotations

import pytest

from planner.estimate import evaluate
from planner.estimate.machine import fused_experts, machine
from planner.verbs.validate.plans import row_plan
from planner.verbs.validate.rows import SHIPPED, Row, read_rows


def rows() -> list[Row]:
    return read_rows(SHIPPED / "nemo-moe.csv")


def on(gpu: str) -> Row:
    return next(row for row in rows() if row["gpu"] == gpu)


@pytest.mark.parametrize(
    ("release", "stack"),
    [
        ("26.08", "nemo-26.06"),
        ("26.06.01", "nemo-26.06"),
        ("26.04.01", "nemo"),
        ("25.09", "nemo"),
        ("v4.1", "nemo"),
        ("", "nemo"),
    ],
)
def test_a_run_gets_the_latest_profile_that_is_not_newer(release: str, stack: str) -> None:
    plan, _ = row_plan(on("gb300-279gb") | {"options": f"release={release}"})
    assert plan.stack.id == stack


def test_fused_experts_are_for_experts_on_blackwell() -> None:
    def fused(row: Row) -> bool:
        return fused_experts(row_plan(row | {"options": "release=26.06"})[0])

    assert fused(on("gb300-279gb"))
    assert not fused(on("h100-sxm5-80gb"))
    assert not fused(read_rows(SHIPPED / "nemo-dense.csv")[-1])


def test_fused_experts_move_less_and_launch_at_once() -> None:
    from planner.specs.columns import Columns

    row = on("gb300-279gb")
    before, after = (
        row_plan(row | {"options": f"release={release}"}) for release in ("26.04", "26.06")
    )
    assert float(machine(after[0]).operator_launch) < float(machine(before[0]).operator_launch)
    old, new = (evaluate(plan, Columns.of([layout])).time for plan, layout in (before, after))
    for name in ("memory_bound", "matmul", "launch"):
        assert new.components[name][0] <= old.components[name][0], name
    assert new.components["attention"][0] == old.components["attention"][0]
