"""Blocks of text for `dpplan allreduce`."""

from __future__ import annotations

from planner.specs.documents.allreduce import AllReduce
from planner.units import show
from planner.views.view import Block


def all_reduce_blocks(r: AllReduce) -> list[Block]:
    """Seconds by size, a map of the fastest, and the sizes at which it changes."""
    return [_times(r), _map(r), _crossovers(r)]


def _times(r: AllReduce) -> Block:
    c = r.cluster
    used = [algorithm for algorithm in r.algorithms if algorithm.refused is None]
    nodes = f"{c.nodes:,} node{'s' * (c.nodes > 1)}"
    between = f", {c.inter_node} between" if c.nodes > 1 else ""
    return Block(
        f"All-reduce over {c.gpus:,} x {c.gpu}: {nodes}, {c.intra_node} inside{between}",
        [
            _verdict(r),
            *(
                f"{algorithm.letter}  {algorithm.name}: {algorithm.title} ({algorithm.source})"
                for algorithm in used
            ),
            *(
                f"left out: {algorithm.name}, {algorithm.refused}"
                for algorithm in r.algorithms
                if algorithm.refused
            ),
            f"server: {r.servers:,} machines of their own, each with the cards of a node; no"
            " candidate for the fastest",
        ],
        [
            ">bytes",
            *(f">{algorithm.name}" for algorithm in used),
            "fastest",
            ">bus bandwidth",
            ">estimates take",
        ],
        [
            [
                show(size.bytes, "B"),
                *(show(size.seconds[algorithm.name], "s") for algorithm in used),
                size.fastest,
                show(size.bus_bytes_per_s, "B/s"),
                show(size.estimated_s, "s"),
            ]
            for size in r.sizes
        ],
        order="smallest first",
        drop=("bus bandwidth", *(algorithm.name for algorithm in reversed(used))),
    )


def _verdict(r: AllReduce) -> str:
    """The fastest for the smallest and the largest size."""
    small, large = (
        f"{size.fastest} at {show(size.bytes, 'B')} ({show(size.seconds[size.fastest], 's')})"
        for size in (r.sizes[0], r.sizes[-1])
    )
    return f"fastest: {small}" + (f", {large}" if len(r.sizes) > 1 else "")


def _map(r: AllReduce) -> Block:
    letters = {algorithm.name: algorithm.letter for algorithm in r.algorithms}
    sizes = r.map.bytes
    return Block(
        "Fastest by size and ranks",
        ["each column is sqrt(2) times the size of the one before"],
        [">ranks", ">nodes", f"{show(sizes[0], 'B')} to {show(sizes[-1], 'B')}"],
        [
            [f"{row.ranks:,}", f"{row.nodes:g}", "".join(letters[name] for name in row.fastest)]
            for row in r.map.rows
        ],
        order="fewest ranks first",
        drop=("nodes",),
    )


def _crossovers(r: AllReduce) -> Block:
    return Block(
        "Where the fastest changes",
        header=[">ranks", ">from", "fastest below", "fastest above"],
        rows=[[f"{x.ranks:,}", show(x.bytes, "B"), x.below, x.above] for x in r.crossovers],
        order="fewest ranks first",
    )
