"""A pipeline schedule as a chart, one row of bars per rank, and as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from planner.schedules.intervals import KINDS, Interval, intervals
from planner.schedules.timing import Program, Timing
from planner.show.figures import (
    BLUE,
    GROUND,
    ROSE,
    SAND,
    Cell,
    Chart,
    Column,
    Trace,
    axis,
    rows_figure,
    spans,
)
from planner.show.page import page as whole
from planner.show.schedule import by_step
from planner.specs.documents.schedule import Schedule
from planner.units import percent, show

_COLORS = {"F": BLUE, "B": SAND, "I": SAND, "W": ROSE}
_MOST_NUMBERED = 400  # passes up to which each bar holds the number of its micro-batch


def page(document: Schedule, program: Program, timing: Timing, title: str) -> str:
    """The schedule as one HTML page. Raises PlanError where plotly is not installed."""
    return whole(title, [chart(document, program, timing)])


def chart(document: Schedule, program: Program, timing: Timing, most: int | None = None) -> Chart:
    """Every pass on its rank, the table of all schedules at this size as twin. most: passes that
    are drawn, from the start of the step."""
    found = sorted(intervals(program, timing), key=lambda one: one.start)
    shown = found[:most]
    numbered = "inside" if len(shown) <= _MOST_NUMBERED else "none"
    data = [
        _bars(word, _COLORS[kind], [one for one in shown if one.kind == kind], numbered)
        for kind, word in KINDS.items()
        if any(one.kind == kind for one in shown)
    ]
    rows = _compared(document)
    cut = (
        ""
        if len(shown) == len(found)
        else f" The first {len(shown):,} of {len(found):,} passes are drawn."
    )
    best = (
        f" Least time of all schedules at this size: {rows[0][0]}, {show(rows[0][2], 's')}."
        if rows and isinstance(rows[0][2], float)
        else ""
    )
    return Chart(
        "schedule",
        "Pipeline schedule",
        f"{document.schedule} over {document.pp} ranks and {document.microbatches} micro-batches:"
        f" {show(document.step_s, 's')}, {percent(document.bubble_frac)} of it bubble.{best}",
        rows_figure(
            data,
            [f"rank {rank}" for rank in range(program.ranks)],
            axis("seconds", range=[0, max(one.end for one in shown)]),
            bargap=0.15,
        ),
        (
            Column("schedule"),
            Column("vpp", "number"),
            Column("step", "s"),
            Column("bubble", "%"),
            Column("most micro-batches alive", "number"),
            Column("activations", "B"),
            Column("why not"),
        ),
        rows,
        f"One row per pipeline rank; white is idle. The table compares all schedules.{cut}",
        order="shortest step first",
    )


def _compared(document: Schedule) -> list[list[Cell]]:
    """All schedules at this size, the fastest first, those that are refused last."""

    def most(values: Sequence[float] | None) -> float | None:
        return None if values is None else max(values)

    return [
        [
            row.schedule,
            row.vpp,
            row.step_s,
            row.bubble_frac,
            most(row.peak_live_microbatches),
            most(row.peak_live_bytes),
            row.refused or "",
        ]
        for row in by_step(document.comparison)
    ]


def _bars(word: str, color: str, mine: list[Interval], numbered: str) -> Trace:
    return spans(
        word,
        [f"rank {one.rank}" for one in mine],
        [(one.start, one.seconds) for one in mine],
        {"color": color, "line": {"width": 0.4, "color": GROUND}},
        [
            f"{word} of micro-batch {one.microbatch}, stage {one.stage}<br>{one.start:.4g} to"
            f" {one.end:.4g} s"
            for one in mine
        ],
        texttemplate="%{customdata}",
        textposition=numbered,
        customdata=[one.microbatch for one in mine],
    )
