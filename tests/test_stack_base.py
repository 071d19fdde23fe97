"""Stacks that say what differs from another: what they take from it, what they cannot run, and what
is wrong with a file that rests on one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_tables import row, row_plan

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.stack import StackSpec

OWN = """id = "own"
title = "Own"
source = "own"
base = "{base}"

[supports]
recompute = ["full"]

[launch]
operator = {{ value = "20 us", kind = "measured", source = "own", date = "2026-11" }}
"""


def stack_on(folder: Path, base: str) -> StackSpec:
    path = folder / "own.toml"
    path.write_text(OWN.format(base=base), encoding="utf-8")
    return catalog.load("stacks", StackSpec, str(path))


def test_a_file_says_what_differs_and_what_is_its_own(tmp_path: Path) -> None:
    """Everything else comes from the base, except its names and the runs that are its own."""
    base, result = catalog.load("stacks", StackSpec, "nemo"), stack_on(tmp_path, "nemo")
    assert (result.id, result.aliases, result.printed_in) == ("own", (), {})
    assert result.supports.recompute == ["full"]
    assert float(result.launch.operator) == pytest.approx(20e-6)
    rest = {"launch": {"operator"}, "supports": {"recompute"}}
    names = {"id", "title", "source", "aliases", "base", "release_of", "since", "printed_in"}
    apart: Any = {**dict.fromkeys(names, True), **rest}
    assert result.model_dump(exclude=apart) == base.model_dump(exclude=apart)


def test_a_base_of_a_base(tmp_path: Path) -> None:
    result = stack_on(tmp_path, "hf-fsdp")
    assert (result.base, result.fusion.liger, result.unstated.zero) == ("hf-fsdp", True, 3)


def test_a_base_has_to_ship(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="megatron-core"):
        stack_on(tmp_path, "megatron-cor")


def test_every_base_ships_and_every_file_that_has_one_differs_from_it() -> None:
    based = [s for s in catalog.load_all("stacks", StackSpec) if s.base]
    assert len(based) >= 8
    for stack in based:
        assert stack.base in catalog.ids("stacks")
        assert stack.id != stack.base
        assert stack.source


def test_what_a_stack_cannot_run_is_refused_not_priced() -> None:
    """Rows of programs: experts over ranks under FSDP2, Ulysses, and options that every one of
    these stacks lacks."""
    experts = {"experts": 8, "experts_per_token": 2, "moe_ffn_hidden": 4096, "zero": 3}
    halves = {"dp": 4, "zero": 3}
    runs = (("automodel", {"ep": 8, **experts}), ("veomni", {"cp": 2, **halves}))
    for stack, cells in (*runs, ("megatron-fsdp", {"zero": 3}), ("prime-rl", {"cp": 2, **halves})):
        assert row_plan(row(stack=stack, **cells))[0].stack.id == stack
    for stack, cells in (
        ("veomni", {"tp": 2, **halves}),
        ("hf-fsdp", {"ep": 8, **experts}),
        ("torchtune", {"pp": 2, **halves}),
        ("prime-rl", {"tp": 2, **halves}),
    ):
        with pytest.raises(PlanError, match=r"does not have --[tpe]p"):
            row_plan(row(stack=stack, **cells))
