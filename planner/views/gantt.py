"""A pipeline schedule as a chart, one row of bars per rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.ledger import Array
from planner.schedules.intervals import KINDS, Interval, intervals
from planner.schedules.timing import Program, Timing
from planner.specs.documents.schedule import Schedule
from planner.units import percent, show
from planner.views.chart import Chart, Trace
from planner.views.figures import BLUE, ROSE, SAND, axis, rows_figure, spans

_COLORS = {"F": BLUE, "B": SAND, "I": SAND, "W": ROSE}
_MOST_NUMBERED = 400  # passes up to which each bar holds the number of its micro-batch
_SEEN = 1e-6  # of a slice of the step: less is rounding


def gantt(
    document: Schedule,
    program: Program,
    timing: Timing,
    most: int | None = None,
    window: tuple[float, float] | None = None,
) -> Chart:
    """Every pass on its rank.

    most: bars that are drawn; of a step with more passes each bar is a share of a slice of the
    step. window: seconds of the step that are drawn; None: all.
    """
    passes = sorted(intervals(program, timing), key=lambda interval: interval.start)
    low, high = window or (0.0, max(interval.end for interval in passes))
    drawn = [interval for interval in passes if interval.start < high and interval.end > low]
    kinds = [kind for kind in KINDS if any(interval.kind == kind for interval in drawn)]
    if most is None or len(drawn) <= most:
        numbered = "inside" if len(drawn) <= _MOST_NUMBERED else "none"
        data = [
            _bars(
                KINDS[kind],
                _COLORS[kind],
                [interval for interval in drawn if interval.kind == kind],
                numbered,
            )
            for kind in kinds
        ]
        cut = ""
    else:
        slices = max(most // (program.ranks * len(kinds)), 1)
        data = _sliced(drawn, program.ranks, kinds, np.linspace(low, high, slices + 1))
        cut = (
            f" {len(drawn):,} passes are too many to see: each of {slices} slices of the step shows"
            " what share of it a rank spends on each kind."
        )
    return Chart(
        "schedule",
        "Pipeline schedule",
        f"{document.schedule} over {document.pp} ranks and {document.microbatches} micro-batches:"
        f" {show(document.step_s, 's')}, {percent(document.bubble_frac)} of it idle.",
        rows_figure(
            data,
            [f"rank {rank}" for rank in range(program.ranks)],
            axis("seconds", range=[low, high]),
            bargap=0.15,
            dragmode="zoom",
        ),
        caption="One row per pipeline rank; the ground is idle. Drag to look closer, double-click"
        f" to see all.{cut}",
    )


def _sliced(
    intervals: Sequence[Interval], ranks: int, kinds: Sequence[str], edges: Array
) -> list[Trace]:
    """A bar per rank, slice and kind, as long as the kind takes in that slice; bars of a slice are
    stacked from its start."""
    width = float(edges[1] - edges[0])
    starts = np.tile(edges[:-1], (ranks, 1))
    out = []
    for kind in kinds:
        seconds = np.stack([_seconds(intervals, rank, kind, edges) for rank in range(ranks)])
        busy = [(rank, i) for rank, i in np.argwhere(seconds > width * _SEEN)]
        out.append(
            spans(
                KINDS[kind],
                [f"rank {rank}" for rank, _ in busy],
                [(float(starts[at]), float(seconds[at])) for at in busy],
                {"color": _COLORS[kind], "line": {"width": 0}},
                [
                    f"{KINDS[kind]} takes {percent(float(seconds[at]) / width)} of"
                    f" {edges[at[1]]:.4g} to {edges[at[1] + 1]:.4g} s"
                    for at in busy
                ],
                textposition="none",
            )
        )
        starts = starts + seconds
    return out


def _seconds(intervals: Sequence[Interval], rank: int, kind: str, edges: Array) -> Array:
    """Seconds of passes of a kind on a rank between each two edges."""
    mine = [interval for interval in intervals if interval.rank == rank and interval.kind == kind]
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
