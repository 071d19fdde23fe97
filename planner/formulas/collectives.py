"""Time of collectives over the actual placement of ranks on nodes and network cards.

`tensor_bytes` is the whole tensor: the buffer of an all-reduce, the gathered result of an all-gather, the full input of a
reduce-scatter. `ranks` form the group, `ranks_per_node` of them sit in one node (or one switched NVLink domain) and share its
network cards with the other groups of the node. passes is 2 for all-reduce and 1 for its two halves.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula

_TREE_HOPS = 5.0  # hops per level of a double binary tree, in units of a ring hop
_TREE_VOLUME = 1.1  # a tree moves a little more than the ring's bytes per NIC


@formula(
    unit="s",
    equation="(passes/2) latency n + passes (n-1)/n S / (B frac) + ramp sqrt(S)",
    source="ring cost: Thakur et al. 2005, Patarasuk & Yuan 2009; sqrt term fitted on NCCL tables (7-21 % error without it)",
)
def ring_intra_s(
    tensor_bytes: Array, ranks: Array, passes: Array, *, latency_s: Array, bandwidth_bytes_per_s: Array, frac: Array,
    ramp: Array,
) -> Array:  # fmt: skip
    """Time of a ring inside one node; zero for one rank. B is one-way per GPU."""
    share = passes * (ranks - 1) / np.maximum(ranks, 1)
    time = passes / 2 * latency_s * ranks + share * tensor_bytes / (bandwidth_bytes_per_s * frac) + ramp * np.sqrt(tensor_bytes)
    return np.where(ranks > 1, time, 0.0)


@formula(
    unit="B/s",
    equation="min(g NIC frac, B intra)",
    source="NCCL channels leave a node over all cards its ranks own; one card per GPU unless shared",
)
def node_bandwidth_bytes_per_s(
    ranks_per_node: Array, nic_bytes_per_gpu_per_s: Array, nic_frac: Array, intra_bytes_per_s: Array
) -> Array:
    """Bandwidth at which the g ranks of one group leave their node, one way, while all other groups do the same."""
    return np.minimum(ranks_per_node * nic_bytes_per_gpu_per_s * nic_frac, intra_bytes_per_s)


@formula(
    unit="s",
    equation="passes (n-1) hop + passes (n-1)/n S / B_node",
    source="ring over all ranks of the group; 4.5 us per rank and pass fitted, 8..64 to 512 GPUs error 4.2 -> 2.1 %",
)
def ring_inter_s(tensor_bytes: Array, ranks: Array, passes: Array, *, hop_s: Array, node_bytes_per_s: Array) -> Array:
    """Time of a ring that crosses nodes."""
    return passes * (ranks - 1) * hop_s + passes * (ranks - 1) / np.maximum(ranks, 1) * tensor_bytes / node_bytes_per_s


@formula(
    unit="s",
    equation="2 log2(nodes+1) 5 hop + 2.2 S / B_node",
    source="double binary trees, Sanders et al. 2009, as in NCCL 2.4; hop count and 10 % volume assumed",
)
def tree_inter_s(tensor_bytes: Array, nodes: Array, *, hop_s: Array, node_bytes_per_s: Array) -> Array:
    """Time of a tree all-reduce across nodes."""
    return 2 * np.log2(nodes + 1) * _TREE_HOPS * hop_s + _TREE_VOLUME * 2 * tensor_bytes / node_bytes_per_s


@formula(
    unit="s",
    equation="S/B_intra (n-1)/n + S copies/ (k B_nic) outside + latency",
    source="own derivation: each token's copies leave the node once per remote expert group (DeepSeek-V3 report, section 3.2)",
)
def all_to_all_s(
    tensor_bytes: Array, ranks: Array, ranks_per_node: Array, remote_frac: Array, *, latency_s: Array,
    intra_bytes_per_s: Array, nic_bytes_per_gpu_per_s: Array, nic_frac: Array,
) -> Array:  # fmt: skip
    """Time for each rank to scatter `tensor_bytes` evenly over the group.

    remote_frac scales what crosses nodes when copies for one node are sent once (group-limited routing).
    """
    outside = 1 - ranks_per_node / np.maximum(ranks, 1)
    time = (
        latency_s
        + tensor_bytes * (1 - 1 / np.maximum(ranks, 1)) / intra_bytes_per_s
        + tensor_bytes * remote_frac * outside / (nic_bytes_per_gpu_per_s * nic_frac)
    )
    return np.where(ranks > 1, time, 0.0)


@formula(unit="s", equation="latency + S / B", source="alpha-beta model, Hockney 1994")
def send_recv_s(message_bytes: Array, *, latency_s: Array, bytes_per_s: Array) -> Array:
    """Time of one point-to-point message."""
    return latency_s + message_bytes / bytes_per_s


@formula(
    unit="1",
    equation="min(limit, N (1 - (1 - 1/N)^k), k) / k",
    source="expected number of distinct nodes reached by k uniform choices; group limit: DeepSeek-V3 report, arXiv 2412.19437",
)
def remote_copies_frac(nodes: Array, experts_per_token: Array, group_limit: Array) -> Array:
    """Copies of a token that leave for other nodes, over the k copies made, when each node receives a token once."""
    n = np.maximum(nodes, 1.0)
    distinct = n * (1 - (1 - 1 / n) ** experts_per_token)
    return np.minimum(np.minimum(group_limit, distinct), experts_per_token) / np.maximum(experts_per_token, 1)
