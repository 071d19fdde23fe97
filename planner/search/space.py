"""The layouts of a plan that are worth trying, as columns: every step multiplies or filters whole
tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from planner import schedules
from planner.estimate.factored import Space
from planner.formulas.divisors import divisors
from planner.formulas.experts import tensor_of
from planner.formulas.stages import ENDS, equal_chunks, largest_chunk
from planner.inputs.degrees import LEAST_MAX_TP, contexts_of, longest_context
from planner.ledger import Array
from planner.specs.base import PlanError
from planner.specs.capabilities import has, values
from planner.specs.columns import COLUMNS, ByName, unique_rows
from planner.specs.layers import modules_of, shared_heads
from planner.specs.layout import (
    NVME,
    OFFLOADS,
    PLACEMENTS,
    SCHEDULES,
    recompute_in,
    recompute_parts,
)
from planner.specs.pipeline_layout import pipeline_layout
from planner.specs.plan import Plan

# elements per token and hidden unit that a layer has in memory at least while it is computed: its
# input, and queries, keys and values or what the MLP reads; a bound, of what has no room anyway
_LEAST_ACTIVATIONS = 2
# combinations of degrees, micro-batch and schedule; Llama 3.1 405B has 15,000 on 98,304 GPUs
MOST_ROWS = 2_000_000
# stages up to which schedules are tried whose idle time is simulated: actions grow as the square,
# 80,000 here
MOST_SIMULATED_STAGES = 64
# divisors of a global batch up to which each is tried as a micro-batch: published ones have 40 at
# most; with more, the ratio of one micro-batch that is tried to the next. Choices
MOST_DIVISORS = 96
STEP = 1.4
# layers per recompute group that are searched; the whole chunk besides
GROUPS = (2, 3, 4, 6, 8, 12, 16)
# modules that are repeated by themselves: with experts, with latent attention, with both
# (Megatron-Bridge, DeepSeek-V3 report section 3.2.3)
MODULE_SETS = ("moe_act", "layernorm+moe_act", "mla_up_proj", "mla_up_proj+layernorm+moe_act")
INNER = (
    "recompute",
    "recompute_size",
    "offload",
)  # options that go with every row of the other columns


def _choices(fixed: int | None, values: Sequence[int]) -> Array:
    return np.array(values if fixed is None else [fixed], dtype=float)


def _cross(table: ByName, name: str, values: Array) -> ByName:
    """Every row with every value."""
    out = {key: np.repeat(column, len(values)) for key, column in table.items()}
    return {**out, name: np.tile(values, _length(table))}


def _expand(
    table: ByName,
    keys: Sequence[str],
    names: Sequence[str],
    tuples: Callable[..., Sequence[Sequence[float]]],
) -> ByName:
    """Every row with each of the `tuples` of its values of `keys`; it is called once per
    distinct combination."""
    kinds, which = unique_rows({key: table[key] for key in keys})
    every = [
        np.array(tuples(*kind), dtype=float).reshape(-1, len(names))
        for kind in zip(*(kinds[key] for key in keys), strict=True)
    ]
    counts = np.array([len(kind_rows) for kind_rows in every], dtype=np.intp)
    repeats = counts[which]
    ends = np.cumsum(repeats)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - repeats, repeats)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.intp)
    rows = np.concatenate(every) if every else np.zeros((0, len(names)))
    at = np.repeat(starts[which], repeats) + within
    out = {key: np.repeat(column, repeats) for key, column in table.items()}
    return {**out, **{name: rows[at, i] for i, name in enumerate(names)}}


def degrees(plan: Plan) -> dict[str, list[int]]:
    """Tensor, pipeline and context parallel degrees that are tried where the request leaves them
    open."""
    model, stack, parts = plan.model, plan.stack, divisors(plan.cluster.gpus)
    most = max(LEAST_MAX_TP, plan.cluster.nvlink_domain)
    pps = [p for p in parts if p <= model.layers] if values(stack, "pp") else [1]
    if plan.request.pipeline_layout is not None:
        chunks = len(pipeline_layout(plan.request.pipeline_layout))
        pps = [p for p in pps if chunks % p == 0]
    elif not has(stack, "pipeline_layout") or plan.request.uneven_stages is False:
        pps = [p for p in pps if equal_chunks(plan, p, 1)]
    heads = shared_heads(model)
    length = plan.training.seq_len
    contexts = contexts_of(length, longest_context(length))
    return {
        "tp": [t for t in parts if t <= most and heads % t == 0] if values(stack, "tp") else [1],
        "pp": pps,
        "cp": [c for c in parts if c in contexts] if values(stack, "cp") else [1],
    }


def outer(plan: Plan, batches: Sequence[int]) -> ByName:
    """Rows of everything but recompute and offloading, for each global batch; rules are applied by
    the caller."""
    request, model, stack = plan.request, plan.model, plan.stack
    gpus = plan.cluster.gpus
    open_ = degrees(plan)
    tps = _choices(request.tp, open_["tp"])
    table: ByName = {
        "global_batch": np.repeat(np.array(batches, dtype=float), len(tps)),
        "tp": np.tile(tps, len(batches)),
    }
    table = _cross(table, "pp", _choices(request.pp, open_["pp"]))
    table = _cross(table, "cp", _choices(request.cp, open_["cp"]))
    ranks = table["tp"] * table["pp"] * table["cp"]
    table = {**table, "dp": gpus / ranks}
    wanted = (np.mod(gpus, ranks) == 0) & (
        np.mod(table["global_batch"], np.maximum(np.floor(table["dp"]), 1.0)) == 0
    )
    if request.dp is not None:
        wanted &= table["dp"] == request.dp
    table = _where(table, wanted)

    table = _micro_batches(plan, table)
    if _all_open(plan):
        table = _where(
            table, np.gcd(table["cp"].astype(int), table["micro_batch"].astype(int)) == 1
        )
    per_replica = table["global_batch"] / table["dp"]
    whole = np.mod(per_replica, table["micro_batch"]) == 0
    table["microbatches"] = np.where(whole, per_replica / table["micro_batch"], 0.0)
    table = _expand(
        table,
        ("pp", "microbatches"),
        ("vpp", "schedule"),
        lambda p, m: _schedules(plan, int(p), int(m)),
    )
    del table["microbatches"]

    eps = divisors(model.routed.experts) if model.routed and values(stack, "ep") else [1]
    if _length(table) * len(eps) > MOST_ROWS * len(batches):
        fixed = plan.request.model_dump(
            exclude={"acting"}, exclude_none=True, exclude_defaults=True
        )
        raise PlanError(
            "layout",
            fixed,
            f"more than {MOST_ROWS:,} combinations of degrees, micro-batch and schedule are"
            f" possible with {plan.stack.title}; fix some, such as --tp, --pp, --ep or"
            " --micro-batch",
        )
    table = _cross(table, "ep", _choices(request.ep, eps))
    if request.ep is None:
        apart = table["ep"] * tensor_of(plan, table["tp"])
        table = _where(table, np.mod(table["tp"] * table["dp"] * table["cp"], apart) == 0)
    both = [0, 1] if has(stack, "sequence_parallel") else [0]
    sequence_parallel = request.sequence_parallel
    table = _cross(
        table,
        "sequence_parallel",
        _choices(None if sequence_parallel is None else int(sequence_parallel), both),
    )
    if sequence_parallel is None:
        table = _where(table, (table["sequence_parallel"] == 0) | (table["tp"] > 1))
    table = _cross(table, "zero", _choices(request.zero, values(stack, "zero")))
    asked_order = None if request.placement is None else PLACEMENTS.index(request.placement)
    table = _cross(
        table,
        "placement",
        _choices(asked_order, [PLACEMENTS.index(name) for name in values(stack, "placement")]),
    )
    if (
        asked_order is None
    ):  # with one node, one stage, one replica or experts all orders are one, or cannot be
        several = (
            (table["pp"] > 1)
            & (table["dp"] > 1)
            & (table["ep"] == 1)
            & (gpus > plan.cluster.nvlink_domain)
        )
        table = _where(table, (table["placement"] == 0) | several)
    table["ranks"] = table["dp"] * table["cp"]
    table = _expand(
        table,
        ("zero", "ranks"),
        ("shard_group",),
        lambda z, n: [[g] for g in _shard_groups(plan, int(z), int(n))],
    )
    return {name: table[name] for name in ("global_batch", *COLUMNS) if name not in INNER}


def micro_batches(batch: int) -> Sequence[int]:
    """Micro-batches that are tried of a global batch: its divisors, of more than `MOST_DIVISORS`
    some that grow by `STEP` at least."""
    every = divisors(batch)
    if len(every) <= MOST_DIVISORS:
        return every
    out = [1]
    for size in every:
        if size >= STEP * out[-1]:
            out.append(size)
    return out


def _micro_batches(plan: Plan, table: ByName) -> ByName:
    """Every row with each micro-batch that divides the batch of a replica, into as many as
    --grad-accum says where it is given."""
    request = plan.request
    per_replica = table["global_batch"] / table["dp"]
    if request.grad_accum is not None:
        micro = per_replica / request.grad_accum
        table = {**table, "micro_batch": micro}
        wanted = _has_room(plan, table)
        if request.micro_batch is not None:
            wanted = micro == request.micro_batch
        return _where(table, wanted & (np.mod(micro, 1) == 0))
    if request.micro_batch is not None:
        return _cross(table, "micro_batch", _choices(request.micro_batch, []))
    table = _expand(
        table, ("global_batch",), ("micro_batch",), lambda n: [[b] for b in micro_batches(int(n))]
    )
    whole = np.mod(table["global_batch"] / table["dp"], table["micro_batch"]) == 0
    return _where(table, whole & _has_room(plan, table))


def _all_open(plan: Plan) -> bool:
    """Whether cp and micro-batch can both be divided by a common factor, with as many times the
    replicas: every rank then has the same tokens, weights and micro-batches, and sends less of
    them to fewer ranks. Not on a mesh, where fewer ranks have fewer links."""
    request = plan.request
    stated = (request.dp, request.cp, request.micro_batch, request.grad_accum)
    return all(entry is None for entry in stated) and not (
        request.where or plan.cluster.intra_node.mesh
    )


def _has_room(plan: Plan, table: ByName) -> Array:
    """Whether what one layer reads of a micro-batch is within the memory of a GPU; the least
    micro-batch always is."""
    elements = _LEAST_ACTIVATIONS * plan.model.hidden * plan.training.seq_len
    each = elements * plan.training.element_bytes / (table["tp"] * table["cp"])
    least: Array = (table["micro_batch"] == 1) | (each * table["micro_batch"] <= plan.usable_bytes)
    return least


def _length(table: ByName) -> int:
    return len(table["tp"])


def _where(table: ByName, wanted: Array) -> ByName:
    rows = np.flatnonzero(wanted)
    return {name: column[rows] for name, column in table.items()}


def inner(plan: Plan, recomputes: Sequence[str]) -> ByName:
    """Recompute and offloading: what goes with every row."""
    request = plan.request
    if request.offload is not None:
        offloads: Sequence[int] = [OFFLOADS.index(request.offload)]
    else:
        able = [
            name
            for name in values(plan.stack, "offload")
            if name not in NVME or plan.cluster.nvme is not None
        ]
        offloads = [OFFLOADS.index(name) for name in able] if request.search_offload else [0]
    kinds = [recompute_parts(text) for text in recomputes]
    rows = np.array(
        [(kind, size, offload) for offload in offloads for kind, size in kinds], dtype=float
    )
    return {name: rows[:, i] for i, name in enumerate(INNER)}


def layouts_of(plan: Plan, batches: Sequence[int] | None = None) -> Space:
    """All layouts worth trying that satisfy what the request fixed; every way to recompute by the
    name of what it is in the chunks of its pipeline.

    batches: for each of these global batches in place of the plan's; rows then have it in a column
    of their own.
    """
    rows = outer(plan, batches or [plan.training.global_batch])
    if batches is None:
        del rows["global_batch"]
    pipelines, which = unique_rows({name: rows[name] for name in ("pp", "vpp")})
    sizes, kind = np.unique(
        [largest_chunk(plan, int(p), int(v)) for p, v in zip(*pipelines.values(), strict=True)],
        return_inverse=True,
    )
    fitting = [recomputes(plan, int(size)) for size in sizes]
    # an order that does not depend on what else is enumerated, since it decides ties
    names = sorted({name for entry in fitting for name in entry}, key=recompute_parts) or ["none"]
    options = inner(plan, names)
    times = len(options["recompute"]) // len(names)
    wanted = np.zeros((max(len(fitting), 1), len(names) * times), dtype=bool)
    for pattern, item in zip(wanted, fitting, strict=False):
        pattern[:] = [name in item for name in names] * times
    return Space.of(rows, options, wanted, kind.reshape(-1)[which])


def recomputes(plan: Plan, layers: int) -> list[str]:
    """Ways to recompute where the largest chunk has this many layers, each once: of the request,
    else all but groups that keep no less than a smaller one."""
    if plan.request.recompute is not None:
        return [recompute_in(plan.request.recompute, layers)]
    allowed = values(plan.stack, "recompute")
    out: list[str] = [k for k in ("none", "selective", "full") if k in allowed]
    if "modules" in allowed:
        has = modules_of(plan.model)
        out += [text for text in MODULE_SETS if set(text.split("+")) <= has]
    if "group" in allowed:
        sizes = [k for k in (*GROUPS, layers) if 1 < k <= min(layers, GROUPS[-1])]
        out += [
            f"group:{k}" for k in dict.fromkeys(sizes) if -(-layers // k) < -(-layers // (k - 1))
        ]
    if "block" in allowed:
        out += [f"block:{k}" for k in range(1, layers)]
    return out


def chunk_counts(plan: Plan, pp: int) -> list[int]:
    """Chunks per rank worth trying: those that make all chunks equal, and where the stack lets the
    contents of chunks be stated, the fewest and the most for each number of layers in the largest
    chunk: more of them hold fewer layers on average, and fewer are sent less."""
    layers = plan.model.layers
    if plan.request.pipeline_layout is not None:
        return [len(pipeline_layout(plan.request.pipeline_layout)) // pp]
    counts = np.arange(1, (layers + ENDS) // pp + 1)
    each = set(counts[equal_chunks(plan, pp, counts)].tolist())
    if has(plan.stack, "pipeline_layout", "any") and plan.request.uneven_stages is not False:
        changes = np.diff(-(-layers // (pp * counts)), prepend=0, append=0) != 0
        each |= set(counts[changes[:-1] | changes[1:]].tolist())
    return sorted(v for v in each if v * pp <= layers or equal_chunks(plan, pp, v))


def _schedules(plan: Plan, pp: int, microbatches: int) -> list[tuple[int, int]]:
    """(virtual stages, schedule) pairs worth trying."""
    request = plan.request
    if request.schedule is not None and request.vpp is not None:
        return [(request.vpp, SCHEDULES.index(request.schedule))]
    short = pp <= MOST_SIMULATED_STAGES
    names = (
        [request.schedule]
        if request.schedule
        else [
            name
            for name in values(plan.stack, "schedule")
            if not schedules.is_dominated(name) and (short or not schedules.is_simulated(name))
        ]
    )
    out = []
    for name in names:
        code = SCHEDULES.index(name)
        if schedules.BY_NAME[name].CHUNKS != "one":
            if pp > 1 and microbatches and schedules.runs(name, pp, microbatches, 2):
                result = chunk_counts(plan, pp) if request.vpp is None else [request.vpp]
                out += [(v, code) for v in result if schedules.chunks_fit(name, v)]
        elif request.vpp in (None, 1) and (pp > 1 or name == "1f1b" or request.schedule):
            out.append((1, code))
    if request.vpp not in (None, 1) and not out:
        out.append((request.vpp or 1, SCHEDULES.index("interleaved")))
    return out


def left_out_schedules(plan: Plan) -> list[str]:
    """Schedules of the stack that are not tried with all pipeline degrees of the request, since
    their simulation would take too long."""
    pp = plan.request.pp or max(degrees(plan)["pp"], default=1)
    if plan.request.schedule is not None or pp <= MOST_SIMULATED_STAGES:
        return []
    return [name for name in values(plan.stack, "schedule") if schedules.is_simulated(name)]


def _shard_groups(plan: Plan, zero: int, ranks: int) -> list[int]:
    if plan.request.shard_group is not None:
        return [plan.request.shard_group]
    if zero not in values(plan.stack, "hybrid_zero"):
        return [ranks]
    each, domain = divisors(ranks)[1:], min(plan.cluster.nvlink_domain, ranks)
    groups = [size for size in each if size % domain == 0 or size == ranks]
    if len(groups) <= 1 and domain < ranks:  # parts of a domain, of whole nodes
        node = plan.cluster.gpus_per_node
        groups = [size for size in each if size < domain and size % node == 0] + groups
    return groups or [ranks]
