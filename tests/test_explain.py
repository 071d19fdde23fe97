"""`dpplan estimate --explain` shows every formula with its source, and its numbers reproduce
themselves."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from command import dpplan, refused
from contract_requests import REQUESTS, estimate_of

from planner.ledger import FORMULAS


def calls(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [tree, *(inner for call in tree.get("calls", []) for inner in calls(call))]


@pytest.fixture(scope="module")
def explained() -> Any:
    return dpplan("estimate", *REQUESTS["dense, fixed"].split(), "--explain", "--json").json()


def test_explain_adds_the_tree_and_changes_nothing_else(explained: Any) -> None:
    assert {k: v for k, v in explained.items() if k not in ("explain", "offload")} == estimate_of(
        "dense, fixed"
    ).json()


def test_every_explained_formula_states_equation_unit_source_and_numbers(explained: Any) -> None:
    formulas = [call for call in calls(explained["explain"]) if "equation" in call]
    assert len(formulas) > 50
    for call in formulas:
        assert all(
            isinstance(call[key], str) and call[key]
            for key in ("name", "equation", "unit", "source")
        ), call["name"]
        assert call["inputs"], call["name"]
        assert all("value" in given for given in call["inputs"].values())
        assert call["output"] is not None


def test_explained_numbers_reproduce_themselves(explained: Any) -> None:
    """Each formula, called with the numbers that the tree shows going in, gives the number that it
    shows coming out."""
    functions = {
        formula.name: getattr(import_module(f"planner.{formula.module}"), formula.name)
        for formula in FORMULAS.values()
    }
    checked = set()
    for call in calls(explained["explain"]):
        given = {name: value["value"] for name, value in call.get("inputs", {}).items()}
        if not given or not all(
            isinstance(v, int | float | list) for v in (call["output"], *given.values())
        ):
            continue
        shown = {
            name: np.array(v, float) if isinstance(v, list) else v for name, v in given.items()
        }  # one value per stage
        again = np.asarray(functions[call["name"]](**shown)).reshape(-1)
        assert again == pytest.approx(np.asarray(call["output"], float).reshape(-1), rel=1e-12), (
            call["name"]
        )
        checked.add(call["name"])
    assert {"gemm_s", "state_bytes"} <= checked
    assert len(checked) > 10


def test_explain_as_text_names_every_formula_with_its_source(explained: Any) -> None:
    text = dpplan("estimate", *REQUESTS["dense, fixed"].split(), "--explain").stdout
    assert text.isascii()
    for call in calls(explained["explain"]):
        assert call["name"] in text
        if "equation" in call:
            assert call["equation"].encode("ascii", "backslashreplace").decode() in text
            assert call["source"].encode("ascii", "backslashreplace").decode() in text


def test_explain_memory_prints_every_stage_and_phase() -> None:
    given = (*REQUESTS["dense, fixed"].split(), "--explain", "memory")
    report, text = dpplan("estimate", *given, "--json").json(), dpplan("estimate", *given).stdout
    assert [call["name"] for call in report["explain"]["calls"]] == ["memory"]
    for stage in report["memory"]["per_stage"]:
        assert f"stage {stage['stage']}, {stage['layers']:g} layers: peak " in text
        assert max(phase["bytes"] for phase in stage["phases"]) == stage["peak_bytes"]
        for phase in stage["phases"]:
            assert sum(phase["components"].values()) == pytest.approx(phase["bytes"], rel=1e-12)
            assert f"    {phase['name']}: " in text
    assert "elasticity" not in text
    assert "elasticity" in dpplan("estimate", *given[:-1], "time").stdout


def test_explain_knows_two_parts() -> None:
    request = ("estimate", *REQUESTS["dense, fixed"].split())
    refused(dpplan(*request, "--explain", "disk"), "'disk'", "'memory' or 'time'")
    refused(dpplan(*request, "memory"), "--explain", "memory")


def test_every_figure_is_made_of_what_the_page_shows() -> None:
    """The blocks of `/explain`."""
    request = REQUESTS["dense, fixed"].split()
    text = dpplan("estimate", *request, "--explain").stdout
    for title in ("Step time", "Memory", "Throughput", "FLOP utilisation", "Energy"):
        assert f"{title}, as it is summed or multiplied" in text
    assert "formulas  tokens per s" in text
