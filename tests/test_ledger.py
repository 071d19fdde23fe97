"""Ledgers of named leaves, numbers that know their source, the recorder, and what every registered
formula owes its reader."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import pkgutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner.formulas
from planner.ledger import (
    FORMULAS,
    Sourced,
    formula,
    group,
    merge,
    recording,
    scale,
    section,
    total,
    under,
)
from planner.units import UnitError, unit_factor

for _module in pkgutil.iter_modules(planner.formulas.__path__):
    importlib.import_module(f"planner.formulas.{_module.name}")


def _examples() -> dict[str, dict[str, Any]]:
    """Inputs of every registered formula: a list is a column of one value per layout, and what
    stands in a list of its own, like a number, is the same for all."""
    text = (Path(__file__).parent / "data/formula_examples.json").read_text(encoding="utf-8")
    return {
        name: {
            key: tuple(value[0])
            if isinstance(value, list) and isinstance(value[0], list)
            else value
            for key, value in inputs.items()
        }
        for name, inputs in json.loads(text).items()
    }


EXAMPLES = _examples()
NAMES = st.sampled_from(["a", "a/b", "a/b/c", "b", "b/c", "c/a/a"])
LEDGERS = st.dictionaries(NAMES, st.integers(-1000, 1000).map(float))


def test_arithmetic_of_a_small_ledger() -> None:
    ledger = {"attention/qkv": 3.0, "attention/out": 1.0, "mlp": np.array([2.0, 4.0])}
    assert total(ledger).tolist() == [6.0, 8.0]
    assert group(ledger)["attention"] == 4.0
    assert list(group(ledger)) == ["attention", "mlp"]
    assert under("layer", {"qkv": 1.0}) == {"layer/qkv": 1.0}
    assert merge({"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 4.0}) == {"a": 1.0, "b": 5.0, "c": 4.0}
    assert scale({"a": 1.5, "b": -2.0}, 2.0) == {"a": 3.0, "b": -4.0}
    assert total({}) == 0.0


@given(LEDGERS, LEDGERS)
def test_nothing_is_lost_by_merging_grouping_or_renaming(
    a: dict[str, float], b: dict[str, float]
) -> None:
    assert total(merge(a, b)) == total(a) + total(b)
    for depth in (1, 2, 3):
        assert total(group(a, depth)) == total(a)
    assert group(a, 3) == a
    assert set(group(under("top", a))) == ({"top"} if a else set())
    assert total(scale(a, 3.0)) == 3.0 * total(a)


def test_ledgers_given_are_left_alone() -> None:
    a, b = {"x": np.array([1.0])}, {"x": np.array([2.0])}
    merge(a, b)
    group({"x/y": a["x"], "x/z": b["x"]})
    scale(a, 5.0)
    assert a["x"].tolist() == [1.0]
    assert b["x"].tolist() == [2.0]


def test_a_sourced_number_computes_like_a_float() -> None:
    rate = Sourced(2.0, "B/s", "vendor", "datasheet", "2026-01")
    for result in (rate * 3, 3 * rate, rate + 1, rate / 2, -rate, rate**2, np.float64(3) * rate):
        assert not isinstance(result, Sourced)
    assert rate * 3 == 6.0
    assert rate == 2.0
    assert hash(rate) == hash(2.0)
    assert (np.array([1.0, 2.0]) * rate).dtype == np.float64


@pytest.mark.parametrize(
    "again",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deep"],
)
def test_a_copy_keeps_its_source(again: Any) -> None:
    first = again(Sourced(1.5, "s", "measured", "a table", "2026-02"))
    assert (float(first), first.unit, first.kind, first.source, first.date) == (
        1.5,
        "s",
        "measured",
        "a table",
        "2026-02",
    )


@pytest.fixture
def double() -> Any:
    """Two formulas of a module that does not exist, one calling the other; unregistered
    afterwards."""
    before = dict(FORMULAS)

    @formula(unit="1", equation="2 x", source="test")
    def inner(x: float) -> float:
        """Twice."""
        return 2 * x

    @formula(unit="1", equation="2 (x + y)", source="test")
    def outer(x: float, y: float = 1.0) -> float:
        """Twice the sum."""
        return inner(x + y)

    yield outer
    FORMULAS.clear()
    FORMULAS.update(before)


def test_calls_are_recorded_as_a_tree(double: Any) -> None:
    with recording("root") as tree:
        with section("part"):
            double(3.0, y=4.0)
        double(1.0)
    part, second = tree.calls
    assert (tree.formula.name, part.formula.name, second.formula.name) == ("root", "part", "outer")
    (first,) = part.calls
    assert (first.inputs, first.output) == ({"x": 3.0, "y": 4.0}, 14.0)
    assert [(call.formula.name, call.inputs, call.output) for call in first.calls] == [
        ("inner", {"x": 7.0}, 14.0)
    ]
    assert (second.inputs, second.output) == ({"x": 1.0}, 4.0)


def test_nothing_is_recorded_when_off(double: Any) -> None:
    with recording() as tree:
        pass
    with section("outside"):
        assert double(1.0) == 4.0
    assert tree.calls == []


def test_an_inner_recording_is_its_own(double: Any) -> None:
    with recording() as first:
        double(1.0)
        with recording() as two:
            double(2.0)
        double(3.0)
    assert [call.inputs["x"] for call in first.calls] == [1.0, 3.0]
    assert [call.inputs["x"] for call in two.calls] == [2.0]


def test_the_tree_survives_an_error(double: Any) -> None:
    with recording() as tree:
        with pytest.raises(TypeError), section("fails"):
            double("no number")
        double(1.0)
    assert [call.formula.name for call in tree.calls] == ["fails", "outer"]


def test_threads_record_only_themselves(double: Any) -> None:
    together = threading.Barrier(3)
    trees: dict[float, Any] = {}

    def explain(x: float) -> None:
        with recording() as tree:
            together.wait()
            for _ in range(50):
                double(x)
            together.wait()
        trees[x] = tree

    threads = [threading.Thread(target=explain, args=(x,)) for x in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    together.wait()
    double(3.0)  # no recorder is active in this thread
    together.wait()
    for thread in threads:
        thread.join()
    for x, tree in trees.items():
        assert [call.inputs["x"] for call in tree.calls] == [x] * 50


SHIPPED = sorted(FORMULAS)


def _function(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"planner.{module}"), attribute)


def test_every_formula_has_an_example_and_every_example_a_formula() -> None:
    assert sorted(EXAMPLES) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_vector_equals_scalar(name: str) -> None:
    function, given_ = _function(name), EXAMPLES[name]
    columns = {key: np.array(value) for key, value in given_.items() if isinstance(value, list)}
    for column in columns.values():
        column.setflags(write=False)  # inputs belong to the caller
    together = np.asarray(function(**(given_ | columns)))
    (count,) = {len(column) for column in columns.values()}
    assert together.shape == (count,)
    assert together.dtype == np.float64
    assert np.isfinite(together).all()
    for row in range(count):
        alone = {key: value[row] if key in columns else value for key, value in given_.items()}
        assert float(function(**alone)) == pytest.approx(together[row], rel=1e-14, abs=0)
        one_row = given_ | {key: column[row : row + 1] for key, column in columns.items()}
        assert np.asarray(function(**one_row)).tolist() == pytest.approx(
            [together[row]], rel=1e-14, abs=0
        )


@pytest.mark.parametrize("name", SHIPPED)
def test_rows_do_not_depend_on_their_order(name: str) -> None:
    function, given_ = _function(name), EXAMPLES[name]
    columns = {key: np.array(value) for key, value in given_.items() if isinstance(value, list)}
    forward = np.asarray(function(**(given_ | columns)))
    backward = np.asarray(
        function(**(given_ | {key: column[::-1] for key, column in columns.items()}))
    )
    # a reversed view is strided, and SIMD loops of strided and of contiguous arrays may round apart
    assert backward[::-1].tolist() == pytest.approx(forward.tolist(), rel=1e-14, abs=0)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_formula_says_what_it_is(name: str) -> None:
    formula = FORMULAS[name]
    assert formula.equation
    assert len(formula.source) >= 5
    assert formula.doc.split("\n\n")[0].endswith("."), "the docstring begins with a sentence"
    if formula.unit not in ("layers", "element", "J"):
        try:
            unit_factor(formula.unit)
        except UnitError as error:
            pytest.fail(str(error))


def test_names_of_formulas_are_unique() -> None:
    """The tree of an explanation refers to formulas only by name."""
    names = [formula.name for formula in FORMULAS.values()]
    assert len(set(names)) == len(names)
