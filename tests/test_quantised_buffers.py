"""Codes that libraries keep in buffers, which neither FSDP nor ZeRO-3 shards."""

from typing import Any

import pytest

from planner.inputs.options import read_options
from planner.specs.quantised import BASES
from planner.verbs.estimate import chosen


def parameters(base: str, stack: str, gpus: int, **more: Any) -> float:
    given: dict[str, Any] = {
        "model": "llama-2-7b",
        "gpu": "a100-sxm4-80gb",
        "gpus": gpus,
        "stack": stack,
        "zero": 3 if gpus > 1 else 0,
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "recompute": "full",
        "lora": 16,
        "base_precision": base,
        "micro_batch": 1,
        "global_batch": 8,
        "seq_len": 1024,
        "stack_defaults": True,
        **more,
    }
    if gpus > 1:
        given["shard_group"] = gpus
    memory = chosen(read_options(given)).memory
    return float(memory.stage_components[0]["parameters"][0])


@pytest.mark.parametrize("stack", ["hf-fsdp", "hf-deepspeed"])
def test_buffers_are_whole_on_every_rank(stack: str) -> None:
    alone = parameters("gptq", "hf-trainer", 1)
    several = parameters("gptq", stack, 8)
    wide = parameters("nf4", "hf-trainer", 1) - parameters("nf4", stack, 8)
    # of what is sharded, embedding and head, an eighth stays
    assert alone / 2 < several < alone
    assert alone - several < wide


def test_a_stack_that_makes_them_parameters_shards_them() -> None:
    whole, sharded = (parameters("gptq", name, 8) for name in ("hf-fsdp", "fms-acceleration"))
    assert sharded < whole / 4


def test_offloading_parameters_leaves_buffers() -> None:
    kept = parameters("awq", "hf-deepspeed", 8, offload="params")
    codes = BASES["awq"].matrix_bytes(4096.0, 4096.0)
    assert kept > 32 * 4 * codes  # at least four square matrices of each layer
    assert parameters("nf4", "hf-deepspeed", 8, offload="params") == 0
