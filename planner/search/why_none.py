"""Why no layout satisfies a request: the first rule that what was fixed already breaks."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from planner import schedules
from planner.formulas.divisors import divisors
from planner.formulas.rules import RULES, Rule
from planner.inputs.scenario import Scenario
from planner.search import search
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.layout import PLACEMENTS, Layout
from planner.specs.options import LAYOUT, Options, flag
from planner.specs.pipeline_layout import pipeline_layout
from planner.specs.plan import Plan


def why_none(scenario: Scenario) -> PlanError:
    """No layout satisfies the request: find the first rule that what was fixed already breaks."""
    options = scenario.options
    if not scenario.plans:
        return PlanError("--zero", options.zero, "no stack runs this; name one with --stack")
    plan = max(scenario.plans, key=lambda p: (p.stack.supports.tensor, p.stack.supports.pipeline))
    first = _does_not_divide(options) or _does_not_accumulate(options)
    return first or _broken_rule(plan, options) or _nothing_is_left(scenario)


def _does_not_divide(options: Options) -> PlanError | None:
    """The degrees that were fixed do not divide the GPUs."""
    degrees = _given(options, ("tp", "pp", "cp", "dp"))
    product = math.prod(degrees.values())
    if options.gpus % product == 0:
        return None
    parts = divisors(options.gpus)
    near = [*[d for d in parts if d < product][-1:], *[d for d in parts if d > product][:1]]
    asked = " x ".join(f"{name} {value}" for name, value in degrees.items())
    return PlanError(
        "/".join(flag(name) for name in degrees),
        product,
        f"{asked} does not divide {options.gpus} GPUs; tp x pp x cp x dp is the number of GPUs,"
        f" take divisors of it; nearest: {' or '.join(map(str, near))}",
    )


def _does_not_accumulate(options: Options) -> PlanError | None:
    """The steps of accumulation do not divide the batch, or what is left of it."""
    batch, steps = options.global_batch, options.grad_accum
    if batch is None or steps is None:
        return None
    parts = {"micro_batch": options.micro_batch, "dp": options.dp, "grad_accum": steps}
    known = {flag(name): value for name, value in parts.items() if value is not None}
    product = math.prod(known.values())
    whole = None not in parts.values()
    if batch % product == 0 and (not whole or batch == product):
        return None
    asked = " x ".join(f"{name} {value}" for name, value in known.items())
    return PlanError(
        "--global-batch",
        batch,
        f"is not {asked} = {product}{'' if whole else ' times a whole number'}; leave one of them"
        " out",
    )


def _broken_rule(plan: Plan, options: Options) -> PlanError | None:
    """The first rule that the request breaks, whatever it leaves open."""
    layout = _as_asked(plan, options)
    columns = Columns.of([layout])
    broken = next((rule for rule in RULES if not rule.holds(plan, columns)), None)
    if broken is None:
        return None
    return PlanError(broken.field, _value(broken, options), broken.sentence(plan, layout))


def _as_asked(plan: Plan, options: Options) -> Layout:
    """What the request fixes, with the least for what it leaves open; not checked, since some rule
    may forbid it."""
    tp, (pp, vpp), cp = options.tp or 1, _stages(plan, options), options.cp or 1
    dp = options.dp or max(1, options.gpus // (tp * pp * cp))
    schedule = options.schedule
    zero = plan.request.zero
    return Layout.model_construct(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        cp=cp,
        ep=options.ep or 1,
        zero=plan.stack.supports.zero[0] if zero is None else zero,
        shard_group=options.shard_group or dp * cp,
        sequence_parallel=bool(options.sequence_parallel),
        recompute=options.recompute or "none",
        schedule=schedule or ("interleaved" if vpp > 1 else "1f1b"),
        micro_batch=options.micro_batch or 1,
        offload=options.offload or "none",
        placement=options.placement or PLACEMENTS[0],
    )


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


def _value(rule: Rule, options: Options) -> Any:
    """What was given for the options of a rule: the value of one, or several by name."""
    given = _given(options, rule.options)
    return next(iter(given.values())) if len(given) == 1 else given or None


def _nothing_is_left(scenario: Scenario) -> PlanError:
    """Each rule can be satisfied, but not all of them together."""
    rejected: Counter[str] = Counter()
    for plan in scenario.plans:
        rejected.update(search(plan).rejected)
    reasons = (
        "; ".join(f"{name}: {count}" for name, count in rejected.items())
        or "no factorisation of the GPUs matches"
    )
    names = (*LAYOUT, "grad_accum", "global_batch")
    given = {flag(name): value for name, value in _given(scenario.options, names).items()}
    if scenario.options.where:
        given["--where"] = "; ".join(scenario.options.where)
    return PlanError(
        "layout",
        given,
        f"no layout satisfies all of these together ({reasons}); leave one of them out",
    )


def _given(options: Options, names: tuple[str, ...]) -> dict[str, Any]:
    """The options among these that the request states."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}
