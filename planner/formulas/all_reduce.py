"""Time of an all-reduce by algorithm, over the actual placement of ranks; the ring and the tree
stand in formulas.collectives.

S: bytes reduced; n ranks, g of them in each of N nodes; a step inside a node takes latency / 2 (the
profile's latency is there and back), a step between nodes takes hop. Powers of two have no extra
steps; other rank counts fold the ranks that are left over into their neighbours before and after.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="1",
    equation="floor(log2 n)",
    source=(
        "Thakur, Rabenseifner, Gropp 2005 (IJHPCA 19:49) section 4.5: ranks beyond a power of two"
        " stand aside"
    ),
)
def exchange_steps(ranks: Array) -> Array:
    """Steps of a recursive exchange among the largest power of two that is not above `ranks`."""
    return np.floor(np.log2(np.maximum(ranks, 1.0)) + 1e-9)


def _folded(ranks: Array) -> Array:
    """Whether some ranks are left over."""
    return np.where(ranks > 2.0 ** exchange_steps(ranks), 1.0, 0.0)


@formula(
    unit="s",
    equation=(
        "base + log2 n steps of (step + S / B), near ones inside the node; +2 steps where n is not"
        " a power of two"
    ),
    source=(
        "recursive doubling, Thakur, Rabenseifner, Gropp 2005 (IJHPCA 19:49) section 4.2: lg p"
        " alpha + n lg p beta"
    ),
)
def recursive_doubling_s(
    tensor_bytes: Array,
    ranks: Array,
    ranks_per_node: Array,
    *,
    base_s: Array,
    latency_s: Array,
    hop_s: Array,
    pair_bytes_per_s: Array,
    card_bytes_per_s: Array,
    ramp: Array,
) -> Array:
    """Every rank exchanges the whole tensor with a partner twice as far away in each step.

    pair_bytes_per_s: what two GPUs of a node exchange, one way, while all others do;
    card_bytes_per_s: one GPU's share of the node's cards.
    """
    inside = exchange_steps(np.minimum(ranks, ranks_per_node))
    outside = exchange_steps(ranks) - inside
    near_s = latency_s / 2 + tensor_bytes / pair_bytes_per_s
    far_s = hop_s + tensor_bytes / card_bytes_per_s
    fold_s = 2 * _folded(ranks) * np.where(ranks > ranks_per_node, far_s, near_s)
    time = (
        base_s
        + inside * near_s
        + outside * far_s
        + fold_s
        + np.where(inside > 0, ramp * np.sqrt(tensor_bytes), 0.0)
    )
    return np.where(ranks > 1, time, 0.0)


@formula(
    unit="s",
    equation=(
        "base + 2 log2 n steps + 2 (g-1)/g S / B_pair + 2 (N-1)/n S / B_card; +2 steps of S where n"
        " is not a power of two"
    ),
    source=(
        "Rabenseifner 2004 (ICCS, LNCS 3036:1), Thakur et al. 2005 section 4.3: 2 lg p alpha + 2"
        " (p-1)/p n beta"
    ),
)
def halving_doubling_s(
    tensor_bytes: Array,
    ranks: Array,
    ranks_per_node: Array,
    *,
    base_s: Array,
    latency_s: Array,
    hop_s: Array,
    pair_bytes_per_s: Array,
    card_bytes_per_s: Array,
    ramp: Array,
) -> Array:
    """Reduce-scatter by halves and all-gather by doubling, nearest partner first, so that the
    smallest parts leave the node."""
    near, far = exchange_steps(np.minimum(ranks, ranks_per_node)), exchange_steps(ranks)
    g, p = 2.0**near, 2.0**far
    inside_s = 2 * near * latency_s / 2 + 2 * (g - 1) / g * tensor_bytes / pair_bytes_per_s
    outside_s = 2 * (far - near) * hop_s + 2 * (1 / g - 1 / p) * tensor_bytes / card_bytes_per_s
    step_s = np.where(
        ranks > ranks_per_node,
        hop_s + tensor_bytes / card_bytes_per_s,
        latency_s / 2 + tensor_bytes / pair_bytes_per_s,
    )
    gone = np.where(near > 0, ramp * np.sqrt(tensor_bytes), 0.0)
    return np.where(
        ranks > 1, base_s + inside_s + outside_s + 2 * _folded(ranks) * step_s + gone, 0.0
    )


@formula(
    unit="s",
    equation="reduce-scatter in rows + all-reduce of S / row in columns + all-gather in rows",
    source=(
        "hierarchical: NCCL 2.4 blog (Jeaugey 2019), Horovod; rows of any length: Mikami et al."
        " 2018 (arXiv 1811.05233)"
    ),
)
def grid_all_reduce_s(reduce_scatter_s: Array, column_s: Array, all_gather_s: Array) -> Array:
    """Three collectives in turn on a grid of ranks; a column reduces only the part its rank owns
    after the first."""
    return reduce_scatter_s + column_s + all_gather_s


@formula(
    unit="s",
    equation="2 (base + hop + max(S / B_worker, n S / (s B_server)))",
    source=(
        "parameter server, Li et al. 2014 (OSDI); n workers meet at each of s servers' cards"
        " (incast), Jiang et al. 2020 (BytePS, OSDI) section 2"
    ),
)
def parameter_server_s(
    tensor_bytes: Array,
    workers: Array,
    servers: Array,
    *,
    base_s: Array,
    hop_s: Array,
    worker_bytes_per_s: Array,
    server_bytes_per_s: Array,
) -> Array:
    """Push of all gradients to servers of their own and pull of all parameters; each server holds
    1/s of them.

    worker_bytes_per_s: one GPU's share of its node's cards; server_bytes_per_s: the cards of one
    server, one way.
    """
    one_way = np.maximum(
        tensor_bytes / worker_bytes_per_s, workers * tensor_bytes / (servers * server_bytes_per_s)
    )
    return np.where(workers > 1, 2 * (base_s + hop_s + one_way), 0.0)


@formula(
    unit="B",
    equation="ring 2 (n-1)/n S; doubling S log2 n; tree 2 S; server 2 S",
    source=(
        "Patarasuk & Yuan 2009 (JPDC 69:117): no all-reduce sends less than 2 (n-1)/n S per rank"
    ),
)
def least_sent_bytes(tensor_bytes: Array, ranks: Array) -> Array:
    """Bytes that every rank of an all-reduce must send, whatever the algorithm (without reduction
    in a switch)."""
    return 2 * (ranks - 1) / np.maximum(ranks, 1.0) * tensor_bytes


@formula(
    unit="B",
    equation="k S / s",
    source=(
        "Li et al. 2014 (OSDI, parameter server) section 4.3: replication after aggregation, each"
        " range of keys to its k next servers"
    ),
)
def replicated_bytes(tensor_bytes: Array, servers: Array, copies: Array) -> Array:
    """Bytes that each of s servers sends to other servers per update, to keep k copies of what it
    holds."""
    return copies * tensor_bytes / servers
