"""Time of collectives over the actual placement of ranks on nodes and network cards.

`tensor_bytes` is the whole tensor: the buffer of an all-reduce, the gathered result of an
all-gather, the full input of a reduce-scatter. `ranks` form the group, `ranks_per_node` of them sit
in one node (or one switched NVLink domain) and share its network cards with the other groups of the
node. passes is 2 for all-reduce and 1 for its two halves.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula

_TREE_CHUNK_BYTES = (
    2.0**20
)  # per rank of a node: two NCCL channels of 512 KiB, an eighth of their 4 MiB buffers


@formula(
    unit="B/s",
    equation="min(B frac two ((k-1)/(N-1))^mesh, host / ranks on it)",
    source=(
        "own derivation: links to the k-1 peers of the group over links to all N-1; exponent 1"
        " where every pair has its own"
    ),
)
def group_bandwidth_bytes_per_s(
    ranks: Array,
    *,
    bandwidth_bytes_per_s: Array,
    frac: Array,
    two_rank_frac: Array,
    peers: Array,
    mesh: Array,
    host_bytes_per_s: Array,
) -> Array:
    """Bandwidth per GPU and direction that a group reaches inside its node.

    peers: other GPUs of the node; mesh: 0 behind a switch, which gives every group the whole link;
    host_bytes_per_s: a GPU's share of the host's bridges while all GPUs of the host communicate, in
    their own groups or in one.
    """
    near = np.clip((np.maximum(ranks, 2.0) - 1) / np.maximum(peers, 1.0), 0.0, 1.0)
    paths = near**mesh * np.where(ranks == 2, two_rank_frac, 1.0)
    return np.minimum(bandwidth_bytes_per_s * frac * paths, host_bytes_per_s)


@formula(
    unit="s",
    equation="base + passes (n-1) latency/2 + passes (n-1)/n S / B + ramp sqrt(S)",
    source=(
        "ring cost: Thakur et al. 2005, Patarasuk & Yuan 2009; base and sqrt term fitted on NCCL"
        " tables (docs/mechanisms/communication.md)"
    ),
)
def ring_intra_s(
    tensor_bytes: Array,
    ranks: Array,
    passes: Array,
    *,
    base_s: Array,
    latency_s: Array,
    bytes_per_s: Array,
    ramp: Array,
) -> Array:
    """Time of a ring inside one node; zero for one rank. B is one-way bandwidth per GPU, latency
    the round trip of a step."""
    time = (
        base_s
        + passes * (ranks - 1) * latency_s / 2
        + passes * (ranks - 1) / np.maximum(ranks, 1) * tensor_bytes / bytes_per_s
        + ramp * np.sqrt(tensor_bytes)
    )
    return np.where(ranks > 1, time, 0.0)


@formula(
    unit="s",
    equation="base + setup + 2 (n-1)/n S / B",
    source=(
        "in-switch reduction (NVLink SHARP); own form, fitted on NCCL tables"
        " (docs/mechanisms/communication.md); B as"
        " in nccl-tests"
    ),
)
def switch_all_reduce_s(
    tensor_bytes: Array, ranks: Array, *, base_s: Array, setup_s: Array, bytes_per_s: Array
) -> Array:
    """Time of an all-reduce inside the switch of a node; B, its bus bandwidth, may exceed the wire
    rate."""
    return base_s + setup_s + 2 * (ranks - 1) / np.maximum(ranks, 1) * tensor_bytes / bytes_per_s


@formula(
    unit="B/s",
    equation="min(NIC frac, sockets)",
    source=(
        "one card per GPU unless shared; over TCP each rank copies through host memory and its own"
        " socket threads"
    ),
)
def card_bandwidth_bytes_per_s(
    nic_bytes_per_gpu_per_s: Array, nic_frac: Array, socket_bytes_per_s: Array
) -> Array:
    """Bandwidth at which one GPU leaves its node, one way, while all other GPUs do the same."""
    return np.minimum(nic_bytes_per_gpu_per_s * nic_frac, socket_bytes_per_s)


@formula(
    unit="B/s",
    equation="min(B_card, NIC frac / oversubscription)",
    source=(
        "definition of oversubscription: ports of an island's switches towards nodes over those"
        " towards other islands; as Meta's Llama 3 (arXiv 2407.21783, section 3.3.1): 1:7 above"
        " pods of 3,072 GPUs"
    ),
)
def uplink_bandwidth_bytes_per_s(
    card_bytes_per_s: Array, *, nic_bytes_per_gpu_per_s: Array, oversubscription: Array
) -> Array:
    """One GPU's share of the links between islands, one way, while all other GPUs use theirs, of
    this job or of others; never more than its cards carry."""
    return np.minimum(card_bytes_per_s, nic_bytes_per_gpu_per_s / oversubscription)


@formula(
    unit="B/s",
    equation="min(B_card, B_up (n - g)/(n - i)) for n > i, else B_card",
    source=(
        "bisection: n ranks, g in a node, i in an island; of what leaves a node, (n-i)/(n-g) leaves"
        " the island too, and the slower of both links ends last; own derivation"
    ),
)
def bisection_bytes_per_s(
    card_bytes_per_s: Array,
    ranks: Array,
    ranks_per_node: Array,
    ranks_per_island: Array,
    *,
    uplink_bytes_per_s: Array,
) -> Array:
    """Rate at which a rank's messages to all others leave its node."""
    leaving = np.maximum(ranks - ranks_per_node, 1.0)
    beyond = ranks - ranks_per_island
    far = uplink_bytes_per_s * leaving / np.maximum(beyond, 1.0)
    return np.where(beyond > 0, np.minimum(card_bytes_per_s, far), card_bytes_per_s)


@formula(
    unit="B/s",
    equation="min(g B_card, B intra)",
    source="NCCL channels leave a node over all cards its ranks own",
)
def node_bandwidth_bytes_per_s(
    ranks_per_node: Array, card_bytes_per_s: Array, intra_bytes_per_s: Array
) -> Array:
    """Bandwidth at which the g ranks of one group leave their node, one way, while all other groups
    do the same."""
    return np.minimum(ranks_per_node * card_bytes_per_s, intra_bytes_per_s)


@formula(
    unit="s",
    equation=(
        "base + passes (n-1) (hop/g + (1-1/g) latency/2) + passes (n-1)/n S / B_node, g = n/nodes"
    ),
    source=(
        "own derivation; steps that leave a node and steps that stay are apart in NVIDIA/nccl"
        " src/graph/tuning.cc too"
    ),
)
def ring_inter_s(
    tensor_bytes: Array,
    ranks: Array,
    nodes: Array,
    passes: Array,
    *,
    base_s: Array,
    latency_s: Array,
    hop_s: Array,
    node_bytes_per_s: Array,
) -> Array:
    """Time of a ring that crosses nodes; zero for one rank. One of g steps leaves a node."""
    leaving = nodes / np.maximum(ranks, 1)
    step_s = leaving * hop_s + (1 - leaving) * latency_s / 2
    time = (
        base_s
        + passes * (ranks - 1) * step_s
        + passes * (ranks - 1) / np.maximum(ranks, 1) * tensor_bytes / node_bytes_per_s
    )
    return np.where(ranks > 1, time, 0.0)


@formula(
    unit="s",
    equation=(
        "base + 2 log2(nodes+1) (hop + c/B_node) + (g-1) latency + 2 S/B_node, c = S g 1 MiB / (S +"
        " g 1 MiB)"
    ),
    source=(
        "double binary trees, Sanders et al. 2009, as in NCCL 2.4; each level waits for its first"
        " chunk (own derivation)"
    ),
)
def tree_inter_s(
    tensor_bytes: Array,
    nodes: Array,
    ranks_per_node: Array,
    *,
    base_s: Array,
    latency_s: Array,
    hop_s: Array,
    node_bytes_per_s: Array,
) -> Array:
    """Time of a tree all-reduce across nodes: up and down, a chain inside each node, chunks
    following one another."""
    most = ranks_per_node * _TREE_CHUNK_BYTES
    chunk = tensor_bytes * most / (tensor_bytes + most)
    levels_s = 2 * np.log2(nodes + 1) * (hop_s + chunk / node_bytes_per_s)
    return (
        base_s + levels_s + (ranks_per_node - 1) * latency_s + 2 * tensor_bytes / node_bytes_per_s
    )


@formula(
    unit="s",
    equation="base + (g-1) latency/2 + hop where it leaves + max(S_in / B_intra, S_out / B_card)",
    source=(
        "own derivation; what leaves for other nodes and what stays go beside each other: HybridEP"
        " reaches 44 of 50 GB/s of a card on 32 and 64 H100s with random routing"
        " (DeepEP, README_Hybrid-EP)"
    ),
)
def all_to_all_s(
    inside_bytes: Array,
    outside_bytes: Array,
    ranks: Array,
    ranks_per_node: Array,
    *,
    base_s: Array,
    latency_s: Array,
    hop_s: Array,
    intra_bytes_per_s: Array,
    card_bytes_per_s: Array,
) -> Array:
    """Time for each rank to send every other one its part.

    inside_bytes: what a rank sends over the links of its node, what it passes on for others
    included; outside_bytes: what leaves the node through its card. Messages to all remote ranks
    are under way together, so that one hop is paid.
    """
    inside = np.minimum(ranks, ranks_per_node)
    time = (
        base_s
        + (inside - 1) * latency_s / 2
        + np.where(ranks > inside, hop_s, 0.0)
        + np.maximum(inside_bytes / intra_bytes_per_s, outside_bytes / card_bytes_per_s)
    )
    return np.where(ranks > 1, time, 0.0)


@formula(unit="s", equation="latency + S / B", source="alpha-beta model, Hockney 1994")
def send_recv_s(message_bytes: Array, *, latency_s: Array, bytes_per_s: Array) -> Array:
    """Time of one point-to-point message."""
    return latency_s + message_bytes / bytes_per_s


@formula(
    unit="1",
    equation="min(limit, N (1 - (1 - 1/N)^k), k)",
    source=(
        "expected number of distinct places reached by k uniform choices; group limit: DeepSeek-V3"
        " report, arXiv 2412.19437"
    ),
)
def distinct_copies(places: Array, experts_per_token: Array, group_limit: Array) -> Array:
    """Copies of a token where every place (rank or node) with one of its k experts receives it
    once."""
    n = np.maximum(places, 1.0)
    distinct = n * (1 - (1 - 1 / n) ** experts_per_token)
    return np.minimum(np.minimum(group_limit, distinct), experts_per_token)


@formula(
    unit="s",
    equation="S / B + (n-1) latency",
    source=(
        "pipelined broadcast along a ring, Thakur et al. 2005 section 4.4; NCCL's broadcast; small"
        " chunks, which all links carry at once"
    ),
)
def broadcast_s(
    tensor_bytes: Array, ranks: Array, *, latency_s: Array, bytes_per_s: Array
) -> Array:
    """Time in which what one rank has reaches all, as parameters do at the start of a job."""
    return tensor_bytes / bytes_per_s + (ranks - 1) * latency_s
