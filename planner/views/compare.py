"""View of `dpplan compare`: requests side by side with what makes the difference, or the curves of
a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.specs.documents.compare import FIGURES, Comparison, Difference, Figure, Point
from planner.specs.documents.plan import describe
from planner.specs.options import Options, pairs_of_command, rows
from planner.units import percent, show
from planner.views.chart import Chart
from planner.views.figures import INK, markers
from planner.views.parts import parts_chart, stacked
from planner.views.prices import cheapest_lines, prices_block
from planner.views.sweeps import knee_said, sweep_parts
from planner.views.view import Block, Link, Parts, View, words

_MOST_NOTES = 8
_MOST_ROWS = 500  # of the table of requests; --csv has all
_SMALL = 0.005  # parts of a difference below this share of the step are left out of the table
# figures that a narrow line leaves out, the first one first
_LESS = ("kWh", "free", "tokens/s/GPU", "GPUs", "MFU", "memory", "tokens/s")


def view(comparison: Comparison, given: Mapping[str, object], csv: str = "") -> View:
    """Side by side with differences, or the curves of a sweep; refused requests and notes at the
    end.

    given: of the request, whose value of what is swept is marked.
    """
    answered = [row for row in comparison.points if row.refused is None]
    more = [*_prices(comparison), *_refused(comparison), _requests(comparison.points)]
    if comparison.difference is not None:
        parts, verdict = _side_blocks(comparison, comparison.difference), _most(answered)
    else:
        parts, verdict = sweep_parts(comparison, given), knee_said(comparison, given)
    return View.of(
        (*parts, *more),
        verdict=verdict,
        mark="yes" if any(row.fits for row in answered) else "no",
        notes=comparison.notes,
        noted="Notes",
        csv=csv,
    )


def _heading(figure: Figure) -> str:
    """A column of a figure; its unit is in the heading where it is not written."""
    unit = "days" if figure.name == "days" else figure.unit
    title = figure.heading or figure.label
    return f"{title}|{unit if unit in ('s', 'B', 'days', '%') else 'number'}"


def layout_cell(row: Point) -> str:
    return f"{describe(row.layout)} [{row.stack}]"


def _refused(comparison: Comparison) -> list[Block]:
    refused = [row for row in comparison.points if row.refused is not None]
    if not refused:
        return []
    block = Block(
        f"Without an answer: {len(refused)} of {len(comparison.points)}",
        header=["request", "why"],
        rows=[[row.label, row.refused or ""] for row in refused[:_MOST_NOTES]],
        order="as requested",
    )
    if len(refused) > _MOST_NOTES:
        block.below.append(f"{_MOST_NOTES} shown (--csv and --json list all)")
    return [block]


# side by side


def _prices(comparison: Comparison) -> list[Block]:
    """The prices, with the cheapest request at them and elsewhere."""
    block = prices_block(comparison.prices)
    block.text = cheapest_lines(comparison.prices) + block.text
    return [block] if comparison.prices.per == "run" or comparison.at == "cost" else []


def _requests(rows: Sequence[Point]) -> Block:
    """Every request with all its figures."""
    block = Block(
        "Requests",
        header=["request", *map(_heading, FIGURES), "layout"],
        order="as requested",
        only="page",
        folded=True,
        links=[Link(row.command) for row in rows[:_MOST_ROWS]],
    )
    for row in rows[:_MOST_ROWS]:
        refused = row.refused is not None
        label = row.label + ("" if refused or row.fits else " (does not fit)")
        figures = [None if refused else f.of(row) for f in FIGURES]
        block.rows.append([label, *figures, row.refused if refused else layout_cell(row)])
    if len(rows) > _MOST_ROWS:
        block.text.append(f"{_MOST_ROWS} of {len(rows)} requests; --csv has all.")
    return block


def _basis(comparison: Comparison) -> str:
    """The quantity held equal, and how nearly."""
    if comparison.at == "count":
        return "at the GPUs given"
    apart = max(abs(row.equal.off_frac) for row in comparison.points if row.equal)
    return f"at equal {comparison.at}" + (f" within {percent(apart)}" if apart else "")


def _side_blocks(comparison: Comparison, difference: Difference) -> Parts:
    answered = [row for row in comparison.points if row.refused is None]
    shown = [
        figure
        for figure in FIGURES
        if figure.heading and any(figure.of(row) is not None for row in answered)
    ]
    models = {row.model for row in answered}
    names = ", ".join(option.name for option in comparison.dimensions)
    table = Block(
        f"{answered[0].model if len(models) == 1 else 'Models'}: by {names}, {_basis(comparison)}",
        header=["request", *map(_heading, shown)],
        rows=[
            [
                row.label + ("" if row.fits else " (does not fit)"),
                *(figure.of(row) for figure in shown),
            ]
            for row in answered
        ],
        order="as requested",
        drop=_LESS,
        below=[f"{row.label}: {layout_cell(row)}" for row in answered],
        marks=["" if row.fits else "no" for row in answered],
        links=[Link(row.command) for row in answered],
    )
    against = Block(
        f"Against {difference.to}",
        header=["request", *(f"{figure.heading}|+%" for figure in shown)],
        order="as requested",
        drop=_LESS,
        rows=[
            [change.label, *(change.change_frac[figure.name] for figure in shown)]
            for change in difference.rows
            if change.label != difference.to
        ],
    )
    steps = parts_chart({row.label: row.step.components for row in answered})
    return [*_inputs(comparison, answered), table, steps, against, _difference_block(difference)]


def _inputs(comparison: Comparison, answered: Sequence[Point]) -> list[Block]:
    """Options in which whole scenarios differ; of options that are varied the labels say it."""
    if [dimension.name for dimension in comparison.dimensions] != ["scenario"]:
        return []
    given = [dict(pairs_of_command(row.command, Options, "estimate")) for row in answered]
    names = [n for n in rows(Options) if len({options.get(n) for options in given}) > 1]
    if not names:
        return []
    block = Block(
        f"{len(answered)} plans side by side",
        header=["input", *(row.label for row in answered)],
        rows=[[_option(name), *(options.get(name, "") for options in given)] for name in names],
        order="inputs that differ",
    )
    return [block]


def _option(name: str) -> str:
    return rows(Options)[name].says.label or words(name)


def _most(answered: Sequence[Point]) -> str:
    """Which request trains most tokens a second."""
    fitting = [row for row in answered if row.fits]
    if not fitting:
        return "NOTHING FITS"
    best = max(fitting, key=lambda row: row.throughput.tokens_per_s)
    return f"most tokens/s: {best.label}, {show(best.throughput.tokens_per_s, '')}"


def _difference_block(difference: Difference) -> Block:
    """Seconds of each part beyond the first answer; the columns sum to the last line."""
    others = [row for row in difference.rows if row.label != difference.to]
    base = next(row for row in difference.rows if row.label == difference.to)
    least = _SMALL * max(row.seconds for row in difference.rows)
    large = [
        name
        for name in base.components
        if max((abs(row.components[name]) for row in others), default=0.0) >= least
    ]
    small = [
        sum(value for name, value in row.components.items() if name not in large) for row in others
    ]
    block = Block(
        f"What makes the difference: seconds per {difference.per} beyond {difference.to}'s"
        f" {show(base.seconds, 's')}",
        header=["part", *(f"{row.label}|+s" for row in others)],
        rows=[[words(name), *(row.components[name] for row in others)] for name in large],
        order="parts of the step, then the whole",
        chart=difference_chart(difference) if others else None,
    )
    if any(small):
        block.rows.append(["smaller parts together", *small])
    block.rows.append(["whole", *(row.difference_s for row in others)])
    for row in others:
        most = sorted(row.components.items(), key=lambda item: -abs(item[1]))[:2]
        named = ", ".join(f"{words(name)} {_signed(value)}" for name, value in most if value)
        if named:
            block.text.append(
                f"{row.label}: {_signed(row.difference_s)}"
                f" ({percent(row.difference_s / base.seconds, sign=True)}), most of it {named}"
            )
    return block


def _signed(seconds: float) -> str:
    return show(seconds, "s", sign=True)


def difference_chart(difference: Difference) -> Chart:
    """Difference of each part from the first request, for every other request."""
    others = [row for row in difference.rows if row.label != difference.to]
    labels, per = [row.label for row in others], f"seconds per {difference.per}"
    parts = {name: [row.components[name] for row in others] for name in others[0].components}
    apart = [row.difference_s for row in others]
    hover = [f"{row.label}, whole difference: {row.difference_s:+.4g} s" for row in others]
    total = markers("whole difference", labels, apart, INK, hover, size=10, symbol="diamond")
    return Chart(
        "difference",
        f"What makes the difference to {difference.to}",
        "",
        stacked(labels, parts, per, "relative", total),
        caption=f"{per.capitalize()} beyond the first; the parts of a bar sum to its whole"
        " difference.",
    )
