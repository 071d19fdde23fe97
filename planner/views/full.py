"""An estimate in full: the view of `dpplan estimate --full`, and of every report of an estimate."""

from __future__ import annotations

from collections.abc import Sequence

from planner.specs.documents.estimate import Estimate
from planner.views.advice import advice_blocks
from planner.views.conditions import condition_blocks
from planner.views.estimate import (
    answer_block,
    basis_block,
    communication_block,
    family_blocks,
    memory_block,
    requirement_blocks,
    scenario_block,
    stage_block,
    step_block,
    title_of,
)
from planner.views.explain import machine_value
from planner.views.picture import picture_block
from planner.views.screen import verdict
from planner.views.view import Block, View


def view(r: Estimate, more: Sequence[Block] = ()) -> View:
    """The answer first, then memory, time, communication, families, advice and assumptions. more:
    blocks requested besides."""
    fits = r.memory.fits and all(requirement.holds for requirement in r.requirements)
    return View(
        title_of(r),
        verdict(r),
        "yes" if fits else "no",
        parts=[
            picture_block(r),
            answer_block(r),
            *requirement_blocks(r),
            memory_block(r),
            stage_block(r),
            step_block(r),
            *condition_blocks(r),
            communication_block(r),
            *family_blocks(r),
            *advice_blocks(r),
            basis_block(r),
            scenario_block(r),
            operator_block(r),
            machine_block(r),
            *more,
        ],
    )


def operator_block(r: Estimate) -> Block:
    return Block(
        "Seconds of each operator, slowest stage",
        header=["operator", "time|s"],
        rows=[[name, value] for name, value in r.step.operators.items()],
        only="page",
        folded=True,
    )


def machine_block(r: Estimate) -> Block:
    return Block(
        "Numbers of the machine, with sources",
        header=["number", ">value", "kind", "elasticity of the step|+.2f", "source", "date"],
        rows=[
            [n.name, machine_value(n), n.kind, n.elasticity, n.source, n.date] for n in r.machine
        ],
        only="page",
        folded=True,
    )
