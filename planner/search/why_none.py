"""Why no layout satisfies a request: the first rule that what was fixed already breaks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from planner.formulas.divisors import divisors
from planner.formulas.rules import Rule
from planner.inputs.least import broken_rule, least_layout, possible
from planner.inputs.scenario import Scenario
from planner.inputs.usual import able_stacks, named_stacks
from planner.search import search
from planner.specs.base import PlanError
from planner.specs.capabilities import has
from planner.specs.options import LAYOUT, Options, flag
from planner.specs.plan import Plan


def why_none(scenario: Scenario) -> PlanError:
    """No layout satisfies the request: find the first rule that what was fixed already breaks."""
    options = scenario.options
    if not scenario.plans:
        return PlanError("--zero", options.zero, "no stack runs this; name one with --stack")
    plan = max(scenario.plans, key=lambda p: (has(p.stack, "tp"), has(p.stack, "pp")))
    first = _does_not_divide(options) or _does_not_accumulate(options)
    return first or _broken_rule(plan, options) or _nothing_is_left(scenario)


def _does_not_divide(options: Options) -> PlanError | None:
    """The degrees that were fixed do not divide the GPUs."""
    degrees = _given(options, ("tp", "pp", "cp", "dp"))
    product = math.prod(degrees.values())
    if options.gpus % product == 0:
        return None
    if options.gpus == 1 and options.origin("gpus") is None:  # left open
        flags = "/".join(map(flag, degrees))
        each = " x ".join(f"{name} {value}" for name, value in degrees.items())
        counts = ", ".join(str(times * product) for times in (1, 2, 4))
        remedy = f"{each} runs on {product} GPUs and multiples of it: give --gpus {counts} or more"
        return PlanError(flags, product, f"{remedy}; `dpplan recommend cluster` tries them")
    parts, least = divisors(options.gpus), options.gpus // product
    near = [*[d for d in parts if d < product][-1:], *[d for d in parts if d > product][:1]]
    gpus = [times * product for times in (least, least + 1) if times]
    text = " x ".join(f"{name} {value}" for name, value in degrees.items())
    return PlanError(
        "/".join(flag(name) for name in degrees),
        product,
        f"{text} does not divide {options.gpus} GPUs; tp x pp x cp x dp is the number of GPUs,"
        f" take divisors of it; nearest: {' or '.join(map(str, near))}, or --gpus"
        f" {' or '.join(map(str, gpus))}",
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
    text = " x ".join(f"{name} {value}" for name, value in known.items())
    return PlanError(
        "--global-batch",
        batch,
        f"is not {text} = {product}{'' if whole else ' times a whole number'}; leave one of them"
        " out",
    )


def _broken_rule(plan: Plan, options: Options) -> PlanError | None:
    """The first rule that the request breaks, whatever it leaves open."""
    broken = broken_rule(plan, options)
    if broken is None:
        return None
    text, stacks = broken.sentence(plan, least_layout(plan, options)), _others(plan, options)
    if others := named_stacks(stacks):
        text += f"{', or' if '; ' in text else ';'} {others}"
    return PlanError(broken.field, _value(broken, options), text)


def _others(plan: Plan, options: Options) -> Iterator[str]:
    """Stacks that have layouts for the same request."""
    for stack in able_stacks(options):
        other = plan.model_copy(update={"stack": stack})
        if possible(other, options) and search(other).estimates:
            yield stack.id


def _value(rule: Rule, options: Options) -> Any:
    """Given values of the options of a rule: the value of one, or several by name."""
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
