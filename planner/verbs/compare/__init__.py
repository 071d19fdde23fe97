"""The verb `compare`: requests side by side with what makes the difference, and sweeps with their
scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from msgspec.structs import asdict

from planner.inputs import tables
from planner.inputs.doubts import unflagged
from planner.report.doubts import answered_of, doubts
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, UNSET, changed
from planner.specs.documents.compare import FIGURES, Comparison, Curve, SweptOption
from planner.specs.documents.compare import Point as PointDocument
from planner.specs.documents.estimate import Figures
from planner.specs.documents.plan import describe
from planner.specs.documents.prices import Prices
from planner.specs.options.own import CompareOptions
from planner.units import percent
from planner.verbs.compare import scaling
from planner.verbs.compare.combinations import (
    Combinations,
    combinations,
    refuse_varied,
    requests_of,
)
from planner.verbs.compare.differences import difference
from planner.verbs.compare.dimensions import Dimension, Value, unit_of
from planner.verbs.compare.equal import Sized, sized
from planner.verbs.prices import bill, cheapest_of, machine, prices
from planner.verbs.requests import Point, answer
from planner.verbs.workers import Progress

_CENTS_BELOW = 1000  # amounts below which two decimals are written
_MOST_COUNTS = 6  # counts nearer to equal that a note names

__all__ = ["compare", "csv_text", "side_by_side"]


def compare(
    request: CompareOptions,
    given: Mapping[str, Any],
    progress: Progress | None = None,
    typed: Set[str] = frozenset(),
) -> Comparison:
    """All combinations answered; side-by-side answers are compared with the first that fits, sweeps
    are followed.

    given: options common to all, stronger than options of scenario files; typed: options from the
    command line, which must not be varied, too. Raises PlanError if none can be answered.
    """
    combined = combinations(request)
    refuse_varied(combined, given, typed)
    requests, notes = requests_of(combined, request, given)
    if request.at == "count":
        rows = [
            Sized(point, None)
            for point in answer(requests, jobs=request.jobs or 1, progress=progress)
        ]
    else:
        rows = sized(requests, request.at, request.jobs or 1)
        notes += [_equal_note(row) for row in rows if row.equal is not None]
    return _comparison(combined, rows, request, notes)


def side_by_side(points: Mapping[str, Point]) -> Comparison:
    """Requests that are answered already, by their names, compared with the first that fits.

    Raises PlanError if none has an answer.
    """
    scenarios = Dimension("scenario", tuple(Value(name, {}) for name in points))
    combined = Combinations((scenarios,), (), tuple((value,) for value in scenarios.values))
    rows = [Sized(point, None) for point in points.values()]
    return _comparison(combined, rows, CompareOptions(), [])


def _comparison(
    combined: Combinations, rows: Sequence[Sized], request: CompareOptions, notes: list[str]
) -> Comparison:
    points = [row.point for row in rows]
    if all(point.report is None for point in points):
        raise PlanError(
            "compare",
            None,
            f"none of the {len(points)} requests can be answered; the first: {points[0].refused}",
        )
    notes = [*notes, *_same_answers(combined, points)]
    documents = [
        _document(combined.dimensions, values, row)
        for values, row in zip(combined.rows, rows, strict=True)
    ]
    return Comparison(
        schema_version=SCHEMA_VERSION,
        dimensions=[
            SweptOption(d.name, [v.label for v in d.values], d in combined.sweeps)
            for d in combined.dimensions
        ],
        at=request.at,
        scaling=request.scaling,
        stop_below=request.stop_below,
        notes=notes,
        doubts=_doubts(documents, points),
        prices=_prices(documents, points),
        points=documents,
        difference=None if combined.sweeps else difference(documents),
        curves=_curves(combined, points, request) if combined.sweeps else [],
    )


def _document(
    dimensions: Sequence[Dimension], values: Sequence[Value], row: Sized
) -> PointDocument:
    point, equal = row.point, row.equal
    return PointDocument(
        label=_label(dimensions, values),
        values={
            d.name: v.label if v.number is None else v.number
            for d, v in zip(dimensions, values, strict=True)
        },
        command=point.command,
        pick=point.pick,
        refused=point.refused,
        equal=UNSET if equal is None else equal,
        **({} if point.report is None else {"layouts": point.layouts, **asdict(point.report)}),
    )


def _same_answers(combined: Combinations, points: Sequence[Point]) -> list[str]:
    """Which requests side by side, or whether all of a sweep, come to the same figures."""
    figures_of = [
        None if point.report is None else changed(point.report, assumptions=[]) for point in points
    ]
    if combined.sweeps:
        same = (
            len(points) > 1
            and None not in figures_of
            and all(figures == figures_of[0] for figures in figures_of)
        )
        return (
            ["all requests have the same answer: nothing that is varied acts here"] if same else []
        )
    groups: list[tuple[Figures, list[str]]] = []
    for row, values in zip(figures_of, combined.rows, strict=True):
        if row is None:
            continue
        label = ", ".join(
            f"{d.name} {v.label}" for d, v in zip(combined.dimensions, values, strict=True)
        )
        known = next((members for figures, members in groups if figures == row), None)
        if known is None:
            groups.append((row, [label]))
        else:
            known.append(label)
    return [
        f"{', '.join(members[:-1])} and {members[-1]} have the same answer"
        for _, members in groups
        if len(members) > 1
    ]


def _doubts(documents: Sequence[PointDocument], points: Sequence[Point]) -> list[str]:
    """Implausible values of the answers, each with its requests where not all have it."""
    labels: dict[str, list[str]] = {}
    for document, point in zip(documents, points, strict=True):
        if (r := point.report) is not None:
            for sentence in (*unflagged(r.assumptions), *doubts(answered_of(r))):
                labels.setdefault(sentence, []).append(document.label)
    answered = sum(point.report is not None for point in points)
    return [
        sentence if len(having) == answered else f"{_some(having)}: {sentence}"
        for sentence, having in labels.items()
    ]


def _some(labels: Sequence[str]) -> str:
    """The first of these requests, and how many more there are."""
    return labels[0] if len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} more"


def _equal_note(row: Sized) -> str:
    """How many GPUs were taken, how far they are from equal, and which nearer counts were not."""
    equal = row.equal
    assert equal is not None
    sentence = (
        f"{equal.gpus:,} x {machine(row.point.options)}: {_amount(equal.amount)} {equal.unit}"
    )
    if equal.gpus == equal.exact_gpus:
        return sentence
    return (
        f"{sentence}, {percent(equal.off_frac, sign=True)} against {_amount(equal.target)};"
        f" {equal.exact_gpus:,.1f} GPUs would be equal"
        + _counts("no layout on", equal.without_layout)
        + _counts("slower per GPU on", equal.slower)
    )


def _amount(value: float) -> str:
    return f"{value:,.2f}" if value < _CENTS_BELOW else f"{value:,.0f}"


def _counts(subject: str, gpus: Sequence[int]) -> str:
    named = ", ".join(f"{n:,}" for n in gpus[:_MOST_COUNTS])
    more = ", ..." if len(gpus) > _MOST_COUNTS else ""
    return f"; {subject} {named}{more}" if gpus else ""


def _label(dimensions: Sequence[Dimension], values: Sequence[Value]) -> str:
    named = (
        v.label if v.number is None else f"{d.name.replace('_', ' ')} {v.label}"
        for d, v in zip(dimensions, values, strict=True)
    )
    return ", ".join(named)


def _prices(rows: Sequence[PointDocument], points: Sequence[Point]) -> Prices:
    answered = [
        (row.label, point.options, point.report)
        for row, point in zip(rows, points, strict=True)
        if point.report is not None
    ]
    fitting = [entry for entry in answered if entry[2].memory.fits] or answered
    length = all(figures.run.gpu_hours is not None for _, _, figures in answered)
    return prices(
        [(options, figures.cluster) for _, options, figures in answered],
        "run" if length else "million tokens",
        cheapest_of([bill(*entry) for entry in fitting]),
    )


def _curves(
    combined: Combinations, points: Sequence[Point], request: CompareOptions
) -> list[Curve]:
    """One curve per combination of what stands side by side and of the second sweep; GPUs are the
    axis where they are swept."""
    dimensions, sweeps = combined.dimensions, combined.sweeps
    axis = next((sweep for sweep in sweeps if sweep.name == "gpus"), sweeps[-1])
    at = dimensions.index(axis)
    others = [*dimensions[:at], *dimensions[at + 1 :]]
    lines: dict[str, list[tuple[float, Point]]] = {}
    for values, point in zip(combined.rows, points, strict=True):
        number = values[at].number
        assert number is not None  # only numbers are swept
        label = _label(others, [*values[:at], *values[at + 1 :]])
        lines.setdefault(label, []).append((number, point))
    unit = unit_of(axis.values[0].label)
    return [
        scaling.curve(
            axis.name,
            unit,
            label,
            sorted(line, key=lambda row: row[0]),
            request.scaling,
            request.stop_below,
        )
        for label, line in lines.items()
    ]


def csv_text(comparison: Comparison) -> str:
    """One line per request: what varies, the answer, seconds of each component, and the command for
    this line."""
    names = [option.name for option in comparison.dimensions]
    answered = [row for row in comparison.points if row.refused is None]
    parts = list(dict.fromkeys(name for row in answered for name in row.step.components))
    header = [
        *(f"varied_{name}" for name in names),
        *("fits", "refused", "stack", "layout", "capacity_bytes", "price"),
        *(figure.name for figure in FIGURES),
        "goodput",
        *(f"{name}_s" for name in parts),
        "command",
    ]
    lines = []
    for row in comparison.points:
        cells: dict[str, Any] = {f"varied_{name}": row.values[name] for name in names}
        cells |= {"fits": row.fits, "refused": row.refused, "command": row.command}
        if row.refused is None:
            cells |= {
                "stack": row.stack,
                "layout": describe(row.layout),
                "capacity_bytes": row.memory.capacity_bytes,
                "price": row.cluster.price,
                **{figure.name: figure.of(row) for figure in FIGURES},
                "goodput": row.run.goodput,
                **{f"{name}_s": row.step.components.get(name, 0.0) for name in parts},
            }
        lines.append([cells.get(name) for name in header])
    return tables.csv_text(header, lines)
