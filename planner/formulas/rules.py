"""What makes a layout impossible: each rule is a boolean column and a sentence. Search masks with
them, errors quote them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner import schedules
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layout import NVME, OFFLOADED_PARAMS, PLACEMENTS, SCHEDULES, Layout
from planner.specs.options import flag
from planner.specs.plan import Plan


@dataclass(frozen=True)
class Rule:
    """`holds(plan, columns)` is True where a layout is allowed; `sentence(plan, layout)` is the
    reason why one is not."""

    name: str
    options: tuple[str, ...]  # that a user would change
    holds: Callable[[Plan, Columns], Array]
    sentence: Callable[[Plan, Layout], str]

    @property
    def field(self) -> str:
        """The options as they are typed: "--pp/--vpp"."""
        return "/".join(flag(name) for name in self.options)


def _ones(c: Columns) -> Array:
    return np.ones_like(c.tp, dtype=bool)


def _divides(divisor: Array, number: Array) -> Array:
    return np.mod(number, np.maximum(divisor, 1)) == 0


def _in_domain(plan: Plan, c: Columns) -> Array:
    return c.gpus == plan.cluster.gpus


def _heads(plan: Plan, c: Columns) -> Array:
    k = float(plan.model.kv_heads)
    heads = _divides(c.tp, plan.model.heads)
    if plan.model.latent is not None:
        return heads
    return heads & (_divides(c.tp, k) | (np.mod(c.tp, k) == 0))


def _ffn(plan: Plan, c: Columns) -> Array:
    ok = _divides(c.tp, plan.model.ffn_hidden) if plan.model.dense_layers else _ones(c)
    if plan.model.moe is not None:
        ok = ok & _divides(c.tp, plan.model.moe.ffn_hidden)
    return ok & _divides(c.tp, plan.model.hidden)


def _layers(plan: Plan, c: Columns) -> Array:
    chunks = c.pp * c.vpp
    if plan.request.uneven_stages:
        return chunks <= plan.model.layers
    whole = _divides(chunks, plan.model.layers)
    if not plan.stack.counts_ends:
        return whole
    units = plan.model.layers + 2
    return whole | (
        (c.pp > 1) & (2 * c.pp <= units) & _divides(chunks, units)
    )  # a layer at both ends


def _batch(plan: Plan, c: Columns) -> Array:
    return _divides(c.dp * c.micro_batch, c.batch(plan.training.global_batch))


def _sequence(plan: Plan, c: Columns) -> Array:
    slices = np.where(c.cp > 1, 2 * c.cp, 1.0) * c.sequence_ranks
    return _divides(slices, plan.training.seq_len)


def _experts(plan: Plan, c: Columns) -> Array:
    if plan.model.moe is None:
        return c.ep == 1
    return _divides(c.ep, plan.model.moe.experts) & _divides(c.ep, c.replicas)


def _microbatches(plan: Plan, c: Columns) -> Array:
    m = c.microbatches(plan.training.global_batch)
    return schedules.allowed(SCHEDULES, c.schedule, c.pp, m, c.vpp) | (c.pp == 1)


def _schedule(plan: Plan, c: Columns) -> Array:
    ok = _ones(c)
    for code, name in enumerate(SCHEDULES):
        ok = np.where(c.schedule == code, schedules.chunks_fit(name, c.vpp), ok)
    ok = ok & np.where(c.vpp > 1, c.pp > 1, True)
    return ok & (c.is_schedule(*plan.stack.supports.schedules) | (c.pp == 1))


def _shards(plan: Plan, c: Columns) -> Array:
    ranks = c.replicas
    whole = c.shard_group == ranks
    hybrid = (c.zero == 3) & plan.stack.supports.hybrid_shard & (c.shard_group > 1)
    return _divides(c.shard_group, ranks) & (whole | hybrid)


def _zero(plan: Plan, c: Columns) -> Array:
    supports = plan.stack.supports
    alone = np.isin(c.zero, supports.zero)
    piped = np.isin(c.zero, supports.zero_with_pipeline)
    return alone & np.where(c.pp > 1, piped, True)


def _stack(plan: Plan, c: Columns) -> Array:
    s = plan.stack.supports
    ok = _ones(c)
    for column, has in ((c.tp, s.tensor), (c.pp, s.pipeline), (c.cp, s.context), (c.ep, s.expert)):
        if not has:
            ok = ok & (column == 1)
    if not s.sequence_parallel:
        ok = ok & (c.sequence_parallel == 0)
    return ok & c.is_recompute(*s.recompute) & c.offloads(*s.offload)


def _offload(plan: Plan, c: Columns) -> Array:
    return ~c.offloads(*OFFLOADED_PARAMS, *NVME) | (c.zero >= 3)


def _offload_drives(plan: Plan, c: Columns) -> Array:
    return ~c.offloads(*NVME) | (plan.cluster.nvme is not None)


def _offload_activations(plan: Plan, c: Columns) -> Array:
    s = plan.stack.supports
    piped = (c.pp == 1) | s.offload_with_pipeline
    repeated = c.is_recompute("none") | s.offload_with_recompute
    return ~c.offloads("activations") | (piped & repeated)


def _placement(plan: Plan, c: Columns) -> Array:
    known = c.is_placement(*plan.stack.supports.placements)
    return known & ((c.placement == 0) | (c.ep == 1))


def _sequence_parallel(plan: Plan, c: Columns) -> Array:
    return (c.sequence_parallel == 0) | (c.tp > 1)


# where an option of the layout does something
_ACTS: dict[str, Callable[[Columns], Array]] = {
    "zero": lambda c: c.replicas > 1,
    "shard_group": lambda c: c.zero >= 1,
    "schedule": lambda c: c.pp > 1,
    "placement": lambda c: (c.pp > 1) & (c.dp > 1),
}


def _acting(plan: Plan, c: Columns) -> Array:
    ok = _ones(c)
    for name in plan.request.acting:
        ok = ok & _ACTS[name](c)
    return ok


def _recompute_size(plan: Plan, c: Columns) -> Array:
    return c.recompute_size <= np.ceil(plan.model.layers / c.pp)


def _microbatches_of(plan: Plan, one: Layout) -> str:
    return f"{plan.training.global_batch / (one.dp * one.micro_batch):g}"


RULES: tuple[Rule, ...] = (
    Rule(
        "degrees multiply to the GPUs",
        ("tp", "pp", "cp", "dp"),
        _in_domain,
        lambda p, x: (
            f"tp {x.tp} x pp {x.pp} x cp {x.cp} x dp {x.dp} = {x.tp * x.pp * x.cp * x.dp}, but"
            f" there are {p.cluster.gpus} GPUs; leave one degree out and it is found for you"
        ),
    ),
    Rule(
        "heads divide by tp",
        ("tp",),
        _heads,
        lambda p, x: (
            f"{p.model.heads} heads ({p.model.kv_heads} of keys and values) cannot be shared by tp"
            f" {x.tp}; take a divisor of {p.model.heads}"
        ),
    ),
    Rule(
        "widths divide by tp",
        ("tp",),
        _ffn,
        lambda p, x: (
            f"hidden {p.model.hidden} or MLP width {p.model.ffn_hidden} does not divide by tp"
            f" {x.tp}"
        ),
    ),
    Rule(
        "layers divide by pp x vpp",
        ("pp", "vpp"),
        _layers,
        lambda p, x: (
            f"{p.model.layers} layers do not divide by pp {x.pp} x vpp {x.vpp} = {x.pp * x.vpp}; "
            f"take a divisor of {p.model.layers}"
            + (
                f" or, with embedding and head as a layer each, of {p.model.layers + 2}"
                if p.stack.counts_ends
                else ""
            )
        ),
    ),
    Rule(
        "batch divides by dp x micro-batch",
        ("micro_batch", "dp", "global_batch"),
        _batch,
        lambda p, x: (
            f"global batch {p.training.global_batch} does not divide by dp {x.dp} x micro-batch"
            f" {x.micro_batch} = {x.dp * x.micro_batch}; take a multiple"
        ),
    ),
    Rule(
        "sequence divides",
        ("seq_len",),
        _sequence,
        lambda p, x: (
            f"sequence {p.training.seq_len} does not divide into the slices of cp {x.cp}"
            + (f" and sequence parallel over tp {x.tp}" if x.sequence_parallel else "")
        ),
    ),
    Rule(
        "experts divide by ep",
        ("ep",),
        _experts,
        lambda p, x: (
            f"ep {x.ep} needs a model with experts"
            if p.model.moe is None
            else f"ep {x.ep} must divide {p.model.moe.experts} experts and dp x cp = {x.dp * x.cp}"
        ),
    ),
    Rule(
        "schedule fits pp and micro-batches",
        ("micro_batch",),
        _microbatches,
        lambda p, x: (
            f"the {x.schedule} schedule needs {schedules.BY_NAME[x.schedule].NEEDS}; micro-batches"
            f" per step are {_microbatches_of(p, x)}, pp is {x.pp}"
        ),
    ),
    Rule(
        "schedule fits vpp and stack",
        ("schedule",),
        _schedule,
        lambda p, x: (
            f"schedule {x.schedule} with vpp {x.vpp} and pp {x.pp} is not possible with"
            f" {p.stack.title} (it runs {', '.join(p.stack.supports.schedules)}; vpp > 1 means"
            " interleaved, breadth-first, or with 2 a V, and needs pp > 1)"
        ),
    ),
    Rule(
        "shard group",
        ("shard_group",),
        _shards,
        lambda p, x: (
            f"shard group {x.shard_group} must divide dp x cp = {x.dp * x.cp}; a smaller one needs"
            f" --zero 3 and a stack with hybrid sharding ({p.stack.title}:"
            f" {'yes' if p.stack.supports.hybrid_shard else 'no'})"
        ),
    ),
    Rule(
        "ZeRO stage supported",
        ("zero",),
        _zero,
        lambda p, x: (
            f"{p.stack.title} runs ZeRO {p.stack.supports.zero}"
            + (f" ({p.stack.supports.zero_with_pipeline} with a pipeline)" if x.pp > 1 else "")
            + f", not {x.zero}"
        ),
    ),
    Rule(
        "parallelism supported",
        ("stack",),
        _stack,
        lambda p, x: (
            f"{p.stack.title} cannot run this layout (tensor {p.stack.supports.tensor}, pipeline"
            f" {p.stack.supports.pipeline}, context {p.stack.supports.context}, expert"
            f" {p.stack.supports.expert}, recompute {'/'.join(p.stack.supports.recompute)}, offload"
            f" {'/'.join(p.stack.supports.offload)})"
        ),
    ),
    Rule(
        "offloaded parameters need ZeRO-3",
        ("offload",),
        _offload,
        lambda p, x: (
            (
                f"DeepSpeed offloads to NVMe under ZeRO-3 alone, not with ZeRO-{x.zero}"
                if x.offload in NVME
                else (
                    "parameters can be offloaded only where they are sharded, not with"
                    f" ZeRO-{x.zero}"
                )
            )
            + "; take --zero 3, or --offload optimizer"
        ),
    ),
    Rule(
        "drives known for NVMe offloading",
        ("offload",),
        _offload_drives,
        lambda p, x: (
            f"the NVMe drives of {p.cluster.title} are not known; state them with --nvme-read and"
            " --nvme-write, such as '10 GB/s' and '5 GB/s', or take --offload params"
        ),
    ),
    Rule(
        "offloaded activations supported",
        ("offload",),
        _offload_activations,
        lambda p, x: (
            f"{p.stack.title} offloads activations "
            + ("" if p.stack.supports.offload_with_pipeline else "only without a pipeline, ")
            + (
                "beside recompute"
                if p.stack.supports.offload_with_recompute
                else "only without recompute"
            )
            + f"; here pp is {x.pp}, recompute {x.recompute}"
        ),
    ),
    Rule(
        "placement supported",
        ("placement",),
        _placement,
        lambda p, x: (
            f"{p.stack.title} places ranks as {' or '.join(p.stack.supports.placements)},"
            f" {PLACEMENTS[0]} alone where experts are shared out; here it is {x.placement}, ep"
            f" {x.ep}"
        ),
    ),
    Rule(
        "sequence parallelism needs tp",
        ("sequence_parallel",),
        _sequence_parallel,
        lambda p, x: (
            "sequence parallelism divides work among tensor-parallel ranks; it needs tp > 1"
        ),
    ),
    Rule(
        "what is asked for acts",
        ("zero", "shard_group", "schedule", "placement"),
        _acting,
        lambda p, x: (
            f"{', '.join(map(flag, p.request.acting))} would do nothing in a layout of tp {x.tp},"
            f" pp {x.pp}, dp {x.dp} x cp {x.cp}, zero {x.zero}: ZeRO shards over dp x cp > 1 with"
            " zero 1 to 3, schedules need pp > 1; leave it out, or fix the degrees"
        ),
    ),
    Rule(
        "recompute size",
        ("recompute",),
        _recompute_size,
        lambda p, x: (
            f"{x.recompute} needs more layers than a stage has ({p.model.layers} / pp {x.pp})"
        ),
    ),
)


def check(plan: Plan, columns: Columns) -> dict[str, Array]:
    """Every rule as a boolean column, by name: True where the layout is allowed."""
    return {rule.name: rule.holds(plan, columns) for rule in RULES}
