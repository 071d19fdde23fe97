"""Replicas that take several steps alone: local SGD and DiLoCo."""

from __future__ import annotations

import numpy as np

from planner.estimate import communicate
from planner.estimate.communicate import Group
from planner.formulas import data_parallel
from planner.specs.plan import Plan
from planner.verbs.strategies.base import (
    FP32_BYTES,
    Context,
    Cost,
    Statistics,
    Strategy,
    several_nodes,
    with_state,
)

_LOCAL_STEPS = 8  # assumed; Lin et al. 2018 (arXiv 1808.07217) go up to 16
_DILOCO_STEPS = 500  # Douillard et al. 2023, section 3


def _average(plan: Plan) -> Plan:
    """No gradients are exchanged, so there are no buckets; parameters are averaged in place."""
    return with_state(plan, bucket=0.0)


def _outer(plan: Plan) -> Plan:
    """Buckets of the inner steps stay; the outer optimizer keeps the last agreed parameters and its
    momentum."""
    return with_state(plan, bucket=plan.stack.state.bucket + 2 * FP32_BYTES)


def steps_between(x: Context, usual: int) -> float:
    return float(x.settings.local_steps or usual)


def _local_sgd(x: Context) -> Cost:
    """Every GPU trains alone for H steps, then parameters are averaged over all."""
    h, group = steps_between(x, _LOCAL_STEPS), x.who.group
    whole = FP32_BYTES * x.parameters
    each = data_parallel.local_steps_s(communicate.all_reduce_s(x.m, whole, group), h)
    sent = data_parallel.backward_volume_bytes(0.0, whole, 0.0, group.ranks, 1.0) / h
    leaving = data_parallel.leaving_bytes(sent, group.ranks, group.ranks_per_node)
    return x.cost(each, each, (0.0, 0.0, sent), leaving)


def _diloco(x: Context) -> Cost:
    """Each node is a replica that runs DDP inside; every H steps an outer optimizer averages what
    the nodes moved."""
    h = steps_between(x, _DILOCO_STEPS)
    inside = x.who.group.ranks_per_node
    node = Group(inside, inside)
    gradients = FP32_BYTES * x.parameters
    inner = communicate.all_reduce_s(x.m, gradients, node)
    exposed = x.overlapped_s(
        inner, np.minimum(inner, communicate.all_reduce_s(x.m, _LAST_BYTES + 0 * inner, node))
    )
    exposed = np.where(inside > 1, exposed, 0.0)
    nodes = x.who.group.nodes
    between = Group(nodes, np.ones_like(nodes))
    outer = data_parallel.local_steps_s(
        communicate.all_reduce_s(x.m, gradients / inside, between), h
    )
    sent_inside = data_parallel.backward_volume_bytes(0.0, gradients, 0.0, inside, 1.0)
    sent_between = data_parallel.backward_volume_bytes(0.0, gradients / inside, 0.0, nodes, 1.0) / h
    return x.cost(exposed + outer, inner + outer, (0.0, sent_inside, sent_between), sent_between)


_LAST_BYTES = 25 * 2.0**20  # a bucket of the inner DDP


def _local_sgd_steps(x: Context) -> Statistics:
    return Statistics(
        1.0,
        "Stich 2019 (arXiv 1805.09767): the rate of large batches as long as H is below the root of"
        " the steps per worker; a lower bound, set --steps-factor",
    )


def _diloco_steps(x: Context) -> Statistics:
    return Statistics(
        1.0,
        "Douillard et al. 2023 (arXiv 2311.08105): perplexity with 8 replicas and H = 500 not worse"
        " than in step; a parameter, set --steps-factor",
    )


STRATEGIES = (
    Strategy(
        "local-sgd",
        "local SGD, parameter averaging",
        "local",
        "every GPU takes --local-steps steps alone (8)",
        "Stich 2019 (arXiv 1805.09767); Lin et al. 2018 (arXiv 1808.07217)",
        "pytorch-ddp",
        cost=_local_sgd,
        change=_average,
        steps=_local_sgd_steps,
    ),
    Strategy(
        "diloco",
        "DiLoCo",
        "local",
        "DDP inside each node; every --local-steps steps (500) nodes exchange what they moved,"
        " Nesterov outside",
        "Douillard et al. 2023 (arXiv 2311.08105)",
        "pytorch-ddp",
        cost=_diloco,
        change=_outer,
        steps=_diloco_steps,
        refuses=several_nodes,
    ),
)
