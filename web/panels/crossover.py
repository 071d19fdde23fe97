"""All-reduce over message size: which algorithm is fastest where, and where this layout's messages
lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.api import Options, PlanError
from planner.estimate import Estimates
from planner.estimate.communicate import Group, all_reduce_s, place
from planner.estimate.machine import Machine, machine
from planner.ledger import Array, recording
from planner.units import show
from planner.verbs.estimate import chosen
from planner.views.cells import Column
from planner.views.chart import Chart, Trace
from planner.views.figures import BLUE, GREEN, LOG, PURPLE, RED, axis, figure, line, markers, vline

_SIZES = 2.0 ** np.arange(10, 35)  # 1 KiB to 16 GiB
_MIB = 2.0**20


@dataclass(frozen=True)
class _Algorithm:
    formula: str
    title: str
    color: str
    symbol: str


_INSIDE = (
    _Algorithm("ring_intra_s", "ring inside a node", BLUE, "circle"),
    _Algorithm("switch_all_reduce_s", "reduction in the switch", GREEN, "square"),
)
_ACROSS = (
    _Algorithm("ring_inter_s", "ring across nodes", BLUE, "circle"),
    _Algorithm("tree_inter_s", "trees across nodes", PURPLE, "diamond"),
)


def chart(options: Options) -> Chart:
    """Algorithms of an all-reduce over the data-parallel ranks of the chosen layout, or its
    tensor-parallel ones."""
    one = chosen(options)
    word, group = _group(one, options.gpus)
    taken, curves = _times(machine(one.plan), group)
    algorithms = list(curves)
    best = [algorithms[i] for i in np.stack(list(curves.values())).argmin(axis=0)]
    turns = [i for i in range(1, len(best)) if best[i] is not best[i - 1]]
    turns_text = "; ".join(f"from {show(float(_SIZES[i]), 'B')} on {best[i].title}" for i in turns)
    used = _messages(one, word)
    data = [
        line(
            a.title,
            (_SIZES / _MIB).tolist(),
            seconds.tolist(),
            a.color,
            [
                f"{a.title}, {show(float(size), 'B')}: {show(float(s), 's')}"
                for size, s in zip(_SIZES, seconds, strict=True)
            ],
            symbol=a.symbol,
        )
        for a, seconds in curves.items()
    ]
    if used:
        data.append(_stars(used, taken))
    return Chart(
        "crossover",
        "All-reduce by message size",
        f"{float(group.ranks[0]):,.0f} {word}-parallel ranks,"
        f" {float(group.ranks_per_node[0]):,.0f} per node: small messages by {best[0].title}"
        + (f"; {turns_text}." if turns_text else " and so do large ones."),
        figure(
            data,
            axis("message (MiB)", LOG),
            axis("seconds", LOG),
            shapes=[vline(float(_SIZES[i]) / _MIB) for i in turns],
        ),
        (
            Column("message", "B"),
            *(Column(a.title, "s") for a in algorithms),
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
                best[i].title,
            ]
            for i, size in enumerate(_SIZES)
        ],
        "Time of one all-reduce over this layout's group by algorithm. Dotted: where another"
        " becomes the fastest.",
        order="smallest message first",
    )


def _group(one: Estimates, gpus: int | None) -> tuple[str, Group]:
    """Which ranks reduce, and where they are placed."""
    tp, replicas = one.table.tp, one.table.dp * one.table.cp
    tiers = one.plan.cluster.tiers
    if float(replicas[0]) > 1:
        return "data", place(replicas, tp, tiers)
    if float(tp[0]) > 1:
        return "tensor", place(tp, np.ones_like(tp), tiers)
    raise PlanError("--gpus", gpus, "one GPU reduces nothing; take at least two")


def _times(m: Machine, group: Group) -> tuple[Array, dict[_Algorithm, Array]]:
    """Seconds of each size as estimates count them, and by each algorithm that can run there."""
    many = Group(
        *(
            None if column is None else np.repeat(column, len(_SIZES))
            for column in (group.ranks, group.ranks_per_node, group.ranks_per_island)
        )
    )
    with recording() as tree:
        taken = np.asarray(all_reduce_s(m, _SIZES, many), float)
    found = {call.formula.name: call.output for call in tree.calls}
    switch = float(group.ranks[0]) >= float(m.intra_switch_ranks)  # fewer ranks cannot use it
    possible = _ACROSS if float(group.nodes[0]) > 1 else _INSIDE if switch else _INSIDE[:1]
    return taken, {
        a: np.broadcast_to(np.asarray(found[a.formula], float), _SIZES.shape)
        for a in possible
        if a.formula in found
    }


def _messages(one: Estimates, word: str) -> list[float]:
    """Bytes of the all-reduces of this layout over that group."""
    return sorted(
        {
            float(t.bytes[0])
            for t in one.time.traffic
            if t.group == word and float(t.count[0]) > 0 and t.operation == "all_reduce"
        }
    )


def _stars(sizes: list[float], taken: Array) -> Trace:
    at = np.interp(np.log(sizes), np.log(_SIZES), taken)
    text = [f"this layout: {show(size, 'B')}" for size in sizes]
    x = [size / _MIB for size in sizes]
    return markers("messages of this layout", x, at.tolist(), RED, text, size=14, symbol="star")
