"""Rules of blocks that were traced operator by operator: what ranks can share of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.formulas import experts
from planner.formulas.rules.rule import Rule
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layout import Layout
from planner.specs.parts import Traced
from planner.specs.plan import Plan

_OTHERS = "data parallelism, ZeRO, FSDP and pipeline stages divide its work"


def largest(plan: Plan, parts: list[Traced]) -> str:
    """The block of these that a refusal names."""
    part = max(parts, key=lambda part: (bool(part.attention), part.parameters))
    return f"block {part.name!r}{f' ({part.module})' if part.module else ''} of {plan.model.name}"


def _whole(plan: Plan, reason: Callable[[Traced], str]) -> tuple[str, str]:
    """A block that ranks cannot share, and why."""
    parts = [part for part in plan.model.traced if reason(part)]
    where = largest(plan, parts)
    part = next(part for part in parts if where == largest(plan, [part]))
    return where, reason(part)


def _split(plan: Plan, c: Columns) -> Array:
    """Ranks that divide GEMMs of a block: of tensor parallelism, or those that split experts."""
    if plan.model.routed is None:
        return c.tp
    return np.maximum(c.tp, experts.tensor_of(plan, c.tp))


def _tensor(plan: Plan, x: Layout) -> str:
    where, why = _whole(plan, Traced.whole)
    option = f"tp {x.tp}" if x.tp > 1 else f"etp {plan.training.etp}"
    return f"{where} cannot be divided by {option}: {why}; take --{option.split()[0]} 1: {_OTHERS}"


TENSOR = Rule(
    "traced blocks stay whole",
    ("tp",),
    lambda plan, c: (_split(plan, c) == 1) | (not any(part.whole() for part in plan.model.traced)),
    _tensor,
)


def _context(plan: Plan, x: Layout) -> str:
    where, why = _whole(plan, Traced.meets)
    return (
        f"the sequence of {where} cannot be shared by cp {x.cp}: {why}; take --cp 1: tensor"
        f" parallelism, {_OTHERS}"
    )


CONTEXT = Rule(
    "tokens of traced blocks meet only in attention",
    ("cp",),
    lambda plan, c: (c.cp == 1) | (not any(part.meets() for part in plan.model.traced)),
    _context,
)


def no_experts(plan: Plan) -> str:
    """Why a traced model has no experts that ranks share."""
    where = largest(plan, plan.model.traced)
    blocks = plan.model.traced
    gemms = [x.name for part in blocks for x in part.gemms]
    gemms += [x.name for part in blocks for x in part.multiplied]
    names = ", ".join(dict.fromkeys(gemms)) or "none"
    return f"{where} has no GEMM whose rows are tokens that a router sends to experts ({names})"


# torchtitan's rule counts GEMMs in the order of its own layers; of traced ones all are kept
SELECTED = Rule(
    "operators that selective recompute keeps",
    ("recompute", "selective"),
    lambda plan, c: ~c.is_recompute("selective") | _selects(plan),
    lambda plan, x: (
        f"`products` selects operators of traced blocks, and only of them;"
        f" {plan.model.name} has {'traced ones' if plan.model.traced else 'none'}"
    ),
    ways=lambda plan, x: (
        f"--selective {'products' if plan.model.traced else 'attention'}",
        "--recompute full",
    ),
)


def _selects(plan: Plan) -> bool:
    if plan.model.traced:
        return plan.selective != "per-op"
    return plan.selective != "products"
