"""Time of one optimizer step for every row of a table of layouts: components that add up, and what
ran hidden beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate import communicate, loading, sync, uneven
from planner.estimate import pipeline as pipelines
from planner.estimate.communicate import Group, Traffic, place
from planner.estimate.factored.column import Column
from planner.estimate.layer import KEY, Collective, LayerCost, layer_cost
from planner.estimate.machine import Machine, machine
from planner.estimate.memory import offload, state_ledger
from planner.estimate.states import RankParameters, rank_parameters
from planner.formulas import data_parallel, kernels, overlap, pipeline
from planner.formulas import offload as outside
from planner.ledger import Array, Ledger, group, merge, section, total
from planner.schedules.base import Work, total_s
from planner.specs.columns import ByName, Columns, unique_rows
from planner.specs.layout import AWAY_OPTIMIZER, NVME, NVME_PARAMS, RECOMPUTE_KINDS
from planner.specs.plan import Plan


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step, one value per layout; `components` sum to `seconds`."""

    seconds: Array
    components: Ledger
    hidden: Ledger
    traffic: tuple[Traffic, ...]
    ranks: (
        pipelines.Stages
    )  # layers and seconds per micro-batch of the first, the middle and the last rank
    stage_layers: Array  # layers of every stage but the last
    last_layers: Array
    repeated_flop: Array  # recomputed FLOP per GPU and step, full score matrix
    detail: Ledger  # operators of the slowest stage over the step, by name


def step_time(plan: Plan, table: Columns, numbers: Machine | None = None) -> StepTime:
    """Evaluate all rows. `numbers` replaces the plan's machine, for sensitivities and ablations."""
    m = numbers or machine(plan)
    if any(
        np.ndim(getattr(m, name)) for name in m.names()
    ):  # every row has its own machine: nothing to share
        spread = functools.partial(_spread, back=None, rows=len(table))
        return _compose(plan, m, table, _spread_all(layer_cost(plan, m, _key(table)), spread))
    if isinstance(table.tp, Column):
        space = table.tp.space
        distinct, level = space.combinations(KEY)
        return _compose(
            plan,
            m,
            table,
            _spread_all(layer_cost(plan, m, distinct), functools.partial(space.spread, level)),
        )
    combos, back = unique_rows(_key(table))
    spread = functools.partial(_spread, back=back, rows=len(table))
    return _compose(plan, m, table, _spread_all(layer_cost(plan, m, combos), spread))


def _key(table: Columns) -> ByName:
    return {name: getattr(table, name) for name in KEY}


@dataclass(frozen=True)
class _Layer:
    """One layer and micro-batch of every row: forward and backward with communication, launch and
    recompute."""

    forward: Array
    backward: Array
    recompute: Array
    contention: Array
    repeated: Array  # share of forward that is computed twice
    selective: Array


def _spread(leaf: Array, back: Array | None, rows: int) -> Array:
    """Values per distinct combination to values per row."""
    if back is None or not np.ndim(leaf) or np.shape(leaf)[0] == 1 != len(back):
        return leaf + np.zeros(rows)
    return leaf[back]


def _spread_all(unit: LayerCost, one: Callable[[Array], Array]) -> LayerCost:
    def many(ledger: Ledger) -> Ledger:
        return {name: one(leaf) for name, leaf in ledger.items()}

    def call(x: Collective) -> Collective:
        return replace(
            x,
            tensor_bytes=one(x.tensor_bytes),
            seconds=one(x.seconds),
            forward=one(x.forward),
            backward=one(x.backward),
            hidden_backward=one(x.hidden_backward),
            issued=one(x.issued),
            placed=Group(one(x.placed.ranks), one(x.placed.ranks_per_node)),
        )

    return LayerCost(
        forward=many(unit.forward),
        backward=many(unit.backward),
        attention_core=one(unit.attention_core),
        repeat=one(unit.repeat),
        kept_products=one(unit.kept_products),
        launch_forward=one(unit.launch_forward),
        launch_backward=one(unit.launch_backward),
        collectives=tuple(call(x) for x in unit.collectives),
        head=many(unit.head),
        forward_flop=one(unit.forward_flop),
        core_flop=one(unit.core_flop),
    )


def _one_layer(plan: Plan, m: Machine, c: Columns, unit: LayerCost) -> _Layer:
    """Recompute repeats forward work inside backward, its collectives included (Korthikanti et al.
    2022, section 5)."""
    contention = m.slowdown * sum(
        x.hidden_backward * x.seconds for x in unit.collectives if x.component == "tensor_parallel"
    )
    forward = (
        total(unit.forward)
        + sum(x.forward * x.seconds for x in unit.collectives)
        + unit.launch_forward
    )
    backward = (
        total(unit.backward)
        + sum(x.backward * x.seconds for x in unit.collectives)
        + unit.launch_backward
        + contention
    )
    repeated = c.repeated_share(plan.model.layers)
    selective = c.is_recompute("selective")
    selected = unit.kept_products if plan.training.selective == "per_op" else unit.attention_core
    again = unit.repeat if plan.stack.recompute_stops_early else forward
    recompute = repeated * again + np.where(selective, selected, 0.0)
    return _Layer(forward, backward + recompute, recompute, contention, repeated, selective)


def _layer_work(unit: LayerCost, one: _Layer, extras: tuple[Array, Array]) -> Work:
    """Forward, input and weight gradient of a layer; what communication adds to backward is waited
    for."""
    products = total(
        {name: leaf for name, leaf in unit.backward.items() if name.startswith("matmul/")}
    )
    weight = pipeline.weight_gradient_s(
        products + unit.launch_backward
    )  # the CPU issues one gradient as often as the other
    return Work(one.forward + extras[0], one.backward + extras[1] - weight, weight)


def _head_work(head: Ledger) -> Work:
    """The same of embedding, head and loss: a third of the product each, half of what is bound by
    memory forward and backward."""
    product = head["matmul/logits"] / 3
    rest = (total(head) - head["matmul/logits"]) / 2
    return Work(product + rest, product + rest, product)


def _sends(plan: Plan, m: Machine, c: Columns, microbatches: Array, slowest_s: Array) -> Traffic:
    """Activations and their gradients between neighbouring stages; overlapped sends hide behind the
    work of one chunk.

    Exposed are 2 (v p - 1) of them in the fill and the drain, and in the steady state what is
    longer than a chunk's work: what the timed schedules show (tests/test_schedules.py).
    """
    training, stack = plan.training, plan.stack
    activation = training.element_bytes * c.tokens(training.seq_len) * plan.model.hidden
    sequence = c.sequence_parallel > 0
    split = sequence | stack.overlap.scatter_gather
    message = activation / np.where(split, c.tp, 1.0)
    # stages that are neighbours lie all ranks of a stage apart, or with stages inside replicas
    # those of one replica
    between = np.where(c.is_placement("tp-cp-pp-dp"), 1.0, c.dp)
    crossing = (c.tp * c.cp * between * c.pp > plan.cluster.nvlink_domain) * 1.0
    each = communicate.send_s(m, message, crossing)
    gathered = communicate.all_gather_s(
        m, activation, place(c.tp, np.ones_like(c.tp), plan.cluster.nvlink_domain)
    )
    each = each + np.where(split & ~sequence & (c.tp > 1), gathered, 0.0)
    overlaps = stack.overlap.pipeline_send & (c.vpp > 1) & (plan.training.overlap is not False)
    chunk_s = slowest_s / (2 * c.vpp)  # forward or backward of one chunk, on average
    issue_s = (
        m.operators_per_collective * m.operator_launch
    )  # the stage's queue waits while the CPU posts and joins a message
    each = each + issue_s
    steady_s = issue_s + np.where(
        overlaps, np.maximum(each - issue_s - chunk_s, 0.0), each - issue_s
    )
    several = c.pp > 1
    steady = np.where(several, 2 * c.vpp * microbatches, 0.0)
    # with chunks, one micro-batch crosses every boundary in turn before the steady state and after
    # it: nothing hides those
    boundaries = np.where(overlaps & (~c.is_schedule("breadth-first")), c.vpp * c.pp, c.pp) - 1
    filling = np.where(several, 2 * boundaries, 0.0)
    return Traffic(
        "send_recv",
        "pipeline",
        "activations",
        "pipeline_transfer",
        message,
        steady + filling,
        (steady + filling) * each,
        steady * steady_s + filling * each,
        crossing,
    )


def _optimizer(
    plan: Plan, m: Machine, c: Columns, parameters: Array, shard_ranks: Array
) -> tuple[Array, Array | None]:
    """(On the GPU, or with offload on the CPU of the node; what waiting for NVMe drives adds, None
    where nobody uses any)."""
    owned = parameters / data_parallel.shard_count(c.zero, 1.0, shard_ranks)
    on_gpu = data_parallel.optimizer_step_s(
        owned,
        m.optimizer_bytes,
        memory_bytes_per_s=m.memory_bandwidth,
        elementwise_frac=m.stream_frac,
    )
    if np.any(np.asarray(m.optimizer_s) > 0):
        on_gpu = kernels.measured_operator_s(
            owned, 0.0, seconds_per_element=m.optimizer_s, gap_s=0.0
        )
    away = c.offloads(*AWAY_OPTIMIZER)
    if not np.any(away):
        return on_gpu, None
    gpus_per_node = plan.cluster.gpus_per_host
    streamed = data_parallel.streamed_state_s(owned, host_bytes_per_s=m.host_bandwidth)
    if plan.stack.offload_update == "gpu":  # states live in host memory and pass through the GPU
        return on_gpu + np.where(away, streamed, 0.0), None
    on_cpu = data_parallel.cpu_step_s(owned * gpus_per_node, m.cpu_adam)
    waiting = _drives(plan, m, c, owned, on_cpu) if np.any(c.offloads(*NVME)) else None
    return np.where(away, streamed + on_cpu, on_gpu), waiting


def _drives(plan: Plan, m: Machine, c: Columns, owned: Array, update_s: Array) -> Array:
    """What drives add to the update: states and gradients are read and written in a step,
    parameters written where they live on drives."""
    state = state_ledger(plan)["optimizer"] + offload.GRADIENT_BYTES
    parameter = np.where(c.offloads(*NVME_PARAMS), sync.compute_bytes(plan), 0.0)
    read, write = (
        outside.drive_s(state * owned, m.nvme_read),
        outside.drive_s((state + parameter) * owned, m.nvme_write),
    )
    return np.where(
        c.offloads(*NVME),
        outside.tiled_update_s(read, update_s, write, offload.tiles(owned)) - update_s,
        0.0,
    )


def _sharding_s(
    plan: Plan, m: Machine, one: _Layer, sharded: sync.ShardedLayer
) -> tuple[Array, Array]:
    """What gathers and reductions of a layer's shards add to its forward and to its backward."""
    if plan.training.overlap is False or not plan.stack.overlap.prefetch:
        return sharded.forward, sharded.backward
    return (
        overlap.prefetched_exposed_s(one.forward, sharded.forward, m.slowdown),
        overlap.prefetched_exposed_s(one.backward, sharded.backward, m.slowdown),
    )


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one mean layer and micro-batch on one rank, one value per row."""

    forward: Array  # with its collectives and what sharding adds
    backward: Array  # the same, without recompute
    again: Array  # what recomputing the whole layer adds to backward


def layer_seconds(plan: Plan, table: Columns, numbers: Machine | None = None) -> LayerSeconds:
    """What a layer of every row takes, by the formulas of `step_time`, and what running its forward
    again adds.

    The time of a layer is that of the row without recompute, whatever the row says.
    """
    m = numbers or machine(plan)
    rows = len(table)
    whole = replace(
        table,
        recompute=np.full(rows, float(RECOMPUTE_KINDS.index("full"))),
        recompute_size=np.zeros(rows),
    )
    combos, back = unique_rows(_key(whole))
    unit = _spread_all(
        layer_cost(plan, m, combos), functools.partial(_spread, back=back, rows=rows)
    )
    one = _one_layer(plan, m, whole, unit)
    sharded = sync.sharded_layer(
        plan, m, whole, rank_parameters(plan, whole), sync.replicas(plan, whole)
    )
    extras = _sharding_s(plan, m, replace(one, backward=one.backward - one.recompute), sharded)
    return LayerSeconds(
        one.forward + extras[0], one.backward - one.recompute + extras[1], one.recompute
    )


def _compose(plan: Plan, m: Machine, c: Columns, unit: LayerCost) -> StepTime:
    model = plan.model
    pp, vpp = c.pp, c.vpp
    microbatches = c.microbatches(plan.training.global_batch)
    with section("recompute"):
        one = _one_layer(plan, m, c, unit)

    with section("sharded data parallelism, one layer"):
        parameters: RankParameters = rank_parameters(plan, c)
        who = sync.replicas(plan, c)
        sharded = sync.sharded_layer(plan, m, c, parameters, who)
        extras = _sharding_s(plan, m, one, sharded)
        extra = extras[0] + extras[1]

    copied: offload.Copies | None = None
    if np.any(c.offloads("activations")):
        with section("offloaded activations, one layer"):
            copied = offload.copies(
                plan, m, c, parameters, one.forward + extras[0], one.backward + extras[1]
            )
            extras = extras[0] + copied.forward, extras[1] + copied.backward

    with section("pipeline"):
        ranks = pipelines.stages(plan, c, _layer_work(unit, one, extras), _head_work(unit.head))
        stage_layers, last_layers = np.maximum(ranks.layers[0], ranks.layers[1]), ranks.layers[2]
        slowest = ranks.slowest_s()
        last_is_slowest = (pp == 1) | (total_s(ranks.work[2]) >= slowest)
        slow_layers = np.where(last_is_slowest, last_layers, stage_layers)
        slow_head = np.where(last_is_slowest, 1.0, 0.0)
        pipe = pipeline.pipeline_s(slowest, microbatches, pipelines.idle_s(c, ranks, microbatches))
        sends = _sends(plan, m, c, microbatches, slowest)
    passes = microbatches * slow_layers

    with section("gradient synchronisation and optimizer"):
        outer = np.where(
            pp > 1,
            np.maximum(total(parameters.first), total(parameters.last)),
            total(parameters.first) + total(parameters.last),
        )
        shared, experts = (
            slow_layers * total(parameters.layer) + outer,
            slow_layers * parameters.experts,
        )
        window = one.backward * slow_layers
        if plan.stack.overlap.interleaved_window:
            window = window * np.where(vpp > 1, 0.5 + 0.5 * np.minimum(microbatches, pp), 1.0)
        end = sync.end_of_step(plan, m, c, who, sharded, shared, experts, outer, window)
        optimizer, drives = _optimizer(plan, m, c, shared + experts, who.shards.ranks)

    components: Ledger = {}

    def add(name: str, value: Array) -> None:
        components[name] = components[name] + value if name in components else value

    layer = merge(group(unit.forward), group(unit.backward))
    for ledger, factor in ((layer, passes), (group(unit.head), microbatches * slow_head)):
        for name, leaf in ledger.items():
            add(name, factor * leaf)
    add("recompute", passes * one.recompute)
    add("launch", passes * (unit.launch_forward + unit.launch_backward))
    for x in unit.collectives:
        add(x.component, passes * (x.forward + x.backward) * x.seconds)
    add("tensor_parallel", passes * one.contention)
    add("data_parallel", passes * extra + end.exposed)
    if copied is not None:
        add("offload", passes * (copied.forward + copied.backward))
    add("pipeline_transfer", sends.exposed)
    add("bubble", pipe - microbatches * slowest)
    add("optimizer", optimizer)
    if drives is not None:
        add("nvme", drives)
    if plan.ranks.other is not None:
        with section("the other GPUs"):
            components = uneven.shared(
                plan, c, components, step_time(uneven.of_other_gpu(plan), c).components
            )
    components.update(_waiting(plan, m, c, components))

    accounts = _Accounts((), {}, {})
    if not isinstance(pp, Column):  # a search asks for sums only
        accounts = _accounts(
            plan,
            c,
            unit,
            one,
            (who, sharded, extra, end),
            sends,
            copied,
            (passes, microbatches * slow_head),
        )
    core = np.where(one.selective, unit.core_flop, 0.0)
    return StepTime(
        seconds=total(components),
        components=components,
        hidden=accounts.hidden,
        traffic=accounts.traffic,
        ranks=ranks,
        stage_layers=stage_layers,
        last_layers=last_layers,
        repeated_flop=microbatches * model.layers / pp * (one.repeated * unit.forward_flop + core),
        detail=accounts.detail,
    )


def _waiting(plan: Plan, m: Machine, c: Columns, components: Ledger) -> Ledger:
    """What comes on top of the work: waiting for the slowest rank, the fixed cost of a step,
    waiting for data."""
    if uneven.asked(plan):
        late = {
            "stragglers": total(uneven.parts(plan, m, c, components)),
            "overhead": 0.0 * total(components) + m.step_overhead,
        }
    else:
        slower = overlap.straggler_factor(c.gpus, m.straggler_sigma)
        late = {"overhead": (slower - 1) * total(components) + m.step_overhead}
    if plan.data is not None:
        late["input"] = loading.wait_s(plan, m, c, total(components) + total(late))
    return late


@dataclass(frozen=True)
class _Accounts:
    """What a report lists beside the components; empty for factored tables."""

    traffic: tuple[Traffic, ...]
    hidden: Ledger
    detail: Ledger


def _accounts(
    plan: Plan,
    c: Columns,
    unit: LayerCost,
    one: _Layer,
    data: tuple[sync.Replicas, sync.ShardedLayer, Array, sync.EndOfStep],
    sends: Traffic,
    copied: offload.Copies | None,
    factors: tuple[Array, Array],
) -> _Accounts:
    """Every kind of communication, what of it is hidden, and the operators. factors: passes of a
    layer, of the head."""
    passes, heads = factors
    who, sharded, extra, end = data
    found = [_traffic(x, passes, one.repeated) for x in unit.collectives]
    found += sync.traffic(plan, c, passes, who, sharded, extra, end)
    found.append(sends)
    if copied is not None:
        count, added = (
            np.where(copied.bytes > 0, 2 * passes, 0.0),
            passes * (copied.forward + copied.backward),
        )
        found.append(
            Traffic(
                "copy",
                "host",
                "activations of a layer, out or back",
                "offload",
                copied.bytes,
                count,
                count * copied.seconds,
                added,
                0.0 * passes,
            )
        )
    hidden: Ledger = {}
    for kind in found:
        hidden[kind.component] = hidden.get(kind.component, 0.0) + kind.seconds - kind.exposed
    detail = {
        f"layer/{name}": passes * (unit.forward[name] + unit.backward[name])
        for name in unit.forward
    }
    detail.update({f"head/{name}": heads * leaf for name, leaf in unit.head.items()})
    return _Accounts(tuple(found), hidden, detail)


def _traffic(x: Collective, passes: Array, repeated: Array) -> Traffic:
    """A layer's collective over the whole step; recompute repeats the forward calls."""
    exposed = x.forward + x.backward + repeated * x.forward
    calls = exposed + x.hidden_backward
    return Traffic(
        x.operation,
        x.group,
        x.what,
        x.component,
        x.tensor_bytes,
        passes * calls,
        passes * calls * x.seconds,
        passes * exposed * x.seconds,
        (x.placed.nodes > 1) * 1.0,
    )
