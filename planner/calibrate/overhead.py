"""Overheads of the stack beyond kernels and links, from steps of small decoders against the
predicted kernels: `[launch]`, `[overlap]` and `[fusion]` of the stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from planner.calibrate import cases
from planner.calibrate.cases import Case
from planner.calibrate.profile import STACKS, Document, number
from planner.estimate.layer.launches import decoder_operators
from planner.inputs.calibration import stack_spec

Tables = dict[str, Document]  # of each stack
Predicted = Callable[[Tables, Case], float]  # seconds of a step, where the stacks are as these say

_LEAST_SHARE = 1e-3  # of a step that bytes must move to be found from it; a choice
_SOME_BYTES = 24.0  # per weight: any number will do
# a collective and a GEMM that slow each other down by more than this gain nothing from running
# together; a choice
_NOTHING_GAINED = 0.75
# stacks whose traffic of weights is found, and the parallelism of the decoder that shows it
_WEIGHTS_MOVED = {"pytorch-ddp": "ddp", "pytorch-fsdp": "fsdp"}
# stacks whose ranks take more together than a single rank beside kernels and collectives (hooks,
# distributed tensors, waiting for each other), and the parallelism that shows it
_TOGETHER = {**_WEIGHTS_MOVED, "torchtitan": "tensor"}
_PASSES = 2  # forward and backward
_UNKNOWN = "not yet known"


def fitted_cases(ranks: int) -> list[Case]:
    """Small decoders of a fit: almost empty layers on one rank, small layers that ranks share, and
    layers of weights without tokens across ranks."""
    small = cases.tiny("llama")
    if ranks > 1:
        small += [c for how in _TOGETHER.values() for c in cases.shared(how, ranks)]
        small += [cases.of_weights(how) for how in _WEIGHTS_MOVED.values()]
    return small


def stacks(
    steps: Mapping[Case, float],
    slowdown: float | None,
    on_cpu: bool,
    date: str,
    predicted: Predicted,
) -> Tables:
    """Residual of the steps of small decoders (s) over their predicted kernels.

    slowdown: how much a GEMM and an all-reduce slow each other down, 0 to 1.
    """
    tables = {name: _before(slowdown, on_cpu, date) for name in STACKS}
    rest = _rest(steps, tables, "single", predicted)
    if rest is None:
        return tables
    tables = {
        name: {**table, "launch": _launch(name, *rest, on_cpu, date)}
        for name, table in tables.items()
    }
    for name, parallel in _TOGETHER.items():
        shown = [c for c in steps if c.parallel == parallel]
        more = _beyond({c: steps[c] for c in shown}, tables, name, on_cpu, predicted)
        if more is not None:
            tables = _shared(tables, name, parallel, more, on_cpu, date)
    return tables


class _Beyond(NamedTuple):
    """Time of a distributed step beyond kernels, collectives and a rank's own layers; None if no
    decoder shows it."""

    layer_s: float | None
    step_s: float | None
    bytes_per_weight: float | None


def _beyond(
    steps: Mapping[Case, float], tables: Tables, stack: str, on_cpu: bool, predicted: Predicted
) -> _Beyond | None:
    """Least squares of the relative error, no number below zero: a step is linear in all three.

    The first two need two depths, and a CPU, which runs hooks and distributed tensors itself and
    serves messages between them.
    """
    from scipy.optimize import nnls

    heavy = [c for c in steps if c == cases.of_weights(c.parallel)]
    fixed = on_cpu and len({c.layers for c in steps if c not in heavy}) > 1
    weighed = stack in _WEIGHTS_MOVED and bool(heavy)
    chosen = [c for c in steps if (c in heavy and weighed) or (c not in heavy and fixed)]
    if not chosen:
        return None
    rows, rests = [], []
    for case in chosen:
        took_s = steps[case]
        without_s = predicted(_moving(tables, stack, 0.0, _UNKNOWN), case)
        some_s = predicted(_moving(tables, stack, _SOME_BYTES, _UNKNOWN), case)
        # none where communication hides what they take
        moving = some_s - without_s if some_s - without_s > _LEAST_SHARE * without_s else 0.0
        rows.append(
            [
                case.layers / took_s if fixed else 0.0,
                1.0 / took_s if fixed else 0.0,
                moving / _SOME_BYTES / took_s if weighed else 0.0,
            ]
        )
        rests.append(1.0 - without_s / took_s)
    layer_s, step_s, moved = (float(x) for x in nnls(np.array(rows), np.array(rests))[0])
    return _Beyond(
        layer_s if fixed else None, step_s if fixed else None, moved if weighed else None
    )


def _rest(
    steps: Mapping[Case, float], tables: Tables, parallel: str, predicted: Predicted
) -> tuple[float, float] | None:
    """Seconds per layer and per step that layers without work take beyond what is predicted; None
    where the two decoders that show them were not timed."""
    chosen = [c for c in steps if c.parallel == parallel]
    few, many = min(chosen, key=_layers, default=None), max(chosen, key=_layers, default=None)
    if few is None or many is None or few == many:
        return None
    rest_few = steps[few] - predicted(tables, few)
    rest_many = steps[many] - predicted(tables, many)
    layer_s = max((rest_many - rest_few) / (many.layers - few.layers), 0.0)
    return layer_s, max(rest_few - few.layers * layer_s, 0.0)


def _layers(case: Case) -> int:
    return case.layers


def _shared(
    tables: Tables, stack: str, parallel: str, more: _Beyond, on_cpu: bool, date: str
) -> Tables:
    """The tables, where layers that ranks share take this much longer than a rank's own.

    Time per step is kept only for data parallelism: stages and replicas of a stack with tensor
    parallelism do without.
    """
    adjusted = tables
    if more.bytes_per_weight is not None:
        adjusted = _moving(adjusted, stack, more.bytes_per_weight, date)
    if more.layer_s is None or more.step_s is None:
        return adjusted
    launch = adjusted[stack]["launch"]
    if parallel == "tensor":
        subject = "small layers that tensor parallel ranks share, beyond kernels and collectives"
        added = {"tensor_idle": _fitted(more.layer_s / _PASSES, subject, date)}
    else:
        subject = f"small layers under {parallel}, beyond kernels, collectives and bytes of weights"
        added = {
            name: _fitted(launch[name]["value"] + seconds, subject, date)
            for name, seconds in (("layer_idle", more.layer_s), ("step_overhead", more.step_s))
        }
    return {**adjusted, stack: {**adjusted[stack], "launch": {**launch, **added}}}


def _fitted(value: float, subject: str, date: str) -> Document:
    return number(max(value, 0.0), f"dpplan calibrate: {subject}", date)


def _before(slowdown: float | None, on_cpu: bool, date: str) -> Document:
    """Tables of a stack before any step was looked at."""
    launch = {name: _fitted(0.0, _UNKNOWN, date) for name in ("layer_idle", "step_overhead")}
    tables: Document = {"launch": {**launch, **_operators(on_cpu, date)}}
    if slowdown is not None:
        subject = "a GEMM beside an all-reduce, over the shorter of the two"
        tables["overlap"] = {"slowdown": _fitted(min(slowdown, 1.0), subject, date)}
        if slowdown > _NOTHING_GAINED:
            tables["overlap"] |= {"gradient_sync": False, "sharded_sync": False, "prefetch": False}
    if on_cpu:
        subject = "one micro-batch and no buckets: weights are not touched again"
        tables["fusion"] = {"weight_bytes_moved": _fitted(0.0, subject, date)}
    return tables


def _operators(on_cpu: bool, date: str) -> Document:
    subject = "a CPU runs operators as they are issued; their fixed time is layer_idle"
    return {"operator": _fitted(0.0, subject, date)} if on_cpu else {}


def _launch(stack: str, layer_s: float, step_s: float, on_cpu: bool, date: str) -> Document:
    """Launch time of an almost empty layer and step: on a CPU per layer, on a GPU per operator."""
    step = _fitted(step_s, "what a step of almost no work takes beyond its layers", date)
    if on_cpu:
        subject = "what a layer of almost no work takes beyond its kernels"
        idle = {"layer_idle": _fitted(layer_s, subject, date)}
        return {**idle, "step_overhead": step, **_operators(on_cpu, date)}
    operators = decoder_operators(stack_spec(stack))
    subject = "layers of almost no work, over the operators of a layer"
    return {"operator": _fitted(layer_s / operators, subject, date), "step_overhead": step}


def _moving(tables: Tables, stack: str, bytes_per_weight: float, date: str) -> Tables:
    """The tables, where a stack moves this many bytes per weight beside its kernels."""
    subject = "what a step of many weights and few tokens takes beyond its kernels and collectives"
    fusion = {
        **tables[stack].get("fusion", {}),
        "weight_bytes_moved": _fitted(bytes_per_weight, subject, date),
    }
    return {**tables, stack: {**tables[stack], "fusion": fusion}}
