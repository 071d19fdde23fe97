"""The pipeline schedule of the chosen layout as bars over time, one row per rank, and all schedules
at the same size."""

from __future__ import annotations

from typing import Any

from planner.api import Options, PlanError
from planner.show.drawing import Interval, intervals
from planner.show.figures import BLUE, GREEN, SAND, Chart, Column
from planner.show.trace import KINDS
from planner.specs.options import OF_WHOLE_STEPS
from planner.units import show
from planner.verbs.schedule import Drawn, Request, draw

_COLORS = {"F": BLUE, "B": SAND, "I": SAND, "W": GREEN}
_MOST_BARS = 1_500  # drawn; a longer step is drawn from its start


def drawn_of(options: Options) -> Drawn:
    """The schedule of the layout that an estimate with these options answers with."""
    given = options.model_dump(exclude_none=True, exclude=set(OF_WHOLE_STEPS))
    chosen = {name: given.pop(name, None) for name in ("schedule", "pp", "vpp")}
    return draw(Request(**chosen), given)


def chart(options: Options) -> Chart:
    """Gantt of the chosen layout's pipeline."""
    drawn = drawn_of(options)
    said = drawn.document
    if said["pp"] == 1:
        raise PlanError(
            "--pp", 1, "there is no pipeline in this layout; fix pp above 1 to see its schedule"
        )
    found = sorted(intervals(drawn.program, drawn.timing), key=lambda one: one.start)
    shown = found[:_MOST_BARS]
    data = [
        _bars(kind, word, [one for one in shown if one.kind == kind])
        for kind, word in KINDS.items()
        if any(one.kind == kind for one in shown)
    ]
    end = max(one.end for one in shown)
    layout = {
        "barmode": "overlay",
        "bargap": 0.15,
        "xaxis": {"title": {"text": "seconds"}, "range": [0, end]},
        "yaxis": {
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": [f"rank {r}" for r in range(said["pp"])],
        },
        "legend": {"orientation": "h", "y": -0.2},
        "margin": {"t": 20, "r": 20},
    }
    rows = [
        [
            row["schedule"],
            row["vpp"],
            row["step_s"],
            row["bubble_frac"],
            None if row["peak_live_microbatches"] is None else max(row["peak_live_microbatches"]),
            None if row["peak_live_bytes"] is None else max(row["peak_live_bytes"]),
            row["refused"] or "",
        ]
        for row in sorted(
            said["comparison"], key=lambda x: (x["refused"] is not None, x["step_s"] or 0.0)
        )
    ]
    columns = (
        Column("schedule"),
        Column("vpp", "number"),
        Column("step", "s"),
        Column("bubble", "%"),
        Column("most micro-batches alive", "number"),
        Column("activations", "B"),
        Column("why not"),
    )
    best = rows[0]
    summary = (
        f"{said['schedule']} over {said['pp']} ranks and {said['microbatches']} micro-batches:"
        f" {show(said['step_s'], 's')}, {100 * said['bubble_frac']:.1f} % of it bubble. Least time"
        f" of all schedules at this size: {best[0]}, {show(best[2], 's')}."
    )
    cut = (
        ""
        if len(shown) == len(found)
        else f" The first {len(shown):,} of {len(found):,} passes are drawn."
    )
    return Chart(
        "schedule",
        "Pipeline schedule",
        summary,
        {"data": data, "layout": layout},
        columns,
        rows,
        f"One row per pipeline rank; white is idle. The table compares all schedules.{cut}",
    )


def _bars(kind: str, word: str, mine: list[Interval]) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": word,
        "marker": {"color": _COLORS[kind], "line": {"width": 0.4, "color": "#ffffff"}},
        "y": [f"rank {one.rank}" for one in mine],
        "base": [one.start for one in mine],
        "x": [one.end - one.start for one in mine],
        "text": [f"{word} of micro-batch {one.microbatch}, stage {one.stage}" for one in mine],
        "textposition": "none",
        "hovertemplate": "%{text}<br>from %{base:.4g} s<extra></extra>",
    }
