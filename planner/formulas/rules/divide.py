"""Rules of divisibility: GPUs, heads, widths, layers, batch, sequence, experts."""

from __future__ import annotations

import numpy as np

from planner.formulas import experts
from planner.formulas.rules import traced
from planner.formulas.rules.rule import Rule, divides, ones
from planner.formulas.stages import equal_chunks
from planner.ledger import Array
from planner.specs.capabilities import has, values
from planner.specs.columns import Columns
from planner.specs.layers import attended_of, limits_of, parts_of, scans_of
from planner.specs.layout import Layout
from planner.specs.model import ModelSpec
from planner.specs.parts.base import WIDTHS as WIDTH_NAMES
from planner.specs.parts.base import Limit
from planner.specs.pipeline_layout import pipeline_layout
from planner.specs.plan import Plan

DEGREES = Rule(
    "degrees multiply to the GPUs",
    ("tp", "pp", "cp", "dp"),
    lambda plan, c: c.gpus == plan.cluster.gpus,
    lambda plan, x: (
        f"tp {x.tp} x pp {x.pp} x cp {x.cp} x dp {x.dp} = {x.tp * x.pp * x.cp * x.dp}, but"
        f" there are {plan.cluster.gpus} GPUs; leave one degree out and it is found for you"
    ),
)


def _fits(limit: Limit, tp: Array) -> Array:
    """Whether degrees divide what is limited, or hold copies of it."""
    copies = limit.repeats & (np.mod(tp, limit.count) == 0)
    return divides(tp, limit.count) | copies


def _heads(plan: Plan, c: Columns) -> Array:
    ok = ones(c)
    for limit in limits_of(plan.model):
        if limit.what not in WIDTH_NAMES:
            ok = ok & _fits(limit, c.tp)
    return ok


def _refused_heads(plan: Plan, x: Layout) -> str:
    """The head counts that tp does not divide; KV heads are named with their query heads."""
    limits = [limit for limit in limits_of(plan.model) if limit.what not in WIDTH_NAMES]
    refused = [limit for limit in limits if not _fits(limit, np.float64(x.tp))]
    counts = " and ".join(f"{limit.count} {limit.what}" for limit in refused)
    if any(limit.what in ("heads", "heads of keys and values") for limit in refused):
        core = next(core for core, _ in attended_of(plan.model))
        counts = f"{core.heads} heads ({core.kv_heads or core.heads} of keys and values)"
    return f"{counts} cannot be shared by tp {x.tp}"


HEADS = Rule("heads divide by tp", ("tp",), _heads, _refused_heads, near=("tp",))


def _cut(model: ModelSpec) -> list[int]:
    return [model.hidden, *(each.count for each in limits_of(model) if each.what in WIDTH_NAMES)]


def _widths(plan: Plan, c: Columns) -> Array:
    ok = ones(c)
    for width in _cut(plan.model):
        ok = ok & divides(c.tp, width)
    return ok


WIDTHS = Rule(
    "widths divide by tp",
    ("tp",),
    _widths,
    lambda plan, x: (
        f"widths {', '.join(f'{width:,}' for width in _cut(plan.model))} (hidden and MLP) do not"
        f" all divide by tp {x.tp}"
    ),
    near=("tp",),
)


def _whole(plan: Plan, c: Columns) -> Array:
    """Parts of the model that are not sharded: layers of towers along a pipeline, their sequences,
    and convolutions."""
    alone = plan.model.towers or plan.model.convolutions
    return ((c.pp == 1) & (c.cp == 1)) if alone else ones(c)


def _runs(plan: Plan) -> bool:
    """Whether the stack can run the model: its convolutions, or its traced code."""
    divides_own = bool(values(plan.stack, "tp"))
    if plan.model.traced:
        return plan.stack.family not in _NO_MODULES and (plan.stack.own_loop or not divides_own)
    return not (plan.model.convolutions and divides_own)


def _divided(plan: Plan, x: Layout) -> str:
    where = f"over pp {x.pp} stages or cp {x.cp} ranks; take --pp 1 --cp 1"
    if plan.model.convolutions:
        return (
            f"the convolutions of {plan.model.name} are planned whole on every rank, not {where}:"
            " data parallelism and ZeRO divide its work"
        )
    names = ", ".join(tower.name for tower in plan.model.towers)
    return (
        f"{plan.model.name} has samples of several lengths (its sequence, {names}), whose layers"
        f" are not planned {where}: data and tensor parallelism and ZeRO are planned"
    )


WHOLE = Rule("towers and convolutions stay whole", ("pp", "cp"), _whole, _divided)


_NO_MODULES = ("jax", "native")  # families that run no module of torch
# stacks that divide layers have layers of their own, of transformers
PLAIN = Rule(
    "convolutions run on plain torch",
    ("stack",),
    lambda plan, c: ones(c) & _runs(plan),
    lambda plan, x: (
        f"{plan.stack.title} runs transformer layers of its own and no module of torch, such as the"
        f" {'convolutions' if plan.model.convolutions else 'traced blocks'} of {plan.model.name}"
    ),
    ways=lambda plan, x: ("--stack torchtitan" if x.pp > 1 else "--stack pytorch-fsdp",),
)


def _layers(plan: Plan, c: Columns) -> Array:
    chunks, unlike = c.pp * c.vpp, has(plan.stack, "pipeline_layout", "any")
    if plan.request.pipeline_layout is not None:
        stated = len(pipeline_layout(plan.request.pipeline_layout))
        return (chunks == stated) & ((c.vpp == 1) | unlike)
    whole = equal_chunks(plan, c.pp, c.vpp)
    if not has(plan.stack, "pipeline_layout") or plan.request.uneven_stages is False:
        return whole
    dealt = (c.vpp == 1) | unlike
    return whole | (dealt & (chunks <= plan.model.layers))


def _unfilled(plan: Plan, x: Layout) -> str:
    chunks, title = f"pp {x.pp} x vpp {x.vpp} = {x.pp * x.vpp}", plan.stack.title
    layers, uneven = plan.model.layers, has(plan.stack, "pipeline_layout")
    if plan.request.pipeline_layout is not None:
        stated = len(pipeline_layout(plan.request.pipeline_layout))
        if x.pp * x.vpp != stated:
            return f"the pipeline layout has {stated} chunks (bars and one), {chunks}"
        return f"{title} lets a user state the contents of chunks only with one chunk per rank"
    if x.pp * x.vpp > layers:
        return f"{chunks} chunks are more than the {layers} layers"
    refused = f"{layers} layers do not divide into {chunks} equal chunks"
    if uneven and plan.request.uneven_stages is False:
        return refused
    if uneven:
        return f"{refused}, and {title} makes unequal ones only with one chunk per rank"
    return f"{refused}, and those of {title} are equal"


def _searched_uneven(plan: Plan, x: Layout) -> tuple[str, ...]:
    refused = plan.request.uneven_stages is False and has(plan.stack, "pipeline_layout")
    return ("leave out --no-uneven-stages, and unequal ones are searched",) if refused else ()


LAYERS = Rule(
    "layers fill the stages", ("pp", "vpp"), _layers, _unfilled, ("pp", "vpp"), _searched_uneven
)
BATCH = Rule(
    "batch divides by dp x micro-batch",
    ("micro_batch", "dp", "global_batch"),
    lambda plan, c: divides(c.dp * c.micro_batch, c.batch(plan.training.global_batch)),
    lambda plan, x: (
        f"global batch {plan.training.global_batch} does not divide by dp {x.dp} x micro-batch"
        f" {x.micro_batch} = {x.dp * x.micro_batch}"
    ),
    near=("global_batch", "micro_batch"),
)


def _slices(plan: Plan, c: Columns) -> Array:
    """Pieces of a sequence; causal work is balanced by halves."""
    each = 1.0 if plan.context_way == "ulysses" else 2.0
    return np.where(c.cp > 1, each * c.cp, 1.0) * c.sequence_ranks


def _whole_sequences(plan: Plan, x: Layout) -> tuple[str, ...]:
    tokens, table = plan.training.seq_len, Columns.of([x])
    slices = int(_slices(plan, table)[0])
    near = " or ".join(str(n * slices) for n in (tokens // slices, tokens // slices + 1) if n)
    plain = x.sequence_parallel and tokens % (slices // x.tp) == 0
    return f"nearest: --seq-len {near}", "--no-sequence-parallel" if plain else ""


SEQUENCE = Rule(
    "sequence divides",
    ("seq_len",),
    lambda plan, c: divides(_slices(plan, c), plan.training.seq_len),
    lambda plan, x: (
        f"sequence {plan.training.seq_len} does not divide into the"
        f" {_slices(plan, Columns.of([x]))[0]:g} slices of cp {x.cp}"
        + (f" and sequence parallel over tp {x.tp}" if x.sequence_parallel else "")
    ),
    ways=_whole_sequences,
)


def _scans(plan: Plan, c: Columns) -> Array:
    """Ranks share the heads of a layer with a state, whatever way attention goes."""
    ok = ones(c)
    for core, _ in scans_of(plan.model):
        ok = ok & divides(c.tp * c.cp, core.units)
    return ok | (c.cp == 1)


def _unscanned(plan: Plan, x: Layout) -> str:
    core = next(core for core, _ in scans_of(plan.model) if core.units % (x.tp * x.cp))
    limits = next(part.limits() for part, _ in parts_of(plan.model) if core in part.core())
    units = min(limits, key=lambda limit: limit.count != core.units).what
    return (
        f"ranks that share a sequence share the {core.units} {units}, of which tp {x.tp} leaves"
        f" {core.units / x.tp:g}: they do not divide by cp {x.cp}"
    )


def _heads_of_ulysses(plan: Plan, c: Columns) -> Array:
    """Ulysses shares out the heads that tensor parallelism leaves to a rank: each rank gets as many
    of the queries, and as many of keys and values or copies of one."""
    shared, ok = c.tp * c.cp, ones(c)
    for core, _ in attended_of(plan.model) if plan.context_way == "ulysses" else ():
        keys = core.kv_heads or core.heads
        ok = ok & divides(shared, core.heads)
        ok = ok & (divides(shared, keys) | (np.mod(shared, keys) == 0))
    return ok | (c.cp == 1)


def _unshared(plan: Plan, x: Layout) -> str:
    core = next(core for core, _ in attended_of(plan.model))
    return (
        f"Ulysses shares heads: the {core.heads / x.tp:g} of {core.heads}"
        f" ({core.kv_heads or core.heads} of keys and values) that tp {x.tp} leaves a rank do not"
        f" divide by cp {x.cp}"
    )


def _other_ways(plan: Plan, x: Layout) -> tuple[str, ...]:
    others = [way for way in values(plan.stack, "cp_comm_type") if way != "ulysses"]
    return (f"--cp-comm-type {' or '.join(others)}",) if others else ()


SCANS = Rule("heads of scans divide by cp", ("cp",), _scans, _unscanned, ("cp",))
CONTEXT = Rule(
    "heads divide by cp", ("cp", "cp_comm_type"), _heads_of_ulysses, _unshared, ("cp",), _other_ways
)


def _experts(plan: Plan, c: Columns) -> Array:
    if plan.model.routed is None:
        return c.ep == 1
    split = experts.tensor_of(plan, c.tp)
    whole = divides(split, plan.model.routed.ffn_hidden) & divides(c.ep, plan.model.routed.experts)
    return whole & divides(c.ep * split, experts.ranks(c))


def _undivided_experts(plan: Plan, x: Layout) -> str:
    routed = plan.model.routed
    if routed is None:
        none = f"; {traced.no_experts(plan)}" if plan.model.traced else ""
        return f"ep {x.ep} needs a model with experts{none}; leave out --ep"
    etp = int(experts.tensor_of(plan, np.float64(x.tp)))
    if routed.ffn_hidden % etp:
        return f"etp {etp} must divide the width {routed.ffn_hidden:,} of an expert"
    split = f" over the {etp} ranks that split each (--etp)" if etp > 1 else ""
    ranks = x.tp * x.dp * x.cp
    return f"ep {x.ep} must divide {routed.experts} experts and tp x dp x cp = {ranks}{split}"


def _fewer_splits(plan: Plan, x: Layout) -> tuple[str, ...]:
    split = plan.model.routed and experts.tensor_of(plan, np.float64(x.tp)) > 1
    return ("--etp 1",) if split else ()


EXPERTS = Rule(
    "experts divide by ep", ("ep",), _experts, _undivided_experts, ("ep",), _fewer_splits
)


def _split_alike(plan: Plan, c: Columns) -> Array:
    if plan.model.routed is None or plan.stack.experts.splits == "any":
        return ones(c)
    etp = experts.tensor_of(plan, c.tp)
    return (etp == c.tp) | ((etp == 1) & (plan.stack.experts.splits == "one or tp"))


SPLITS = Rule(
    "experts split as the stack can",
    ("etp",),
    _split_alike,
    lambda plan, x: (
        f"{plan.stack.title} splits every expert over all tensor-parallel ranks"
        f"{' or none' if plan.stack.experts.splits == 'one or tp' else ''}; here etp is"
        f" {float(experts.tensor_of(plan, np.float64(x.tp))):g}, tp {x.tp}"
    ),
    ways=lambda plan, x: (
        "--etp 1" if plan.stack.experts.splits == "one or tp" else "",
        f"--etp {x.tp}" if x.tp > 1 else "",
    ),
)


def divided(plan: Plan, c: Columns) -> Array:
    """Whether ranks divide the heads, widths and experts of a model."""
    return _heads(plan, c) & _widths(plan, c) & _experts(plan, c)
