"""What makes a layout impossible: each rule is a boolean column and a sentence. Search masks with
them, errors quote them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner import schedules
from planner.formulas import experts
from planner.formulas import refusals as why
from planner.formulas.optimizers import OPTIMIZERS
from planner.formulas.params import stream_of
from planner.formulas.stages import equal_chunks
from planner.ledger import Array
from planner.specs.adapters import adapts_experts
from planner.specs.columns import Columns
from planner.specs.layers import cores_of, limits_of, modules_of
from planner.specs.layout import (
    NVME,
    OFFLOADED_OPTIMIZER,
    OFFLOADED_PARAMS,
    RECOMPUTE_MODULES,
    SCHEDULES,
    Layout,
)
from planner.specs.options import flag
from planner.specs.parts import Scan
from planner.specs.parts.base import WIDTHS
from planner.specs.pipeline_layout import pipeline_layout
from planner.specs.plan import Plan
from planner.specs.quantised import EIGHT_BIT
from planner.specs.task import TASKS

_ZERO_2, _ZERO_3 = 2.0, 3.0  # the first ZeRO stages that shard gradients, and parameters


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
    ok = _ones(c)
    for limit in limits_of(plan.model):
        if limit.what not in WIDTHS:
            copies = limit.repeats & (np.mod(c.tp, limit.count) == 0)
            ok = ok & (_divides(c.tp, limit.count) | copies)
    return ok


def _ffn(plan: Plan, c: Columns) -> Array:
    ok = _divides(c.tp, plan.model.hidden)
    for limit in limits_of(plan.model):
        if limit.what in WIDTHS:
            ok = ok & _divides(c.tp, limit.count)
    return ok


def _layers(plan: Plan, c: Columns) -> Array:
    model, stack = plan.model, plan.stack
    chunks = c.pp * c.vpp
    if plan.request.pipeline_layout is not None:
        stated = len(pipeline_layout(plan.request.pipeline_layout))
        able = {"no": equal_chunks(plan, c.pp, c.vpp), "one chunk": c.vpp == 1, "any": True}
        return (chunks == stated) & able[stack.supports.uneven]
    whole = equal_chunks(plan, c.pp, c.vpp)
    if stack.supports.uneven == "no" or plan.request.uneven_stages is False:
        return whole
    dealt = (c.vpp == 1) | (stack.supports.uneven == "any")
    return whole | (dealt & (chunks <= model.layers))


def _batch(plan: Plan, c: Columns) -> Array:
    return _divides(c.dp * c.micro_batch, c.batch(plan.training.global_batch))


def _sequence(plan: Plan, c: Columns) -> Array:
    each = 1.0 if plan.context_way == "ulysses" else 2.0  # causal work is balanced by halves
    slices = np.where(c.cp > 1, each * c.cp, 1.0) * c.sequence_ranks
    return _divides(slices, plan.training.seq_len)


def _context(plan: Plan, c: Columns) -> Array:
    """Ulysses shares out the heads that tensor parallelism leaves to a rank: each rank gets as many
    of the queries, and as many of keys and values or copies of one."""
    ok = c.cp == 1
    if plan.context_way not in plan.stack.supports.context_ways:
        return ok
    shared, even = c.tp * c.cp, _ones(c)
    for core, _ in cores_of(plan.model):
        if isinstance(core, Scan):  # whose ranks share heads, whatever way attention goes
            even = even & _divides(shared, core.units)
        elif plan.context_way == "ulysses":
            keys = core.kv_heads or core.heads
            even = even & _divides(shared, core.heads)
            even = even & (_divides(shared, keys) | (np.mod(shared, keys) == 0))
    return ok | even


def _whole(plan: Plan, c: Columns) -> Array:
    """What no rank shares with another: the layers of towers along a pipeline, or their
    sequences, and convolutions."""
    alone = plan.model.towers or plan.model.convolutions
    return ((c.pp == 1) & (c.cp == 1)) if alone else _ones(c)


def _plain(plan: Plan, c: Columns) -> Array:
    """Stacks that divide layers have layers of their own, of transformers."""
    return _ones(c) & (not (plan.model.convolutions and plan.stack.supports.tensor))


def _experts(plan: Plan, c: Columns) -> Array:
    if plan.model.routed is None:
        return c.ep == 1
    split = experts.tensor_of(plan, c.tp)
    whole = _divides(split, plan.model.routed.ffn_hidden) & _divides(
        c.ep, plan.model.routed.experts
    )
    return whole & _divides(c.ep * split, experts.ranks(c))


def _microbatches(plan: Plan, c: Columns) -> Array:
    m = c.microbatches(plan.training.global_batch)
    return schedules.allowed(c.schedule, c.pp, m, c.vpp) | (c.pp == 1)


def _schedule(plan: Plan, c: Columns) -> Array:
    ok = _ones(c)
    for code, name in enumerate(SCHEDULES):
        ok = np.where(c.schedule == code, schedules.chunks_fit(name, c.vpp), ok)
    ok = ok & np.where(c.vpp > 1, c.pp > 1, True)
    return ok & (c.is_schedule(*plan.stack.supports.schedules) | (c.pp == 1))


def _shards(plan: Plan, c: Columns) -> Array:
    ranks = c.replicas
    whole = c.shard_group == ranks
    # ZeRO-2 too where it is FSDP that keeps gathered weights (reshard_after_forward: never)
    least = _ZERO_2 if plan.stack.state.zero2_gathers else _ZERO_3
    hybrid = (c.zero >= least) & plan.stack.supports.hybrid_shard & (c.shard_group > 1)
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
    s, asked = plan.stack.supports, plan.training.offload_modules
    piped = (c.pp == 1) | s.offload_with_pipeline
    repeated = c.is_recompute("none") | s.offload_with_recompute
    if asked:
        piped = set(asked) <= set(s.offload_modules)
        repeated = repeated | c.is_recompute("selective", "modules")
    return ~c.offloads("activations") | (piped & repeated)


def _modules(plan: Plan, c: Columns) -> Array:
    has, ok = modules_of(plan.model), _ones(c)
    for missing in set(RECOMPUTE_MODULES) - has:
        ok = ok & ~c.repeats_module(missing)
    return ok & (set(plan.training.offload_modules) <= has)


def _optimizer_in_backward(plan: Plan, c: Columns) -> Array:
    if not plan.training.optimizer_in_backward:
        return _ones(c)
    # of one layer's gradients, where they are reduced layer by layer
    sharded = (c.zero >= _ZERO_2) & (c.pp == 1) & (c.ep == 1)
    able = {"no": False, "one GPU": c.gpus == 1, "sharded": (c.gpus == 1) | sharded}
    once = c.microbatches(plan.training.global_batch) == 1
    return (
        once & able[plan.stack.supports.optimizer_in_backward] & ~c.offloads(*OFFLOADED_OPTIMIZER)
    )


def _frozen(plan: Plan, c: Columns) -> Array:
    training, ok = plan.training, _ones(c)
    if training.trainable_layers is not None or training.active_layers is not None:
        return ok & (c.pp == 1)
    if training.adapter is not None and plan.stack.family != "megatron":
        experts = adapts_experts(plan.model.routed, stream_of(plan.model), training.adapter)
        ok = ok & (c.tp == 1) & ((c.ep == 1) | (not experts))
    return ok


def _quantised(plan: Plan, c: Columns) -> Array:
    base = plan.training.base_precision
    return _ones(c) & (base is None or base in EIGHT_BIT or plan.stack.supports.quantised_base)


def _whole_examples(plan: Plan, c: Columns) -> Array:
    return _divides(float(TASKS[plan.training.task].sequences), c.micro_batch)


def _teacher(plan: Plan, c: Columns) -> Array:
    """Ranks divide a teacher as they divide its student; no pipeline does."""
    own = plan.of_teacher if plan.training.teacher_here else None
    if own is None:
        return _ones(c)
    return (c.pp == 1) & _heads(own, c) & _ffn(own, c) & _experts(own, c)


def _cuda_graphs(plan: Plan, c: Columns) -> Array:
    captured = set(plan.training.cuda_graphs) <= set(plan.stack.supports.cuda_graphs)
    return np.full_like(c.tp, captured, dtype=bool)


def _whole_matrices(plan: Plan, c: Columns) -> Array:
    own, supports = OPTIMIZERS[plan.training.optimizer], plan.stack.supports
    sharded = (c.zero >= 1) & (c.replicas > 1)
    ok = _ones(c)
    if (own.factored and supports.flat_shards) or (own.work and supports.sharded_matrices == "no"):
        ok = ok & ~sharded
    if own.block and supports.flat_shards:
        ok = ok & ~(sharded & (c.zero >= _ZERO_3))
    if own.work or own.paged:
        ok = ok & ~c.offloads(*OFFLOADED_OPTIMIZER)
    return ok


def _state_types(plan: Plan, c: Columns) -> Array:
    return _ones(c) & (not why.no_such_types(plan))


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
    "cp_comm_type": lambda c: c.cp > 1,
    "dp_overlap": lambda c: c.replicas > 1,
    "dp_bucket": lambda c: (c.zero < _ZERO_2) & (c.replicas > 1),  # FSDP has layers for buckets
    "zeropp": lambda c: (c.zero >= _ZERO_3) & (c.replicas > 1),
    "sub_group_size": lambda c: (c.zero >= _ZERO_3) & (c.replicas > 1),
    "hpz": lambda c: (c.zero >= _ZERO_3) & (c.replicas > 1),
    "tp_overlap": lambda c: (c.tp > 1) & (c.sequence_parallel > 0),
    "dispatcher": lambda c: c.ep > 1,
    "ep_overlap": lambda c: c.ep > 1,
    "shared_expert_overlap": lambda c: c.ep > 1,
}


def _acting(plan: Plan, c: Columns) -> Array:
    ok = _ones(c)
    for name in plan.request.acting:
        ok = ok & _ACTS[name](c)
    return ok


RULES: tuple[Rule, ...] = (
    Rule("degrees multiply to the GPUs", ("tp", "pp", "cp", "dp"), _in_domain, why.degrees),
    Rule("heads divide by tp", ("tp",), _heads, why.heads),
    Rule("widths divide by tp", ("tp",), _ffn, why.widths),
    Rule("towers and convolutions stay whole", ("pp", "cp"), _whole, why.whole),
    Rule("convolutions run on plain torch", ("stack",), _plain, why.plain),
    Rule("layers fill the stages", ("pp", "vpp"), _layers, why.layers),
    Rule(
        "batch divides by dp x micro-batch",
        ("micro_batch", "dp", "global_batch"),
        _batch,
        why.batch,
    ),
    Rule("sequence divides", ("seq_len",), _sequence, why.sequence),
    Rule("heads divide by cp", ("cp", "cp_comm_type"), _context, why.context),
    Rule("experts divide by ep", ("ep",), _experts, why.experts),
    Rule("schedule fits pp and micro-batches", ("micro_batch",), _microbatches, why.microbatches),
    Rule("schedule fits vpp and stack", ("schedule",), _schedule, why.schedule),
    Rule("shard group", ("shard_group",), _shards, why.shard_group),
    Rule("ZeRO stage supported", ("zero",), _zero, why.zero),
    Rule("parallelism supported", ("stack",), _stack, why.stack),
    Rule("modules are those of the model", ("recompute", "offload_modules"), _modules, why.modules),
    Rule("offloaded parameters need ZeRO-3", ("offload",), _offload, why.offload),
    Rule("drives known for NVMe offloading", ("offload",), _offload_drives, why.drives),
    Rule(
        "offloaded activations supported",
        ("offload",),
        _offload_activations,
        why.offload_activations,
    ),
    Rule(
        "weights can be updated in backward",
        ("optimizer_in_backward",),
        _optimizer_in_backward,
        why.optimizer_in_backward,
    ),
    Rule(
        "frozen weights supported", ("lora", "trainable_layers", "lisa", "tp"), _frozen, why.frozen
    ),
    Rule("frozen weights in such a format", ("base_precision", "stack"), _quantised, why.quantised),
    Rule(
        "micro-batches hold whole examples",
        ("task", "micro_batch"),
        _whole_examples,
        why.whole_examples,
    ),
    Rule("ranks divide the teacher", ("teacher", "tp", "pp", "ep"), _teacher, why.teacher),
    Rule("graphs can be captured", ("cuda_graphs",), _cuda_graphs, why.cuda_graphs),
    Rule(
        "optimizer knows what ZeRO cuts",
        ("optimizer", "zero", "offload"),
        _whole_matrices,
        why.whole_matrices,
    ),
    Rule(
        "states have such types",
        ("moments_precision", "master_precision", "gradient_precision"),
        _state_types,
        why.state_types,
    ),
    Rule("placement supported", ("placement",), _placement, why.placement),
    Rule(
        "sequence parallelism needs tp",
        ("sequence_parallel",),
        _sequence_parallel,
        why.sequence_parallel,
    ),
    Rule(
        "what is asked for acts",
        ("zero", "shard_group", "schedule", "placement", "cp_comm_type", "tp_overlap"),
        _acting,
        why.acting,
    ),
)


def check(plan: Plan, columns: Columns) -> dict[str, Array]:
    """Every rule as a boolean column, by name: True where the layout is allowed."""
    return {rule.name: rule.holds(plan, columns) for rule in RULES}
