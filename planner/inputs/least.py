"""The least layout that a request fixes, and the first rule that it breaks."""

from __future__ import annotations

import numpy as np

from planner import schedules
from planner.formulas.divisors import divisors
from planner.formulas.rules import RULES, Rule, check
from planner.formulas.rules.stack import REPLICAS, SHARING
from planner.specs.capabilities import has, values
from planner.specs.columns import Columns
from planner.specs.layout import PLACEMENTS, Layout
from planner.specs.options import Options
from planner.specs.pipeline_layout import pipeline_layout
from planner.specs.plan import Plan
from planner.specs.task import TASKS


def broken_rule(plan: Plan, options: Options) -> Rule | None:
    """The first rule that the request breaks, whatever it leaves open."""
    columns = Columns.of([least_layout(plan, options)])
    return next((rule for rule in RULES if not rule.holds(plan, columns)), None)


def possible(plan: Plan, options: Options) -> bool:
    """Whether the least layout of the request breaks no rule at some ZeRO stage."""
    stages = values(plan.stack, "zero") if plan.request.zero is None else [plan.request.zero]
    least = least_layout(plan, options)
    columns = Columns.of(least.model_copy(update={"zero": stage}) for stage in stages)
    return bool(np.logical_and.reduce(list(check(plan, columns).values())).any())


def least_layout(plan: Plan, options: Options) -> Layout:
    """Degrees of the request, the least value for open ones; not checked against the rules."""
    tp, (pp, vpp), cp = options.tp or 1, _stages(plan, options), options.cp or 1
    dp = options.dp or max(1, options.gpus // (tp * pp * cp))
    schedule = options.schedule
    sequence = options.sequence_parallel
    least = Layout.model_construct(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        cp=cp,
        ep=options.ep or 1,
        zero=plan.request.zero or 0,
        shard_group=options.shard_group or dp * cp,
        sequence_parallel=tp > 1 and not has(plan.stack, "tensor_alone")
        if sequence is None
        else sequence,
        recompute=options.recompute or "none",
        schedule=schedule or ("interleaved" if vpp > 1 else "1f1b"),
        micro_batch=options.micro_batch or TASKS[plan.training.task].sequences,
        offload=options.offload or "none",
        placement=options.placement or PLACEMENTS[0],
    )
    return least if plan.request.zero is not None else _at_least_stage(plan, least)


def _at_least_stage(plan: Plan, layout: Layout) -> Layout:
    """The layout at the first ZeRO stage that its stack runs beside its degrees."""
    stages = values(plan.stack, "zero")
    table = Columns.of(layout.model_copy(update={"zero": stage}) for stage in stages)
    able = REPLICAS.holds(plan, table) & SHARING.holds(plan, table)
    return layout.model_copy(update={"zero": stages[int(np.argmax(able))]})


def _stages(plan: Plan, options: Options) -> tuple[int, int]:
    """Ranks of a pipeline and chunks of each: as many as a stated layout has."""
    schedule, text = options.schedule, options.pipeline_layout
    if text is not None:
        chunks = len(pipeline_layout(text))
        whole = chunks // (options.vpp or 1)
        pp = options.pp or max(p for p in divisors(options.gpus) if whole % p == 0)
        return pp, options.vpp or max(1, chunks // pp)
    pp = options.pp or (divisors(options.gpus)[1] if "schedule" in plan.request.acting else 1)
    usual = schedules.default_chunks(schedule) if schedule and pp > 1 else 1
    return pp, options.vpp or usual
