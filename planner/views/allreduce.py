"""View of `dpplan allreduce`."""

from __future__ import annotations

from planner.specs.documents.allreduce import AllReduce
from planner.units import show
from planner.views.chart import Chart
from planner.views.figures import CYCLE, LOG, axis, figure, line, markers
from planner.views.view import Block, View

_MIB = 2.0**20


def view(r: AllReduce) -> View:
    """Seconds by size, a map of the fastest, and the sizes at which it changes."""
    c = r.cluster
    nodes = f"{c.nodes:,} node{'s' * (c.nodes > 1)}"
    between = f", {c.inter_node} between" if c.nodes > 1 else ""
    return View(
        f"All-reduce over {c.gpus:,} x {c.gpu}: {nodes}, {c.intra_node} inside{between}",
        _verdict(r),
        "yes",
        parts=(_times(r), _map(r), _crossovers(r)),
        notes=r.assumptions,
    )


def _verdict(r: AllReduce) -> str:
    """The fastest for the smallest and the largest size."""
    small, large = (
        f"{size.fastest} at {show(size.bytes, 'B')} ({show(size.seconds[size.fastest], 's')})"
        for size in (r.sizes[0], r.sizes[-1])
    )
    return f"fastest: {small}" + (f", {large}" if len(r.sizes) > 1 else "")


def _colors(r: AllReduce) -> dict[str, str]:
    """A color for every algorithm that applies."""
    return {
        algorithm.name: CYCLE[i % len(CYCLE)]
        for i, algorithm in enumerate(r.algorithms)
        if algorithm.refused is None
    }


def _times(r: AllReduce) -> Block:
    used = [algorithm for algorithm in r.algorithms if algorithm.refused is None]
    return Block(
        "Seconds by size",
        [
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
            *("bytes|B", *(f"{algorithm.name}|s" for algorithm in used)),
            *("fastest", "bus bandwidth|B/s", "estimates take|s"),
        ],
        [
            [
                *(size.bytes, *(size.seconds[algorithm.name] for algorithm in used)),
                *(size.fastest, size.bus_bytes_per_s, size.estimated_s),
            ]
            for size in r.sizes
        ],
        order="smallest first",
        drop=("bus bandwidth", *(algorithm.name for algorithm in reversed(used))),
        lead=True,
        chart=_curves(r),
    )


def _curves(r: AllReduce) -> Chart:
    data = [
        line(
            name,
            [size.bytes / _MIB for size in r.sizes],
            [size.seconds[name] for size in r.sizes],
            color,
            [f"{name}, {show(z.bytes, 'B')}: {show(z.seconds[name], 's')}" for z in r.sizes],
            symbol="circle",
        )
        for name, color in _colors(r).items()
    ]
    return Chart(
        "allreduce-sizes",
        "Seconds over size",
        f"All-reduce over {r.cluster.gpus:,} ranks.",
        figure(data, axis("message (MiB)", LOG), axis("seconds", LOG)),
        caption="The parameter server needs machines of its own and is not a candidate for the"
        " fastest.",
    )


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
        folded=True,
        chart=_squares(r),
    )


def _squares(r: AllReduce) -> Chart:
    """The fastest of each size and number of ranks, a square each."""
    rows = [f"{row.ranks:,}" for row in r.map.rows]
    cells: dict[str, list[tuple[float, str]]] = {}
    for row, ranks in zip(r.map.rows, rows, strict=True):
        for size, name in zip(r.map.bytes, row.fastest, strict=True):
            cells.setdefault(name, []).append((size, ranks))
    data = [
        markers(
            name,
            [size / _MIB for size, _ in cells[name]],
            [ranks for _, ranks in cells[name]],  # type: ignore[misc]
            color,
            [f"{ranks} ranks, {show(size, 'B')}: {name}" for size, ranks in cells[name]],
            size=11,
            symbol="square",
        )
        for name, color in _colors(r).items()
        if name in cells
    ]
    upright = axis("ranks", type="category", categoryorder="array", categoryarray=rows)
    return Chart(
        "allreduce-map",
        "The fastest by size and ranks",
        f"{len(r.crossovers)} sizes at which the fastest changes.",
        figure(data, axis("message (MiB)", LOG), upright),
        caption="Each square is the algorithm that is fastest there.",
    )


def _crossovers(r: AllReduce) -> Block:
    return Block(
        "Where the fastest changes",
        header=[">ranks", "from|B", "fastest below", "fastest above"],
        rows=[[f"{x.ranks:,}", x.bytes, x.below, x.above] for x in r.crossovers],
        order="fewest ranks first",
    )
