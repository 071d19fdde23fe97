"""An estimate as one HTML page: the answer, its charts, the table behind each, the assumptions."""

from __future__ import annotations

from planner.specs.documents.estimate import Estimate
from planner.units import percent, show
from planner.views.advice import advice_blocks
from planner.views.conditions import condition_blocks
from planner.views.estimate import (
    answer_rows,
    communication_block,
    family_blocks,
    requirement_blocks,
    scenario_block,
    title_of,
)
from planner.views.estimate_figures import charts
from planner.views.explain import machine_value
from planner.views.page import Folded, Part
from planner.views.page import page as whole
from planner.views.view import Block


def page(r: Estimate) -> str:
    """The report as one HTML page. Raises PlanError where plotly is not installed."""
    parts: list[Part] = [
        _answer(r),
        *requirement_blocks(r),
        *charts(r),
        Folded(_operators(r)),
        Folded(communication_block(r)),
        *condition_blocks(r),
        *(Folded(block) for block in family_blocks(r)),
        *advice_blocks(r),
        Block("Assumptions", r.assumptions),
        Block("", [_rests_on(r)]),
        Folded(scenario_block(r)),
        Folded(_machine(r)),
    ]
    return whole(title_of(r), parts, r.command)


def _answer(r: Estimate) -> Block:
    memory = r.memory
    host = (
        f"{show(memory.host_bytes, 'B')} offloaded per GPU; {show(memory.host_saving_bytes, 'B')}"
        f" to save a checkpoint, {show(memory.host_loading_bytes, 'B')} to load one"
    )
    rows = [("answer", memory.verdict), *answer_rows(r), ("host memory", host)]
    if memory.nvme_bytes:
        rows.append(("NVMe drives", f"{show(memory.nvme_bytes, 'B')} offloaded per GPU"))
    return Block("", header=["", ""], rows=[list(row) for row in rows])


def _operators(r: Estimate) -> Block:
    rows = [[name, show(value, "s")] for name, value in r.step.operators.items()]
    return Block("Seconds of each operator, slowest stage", [], ["operator", ">time"], rows)


def _machine(r: Estimate) -> Block:
    return Block(
        "Numbers of the machine, with sources",
        header=["number", ">value", "kind", ">elasticity of the step", "source", "date"],
        rows=[
            [n.name, machine_value(n), n.kind, f"{n.elasticity:+.2f}", n.source, n.date]
            for n in r.machine
        ],
    )


def _rests_on(r: Estimate) -> str:
    p = r.provenance
    return (
        "Of the step time's sensitivity to the numbers of the machine,"
        f" {percent(p.measured_frac)} measured, {percent(p.vendor_frac)} vendor,"
        f" {percent(p.assumed_frac)} assumed."
    )
