"""Tensor-parallel collectives beside GEMMs: by user buffers, asynchronously, or not at all."""

from __future__ import annotations

from typing import Any

import plans
import pytest
from command import argv, dpplan, refused

from planner.estimate.machine import machine
from planner.mechanisms.tp_overlap import TpOverlap
from planner.specs.names import TensorOverlap


def _hidden(gpu: str, software: str, way: TensorOverlap | None, **training: Any) -> float:
    active = () if way is None else (TpOverlap(way),)
    plan = plans.plan(gpu=gpu, software=software, mechanisms=active, **training)
    return float(machine(plan).tensor_hidden)


def test_user_buffers_hide_what_recipes_with_them_hide() -> None:
    usual = _hidden("h100-sxm5-80gb", "nemo", None)
    assert _hidden("h100-sxm5-80gb", "megatron-core", "user-buffers") == usual > 0.5
    assert _hidden("h100-sxm5-80gb", "megatron-core", None) == 0


def test_a_way_that_is_asked_for_is_taken_on_any_gpu() -> None:
    # recipes for Ampere leave it off; a request that has it on means it
    assert _hidden("a100-sxm4-80gb", "nemo", None) == 0
    assert _hidden("a100-sxm4-80gb", "nemo", "user-buffers") > 0.5
    assert _hidden("h100-sxm5-80gb", "nemo", "none") == 0
    assert _hidden("h100-sxm5-80gb", "nemo", "user-buffers", overlap=False) == 0


def _exposed_s(*more: str) -> float:
    answer = dpplan(
        *("estimate", "--model", "llama-2-7b", "--gpu", "h100", "--gpus", "8", "--tp", "8"),
        *("--stack", "megatron-core", "--micro-batch", "1", "--recompute", "none"),
        *("--sequence-parallel", "--global-batch", "64", "--stack-defaults", *more, "--json"),
    ).json()
    return float(answer["step"]["components"]["tensor_parallel"])


def test_the_option_leaves_a_quarter_and_what_sharing_the_chip_costs() -> None:
    plain, hidden = _exposed_s(), _exposed_s("--tp-overlap", "user-buffers")
    assert 0.25 * plain < hidden < 0.75 * plain
    assert _exposed_s("--tp-overlap", "none") == pytest.approx(plain)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--stack", "megatron-core", "--tp-overlap", "async", "--tp", "2"), "user-buffers"),
        (("--stack", "pytorch-fsdp", "--tp-overlap", "user-buffers"), "does not have --tp-overlap"),
        (("--tp-overlap", "none", "--tp", "1"), "--tp above 1"),
        (("--tp-overlap", "none", "--tp", "2", "--no-sequence-parallel"), "sequence"),
    ],
)
def test_what_cannot_act_is_refused(given: tuple[str, ...], text: str) -> None:
    refused = dpplan("estimate", "--model", "gpt2", "--gpu", "h100", "--gpus", "8", *given)
    assert refused.status != 0
    assert text in refused.stderr


def test_buffers_of_other_gpus_need_peer_to_peer() -> None:
    request = argv("estimate --model llama-2-7b --gpus 8 --stack megatron-core --tp 2 --json")
    wrong = dpplan(*request, "--gpu", "rtx4090", "--tp-overlap", "user-buffers")
    refused(wrong, "--tp-overlap", "PCIe")
    picked = dpplan(*request, "--gpu", "rtx4090").json()
    assert "tp_overlap" not in picked["search"]["software"]
