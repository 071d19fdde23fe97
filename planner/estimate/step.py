"""Time of one optimizer step for every row of a table of layouts: components that add up, and what
ran hidden beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate import (
    end_of_step,
    host_link,
    loading,
    matrix_update,
    mechanisms,
    sync,
    uneven,
)
from planner.estimate import pipeline as pipelines
from planner.estimate.accounts import Accounts, Passes, accounts
from planner.estimate.communicate import Traffic
from planner.estimate.end_of_step import EndOfStep, StageElements
from planner.estimate.factored import is_factored
from planner.estimate.generation import serve_s
from planner.estimate.layer import LayerCost, ModelCost
from planner.estimate.layer.collectives import Collective
from planner.estimate.layer.rows import (
    LayerTime,
    cost_of_rows,
    end_work,
    layer_times,
    layer_work,
    mean_collectives,
    mean_of,
    mean_time,
)
from planner.estimate.machine import Machine, machine
from planner.estimate.memory import evicted_bytes, offload
from planner.estimate.moments import state_ledger
from planner.estimate.optimizer import Beside, optimizer_s
from planner.estimate.stages import StageSplit, by_memory
from planner.estimate.states import RankParameters
from planner.estimate.trained import Weights, trained_split, weights_of
from planner.formulas import overlap, pipeline
from planner.formulas.data_parallel import shard_count
from planner.ledger import Array, Ledger, group, merge, scale, section, total
from planner.schedules.base import Work
from planner.specs.columns import Columns
from planner.specs.layout import RECOMPUTE_KINDS
from planner.specs.mechanism import Step
from planner.specs.plan import Plan
from planner.specs.task import TASKS


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step, one value per layout; `components` sum to `seconds`."""

    seconds: Array
    components: Ledger
    hidden: Ledger
    traffic: tuple[Traffic, ...]
    ranks: pipelines.Stages  # the first, the middle and the last rank, for one micro-batch
    stage_layers: Array  # layers of every stage but the last
    last_layers: Array
    tail: (
        Array  # what follows a rank's last backward pass: gradients still on their way, the update
    )
    repeated_flop: Array  # recomputed FLOP per GPU and step, by flops.CONVENTION
    detail: Ledger  # operators of the slowest stage over the step, by name
    row_tokens: Array  # computed of a sequence, padding included
    before: Array  # seconds of passes over the examples of a step that are made before the run


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one mean layer and micro-batch on one rank, one value per row."""

    forward: Array  # with its collectives and what sharding adds
    backward: Array  # the same, without recompute
    again: Array  # what recomputing the whole layer adds to backward
    shared: tuple[Array, Array]  # what collectives take of the link to host memory, each way


@dataclass(frozen=True)
class _Held:
    """Parameters of a rank, and the ranks that hold the same ones."""

    weights: Weights
    by: sync.Replicas


@dataclass(frozen=True)
class _Extras:
    """Time that sharding and offloading add to one layer and micro-batch."""

    sharded: sync.ShardedLayer
    sharding: tuple[Array, Array]  # seconds forward and backward
    copied: offload.Copies | None  # None where no row offloads activations

    @property
    def seconds(self) -> tuple[Array, Array]:
        """All of them, forward and backward."""
        if self.copied is None:
            return self.sharding
        return self.sharding[0] + self.copied.forward, self.sharding[1] + self.copied.backward


@dataclass(frozen=True)
class _Slowest:
    """The stage that sets the pace."""

    seconds: Array  # of one micro-batch
    kinds: tuple[Array, ...]  # layers of every kind that differs in time
    heads: Array  # that it computes
    modules: Array  # of multi-token prediction
    held: StageSplit  # of its layers

    @property
    def layers(self) -> Array:
        return functools.reduce(np.add, self.kinds)


@dataclass(frozen=True, eq=False)
class _Step:
    """Passes of a step, and what the slowest stage does in them."""

    plan: Plan
    m: Machine
    c: Columns
    cost: ModelCost
    times: tuple[LayerTime, ...]
    mean: LayerTime
    held: _Held
    extras: _Extras
    ranks: pipelines.Stages
    slowest: _Slowest
    passes: Passes
    microbatches: Array
    bubble: Array
    sends: Traffic
    backward: Array  # seconds of one micro-batch
    end: EndOfStep
    once: Array  # seconds of a forward-only pass over the batch
    compared: Array  # the same of a model that this one is compared with

    @functools.cached_property
    def matrices(self) -> matrix_update.MatrixTime:
        """Updates of matrices."""
        layers = self.slowest.layers
        return matrix_update.of_stage(self.plan, self.m, self.c, layers, self.held.by)

    @property
    def sharding(self) -> Array:
        """Seconds that a layer and micro-batch waits for shards."""
        return self.extras.sharding[0] + self.extras.sharding[1]


def step_time(plan: Plan, c: Columns, numbers: Machine | None = None) -> StepTime:
    """Evaluate all rows. `numbers` replaces the plan's machine, for sensitivities and ablations."""
    s = _timed(plan, numbers or machine(plan), c)
    before = merge(*(part(s) for part in _PARTS))
    with section("optimizer"):
        update = _update(s, before)
    components = merge(before, update)
    tail = functools.reduce(np.add, [s.end.exposed, *update.values()])
    for part in _WAITS:
        components = part(s, components)
    listed = Accounts()
    if not is_factored(c):  # a search asks for sums only
        sent = [row for rows in _TRAFFIC for row in rows(s)]
        listed = accounts(s.cost, s.mean, s.passes, sent, s.extras.copied)
    return StepTime(
        seconds=total(components),
        components=components,
        hidden=listed.hidden,
        traffic=listed.traffic,
        ranks=s.ranks,
        stage_layers=np.maximum(s.ranks.layers[0], s.ranks.layers[1]),
        last_layers=s.ranks.layers[2],
        tail=tail,
        repeated_flop=s.microbatches * plan.model.layers / c.pp * s.mean.repeated_flop,
        detail=listed.detail,
        row_tokens=uneven.row_tokens(plan, c),
        before=plan.training.early_passes * s.compared,
    )


def _timed(plan: Plan, m: Machine, c: Columns) -> _Step:
    cost = cost_of_rows(plan, m, c)
    microbatches = c.microbatches(plan.training.global_batch)
    with section("recompute"):
        times = layer_times(plan, m, c, cost)
    mean = mean_time(plan, times)
    held = _Held(weights_of(plan, c), sync.replicas(plan, c))
    extras = _extras(plan, m, c, held, mean, mean_collectives(plan, cost))
    with section("pipeline"):
        ranks = _ranks(plan, c, cost, times, extras)
        slowest = _slowest(plan, ranks)
        idle = pipelines.idle_s(plan, c, ranks, microbatches)
        bubble = pipeline.pipeline_s(slowest.seconds, microbatches, idle)
        bubble = bubble - microbatches * slowest.seconds
        sends = pipelines.sends(plan, m, c, microbatches, ranks.slowest())
    with section("gradient synchronisation"):
        each = zip(slowest.kinds, times, strict=True)
        backward = functools.reduce(np.add, (n * one.backward for n, one in each))
        window = backward * _window_share(plan, c, microbatches)
        of = _elements(plan, c, held.weights, slowest)
        end = end_of_step.end_of_step(
            end_of_step.Ends(plan, m, c, held.by, extras.sharded, of, window, mean.backward)
        )
    once = pipeline.forward_only_s(ranks.slowest().forward, microbatches, c.pp)
    many = slowest.kinds, slowest.heads, slowest.modules
    return _Step(
        plan=plan,
        m=m,
        c=c,
        cost=cost,
        times=times,
        mean=mean,
        held=held,
        extras=extras,
        ranks=ranks,
        slowest=slowest,
        passes=Passes([microbatches * n for n in many[0]], *(microbatches * n for n in many[1:])),
        microbatches=microbatches,
        bubble=bubble,
        sends=sends,
        backward=backward,
        end=end,
        once=once,
        compared=_compared_s(plan, m, c, once),
    )


# Parts of a step: what every one adds to its components, in the order in which they are added up.


def _compute(s: _Step) -> Ledger:
    """Operators of layers, of embedding, head and loss, of modules of multi-token prediction."""
    each = zip(s.passes.kinds, s.cost.kinds, strict=True)
    return merge(
        *(scale(merge(group(unit.forward), group(unit.backward)), n) for n, unit in each),
        scale(group(s.cost.head), s.passes.heads),
        scale(group(s.cost.module), s.passes.modules),
    )


def _beside_compute(s: _Step) -> Ledger:
    """Recompute, launches and collectives of layers."""
    kinds = zip(s.passes.kinds, s.cost.kinds, s.times, strict=True)
    return merge(*(one for kind in kinds for one in _beside(*kind)))


def _data_parallel(s: _Step) -> Ledger:
    layers = s.microbatches * s.slowest.layers
    return {"data_parallel": layers * s.sharding + s.end.exposed}


def _offloading(s: _Step) -> Ledger:
    """Copies of activations to host memory and back."""
    if (copied := s.extras.copied) is None:
        return {}
    layers = s.microbatches * s.slowest.layers
    return {"offload": layers * (copied.forward + copied.backward)}


def _pipeline(s: _Step) -> Ledger:
    return {"pipeline_transfer": s.sends.exposed, "bubble": s.bubble}


def _reference(s: _Step) -> Ledger:
    """Passes without gradients: of the model itself, of a reference or a teacher."""
    training = s.plan.training
    if not training.free_passes:
        return {}
    own = TASKS[training.task].own
    return {"reference": own * s.once + (training.free_passes - own) * s.compared}


_PARTS = (_compute, _beside_compute, _data_parallel, _offloading, _pipeline, _reference)


def _update(s: _Step, components: Ledger) -> Ledger:
    """The update, on the CPU beside what of the step runs while it updates, and what mechanisms do
    after it. components: of the step before."""
    plan, c, matrices = s.plan, s.c, s.matrices
    owned = s.end.elements / shard_count(c.zero, 1.0, s.held.by.shards.ranks)
    beside = Beside(s.backward, components)
    update = optimizer_s(plan, s.m, c, owned, matrices.seconds, beside)
    after: Ledger = {"optimizer": update.seconds}
    if matrices.gathers is not None:  # before each matrix, beside nothing
        after["data_parallel"] = matrices.gathers.seconds
    before = merge(components, after)

    def done(more: Ledger) -> Step:
        return Step(
            plan=plan,
            layout=c,
            machine=s.m,
            owned=owned,
            on_cpu=update.on_cpu,
            evicted=evicted_bytes(plan, c),
            seconds=total(merge(before, more)),
            ranks_per_host=plan.cluster.gpus_per_host,
            element_bytes=sync.compute_bytes(plan),
            optimizer_bytes=state_ledger(plan)["optimizer"],
        )

    return merge(after, mechanisms.after_update(plan, c, done))


def _other_gpus(s: _Step, components: Ledger) -> Ledger:
    """The step where some GPUs are of a second kind."""
    if s.plan.ranks.other is None:
        return components
    with section("the other GPUs"):
        other = step_time(uneven.of_other_gpu(s.plan), s.c).components
        return uneven.shared(s.plan, s.c, components, other)


def _waiting(s: _Step, components: Ledger) -> Ledger:
    """The step with overheads: waiting for the slowest rank, fixed cost, waiting for data."""
    plan, m, c = s.plan, s.m, s.c
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
    return components | late


_WAITS = (_other_gpus, _waiting)


# Rows of the communication table beside those of layers.


def _sharded_traffic(s: _Step) -> list[Traffic]:
    layers = s.microbatches * s.slowest.layers
    return sync.layer_traffic(s.plan, s.c, layers, s.held.by, s.extras.sharded, s.sharding)


_TRAFFIC: tuple[Callable[[_Step], list[Traffic]], ...] = (
    _sharded_traffic,
    lambda s: end_of_step.traffic(s.plan, s.c, s.held.by, s.end),
    lambda s: matrix_update.traffic(s.held.by, s.matrices.gathers),
    lambda s: [s.sends],
)


def _compared_s(plan: Plan, m: Machine, c: Columns, once: Array) -> Array:
    """Seconds of the passes over the batch of a step by a model that this one is compared with.
    once: of this one."""
    if not TASKS[plan.training.task].reference:
        return once
    with section("reference"):
        if plan.training.task == "distil":
            return _teacher_s(plan, m, c)
        return once if plan.of_reference is plan else _forward_s(plan.of_reference, m, c)


def _teacher_s(plan: Plan, m: Machine, c: Columns) -> Array:
    """Seconds of a teacher over the batch of a step: on the GPUs of its student, in the layout of
    the student without its pipeline, else served on GPUs of its own or before the run."""
    own, batch = plan.of_teacher, c.batch(plan.training.global_batch)
    if own is None:
        return 0.0 * batch
    if not plan.training.teacher_here:
        apart = plan.training.teacher_gpus
        if apart is None:
            return serve_s(own, batch, c.gpus, "--gpus")
        return serve_s(own, batch, 1.0 * apart, "--teacher-gpus")
    one = 1.0 + 0.0 * c.pp
    return _forward_s(own, m, replace(c, pp=one, vpp=one))


def _forward_s(plan: Plan, m: Machine, c: Columns) -> Array:
    """Seconds of a forward-only pass over the batch of a step."""
    none = 0.0 * c.recompute
    c = replace(c, recompute=none, recompute_size=none, offload=none)
    cost = cost_of_rows(plan, m, c)
    times, held = layer_times(plan, m, c, cost), _Held(weights_of(plan, c), sync.replicas(plan, c))
    mean = mean_time(plan, times)
    extras = _extras(plan, m, c, held, mean, mean_collectives(plan, cost))
    stage = _ranks(plan, c, cost, times, extras).slowest().forward
    microbatches = c.microbatches(plan.training.global_batch)
    return pipeline.forward_only_s(stage, microbatches, c.pp)


def _ranks(
    plan: Plan, c: Columns, cost: ModelCost, times: Sequence[LayerTime], extras: _Extras
) -> pipelines.Stages:
    """Compute of the pipeline ranks for one micro-batch."""
    works = [layer_work(*one, extras.seconds) for one in zip(cost.kinds, times, strict=True)]
    average = Work(*(mean_of(plan, each) for each in zip(*works, strict=True)))
    ends = end_work(cost.head), end_work(cost.module)
    return pipelines.stages(plan, c, pipelines.Pieces(tuple(works), average, *ends))


def layer_seconds(plan: Plan, c: Columns, numbers: Machine | None = None) -> LayerSeconds:
    """Seconds of a layer of every row, by the formulas of `step_time`, and the extra seconds of
    recomputing its forward pass.

    The time of a layer is without recompute, even if the row has it.
    """
    m = numbers or machine(plan)
    full = float(RECOMPUTE_KINDS.index("full"))
    whole = replace(c, recompute=np.full(len(c), full), recompute_size=np.zeros(len(c)))
    cost, who = cost_of_rows(plan, m, whole), sync.replicas(plan, whole)
    layer = mean_time(plan, layer_times(plan, m, whole, cost))
    once = replace(layer, backward=layer.backward - layer.recompute)
    sharded = sync.sharded_layer(plan, m, whole, weights_of(plan, whole), who)
    added = _sharding_s(plan, m, once, sharded)
    shared = host_link.busy_s(plan, m, mean_collectives(plan, cost), sharded, who)
    return LayerSeconds(once.forward + added[0], once.backward + added[1], layer.recompute, shared)


def _extras(
    plan: Plan,
    m: Machine,
    c: Columns,
    held: _Held,
    layer: LayerTime,
    collectives: Sequence[Collective],
) -> _Extras:
    weights, who = held.weights, held.by
    with section("sharded data parallelism, one layer"):
        sharded = sync.sharded_layer(plan, m, c, weights, who)
        added = _sharding_s(plan, m, layer, sharded)
    if not np.any(c.offloads("activations")):
        return _Extras(sharded, added, None)
    with section("offloaded activations, one layer"):
        whole = layer.forward + added[0], layer.backward + added[1]
        shared = host_link.busy_s(plan, m, collectives, sharded, who)
        return _Extras(sharded, added, offload.copies(plan, m, c, weights.every, whole, shared))


def _sharding_s(
    plan: Plan, m: Machine, layer: LayerTime, sharded: sync.ShardedLayer
) -> tuple[Array, Array]:
    """Exposed time of gathers and reductions of a layer's shards, forward and backward."""
    added = sharded.forward, sharded.backward
    if plan.training.overlap is not False and plan.stack.overlap.prefetch:
        first, again, reduced = (
            sync.beside(plan, part) for part in ("forward", "backward", "reduce")
        )
        scattered = np.minimum(sharded.scatter, sharded.backward)
        ahead = sharded.forward * first
        behind = (sharded.backward - scattered) * again + scattered * reduced
        added = (
            overlap.prefetched_exposed_s(layer.forward, ahead, m.slowdown)
            + (sharded.forward - ahead),
            overlap.prefetched_exposed_s(layer.backward, behind, m.slowdown)
            + (sharded.backward - behind),
        )
    return added[0] + sharded.streamed, added[1] + sharded.streamed


def _beside(passes: Array, unit: LayerCost, time: LayerTime) -> Iterator[Ledger]:
    """Time of this many passes of layers of a kind beside their compute."""
    yield {
        "recompute": passes * time.recompute,
        "launch": passes * (unit.launch_forward + unit.launch_backward),
    }
    for x in unit.collectives:
        yield {x.component: passes * (x.forward + x.backward) * x.seconds}
    yield {"tensor_parallel": passes * time.contention}


def _slowest(plan: Plan, ranks: pipelines.Stages) -> _Slowest:
    of = ranks.of_slowest
    kinds = tuple(of((a, b, z)) for a, b, z in zip(*ranks.kinds, strict=True))
    held = StageSplit(by_memory(plan.model, kinds), 0.0, 0.0, 0.0)
    return _Slowest(ranks.slowest_s(), kinds, of(ranks.heads), of(ranks.modules), held)


def _window_share(plan: Plan, c: Columns, microbatches: Array) -> Array:
    """Micro-batches beside whose backward gradients are reduced: the last one, with several chunks
    per rank on average half of those in flight."""
    if not plan.stack.overlap.interleaved_window:
        return 1.0
    return np.where(c.vpp > 1, 0.5 + 0.5 * np.minimum(microbatches, c.pp), 1.0)


def _elements(plan: Plan, c: Columns, of: Weights, slowest: _Slowest) -> StageElements:
    """Of the slowest stage's layers, and of embedding or head, whichever is larger."""
    trained, layers = of.trained, trained_split(plan, slowest.held)
    root, whole = _ends(c, trained), _ends(c, of.every)
    shared = trained.of_stage(layers, 0.0, 0.0) + root
    return StageElements(shared, trained.experts_of_stage(layers), root, whole)


def _ends(c: Columns, of: RankParameters) -> Array:
    """Elements of embedding and head on the stage that holds most of them."""
    first, last = total(of.first), total(of.last)
    return np.where(c.pp > 1, np.maximum(first, last), first + last)
