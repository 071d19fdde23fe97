"""Time of one optimizer step for every row of a table of layouts: components that add up, and what
ran hidden beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from planner.estimate import end_of_step, loading, matrix_update, mechanisms, sync, uneven
from planner.estimate import pipeline as pipelines
from planner.estimate.accounts import Accounts, Passes, accounts
from planner.estimate.communicate import Traffic
from planner.estimate.end_of_step import EndOfStep, StageElements
from planner.estimate.factored import is_factored
from planner.estimate.layer import LayerCost
from planner.estimate.layer.rows import LayerTime
from planner.estimate.machine import Machine, machine
from planner.estimate.memory import evicted_bytes
from planner.estimate.moments import state_ledger
from planner.estimate.optimizer import Beside, optimizer_s
from planner.estimate.ranks import Layers, layers_of, ranks_of
from planner.estimate.reference import compared_s
from planner.estimate.stages import StageSplit, by_memory, folded
from planner.estimate.trained import Weights, trained_split
from planner.formulas import overlap, pipeline
from planner.formulas.data_parallel import shard_count
from planner.ledger import Array, Ledger, group, merge, scale, section, total
from planner.specs.columns import Columns
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
class _Slowest:
    """The stage that sets the pace."""

    seconds: Array  # of one micro-batch
    kinds: tuple[Array, ...]  # layers of every kind that differs in time
    heads: Array  # that it computes
    modules: Array  # of multi-token prediction

    @property
    def layers(self) -> Array:
        return functools.reduce(np.add, self.kinds)


@dataclass(frozen=True)
class _Fullest:
    """The stage with most gradients, for which the step waits: all stages end their backward passes
    within the drain of the pipeline, and none updates before the norm of all gradients is known."""

    kinds: tuple[Array, ...]  # layers of every kind that differs in time
    elements: StageElements

    @property
    def layers(self) -> Array:
        return functools.reduce(np.add, self.kinds)


@dataclass(frozen=True, eq=False)
class _Step:
    """Inputs of the parts of a step: passes, and work of the slowest stage."""

    plan: Plan
    m: Machine
    c: Columns
    layers: Layers
    ranks: pipelines.Stages
    slowest: _Slowest
    fullest: _Fullest
    passes: Passes
    microbatches: Array
    bubble: Array
    sends: Traffic
    backward: Array  # seconds of one micro-batch of the fullest stage
    end: EndOfStep
    once: Array  # seconds of a forward-only pass over the batch
    compared: Array  # the same pass of the model that this one is compared with

    @functools.cached_property
    def matrices(self) -> matrix_update.MatrixTime:
        """Updates of matrices."""
        count, who = self.fullest.layers, self.layers.who
        return matrix_update.of_stage(self.plan, self.m, self.c, count, who)

    @functools.cached_property
    def layer_passes(self) -> Array:
        """Passes of the slowest stage through a layer."""
        return self.microbatches * self.slowest.layers

    @functools.cached_property
    def sharding(self) -> Array:
        """Seconds that a layer and micro-batch waits for shards."""
        return self.layers.sharding[0] + self.layers.sharding[1]


def step_time(
    plan: Plan,
    c: Columns,
    numbers: Machine | None = None,
    *,
    sums: bool = False,
    simulated: bool = True,
) -> StepTime:
    """Evaluate all rows. `numbers` replaces the plan's machine, for sensitivities and ablations.
    sums: without the accounts of operators and traffic. simulated: with the idle time of schedules
    that has no closed form; a lower bound without."""
    s = _timed(plan, numbers or machine(plan), c, simulated)
    before = merge(*(part(s) for part in _PARTS))
    with section("optimizer"):
        update = _update(s, before)
    components = merge(before, update)
    tail = functools.reduce(np.add, [s.end.exposed, *update.values()])
    for part in _AFTER:
        components = part(s, components)
    listed = Accounts()
    if not (sums or is_factored(c)):  # a search asks for sums only
        sent = [row for rows in _TRAFFIC for row in rows(s)]
        listed = accounts(s.layers.cost, s.layers.mean, s.passes, sent, s.layers.copied)
    return StepTime(
        seconds=total(components),
        components=components,
        hidden=listed.hidden,
        traffic=listed.traffic,
        ranks=s.ranks,
        stage_layers=np.maximum(s.ranks.layers[0], s.ranks.layers[1]),
        last_layers=s.ranks.layers[2],
        tail=tail,
        repeated_flop=s.microbatches * plan.model.layers / c.pp * s.layers.mean.repeated_flop,
        detail=listed.detail,
        row_tokens=uneven.row_tokens(plan, c),
        before=plan.training.early_passes * s.compared,
    )


def _timed(plan: Plan, m: Machine, c: Columns, simulated: bool) -> _Step:
    microbatches = c.microbatches(plan.training.global_batch)
    layers = layers_of(plan, m, c)
    with section("pipeline"):
        ranks = ranks_of(plan, c, layers)
        slowest = _slowest(plan, ranks)
        idle = pipelines.idle_s(plan, c, ranks, microbatches, simulated)
        bubble = pipeline.pipeline_s(slowest.seconds, microbatches, idle)
        bubble = bubble - microbatches * slowest.seconds
        sends = pipelines.sends(plan, m, c, microbatches, ranks.slowest())
    with section("gradient synchronisation"):
        fullest = _fullest(plan, c, ranks, layers.weights)
        each = zip(fullest.kinds, layers.times, strict=True)
        backward = functools.reduce(np.add, (n * time.backward for n, time in each))
        window = backward * _window_share(plan, c, microbatches)
        ends = plan, m, c, layers.who, layers.sharded, fullest.elements, window
        end = end_of_step.end_of_step(end_of_step.Ends(*ends, layers.mean.backward))
    once = pipeline.forward_only_s(ranks.slowest().forward, microbatches, c.pp)
    many = slowest.kinds, slowest.heads, slowest.modules
    return _Step(
        plan=plan,
        m=m,
        c=c,
        layers=layers,
        ranks=ranks,
        slowest=slowest,
        fullest=fullest,
        passes=Passes([microbatches * n for n in many[0]], *(microbatches * n for n in many[1:])),
        microbatches=microbatches,
        bubble=bubble,
        sends=sends,
        backward=backward,
        end=end,
        once=once,
        compared=compared_s(plan, m, c, once),
    )


# Parts of a step: what every one adds to its components, in the order in which they are added up.


def _compute(s: _Step) -> Ledger:
    """Operators of layers, of embedding, head and loss, of modules of multi-token prediction."""
    each = zip(s.passes.kinds, s.layers.cost.kinds, strict=True)
    return merge(
        *(scale(merge(group(unit.forward), group(unit.backward)), n) for n, unit in each),
        scale(group(s.layers.cost.head), s.passes.heads),
        scale(group(s.layers.cost.module), s.passes.modules),
    )


def _beside_compute(s: _Step) -> Ledger:
    """Recompute, launches and collectives of layers."""
    kinds = zip(s.passes.kinds, s.layers.cost.kinds, s.layers.times, strict=True)
    return merge(*(part for kind in kinds for part in _beside(*kind)))


def _data_parallel(s: _Step) -> Ledger:
    return {"data_parallel": s.layer_passes * s.sharding + s.end.exposed}


def _offloading(s: _Step) -> Ledger:
    """Copies of activations to host memory and back."""
    if (copied := s.layers.copied) is None:
        return {}
    return {"offload": s.layer_passes * (copied.forward + copied.backward)}


def _pipeline(s: _Step) -> Ledger:
    return {"pipeline_transfer": s.sends.exposed, "bubble": s.bubble}


def _reference(s: _Step) -> Ledger:
    """Passes without gradients: of the model itself, of a reference or a second model."""
    training = s.plan.training
    if not training.free_passes:
        return {}
    by_itself = TASKS[training.task].own
    return {"reference": by_itself * s.once + (training.free_passes - by_itself) * s.compared}


_PARTS = (_compute, _beside_compute, _data_parallel, _offloading, _pipeline, _reference)


def _update(s: _Step, components: Ledger) -> Ledger:
    """The update, which the CPU may run beside other parts of the step, and what mechanisms do
    after it. components: of the step before."""
    plan, c, matrices = s.plan, s.c, s.matrices
    owned = s.end.elements / shard_count(c.zero, 1.0, s.layers.who.shards.ranks)
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
    """The step on a cluster with two GPU types."""
    if s.plan.ranks.other is None:
        return components
    with section("the other GPUs"):
        other = step_time(uneven.of_other_gpu(s.plan), s.c).components
        return uneven.shared(s.plan, s.c, components, other)


def _waiting(s: _Step, components: Ledger) -> Ledger:
    """The step with overheads: waiting for the slowest rank, fixed cost, waiting for data."""
    plan, m, c = s.plan, s.m, s.c
    if uneven.is_uneven(plan):
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


_AFTER = (_other_gpus, _waiting)


# Rows of the communication table besides collectives of layers.


def _sharded_traffic(s: _Step) -> list[Traffic]:
    return sync.layer_traffic(
        s.plan, s.c, s.layer_passes, s.layers.who, s.layers.sharded, s.sharding
    )


_TRAFFIC: tuple[Callable[[_Step], list[Traffic]], ...] = (
    _sharded_traffic,
    lambda s: end_of_step.traffic(s.plan, s.c, s.layers.who, s.end),
    lambda s: matrix_update.traffic(s.layers.who, s.matrices.gathers),
    lambda s: [s.sends],
)


def _beside(passes: Array, unit: LayerCost, time: LayerTime) -> Iterator[Ledger]:
    """Time of this many passes of layers of a kind, without their compute."""
    yield {
        "recompute": passes * time.recompute,
        "launch": passes * (unit.launch_forward + unit.launch_backward),
    }
    for x in unit.collectives:
        yield {x.component: passes * (x.forward + x.backward) * x.seconds}
    yield scale(time.contention, passes)


def _slowest(plan: Plan, ranks: pipelines.Stages) -> _Slowest:
    of_slowest = ranks.of_slowest
    kinds = tuple(of_slowest((a, b, z)) for a, b, z in zip(*ranks.kinds, strict=True))
    return _Slowest(ranks.slowest_s(), kinds, of_slowest(ranks.heads), of_slowest(ranks.modules))


def _window_share(plan: Plan, c: Columns, microbatches: Array) -> Array:
    """Micro-batches beside whose backward gradients are reduced: the last one, with several chunks
    per rank on average half of those in flight."""
    if not plan.stack.overlap.interleaved_window:
        return 1.0
    return np.where(c.vpp > 1, 0.5 + 0.5 * np.minimum(microbatches, c.pp), 1.0)


def _fullest(plan: Plan, c: Columns, ranks: pipelines.Stages, weights: Weights) -> _Fullest:
    """The first of equal stages, whose backward pass ends last."""
    alone, turned = c.pp <= 1, folded(c)
    holds = (  # of the first, a middle and the last rank: embedding, head
        (1.0 + 0.0 * c.pp, (alone | turned) * 1.0),
        (0.0 * c.pp, 0.0 * c.pp),
        (alone * 1.0, (alone | ~turned) * 1.0),
    )
    each = [
        _elements(plan, weights, by_memory(plan.model, kinds), *ends)
        for kinds, ends in zip(ranks.kinds, holds, strict=True)
    ]
    first, middle, last = (stage.all for stage in each)
    at_last, at_middle = last > np.maximum(first, middle), middle > first

    def taken(a: Array, b: Array, z: Array) -> Array:
        return np.where(at_last, z, np.where(at_middle, b, a))

    def field(name: str) -> Array:
        return taken(*(getattr(stage, name) for stage in each))

    kinds = tuple(taken(*kind) for kind in zip(*ranks.kinds, strict=True))
    names = "shared", "experts", "root", "held"
    return _Fullest(kinds, StageElements(*map(field, names)))


def _elements(
    plan: Plan, weights: Weights, kinds: tuple[Array, ...], first: Array, last: Array
) -> StageElements:
    """Elements of a stage with these layers, with or without embedding and head."""
    trained, layers = weights.trained, trained_split(plan, StageSplit(kinds, first, last, 0.0))
    root, whole = (
        first * total(each.first) + last * total(each.last) for each in (trained, weights.every)
    )
    shared = trained.of_stage(layers, 0.0, 0.0) + root
    return StageElements(shared, trained.experts_of_stage(layers), root, whole)
