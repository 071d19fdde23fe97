"""Clusters that `dpplan recommend` found, and its commands run again."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

from command import dpplan

from planner.specs.documents.estimate import Estimate
from planner.specs.options.recommend import Limits
from planner.verbs.recommend.clusters import cluster

GIVEN = {
    "model": "gpt2-xl",
    "tokens": "10B",
    "global_batch": 64,
    "seq_len": 1024,
    "stack": "megatron-core",
    "micro_batch": 1,
    "stack_defaults": True,
}
KINDS = ("a100", "rtx4090", "gb300-279gb")


@cache
def recommended(
    days: float | None = None,
    budget: float | None = None,
    power_kw: float | None = None,
    max_gpus: int = 64,
    goal: Any = "cheapest",
    sure: bool = False,
    kinds: tuple[str, ...] = KINDS,
) -> Any:
    return cluster(
        Limits(
            days=days, budget=budget, max_gpus=max_gpus, power_kw=power_kw, sure=sure, goal=goal
        ),
        GIVEN,
        kinds,
    )


def rerun(command: str) -> Estimate:
    words = shlex.split(command)
    assert words[:2] == ["dpplan", "estimate"]
    return dpplan(*words[1:], "--json").read(Estimate)
