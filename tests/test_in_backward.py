"""Optimizer in backward: where it is possible, and its effect on memory and time."""

from __future__ import annotations

from typing import Any

import plans
import pytest
from run_tables import not_expressed, row, row_plan

from planner import api
from planner.estimate import Estimates, evaluate
from planner.estimate.memory import PHASES
from planner.formulas.rules import check
from planner.mechanisms.optimizer_in_backward import InBackward
from planner.specs.base import PlanError
from planner.specs.capabilities import lacks
from planner.specs.columns import Columns

REQUEST = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 8, "optimizer_in_backward": True}
RULE = "weights can be updated in backward"


@pytest.mark.parametrize(
    ("software", "gpus", "chosen", "allowed"),
    [
        ("pytorch-fsdp", 1, {}, True),
        ("pytorch-fsdp", 8, {"zero": 3}, True),
        ("pytorch-fsdp", 8, {"zero": 2}, True),
        ("pytorch-fsdp", 8, {"zero": 0}, False),
        ("pytorch-fsdp", 8, {"zero": 3, "offload": "params"}, False),
        ("torchtitan", 8, {"zero": 3, "tp": 2}, True),
        ("torchtitan", 8, {"zero": 3, "pp": 2}, False),
        ("pytorch-ddp", 1, {}, True),
        ("pytorch-ddp", 8, {}, False),
        ("hf-deepspeed", 1, {}, True),
        ("hf-deepspeed", 8, {"zero": 3}, False),
        ("megatron-core", 1, {}, False),
    ],
)
def test_where_it_is_possible(software: str, gpus: int, chosen: dict, allowed: bool) -> None:
    layout = plans.layout(gpus, **chosen)
    for turns in (1, 2):
        plan = plans.plan(
            software=software, gpus=gpus, global_batch=layout.dp * turns, mechanisms=(InBackward(),)
        )
        # nothing accumulates: one micro-batch per step
        able = not lacks(plan.stack, {"optimizer_in_backward": True})
        rule = bool(check(plan, Columns.of([layout]))[RULE][0])
        assert (able and rule) is (allowed and turns == 1)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"global_batch": 64, "micro_batch": 2}, ["--global-batch 16", "per step are 4"]),
        ({"global_batch": 8, "zero": 0}, ["--zero 2 or 3"]),
        (
            {"global_batch": 8, "zero": 1, "stack": "megatron-core"},
            ["does not have --optimizer-in-backward"],
        ),
        ({"global_batch": 8, "precision": "fp16"}, ["overflows", "--precision bf16"]),
    ],
)
def test_refusals_name_the_remedy(more: dict, says: list[str]) -> None:
    values = {"stack": "pytorch-fsdp", "zero": 3, "micro_batch": 1, **more}
    with pytest.raises(PlanError) as refused:
        api.estimate(api.read_options({**REQUEST, **values}))
    assert all(part in str(refused.value) for part in says), str(refused.value)


def run(inside: bool, **training: Any) -> Estimates:
    plan = plans.plan(
        software="pytorch-fsdp", global_batch=8, mechanisms=(InBackward(),) * inside, **training
    )
    return evaluate(plan, plans.rows(8, {"zero": 3, "recompute": "full"}))


def test_gradients_and_their_passes_are_what_it_saves() -> None:
    """The update reads each gradient once: none of 16 bytes for scale, norm and zeroing is moved,
    and at no time are the gradients of more than a layer there."""
    before, after = run(False), run(True)
    share = float(after.time.components["optimizer"][0] / before.time.components["optimizer"][0])
    assert share == pytest.approx(36 / 52)
    for name in after.time.components.keys() - {"optimizer", "overhead"}:
        assert after.time.components[name][0] == before.time.components[name][0]
    most = [
        max(float(phase["gradients"][0]) for phase in entry.memory.timeline[0])
        for entry in (before, after)
    ]
    layers = before.plan.model.layers
    assert most[1] < 2 * most[0] / layers
    ends = [
        sum(
            float(leaf[0])
            for leaf in entry.memory.timeline[0][PHASES.index("optimizer step")].values()
        )
        for entry in (before, after)
    ]
    assert ends[1] < ends[0]


def test_rows_say_it() -> None:
    cells = row(
        stack="pytorch-fsdp",
        gpus="1",
        dp="1",
        zero="3",
        global_batch="4",
        options="optimizer_in_bwd=1",
    )
    plan, _ = row_plan(cells)
    assert plan.mechanisms == (InBackward(),)
    assert not_expressed(cells) == []
