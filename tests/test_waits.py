"""Waits of the CPU that were read off runs of fine-tuning, fitted again without some of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.studies.waits import NUMBERS, Waiting, fitted, left_out, waiting
from planner.studies.validate.files import read_all
from planner.studies.validate.scored import predict

TRUE = np.array([3e-3, 2e-4, 18e-6])


def waiting_run(
    model: str, method: str, calls: tuple[float, float, float], off: float = 1.0
) -> Waiting:
    """A run whose step takes 2 s plus its waits, times a model error."""
    slopes = np.array(calls)
    return Waiting("", model, method, off * (2 + float(slopes @ TRUE)), 2.0, slopes, TRUE)


RUNS = [
    waiting_run(model, method, calls)
    for model, size in (("small", 1.0), ("large", 4.0))
    for method, calls in (
        ("sft", (100 * size, 0.0, 0.0)),
        ("rl", (110 * size, 0.0, 32_768.0)),
        ("lora", (120 * size, 3000 * size, 16_384.0)),
    )
]


def test_numbers_are_recovered_whatever_one_run_says() -> None:
    assert fitted(RUNS) == pytest.approx(TRUE, rel=1e-3)
    wrong = waiting_run("small", "rl", (110.0, 0.0, 32_768.0), off=3.0)
    assert fitted([*RUNS, wrong]) == pytest.approx(TRUE, rel=1e-3)
    assert list(fitted([])) == [0, 0, 0]


def test_what_is_left_out_has_no_part_in_its_prediction() -> None:
    """Either model tells all three; without LoRA nothing tells what an adapter waits for, so that
    its runs lack all of that."""
    by_model = left_out(RUNS, lambda run: run.model)
    assert all(abs(e) < 1e-3 for _, match in by_model.values() for e in match)
    numbers, result = left_out(RUNS, lambda run: run.method)["lora"]
    assert numbers == pytest.approx([TRUE[0], 0, TRUE[2]], rel=1e-3)
    lacks = [run.slopes[1] * TRUE[1] / run.measured_s for run in RUNS if run.method == "lora"]
    assert result == pytest.approx([-share for share in lacks], rel=1e-2)


def test_runs_that_ship_are_linear_in_them() -> None:
    """With the shipped numbers the error is the prediction's; runs without waits are left out."""
    rows = [row for row in read_all([], ("prime-rl",)) if row["run_id"][-2:] in ("05", "09", "10")]
    result = waiting([*rows, *read_all([], ("torchtune",))[:2]])
    assert [entry.run_id for entry in result] == [row["run_id"] for row in rows]
    for item, row in zip(result, rows, strict=True):
        seconds = float(predict(row).time.seconds[0])
        assert item.error(item.shipped) == pytest.approx(seconds / item.measured_s - 1)
        passes = item.slopes[NUMBERS.index("layer_idle")] / 28  # of each of its layers
        assert passes == pytest.approx(round(passes), abs=1e-6)
