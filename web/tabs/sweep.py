"""The form of a sweep: `dpplan compare` with one number over a range, as two fields."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from planner import api
from planner.specs.base import PlanError
from planner.specs.documents.compare import Comparison
from planner.specs.options import Given, Group, Options, Record, option, rows, taken
from planner.specs.options.own import CompareOptions
from planner.verbs import compare
from planner.views import compare as shown
from planner.views.view import View
from web.tabs.base import Answers, TabRequest

_OVER = "gpus"  # what is swept by default
_AROUND = 8  # times below and above the current value, where no values are given


@dataclass(frozen=True, kw_only=True)
class SweepForm(Record):
    """`--sweep NAME=VALUES` as two fields of a form, twice."""

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
    over_too: Annotated[
        str | None,
        option(
            "A second number: both make a map",
            label="And sweep",
            length=60,
            example="global_batch",
            unset="nothing else",
        ),
    ] = None
    values_too: Annotated[
        str | None,
        option(
            "As for the first",
            label="Its values",
            length=4096,
            example="64..512",
            unset="around the current value",
        ),
    ] = None


def swept() -> list[tuple[str, str]]:
    """(name, label) of every option that can be swept, first the options of the form's first
    level."""
    numbers = [row for row in taken(Options, "compare") if row.is_number]
    numbers.sort(key=lambda row: row.says.form != "shown")
    return [(row.name, row.says.label or row.name.replace("_", " ")) for row in numbers]


def _find(request: TabRequest) -> Comparison:
    form, compared = request.of(SweepForm), request.of(CompareOptions)
    given = Given(request.given)
    sweep = compared.sweep
    over = form.over or ("" if sweep or compared.vary else _OVER)
    fields = ((over, "values", form.values), (form.over_too, "values_too", form.values_too))
    for name, field, values in fields:
        if not name:
            continue
        if name not in dict(swept()):
            raise PlanError(
                field.replace("values", "over"), name, "is not a number that can be swept"
            )
        sweep = (*sweep, f"{name}={values or _around(name, field, request)}")
    named = {text.partition("=")[0].strip().replace("-", "_") for text in (*sweep, *compared.vary)}
    for name in named & given.keys():
        del given[name]
    try:
        return compare.compare(compared.changed(sweep=sweep, jobs=1), given, request.progress)
    except PlanError as error:
        typed = [field for name, field, values in fields if values and f"{name}=" in str(error)]
        if over and error.field.startswith("--sweep"):
            field = typed[0] if typed else "values"
            raise PlanError(field, getattr(form, field), error.remedy) from None
        raise


def _current(name: str, request: TabRequest) -> Any:
    """The value of an option as it is given, or as the plan of the request fills it in."""
    value = getattr(request.state.options, name)
    if value is not None:
        return value
    filled_in = api.estimate(request.state.options, brief=True).scenario.get(name)
    return None if filled_in is None else filled_in.value


def _number(value: Any) -> tuple[Any, str]:
    """A number that is written with its unit, and the unit; another value as it is."""
    if isinstance(value, str):
        number, _, unit = value.partition(" ")
        with contextlib.suppress(ValueError):
            return float(number), unit
    return value, ""


def _around(name: str, field: str, request: TabRequest) -> str:
    """A range through the current value. Raises PlanError where it has none."""
    row, value = rows(Options)[name], _current(name, request)
    if row.choices:
        return ",".join(map(str, row.choices))
    value, unit = _number(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise PlanError(field, None, "is needed: there is no current value to go around")
    if row.kind is int:
        whole = int(value)
        first = whole // (whole & -whole) if whole % _AROUND else whole // _AROUND
        return f"{first}..{whole * _AROUND}"
    return ",".join(f"{value * factor:.6g} {unit}".strip() for factor in (0.25, 0.5, 1.0, 2.0, 4.0))


def _view(document: Comparison, request: TabRequest) -> View:
    axes = [dimension.name for dimension in document.dimensions if dimension.swept]
    filled_in = {name: _number(_current(name, request))[0] for name in axes}
    now = {**request.state.options.given(), **filled_in}
    return shown.view(document, now, compare.csv_text(document))


def _command(document: Comparison, request: TabRequest) -> str:
    """The command of `dpplan compare`, which knows no form."""
    compared = request.of(CompareOptions)
    names = {dimension.name for dimension in document.dimensions}
    sweeps = tuple(f"{d.name}={','.join(d.values)}" for d in document.dimensions if d.swept)
    given = Given({n: value for n, value in request.given.items() if n not in names})
    options = request.state.options.changed(
        **{name: rows(Options)[name].default for name in names & request.given.keys()}
    )
    state = replace(request.state, options=options)
    return replace(
        request, state=state, given=given, own={CompareOptions: compared.changed(sweep=sweeps)}
    ).command


ANSWERS = Answers(_find, _view, _command, (SweepForm,), {"over": swept, "over_too": swept})
