"""Collectives of a layout on the machine: links that a group uses, placement of its ranks on nodes,
and seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.estimate.machine import Machine
from planner.formulas import collectives
from planner.ledger import Array, is_recording
from planner.specs.cluster import Tiers


@dataclass(frozen=True)
class Group:
    """Ranks of a communication group, how many of them sit in one node or NVLink domain, and how
    many below one tier of switches; None where the fabric is not known to have islands."""

    ranks: Array
    ranks_per_node: Array
    ranks_per_island: Array | None = None

    @property
    def nodes(self) -> Array:
        return np.maximum(self.ranks / self.ranks_per_node, 1.0)

    @property
    def spans_islands(self) -> Array:
        """Whether some of its traffic passes from island to island."""
        if self.ranks_per_island is None:
            return np.asarray(False)
        return self.ranks > self.ranks_per_island


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


class Between(NamedTuple):
    """Ranks that communicate, and the contents of their messages."""

    group: str  # which parallel dimension
    what: str
    component: str  # the step component that has exposed seconds
    placed: Group


class Calls(NamedTuple):
    """Calls of a collective per layer and micro-batch: exposed ones (or shares of one) in forward
    and backward, hidden ones in backward (None: 0), and those that the CPU issues in one direction
    (None: the exposed ones of forward)."""

    forward: Array
    backward: Array
    hidden_backward: Array | None = None
    issued: Array | None = None


@dataclass(frozen=True)
class Collective:
    """A collective of one layer and micro-batch."""

    operation: str
    group: str
    what: str
    component: str
    tensor_bytes: Array
    seconds: Array  # one call
    forward: Array  # exposed calls (or shares of one) in forward
    backward: Array
    hidden_backward: Array  # calls in backward that overlap with compute
    issued: Array  # calls the CPU issues in one direction, hidden or not
    placed: Group

    @property
    def forward_s(self) -> Array:
        """Seconds of forward that nothing hides."""
        return self.forward * self.seconds

    @property
    def backward_s(self) -> Array:
        """Seconds of backward that nothing hides."""
        return self.backward * self.seconds


def collective(
    between: Between, operation: str, tensor_bytes: Array, seconds: Array, calls: Calls
) -> Collective:
    """A collective. seconds: of one call on the whole tensor."""
    hidden, issued = calls.hidden_backward, calls.issued
    return Collective(
        operation=operation,
        group=between.group,
        what=between.what,
        component=between.component,
        tensor_bytes=tensor_bytes,
        seconds=seconds,
        forward=calls.forward,
        backward=calls.backward,
        hidden_backward=0.0 * calls.forward if hidden is None else hidden,
        issued=calls.forward if issued is None else issued,
        placed=between.placed,
    )


_NO_TIME_S = 1e-30  # keeps a share of zero time finite; below any time that occurs


def share_of(part_s: Array, whole_s: Array) -> Array:
    """A time over another one, which may be zero."""
    return part_s / np.maximum(whole_s, _NO_TIME_S)


def place(ranks: Array, stride: Array, tiers: Tiers) -> Group:
    """Group of `ranks` whose neighbours are `stride` ranks apart, on nodes (or switched domains)
    and islands of this many GPUs."""
    return Group(
        1.0 * ranks,
        _together(ranks, stride, tiers.domain),
        None if math.isinf(tiers.island) else _together(ranks, stride, tiers.island),
    )


def _together(ranks: Array, stride: Array, gpus: float) -> Array:
    """Ranks of a group on `gpus` consecutive GPUs."""
    return np.clip(np.floor(gpus / stride), 1.0, np.maximum(ranks, 1.0))


def place_twice(
    inner: Array, inner_stride: Array, outer: Array, outer_stride: Array, tiers: Tiers
) -> Group:
    """Group of inner x outer ranks whose two dimensions have different strides; the outer one
    begins where the inner one ends."""
    within, beyond = place(inner, inner_stride, tiers), place(outer, outer_stride, tiers)

    def both(inside: Array, outside: Array) -> Array:
        whole = inside >= within.ranks  # else a node holds a part of one inner group
        return inside * np.where(whole, outside, 1.0)

    island = None
    if within.ranks_per_island is not None and beyond.ranks_per_island is not None:
        island = both(within.ranks_per_island, beyond.ranks_per_island)
    return Group(inner * outer, both(within.ranks_per_node, beyond.ranks_per_node), island)


def intra_bandwidth(m: Machine, ranks: Array, frac: Array, two_rank: Array = 1.0) -> Array:
    """Bandwidth per GPU of a group inside a node. frac: share of the link's rate that the operation
    reaches; two_rank: further factor for groups of two ranks."""
    return collectives.group_bandwidth_bytes_per_s(
        ranks,
        bandwidth_bytes_per_s=m.intra_bandwidth,
        frac=frac,
        two_rank_frac=two_rank,
        peers=m.intra_peers,
        mesh=m.intra_mesh,
        host_bytes_per_s=m.intra_host,
    )


def card_bandwidth(m: Machine, frac: Array, between_islands: Array | None = None) -> Array:
    """One GPU's share of its node's cards, or of the links between islands where the traffic
    passes them."""
    card = collectives.card_bandwidth_bytes_per_s(m.nic_per_gpu, frac, m.inter_socket)
    if between_islands is None:
        return card
    share = collectives.uplink_bandwidth_bytes_per_s(
        card, nic_bytes_per_gpu_per_s=m.nic_per_gpu * frac, oversubscription=m.oversubscription
    )
    return np.where(between_islands, share, card)


def hop(m: Machine, between_islands: Array | None) -> Array:
    """A step from node to node, or from island to island."""
    if between_islands is None:
        return m.inter_hop
    return m.inter_hop + np.where(between_islands, m.inter_tier, 0.0)


def _islands(group: Group) -> Array | None:
    """Whether a group spans islands; None without islands."""
    return None if group.ranks_per_island is None else group.spans_islands


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
    if not np.any(group.ranks > 1) and not is_recording():  # as of most layouts in data parallelism
        return 0.0 * (group.ranks + tensor_bytes)
    base_s = m.intra_base + start_s
    inside = np.minimum(group.ranks, group.ranks_per_node)
    bandwidth = intra_bandwidth(m, inside, intra_frac, m.intra_two_rank)
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
    islands = _islands(group)
    hop_s = hop(m, islands)
    node = collectives.node_bandwidth_bytes_per_s(
        inside, card_bandwidth(m, inter_frac * network, islands), within
    )
    ring = collectives.ring_inter_s(
        tensor_bytes,
        group.ranks,
        group.nodes,
        passes,
        base_s=base_s,
        latency_s=m.intra_latency,
        hop_s=hop_s,
        node_bytes_per_s=node,
    )
    if passes == 2 and "tree" not in m.without:
        tree = collectives.tree_inter_s(
            tensor_bytes,
            group.nodes,
            inside,
            base_s=base_s,
            latency_s=m.intra_latency,
            hop_s=hop_s,
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


def all_to_all_s(m: Machine, inside_bytes: Array, outside_bytes: Array, group: Group) -> Array:
    """All-to-all of a group, with the bytes that each rank sends inside the node and beyond it.
    Network cards, and links between islands, reach the rate of an all-gather."""
    inside = np.minimum(group.ranks, group.ranks_per_node)
    card = card_bandwidth(m, m.inter_all_gather)
    islands = _islands(group)
    if group.ranks_per_island is not None:
        card = collectives.bisection_bytes_per_s(
            card,
            group.ranks,
            group.ranks_per_node,
            group.ranks_per_island,
            uplink_bytes_per_s=card_bandwidth(m, m.inter_all_gather, islands),
        )
    return collectives.all_to_all_s(
        inside_bytes,
        outside_bytes,
        group.ranks,
        group.ranks_per_node,
        base_s=m.intra_base,
        latency_s=m.intra_latency,
        hop_s=hop(m, islands),
        intra_bytes_per_s=intra_bandwidth(m, inside, m.intra_send),
        card_bytes_per_s=card,
    )


def even_all_to_all_s(m: Machine, tensor_bytes: Array, group: Group) -> Array:
    """Every rank scatters `tensor_bytes` evenly over the group."""
    ranks = np.maximum(group.ranks, 1.0)
    near = np.minimum(ranks, group.ranks_per_node)
    inside, outside = tensor_bytes * (near - 1) / ranks, tensor_bytes * (1 - near / ranks)
    return all_to_all_s(m, inside, outside, group)


def send_s(
    m: Machine, message_bytes: Array, across: Array, between_islands: Array | None = None
) -> Array:
    """One message to a neighbouring pipeline stage, over the node's link or one GPU's share of the
    network or of the links between islands."""
    pair = intra_bandwidth(m, 0.0 * message_bytes + 2.0, m.intra_send)
    inside = collectives.send_recv_s(message_bytes, latency_s=m.intra_base, bytes_per_s=pair)
    outside = collectives.send_recv_s(
        message_bytes,
        latency_s=m.intra_base + hop(m, between_islands),
        bytes_per_s=card_bandwidth(m, m.inter_send, between_islands),
    )
    return np.where(across > 0, outside, inside)
