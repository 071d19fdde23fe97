"""A pipeline schedule as a chart, one row of bars per rank, and as one HTML page."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from planner.ledger import Array
from planner.schedules.intervals import KINDS, Interval, intervals
from planner.schedules.timing import Program, Timing
from planner.specs.documents.schedule import Schedule
from planner.units import percent, show
from planner.views.cells import Cell, Column
from planner.views.figures import BLUE, ROSE, SAND, Chart, Trace, axis, rows_figure, spans
from planner.views.page import page as whole
from planner.views.schedule import by_step

_COLORS = {"F": BLUE, "B": SAND, "I": SAND, "W": ROSE}
_MOST_NUMBERED = 400  # passes up to which each bar holds the number of its micro-batch
_SEEN = 1e-6  # of a slice of the step: less is rounding


def page(document: Schedule, program: Program, timing: Timing, title: str) -> str:
    """The schedule as one HTML page. Raises PlanError where plotly is not installed."""
    return whole(title, [chart(document, program, timing)])


def chart(
    document: Schedule,
    program: Program,
    timing: Timing,
    most: int | None = None,
    offered: Collection[str] | None = None,
    window: tuple[float, float] | None = None,
) -> Chart:
    """Every pass on its rank, the table of all schedules at this size as twin.

    most: bars that are drawn; of a step with more passes each bar is a share of a slice of the
    step. offered: schedules that the software of the layout has; None: any. window: seconds of the
    step that are drawn; None: all.
    """
    passes = sorted(intervals(program, timing), key=lambda one: one.start)
    low, high = window or (0.0, max(interval.end for interval in passes))
    found = [interval for interval in passes if interval.start < high and interval.end > low]
    kinds = [kind for kind in KINDS if any(interval.kind == kind for interval in found)]
    if most is None or len(found) <= most:
        numbered = "inside" if len(found) <= _MOST_NUMBERED else "none"
        data = [
            _bars(
                KINDS[kind],
                _COLORS[kind],
                [interval for interval in found if interval.kind == kind],
                numbered,
            )
            for kind in kinds
        ]
        cut = ""
    else:
        slices = max(most // (program.ranks * len(kinds)), 1)
        data = _sliced(found, program.ranks, kinds, np.linspace(low, high, slices + 1))
        cut = (
            f" {len(found):,} passes are too many to see: each of {slices} slices of the step shows"
            " what share of it a rank spends on each kind."
        )
    rows = _compared(document)
    able = [row for row in rows if offered is None or row[0] in offered]
    best = (
        f" Least time of all schedules{'' if offered is None else ' of this software'} at this"
        f" size: {able[0][0]}, {show(able[0][2], 's')}."
        if able and isinstance(able[0][2], float)
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
            axis("seconds", range=[low, high]),
            bargap=0.15,
            dragmode="zoom",
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
        f"One row per pipeline rank; the ground is idle. Drag to look closer, double-click to"
        f" see all. The table compares all schedules.{cut}",
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


def _sliced(
    found: Sequence[Interval], ranks: int, kinds: Sequence[str], edges: Array
) -> list[Trace]:
    """A bar per rank, slice and kind, as long as the kind takes in that slice; bars of a slice are
    stacked from its start."""
    width = float(edges[1] - edges[0])
    starts = np.tile(edges[:-1], (ranks, 1))
    out = []
    for kind in kinds:
        seconds = np.stack([_seconds(found, rank, kind, edges) for rank in range(ranks)])
        held = [(rank, i) for rank, i in np.argwhere(seconds > width * _SEEN)]
        out.append(
            spans(
                KINDS[kind],
                [f"rank {rank}" for rank, _ in held],
                [(float(starts[at]), float(seconds[at])) for at in held],
                {"color": _COLORS[kind], "line": {"width": 0}},
                [
                    f"{KINDS[kind]} takes {percent(float(seconds[at]) / width)} of"
                    f" {edges[at[1]]:.4g} to {edges[at[1] + 1]:.4g} s"
                    for at in held
                ],
                textposition="none",
            )
        )
        starts = starts + seconds
    return out


def _seconds(found: Sequence[Interval], rank: int, kind: str, edges: Array) -> Array:
    """Seconds of passes of a kind on a rank between each two edges."""
    mine = [interval for interval in found if interval.rank == rank and interval.kind == kind]
    if not mine:
        return np.zeros(len(edges) - 1)
    spent = np.cumsum([interval.seconds for interval in mine])
    at = np.ravel([(interval.start, interval.end) for interval in mine])
    before_and_after = np.column_stack([spent - [interval.seconds for interval in mine], spent])
    seconds: Array = np.diff(np.interp(edges, at, before_and_after.ravel()))
    return seconds


def _bars(word: str, color: str, mine: list[Interval], numbered: str) -> Trace:
    return spans(
        word,
        [f"rank {interval.rank}" for interval in mine],
        [(interval.start, interval.seconds) for interval in mine],
        {"color": color, "line": {"width": 0}},
        [
            f"{word} of micro-batch {interval.microbatch}, stage {interval.stage}<br>"
            f"{interval.start:.4g} to {interval.end:.4g} s"
            for interval in mine
        ],
        texttemplate="%{customdata}",
        textposition=numbered,
        customdata=[interval.microbatch for interval in mine],
    )
