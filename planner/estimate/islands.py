"""Possible cost of an unstated network hierarchy: a step on islands against one on one fabric."""

from __future__ import annotations

import numpy as np

from planner.estimate.step import step_time
from planner.ledger import Array, Sourced, unrecorded
from planner.specs.cluster import ONE_SWITCH, OVERSUBSCRIBED
from planner.specs.columns import Columns
from planner.specs.plan import Plan

_ASSUMED = Sourced(OVERSUBSCRIBED, "1", "assumed", "an unspecified fabric")


def behind_unknown(plan: Plan, table: Columns, seconds: Array) -> Array:
    """How much longer each step takes, as a share of it, where links between islands are as
    oversubscribed as they may be, and an island is the nodes, or NVLink domains, of one switch;
    zero where the fabric is stated, and on so few nodes that any has them together."""
    cluster = plan.cluster
    if not cluster.islands_unknown:
        return 0.0 * seconds
    nodes = ONE_SWITCH * max(cluster.nvlink_domain // cluster.gpus_per_node, 1)
    tiers = {"island_nodes": nodes, "oversubscription": _ASSUMED}
    cluster = cluster.model_copy(update=tiers)
    with unrecorded():  # no part of the answer's own formulas
        slower = step_time(plan.model_copy(update={"cluster": cluster}), table).seconds
    return np.maximum(slower / seconds - 1, 0.0)
