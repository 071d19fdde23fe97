"""Links as calibration fits them: starts of operations that reduce, prompt samples, and what an
estimate makes of both."""

from __future__ import annotations

from typing import Any

import plans
import pytest

from planner.calibrate import cases, fit_links
from planner.estimate import communicate
from planner.estimate.communicate import Group

pytest.importorskip("scipy", reason="fits need scipy, of the calibrate extra")

STARTS = {"all_reduce": 9e-4, "reduce_scatter": 6e-4}


def collectives(ranks: int) -> list[dict[str, Any]]:
    """Records of a link whose operations that reduce have a start of their own."""
    out = []
    for operation in cases.COLLECTIVES:
        for i, whole in enumerate(cases.sizes("default")):
            passes = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}.get(operation)
            volume, steps = (
                (1.0, 0.0)
                if passes is None
                else (passes * (ranks - 1) / ranks, passes * (ranks - 1) / 2)
            )
            seconds = 1e-4 + STARTS.get(operation, 0.0) + steps * 8e-5 + volume * whole / 2e9
            out.append(
                {
                    "kind": "collective",
                    "operation": operation,
                    "group": "pairs",
                    "ranks": ranks,
                    "bytes": whole,
                    "held_out": i % cases.HELD_OUT_EVERY == 1,
                    "seconds": seconds,
                    "quiet": True,
                }
            )
    return out


def test_starts_of_operations_are_recovered() -> None:
    result = fit_links.link(collectives(2), "pairs")
    for name, seconds in STARTS.items():
        assert result.numbers[f"{name}_start"].value == pytest.approx(seconds, rel=0.05)
    assert result.numbers["base"].value == pytest.approx(1e-4, rel=0.05)
    assert result.numbers["latency"].value == pytest.approx(8e-5, rel=0.1)
    assert result.held_out_median is not None
    assert result.held_out_median < 0.02


def test_starts_add_to_their_operation_alone() -> None:
    usual = plans.numbers(plans.plan())
    late = plans.numbers(plans.plan(), intra_all_reduce_start=5e-3, intra_reduce_scatter_start=2e-3)
    group, size = Group(4.0, 4.0), 1e6
    for call, more in (
        (communicate.all_reduce_s, 5e-3),
        (communicate.reduce_scatter_s, 2e-3),
        (communicate.all_gather_s, 0.0),
    ):
        assert float(call(late, size, group) - call(usual, size, group)) == pytest.approx(
            more, abs=1e-12
        )
    assert float(communicate.all_reduce_s(late, size, Group(1.0, 1.0))) == 0.0  # waits for none
