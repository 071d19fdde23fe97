"""Pipeline schedules: one drawn pass by pass in a window of time, and all compared at its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar
from urllib.parse import urlencode

from planner.inputs.calibration import stack_spec
from planner.specs.base import PlanError
from planner.specs.capabilities import values
from planner.specs.document import UNSET
from planner.specs.documents.schedule import Schedule
from planner.specs.options import Group, Record, option
from planner.specs.options.own import ScheduleOptions
from planner.units import percent, show
from planner.verbs.schedule import Drawn, draw
from planner.views.schedule import schedule_blocks
from planner.views.schedule_page import chart
from web.tabs.base import Asked, Found, Mark, Tab, Table

_MOST_BARS = 1_500  # drawn in one window
_MOST_SIZE = 200_000  # pp x vpp x micro-batches of one request
_TEXT_WIDTH = 100  # characters of the blocks of the command line
_SHAPE = frozenset({"schedule", "pp", "vpp"})


@dataclass(frozen=True, kw_only=True)
class Window(Record):
    """The part of a step that is drawn."""

    GROUP: ClassVar = Group("window", "Window")

    begin: Annotated[
        float | None,
        option(
            "Draw from this second of the step on",
            label="Drawn from (s)",
            least=1e-12,
            most=1e9,
            or_zero=True,
            example="0.5",
            unset="its start",
        ),
    ] = None
    end: Annotated[
        float | None,
        option(
            "Draw up to this second of the step",
            label="Drawn up to (s)",
            least=1e-12,
            most=1e9,
            example="2",
            unset="its end",
        ),
    ] = None


def _find(asked: Asked) -> Drawn:
    own = asked.of(ScheduleOptions)
    given = asked.given
    if "model" not in asked.given:
        for name in asked.given:
            if name not in _SHAPE:
                raise PlanError(f"--{name.replace('_', '-')}", None, "needs a model")
        size = given.get("pp", 1) * (own.microbatches or 1) * given.get("vpp", 1)
        if size > _MOST_SIZE:
            raise PlanError(
                "--microbatches",
                own.microbatches,
                f"pp x vpp x microbatches must be at most {_MOST_SIZE:,} here; use the command"
                " line",
            )
    return draw(own, given)


def _show(found: Drawn, asked: Asked) -> Found:
    document = found.document
    begin, end = _window(asked.of(Window), document.makespan_s)
    software = _not_in_software(document)
    head, *rest = schedule_blocks(document, found.program, found.timing, _TEXT_WIDTH)
    comparison = rest.pop()
    order = sorted(comparison.rows, key=lambda row: (bool(row[-1]), row[0] in software))
    comparison.rows = [[*row[:-1], row[-1] or software.get(row[0], "")] for row in order]
    step, bubble = show(document.step_s, "s"), percent(document.bubble_frac)
    own = f"{document.schedule}: {step} a step, {bubble} of it bubble"
    best = next((row for row in comparison.rows if not row[-1]), None)
    least = f"; the shortest that runs here: {best[0]}, {best[2]}" if best else ""
    return Found(
        title=head.title,
        verdict=f"{own}{least}",
        command=asked.command,
        mark="no" if document.schedule in software else "yes",
        parts=(
            chart(
                document,
                found.program,
                found.timing,
                _MOST_BARS,
                [row.schedule for row in document.comparison if row.schedule not in software],
                (begin, end),
            ),
            Table(
                comparison,
                links=tuple(_other(row[0], asked, not row[-1]) for row in comparison.rows),
                marks=tuple(_mark(row, document.schedule) for row in comparison.rows),
                word="Draw",
                note="Shaded: the one drawn. Grey: it does not run here, with the reason.",
            ),
            *map(Table, rest),
        ),
        links=_zooms(begin, end, document.makespan_s, asked),
    )


def _mark(row: list[str], drawn: str) -> Mark:
    return "here" if row[0] == drawn else "no" if row[-1] else ""


def _not_in_software(document: Schedule) -> dict[str, str]:
    """Why the stack of a layout does not run a schedule, by schedule; without a layout, nothing."""
    if document.estimate is UNSET:
        return {}
    stack = stack_spec(document.estimate.stack)
    known = values(stack, "schedule")
    return {
        row.schedule: f"{stack.title or stack.id} has no such schedule"
        for row in document.comparison
        if row.schedule not in known
    }


def _window(asked: Window, whole_s: float) -> tuple[float, float]:
    begin, end = asked.begin or 0.0, min(asked.end or whole_s, whole_s)
    if begin >= whole_s:
        raise PlanError("begin", begin, f"is behind the end of the step, {whole_s:.4g} s")
    if end <= begin:
        raise PlanError("end", asked.end, f"must be after the begin of the window, {begin:.4g} s")
    return begin, end


def _zooms(begin: float, end: float, whole_s: float, asked: Asked) -> tuple[tuple[str, str], ...]:
    """Windows beside the one that is drawn: (label, address)."""
    long = end - begin
    middle = begin + long / 2
    windows = [("Whole step", 0.0, whole_s)] if long < whole_s else []
    windows.append(("Zoom in", middle - long / 4, middle + long / 4))
    if long < whole_s:
        windows.append(("Zoom out", max(middle - long, 0.0), min(middle + long, whole_s)))
    if begin > 0:
        windows.append(("Earlier", max(begin - long, 0.0), max(begin - long, 0.0) + long))
    if end < whole_s:
        windows.append(("Later", min(end, whole_s - long), min(end + long, whole_s)))
    kept = [(n, text) for n, text in asked.pairs if text and n not in ("begin", "end")]
    ends = [
        (label, [("begin", f"{low:.6g}"), ("end", f"{high:.6g}")]) for label, low, high in windows
    ]
    return tuple((label, f"{TAB.path}?{urlencode([*kept, *end])}#found") for label, end in ends)


def _other(name: str, asked: Asked, runs: bool) -> str | None:
    """The address of another schedule at this size."""
    if not runs:
        return None
    kept = [
        (n, text)
        for n, text in asked.pairs
        if text and n not in ("schedule", "vpp", "begin", "end")
    ]
    return f"{TAB.path}?{urlencode([*kept, ('schedule', name)])}"


TAB = Tab(
    path="/schedule",
    name="Schedule",
    title="Pipeline schedules",
    lead=(
        "One pipeline schedule drawn pass by pass, with a window of time to zoom into, and all "
        "schedules compared at the same size: from bare numbers, or for the planned layout of a"
        " model."
    ),
    ask="Draw",
    verb="schedule",
    documents=("schedule",),
    records=(ScheduleOptions,),
    words=(Window,),
    shown=("model", "gpu", "gpus", "schedule", "pp", "microbatches", "begin", "end"),
    folded=(
        "vpp",
        "forward_s",
        "backward_s",
        "weight_s",
        "p2p_s",
        "activation_bytes",
        "straggler",
        "blocking_sends",
        "stack",
        "tp",
        "global_batch",
    ),
    start=[("pp", "4"), ("microbatches", "8"), ("schedule", "1f1b")],
    alone=_SHAPE,
    of_layout=True,
    find=_find,
    show=_show,
    out=lambda drawn: drawn.document,
    model=None,
)
