"""Collectives of a layout on the machine: which link a group uses, how many of its ranks share a node, what it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.machine import Machine
from planner.formulas import collectives
from planner.ledger import Array


@dataclass(frozen=True)
class Group:
    """Ranks of a communication group, and how many of them sit in one node or NVLink domain."""

    ranks: Array
    ranks_per_node: Array

    @property
    def nodes(self) -> Array:
        return np.maximum(self.ranks / self.ranks_per_node, 1.0)


@dataclass(frozen=True)
class Traffic:
    """One kind of communication in one step: all columns have one value per layout."""

    operation: str  # all_reduce, all_gather, reduce_scatter, all_to_all, send_recv
    group: str  # which parallel dimension
    what: str
    component: str  # the step component its exposed time belongs to
    bytes: Array  # of the whole tensor, per call
    count: Array  # calls per step on the slowest rank
    seconds: Array  # all calls together
    exposed: Array  # the part that adds to the step
    across_nodes: Array  # 1 where the group spans nodes


def place(ranks: Array, stride: Array, domain: int) -> Group:
    """Group of `ranks` whose neighbours are `stride` ranks apart, on nodes (or switched domains) of `domain` GPUs."""
    inside = np.clip(np.floor(domain / stride), 1.0, np.maximum(ranks, 1.0))
    return Group(np.asarray(ranks, float), inside)


def _pass(m: Machine, tensor_bytes: Array, group: Group, passes: float, intra_frac: Array, inter_frac: Array,
          network: Array = 1.0) -> Array:  # fmt: skip
    frac = intra_frac * np.where(group.ranks == 2, m.intra_two_rank, 1.0)
    intra = collectives.ring_intra_s(
        tensor_bytes, np.minimum(group.ranks, group.ranks_per_node), passes,
        latency_s=m.intra_latency, bandwidth_bytes_per_s=m.intra_bandwidth, frac=frac, ramp=m.intra_ramp,
    )  # fmt: skip
    across = group.nodes > 1
    if not np.any(across):
        return intra
    node = collectives.node_bandwidth_bytes_per_s(
        group.ranks_per_node, m.nic_per_gpu, inter_frac * network, m.intra_bandwidth * frac
    )
    ring = collectives.ring_inter_s(tensor_bytes, group.ranks, passes, hop_s=m.inter_hop, node_bytes_per_s=node)
    if passes == 2 and "tree" not in m.without:
        tree = collectives.tree_inter_s(tensor_bytes, group.nodes, hop_s=m.inter_hop, node_bytes_per_s=node)
        ring = np.minimum(ring, tree)
    return np.where(across, np.maximum(ring, intra), intra)


def all_reduce_s(m: Machine, tensor_bytes: Array, group: Group) -> Array:
    """Fastest of ring and tree over the group's placement."""
    in_switch = np.minimum(group.ranks, group.ranks_per_node) >= m.intra_switch_ranks
    return _pass(m, tensor_bytes, group, 2.0, np.where(in_switch, m.intra_switch, m.intra_all_reduce), m.inter_all_reduce)


def all_gather_s(m: Machine, tensor_bytes: Array, group: Group, network: Array = 1.0) -> Array:
    """Ring all-gather; `network` is the share of the fabric's achievable rate that the software reaches."""
    return _pass(m, tensor_bytes, group, 1.0, m.intra_all_gather, m.inter_all_gather, network)


def reduce_scatter_s(m: Machine, tensor_bytes: Array, group: Group, network: Array = 1.0) -> Array:
    """Ring reduce-scatter; `network` as for all_gather_s."""
    return _pass(m, tensor_bytes, group, 1.0, m.intra_reduce_scatter, m.inter_reduce_scatter, network)


def all_to_all_s(m: Machine, tensor_bytes: Array, group: Group, remote_frac: Array) -> Array:
    return collectives.all_to_all_s(
        tensor_bytes, group.ranks, group.ranks_per_node, remote_frac, latency_s=20e-6,
        intra_bytes_per_s=m.intra_bandwidth * m.intra_send, nic_bytes_per_gpu_per_s=m.nic_per_gpu, nic_frac=m.inter_send,
    )  # fmt: skip


def send_s(m: Machine, message_bytes: Array, across: Array) -> Array:
    """One message to a neighbouring pipeline stage, over the node's link or one GPU's share of the network."""
    inside = collectives.send_recv_s(message_bytes, latency_s=m.intra_latency, bytes_per_s=m.intra_bandwidth * m.intra_send)
    outside = collectives.send_recv_s(message_bytes, latency_s=3 * m.inter_hop, bytes_per_s=m.nic_per_gpu * m.inter_send)
    return np.where(across > 0, outside, inside)
