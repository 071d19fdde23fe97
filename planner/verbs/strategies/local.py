"""Replicas that take several local steps: local SGD and DiLoCo."""

from __future__ import annotations

import numpy as np

from planner.estimate import communicate
from planner.estimate.communicate import Group
from planner.formulas import data_parallel
from planner.verbs.strategies.base import FP32_BYTES, Context, Cost


def local_sgd(x: Context) -> Cost:
    """Every GPU takes H local steps, then parameters are averaged over all."""
    h, group = float(x.local_steps), x.who.group
    whole = FP32_BYTES * x.parameters
    each = data_parallel.local_steps_s(communicate.all_reduce_s(x.m, whole, group), h)
    sent = x.all_reduced_bytes(whole)[0] / h
    return x.cost(each, each, (0.0, 0.0, sent), x.leaving_bytes(sent))


def diloco(x: Context) -> Cost:
    """Each node is a replica that runs DDP inside; every H steps an outer optimizer averages what
    the nodes moved."""
    h = float(x.local_steps)
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
