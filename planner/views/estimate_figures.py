"""The charts of one estimate, for its page and for the dashboard: memory of each stage, memory
through the step, step time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.specs.documents.estimate import Report, Step
from planner.specs.documents.memory import Memory, Stage
from planner.units import percent, show
from planner.views.cells import Column
from planner.views.chart import Chart, Choice, Figure
from planner.views.figures import (
    BESIDE,
    FROM_ZERO,
    GIB,
    GRID_LINE,
    GROUND,
    INDIGO,
    INK,
    RED,
    SLATE,
    axis,
    figure,
    heights,
    hline,
    note,
    rows_figure,
    spans,
    stack,
)
from planner.views.groups import SEEN, Group, memory_group, shades, step_group
from planner.views.view import words

_OUTSIDE = ("fragmentation", "context", "communicators")
_MOST_LABELS = 24  # bars whose numbers have room side by side


def charts(report: Report) -> list[Chart]:
    """The three charts, in the order of a page."""
    return [stages(report), phases(report), waterfall(report)]


def seen(report: Report) -> list[Chart]:
    """Those that a page shows: with one stage, its memory through the step says all."""
    return charts(report)[len(report.memory.per_stage) == 1 :]


def stage_bytes(report: Report) -> dict[str, list[float]]:
    """Bytes per GPU by part, one value per stage: components of the worst phase, what is reserved
    beyond them, and outside."""
    memory = report.memory
    per_stage = memory.per_stage
    out = {name: [stage.components[name] for stage in per_stage] for name in memory.components}
    out["fragmentation"] = [stage.reserved_bytes - stage.peak_bytes for stage in per_stage]
    for name in ("context", "communicators"):
        out[name] = [getattr(memory.outside, name)] * len(per_stage)
    return {name: values for name, values in out.items() if any(value > 0 for value in values)}


def _stacked(
    names: list[str],
    parts: Mapping[str, list[float]],
    memory: Memory,
    x: dict[str, Any],
    y: str,
    top: float,
    **more: Any,
) -> Figure:
    """Bytes as stacked bars in GiB; a part has the same color on each chart."""
    return figure(
        stack(names, parts, "B", _colors(memory), GIB),
        x,
        axis(y, FROM_ZERO, range=[0, 1.08 * top / GIB]),
        barmode="stack",
        legend=BESIDE,
        **more,
    )


def _colors(memory: Memory) -> dict[str, str]:
    """Color of every part by its group, the same on each chart."""
    return shades({name: memory_group(name) for name in (*memory.components, *_OUTSIDE)})


def stages(report: Report) -> Chart:
    """Memory of every pipeline stage against what the GPU can allocate."""
    memory, parts = report.memory, stage_bytes(report)
    per_stage, capacity = memory.per_stage, memory.capacity_bytes
    sums = [sum(values) for values in zip(*parts.values(), strict=True)]
    worst = _worst(memory)
    largest = max(parts, key=lambda part: parts[part][worst])
    span = f"All {len(sums)} stages need" if len(sums) > 1 else "Every GPU needs"
    least, most = show(min(sums), "B"), show(max(sums), "B")
    numbers = [str(stage.stage) for stage in per_stage]
    names = [f"stage {number}" for number in numbers]
    every = -(-len(names) // _MOST_LABELS)
    return Chart(
        "memory-stages",
        "Memory of each pipeline stage",
        f"{span} {most if least == most else f'{least} to {most}'} of {show(capacity, 'B')}; the"
        f" largest part is {words(largest)}, {show(parts[largest][worst], 'B')} on stage"
        f" {memory.worst_stage}.",
        _stacked(
            names,
            parts,
            memory,
            axis("pipeline stage", tickvals=names[::every], ticktext=numbers[::every]),
            "GiB per GPU",
            max(capacity, memory.device_bytes),
            shapes=[hline(capacity / GIB)],
            annotations=[
                note(
                    f"capacity {show(capacity, 'B')}",
                    1,
                    capacity / GIB,
                    RED,
                    bgcolor=GROUND,
                    **{"xref": "paper", "xanchor": "right", "yanchor": "bottom"},
                )
            ],
        ),
        (
            Column("stage", "number"),
            Column("layers", "number"),
            Column("fullest phase"),
            *(Column(words(part), "B") for part in parts),
            Column("sum", "B"),
        ),
        [
            [stage.stage, stage.layers, stage.worst_phase, *values, total]
            for stage, values, total in zip(
                per_stage, zip(*parts.values(), strict=True), sums, strict=True
            )
        ],
        "The fullest phase of each stage, with what is reserved beyond it and what lies outside"
        " the allocator. Dashed: what a framework can allocate on this GPU.",
        order="first stage to last",
    )


def _worst(memory: Memory) -> int:
    return [stage.stage for stage in memory.per_stage].index(memory.worst_stage)


def phases(report: Report) -> Chart:
    """Allocated memory through the phases of a step, first of the worst stage; one choice per
    stage."""
    memory = report.memory
    per_stage, parts = memory.per_stage, list(memory.components)
    shown = [p for p in parts if any(a.components[p] > 0 for s in per_stage for a in s.phases)]

    def values(stage: Stage) -> dict[str, list[float]]:
        return {part: [a.components[part] for a in stage.phases] for part in shown}

    worst = per_stage[_worst(memory)]
    top = max(memory.capacity_bytes, *(stage.peak_bytes for stage in per_stage))
    names = [phase.name for phase in worst.phases]
    bars = _stacked(names, values(worst), memory, axis(), "GiB allocated per GPU", top)
    choices = [
        Choice(f"stage {stage.stage}", heights(values(stage), "B", GIB), stage is worst)
        for stage in (per_stage if len(per_stage) > 1 else [])
    ]
    most, least = (pick(worst.phases, key=lambda p: p.bytes) for pick in (max, min))
    return Chart(
        "memory-phases",
        "Memory through the step",
        f"On stage {worst.stage} memory rises from {show(least.bytes, 'B')}"
        f" ({least.name}) to {show(most.bytes, 'B')} ({most.name}).",
        bars,
        (
            Column("stage", "number"),
            Column("phase"),
            *(Column(words(part), "B") for part in parts),
            Column("sum", "B"),
        ),
        [
            [stage.stage, phase.name, *(phase.components[p] for p in parts), phase.bytes]
            for stage in per_stage
            for phase in stage.phases
        ],
        "Allocated at the fullest moment of each phase of a step.",
        choices,
        order="by stage, in the order of the step",
    )


def waterfall(report: Report) -> Chart:
    """Step time as a waterfall of its parts; what is hidden beside compute in hatched bars of
    their own, from zero."""
    step = report.step
    whole, hidden = step.seconds, sum(step.hidden.values())
    rows: list[list[Any]] = [
        [words(part), value, value / whole, step.hidden.get(part, 0.0)]
        for part, value in step.components.items()
        if value == 0 or value > SEEN * whole
    ]
    parts = ", ".join(
        f"{name} {show(value, 's')} ({percent(share, 0)})"
        for name, value, share, _ in sorted(rows, key=lambda row: -row[1])[:3]
        if value > 0
    )
    beside = f" {show(hidden, 's')} of communication hides beside compute." if hidden else ""
    return Chart(
        "step-time",
        "Step time",
        f"Of {show(whole, 's')}: {parts}.{beside}",
        _falling(step),
        (
            Column("part"),
            Column("time", "s"),
            Column("share", "%"),
            Column("hidden beside it", "s"),
        ),
        [*rows, ["step", whole, 1.0, hidden]],
        "Parts that add up to the step. Hatched: communication beside compute, which adds nothing."
        " The line on the step is the 80 % band.",
        order="parts as declared, then their sum",
    )


def _falling(step: Step) -> Figure:
    adding: dict[Group, dict[str, tuple[float, float]]] = {}  # where bars start, their seconds
    hidden: dict[str, tuple[float, float]] = {}
    rows, before = [], 0.0
    for part, seconds in step.components.items():
        if seconds > SEEN * step.seconds:
            rows.append(words(part))
            adding.setdefault(step_group(part), {})[words(part)] = (before, seconds)
        if step.hidden.get(part, 0.0) > SEEN * step.seconds:
            rows.append(f"{words(part)}, hidden")
            hidden[rows[-1]] = (0.0, step.hidden[part])
        before += seconds

    def bars(
        name: str, spanned: dict[str, tuple[float, float]], marker: Any, **more: Any
    ) -> Figure:
        text = [show(seconds, "s") for _, seconds in spanned.values()]
        place = {"textposition": "outside", "cliponaxis": False, **more}
        return spans(name, list(spanned), list(spanned.values()), marker, text, **place)

    hatched = {
        "color": GRID_LINE,
        "line": {"color": SLATE, "width": 1},
        "pattern": {"shape": "/", "fgcolor": SLATE, "solidity": 0.3},
    }
    data = [bars(g.name, spanned, {"color": g.color}) for g, spanned in adding.items()]
    if hidden:
        data.append(bars("hidden beside compute", hidden, hatched))
    whole = step.seconds
    band = {
        "type": "data",
        "symmetric": False,
        "array": [step.high - whole],
        "arrayminus": [whole - step.low],
        "color": INK,
    }
    alone = {"step": (0.0, whole)}
    # its seconds at the start of the bar: at the end they would lie under the band
    inside = {"textposition": "inside", "insidetextanchor": "start"}
    data.append(bars("step", alone, {"color": INDIGO}, error_x=band, **inside))
    longest = max(step.high, before)
    return rows_figure(data, [*rows, "step"], axis("seconds", range=[0, 1.1 * longest]))
