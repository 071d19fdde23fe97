"""The recorded formulas of one estimate as a document and as indented text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.ledger import Call, Sourced
from planner.specs.document import UNSET
from planner.specs.documents.estimate import MachineNumber, Report
from planner.specs.documents.explain import Explained, ExplainedInput
from planner.specs.documents.explanation import Explanation
from planner.units import show
from planner.views.view import Block, quantity

_MOST = 6  # values of an array that are worth printing


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _value(v) for k, v in value.items()}
    array = np.asarray(value)
    if array.dtype == object:
        return str(value)
    flat = [_number(x.item()) for x in array.reshape(-1)[:_MOST]]
    return flat[0] if array.size == 1 else flat


def _number(value: Any) -> Any:
    """Infinity, which JSON has none of, is a bound that there is not."""
    return show(value, "1") if isinstance(value, float) and math.isinf(value) else value


def _input(value: Any) -> ExplainedInput:
    if not isinstance(value, Sourced):
        return ExplainedInput(_value(value))
    return ExplainedInput(_value(value), value.kind, value.source, value.date, value.unit)


def nested(call: Call) -> Explained:
    """A call with its inputs, output and inner calls as a document."""
    formula = call.formula
    calls = [nested(inner) for inner in call.calls] or UNSET
    if not formula.equation:
        return Explained(formula.name, calls=calls)
    return Explained(
        name=formula.name,
        equation=formula.equation,
        unit=formula.unit,
        source=formula.source,
        output=_value(call.output),
        inputs={name: _input(value) for name, value in call.inputs.items()},
        calls=calls,
    )


def figure_blocks(document: Explanation) -> list[Block]:
    """Terms or factors of each figure, and the formulas that make it."""
    return [
        Block(
            part.title,
            [f"formulas  {', '.join(dict.fromkeys(quantity(call.name) for call in part.calls))}"]
            if part.calls
            else [],
            ["made of", ">value"],
            [[leaf.name, leaf.shown] for leaf in part.leaves],
            order="as it is summed or multiplied",
        )
        for part in document.parts
    ]


def part_of(call: Call, part: str | None) -> Call:
    """The tree with the sections of one part only: memory, or everything else for time."""
    if part is None:
        return call
    kept = [inner for inner in call.calls if (inner.formula.name == "memory") == (part == "memory")]
    return dataclasses.replace(call, calls=kept)


def memory_lines(report: Report) -> list[str]:
    """Bytes per GPU of every stage and phase, leaf by leaf, and what one layer keeps by
    operator."""
    memory = report.memory
    out = ["memory, by stage and phase (bytes per GPU; leaves of a phase are alive together)"]
    for stage in memory.per_stage:
        out.append(
            f"  stage {stage.stage}, {stage.layers:g} layers: peak"
            f" {show(stage.peak_bytes, 'B')} in {stage.worst_phase}, reserved"
            f" {show(stage.reserved_bytes, 'B')}"
        )
        for phase in stage.phases:
            out.append(f"    {phase.name}: {show(phase.bytes, 'B')}")
            out += [
                f"      {name} {show(value, 'B')}"
                for name, value in phase.components.items()
                if value > 0
            ]
    kept = memory.layer_activations
    out.append(
        f"  one mean layer and micro-batch keeps {show(sum(leaf.bytes for leaf in kept), 'B')}"
        " without recompute"
    )
    out += [f"      {leaf.name} {show(leaf.bytes, 'B')}" for leaf in kept if leaf.bytes > 0]
    sizes = memory.peak_bytes, memory.reserved_bytes, memory.reserved_high_bytes
    peak, reserved, high = (show(size, "B") for size in sizes)
    out.append(
        f"  reserved {peak} without gaps, {reserved} with those of measured runs, {high} with twice"
        " those"
    )
    context, channels = (
        show(size, "B") for size in (memory.outside.context, memory.outside.communicators)
    )
    out.append(f"  outside the allocator: context {context}, communicators {channels}")
    on_host = (
        memory.host_bytes,
        memory.host_saving_bytes,
        memory.host_loading_bytes,
        memory.host_pretrained_bytes,
    )
    offloaded, saving, loading, reading = (show(size, "B") for size in on_host)
    out.append(
        f"  host memory per GPU: offloaded {offloaded}, to save a checkpoint from a host copy"
        f" {saving}, to load one {loading}, while weights are read to begin with {reading}"
    )
    each = report.stack.bytes_per_parameter
    out.append(
        "  bytes per parameter before sharding: "
        + " + ".join(f"{v:g} {k}" for k, v in each.items())
        + f" = {sum(each.values()):g}"
    )
    return out


def _text(value: Any, unit: str) -> str:
    plain = _value(value)
    if isinstance(plain, list):
        return "[" + ", ".join(_text(x, unit) for x in plain) + "]"
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return str(plain)
    return show(float(plain), unit) if unit or math.isinf(plain) else f"{plain:.6g}"


def lines(call: Call, depth: int = 0, seen: set[str] | None = None) -> list[str]:
    """Indented text, ASCII: name = output, then the inputs. Equation and source follow a formula's
    first use; numbers of the machine are named, their values and sources stand in the table of
    `machine_lines`."""
    seen = set() if seen is None else seen
    pad = "  " * depth
    if not call.formula.equation:
        out = [f"{pad}{call.formula.name}"]
    else:
        given, fixed = [], []
        for name, value in call.inputs.items():
            if isinstance(value, Sourced):
                fixed.append(name)
            else:
                given.append(f"{name} {_text(value, '')}")
        out = [
            f"{pad}{call.formula.name} = {_text(call.output, call.formula.unit)}"
            f" ({', '.join(given)})"
        ]
        if call.formula.name not in seen:
            seen.add(call.formula.name)
            out.append(f"{pad}    = {call.formula.equation}")
            out.append(f"{pad}    source: {call.formula.source}")
            if fixed:
                out.append(f"{pad}    with the machine's {', '.join(fixed)}")
    for inner in call.calls:
        out += lines(inner, depth + 1, seen)
    return out


def machine_value(number: MachineNumber) -> str:
    """A number of the machine as text."""
    return (
        f"{number.value:.6g}" if number.unit == "1" else show(number.value, number.unit, digits=4)
    )


def machine_lines(numbers: Sequence[MachineNumber]) -> list[str]:
    """The numbers an estimate rests on, one per line: value, kind and source."""
    out = ["numbers of the machine"]
    for n in numbers:
        dated = f", {n.date}" if n.date else ""
        rests = f"{n.kind}: {n.source}{dated}; step time elasticity {n.elasticity:+.2f}"
        out.append(f"  {n.name} = {machine_value(n)} ({rests})")
    return out
