"""Charts of one report: memory of each stage, memory through the step, step time. Figures are those
of `estimate --html`."""

from __future__ import annotations

from typing import Any

from planner.show.figures import Chart, Column, words
from planner.show.page import phase_figure, stage_bytes, stage_figure, time_figure
from planner.units import show

Report = dict[str, Any]


def charts(report: Report) -> list[Chart]:
    """The charts that need nothing but the report."""
    return [stages(report), phases(report), step(report)]


def stages(report: Report) -> Chart:
    """Memory of every pipeline stage against what the GPU can allocate."""
    memory, parts = report["memory"], stage_bytes(report)
    found = memory["per_stage"]
    rows: list[list[Any]] = [
        [
            stage["stage"],
            stage["layers"],
            stage["worst_phase"],
            *(values[i] for values in parts.values()),
            sum(values[i] for values in parts.values()),
        ]
        for i, stage in enumerate(found)
    ]
    columns = (
        Column("stage", "number"),
        Column("layers", "number"),
        Column("fullest phase"),
        *(Column(words(part), "B") for part in parts),
        Column("sum", "B"),
    )
    least, most = min(row[-1] for row in rows), max(row[-1] for row in rows)
    largest = max(parts, key=lambda part: parts[part][_worst(memory)])
    span = f"All {len(rows)} stages need" if len(rows) > 1 else "Every GPU needs"
    amount = (
        show(most, "B")
        if show(least, "B") == show(most, "B")
        else f"{show(least, 'B')} to {show(most, 'B')}"
    )
    summary = (
        f"{span} {amount} of {show(memory['capacity_bytes'], 'B')}; the largest part is"
        f" {words(largest)}, {show(parts[largest][_worst(memory)], 'B')} on stage"
        f" {memory['worst_stage']}."
    )
    return Chart(
        "memory-stages",
        "Memory of each pipeline stage",
        summary,
        stage_figure(report),
        columns,
        rows,
        "Fullest phase of each stage, with what is reserved beyond it and what lies outside the"
        " allocator. Dashed: what a framework can allocate on this GPU.",
    )


def _worst(memory: Report) -> int:
    return next(
        i for i, stage in enumerate(memory["per_stage"]) if stage["stage"] == memory["worst_stage"]
    )


def phases(report: Report) -> Chart:
    """Allocated memory through the phases of a step; one choice per stage."""
    memory = report["memory"]
    figure = phase_figure(report)
    menus = figure["layout"].pop("updatemenus")
    figure["layout"]["margin"] = {"t": 30, "r": 20}
    choices = (
        [
            {"label": b["label"], "restyle": b["args"][0], "chosen": i == menus[0]["active"]}
            for i, b in enumerate(menus[0]["buttons"])
        ]
        if menus
        else []
    )
    parts = list(memory["components"])
    rows: list[list[Any]] = [
        [
            stage["stage"],
            phase["name"],
            *(phase["components"][part] for part in parts),
            phase["bytes"],
        ]
        for stage in memory["per_stage"]
        for phase in stage["phases"]
    ]
    columns = (
        Column("stage", "number"),
        Column("phase"),
        *(Column(words(part), "B") for part in parts),
        Column("sum", "B"),
    )
    worst = memory["per_stage"][_worst(memory)]
    most, least = (pick(worst["phases"], key=lambda p: p["bytes"]) for pick in (max, min))
    summary = (
        f"On stage {worst['stage']} memory rises from {show(least['bytes'], 'B')} ({least['name']})"
        f" to {show(most['bytes'], 'B')} ({most['name']})."
    )
    return Chart(
        "memory-phases",
        "Memory through the step",
        summary,
        figure,
        columns,
        rows,
        "Allocated at the fullest moment of each phase of a step.",
        choices,
    )


def step(report: Report) -> Chart:
    """Step time as a waterfall; hidden communication hatched."""
    found = report["step"]
    whole = found["seconds"]
    rows: list[list[Any]] = [
        [words(part), value, value / whole, found["hidden"].get(part, 0.0)]
        for part, value in found["components"].items()
    ]
    rows.append(["step", whole, 1.0, sum(found["hidden"].values())])
    columns = (
        Column("part"),
        Column("time", "s"),
        Column("share", "%"),
        Column("hidden beside it", "s"),
    )
    largest = sorted(rows[:-1], key=lambda row: -row[1])[:3]
    told = ", ".join(
        f"{name} {show(value, 's')} ({100 * share:.0f} %)"
        for name, value, share, _ in largest
        if value > 0
    )
    hidden = sum(found["hidden"].values())
    summary = f"Of {show(whole, 's')}: {told}." + (
        f" {show(hidden, 's')} of communication hides beside compute." if hidden else ""
    )
    return Chart(
        "step-time",
        "Step time",
        summary,
        time_figure(report),
        columns,
        rows,
        "Parts that add up to the step. Hatched: communication beside compute, which adds nothing."
        " The line on the step is the 80 % band.",
    )
