"""Blocks of text for `dpplan schedule`: the timeline in characters, the figures per rank, and all
schedules at the same size."""

from __future__ import annotations

from collections.abc import Sequence

from planner.schedules.base import BACKWARD, FORWARD, INPUT, WEIGHT
from planner.schedules.intervals import intervals
from planner.schedules.timing import Program, Timing
from planner.specs.document import UNSET
from planner.specs.documents.plan import describe
from planner.specs.documents.schedule import OfLayout, Row, Schedule
from planner.units import percent, show
from planner.views.view import Block, Fixed

LEGEND = (
    "digit: forward, letter: backward or input gradient (both: last digit of the micro-batch), #:"
    " weight gradient, .: idle"
)
_LETTERS = "abcdefghij"
_MOST_ACTIONS = 200_000  # drawn; a line has a hundred columns
_MOST_DRAWN_RANKS, _MOST_LISTED_RANKS = 40, 16


def schedule_blocks(r: Schedule, program: Program, timing: Timing, width: int) -> list[Block]:
    """Timeline, figures per rank, comparison."""
    own_step = (
        ""
        if r.step_s == r.makespan_s
        else f", step {show(r.step_s, 's')} (ranks start the next step on their own)"
    )
    fullest = (
        ""
        if r.peak_live_bytes is None
        else f", {show(max(r.peak_live_bytes), 'B')} of activations on the fullest"
    )
    head = Block(
        f"{r.schedule}: pp {r.pp}, vpp {r.vpp}, {r.microbatches} micro-batches",
        [
            f"makespan    {show(r.makespan_s, 's')}{own_step}",
            f"bubble      {percent(r.bubble_frac)} of the step, mean over ranks",
            f"live        {_range(r.peak_live_microbatches)} micro-batches per rank at the peak"
            + fullest,
        ],
    )
    if len(program.actions) <= _MOST_ACTIONS:
        head.text += ["", *map(Fixed, timeline(program, timing, width)), LEGEND]
    layout = [] if r.estimate is UNSET else [_layout_block(r.estimate, r.step_s)]
    return [head, *layout, _rank_block(r), _comparison_block(r.comparison)]


def _layout_block(one: OfLayout, step_s: float) -> Block:
    """The layout that is drawn, and what its estimate has beside the schedule."""
    around = [f"{show(s, 's')} {name.replace('_', ' ')}" for name, s in one.around.items()]
    if one.transfers_s:
        apart = "transfers and idle time"
        around.append(
            f"{show(one.transfers_s, 's')} {apart} that an estimate has in closed form"
            if one.transfers_s > 0
            else f"less {show(-one.transfers_s, 's')} {apart} that its closed form leaves out"
        )
    return Block(
        f"Layout: {one.model} on {one.cluster.gpus:,} x {one.cluster.gpu_title}",
        [
            f"layout      {describe(one.layout)}  [{one.stack}]",
            f"memory      {one.memory.verdict}: {show(one.memory.device_bytes, 'B')} of"
            f" {show(one.memory.capacity_bytes, 'B')} per GPU",
            f"estimate    {show(one.step.seconds, 's')} a step: {show(step_s, 's')} as drawn"
            + "".join(f", {part}" for part in around),
        ],
    )


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{high:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _rank_block(r: Schedule) -> Block:
    ranks = r.pp
    listed = (
        range(ranks) if ranks <= _MOST_LISTED_RANKS else (0, 1, ranks // 2, ranks - 2, ranks - 1)
    )
    block = Block(
        "Ranks",
        header=["rank", ">busy", ">idle", ">live micro-batches", ">activations"],
        rows=[
            [
                str(i),
                show(r.busy_s[i], "s"),
                show(max(r.step_s - r.busy_s[i], 0.0), "s"),
                f"{r.peak_live_microbatches[i]:.4g}",
                "-" if r.peak_live_bytes is None else show(r.peak_live_bytes[i], "B"),
            ]
            for i in listed
        ],
        order="first to last",
    )
    if len(listed) < ranks:
        block.below.append(f"{len(listed)} of {ranks} ranks (--json lists all)")
    return block


def _comparison_block(rows: Sequence[Row]) -> Block:
    return Block(
        "All schedules at this size",
        header=["schedule", ">vpp", ">step", ">bubble", ">most live", ">activations", "note"],
        rows=[[row.schedule, str(row.vpp), *_compared(row)] for row in by_step(rows)],
        order="shortest step first",
        drop=("activations",),
    )


def by_step(rows: Sequence[Row]) -> list[Row]:
    """The shortest step first, what cannot run last."""
    return sorted(rows, key=lambda row: (row.refused is not None, row.step_s or 0.0))


def _compared(row: Row) -> list[str]:
    if row.step_s is None or row.bubble_frac is None or row.peak_live_microbatches is None:
        return ["-", "-", "-", "-", row.refused or ""]
    return [
        show(row.step_s, "s"),
        percent(row.bubble_frac),
        f"{max(row.peak_live_microbatches):.4g}",
        "-" if row.peak_live_bytes is None else show(max(row.peak_live_bytes), "B"),
        "",
    ]


# ------------------------------------------------------------------------------- the timeline


def character(kind: str, microbatch: int) -> str:
    """What an action looks like."""
    if kind == FORWARD:
        return str(microbatch % 10)
    if kind == WEIGHT:
        return "#"
    return _LETTERS[microbatch % 10] if kind in (BACKWARD, INPUT) else "?"


def timeline(program: Program, timing: Timing, width: int = 100) -> list[str]:
    """One line of at most `width` characters per rank, time from left to right; a column shows what
    runs at its middle."""
    whole = float(timing.makespan[0])
    if whole <= 0:
        return []
    found = list(intervals(program, timing))
    shortest = min((interval.seconds for interval in found if interval.seconds > 0), default=whole)
    label = len(f"rank {program.ranks - 1}")
    columns = _columns(whole / shortest, max(width - label - 3, 10))
    ranks = min(program.ranks, _MOST_DRAWN_RANKS)
    cells = [["."] * columns for _ in range(ranks)]
    for interval in found:
        if interval.rank < ranks:
            first = max(int(interval.start / whole * columns + 0.5), 0)
            last = min(int(interval.end / whole * columns + 0.5), columns)
            cells[interval.rank][first:last] = character(interval.kind, interval.microbatch) * (
                last - first
            )
    out = [f"{f'rank {r}':<{label}} |{''.join(line)}|" for r, line in enumerate(cells)]
    if ranks < program.ranks:
        out.append(f"({program.ranks - ranks} more ranks)")
    return out


def _columns(units: float, room: int) -> int:
    """Columns of a step of so many times its shortest action, which gets a whole number of them
    where there is room."""
    whole = round(units)
    return (
        max(int(room // units), 1) * whole if units <= room and abs(units - whole) < 1e-6 else room
    )
