"""FSDP that accumulates without synchronisation reduces the gradients of the last micro-batch."""

from typing import Any

import pytest

from planner.estimate.step import StepTime
from planner.inputs.options import read_options
from planner.verbs.estimate import chosen

LAYERS = 28


def estimated(stack: str, micro_batches: int, **more: Any) -> StepTime:
    given: dict[str, Any] = {
        "model": "qwen2.5-7b",
        "gpu": "h100-sxm5-80gb",
        "gpus": 16,
        "stack": stack,
        "zero": 3,
        "shard_group": 16,
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "recompute": "full",
        "micro_batch": 1,
        "seq_len": 2048,
        "global_batch": 16 * micro_batches,
        "stack_defaults": True,
        **more,
    }
    return chosen(read_options(given)).time


def reductions(time: StepTime) -> float:
    (row,) = (each for each in time.traffic if each.what == "gradients of a layer")
    return float(row.count[0])


@pytest.mark.parametrize("micro_batches", [1, 2, 8])
def test_a_layer_is_reduced_once_per_step(micro_batches: int) -> None:
    assert reductions(estimated("hf-fsdp", micro_batches)) == pytest.approx(LAYERS)
    each = reductions(estimated("pytorch-fsdp", micro_batches))
    assert each == pytest.approx(LAYERS * micro_batches)


def test_time_of_one_micro_batch_is_the_same() -> None:
    """One micro-batch is the last one, whose gradients both kinds of stack reduce."""
    exposed = [estimated("hf-fsdp", n).components["data_parallel"][0] for n in (1, 2, 3)]
    first, second = exposed[1] - exposed[0], exposed[2] - exposed[1]
    assert first == pytest.approx(second)  # every other one only gathers
    assert 0 < second < exposed[0]


def test_without_overlap_a_micro_batch_less_costs_its_gathers() -> None:
    exposed = [
        estimated("hf-fsdp", n, overlap=False).components["data_parallel"][0] for n in (1, 2)
    ]
    time = estimated("hf-fsdp", 2, overlap=False)
    gathers = [each for each in time.traffic if each.what == "parameters of a layer"]
    per_micro_batch = sum(float(each.seconds[0]) for each in gathers) / 2
    assert exposed[1] - exposed[0] == pytest.approx(per_micro_batch)
