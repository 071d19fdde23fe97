"""Other traffic on the link between GPU and host memory while activations are copied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.estimate.communicate import Collective, Group
from planner.estimate.machine import Machine
from planner.estimate.sync import Replicas, ShardedLayer
from planner.formulas import overlap
from planner.ledger import Array
from planner.specs.plan import Plan


def busy_s(
    plan: Plan, m: Machine, collectives: Sequence[Collective], sharded: ShardedLayer, who: Replicas
) -> tuple[Array, Array]:
    """Seconds per forward and per backward of one layer and micro-batch during which collectives
    occupy the link to host memory, hidden ones too.

    A GPU has one PCIe link: copies to other GPUs of its node pass it where they are joined by PCIe,
    and so does what goes to the network cards, at their rate. NVLink, and a host behind NVLink-C2C,
    share nothing with it.
    """
    if plan.cluster.host_link.host_bandwidth is None:  # not a PCIe link
        return 0.0, 0.0
    inside = 0.0 if plan.cluster.intra_node.host_bandwidth is None else 1.0
    across = np.maximum(overlap.link_share(m.nic_per_gpu, m.host_bandwidth), inside)

    def share(group: Group) -> Array:
        return np.where(group.nodes > 1, across, inside)

    forward = share(who.shards) * sharded.forward
    backward = share(who.shards) * sharded.backward
    for collective in collectives:
        each = share(collective.placed) * collective.seconds
        forward = forward + each * collective.issued
        backward = backward + each * np.maximum(
            collective.backward + collective.hidden_backward, collective.issued
        )
    return forward, backward
