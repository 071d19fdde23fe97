"""Curves between ranks, and of the storage that checkpoints go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from statistics import median

import numpy as np

from planner.calibrate.fit import Fit, Number, Parameter, Unsupported, curve
from planner.calibrate.record import Record
from planner.formulas.collectives import ring_intra_s, send_recv_s
from planner.ledger import Array

_PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}  # of a ring's data
_MESSAGE = "send_recv"
_STARTED = ("all_reduce", "reduce_scatter")
_MOST_ERROR = 1.0  # of a logarithm: a number that is off by more than e is not known at all


def link(records: Sequence[Record], group: str) -> Fit:
    """One link: base, latency, ramp and a bandwidth per operation, the form of
    formulas.collectives.ring_intra_s.

    Operations that reduce may have a start of their own: gloo's set up buffers before the first
    message.
    """
    mine = [
        r
        for r in records
        if r["kind"] == "collective"
        and r["group"] == group
        and (r["operation"] in _PASSES or r["operation"] == _MESSAGE)
    ]
    if not mine:
        raise Unsupported(f"no collective over {group} was measured")
    names = sorted({r["operation"] for r in mine})
    parameters = _parameters(names, mine)

    def predict(logs: Mapping[str, float], over: Sequence[Record]) -> Array:
        v = {name: float(np.exp(value)) for name, value in logs.items()}
        ranks = np.array([float(r["ranks"]) for r in over])
        whole = np.array([float(r["bytes"]) for r in over])
        rate = np.array([v[f"{r['operation']}_bandwidth"] for r in over])
        start = np.array([v.get(f"{r['operation']}_start", 0.0) for r in over])
        passes = np.array([_PASSES.get(r["operation"], 0.0) for r in over])
        ring = ring_intra_s(
            whole,
            ranks,
            passes,
            base_s=v["base"] + start,
            latency_s=v["latency"],
            bytes_per_s=rate,
            ramp=v["ramp"],
        )
        message = send_recv_s(whole, latency_s=v["base"], bytes_per_s=rate)
        return np.where(passes > 0, ring, message)

    fit = curve(
        "link " + group,
        parameters,
        predict,
        mine,
        lambda r: f"{r['operation']} of {r['bytes']:,} B",
    )
    return replace(fit, numbers={name: _exp(n) for name, n in fit.numbers.items()})


def _parameters(names: Sequence[str], records: Sequence[Record]) -> list[Parameter]:
    """Logarithms of the numbers of a link, which span decades, from the fastest rate and the
    shortest time that were measured."""
    rate = log(max(_passed_bytes(r) / r["seconds"] for r in records))
    least = log(min(r["seconds"] for r in records))

    def around(name: str, center: float, below: float, start: float, above: float) -> Parameter:
        return Parameter(name, center - log(below), center - log(start), center + log(above))

    return [
        *(around(f"{name}_bandwidth", rate, 300, 1.5, 3) for name in names),
        around("base", least, 50, 2, 5),
        around("latency", least, 50, 2, 10),
        Parameter("ramp", log(1e-12), least - log(1e3), log(1e-4)),
        *(around(f"{name}_start", least, 1e3, 10, 30) for name in names if name in _STARTED),
    ]


def _passed_bytes(r: Record) -> float:
    """Bytes that each rank sends."""
    passes = _PASSES.get(r["operation"])
    return float(r["bytes"]) * (1.0 if passes is None else passes * (r["ranks"] - 1) / r["ranks"])


def _exp(logarithm: Number) -> Number:
    value = float(np.exp(logarithm.value))
    return Number(value, value * min(logarithm.error, _MOST_ERROR))


def storage(records: Sequence[Record]) -> Fit:
    """Bytes per second that a node writes and reads: the middle of the samples, whose spread is the
    error."""
    mine = [r for r in records if r["kind"] == "storage" and r["seconds"] > 0]
    if {r["way"] for r in mine} != {"write", "read"}:
        raise Unsupported("no file was written and read")
    spreads = [r.get("spread", 0.0) / 2 for r in mine]
    numbers = {
        f"{r['way']}_bandwidth": Number(1.0 / r["seconds"], spread / r["seconds"])
        for r, spread in zip(mine, spreads, strict=True)
    }
    return Fit("storage", numbers, len(mine), median(spreads), max(spreads))


def overlap(records: Sequence[Record]) -> Fit:
    """How much a GEMM and an all-reduce slow each other down: extra time of both together over
    the shorter of the two."""
    seconds = {r["part"]: r["seconds"] for r in records if r["kind"] == "overlap"}
    if seconds.keys() != {"product", "collective", "both"}:
        raise Unsupported("a GEMM beside a collective was not measured")
    alone = (seconds["product"], seconds["collective"])
    share = float(np.clip((seconds["both"] - max(alone)) / min(alone), 0.0, 1.0))
    return Fit("overlap", {"slowdown": Number(share)}, len(seconds))
