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
    strategy, settings = BY_NAME[name], settings or StrategySettings()
    changed = plans.plan(shape, gpus=gpus, software=strategy.stack, global_batch=16 * gpus)
    plan = strategy.changed(changed)
    m = strategy.numbers(plan, plans.numbers(plan, **numbers))
    group = min(gpus, plan.cluster.nvlink_domain)
    shard = {"shard_group": group} if strategy.shard == "node" else {}
    row = {"zero": strategy.zero, "micro_batch": micro_batch, "offload": strategy.offload, **shard}
    estimates = evaluate(plan, plans.rows(gpus, row), numbers=m)
    return Context(plan, estimates, m, settings, settings.local_steps or strategy.local_steps)


def cost(name: str, *args: Any, **kwargs: Any) -> Cost:
    return BY_NAME[name].cost(context(name, *args, **kwargs))


def sent(cost: Cost) -> float:
    return float((cost.forward_bytes + cost.backward_bytes + cost.optimizer_bytes)[0])
