"""All-reduce by algorithm on the machine: the same link numbers as estimates, the algorithm as a
free choice.

Every algorithm reaches the share of the link that the profile gives for all-reduce, so that they
differ only by steps and bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate
from planner.estimate.communicate import Group, place
from planner.estimate.machine import Machine
from planner.formulas import all_reduce, collectives
from planner.formulas.divisors import divisors
from planner.ledger import Array
from planner.specs.cluster import ClusterSpec


@dataclass(frozen=True)
class Network:
    """Where the ranks of one all-reduce sit: `group.ranks_per_node` of them in each node (or
    switched domain)."""

    m: Machine
    group: Group
    node_gpus: float  # that share the cards of a node
    servers: float  # of a parameter server; each has the cards of one node

    @property
    def ranks(self) -> float:
        return float(self.group.ranks)

    @property
    def per_node(self) -> float:
        return float(np.minimum(self.group.ranks, self.group.ranks_per_node))

    @property
    def nodes(self) -> float:
        return float(self.group.nodes)

    def card(self, span: float) -> Array:
        """One GPU's share of the node's cards, one way; of the links between islands where `span`
        ranks in a row are on several."""
        return communicate.card_bandwidth(
            self.m, self.m.inter_all_reduce, self.between_islands(span)
        )

    def hop(self, span: float) -> Array:
        """A step from node to node, of ranks that `span` in a row hold."""
        return communicate.hop(self.m, self.between_islands(span))

    def between_islands(self, span: float) -> Array | None:
        """Whether this many consecutive ranks span several islands; None without islands."""
        per_island = self.group.ranks_per_island
        return None if per_island is None else np.asarray(span > per_island)

    def inside(self, peers: float) -> Array:
        """Bandwidth per GPU inside the node while groups of `peers` communicate."""
        two_ranks = self.m.intra_two_rank if self.per_node == 2 else 1.0
        return communicate.intra_bandwidth(self.m, peers, self.m.intra_all_reduce, two_ranks)


def network(m: Machine, cluster: ClusterSpec, ranks: int, servers: float = 1.0) -> Network:
    """Network of an all-reduce over the first `ranks` GPUs of the cluster; m: its numbers."""
    group = place(np.asarray(float(ranks)), np.asarray(1.0), cluster.tiers)
    return Network(m, group, float(cluster.gpus_per_host), servers)


def _ring(x: Network, size: Array) -> Array:
    return _over(x, size, x.ranks, x.per_node, 2.0)


def _over(
    x: Network, size: Array, ranks: float, per_node: float, passes: float, stride: float = 1.0
) -> Array:
    """A ring over `ranks` that are `stride` apart, `per_node` neighbours of it in each node: as in
    estimates (communicate), with a fixed algorithm."""
    m, span = x.m, ranks * stride
    bandwidth = x.inside(per_node)
    inside = collectives.ring_intra_s(
        size,
        per_node,
        passes,
        base_s=m.intra_base,
        latency_s=m.intra_latency,
        bytes_per_s=bandwidth,
        ramp=m.intra_ramp,
    )
    if ranks <= per_node:
        return inside
    node = collectives.node_bandwidth_bytes_per_s(
        per_node, x.card(span), bandwidth if per_node > 1 else np.inf
    )
    across = collectives.ring_inter_s(
        size,
        ranks,
        ranks / per_node,
        passes,
        base_s=m.intra_base,
        latency_s=m.intra_latency,
        hop_s=x.hop(span),
        node_bytes_per_s=node,
    )
    return np.maximum(across, inside)


def _tree(x: Network, size: Array) -> Array:
    """Across nodes as NCCL: a chain in the node, trees between nodes. Inside one node the tree is
    among its GPUs."""
    m = x.m
    link = {"base_s": m.intra_base, "latency_s": m.intra_latency}
    if x.nodes > 1:
        node = collectives.node_bandwidth_bytes_per_s(
            x.per_node, x.card(x.ranks), x.inside(x.per_node) if x.per_node > 1 else np.inf
        )
        return collectives.tree_inter_s(
            size, x.nodes, x.per_node, hop_s=x.hop(x.ranks), node_bytes_per_s=node, **link
        )
    alone = collectives.tree_inter_s(
        size, x.ranks, 1.0, hop_s=m.intra_latency / 2, node_bytes_per_s=x.inside(x.per_node), **link
    )
    return np.where(x.ranks > 1, alone + m.intra_ramp * np.sqrt(size), 0.0)


def _doubling(x: Network, size: Array) -> Array:
    return all_reduce.recursive_doubling_s(size, x.ranks, x.per_node, **_pairs(x))


def _halving(x: Network, size: Array) -> Array:
    return all_reduce.halving_doubling_s(size, x.ranks, x.per_node, **_pairs(x))


def _pairs(x: Network) -> dict[str, Array]:
    m = x.m
    return {
        "base_s": m.intra_base,
        "latency_s": m.intra_latency,
        "hop_s": x.hop(x.ranks),
        "pair_bytes_per_s": x.inside(2.0),
        "card_bytes_per_s": x.card(x.ranks),
        "ramp": m.intra_ramp,
    }


def _grid(x: Network, size: Array, row: float) -> Array:
    """Rows of neighbours, columns of ranks `row` apart; a column of a row that fills a node leaves
    it with every step."""
    per_node = min(row, x.per_node)
    column_per_node = max(1.0, math.floor(x.per_node / row))
    first, last = (_over(x, size, row, per_node, 1.0) for _ in range(2))
    column = _over(x, size / row, x.ranks / row, min(column_per_node, x.ranks / row), 2.0, row)
    return all_reduce.grid_all_reduce_s(first, column, last)


def _hierarchical(x: Network, size: Array) -> Array:
    return _grid(x, size, x.per_node)


def square_row(ranks: float, per_node: float) -> float:
    """Length of a row of the most square grid whose rows are whole nodes, or whole parts of one."""
    n, g = round(ranks), round(per_node)
    rows = [a for a in divisors(n) if a % g == 0 or g % a == 0]
    return float(min(rows, key=lambda a: (round(abs(math.log(a * a / n)), 9), a)))


def _two_d_ring(x: Network, size: Array) -> Array:
    return _grid(x, size, square_row(x.ranks, x.per_node))


def _switch(x: Network, size: Array) -> Array:
    """Reduction in the NVLink switch; across nodes the reduced tensor goes through trees between
    nodes at the same time."""
    m = x.m
    reduced = m.intra_bandwidth * m.intra_switch
    inside = collectives.switch_all_reduce_s(
        size, x.per_node, base_s=m.intra_base, setup_s=m.intra_switch_setup, bytes_per_s=reduced
    )
    if x.nodes <= 1:
        return inside
    node = collectives.node_bandwidth_bytes_per_s(x.per_node, x.card(x.ranks), reduced)
    across = collectives.tree_inter_s(
        size,
        x.nodes,
        1.0,
        base_s=m.intra_base,
        latency_s=m.intra_latency,
        hop_s=x.hop(x.ranks),
        node_bytes_per_s=node,
    )
    return np.maximum(inside, m.intra_switch_setup + across)


def _server(x: Network, size: Array) -> Array:
    return all_reduce.parameter_server_s(
        size,
        x.ranks,
        x.servers,
        base_s=x.m.intra_base,
        hop_s=x.hop(x.ranks),
        worker_bytes_per_s=x.card(x.ranks),
        server_bytes_per_s=x.card(x.ranks) * x.node_gpus,
    )


def _always(x: Network) -> str | None:
    return None


def _several_nodes(x: Network) -> str | None:
    return (
        None
        if x.nodes > 1 and x.per_node > 1
        else "is the ring where all ranks sit in one node, or each in its own"
    )


def _has_switch(x: Network) -> str | None:
    return (
        None
        if x.per_node >= float(x.m.intra_switch_ranks)
        else "no reduction in the switch in this link's profile"
    )


def _square(x: Network) -> str | None:
    row = square_row(x.ranks, x.per_node)
    if row in (1.0, x.ranks):
        return "no grid of whole nodes but the ring"
    return "is the hierarchical one at this size" if row == x.per_node and x.nodes > 1 else None


@dataclass(frozen=True)
class Algorithm:
    """`seconds(network, bytes)`, and a sentence where it does not apply."""

    name: str
    title: str
    letter: str  # in charts
    source: str
    seconds: Callable[[Network, Array], Array]
    unfit: Callable[[Network], str | None]


ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("ring", "ring", "R", "Patarasuk & Yuan 2009; NCCL", _ring, _always),
    Algorithm(
        "tree", "double binary tree", "T", "Sanders, Speck, Traeff 2009; NCCL 2.4", _tree, _always
    ),
    Algorithm(
        "doubling", "recursive doubling", "D", "Thakur et al. 2005 section 4.2", _doubling, _always
    ),
    Algorithm(
        "halving", "recursive halving and doubling", "H", "Rabenseifner 2004", _halving, _always
    ),
    Algorithm(
        "hierarchical", "hierarchical", "I", "NCCL 2.4 blog; Horovod", _hierarchical, _several_nodes
    ),
    Algorithm(
        "2d-ring", "2D ring", "2", "Mikami et al. 2018, arXiv 1811.05233", _two_d_ring, _square
    ),
    Algorithm(
        "switch",
        "reduction in the switch (NVLS)",
        "N",
        "NVLink SHARP; fitted on NCCL tables",
        _switch,
        _has_switch,
    ),
    Algorithm(
        "server", "parameter server", "P", "Li et al. 2014; BytePS, OSDI 2020", _server, _always
    ),
)

BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}


def seconds(x: Network, size: Array) -> dict[str, Array]:
    """Seconds of every algorithm that applies, by name; zero for one rank."""
    size = np.asarray(size, float)
    if x.ranks <= 1:
        return {
            algorithm.name: np.zeros_like(size)
            for algorithm in ALGORITHMS
            if algorithm.unfit is _always
        }
    return {
        algorithm.name: algorithm.seconds(x, size) + np.zeros_like(size)
        for algorithm in ALGORITHMS
        if algorithm.unfit(x) is None
    }


def as_estimated(x: Network, size: Array) -> Array:
    """Time in an estimate: the fastest of ring, tree and switch as NCCL chooses
    (communicate.all_reduce_s)."""
    return communicate.all_reduce_s(x.m, np.asarray(size, float), x.group)


@dataclass(frozen=True)
class Crossover:
    """From `bytes` on `above` is the fastest, below it `below` is."""

    bytes: float
    below: str
    above: str


def crossovers(x: Network, low: float, high: float, points: int = 200) -> list[Crossover]:
    """Sizes between `low` and `high` at which the fastest algorithm changes, to a relative accuracy
    of 1e-6."""
    sizes = np.geomspace(low, high, points)
    best = fastest(x, sizes)
    out = []
    for i in np.flatnonzero([a != b for a, b in itertools.pairwise(best)]):
        a, b, left = float(sizes[i]), float(sizes[i + 1]), best[i]
        while b / a > 1 + 1e-6:
            middle = math.sqrt(a * b)
            a, b = (middle, b) if fastest(x, np.array([middle]))[0] == left else (a, middle)
        out.append(Crossover(b, left, fastest(x, np.array([b]))[0]))
    return out


def fastest(x: Network, sizes: Array) -> list[str]:
    """Name of the fastest algorithm for each size; ties go to the first in the order of ALGORITHMS.

    The parameter server is excluded: it needs extra machines, and no profile has its cost per
    message.
    """
    times = {name: column for name, column in seconds(x, sizes).items() if name != "server"}
    names = list(times)
    return [names[i] for i in np.argmin(np.stack(list(times.values())), axis=0)]
