"""All-reduce over message size: which algorithm is fastest where, and where this layout's messages
lie."""

from __future__ import annotations

import numpy as np

from planner.api import Options, PlanError
from planner.estimate import Estimates, all_reduce
from planner.estimate.communicate import Group, place
from planner.estimate.machine import machine
from planner.units import show
from planner.verbs.estimate import chosen
from planner.views.cells import Column
from planner.views.chart import Chart
from planner.views.figures import CYCLE, LOG, RED, axis, figure, line, markers, vline

_SIZES = 2.0 ** np.arange(10, 35)  # 1 KiB to 16 GiB
_MIB = 2.0**20
_NCCL = ("ring", "tree", "switch")  # what NCCL chooses among


def chart(options: Options) -> Chart:
    """NCCL's algorithms of an all-reduce over the data-parallel ranks of the chosen layout, or its
    tensor-parallel ones."""
    estimates = chosen(options)
    word, group = _group(estimates, options.gpus)
    cluster = estimates.plan.cluster
    network = all_reduce.Network(machine(estimates.plan), group, float(cluster.gpus_per_host), 1.0)
    taken = np.broadcast_to(all_reduce.as_estimated(network, _SIZES), _SIZES.shape)
    every = all_reduce.seconds(network, _SIZES)
    curves = {name: seconds for name, seconds in every.items() if name in _NCCL}
    titles = {name: all_reduce.BY_NAME[name].title for name in curves}
    names = list(curves)
    best = [names[i] for i in np.stack(list(curves.values())).argmin(axis=0)]
    turns = [i for i in range(1, len(best)) if best[i] != best[i - 1]]
    turns_text = "; ".join(
        f"from {show(float(_SIZES[i]), 'B')} on {titles[best[i]]}" for i in turns
    )
    data = [
        line(
            titles[name],
            (_SIZES / _MIB).tolist(),
            seconds.tolist(),
            color,
            [
                f"{titles[name]}, {show(float(size), 'B')}: {show(float(s), 's')}"
                for size, s in zip(_SIZES, seconds, strict=True)
            ],
            symbol="circle",
        )
        for (name, seconds), color in zip(curves.items(), CYCLE, strict=False)
    ]
    if sizes := _messages(estimates, word):
        at = np.interp(np.log(sizes), np.log(_SIZES), taken).tolist()
        text = [f"this layout: {show(size, 'B')}" for size in sizes]
        x = [size / _MIB for size in sizes]
        data.append(markers("messages of this layout", x, at, RED, text, size=14, symbol="star"))
    return Chart(
        "crossover",
        "All-reduce by message size",
        f"{network.ranks:,.0f} {word}-parallel ranks, {network.per_node:,.0f} per node: small"
        f" messages by {titles[best[0]]}"
        + (f"; {turns_text}." if turns else " and so do large ones."),
        figure(
            data,
            axis("message (MiB)", LOG),
            axis("seconds", LOG),
            shapes=[vline(float(_SIZES[i]) / _MIB) for i in turns],
        ),
        (
            Column("message", "B"),
            *(Column(title, "s") for title in titles.values()),
            Column("taken", "s"),
            Column("message over time", "B/s"),
            Column("fastest"),
        ),
        [
            [
                float(size),
                *(float(seconds[i]) for seconds in curves.values()),
                float(taken[i]),
                float(size / taken[i]),
                titles[best[i]],
            ]
            for i, size in enumerate(_SIZES)
        ],
        "Time of one all-reduce over this layout's group by algorithm. Dotted: where another"
        " becomes the fastest.",
        order="smallest message first",
    )


def _group(estimates: Estimates, gpus: int | None) -> tuple[str, Group]:
    """Which ranks reduce, and where they are placed."""
    tp, replicas = estimates.table.tp[0], (estimates.table.dp * estimates.table.cp)[0]
    tiers = estimates.plan.cluster.tiers
    if float(replicas) > 1:
        return "data", place(replicas, tp, tiers)
    if float(tp) > 1:
        return "tensor", place(tp, np.ones_like(tp), tiers)
    raise PlanError("--gpus", gpus, "one GPU reduces nothing; take at least two")


def _messages(estimates: Estimates, word: str) -> list[float]:
    """Bytes of the all-reduces of this layout over that group."""
    return sorted(
        {
            float(t.bytes[0])
            for t in estimates.time.traffic
            if t.group == word and float(t.count[0]) > 0 and t.operation == "all_reduce"
        }
    )
