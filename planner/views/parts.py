"""Step times of several requests as stacked bars of their parts."""

from __future__ import annotations

from collections.abc import Mapping

from planner.views.cells import Column
from planner.views.chart import Chart, Figure, Trace
from planner.views.figures import axis, figure, stack
from planner.views.groups import SEEN, shades, step_group
from planner.views.view import words


def parts_chart(steps: Mapping[str, Mapping[str, float]]) -> Chart:
    """Step times as stacked bars of their parts. steps: components in seconds, by label."""
    names = dict.fromkeys(part for parts in steps.values() for part in parts)
    seconds = {part: [parts.get(part, 0.0) for parts in steps.values()] for part in names}
    least = SEEN * max(sum(parts.values()) for parts in steps.values())
    shown = {part: values for part, values in seconds.items() if max(values) > least}
    fastest = min(steps, key=lambda label: sum(steps[label].values()))
    return Chart(
        "parts",
        "Step time by part",
        f"The fastest step is that of {fastest}.",
        stacked(list(steps), shown, "seconds per step", "stack"),
        (Column("part"), *(Column(label, "s") for label in steps)),
        [[words(part), *values] for part, values in shown.items()],
        "Parts that add up to the step.",
        order="parts as declared",
    )


def stacked(
    labels: list[str], parts: Mapping[str, list[float]], y: str, barmode: str, *more: Trace
) -> Figure:
    """Seconds of each part that any request has, a bar per request."""
    colors = shades({name: step_group(name) for name in parts})
    data = stack(labels, {name: s for name, s in parts.items() if any(s)}, "s", colors)
    return figure([*data, *more], axis(type="category"), y, barmode=barmode)
