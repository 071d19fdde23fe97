"""What the stack adds to kernels and links, from steps of small decoders beside what the curves
predict for them: `[launch]`, `[overlap]` and `[fusion]` of the stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
# stacks of which ranks together take more than one alone beside kernels and collectives (hooks,
# distributed tensors, waiting for each other), and the parallelism that shows it
_TOGETHER = {**_WEIGHTS_MOVED, "torchtitan": "tensor"}
_PASSES = 2  # forward and backward
_UNKNOWN = "not yet known"


def fitted_cases(ranks: int) -> list[Case]:
    """Small decoders of a fit: layers without work, alone and shared by ranks, and with ranks
    layers of weights without tokens."""
    found = cases.tiny("llama")
    if ranks > 1:
        found += [c for how in _TOGETHER.values() for c in cases.tiny("llama", how, ranks)]
        found += [
            Case(2, 512, 8, 1408, 512, 16, 1, parallel=how) for how in _WEIGHTS_MOVED.values()
        ]
    return found


def stacks(
    steps: Mapping[Case, float],
    slowdown: float | None,
    on_cpu: bool,
    date: str,
    predicted: Predicted,
) -> Tables:
    """What is left of the steps of small decoders (s) once their kernels are predicted.

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
    for name, parallel in _TOGETHER.items() if on_cpu else ():
        more = _rest(steps, tables, parallel, predicted)
        if more is not None:
            tables = _shared(tables, name, parallel, *more, date)
    for name, parallel in _WEIGHTS_MOVED.items():
        case = next((c for c in steps if c.parallel == parallel and not _is_tiny(c)), None)
        if case is not None:
            moved = _weight_bytes(steps[case], tables, name, case, date, predicted)
            tables = _moving(tables, name, moved, date)
    return tables


def _rest(
    steps: Mapping[Case, float], tables: Tables, parallel: str, predicted: Predicted
) -> tuple[float, float] | None:
    """Seconds per layer and per step that layers without work take beyond what is predicted; None
    where the two decoders that show them were not timed."""
    found = [c for c in steps if c.parallel == parallel and _is_tiny(c)]
    few, many = min(found, key=_layers, default=None), max(found, key=_layers, default=None)
    if few is None or many is None or few == many:
        return None
    rest_few = steps[few] - predicted(tables, few)
    rest_many = steps[many] - predicted(tables, many)
    layer_s = max((rest_many - rest_few) / (many.layers - few.layers), 0.0)
    return layer_s, max(rest_few - few.layers * layer_s, 0.0)


def _is_tiny(case: Case) -> bool:
    return case in cases.tiny(case.family, case.parallel, case.heads)


def _layers(case: Case) -> int:
    return case.layers


def _shared(
    tables: Tables, stack: str, parallel: str, layer_s: float, step_s: float, date: str
) -> Tables:
    """The tables, where layers that ranks share take this much longer than a rank's own. A CPU
    runs hooks and distributed tensors itself, and serves messages between them.

    What a step takes once is kept of data parallelism alone: stages and replicas of a stack with
    tensor parallelism do without.
    """
    launch = tables[stack]["launch"]
    if parallel == "tensor":
        what = "layers of almost no work that tensor parallel ranks share, beyond collectives"
        more = {"tensor_idle": _said(layer_s / _PASSES, what, date)}
    else:
        what = f"layers of almost no work under {parallel}, beyond collectives"
        more = {
            name: _said(launch[name]["value"] + seconds, what, date)
            for name, seconds in (("layer_idle", layer_s), ("step_overhead", step_s))
        }
    return {**tables, stack: {**tables[stack], "launch": {**launch, **more}}}


def _said(value: float, what: str, date: str) -> Document:
    return number(max(value, 0.0), f"dpplan calibrate: {what}", date)


def _before(slowdown: float | None, on_cpu: bool, date: str) -> Document:
    """Tables of a stack before any step was looked at."""
    launch = {name: _said(0.0, _UNKNOWN, date) for name in ("layer_idle", "step_overhead")}
    tables: Document = {"launch": {**launch, **_operators(on_cpu, date)}}
    if slowdown is not None:
        what = "a GEMM beside an all-reduce, over the shorter of the two"
        tables["overlap"] = {"slowdown": _said(min(slowdown, 1.0), what, date)}
        if slowdown > _NOTHING_GAINED:
            tables["overlap"] |= {"gradient_sync": False, "sharded_sync": False, "prefetch": False}
    if on_cpu:
        what = "one micro-batch and no buckets: weights are not touched again"
        tables["fusion"] = {"weight_bytes_moved": _said(0.0, what, date)}
    return tables


def _operators(on_cpu: bool, date: str) -> Document:
    what = "a CPU runs operators as they are issued; their fixed time is layer_idle"
    return {"operator": _said(0.0, what, date)} if on_cpu else {}


def _launch(stack: str, layer_s: float, step_s: float, on_cpu: bool, date: str) -> Document:
    """What a layer and a step of almost no work take: of a CPU per layer, of a GPU per operator."""
    step = _said(step_s, "what a step of almost no work takes beyond its layers", date)
    if on_cpu:
        what = "what a layer of almost no work takes beyond its kernels"
        idle = {"layer_idle": _said(layer_s, what, date)}
        return {**idle, "step_overhead": step, **_operators(on_cpu, date)}
    operators = decoder_operators(stack_spec(stack))
    what = "layers of almost no work, over the operators of a layer"
    return {"operator": _said(layer_s / operators, what, date), "step_overhead": step}


def _moving(tables: Tables, stack: str, bytes_per_weight: float, date: str) -> Tables:
    """The tables, where a stack moves so many bytes per weight beside its kernels."""
    what = "what a step of many weights and few tokens takes beyond its kernels and collectives"
    fusion = {
        **tables[stack].get("fusion", {}),
        "weight_bytes_moved": _said(bytes_per_weight, what, date),
    }
    return {**tables, stack: {**tables[stack], "fusion": fusion}}


def _weight_bytes(
    step_s: float, tables: Tables, stack: str, case: Case, date: str, predicted: Predicted
) -> float:
    """Bytes per weight that explain a step. Time is linear in them: two predictions give them; none
    where communication hides what they take."""
    without, some = (
        predicted(_moving(tables, stack, moved, date), case) for moved in (0.0, _SOME_BYTES)
    )
    explained = some - without
    if explained <= _LEAST_SHARE * without:
        return 0.0
    return _SOME_BYTES * (step_s - without) / explained
