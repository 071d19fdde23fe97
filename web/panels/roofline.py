"""Roofline of one layout: every GEMM and attention kernel of a layer and the head, at its
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
from planner.units import percent, show
from planner.verbs.estimate import chosen
from planner.views.cells import Column
from planner.views.chart import Chart
from planner.views.figures import BLUE, LOG, PURPLE, RED, axis, figure, line, markers

_RESULT_BYTES = 2.0  # gemm_s writes a 16-bit result
_PASSES = ("forward", "input gradient", "weight gradient")
_TERA = 1e12
_SECTIONS = ("one layer, one micro-batch", "language-model head")


@dataclass(frozen=True)
class Kernel:
    """One kernel of one layer and micro-batch on one GPU."""

    name: str
    flop: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOP per byte of memory traffic."""
        return self.flop / self.bytes

    @property
    def rate(self) -> float:
        """FLOP per second reached."""
        return self.flop / self.seconds


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


def _gemms(call: Call, name: str) -> Iterator[Kernel]:
    gemms = [inner for inner in call.calls if inner.formula.name == "gemm_s"]
    for i, inner in enumerate(gemms):
        word = _PASSES[i] if len(gemms) == len(_PASSES) else f"{i + 1}"
        yield _product(inner, f"{name.replace('_', ' ')}, {word}")


def _sections(tree: Call) -> Iterator[Call]:
    if tree.formula.name in _SECTIONS:
        yield tree
    for inner in tree.calls:
        yield from _sections(inner)


def kernels(estimates: Estimates) -> list[Kernel]:
    """GEMMs of a layer and the head as the step time counts them, each once."""
    with recording() as tree:
        evaluate_row(estimates, 0)
    by_name: dict[str, Kernel] = {}
    for section in _sections(tree):
        head = section.formula.name == _SECTIONS[1]
        if head:
            by_name.update((k.name, k) for k in _gemms(section, "logits"))
        for inner in section.calls:
            if not inner.formula.equation:
                by_name.update((k.name, k) for k in _gemms(inner, inner.formula.name))
    return [k for k in by_name.values() if k.flop > 0 and k.bytes > 0 and k.seconds > 0]


def chart(options: Options) -> Chart:
    """Roofline of the layout that an estimate with these options answers with."""
    estimates = chosen(options)
    points = kernels(estimates)
    if not points:
        raise PlanError("roofline", None, "this layout has no GEMMs")
    m = machine(estimates.plan)
    rate, memory = float(m.dense_rate), float(m.memory_bandwidth)
    peak = rate * float(m.sustained_clock)
    ridge = peak / memory
    low = min(ridge, *(k.intensity for k in points)) / 2
    high = max(ridge, *(k.intensity for k in points)) * 2
    left = sum(k.intensity < ridge for k in points)
    slow = min(points, key=lambda k: k.rate)
    data = [
        line(
            "sustained clock",
            [low, ridge, high],
            [memory * low / _TERA, peak / _TERA, peak / _TERA],
            RED,
        ),
        line("dense rate", [rate / memory, high], [rate / _TERA, rate / _TERA], RED, dash="dot"),
    ]
    for word, color, symbol, forward in (
        ("forward", BLUE, "circle", True),
        ("backward", PURPLE, "diamond-open", False),
    ):
        mine = [k for k in points if k.name.endswith("forward") == forward]
        text = [f"{k.name}: {show(k.rate, 'FLOP/s')}, {percent(k.rate / rate, 0)}" for k in mine]
        x, y = [k.intensity for k in mine], [k.rate / _TERA for k in mine]
        data.append(markers(word, x, y, color, text, symbol=symbol, opacity=0.85))
    return Chart(
        "roofline",
        "Roofline of this layout",
        f"{len(points)} GEMMs of one layer and the head: {len(points) - left} lie right of the"
        f" ridge at {ridge:,.0f} FLOP/B, where arithmetic is the limit, {left} left of it."
        f" Furthest below the roof is {slow.name}, {percent(slow.rate / rate, 0)} of the dense"
        " rate.",
        figure(data, axis("FLOP per byte of memory traffic", LOG), axis("TFLOP/s", LOG)),
        (
            Column("kernel"),
            Column("work", "FLOP"),
            Column("memory traffic", "traffic"),
            Column("FLOP per byte", "number"),
            Column("reached", "FLOP/s"),
            Column("of the dense rate", "%"),
            Column("time", "s"),
        ),
        [[k.name, k.flop, k.bytes, k.intensity, k.rate, k.rate / rate, k.seconds] for k in points],
        "Each GEMM of a layer on one GPU. The roof is memory bandwidth, then the tensor clock"
        " under load.",
        order="in the order of the layer",
    )
