"""Sweep any number, with the knee and the current value marked; or set values of any option side by
side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from planner.specs.base import PlanError
from planner.specs.documents.compare import Comparison, Curve
from planner.specs.options import Given, Group, Options, Record, option, rows, taken
from planner.specs.options.own import CompareOptions
from planner.verbs import compare
from planner.views.compare import axis_name, compare_blocks
from planner.views.compare_page import difference_chart, parts_chart, sweep_charts
from web.state import PAGE
from web.tabs.base import Asked, Found, Mark, Tab, Table
from web.tabs.charts import marked, tabled

_OVER = "gpus"  # what is swept where nobody says
_KNEE = 0.95  # of the best tokens/s per GPU: from there on more of a number brings little
_AROUND = 8  # times below and above the current value, where no values are given


@dataclass(frozen=True, kw_only=True)
class SweepForm(Record):
    """`--sweep NAME=VALUES` as two fields of a form."""

    GROUP: ClassVar = Group("sweep", "Sweep")

    over: Annotated[
        str | None,
        option(
            "The number that is swept",
            label="Sweep",
            length=60,
            example="gpus",
            unset="GPUs, or nothing beside others",
        ),
    ] = None
    values: Annotated[
        str | None,
        option(
            "8..4096 (doubling), 8..512*4, 16..128+16 or a list",
            label="Its values",
            length=4096,
            example="8..512",
            unset="around the current value",
        ),
    ] = None


def swept() -> list[tuple[str, str]]:
    """(name, label) of every option that can be swept, first the options of the form's first
    level."""
    found = [row for row in taken(Options, "compare") if row.is_number]
    found.sort(key=lambda row: row.says.form != "shown")
    return [(row.name, row.says.label or row.name.replace("_", " ")) for row in found]


def _find(asked: Asked) -> Comparison:
    form, own = asked.of(SweepForm), asked.of(CompareOptions)
    given = Given(asked.given)
    sweep = own.sweep
    over = form.over or ("" if sweep or own.vary else _OVER)
    if over:
        if over not in dict(swept()):
            raise PlanError("over", over, "is not a number that can be swept")
        sweep = (*sweep, f"{over}={form.values or _around(over, asked)}")
    named = {text.partition("=")[0].strip().replace("-", "_") for text in (*sweep, *own.vary)}
    for name in named & given.keys():
        del given[name]
    try:
        return compare.compare(own.changed(sweep=sweep, jobs=1), given)
    except PlanError as error:
        if over and error.field.startswith("--sweep"):
            raise PlanError("values", form.values, error.remedy) from None
        raise


def _around(name: str, asked: Asked) -> str:
    """A range that doubles through the current value. Raises PlanError where it has none."""
    row, value = rows(Options)[name], getattr(asked.state.options, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise PlanError("values", None, "is needed: there is no current value to go around")
    if row.kind is int:
        whole = int(value)
        first = whole // (whole & -whole) if whole % _AROUND else whole // _AROUND
        return f"{first}..{whole * _AROUND}"
    return ",".join(f"{value * factor:.6g}" for factor in (0.25, 0.5, 1.0, 2.0, 4.0))


def _now(curve: Curve, asked: Asked) -> float | None:
    value = getattr(asked.state.options, curve.axis, None)
    return float(value) if isinstance(value, int | float) else None


def _knee(curve: Curve) -> float | None:
    """GPUs: up to which more pay. Else the least value that is within a share of the best."""
    if curve.axis == "gpus":
        return curve.pays_until
    return min(_near(curve), default=None)


def _near(curve: Curve) -> list[float]:
    """Values of the axis that are within that share of the best."""
    fitting = [point for point in curve.points if point.fits]
    best = max((point.tokens_per_s_per_gpu for point in fitting), default=0.0)
    return [p.value for p in fitting if p.tokens_per_s_per_gpu >= _KNEE * best]


def _show(found: Comparison, asked: Asked) -> Found:
    blocks = [block for block in compare_blocks(found) if block.title != "Notes"]
    fits = any(point.fits for point in found.points)
    common: dict[str, Any] = {
        "command": _command(found, asked),
        "mark": "yes" if fits else "no",
        "notes": tuple(found.notes),
        "csv": compare.csv_text(found),
    }
    if found.difference is not None:
        table, *rest = blocks
        answered = [row for row in found.points if row.refused is None]
        charts = [
            parts_chart("parts", {row.label: row.step.components for row in answered}),
            tabled(difference_chart(found.difference)),
        ]
        verdict = table.text.pop(0)
        return Found(
            title=table.title,
            verdict=verdict,
            parts=(
                Table(
                    table,
                    commands=tuple(row.command for row in answered),
                    marks=tuple("" if row.fits else "no" for row in answered),
                ),
                *charts,
                *map(Table, rest),
            ),
            **common,
        )
    return _swept(found, asked, [block for block in blocks if block.header], common)


def _swept(found: Comparison, asked: Asked, blocks: list[Any], common: dict[str, Any]) -> Found:
    first = found.curves[0]
    now, knees = _now(first, asked), [_knee(curve) for curve in found.curves]
    at = {
        f"knee {curve.label}".strip(): knee
        for curve, knee in zip(found.curves, knees, strict=True)
        if knee is not None
    }
    at |= {} if now is None else {"now": now}
    charts = [
        tabled(marked(chart, at)) if chart.name != "parts" else chart
        for chart in sweep_charts(found)
    ]
    commands = {
        (label_of(point.label, first.axis), point.values[first.axis]): point.command
        for point in found.points
    }
    tables, rest, curves = [], [], list(zip(found.curves, knees, strict=True))
    for block in blocks:
        if curves and len(block.rows) == len(curves[0][0].points) and " swept" in block.title:
            curve, knee = curves.pop(0)
            tables.append(
                Table(
                    block,
                    commands=tuple(
                        commands.get((curve.label, point.value)) for point in curve.points
                    ),
                    marks=tuple(
                        _mark(point.fits, point.value, knee, now) for point in curve.points
                    ),
                    note="Shaded: the knee. Outlined: the current value.",
                )
            )
        else:
            rest.append(Table(block))
    return Found(
        title=tables[0].block.title if tables else "Sweep",
        verdict=_said(first, knees[0], now),
        parts=(*charts[:2], *tables, *charts[2:], *rest),
        **common,
    )


def label_of(label: str, axis: str) -> str:
    """The label of a request without what it says of the axis."""
    named = axis.replace("_", " ")
    return ", ".join(part for part in label.split(", ") if not part.startswith(f"{named} "))


def _mark(fits: bool, value: float, knee: float | None, now: float | None) -> Mark:
    if not fits:
        return "no"
    return "here" if value == knee else "now" if value == now else ""


def _said(curve: Curve, knee: float | None, now: float | None) -> str:
    """Where the knee is, and what the current value makes of it."""
    if knee is None:
        return "nothing fits"
    name = axis_name(curve)
    if curve.axis == "gpus":
        said = f"More GPUs pay up to {knee:,g}"
    else:
        last, most = max(_near(curve)), max(p.value for p in curve.points if p.fits)
        where = f"at {name} {knee:,g}" if last == knee else f"from {name} {knee:,g} to {last:,g}"
        where = f"from {name} {knee:,g} on" if last == most else where
        said = f"Within 5 % of the best throughput per GPU {where}"
    here = next((p for p in curve.points if p.value == now and p.fits), None)
    best = max((p.tokens_per_s_per_gpu for p in curve.points if p.fits), default=0.0)
    if here is None:
        return said
    share = here.tokens_per_s_per_gpu / best
    return f"{said}; the current {here.value:,g} has {share:.0%} of the best per GPU"


def _command(found: Comparison, asked: Asked) -> str:
    """The command of `dpplan compare`, which knows no form."""
    own = asked.of(CompareOptions)
    names = {dimension.name for dimension in found.dimensions}
    sweeps = tuple(f"{d.name}={','.join(d.values)}" for d in found.dimensions if d.swept)
    given = Given({n: value for n, value in asked.given.items() if n not in names})
    options = asked.state.options.changed(
        **{name: rows(Options)[name].default for name in names & asked.given.keys()}
    )
    state = replace(asked.state, options=options)
    return replace(
        asked, state=state, given=given, own={CompareOptions: own.changed(sweep=sweeps)}
    ).command


TAB = Tab(
    path="/sweep",
    name="Compare & sweep",
    title="Compare, and sweep any input",
    lead=(
        "Sweep one option over a range, with the knee and the current value marked; or compare "
        "a few values of any option side by side, with what makes the difference."
    ),
    ask="Compare",
    verb="compare",
    api="sweep",
    documents=("compare",),
    records=(CompareOptions,),
    words=(SweepForm,),
    choices={"over": swept},
    shown=("model", "gpu", "gpus", "over", "values", "vary"),
    folded=(
        "at",
        "scaling",
        "stop_below",
        "tokens",
        "seq_len",
        "global_batch",
        "precision",
        "market",
    ),
    start=[*PAGE, ("over", "gpus")],
    usual=PAGE[3:],
    find=_find,
    show=_show,
)
