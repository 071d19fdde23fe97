"""Passes by another model over the batch of a step: of a reference, or of a teacher."""

from __future__ import annotations

from dataclasses import replace

from planner.estimate.generation import serve_s
from planner.estimate.machine import Machine
from planner.estimate.ranks import forward_s
from planner.ledger import Array, section
from planner.specs.columns import Columns
from planner.specs.plan import Plan
from planner.specs.task import TASKS


def compared_s(plan: Plan, m: Machine, c: Columns, once: Array) -> Array:
    """Seconds of the passes over the batch of a step by a model that this one is compared with.
    once: of this one."""
    if not TASKS[plan.training.task].reference:
        return once
    with section("reference"):
        if plan.training.task == "distil":
            return _teacher_s(plan, m, c)
        return once if plan.of_reference is plan else forward_s(plan.of_reference, m, c)


def _teacher_s(plan: Plan, m: Machine, c: Columns) -> Array:
    """Seconds of the teacher's forward pass over the batch of a step: on the student's GPUs in its
    layout without the pipeline, else served on separate GPUs or before the run."""
    teacher, batch = plan.of_teacher, c.batch(plan.training.global_batch)
    if teacher is None:
        return 0.0 * batch
    if not plan.training.teacher_here:
        apart = plan.training.teacher_gpus
        if apart is None:
            return serve_s(teacher, batch, c.gpus, "--gpus")
        return serve_s(teacher, batch, 1.0 * apart, "--teacher-gpus")
    no_pipeline = 1.0 + 0.0 * c.pp
    return forward_s(teacher, m, replace(c, pp=no_pipeline, vpp=no_pipeline))
