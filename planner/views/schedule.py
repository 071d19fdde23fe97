"""View of `dpplan schedule`: the timeline, the figures per rank, and all schedules at the same
size."""

from __future__ import annotations

from collections.abc import Sequence

from planner.inputs.calibration import stack_spec
from planner.schedules.timing import Program, Timing
from planner.specs.capabilities import values
from planner.specs.document import UNSET
from planner.specs.documents.plan import describe
from planner.specs.documents.schedule import OfLayout, Row, Schedule
from planner.units import percent, show
from planner.views.cells import Cell
from planner.views.chart import Chart
from planner.views.gantt import gantt
from planner.views.timeline import LEGEND, timeline
from planner.views.view import Block, Caption, Fixed, Link, Mark, View

_MOST_ACTIONS = 200_000  # drawn in characters; a line has a hundred columns
_MOST_LISTED_RANKS = 16
_SAME = 1e-9  # of a step: less is rounding


def view(
    r: Schedule,
    program: Program,
    timing: Timing,
    width: int = 100,
    window: tuple[float, float] | None = None,
    most: int | None = None,
) -> View:
    """Timeline, comparison, figures per rank.

    width: characters of a line; window: seconds of the step that the chart draws, None: all; most:
    bars of the chart.
    """
    lacking = _lacking(r)
    comparison = _comparison(r, lacking)
    return View(
        f"{r.schedule}: pp {r.pp}, vpp {r.vpp}, {r.microbatches} micro-batches",
        _verdict(r, comparison),
        "no" if r.schedule in lacking else "yes",
        parts=(
            _drawn(r, program, timing, width, gantt(r, program, timing, most, window)),
            *([] if r.estimate is UNSET else [_layout_block(r.estimate, r.step_s)]),
            _ranks(r),
            comparison,
        ),
    )


def _verdict(r: Schedule, comparison: Block) -> str:
    drawn, whole = show(r.step_s, "s"), r.estimate
    step = (
        f"{show(whole.step.seconds, 's')} a step, {drawn} of it drawn"
        if whole
        else f"{drawn} a step"
    )
    sentence = f"{r.schedule}: {step}, {percent(r.bubble_frac)} of that idle"
    best = next((row for row in comparison.rows if not row[-1]), None)
    if best is None:
        return sentence
    if best[2] >= r.step_s * (1 - _SAME):
        return f"{sentence}; none that runs here is shorter"
    return f"{sentence}; the shortest that runs here: {best[0]}, {show(best[2], 's')}"


def _drawn(r: Schedule, program: Program, timing: Timing, width: int, chart: Chart) -> Block:
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
    drawing = (
        ["", *map(Fixed, timeline(program, timing, width)), Caption(LEGEND)]
        if len(program) <= _MOST_ACTIONS
        else []
    )
    return Block(
        "Passes of each rank",
        [
            f"makespan    {show(r.makespan_s, 's')}{own_step}",
            f"idle        {percent(r.bubble_frac)} of the step as drawn, mean over ranks",
            f"live        {_range(r.peak_live_microbatches)} micro-batches per rank at the peak"
            + fullest,
            *drawing,
        ],
        lead=True,
        chart=chart,
    )


def _layout_block(layout: OfLayout, step_s: float) -> Block:
    """The layout that is drawn, and what its estimate has beside the schedule."""
    around = [f"{show(s, 's')} {name.replace('_', ' ')}" for name, s in layout.around.items()]
    if layout.transfers_s:
        apart = "transfers and idle time"
        around.append(
            f"{show(layout.transfers_s, 's')} {apart} that an estimate has in closed form"
            if layout.transfers_s > 0
            else f"less {show(-layout.transfers_s, 's')} {apart} that its closed form leaves out"
        )
    return Block(
        f"Layout: {layout.model} on {layout.cluster.gpus:,} x {layout.cluster.gpu_title}",
        [
            f"layout      {describe(layout.layout)}  [{layout.stack}]",
            f"memory      {layout.memory.verdict}: {show(layout.memory.device_bytes, 'B')} of"
            f" {show(layout.memory.capacity_bytes, 'B')} per GPU",
            f"estimate    {show(layout.step.seconds, 's')} a step: {show(step_s, 's')} as drawn"
            + "".join(f", {part}" for part in around),
        ],
    )


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{high:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _ranks(r: Schedule) -> Block:
    ranks = r.pp
    listed = (
        range(ranks) if ranks <= _MOST_LISTED_RANKS else (0, 1, ranks // 2, ranks - 2, ranks - 1)
    )
    return Block(
        "Ranks",
        header=["rank", "busy|s", "idle|s", "live micro-batches|.4g", "activations|B"],
        rows=[
            [
                *(str(i), r.busy_s[i], max(r.step_s - r.busy_s[i], 0.0)),
                r.peak_live_microbatches[i],
                None if r.peak_live_bytes is None else r.peak_live_bytes[i],
            ]
            for i in listed
        ],
        order="first to last",
        below=[f"{len(listed)} of {ranks} ranks (--json lists all)"] * (len(listed) < ranks),
    )


def _lacking(r: Schedule) -> dict[str, str]:
    """Why the stack of a layout does not run a schedule, by schedule; without a layout, nothing."""
    if r.estimate is UNSET:
        return {}
    stack = stack_spec(r.estimate.stack)
    known = values(stack, "schedule")
    return {row.schedule: f"not in {stack.id}" for row in r.comparison if row.schedule not in known}


def _comparison(r: Schedule, lacking: dict[str, str]) -> Block:
    """All schedules, the shortest step first; last those that do not run here, with the reason."""
    rows = sorted(r.comparison, key=lambda row: (_runs(row, lacking), row.step_s or 0.0))
    return Block(
        "All schedules at this size",
        header=["schedule", ">vpp", "step|s", "idle|%", "most live|.4g", "activations|B", "note"],
        rows=[_compared(row, lacking) for row in rows],
        order="shortest step first",
        drop=("activations",),
        marks=[_mark(row, r.schedule, lacking) for row in rows],
        links=[None if _runs(row, lacking) else _draw(row) for row in rows],
        note="Shaded: the one drawn. Grey: it does not run here, with the reason.",
    )


def _runs(row: Row, lacking: dict[str, str]) -> int:
    """0: it runs; 1: not in this software; 2: not at this size."""
    return 2 if row.refused is not None else int(row.schedule in lacking)


def _mark(row: Row, drawn: str, lacking: dict[str, str]) -> Mark:
    return "here" if row.schedule == drawn else "no" if _runs(row, lacking) else ""


def _draw(row: Row) -> Link:
    """Another schedule at this size."""
    return Link(changes={"schedule": row.schedule, "vpp": "", "begin": "", "end": ""}, word="Draw")


def _compared(row: Row, lacking: dict[str, str]) -> list[Cell]:
    live, size = row.peak_live_microbatches, row.peak_live_bytes
    return [
        *(row.schedule, str(row.vpp), row.step_s, row.bubble_frac),
        None if live is None else max(live),
        None if size is None else max(size),
        row.refused or lacking.get(row.schedule, ""),
    ]
