"""`--where` reaches what can be typed and answers as the option does; near-ties are named."""

from __future__ import annotations

import numpy as np
import pytest

from planner import api
from planner.estimate.ties import TIE, fastest
from planner.search.idle import rounder
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Estimate
from planner.specs.options import Options, options_of_command

MOE = {"model": "moonlight-16b-a3b", "gpu": "h100", "gpus": 16, "global_batch": 128}
CONDITIONS = [
    ("cp = 2", {"cp": 2}),
    ("tp = 2", {"tp": 2}),
    ("zero = 1", {"zero": 1}),
    ("recompute = full", {"recompute": "full"}),
    ("micro-batch = 2", {"micro_batch": 2}),
    ("dispatcher = alltoall", {"dispatcher": "alltoall"}),
    ("loss-kernel = fused", {"loss_kernel": "fused"}),
    ("stack = torchtitan", {"stack": "torchtitan"}),
]


# degrees are conditions on layouts, whatever the kernels, which take most of a search
DEGREES = {"cp", "tp", "zero", "recompute", "micro_batch"}


def _estimate(**given: object) -> Estimate:
    return api.estimate(api.read_options({**MOE, **given}), brief=True)


@pytest.mark.parametrize(("condition", "option"), CONDITIONS, ids=lambda value: str(value))
def test_a_condition_answers_as_the_option_does(condition: str, option: dict[str, object]) -> None:
    plain = (
        {"stack": "megatron-core", "stack_defaults": True}
        if not DEGREES.isdisjoint(option)
        else {"tp": 1, "pp": 1}
    )
    by_condition, typed = _estimate(where=[condition], **plain), _estimate(**option, **plain)
    assert by_condition.step.seconds == pytest.approx(typed.step.seconds, rel=1e-9)
    assert by_condition.memory.device_bytes == pytest.approx(typed.memory.device_bytes, rel=1e-9)


def test_a_condition_on_software_is_the_option() -> None:
    options = api.read_options({**MOE, "where": ["dispatcher = deepep", "tp <= 2"]})
    assert (options.dispatcher, options.where) == ("deepep", ("tp <= 2",))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"where": ["dispatcher != deepep"]}, "with = and one value"),
        ({"where": ["dispatcher = post"]}, "'alltoall'"),
        ({"where": ["tp <= 2 or compile = yes"]}, "not a layout option"),
        ({"where": ["dispatcher = deepep"], "dispatcher": "alltoall"}, "contradict"),
        ({"where": ["dispatcher = deepep", "dispatcher = alltoall"]}, "contradict"),
        ({"where": ["price = 2"]}, "not a layout option"),
    ],
)
def test_a_wrong_condition_is_refused(given: dict[str, object], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        api.read_options({**MOE, **given})


def test_near_ties_are_ties_of_other_degrees() -> None:
    estimate = api.estimate(
        api.read_options(
            {"model": "llama-3.1-405b", "gpu": "h100", "gpus": 8192, "stack": "megatron-core"}
        )
    )
    assert estimate.near_ties
    for tie in estimate.near_ties:
        assert 0 <= 1 + tie.slower_frac <= 1 + TIE
        seconds = estimate.step.seconds * (1 + tie.slower_frac)
        options = api.read_options(options_of_command(tie.command, Options, "estimate"))
        again = api.estimate(options, brief=True)
        assert again.step.seconds == pytest.approx(seconds, rel=1e-6)
        assert again.memory.verdict == "fits"


def test_of_a_tie_fewer_groups_over_the_border_of_nodes_are_taken() -> None:
    seconds, repeated = np.array([1.0, 1.01, 1.0]), np.array([0.0, 0.0, 0.5])
    assert fastest(seconds, repeated) == 0
    assert fastest(seconds, repeated, spanning=np.array([1.0, 0.0, 0.0])) == 1
    assert fastest(np.array([1.0, 1.02, 1.0]), repeated, spanning=np.array([1.0, 0.0, 0.0])) == 0


def test_nodes_that_divide_better() -> None:
    """13 nodes are a prime; 12 divide. A part of a node has none to leave idle."""
    assert rounder(104, 8) == 96
    assert rounder(1000, 8) == 960
    assert [rounder(gpus, 8) for gpus in (1, 4, 8, 16, 64, 96, 2048)] == [None] * 7
