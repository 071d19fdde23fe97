"""Passes by another model over the batch of a step: of a reference, or of a second model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.estimate.generation import serve_s
from planner.estimate.machine import Machine
from planner.estimate.ranks import forward_s
from planner.ledger import Array, plug_in, section
from planner.specs.columns import Columns
from planner.specs.mechanism import SecondModel
from planner.specs.plan import Plan
from planner.specs.task import TASKS


@dataclass(frozen=True)
class _Served:
    batch: Array  # sequences
    gpus: Array


def compared_s(plan: Plan, m: Machine, c: Columns, once: Array) -> Array:
    """Seconds of a reference model's passes over the batch of a step. once: seconds of the trained
    model's forward passes over that batch."""
    if not TASKS[plan.training.task].reference:
        return once
    with section("reference"):
        if (second := plan.second) is not None:
            return _second_s(plan, second, m, c)
        return once if plan.of_reference is plan else forward_s(plan.of_reference, m, c)


def _second_s(plan: Plan, second: SecondModel, m: Machine, c: Columns) -> Array:
    """Seconds of its forward pass over the batch of a step: on the GPUs of the step in the layout
    without the pipeline, else served on separate GPUs or before the run."""
    batch = c.batch(plan.training.global_batch)
    if second.plan is None:
        return 0.0 * batch
    if second.place != "here":
        served = _Served(batch, c.gpus if second.gpus is None else 1.0 * second.gpus + 0.0 * batch)
        name, model, option = "served", second.plan, second.option
        return plug_in(  # engines are priced for plain arrays
            name, lambda x: {name: serve_s(model, x.batch, x.gpus, option)}, served, (name,)
        )[name]
    no_pipeline = 1.0 + 0.0 * c.pp
    return forward_s(second.plan, m, replace(c, pp=no_pipeline, vpp=no_pipeline))
