"""Numbers of the option table: each has bounds, just outside is refused in every place that takes
it, just inside is answered with finite figures; numbers in files likewise."""

from __future__ import annotations

import inspect
import json
import math
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast, get_args

import jsonschema
import pytest
from command import dpplan, refused
from not_none import not_none

from planner import api
from planner.inputs import scenario_file
from planner.specs import hardware
from planner.specs.base import PlanError, Quantity, Spec
from planner.specs.cluster import ClusterTemplate
from planner.specs.document import plain
from planner.specs.model import ModelSpec
from planner.specs.options import (
    Group,
    Options,
    Record,
    Row,
    commands,
    data,
    option,
    own,
    parallel,
    recommend,
    rows,
)
from planner.specs.options.checked import from_text, read
from planner.specs.options.schema import scenario_schema
from planner.specs.price import PriceList
from planner.specs.stack import StackSpec
from web import state


@dataclass(frozen=True, kw_only=True)
class MadeUp(Record):
    GROUP: ClassVar = Group("made up", "Made up")

    mass: Annotated[
        str | None,
        option("A mass", unit="kg", needs_unit=("kg", "g"), least=2, most=5, example="3 kg"),
    ] = None
    share: Annotated[
        float | None, option("A share", least=0.1, most=0.9, or_zero=True, example="0.5")
    ] = None
    count: Annotated[int | None, option("A count", least=3, most=7, example="5")] = None


RECORDS = [
    record
    for module in (commands, own, parallel, recommend, data)
    for record in vars(module).values()
    if inspect.isclass(record) and issubclass(record, Record)
]
TABLE = {
    (record.__name__, row.name): (record, row)
    for record in (Options, MadeUp, *RECORDS)
    for row in rows(record).values()
}
NUMBERS = {
    key: pair
    for key, pair in TABLE.items()
    if pair[1].is_number or pair[1].says.least is not None or pair[1].says.each
}
NOT_NUMBERS = ("0x10", "１２", "5e", "1e400", "nan", "inf", "-inf", "true", "1,5", "--5", "")


def spelled(row: Row, value: float) -> Any:
    """A value of the option's type: an integer, a float, or a text with its unit."""
    if row.kind is int:
        return round(value)
    word = row.says.unit
    text = repr(float(value)) + ("" if word in ("", "1", "tokens") else f" {word}")
    return float(value) if row.kind is float else text + " tokens" * (word == "tokens")


def outside(row: Row) -> list[float]:
    """The numbers next to the bounds, on the wrong side."""
    holds = row.kind is int
    low, high = row.says.least or 0.0, row.says.most or 0.0
    below = low - 1 if holds else low * 0.99 or -1e-9
    return [below, -1 - low, high + 1 if holds else high * 1.01, high * 1e30]


@pytest.mark.parametrize("key", NUMBERS, ids=".".join)
def test_a_number_has_bounds_that_hold(key: tuple[str, str]) -> None:
    record, row = NUMBERS[key]
    assert row.says.least is not None, "a number without a least"
    assert row.says.most is not None, "a number without a most"
    assert row.says.least < row.says.most
    if not row.is_number or row.is_several:
        return  # several numbers in a text: their verb reads them
    needed = {n: from_text(r, r.says.example) for n, r in rows(record).items() if r.is_needed}
    for value in (row.says.least, row.says.most, *([0.0] if row.says.or_zero else [])):
        read(record, {**needed, row.name: spelled(row, value)})
    for value in outside(row):
        with pytest.raises(PlanError) as error:
            read(record, {**needed, row.name: spelled(row, value)})
        assert error.value.field == row.flag
    for text in NOT_NUMBERS:
        with pytest.raises(PlanError):
            read(record, {**needed, row.name: text})
        with pytest.raises((ValueError, PlanError)):
            read(record, {**needed, row.name: from_text(row, text)})
    for value in (True, math.nan, math.inf, 10**400):
        with pytest.raises(PlanError):
            read(record, {**needed, row.name: value})


REQUESTED = {row.name: row for row in rows(Options).values() if row.is_number}


@pytest.mark.parametrize("name", REQUESTED)
def test_command_line_scenario_form_and_schema_draw_the_same_line(
    name: str, tmp_path: Path
) -> None:
    """A value is accepted by all or refused by all."""
    row, schema = REQUESTED[name], jsonschema.Draft202012Validator(scenario_schema())
    inside = [not_none(row.says.least), not_none(row.says.most)]
    for value, good in [*((x, True) for x in inside), *((x, False) for x in outside(row))]:
        typed, file = spelled(row, value), tmp_path / "scenario.json"
        file.write_text(json.dumps({"model": "gpt2", name: typed}))
        took = [
            _taken(lambda typed=typed: api.read_options({"model": "gpt2", name: typed})),
            _taken(lambda file=file: api.read_options(scenario_file.read(str(file)))),
            _taken(
                lambda typed=typed: read(
                    Options, {"model": "gpt2", name: state.typed(row, str(typed))}
                )
            ),
        ]
        if not isinstance(typed, str):
            took.append(schema.is_valid({"model": "gpt2", name: typed}))
        if name != "nodes":  # whose GPUs are counted, too
            assert took == [good] * len(took), (typed, took)


def _taken(ask: Any) -> bool:
    try:
        ask()
    except PlanError:
        return False
    return True


REQUEST = {"model": "gpt2", "gpu": "h100", "gpus": 16, "tokens": "10B", "stack": "megatron-core"}
REQUEST |= {"tp": 1, "pp": 1, "cp": 1, "zero": 1, "recompute": "none", "micro_batch": 1}


def _corners() -> list[tuple[str, float]]:
    table = [row for row in REQUESTED.values() if "estimate" in row.verbs]
    every = [
        (row.name, x) for row in table for x in (row.says.least, row.says.most) if x is not None
    ]
    return random.Random(9).sample(every, 24)


@pytest.mark.parametrize(("name", "value"), _corners())
def test_at_the_bounds_every_figure_is_a_number(name: str, value: float) -> None:
    given = {**REQUEST, name: spelled(REQUESTED[name], value)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            estimate = api.estimate(api.read_options(given), brief=True)
        except PlanError:
            return
    assert all(math.isfinite(x) for x in _floats(plain(estimate)))
    assert all(x >= 0 for x in estimate.step.components.values())
    assert sum(estimate.step.components.values()) == pytest.approx(estimate.step.seconds)
    assert 0 <= estimate.throughput.mfu <= estimate.throughput.hfu <= 1
    assert 0 < estimate.run.goodput <= 1


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _floats(entry)


def _specs(spec: Any) -> set[type[Spec]]:
    """The specs that a file may hold."""
    names, todo = set(), [spec]
    while todo:
        first = todo.pop()
        if inspect.isclass(first) and issubclass(first, Spec) and first not in names:
            names.add(first)
            first.model_rebuild()
            todo += [field.annotation for field in first.model_fields.values()]
        else:
            todo += get_args(first)
    return names


FILES = (hardware.GpuSpec, hardware.LinkSpec, hardware.StorageSpec, ClusterTemplate, StackSpec)


def test_numbers_of_files_have_bounds() -> None:
    for spec in set(chain(*map(_specs, (*FILES, ModelSpec, PriceList)))):
        for name, field in spec.model_fields.items():
            kinds = get_args(field.annotation) or (field.annotation,)
            if int not in kinds and float not in kinds:
                continue
            words = {
                word
                for entry in field.metadata
                for word in ("ge", "gt", "le", "lt")
                if hasattr(entry, word)
            }
            assert words & {"ge", "gt"}, (spec, name)
            assert words & {"le", "lt"}, (spec, name)


@pytest.mark.parametrize("unit", ["B", "B/s", "FLOP/s", "s", "W", "USD/h", "token", "1"])
def test_a_quantity_of_a_file_is_within_its_range(unit: str) -> None:
    kind, maybe = Quantity(unit), Quantity(unit, exclusive=False)
    schema = kind.__get_pydantic_json_schema__(cast(Any, None), cast(Any, None))
    for bound in ("minimum", "maximum"):
        kind.read(schema[bound])
    for wrong in (0, -1, 1e-300, 1e30, math.inf, math.nan, True, 10**400, "１2", None):
        with pytest.raises(ValueError):
            kind.read(wrong)
    assert maybe.read(0) == 0
    with pytest.raises(ValueError, match="out of range"):
        maybe.read(1e-300)


def test_the_line_is_that_of_the_command_too() -> None:
    request = ("estimate", "--model", "gpt2", "--gpu", "h100")
    for flag, text in (("--gpus", "１２"), ("--price", "1e-300"), ("--data-iops", "1e-30")):
        refused(dpplan(*request, flag, text), flag)
