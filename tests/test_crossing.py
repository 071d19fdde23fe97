"""Parallel groups over the border of nodes are remarked, with the best layout that keeps inside."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from command import dpplan

ASKED = (
    "--model llama-2-7b --gpus 8 --gpu h100 --stack megatron-core --micro-batch 1 --seq-len 8192"
    " --where pp=1 --recompute none --tp-overlap user-buffers --advice 0 --global-batch 2"
)


def estimated(*more: object) -> Any:
    return dpplan("estimate", *shlex.split(ASKED), *more, "--json").json()


def test_tensor_parallelism_over_nodes_is_told_with_the_best_layout_inside() -> None:
    estimate = estimated("--gpus-per-node", 2)
    assert estimate["layout"]["tp"] > 2
    crossing = estimate["crossing"]
    assert (crossing["degree"], crossing["size"], crossing["node_gpus"]) == (
        "tp",
        estimate["layout"]["tp"],
        2,
    )
    inside = crossing["inside"]
    assert inside["layout"]["tp"] <= 2
    again = dpplan(*shlex.split(inside["command"])[1:], "--json").json()
    assert again["layout"] == inside["layout"]
    assert again["step"]["seconds"] == pytest.approx(inside["step_seconds"])
    ratio = inside["step_seconds"] / estimate["step"]["seconds"]
    assert inside["slower_frac"] == pytest.approx(ratio - 1)
    assert inside["within_noise"] == (abs(ratio - 1) <= 0.034)
    answer = dpplan("estimate", *shlex.split(ASKED), "--gpus-per-node", 2).stdout
    assert f"tp {crossing['size']} crosses nodes of 2 GPUs" in answer


def test_a_group_inside_nodes_needs_no_remark_and_one_that_was_asked_for_has_no_other() -> None:
    assert estimated()["crossing"] is None
    fixed = estimated("--gpus-per-node", 2, "--tp", 4)["crossing"]
    assert fixed["inside"] is None
