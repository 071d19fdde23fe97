"""Roofline of one layout: every product and attention kernel of a layer and the head, at its
intensity and reached rate.

Read from the recorded formulas of the estimate itself, so that the chart can say nothing else than
the step time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.api import Options, PlanError
from planner.estimate import Estimates
from planner.estimate.machine import machine
from planner.ledger import Call, recording
from planner.report.layout import evaluate_row
from planner.show.figures import BLUE, GRID, PURPLE, RED, Chart, Column
from planner.units import show
from planner.verbs.schedule import chosen

_RESULT_BYTES = 2.0  # gemm_s writes a 16-bit result
_PASSES = ("forward", "input gradient", "weight gradient")
_SECTIONS = ("one layer, one micro-batch", "language-model head")


@dataclass(frozen=True)
class Kernel:
    """One kernel of one layer and micro-batch on one GPU."""

    name: str
    flop: float
    bytes: float
    seconds: float


def _number(value: Any) -> float:
    return float(np.asarray(value, float).reshape(-1)[0])


def _product(call: Call, name: str) -> Kernel:
    given = call.inputs
    m, n, k = (_number(given[key]) for key in ("m", "n", "k"))
    batch, extra, width = (
        _number(given.get(key, default))
        for key, default in (("batch", 1.0), ("extra_bytes", 0.0), ("input_bytes", 2.0))
    )
    moved = batch * (width * (m * k + n * k) + _RESULT_BYTES * m * n) + extra
    return Kernel(name, 2 * batch * m * n * k, moved, _number(call.output))


def _products(call: Call, name: str) -> Iterator[Kernel]:
    found = [inner for inner in call.calls if inner.formula.name == "gemm_s"]
    for i, inner in enumerate(found):
        word = _PASSES[i] if len(found) == len(_PASSES) else f"{i + 1}"
        yield _product(inner, f"{name.replace('_', ' ')}, {word}")


def _sections(tree: Call) -> Iterator[Call]:
    if tree.formula.name in _SECTIONS:
        yield tree
    for inner in tree.calls:
        yield from _sections(inner)


def kernels(one: Estimates) -> list[Kernel]:
    """Products of a layer and the head as the step time counts them, each once."""
    with recording() as tree:
        evaluate_row(one, 0)
    found: dict[str, Kernel] = {}
    for section in _sections(tree):
        head = section.formula.name == _SECTIONS[1]
        if head:
            found.update((k.name, k) for k in _products(section, "logits"))
        for inner in section.calls:
            if not inner.formula.equation:
                found.update((k.name, k) for k in _products(inner, inner.formula.name))
    return [k for k in found.values() if k.flop > 0 and k.bytes > 0 and k.seconds > 0]


def chart(options: Options) -> Chart:
    """Roofline of the layout that an estimate with these options answers with."""
    one = chosen(options)
    found = kernels(one)
    if not found:
        raise PlanError("roofline", None, "this layout has no matrix products")
    m = machine(one.plan)
    rate, clock, memory = float(m.dense_rate), float(m.sustained_clock), float(m.memory_bandwidth)
    peak, ridge = rate * clock, rate * clock / memory
    rows: list[list[Any]] = [
        [
            k.name,
            k.flop,
            k.bytes,
            k.flop / k.bytes,
            k.flop / k.seconds,
            k.flop / k.seconds / rate,
            k.seconds,
        ]
        for k in found
    ]
    columns = (
        Column("kernel"),
        Column("work", "FLOP"),
        Column("memory traffic", "traffic"),
        Column("FLOP per byte", "number"),
        Column("reached", "FLOP/s"),
        Column("of the dense rate", "%"),
        Column("time", "s"),
    )
    low = min([*(row[3] for row in rows), ridge]) / 2
    high = max([*(row[3] for row in rows), ridge]) * 2
    roof_x = [low, ridge, high]
    bound = sum(row[3] < ridge for row in rows)
    slow = min(rows, key=lambda row: row[5])
    summary = (
        f"{len(rows)} products of one layer and the head: {len(rows) - bound} lie right of the"
        f" ridge at {ridge:,.0f} FLOP/B, where arithmetic is the limit, {bound} left of it."
        f" Furthest below the roof is {slow[0]}, {100 * slow[5]:.0f} % of the dense rate."
    )
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "sustained clock",
            "x": roof_x,
            "y": [memory * low / 1e12, peak / 1e12, peak / 1e12],
            "line": {"color": RED, "width": 2},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "dense rate",
            "x": [rate / memory, high],
            "y": [rate / 1e12, rate / 1e12],
            "line": {"color": RED, "width": 1, "dash": "dot"},
            "hoverinfo": "skip",
        },
        *(
            {
                "type": "scatter",
                "mode": "markers",
                "name": word,
                "x": [row[3] for row in chosen_rows],
                "y": [row[4] / 1e12 for row in chosen_rows],
                "marker": {"color": color, "size": 9, "symbol": symbol, "opacity": 0.85},
                "text": [
                    f"{row[0]}: {show(row[4], 'FLOP/s')}, {100 * row[5]:.0f} %"
                    for row in chosen_rows
                ],
                "hovertemplate": "%{text}<extra></extra>",
            }
            for word, color, symbol, chosen_rows in (
                ("forward", BLUE, "circle", [r for r in rows if r[0].endswith("forward")]),
                (
                    "backward",
                    PURPLE,
                    "diamond-open",
                    [r for r in rows if not r[0].endswith("forward")],
                ),
            )
        ),
    ]
    layout = {
        "xaxis": {**GRID, "type": "log", "title": {"text": "FLOP per byte of memory traffic"}},
        "yaxis": {**GRID, "type": "log", "title": {"text": "TFLOP/s"}},
        "legend": {"orientation": "h", "y": -0.25},
        "margin": {"t": 20, "r": 20},
    }
    return Chart(
        "roofline",
        "Roofline of this layout",
        summary,
        {"data": data, "layout": layout},
        columns,
        rows,
        "Each product of a layer on one GPU. The roof is memory bandwidth, then the tensor clock"
        " under load.",
    )
