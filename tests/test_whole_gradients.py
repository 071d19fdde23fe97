"""FSDP that accumulates without synchronisation reduces the gradients of the last micro-batch."""

from typing import Any

import pytest

from planner import api
from planner.error import PlanError
from planner.estimate.step import StepTime
from planner.formats import recipe as recipes
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


REQUEST: dict[str, Any] = {
    "model": "llama-2-70b", "gpu": "a100-sxm4-80gb", "gpus": 16, "stack": "hf-fsdp",
}  # fmt: off
GRADIENTS = 2 * 68.98e9  # bytes of whole ones in 16 bit


def test_gradients_are_whole_only_where_they_wait() -> None:
    layout: dict[str, Any] = {
        "zero": 3, "tp": 1, "pp": 1, "cp": 1, "recompute": "full", "micro_batch": 1,
    }  # fmt: off
    waits, each = (
        api.estimate(read_options(REQUEST | layout | {"gradient_sync": sync})).memory.components
        for sync in ("last", "each")
    )
    assert waits["gradients"] == pytest.approx(GRADIENTS, rel=0.02)
    assert each["gradients"] == pytest.approx(2 * GRADIENTS / 16, rel=0.02)  # shards in fp32


def test_reducing_each_micro_batch_is_searched() -> None:
    """Shards where only they fit; whole gradients where they fit and reducing once is faster."""
    best = api.estimate(read_options(REQUEST))
    assert best.memory.headroom_bytes > 0
    assert "--gradient-sync each" in best.pick
    assert not api.estimate(read_options(REQUEST | {"gradient_sync": "last"})).memory.fits
    small: dict[str, Any] = {
        "model": "gpt2-xl", "gpu": "a100-sxm4-80gb", "gpus": 16, "stack": "hf-fsdp", "zero": 3,
        "micro_batch": 1, "global_batch": 128, "cp": 1,
    }  # fmt: off
    chosen_, each, last = (
        api.estimate(read_options(small | sync)).step.seconds
        for sync in ({}, {"gradient_sync": "each"}, {"gradient_sync": "last"})
    )
    assert last < each
    assert chosen_ <= last * (1 + 1e-9)


def test_stacks_whose_code_has_no_such_switch_refuse_it() -> None:
    with pytest.raises(PlanError, match="gradient-sync each"):
        api.estimate(read_options(REQUEST | {"stack": "megatron-core", "gradient_sync": "each"}))


def test_files_say_which_micro_batches_reduce() -> None:
    text = (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 1\n"
        "gradient_accumulation_steps: 8\nbf16: true\nfsdp: full_shard\n"
        "accelerator_config:\n  gradient_accumulation_kwargs:\n    sync_each_batch: true\n"
    )
    recipe = recipes.read({"train.yaml": text})
    assert recipe.options["gradient_sync"] == "each"
    other = recipes.read({"train.yaml": text.replace("true\n", "false\n")})
    assert "gradient_sync" not in other.options
