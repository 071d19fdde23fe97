"""The form of a schedule: a window of the step, within what a page draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from planner.specs.base import PlanError
from planner.specs.options import Group, Record, option
from planner.specs.options.own import ScheduleOptions
from planner.verbs.schedule import Drawn, draw
from planner.views import schedule as shown
from planner.views.view import Link, View
from web.tabs.base import Answers, TabRequest

_MOST_BARS = 1_500  # drawn in one window
_MOST_SIZE = 200_000  # pp x vpp x micro-batches of one request
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


def _find(request: TabRequest) -> Drawn:
    options = request.of(ScheduleOptions)
    given = request.given
    if "model" not in request.given:
        for name in request.given:
            if name not in _SHAPE:
                raise PlanError(f"--{name.replace('_', '-')}", None, "needs a model")
        size = given.get("pp", 1) * (options.microbatches or 1) * given.get("vpp", 1)
        if size > _MOST_SIZE:
            raise PlanError(
                "--microbatches",
                options.microbatches,
                f"pp x vpp x microbatches must be at most {_MOST_SIZE:,} here; use the command"
                " line",
            )
    return draw(options, given)


def _view(drawn: Drawn, request: TabRequest) -> View:
    whole = drawn.document.makespan_s
    begin, end = _window(request.of(Window), whole)
    parts = drawn.document, drawn.program, drawn.timing
    view = shown.view(*parts, window=(begin, end), most=_MOST_BARS)
    return replace(view, links=_zooms(begin, end, whole))


def _window(window: Window, whole_s: float) -> tuple[float, float]:
    begin, end = window.begin or 0.0, min(window.end or whole_s, whole_s)
    if begin >= whole_s:
        raise PlanError("begin", begin, f"is behind the end of the step, {whole_s:.4g} s")
    if end <= begin:
        raise PlanError("end", window.end, f"must be after the begin of the window, {begin:.4g} s")
    return begin, end


def _zooms(begin: float, end: float, whole_s: float) -> list[Link]:
    """Windows beside the one that is drawn."""
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
    return [
        Link(changes={"begin": f"{low:.6g}", "end": f"{high:.6g}"}, word=label)
        for label, low, high in windows
    ]


ANSWERS = Answers(_find, _view, words=(Window,), out=lambda drawn: drawn.document)
