"""Costs of strategies on a small model."""

from __future__ import annotations

from typing import Any

import plans

from planner.estimate import evaluate
from planner.specs.model import ModelSpec
from planner.specs.options.parallel import StrategySettings
from planner.verbs.strategies import BY_NAME
from planner.verbs.strategies.base import Context, Cost


def context(
    name: str,
    gpus: int = 16,
    settings: StrategySettings | None = None,
    micro_batch: int = 4,
    shape: ModelSpec | None = None,
    **numbers: float,
) -> Context:
    """A strategy's plan of a small model, one layout."""
    one = BY_NAME[name]
    plan = one.change(plans.plan(shape, gpus=gpus, software=one.stack, global_batch=16 * gpus))
    m = one.numbers(plan, plans.numbers(plan, **numbers))
    shard = {"shard_group": min(gpus, plan.cluster.nvlink_domain)} if one.shard == "node" else {}
    table = plans.rows(
        gpus, {"zero": one.zero, "micro_batch": micro_batch, "offload": one.offload, **shard}
    )
    return Context(plan, evaluate(plan, table, numbers=m), m, settings or StrategySettings())


def cost(name: str, *args: Any, **kwargs: Any) -> Cost:
    return BY_NAME[name].cost(context(name, *args, **kwargs))


def sent(found: Cost) -> float:
    return float((found.forward_bytes + found.backward_bytes + found.optimizer_bytes)[0])
