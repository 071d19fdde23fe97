"""Charts of one layout that `dpplan estimate --chart` adds: the roofline of its kernels, and its
all-reduces by message size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from planner.specs.document import UNSET
from planner.specs.documents.charts import Crossover, Kernel, MessageTime, Roofline
from planner.specs.documents.estimate import Estimate
from planner.units import percent, show
from planner.views.characters import chart_lines, legend
from planner.views.chart import Chart, Trace
from planner.views.figures import BLUE, CYCLE, LOG, PURPLE, RED, axis, figure, line, markers, vline
from planner.views.view import Block

_TERA = 1e12
_STEPS = 80  # of the roof, so many that it is a line in characters
_MIB = 2.0**20


def chart_blocks(r: Estimate) -> list[Block]:
    """The charts that were requested."""
    return [
        *([] if r.roofline is UNSET else [roofline_block(r.roofline)]),
        *([] if r.crossover is UNSET else [crossover_block(r.crossover)]),
    ]


def roofline_block(r: Roofline) -> Block:
    """Every GEMM and attention kernel of a layer and the head, at its intensity and reached
    rate."""
    right = sum(k.intensity >= r.ridge for k in r.kernels)
    slow = min(r.kernels, key=lambda k: k.rate)
    summary = (
        f"{len(r.kernels)} GEMMs of one layer and the head: {right} lie right of the ridge at"
        f" {r.ridge:,.0f} FLOP/B, where arithmetic is the limit, {len(r.kernels) - right} left of"
        f" it. Furthest below the roof is {slow.name},"
        f" {percent(slow.rate / r.dense_flop_per_s, 0)} of the dense rate."
    )
    curves = {"roof": _roof(r)} | {
        word: [(k.intensity, k.rate) for k in way] for word, way in _ways(r.kernels).items()
    }
    return Block(
        "Roofline of this layout",
        [
            summary,
            *chart_lines([*curves.items()], y_unit="FLOP/s"),
            legend([*curves], "; over FLOP per byte of memory traffic"),
        ],
        [
            *("kernel", "work|FLOP", "memory traffic|traffic", "FLOP per byte|number"),
            *("reached|FLOP/s", "of the dense rate|%", "time|s"),
        ],
        [
            [
                *(k.name, k.flop, k.bytes, k.intensity),
                *(k.rate, k.rate / r.dense_flop_per_s, k.seconds),
            ]
            for k in r.kernels
        ],
        order="in the order of the layer",
        drop=("memory traffic", "work"),
        chart=_roofline_chart(r),
    )


def _roof(r: Roofline) -> list[tuple[float, float]]:
    """FLOP per byte, and FLOP/s at most there: memory bandwidth up to the ridge, then the clock."""
    low = min(r.ridge, *(k.intensity for k in r.kernels)) / 2
    high = max(r.ridge, *(k.intensity for k in r.kernels)) * 2
    grid = [low * (high / low) ** (i / _STEPS) for i in range(_STEPS + 1)]
    return [
        (x, min(x * r.memory_bytes_per_s, r.clock_flop_per_s)) for x in sorted([*grid, r.ridge])
    ]


def _ways(kernels: Sequence[Kernel]) -> dict[str, list[Kernel]]:
    forward = [k for k in kernels if k.name.endswith("forward")]
    return {"forward": forward, "backward": [k for k in kernels if k not in forward]}


def _roofline_chart(r: Roofline) -> Chart:
    rate, ways = r.dense_flop_per_s, _ways(r.kernels)
    roof = _roof(r)
    data = [
        line("sustained clock", [x for x, _ in roof], [y / _TERA for _, y in roof], RED),
        line(
            "dense rate",
            [rate / r.memory_bytes_per_s, roof[-1][0]],
            [rate / _TERA, rate / _TERA],
            RED,
            dash="dot",
        ),
        _points("forward", ways["forward"], BLUE, "circle", rate),
        _points("backward", ways["backward"], PURPLE, "diamond-open", rate),
    ]
    return Chart(
        "roofline",
        "Roofline of this layout",
        "",
        figure(data, axis("FLOP per byte of memory traffic", LOG), axis("TFLOP/s", LOG)),
        caption="Each GEMM of a layer on one GPU. The roof is memory bandwidth, then the tensor"
        " clock under load.",
    )


def _points(word: str, kernels: Sequence[Kernel], color: str, symbol: str, rate: float) -> Trace:
    text = [f"{k.name}: {show(k.rate, 'FLOP/s')}, {percent(k.rate / rate, 0)}" for k in kernels]
    x, y = [k.intensity for k in kernels], [k.rate / _TERA for k in kernels]
    return markers(word, x, y, color, text, symbol=symbol, opacity=0.85)


def crossover_block(r: Crossover) -> Block:
    """All-reduce over message size: which algorithm is fastest where, and where the messages of the
    layout lie."""
    sizes, titles = r.sizes, r.titles
    turns = [b for a, b in itertools.pairwise(sizes) if a.fastest != b.fastest]
    changes = "; ".join(f"from {show(b.bytes, 'B')} on {titles[b.fastest]}" for b in turns)
    summary = (
        f"{r.ranks:,.0f} {r.group}-parallel ranks, {r.ranks_per_node:,.0f} per node: small"
        f" messages by {titles[sizes[0].fastest]}"
        + (f"; {changes}." if turns else " and so do large ones.")
    )
    curves = {title: [(z.bytes, z.seconds[name]) for z in sizes] for name, title in titles.items()}
    if r.messages:
        curves["messages of this layout"] = [(z.bytes, z.estimated_s) for z in r.messages]
    return Block(
        "All-reduce by message size",
        [
            summary,
            *chart_lines([*curves.items()], x_unit="B", y_unit="s"),
            legend([*curves], "; over the size of a message"),
        ],
        [
            *("message|B", *(f"{title}|s" for title in titles.values())),
            *("taken|s", "message over time|B/s", "fastest"),
        ],
        [
            [
                *(z.bytes, *z.seconds.values()),
                *(z.estimated_s, z.bytes / z.estimated_s, titles[z.fastest]),
            ]
            for z in sizes
        ],
        order="smallest message first",
        drop=("message over time",),
        chart=_crossover_chart(r, turns),
    )


def _crossover_chart(r: Crossover, turns: Sequence[MessageTime]) -> Chart:
    data = [
        line(
            title,
            [z.bytes / _MIB for z in r.sizes],
            [z.seconds[name] for z in r.sizes],
            color,
            [f"{title}, {show(z.bytes, 'B')}: {show(z.seconds[name], 's')}" for z in r.sizes],
            symbol="circle",
        )
        for (name, title), color in zip(r.titles.items(), CYCLE, strict=False)
    ]
    if r.messages:
        data.append(
            markers(
                "messages of this layout",
                [z.bytes / _MIB for z in r.messages],
                [z.estimated_s for z in r.messages],
                RED,
                [f"this layout: {show(z.bytes, 'B')}" for z in r.messages],
                size=14,
                symbol="star",
            )
        )
    return Chart(
        "crossover",
        "All-reduce by message size",
        "",
        figure(
            data,
            axis("message (MiB)", LOG),
            axis("seconds", LOG),
            shapes=[vline(z.bytes / _MIB) for z in turns],
        ),
        caption="Time of one all-reduce over this layout's group by algorithm. Dotted: where"
        " another becomes the fastest.",
    )
