"""All-reduce over message size: which algorithm is fastest where, and where this layout's messages
lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.api import Options, PlanError
from planner.estimate.communicate import Group, all_reduce_s, place
from planner.estimate.machine import machine
from planner.ledger import Call, recording
from planner.show.figures import BLUE, GREEN, GREY, GRID, PURPLE, RED, Chart, Column
from planner.units import show
from planner.verbs.schedule import chosen

_SIZES = 2.0 ** np.arange(10, 35)  # 1 KiB to 16 GiB
_ALGORITHMS = {
    "ring_intra_s": ("ring inside a node", BLUE, "circle"),
    "switch_all_reduce_s": ("reduction in the switch", GREEN, "square"),
    "ring_inter_s": ("ring across nodes", BLUE, "circle"),
    "tree_inter_s": ("trees across nodes", PURPLE, "diamond"),
}


def _found(tree: Call) -> dict[str, Call]:
    return {call.formula.name: call for call in tree.calls if call.formula.name in _ALGORITHMS}


def chart(options: Options) -> Chart:
    """Algorithms of an all-reduce over the data-parallel ranks of the chosen layout, or its
    tensor-parallel ones."""
    one = chosen(options)
    m, domain = machine(one.plan), one.plan.cluster.nvlink_domain
    tp, ranks = one.table.tp, one.table.dp * one.table.cp
    data_parallel = float(ranks[0]) > 1
    if not data_parallel and float(tp[0]) <= 1:
        raise PlanError("--gpus", options.gpus, "one GPU reduces nothing; take at least two")
    group: Group = (
        place(ranks, tp, domain) if data_parallel else place(tp, np.ones_like(tp), domain)
    )
    many = Group(np.repeat(group.ranks, len(_SIZES)), np.repeat(group.ranks_per_node, len(_SIZES)))
    with recording() as tree:
        taken = np.asarray(all_reduce_s(m, _SIZES, many), float)
    calls = _found(tree)
    across = float(group.nodes[0]) > 1
    names: list[str] = [
        n
        for n in (
            ("ring_inter_s", "tree_inter_s") if across else ("ring_intra_s", "switch_all_reduce_s")
        )
        if n in calls
    ]
    curves = {
        name: np.broadcast_to(np.asarray(calls[name].output, float), _SIZES.shape) for name in names
    }
    if (
        not across
        and "switch_all_reduce_s" in curves
        and not float(group.ranks[0]) >= float(m.intra_switch_ranks)
    ):
        curves.pop("switch_all_reduce_s")  # this link has none, or needs more ranks
    names = list(curves)
    best = np.stack([curves[name] for name in names]).argmin(axis=0)
    turns = [i for i in range(1, len(best)) if best[i] != best[i - 1]]
    rows: list[list[Any]] = [
        [
            float(size),
            *(float(curves[n][i]) for n in names),
            float(taken[i]),
            float(size / taken[i]),
            _ALGORITHMS[names[best[i]]][0],
        ]
        for i, size in enumerate(_SIZES)
    ]
    columns = (
        Column("message", "B"),
        *(Column(_ALGORITHMS[n][0], "s") for n in names),
        Column("taken", "s"),
        Column("message over time", "B/s"),
        Column("fastest"),
    )
    word = "data" if data_parallel else "tensor"
    told = "; ".join(
        f"from {show(float(_SIZES[i]), 'B')} on {_ALGORITHMS[names[best[i]]][0]}" for i in turns
    )
    summary = (
        f"{float(group.ranks[0]):,.0f} {word}-parallel ranks, {float(group.ranks_per_node[0]):,.0f}"
        f" per node: small messages by {_ALGORITHMS[names[best[0]]][0]}"
        + (f"; {told}." if told else " and so do large ones.")
    )
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": _ALGORITHMS[n][0],
            "x": (_SIZES / 2**20).tolist(),
            "y": curves[n].tolist(),
            "line": {"color": _ALGORITHMS[n][1]},
            "marker": {"symbol": _ALGORITHMS[n][2], "size": 5},
            "text": [
                f"{show(float(s), 'B')}: {show(float(t), 's')}"
                for s, t in zip(_SIZES, curves[n], strict=True)
            ],
            "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
        }
        for n in names
    ]
    used = [
        t
        for t in one.time.traffic
        if t.group == word and float(t.count[0]) > 0 and t.operation == "all_reduce"
    ]
    if used:
        sizes = sorted({float(t.bytes[0]) for t in used})
        at = np.interp(np.log(sizes), np.log(_SIZES), taken)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "messages of this layout",
                "x": [s / 2**20 for s in sizes],
                "y": at.tolist(),
                "marker": {"symbol": "star", "size": 14, "color": RED},
                "text": [show(s, "B") for s in sizes],
                "hovertemplate": "%{text}<extra>this layout</extra>",
            }
        )
    layout = {
        "xaxis": {**GRID, "type": "log", "title": {"text": "message (MiB)"}},
        "yaxis": {**GRID, "type": "log", "title": {"text": "seconds"}},
        "legend": {"orientation": "h", "y": -0.25},
        "margin": {"t": 20, "r": 20},
        "shapes": [
            {
                "type": "line",
                "x0": float(_SIZES[i]) / 2**20,
                "x1": float(_SIZES[i]) / 2**20,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": GREY, "dash": "dot", "width": 1},
            }
            for i in turns
        ],
    }
    return Chart(
        "crossover",
        "All-reduce by message size",
        summary,
        {"data": data, "layout": layout},
        columns,
        rows,
        "Time of one all-reduce over this layout's group by algorithm. Dotted: where another"
        " becomes the fastest.",
    )
