"""What the stack runs of schedules, shards, parallelism and placement, and what options do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner import schedules
from planner.formulas.rules.rule import Rule, divides, ones
from planner.ledger import Array
from planner.specs.capabilities import lacks
from planner.specs.columns import Columns
from planner.specs.layout import PLACEMENTS, SCHEDULES, Layout
from planner.specs.options import flag
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
    ok = ok & np.where(c.vpp > 1, c.pp > 1, True)
    return ok & (c.is_schedule(*plan.stack.supports.schedules) | (c.pp == 1))


SCHEDULE = Rule(
    "schedule fits vpp and stack",
    ("schedule",),
    _schedule,
    lambda plan, x: (
        f"schedule {x.schedule} with vpp {x.vpp} and pp {x.pp} is not possible with"
        f" {plan.stack.title} (it runs {', '.join(plan.stack.supports.schedules)}; vpp > 1 means"
        " interleaved, breadth-first, or with 2 a V, and needs pp > 1)"
    ),
    ways=lambda plan, x: (
        "take --vpp 1" if x.vpp > 1 else "",
        "leave out --schedule" if x.schedule not in plan.stack.supports.schedules else "",
    ),
)


def _hybrid_stages(plan: Plan) -> tuple[int, ...]:
    """ZeRO stages that hybrid sharding goes with: ZeRO-2 too where it is FSDP that keeps gathered
    weights (reshard_after_forward: never)."""
    least = 2 if plan.stack.state.zero2_gathers else plan.stack.supports.hybrid_zero
    hybrid = tuple(range(least, 4))
    return hybrid if plan.stack.supports.hybrid_shard else ()


def _shards(plan: Plan, c: Columns) -> Array:
    hybrid = np.isin(c.zero, _hybrid_stages(plan)) & (c.shard_group > 1)
    return divides(c.shard_group, c.replicas) & ((c.shard_group == c.replicas) | hybrid)


SHARD_GROUP = Rule(
    "shard group",
    ("shard_group",),
    _shards,
    lambda plan, x: (
        f"shard group {x.shard_group} must divide dp x cp = {x.dp * x.cp}; a smaller one needs"
        f" hybrid sharding, which {plan.stack.title} has"
        f" {'with ZeRO ' + ' or '.join(map(str, s)) if (s := _hybrid_stages(plan)) else 'not'}"
    ),
    near=("shard_group",),
)


def _zero(plan: Plan, c: Columns) -> Array:
    supports = plan.stack.supports
    piped = np.isin(c.zero, supports.zero_with_pipeline)
    alone = np.isin(c.zero, [*supports.zero, *supports.zero_on_request])
    return alone & np.where(c.pp > 1, piped, True)


def _other_stages(plan: Plan, x: Layout) -> tuple[str, ...]:
    supports, piped = plan.stack.supports, x.pp > 1
    allowed = [z for z in supports.zero if not piped or z in supports.zero_with_pipeline]
    return (
        " or ".join(f"--zero {z}" for z in allowed),
        "--pp 1" if piped and x.zero in supports.zero else "",
    )


ZERO = Rule(
    "ZeRO stage supported",
    ("zero",),
    _zero,
    lambda plan, x: (
        f"{plan.stack.title} does not have {_lacking(plan, {'zero': x.zero, 'pp': x.pp})}"
    ),
    ways=_other_stages,
)


def _supported(plan: Plan, c: Columns) -> Array:
    s = plan.stack.supports
    ok = ones(c)
    for column, has in ((c.tp, s.tensor), (c.pp, s.pipeline), (c.cp, s.context), (c.ep, s.expert)):
        if not has:
            ok = ok & (column == 1)
    if not s.sequence_parallel:
        ok = ok & (c.sequence_parallel == 0)
    repeats = c.is_recompute(*s.recompute, *s.recompute_on_request)
    return ok & repeats & c.offloads(*s.offload)


_USED = ("tp", "pp", "cp", "ep", "sequence_parallel", "recompute", "offload")


def _lacking(plan: Plan, used: dict[str, object]) -> str:
    return " and ".join(map(str, lacks(plan.stack, used)))


SUPPORTED = Rule(
    "parallelism supported",
    ("stack",),
    _supported,
    lambda plan, x: (
        f"{plan.stack.title} does not have {_lacking(plan, {n: getattr(x, n) for n in _USED})}"
    ),
    ways=lambda plan, x: ("leave it out",),
)


def _placement(plan: Plan, c: Columns) -> Array:
    known = c.is_placement(*plan.stack.supports.placements)
    return known & ((c.placement == 0) | (c.ep == 1))


PLACEMENT = Rule(
    "placement supported",
    ("placement",),
    _placement,
    lambda plan, x: (
        f"{plan.stack.title} places ranks as {' or '.join(plan.stack.supports.placements)},"
        f" {PLACEMENTS[0]} alone where experts are shared out; here it is {x.placement}, ep {x.ep}"
    ),
    ways=lambda plan, x: (
        f"--placement {PLACEMENTS[0]}",
        "--ep 1" if x.placement in plan.stack.supports.placements else "",
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
_ACTS: dict[str, Callable[[Columns], Array]] = {
    "zero": lambda c: c.replicas > 1,
    "shard_group": lambda c: c.zero >= 1,
    "schedule": lambda c: c.pp > 1,
    "placement": lambda c: (c.pp > 1) & (c.dp > 1),
    "cp_comm_type": lambda c: c.cp > 1,
    "dp_overlap": lambda c: c.replicas > 1,
    "dp_bucket": lambda c: (c.zero < _ZERO_2) & (c.replicas > 1),  # FSDP has layers for buckets
    "zeropp": _is_sharded,
    "sub_group_size": _is_sharded,
    "hpz": _is_sharded,
    "tp_overlap": lambda c: (c.tp > 1) & (c.sequence_parallel > 0),
    "dispatcher": lambda c: c.ep > 1,
    "ep_overlap": lambda c: c.ep > 1,
    "shared_expert_overlap": lambda c: c.ep > 1,
}


def _acting(plan: Plan, c: Columns) -> Array:
    ok = ones(c)
    for name in plan.request.acting:
        ok = ok & _ACTS[name](c)
    return ok


def _idle(plan: Plan, x: Layout) -> str:
    table = Columns.of([x])
    idle = [flag(name) for name in plan.request.acting if not _ACTS[name](table)[0]]
    return (
        f"{', '.join(idle)} would do nothing in a layout of tp {x.tp}, pp {x.pp}, ep {x.ep}, dp"
        f" {x.dp} x cp {x.cp}, zero {x.zero}: ZeRO shards over dp x cp > 1 with zero 1 to 3, FSDP"
        " reduces layers and no buckets, schedules need pp > 1, dispatch of tokens ep > 1; leave it"
        " out, or fix the degrees"
    )


ACTING = Rule(
    "what is asked for acts",
    ("zero", "shard_group", "schedule", "placement", "cp_comm_type", "tp_overlap"),
    _acting,
    _idle,
)
