"""The searched layouts as pictures: the front of time against memory, and the best step for each tp
and pp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.estimate import Outline
from planner.inputs.scenario import resolve
from planner.ledger import Array
from planner.report.search import front_point
from planner.search import pareto
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.specs.document import changed
from planner.specs.documents.plan import describe
from planner.specs.documents.search import FrontPoint
from planner.units import show
from planner.views.cells import Column
from planner.views.chart import Chart
from planner.views.figures import GIB, GREY, GRID_LINE, INK, axis, figure, markers
from planner.views.search import front_chart
from web.state import State

_MOST_POINTS = 600  # of the cloud behind the front; more paint slowly and show nothing new
_MOST_LABELS = 12  # columns of the heat map that have room for their numbers


def charts(state: State) -> list[Chart]:
    """Both charts from one search of all layouts that the request leaves open."""
    scenario = resolve(state.options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    outlines = [
        candidate.estimates for candidate in answer.found if candidate.estimates is not None
    ]
    every = _Evaluated.of(state, outlines)
    return [_front(every), _heat_map(every)]


@dataclass(frozen=True)
class _Evaluated:
    """Every evaluated layout as columns: which of the outlines it is of, its row there, what it
    takes."""

    state: State
    outlines: list[Outline]
    which: Array
    row: Array
    seconds: Array
    bytes: Array
    fits: Array
    tp: Array
    pp: Array

    @classmethod
    def of(cls, state: State, outlines: list[Outline]) -> _Evaluated:
        some = any(outline.fits.any() for outline in outlines)

        def joined(column: Callable[[Outline], Array]) -> Array:
            return np.concatenate([column(outline) for outline in outlines])

        return cls(
            state,
            outlines,
            np.repeat(np.arange(len(outlines)), [len(outline.fits) for outline in outlines]),
            joined(lambda outline: np.arange(len(outline.fits))),
            joined(lambda outline: (outline.time_where_fits if some else outline.time).seconds),
            joined(lambda outline: outline.memory.device),
            joined(lambda outline: outline.fits),
            joined(lambda outline: outline.space.outer["tp"][outline.space.row]),
            joined(lambda outline: outline.space.outer["pp"][outline.space.row]),
        )

    def point(self, i: int) -> FrontPoint:
        """The layout at i as a search lists it."""
        estimates, row = self.outlines[self.which[i]].some([int(self.row[i])])[0]
        return front_point(self.state.options, estimates, row)

    def update(self, entry: FrontPoint) -> dict[str, str]:
        """The update of an address that fixes a layout."""
        return self.state.update(self.state.picked(entry.command))


def _front(every: _Evaluated) -> Chart:
    usable = np.flatnonzero(every.fits)
    if not len(usable):
        usable = np.arange(len(every.seconds))
    front = usable[pareto(every.seconds[usable], every.bytes[usable])]
    points = [every.point(i) for i in front]
    states = [every.update(point) for point in points]
    plan, seen = every.outlines[0].plan, _thinned(usable, every.seconds)
    cloud = markers(
        "fits" if every.fits.any() else "does not fit",
        every.seconds[seen].tolist(),
        (every.bytes[seen] / GIB).tolist(),
        GREY,
        size=4,
        opacity=0.35,
    )
    ends = (points[0], points[-1])
    fastest, smallest = (
        f"{show(p.step_seconds, 's')} with {show(p.device_bytes, 'B')}" for p in ends
    )
    none = "" if every.fits.any() else " None fits; the nearest are drawn."
    return changed(
        front_chart(points, plan.usable_bytes, states, [cloud]),
        name="pareto",
        title="Time against memory of all layouts",
        summary=f"{len(every.seconds):,} layouts evaluated, {int(every.fits.sum()):,} fit,"
        f" {len(points)} of them on the front: from {fastest} to {smallest}.{none}",
        caption="Select a point, or a row of the table, to fix that layout. Cost:"
        f" {plan.cluster.price.sentence}.",
        select="layout",
        states=states,
    )


def _thinned(rows: Array, seconds: Array) -> Array:
    """At most so many rows, evenly over their order by time: the same ones every time."""
    order = rows[np.argsort(seconds[rows], kind="stable")]
    return order[
        np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST_POINTS)).astype(int))
    ]


@dataclass(frozen=True)
class _Cell:
    """Layouts evaluated for one tp and pp: the fastest layout that fits, else the least memory."""

    tp: float
    pp: float
    layouts: int
    seconds: float | None = None
    bytes: float | None = None
    entry: FrontPoint | None = None
    update: dict[str, str] | None = None  # what fixes the layout, in an address

    @property
    def text(self) -> str:
        if self.seconds is not None:
            return show(self.seconds, "s")
        return "" if self.bytes is None else show(self.bytes, "B", 2)

    @property
    def row(self) -> list[Any]:
        fits = self.entry is not None
        layout = describe(self.entry.layout) if self.entry else "no layout fits"
        return [self.tp, self.pp, self.layouts, fits, self.seconds, self.bytes, layout]


def _cell(every: _Evaluated, tp: float, pp: float) -> _Cell:
    here = np.flatnonzero((every.tp == tp) & (every.pp == pp))
    if not len(here):
        return _Cell(tp, pp, 0)
    fitting = here[every.fits[here]]
    if not len(fitting):
        return _Cell(tp, pp, len(here), bytes=float(every.bytes[here].min()))
    i = fitting[every.seconds[fitting].argmin()]
    seconds, least = float(every.seconds[i]), float(every.bytes[i])
    entry = every.point(i)
    return _Cell(tp, pp, len(here), seconds, least, entry, every.update(entry))


def _heat_map(every: _Evaluated) -> Chart:
    pps = sorted(set(every.pp.tolist()))
    grid = [[_cell(every, tp, pp) for pp in pps] for tp in sorted(set(every.tp.tolist()))]
    cells = [cell for line in grid for cell in line if cell.layouts]
    fitting = [cell for cell in cells if cell.entry is not None]
    known = [cell.seconds for cell in fitting if cell.seconds is not None]
    best = min(fitting, key=lambda cell: cell.seconds or 0.0, default=None)
    note = (
        f"Best is tp {best.tp:.0f}, pp {best.pp:.0f} with {best.text}."
        if best
        else "No combination fits."
    )
    if len(known) > 1:
        times = max(known) / min(known)
        note += f" The slowest of them takes {times:.1f} times as long."
    labeled = len(pps) <= _MOST_LABELS

    def drawn(value_of: Callable[[_Cell], Any]) -> list[list[Any]]:
        return [[value_of(cell) for cell in line] for line in grid]

    shared = {
        "type": "heatmap",
        "x": [f"pp {pp:.0f}" for pp in pps],
        "y": [f"tp {line[0].tp:.0f}" for line in grid],
        "text": drawn(lambda cell: cell.text),
        # as large as the cells let them be: plotly's choice where no size is given
        "texttemplate": "%{text}" if labeled else "",
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 2,
    }
    trace = {
        **shared,
        "z": drawn(lambda cell: cell.seconds),
        "customdata": drawn(lambda cell: cell.update),
        "colorscale": "Cividis",
        "reversescale": True,
        "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
        "colorbar": {"title": {"text": "seconds"}, "thickness": 12},
    }
    # where nothing fits: the least that any layout needs, on plain ground
    needs = {
        **shared,
        "z": drawn(lambda cell: None if cell.entry or not cell.layouts else 0),
        "colorscale": [[0, GRID_LINE], [1, GRID_LINE]],
        "showscale": False,
        "textfont": {"color": INK},
        "hovertemplate": "%{y}, %{x}: does not fit, needs %{text}<extra></extra>",
    }
    category = axis(type="category")
    return Chart(
        "heat-map",
        "Best step for each tp and pp",
        f"{len(fitting)} of {len(cells)} combinations of tp and pp have a layout that fits. {note}",
        figure([needs, trace], category, category),
        (
            Column("tp", "number"),
            Column("pp", "number"),
            Column("layouts", "number"),
            Column("fits"),
            Column("best step", "s"),
            Column("memory per GPU", "B"),
            Column("layout"),
        ),
        [cell.row for cell in cells],
        "The fastest layout that fits for each pair, all else searched; grey: none fits,"
        " and the least memory that any needs. Select a cell to fix it.",
        select="layout",
        states=[cell.update for cell in cells],
        order="by tp, then by pp",
    )
