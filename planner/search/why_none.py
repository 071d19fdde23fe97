"""Why no layout satisfies a request: the first rule that what was fixed already breaks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planner import schedules
from planner.estimate.columns import from_rows
from planner.formulas.rules import RULES
from planner.inputs.scenario import Scenario
from planner.search import search
from planner.specs.base import PlanError
from planner.specs.layout import OFFLOADS, PLACEMENTS, SCHEDULES, Layout, recompute_parts
from planner.specs.options import LAYOUT_OPTIONS, Options, flag


def why_none(scenario: Scenario) -> PlanError:
    """No layout satisfies the request: find the first rule that what was fixed already breaks."""
    options = scenario.options
    fixed = {name: getattr(options, name) for name in LAYOUT_OPTIONS}
    plan = (
        max(scenario.plans, key=lambda p: (p.stack.supports.tensor, p.stack.supports.pipeline))
        if scenario.plans
        else None
    )
    if plan is None:
        return PlanError("--zero", options.zero, "no stack runs this; name one with --stack")
    tp, pp, cp = (fixed[k] or 1 for k in ("tp", "pp", "cp"))
    degrees = {n: fixed[n] for n in ("tp", "pp", "cp", "dp") if fixed[n] is not None}
    if options.gpus % math.prod(degrees.values()):
        asked = " x ".join(f"{name} {value}" for name, value in degrees.items())
        which = "/".join(flag(name) for name in degrees)
        return PlanError(
            which,
            math.prod(degrees.values()),
            f"{asked} does not divide {options.gpus} GPUs; tp x pp x cp x dp is "
            "the number of GPUs, take divisors of it",
        )
    dp = fixed["dp"] or max(1, options.gpus // (tp * pp * cp))
    kind, size = recompute_parts(fixed["recompute"] or "none")
    vpp = fixed["vpp"] or (
        schedules.default_chunks(fixed["schedule"]) if fixed["schedule"] and pp > 1 else 1
    )
    schedule: Any = fixed["schedule"] or ("interleaved" if vpp > 1 else "1f1b")
    zero = plan.request.zero if plan.request.zero is not None else plan.stack.supports.zero[0]
    row = [
        tp,
        pp,
        vpp,
        dp,
        cp,
        fixed["ep"] or 1,
        zero,
        fixed["shard_group"] or dp * cp,
        bool(fixed["sequence_parallel"]),
        kind,
        size,
        SCHEDULES.index(schedule),
        fixed["micro_batch"] or 1,
        OFFLOADS.index(fixed["offload"] or "none"),
        PLACEMENTS.index(fixed["placement"] or PLACEMENTS[0]),
    ]
    table = from_rows(np.array([row], dtype=float))
    for rule in RULES:
        if bool(np.asarray(rule.holds(plan, table)).reshape(-1)[0]):
            continue
        shown = Layout.model_construct(
            tp=tp,
            pp=pp,
            vpp=vpp,
            dp=dp,
            cp=cp,
            ep=fixed["ep"] or 1,
            zero=zero,
            shard_group=fixed["shard_group"] or dp * cp,
            sequence_parallel=bool(fixed["sequence_parallel"]),
            recompute=fixed["recompute"] or "none",
            schedule=schedule,
            micro_batch=fixed["micro_batch"] or 1,
            offload=fixed["offload"] or "none",
            placement=fixed["placement"] or PLACEMENTS[0],
        )
        names = [
            n
            for n in rule.field.removeprefix("--").replace("/--", " ").replace("-", "_").split()
            if n in Options.model_fields
        ]
        given = {n: getattr(options, n) for n in names if getattr(options, n, None) is not None}
        value = next(iter(given.values())) if len(given) == 1 else given or None
        return PlanError(rule.field, value, rule.sentence(plan, shown))
    rejected: dict[str, int] = {}
    for one in (search(p) for p in scenario.plans):
        for name, count in one.rejected.items():
            rejected[name] = rejected.get(name, 0) + count
    reasons = (
        "; ".join(f"{name}: {count}" for name, count in rejected.items())
        or "no factorisation of the GPUs matches"
    )
    given = {flag(n): v for n, v in fixed.items() if v is not None}
    if options.where:
        given["--where"] = "; ".join(options.where)
    return PlanError(
        "layout",
        given,
        f"no layout satisfies all of these together ({reasons}); leave one of them out",
    )
