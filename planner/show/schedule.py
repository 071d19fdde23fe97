"""Blocks of text for `dpplan schedule`: the timeline, the figures per rank, and all schedules at
the same size."""

from __future__ import annotations

import shutil
import sys

from planner.schedules.timing import Program, Timing
from planner.show.drawing import LEGEND, timeline
from planner.show.text import Block, Report
from planner.units import show

_PIPED = 120  # characters of a line when nobody says how wide the screen is
_MOST_ACTIONS = 200_000  # drawn; a line has a hundred columns


def width_of(plain: bool) -> int:
    """Characters of a line: the terminal's, or a fixed number when piped."""
    if plain or not sys.stdout.isatty():
        return _PIPED
    return max(40, shutil.get_terminal_size((_PIPED, 24)).columns)


def schedule_blocks(r: Report, program: Program, timing: Timing, width: int) -> list[Block]:
    """Timeline, figures per rank, comparison."""
    head = Block(
        f"{r['schedule']}: pp {r['pp']}, vpp {r['vpp']}, {r['microbatches']} micro-batches"
    )
    head.text = [
        f"makespan    {show(r['makespan_s'], 's')}"
        + (
            ""
            if r["step_s"] == r["makespan_s"]
            else f", step {show(r['step_s'], 's')} (ranks start the next step on their own)"
        ),
        f"bubble      {100 * r['bubble_frac']:.1f} % of the step, mean over ranks",
        f"live        {_range(r['peak_live_microbatches'])} micro-batches per rank at the peak"
        + _bytes(r),
    ]
    if len(program.actions) <= _MOST_ACTIONS:
        head.text += ["", *timeline(program, timing, width), LEGEND]
    return [head, _rank_block(r), _comparison_block(r)]


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{high:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _bytes(r: Report) -> str:
    return (
        ""
        if r["peak_live_bytes"] is None
        else f", {show(max(r['peak_live_bytes']), 'B')} of activations on the fullest"
    )


def _rank_block(r: Report) -> Block:
    block = Block("Ranks", header=["rank", ">busy", ">idle", ">live micro-batches", ">activations"])
    ranks = len(r["busy_s"])
    shown = range(ranks) if ranks <= 16 else (0, 1, ranks // 2, ranks - 2, ranks - 1)
    for i in shown:
        size = "-" if r["peak_live_bytes"] is None else show(r["peak_live_bytes"][i], "B")
        busy, live = r["busy_s"][i], r["peak_live_microbatches"][i]
        block.rows.append(
            [str(i), show(busy, "s"), show(max(r["step_s"] - busy, 0.0), "s"), f"{live:.4g}", size]
        )
    if len(shown) < ranks:
        block.text.append(f"{len(shown)} of {ranks} ranks (--json lists all)")
    return block


def _comparison_block(r: Report) -> Block:
    block = Block(
        "All schedules at this size",
        header=["schedule", ">vpp", ">step", ">bubble", ">most live", ">activations", "note"],
    )
    for row in sorted(
        r["comparison"], key=lambda x: (x["refused"] is not None, x["step_s"] or 0.0)
    ):
        if row["refused"] is not None:
            block.rows.append(
                [row["schedule"], str(row["vpp"]), "-", "-", "-", "-", row["refused"]]
            )
            continue
        size = "-" if row["peak_live_bytes"] is None else show(max(row["peak_live_bytes"]), "B")
        block.rows.append(
            [
                row["schedule"],
                str(row["vpp"]),
                show(row["step_s"], "s"),
                f"{100 * row['bubble_frac']:.1f} %",
                f"{max(row['peak_live_microbatches']):.4g}",
                size,
                "",
            ]
        )
    return block
