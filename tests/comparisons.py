"""Comparisons that several tests read."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.specs.options.own import CompareOptions
from planner.verbs import compare

SMALL: dict[str, Any] = {
    "model": "gpt2",
    "gpu": "a100",
    "seq_len": 512,
    "stack": "megatron-core",
    "stack_defaults": True,  # kernels are not searched, which takes most of the time
}


@cache
def gpus_compared() -> Any:
    given_ = {k: v for k, v in SMALL.items() if k != "gpu"} | {"gpus": 8, "tokens": "10B"}
    return compare.compare(CompareOptions(vary=("gpu=rtx4090,a100,h100",)), given_)


@cache
def swept() -> Any:
    return compare.compare(CompareOptions(sweep=("gpus=8..64",)), {**SMALL, "global_batch": 64})
