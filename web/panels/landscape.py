"""The searched layouts as pictures, as `dpplan search` shows them: the front of time against memory
over all layouts, and the best step for each tp and pp. Choosing a point fixes its layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.estimate import Outline
from planner.inputs.scenario import resolve
from planner.ledger import Array
from planner.report.search import by_tp_pp, front, front_point
from planner.search import pareto
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.specs.document import changed
from planner.specs.documents.search import FrontPoint
from planner.specs.options import Options
from planner.units import show
from planner.views.chart import Chart
from planner.views.figures import GIB, GREY, alone, markers
from planner.views.search import front_chart, pairs_block
from web.state import State

_MOST_POINTS = 600  # of the cloud behind the front; more paint slowly and show nothing new


def charts(state: State) -> list[Chart]:
    """Both charts from one search of all layouts that the request leaves open."""
    scenario = resolve(state.options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    outlines = [
        candidate.estimates for candidate in answer.searches if candidate.estimates is not None
    ]

    def update(point: FrontPoint | None) -> dict[str, str] | None:
        """The update of an address that fixes a layout."""
        return None if point is None else state.update(state.picked(point.command))

    pairs = by_tp_pp(state.options, outlines)
    heat_map = alone(pairs_block(pairs, [update(pair.best) for pair in pairs]))
    points = front(state.options, outlines) or _nearest(state.options, outlines)
    return [
        _front(points, outlines, [update(point) for point in points]),
        changed(heat_map, caption=f"{heat_map.caption} Select a cell to fix it.", select="layout"),
    ]


def _columns(outlines: Sequence[Outline]) -> tuple[Array, Array, Array]:
    """Seconds, bytes per GPU and whether it fits, of every layout."""
    some = any(outline.fits.any() for outline in outlines)
    seconds = [(e.time_where_fits if some else e.time).seconds for e in outlines]
    memory, fits = [e.memory.device for e in outlines], [e.fits for e in outlines]
    return np.concatenate(seconds), np.concatenate(memory), np.concatenate(fits)


def _nearest(options: Options, outlines: Sequence[Outline]) -> list[FrontPoint]:
    """The front of layouts of which none fits."""
    seconds, memory, _ = _columns(outlines)
    ends = np.cumsum([len(e.fits) for e in outlines])
    points = []
    for row in pareto(seconds, memory).tolist():
        which = int(np.searchsorted(ends, row, side="right"))
        outline = outlines[which]
        estimates, at = outline.some([row - int(ends[which]) + len(outline.fits)])[0]
        points.append(front_point(options, estimates, at))
    return points


def _front(
    points: Sequence[FrontPoint],
    outlines: Sequence[Outline],
    states: Sequence[dict[str, str] | None],
) -> Chart:
    seconds, memory, fits = _columns(outlines)
    usable = np.flatnonzero(fits) if fits.any() else np.arange(len(seconds))
    plan, seen = outlines[0].plan, _thinned(usable, seconds)
    cloud = markers(
        "fits" if fits.any() else "does not fit",
        seconds[seen].tolist(),
        (memory[seen] / GIB).tolist(),
        GREY,
        size=4,
        opacity=0.35,
    )
    fastest, smallest = (
        f"{show(p.step_seconds, 's')} with {show(p.device_bytes, 'B')}"
        for p in (points[0], points[-1])
    )
    none = "" if fits.any() else " None fits; the nearest are drawn."
    return changed(
        front_chart(points, plan.usable_bytes, states, [cloud]),
        name="pareto",
        title="Time against memory of all layouts",
        summary=f"{len(seconds):,} layouts evaluated, {int(fits.sum()):,} fit,"
        f" {len(points)} of them on the front: from {fastest} to {smallest}.{none}",
        caption="Select a point, or a row of the table, to fix that layout. Cost:"
        f" {plan.cluster.price.sentence}.",
        select="layout",
        states=states,
    )


def _thinned(rows: Array, seconds: Array) -> Array:
    """At most this many rows, evenly over their order by time: the same ones every time."""
    order = rows[np.argsort(seconds[rows], kind="stable")]
    return order[
        np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST_POINTS)).astype(int))
    ]
