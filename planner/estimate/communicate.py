"""Collectives of a layout on the machine: which link a group uses, how many of its ranks share a
node, what it takes."""

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


_NO_TIME_S = 1e-30  # keeps a share of no time at all finite; below any time that occurs


def share_of(part_s: Array, whole_s: Array) -> Array:
    """A time over another one, which may be zero."""
    return part_s / np.maximum(whole_s, _NO_TIME_S)


def place(ranks: Array, stride: Array, domain: int) -> Group:
    """Group of `ranks` whose neighbours are `stride` ranks apart, on nodes (or switched domains) of
    `domain` GPUs."""
    inside = np.clip(np.floor(domain / stride), 1.0, np.maximum(ranks, 1.0))
    return Group(1.0 * ranks, inside)


def place_twice(
    inner: Array, inner_stride: Array, outer: Array, outer_stride: Array, domain: int
) -> Group:
    """Group of inner x outer ranks whose two parts have strides of their own; the outer part begins
    where the inner one ends."""
    within, beyond = place(inner, inner_stride, domain), place(outer, outer_stride, domain)
    whole = within.ranks_per_node >= within.ranks  # else a node holds a part of one inner group
    return Group(inner * outer, within.ranks_per_node * np.where(whole, beyond.ranks_per_node, 1.0))


def _intra_bandwidth(m: Machine, ranks: Array, frac: Array, two_rank: Array = 1.0) -> Array:
    return collectives.group_bandwidth_bytes_per_s(
        ranks,
        bandwidth_bytes_per_s=m.intra_bandwidth,
        frac=frac,
        two_rank_frac=two_rank,
        peers=m.intra_peers,
        mesh=m.intra_mesh,
        host_bytes_per_s=m.intra_host,
    )


def _card_bandwidth(m: Machine, frac: Array) -> Array:
    return collectives.card_bandwidth_bytes_per_s(m.nic_per_gpu, frac, m.inter_socket)


def _pass(
    m: Machine,
    tensor_bytes: Array,
    group: Group,
    passes: float,
    intra_frac: Array,
    inter_frac: Array,
    network: Array = 1.0,
    *,
    start_s: Array = 0.0,
    switch: bool = False,
) -> Array:
    base_s = m.intra_base + start_s
    inside = np.minimum(group.ranks, group.ranks_per_node)
    bandwidth = _intra_bandwidth(m, inside, intra_frac, m.intra_two_rank)
    intra = collectives.ring_intra_s(
        tensor_bytes,
        inside,
        passes,
        base_s=base_s,
        latency_s=m.intra_latency,
        bytes_per_s=bandwidth,
        ramp=m.intra_ramp,
    )
    # NCCL takes whichever it expects to be faster: rings for small messages, the switch for large
    # ones
    if switch:
        in_switch = inside >= m.intra_switch_ranks
        reduced = m.intra_bandwidth * m.intra_switch
        within_switch = collectives.switch_all_reduce_s(
            tensor_bytes,
            inside,
            base_s=m.intra_base,
            setup_s=m.intra_switch_setup,
            bytes_per_s=reduced,
        )
        intra = np.where(in_switch, np.minimum(intra, within_switch), intra)
        bandwidth = np.where(in_switch, np.maximum(bandwidth, reduced), bandwidth)
    across = group.nodes > 1
    if not np.any(across):
        return intra
    # where a node holds one rank of the group, its own links carry nothing
    within = np.where(inside > 1, bandwidth, np.inf)
    node = collectives.node_bandwidth_bytes_per_s(
        inside, _card_bandwidth(m, inter_frac * network), within
    )
    ring = collectives.ring_inter_s(
        tensor_bytes,
        group.ranks,
        group.nodes,
        passes,
        base_s=base_s,
        latency_s=m.intra_latency,
        hop_s=m.inter_hop,
        node_bytes_per_s=node,
    )
    if passes == 2 and "tree" not in m.without:
        tree = collectives.tree_inter_s(
            tensor_bytes,
            group.nodes,
            inside,
            base_s=base_s,
            latency_s=m.intra_latency,
            hop_s=m.inter_hop,
            node_bytes_per_s=node,
        )
        ring = np.minimum(ring, tree)
    return np.where(across, np.maximum(ring, intra), intra)


def all_reduce_s(m: Machine, tensor_bytes: Array, group: Group) -> Array:
    """Fastest of ring, tree and reduction in the switch over the group's placement."""
    return _pass(
        m,
        tensor_bytes,
        group,
        2.0,
        m.intra_all_reduce,
        m.inter_all_reduce,
        start_s=m.intra_all_reduce_start,
        switch=True,
    )


def all_gather_s(m: Machine, tensor_bytes: Array, group: Group, network: Array = 1.0) -> Array:
    """Ring all-gather; `network` is the share of the fabric's achievable rate that the stack
    reaches."""
    return _pass(m, tensor_bytes, group, 1.0, m.intra_all_gather, m.inter_all_gather, network)


def reduce_scatter_s(m: Machine, tensor_bytes: Array, group: Group, network: Array = 1.0) -> Array:
    """Ring reduce-scatter; `network` as for all_gather_s."""
    return _pass(
        m,
        tensor_bytes,
        group,
        1.0,
        m.intra_reduce_scatter,
        m.inter_reduce_scatter,
        network,
        start_s=m.intra_reduce_scatter_start,
    )


def all_to_all_s(m: Machine, tensor_bytes: Array, group: Group, remote_frac: Array) -> Array:
    """Every rank to every rank of the group: cards are as busy with many peers as in an
    all-gather."""
    inside = np.minimum(group.ranks, group.ranks_per_node)
    return collectives.all_to_all_s(
        tensor_bytes,
        group.ranks,
        group.ranks_per_node,
        remote_frac,
        base_s=m.intra_base,
        latency_s=m.intra_latency,
        hop_s=m.inter_hop,
        intra_bytes_per_s=_intra_bandwidth(m, inside, m.intra_send),
        card_bytes_per_s=_card_bandwidth(m, m.inter_all_gather),
    )


def send_s(m: Machine, message_bytes: Array, across: Array) -> Array:
    """One message to a neighbouring pipeline stage, over the node's link or one GPU's share of the
    network."""
    pair = _intra_bandwidth(m, 0.0 * message_bytes + 2.0, m.intra_send)
    inside = collectives.send_recv_s(message_bytes, latency_s=m.intra_base, bytes_per_s=pair)
    outside = collectives.send_recv_s(
        message_bytes,
        latency_s=m.intra_base + m.inter_hop,
        bytes_per_s=_card_bandwidth(m, m.inter_send),
    )
    return np.where(across > 0, outside, inside)
