"""Answers that nobody would believe say so and name the option; what never ends has no days."""

from __future__ import annotations

from typing import Any

import pytest

from planner import api
from planner.specs.base import PlanError
from planner.specs.options.own import CompareOptions
from planner.verbs import compare

REQUEST = {
    "model": "gpt2",
    "gpu": "h100",
    "gpus": 16,
    "tokens": "100B",
    "tp": 1,
    "pp": 1,
    "zero": 1,
}
REQUEST |= {"stack": "megatron-core", "cp": 1, "micro_batch": 1, "recompute": "none"}


def doubts(**changes: Any) -> list[str]:
    given = {**REQUEST, **changes}
    return api.estimate(api.read_options({k: v for k, v in given.items() if v}), brief=True).doubts


def test_an_ordinary_answer_is_not_doubted() -> None:
    assert doubts() == doubts(tokens=None) == doubts(mtbf="5000 GPU-hours") == []


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"nic_bandwidth": "100 kB/s", "global_batch": 1_000_000_000}, "--global-batch"),
        ({"tokens": "1e16"}, "--tokens"),
        ({"tokens": "1e18", "price": 10_000}, "--price"),
        ({"tokens": "15"}, "--tokens"),
        ({"mtbf": "1 GPU-hours"}, "--mtbf"),
        ({"gpus": 983_040, "global_batch": 983_040, "tokens": None}, "--gpus"),
    ],
)
def test_what_nobody_would_believe_names_the_option(changes: dict[str, Any], option: str) -> None:
    said = doubts(**changes)
    assert any(option in one for one in said), said


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"mtbf": "0.1 GPU-hours"}, "--mtbf"),
        ({"mtbf": "1 min"}, "--mtbf"),
        ({"storage": "1 kB/s", "model": "llama-3.1-8b"}, "--storage"),
        ({"restart": "60000 min", "gpus": 4096, "global_batch": 4096}, "--restart"),
        ({"spare_nodes": 1, "gpus": 4096, "global_batch": 4096, "mtbf": "3000 GPU-h"}, "--spare"),
    ],
)
def test_a_run_that_never_ends_is_refused_with_its_cause(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(PlanError, match="never") as error:
        doubts(**changes)
    assert error.value.field.startswith(field)
    assert doubts(**changes, tokens=None) != []  # no run is asked about, and the goodput is said


def test_the_time_between_failures_of_a_job_is_that_of_its_gpus() -> None:
    job, each = (
        api.estimate(api.read_options({**REQUEST, "mtbf": text}), brief=True).run
        for text in ("10 h", "160 GPU-hours")
    )
    assert job.goodput == pytest.approx(each.goodput)
    assert job.reliability.mtbf_gpu_s == pytest.approx(160 * 3600)
    with pytest.raises(PlanError, match="'10 GPU-hours' or '10 h'"):
        api.read_options({**REQUEST, "mtbf": 10})


def test_a_comparison_doubts_the_request_that_is_beyond_belief() -> None:
    own = CompareOptions(vary=("tokens=10B,1e17",))
    fixed = {name: value for name, value in REQUEST.items() if name != "tokens"}
    notes = [one for one in compare.compare(own, fixed).notes if "DOUBTFUL" in one]
    assert len(notes) == 1
    assert "1e17" in notes[0]
