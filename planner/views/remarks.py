"""Remarks on the layout of an estimate: speed that more risk would buy, groups that cross nodes,
and layouts that take as long."""

from __future__ import annotations

from planner.specs.documents.estimate import Crossing, Estimate, NearTie, Tighter
from planner.specs.documents.plan import describe
from planner.units import chance_text, percent, show


def remark_rows(r: Estimate) -> list[tuple[str, str]]:
    """Remarks on the answer: the answer without a default, speed that more risk would buy, and
    groups that cross nodes."""
    rows = [("", sentence) for sentence in r.without]
    if r.tighter is not None:
        rows.append(("", tighter_text(r.tighter, r.memory.capacity_bytes)))
    return [*rows, *border_rows(r)]


def border_rows(r: Estimate) -> list[tuple[str, str]]:
    """Parallel groups of the layout that cross nodes, and layouts that take as long."""
    rows = [] if r.crossing is None else [("", crossing_text(r.crossing))]
    return [*rows, ("", ties_text(r))] if r.near_ties else rows


def ties_text(r: Estimate) -> str:
    """Layouts within a tie of the one taken, by what differs in their degrees."""
    texts = [f"{_differences(r, tie)} ({100 * tie.slower_frac:+.1f} %)" for tie in r.near_ties]
    return f"as fast within noise: {'; '.join(texts)}"


def _differences(r: Estimate, tie: NearTie) -> str:
    degrees = ("tp", "pp", "cp", "ep", "zero")
    parts = [
        f"{name} {value}"
        for name in degrees
        if (value := getattr(tie.layout, name)) != getattr(r.layout, name)
    ]
    stack = [] if tie.stack == r.stack.id else [tie.stack]
    return ", ".join([*parts, *stack])


def crossing_text(crossing: Crossing) -> str:
    """A parallel group over the border of nodes, and what the best layout without it takes."""
    head = f"{crossing.degree} {crossing.size} crosses nodes of {crossing.node_gpus} GPUs"
    if crossing.inside is None:
        return f"{head}; none that stays inside fits and takes less than a tenth more"
    noise = "within" if crossing.inside.within_noise else "more than"
    more, takes = 100 * crossing.inside.slower_frac, show(crossing.inside.step_seconds, "s")
    return (
        f"{head}: {describe(crossing.inside.layout)} stays inside and takes {takes} ({more:+.1f} %,"
        f" {noise} what repeats of a run differ by)"
    )


def tighter_text(tighter: Tighter, capacity_bytes: float) -> str:
    """Speed that more risk would buy, with its layout."""
    return f"{risk_text(tighter, capacity_bytes)}; {describe(tighter.layout)}"


def risk_text(tighter: Tighter, capacity_bytes: float) -> str:
    """Speed that more risk would buy."""
    free, gain = show(capacity_bytes - tighter.device_bytes, "B"), percent(tighter.faster_frac)
    return (
        f"{gain} faster at more risk (--headroom 0%): {free} free, chance to fit"
        f" {chance_text(tighter.fit_chance)}"
    )
