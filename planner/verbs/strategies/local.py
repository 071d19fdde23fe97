"""Replicas that take several local steps: local SGD and DiLoCo."""

from __future__ import annotations

import numpy as np

from planner.estimate import communicate
from planner.estimate.communicate import Group
from planner.formulas import data_parallel
from planner.verbs.strategies.base import (
    FP32_BYTES,
    Context,
    Cost,
    Strategy,
    no_cost,
    several_nodes,
    with_copies,
    without_buckets,
)

_LOCAL_STEPS = 8  # assumed; Lin et al. 2018 (arXiv 1808.07217) go up to 16
_DILOCO_STEPS = 500  # Douillard et al. 2023, section 3


def steps_between(x: Context, usual: int) -> float:
    return float(x.settings.local_steps or usual)


def _local_sgd(x: Context) -> Cost:
    """Every GPU takes H local steps, then parameters are averaged over all."""
    h, group = steps_between(x, _LOCAL_STEPS), x.who.group
    whole = FP32_BYTES * x.parameters
    each = data_parallel.local_steps_s(communicate.all_reduce_s(x.m, whole, group), h)
    sent = x.all_reduced_bytes(whole)[0] / h
    return x.cost(each, each, (0.0, 0.0, sent), x.leaving_bytes(sent))


def _diloco(x: Context) -> Cost:
    """Each node is a replica that runs DDP inside; every H steps an outer optimizer averages what
    the nodes moved."""
    h = steps_between(x, _DILOCO_STEPS)
    inside = x.who.group.ranks_per_node
    node = Group(inside, inside)
    gradients = FP32_BYTES * x.parameters
    inner = communicate.all_reduce_s(x.m, gradients, node)
    exposed = x.overlapped_s(
        inner, communicate.all_reduce_s(x.m, gradients * x.last_share + 0 * inner, node)
    )
    exposed = np.where(inside > 1, exposed, 0.0)
    nodes = x.who.group.nodes
    island = x.who.group.ranks_per_island
    between = Group(nodes, np.ones_like(nodes), None if island is None else island / inside)
    outer = data_parallel.local_steps_s(
        communicate.all_reduce_s(x.m, gradients / inside, between), h
    )
    sent_inside = data_parallel.backward_volume_bytes(0.0, gradients, 0.0, inside, 1.0)
    sent_between = data_parallel.backward_volume_bytes(0.0, gradients / inside, 0.0, nodes, 1.0) / h
    return x.cost(exposed + outer, inner + outer, (0.0, sent_inside, sent_between), sent_between)


STRATEGIES = (
    Strategy(
        name="local-sgd",
        title="local SGD, parameter averaging",
        family="local",
        differs="every GPU takes --local-steps local steps ({local_steps})",
        source="Stich 2019 (arXiv 1805.09767); Lin et al. 2018 (arXiv 1808.07217)",
        stack="pytorch-ddp",
        cost=_local_sgd,
        local_steps=_LOCAL_STEPS,
        change=without_buckets,  # no gradients are reduced; parameters are averaged in place
        steps=no_cost(
            "Stich 2019 (arXiv 1805.09767): the rate of large batches as long as H is below the"
            " root of the steps per worker; a lower bound, set --steps-factor"
        ),
    ),
    Strategy(
        name="diloco",
        title="DiLoCo",
        family="local",
        differs=(
            "DDP inside each node; every --local-steps steps ({local_steps}) nodes all-reduce their"
            " parameter changes, with Nesterov as the outer optimizer"
        ),
        source="Douillard et al. 2023 (arXiv 2311.08105)",
        stack="pytorch-ddp",
        cost=_diloco,
        local_steps=_DILOCO_STEPS,
        change=with_copies(2),  # the last agreed parameters and their momentum
        steps=no_cost(
            "Douillard et al. 2023 (arXiv 2311.08105): perplexity with 8 replicas and H = 500 not"
            " worse than in step; a parameter, set --steps-factor"
        ),
        refuses=several_nodes,
    ),
)
