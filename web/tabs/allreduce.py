"""All-reduce algorithms against each other, by size and number of ranks."""

from __future__ import annotations

from planner.specs.documents.allreduce import AllReduce
from planner.specs.options.parallel import AllReduceOptions
from planner.units import show
from planner.verbs import allreduce
from planner.views.allreduce import all_reduce_blocks
from planner.views.cells import Cell, Column
from planner.views.figures import CYCLE, LOG, Chart, axis, figure, line, markers
from web.tabs.base import Asked, Found, Tab, Table

_MIB = 2.0**20


def _find(asked: Asked) -> AllReduce:
    return allreduce.answer(asked.given, asked.of(AllReduceOptions))


def _show(found: AllReduce, asked: Asked) -> Found:
    times, _, crossovers = all_reduce_blocks(found)  # the map of letters is a figure here
    verdict, *rest = times.text
    title, times.title, times.text = times.title, "Seconds by size", rest
    return Found(
        title=title,
        verdict=verdict[:1].upper() + verdict[1:],
        command=asked.command,
        mark="yes",
        parts=(_by_size(found), _map(found), Table(times), Table(crossovers)),
        notes=tuple(found.assumptions),
    )


def _used(found: AllReduce) -> dict[str, str]:
    """Title of every algorithm that applies, with its color."""
    return {
        one.name: CYCLE[i % len(CYCLE)]
        for i, one in enumerate(found.algorithms)
        if one.refused is None
    }


def _by_size(found: AllReduce) -> Chart:
    sizes = [size.bytes for size in found.sizes]
    data = []
    for name, color in _used(found).items():
        seconds = [size.seconds[name] for size in found.sizes]
        said = [
            f"{name}, {show(b, 'B')}: {show(s, 's')}" for b, s in zip(sizes, seconds, strict=True)
        ]
        data.append(line(name, [b / _MIB for b in sizes], seconds, color, said, symbol="circle"))
    return Chart(
        "allreduce-sizes",
        "Seconds over size",
        f"All-reduce over {found.cluster.gpus:,} ranks.",
        figure(data, axis("message (MiB)", LOG), axis("seconds", LOG)),
        (Column("message", "B"), *(Column(name, "s") for name in _used(found)), Column("fastest")),
        [
            [size.bytes, *(size.seconds[name] for name in _used(found)), size.fastest]
            for size in found.sizes
        ],
        "The parameter server needs machines of its own and is not a candidate for the fastest.",
        order="smallest message first",
    )


def _map(found: AllReduce) -> Chart:
    """The fastest of each size and number of ranks, a square each."""
    rows = [f"{row.ranks:,}" for row in found.map.rows]
    cells: dict[str, list[tuple[float, str]]] = {}
    for row, ranks in zip(found.map.rows, rows, strict=True):
        for size, name in zip(found.map.bytes, row.fastest, strict=True):
            cells.setdefault(name, []).append((size, ranks))
    colors = _used(found)
    data = [
        markers(
            name,
            [size / _MIB for size, _ in places],
            [ranks for _, ranks in places],  # type: ignore[misc]
            colors[name],
            [f"{ranks} ranks, {show(size, 'B')}: {name}" for size, ranks in places],
            size=11,
            symbol="square",
        )
        for name, places in cells.items()
    ]
    changes: list[list[Cell]] = [[x.ranks, x.bytes, x.below, x.above] for x in found.crossovers]
    return Chart(
        "allreduce-map",
        "The fastest by size and ranks",
        f"{len(changes)} sizes at which the fastest changes.",
        figure(
            data,
            axis("message (MiB)", LOG),
            axis("ranks", type="category", categoryorder="array", categoryarray=rows),
        ),
        (Column("ranks", "number"), Column("from", "B"), Column("below"), Column("above")),
        changes,
        "Each square is the algorithm that is fastest there.",
        order="fewest ranks first",
    )


TAB = Tab(
    path="/allreduce",
    name="All-reduce",
    title="All-reduce algorithms",
    lead=(
        "Ring, tree, in-switch reduction and others over a cluster's links: time by message "
        "size, the fastest algorithm for each size and number of ranks, and where that changes."
    ),
    ask="Compare algorithms",
    verb="allreduce",
    documents=("allreduce",),
    records=(AllReduceOptions,),
    shown=("gpu", "gpus", "bytes"),
    folded=("cluster", "intra_node", "inter_node", "gpus_per_node", "nic_bandwidth", "servers"),
    start=[("gpu", "h100-sxm5-80gb"), ("gpus", "64")],
    find=_find,
    show=_show,
    model=False,
)
