"""Rules of the stack: schedules, sharding, parallelism, placement, and options that act."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from planner import schedules
from planner.formulas.rules.rule import Rule, divides, on_arrays, ones
from planner.ledger import Array
from planner.specs.capabilities import has, lacks, values
from planner.specs.columns import Columns
from planner.specs.layout import CODES, PLACEMENTS, SCHEDULES, Layout
from planner.specs.options import MECHANISMS, flag
from planner.specs.plan import Plan

_ZERO_2, _ZERO_3 = 2.0, 3.0  # the first ZeRO stages that shard gradients, and parameters


def _microbatches(plan: Plan, c: Columns) -> Array:
    m = c.microbatches(plan.training.global_batch)
    whole = np.mod(m, 1) == 0
    return (schedules.allowed(c.schedule, c.pp, m, c.vpp) & whole) | (c.pp == 1)


MICROBATCHES = Rule(
    "schedule fits pp and micro-batches",
    ("micro_batch",),
    _microbatches,
    lambda plan, x: (
        f"the {x.schedule} schedule needs {schedules.BY_NAME[x.schedule].NEEDS}; micro-batches per"
        f" step are {plan.training.global_batch / (x.dp * x.micro_batch):g}, pp is {x.pp}"
    ),
    near=("micro_batch",),
    ways=lambda plan, x: (
        "--schedule 1f1b --vpp 1, which runs any number" if x.schedule != "1f1b" else "",
        "another --global-batch",
    ),
)


def _schedule(plan: Plan, c: Columns) -> Array:
    ok = ones(c)
    for code, name in enumerate(SCHEDULES):
        ok = np.where(c.schedule == code, schedules.chunks_fit(name, c.vpp), ok)
    return ok & np.where(c.vpp > 1, c.pp > 1, True)


SCHEDULE = Rule(
    "schedule fits vpp",
    ("schedule",),
    _schedule,
    lambda plan, x: (
        f"schedule {x.schedule} does not run with vpp {x.vpp} and pp {x.pp}: vpp > 1 means"
        " interleaved, breadth-first, or with 2 a V, and needs pp > 1"
    ),
    ways=lambda plan, x: ("take --vpp 1" if x.vpp > 1 else "",),
)


def _hybrid_stages(plan: Plan) -> str:
    return " or ".join(map(str, values(plan.stack, "hybrid_zero")))


def _shards(plan: Plan, c: Columns) -> Array:
    hybrid = np.isin(c.zero, values(plan.stack, "hybrid_zero")) & (c.shard_group > 1)
    return divides(c.shard_group, c.replicas) & ((c.shard_group == c.replicas) | hybrid)


SHARD_GROUP = Rule(
    "shard group",
    ("shard_group",),
    _shards,
    lambda plan, x: (
        f"shard group {x.shard_group} must divide dp x cp = {x.dp * x.cp}; a smaller one needs"
        f" hybrid sharding, which {plan.stack.title} has"
        f" {f'with ZeRO {stages}' if (stages := _hybrid_stages(plan)) else 'not'}"
    ),
    near=("shard_group",),
)


# what a layout has of a degree that its stack lacks
_OFF = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "sequence_parallel": 0}


def _supported(plan: Plan, c: Columns) -> Array:
    stack, ok = plan.stack, ones(c)
    for name, off in _OFF.items():
        wanted = (getattr(plan.request, name) or off) > off
        if not values(stack, name, on_request=wanted):
            ok = ok & (getattr(c, name) == off)
    alone = c.pp == 1
    for name, words in CODES.items():
        had = values(stack, name, on_request=True)
        known = [code for code, word in enumerate(words) if word in had]
        if len(known) < len(words):
            able = np.isin(getattr(c, name), known)
            ok = ok & (able | alone if name == "schedule" else able)
    stages = np.isin(c.zero, values(stack, "zero", on_request=True))
    return ok & np.where(alone, stages, np.isin(c.zero, values(stack, "zero_with_pipeline")))


def _within(plan: Plan, x: Layout) -> tuple[str, ...]:
    if all(lack.capability.option != "zero" for lack in lacks(plan.stack, dict(x))):
        return ("leave it out",)
    stages = values(plan.stack, "zero_with_pipeline" if x.pp > 1 else "zero")
    piped = x.pp > 1 and has(plan.stack, "zero", x.zero)
    return " or ".join(f"--zero {stage}" for stage in stages), "--pp 1" if piped else ""


SUPPORTED = Rule(
    "supported by the stack",
    ("stack",),
    _supported,
    lambda plan, x: (
        f"{plan.stack.title} does not have {' and '.join(map(str, lacks(plan.stack, dict(x))))}"
    ),
    ways=_within,
)


PLACEMENT = Rule(
    "placement supported",
    ("placement",),
    lambda plan, c: (c.placement == 0) | (c.ep == 1),
    lambda plan, x: (
        f"with expert parallelism ranks are placed only as {PLACEMENTS[0]}; here it is"
        f" {x.placement}, ep {x.ep}"
    ),
    ways=lambda plan, x: (f"--placement {PLACEMENTS[0]}", "--ep 1"),
)


def _with_sequence(plan: Plan, c: Columns) -> Array:
    if has(plan.stack, "tensor_alone"):
        return ones(c)
    return (c.tp == 1) | (c.sequence_parallel > 0)


TENSOR_ALONE = Rule(
    "tensor parallelism with sequence parallelism",
    ("sequence_parallel",),
    _with_sequence,
    lambda plan, x: (
        f"{plan.stack.title} runs tensor parallelism only with sequence parallelism; here tp is"
        f" {x.tp}"
    ),
    ways=lambda plan, x: ("--sequence-parallel", "--tp 1"),
)


def _beside_replicas(plan: Plan, c: Columns) -> Array:
    if has(plan.stack, "replicas_beside"):
        return ones(c)
    return (c.zero > 0) | (c.dp == 1) | (c.dp == c.gpus)


REPLICAS = Rule(
    "replicas of whole weights beside other degrees",
    ("zero",),
    _beside_replicas,
    lambda plan, x: (
        f"{plan.stack.title} runs replicas of whole weights beside no other degree; here dp is"
        f" {x.dp}, zero {x.zero}, tp {x.tp}, pp {x.pp}, cp {x.cp}"
    ),
    ways=lambda plan, x: (
        " or ".join(f"--zero {stage}" for stage in values(plan.stack, "zero") if stage),
        f"--dp {plan.cluster.gpus}",
    ),
)


# degrees whose ranks share weights with ZeRO's, and the capability that a stack needs for both
_SHARING = {"cp": "context_zero", "ep": "expert_zero"}


def _stages_of(plan: Plan, degree: str) -> list[int]:
    """ZeRO stages that a stack has beside a degree."""
    beside = values(plan.stack, _SHARING[degree])
    return [stage for stage in values(plan.stack, "zero", on_request=True) if stage in beside]


def _shared(plan: Plan, c: Columns) -> Array:
    ok = ones(c)
    for degree in _SHARING:
        ok = ok & ((getattr(c, degree) == 1) | np.isin(c.zero, _stages_of(plan, degree)))
    return ok


def _unshared(plan: Plan, x: Layout) -> list[str]:
    return [
        degree
        for degree in _SHARING
        if getattr(x, degree) > 1 and x.zero not in _stages_of(plan, degree)
    ]


SHARING = Rule(
    "ZeRO stage beside cp and ep",
    ("zero",),
    _shared,
    lambda plan, x: (
        f"{plan.stack.title} shards over {' and '.join(_unshared(plan, x))} as over replicas; here"
        f" zero is {x.zero}"
    ),
    ways=lambda plan, x: (
        *(
            " or ".join(f"--zero {stage}" for stage in _stages_of(plan, degree))
            for degree in _unshared(plan, x)[:1]
        ),
        *(f"--{degree} 1" for degree in _unshared(plan, x)),
    ),
)


SEQUENCE_PARALLEL = Rule(
    "sequence parallelism needs tp",
    ("sequence_parallel",),
    lambda plan, c: (c.sequence_parallel == 0) | (c.tp > 1),
    lambda plan, x: (
        "sequence parallelism divides work among tensor-parallel ranks; it needs tp > 1, such as"
        " --tp 2, or leave out --sequence-parallel"
    ),
)


def _is_sharded(c: Columns) -> Array:
    return (c.zero >= _ZERO_3) & (c.replicas > 1)


# where an option of the layout does something
ACTS: dict[str, Callable[[Columns], Array]] = {
    "zero": lambda c: c.replicas > 1,
    "shard_group": lambda c: c.zero >= 1,
    "schedule": lambda c: c.pp > 1,
    "placement": lambda c: (c.pp > 1) & (c.dp > 1),
    "cp_comm_type": lambda c: c.cp > 1,
    "dp_overlap": lambda c: c.replicas > 1,
    "dp_bucket": lambda c: (c.zero < _ZERO_2) & (c.replicas > 1),  # FSDP has layers for buckets
    "sub_group_size": _is_sharded,
    "gradient_sync": lambda c: (c.zero >= _ZERO_2) & (c.replicas > 1),
    "dispatcher": lambda c: c.ep > 1,
    **{
        name: functools.partial(on_arrays, each, acts.where)
        for each in MECHANISMS
        if (acts := each.ACTS)
        for name in acts.options
    },
}


def _acting(plan: Plan, c: Columns) -> Array:
    ok = ones(c)
    for name in plan.request.acting:
        ok = ok & ACTS[name](c)
    return ok


def _idle(plan: Plan, x: Layout) -> str:
    table = Columns.of([x])
    idle = [flag(name) for name in plan.request.acting if not ACTS[name](table)[0]]
    return (
        f"{', '.join(idle)} would do nothing in a layout of tp {x.tp}, pp {x.pp}, ep {x.ep}, dp"
        f" {x.dp} x cp {x.cp}, zero {x.zero}: ZeRO shards over dp x cp > 1 with zero 1 to 3, FSDP"
        " reduces layers and no buckets, schedules need pp > 1, dispatch of tokens ep > 1; leave it"
        " out, or fix the degrees"
    )


ACTING = Rule(
    "the request takes effect",
    ("zero", "shard_group", "schedule", "placement", "cp_comm_type", "tp_overlap"),
    _acting,
    _idle,
)
