"""A data-parallel strategy: base plan plus deltas in time, traffic and memory.

Costs are columns, one value per layout of the plan: all micro-batches and recompute choices are
evaluated, and the fastest that fits is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from planner.estimate import Estimates, communicate, sync, uneven
from planner.estimate.gradients import BUCKET_CAP_BYTES, Buckets
from planner.estimate.machine import Machine
from planner.estimate.step import StepTime, step_time
from planner.estimate.sync import Replicas
from planner.formulas import compression, data_parallel, overlap
from planner.formulas.params import parameter_count
from planner.ledger import Array
from planner.specs.layout import OffloadName
from planner.specs.options.numbers import number
from planner.specs.options.parallel import StrategySettings
from planner.specs.plan import Plan
from planner.units import show

FP32_BYTES = 4.0  # of an element in single precision


@dataclass(frozen=True)
class Steps:
    """Steps to equal loss relative to a synchronous exact step, and the source of that number."""

    factor: float
    source: str


@dataclass(frozen=True)
class Cost:
    """One value per layout."""

    compute_s: Array  # everything but communication of data parallelism
    exposed_s: Array  # what that communication adds to the step
    hidden_s: Array  # and what runs beside compute
    forward_bytes: Array  # that each GPU sends per step
    backward_bytes: Array
    optimizer_bytes: Array
    leaving_bytes: Array  # part of these that leaves the node, per GPU
    extra_bytes: Array | float = 0.0  # device memory beside what the evaluated plan takes

    @property
    def step_s(self) -> Array:
        return self.compute_s + self.exposed_s


@dataclass(frozen=True)
class Context:
    """An evaluated plan, for a strategy to build on."""

    plan: Plan
    estimates: Estimates
    m: Machine
    settings: StrategySettings
    local_steps: int = 1  # between synchronisations

    @cached_property
    def microbatches(self) -> Array:
        return self.estimates.table.microbatches(self.plan.training.global_batch)

    @cached_property
    def who(self) -> Replicas:
        return sync.replicas(self.plan, self.estimates.table)

    @cached_property
    def parameters(self) -> float:
        return float(parameter_count(self.plan.model))

    @cached_property
    def slower(self) -> Array:
        """Jitter of all ranks, which an estimate puts on everything in the step."""
        return uneven.jitter_factor(self.plan, self.m, float(self.plan.cluster.gpus))

    @cached_property
    def plain(self) -> StepTime:
        """The layouts without sharding: only the computation of layers."""
        table = replace(self.estimates.table, zero=np.zeros_like(self.estimates.table.zero))
        return step_time(self.plan, table, self.m)

    @property
    def layer_forward_s(self) -> Array:
        return self.plain.ranks.each.mean.forward

    @property
    def layer_backward_s(self) -> Array:
        layer = self.plain.ranks.each.mean
        return layer.input_gradient + layer.weight_gradient

    @property
    def window_s(self) -> Array:
        """Backward of all layers of one micro-batch, beside which gradients are reduced."""
        return self.layer_backward_s * self.plan.model.layers

    @property
    def compute_s(self) -> Array:
        time = self.estimates.time
        return time.seconds - self.slower * time.components["data_parallel"]

    def cost(
        self,
        exposed_s: Array,
        total_s: Array,
        volumes: tuple[Array, Array, Array],
        leaving: Array,
        extra_s: Array = 0.0,
        extra_bytes: Array | float = 0.0,
    ) -> Cost:
        """Cost with other communication than the evaluated plan's: exposed of `total_s`, and
        `extra_s` more of compute."""
        zero = np.zeros_like(self.estimates.time.seconds)
        forward, backward, optimizer = (volume + zero for volume in volumes)
        return Cost(
            self.compute_s + self.slower * extra_s,
            self.slower * exposed_s + zero,
            np.maximum(total_s - exposed_s, 0.0) + zero,
            forward,
            backward,
            optimizer,
            leaving + zero,
            extra_bytes,
        )

    def overlapped_s(self, sync_s: Array, last_s: Array, first_s: Array | None = None) -> Array:
        """Exposed time of bucketed reductions beside the backward pass of the last micro-batch, as
        in estimates. first_s: when the first bucket is ready, if buckets differ from DDP's."""
        first = self.buckets.first_layers * self.layer_backward_s if first_s is None else first_s
        return overlap.bucketed_exposed_s(sync_s, self.window_s, first, last_s, self.m.slowdown)

    @property
    def last_share(self) -> float:
        """Share of the gradients that is in the last bucket."""
        return self.buckets.last_bytes / (sync.wire_bytes(self.plan) * self.parameters)

    def all_reduce_s(self, whole_bytes: Array, calls: float = 1.0) -> Array:
        """An all-reduce over all replicas, in equal parts."""
        return calls * communicate.all_reduce_s(self.m, whole_bytes / calls, self.who.group)

    def all_reduced_bytes(
        self, whole_bytes: Array, passes: Array = 1.0, calls: Array = 1.0
    ) -> tuple[Array, Array]:
        """Bytes that each GPU sends for all-reduces over all replicas, and the bytes that leave the
        node."""
        group = self.who.group
        sent = data_parallel.backward_volume_bytes(
            0.0, whole_bytes, 0.0, group.ranks, passes, calls
        )
        return sent, self.leaving_bytes(sent)

    def leaving_bytes(self, sent: Array) -> Array:
        """Part of what each GPU sends that leaves the node, over all replicas."""
        group = self.who.group
        return data_parallel.leaving_bytes(sent, group.ranks, group.ranks_per_node)

    @property
    def buckets(self) -> Buckets:
        """Gradient buckets of the model."""
        return sync.bucketing(self.plan, float(self.plan.stack.overlap.bucket or BUCKET_CAP_BYTES))

    def codec_s(self, moved_bytes: float, flop: float = 0.0) -> Array:
        """Passes over the gradients that encode and decode what is sent."""
        return compression.codec_s(
            moved_bytes,
            flop,
            memory_bytes_per_s=self.m.memory_bandwidth,
            stream_frac=self.m.stream_frac,
            rate_flop_per_s=self.m.wide_rate,
        )


def evaluated(x: Context) -> Cost:
    """The plan as the estimator has it, with the bytes of its ZeRO stage."""
    time, c, group = x.estimates.time, x.estimates.table, x.who
    weights, gradients = (
        sync.compute_bytes(x.plan) * x.parameters,
        sync.wire_bytes(x.plan) * x.parameters,
    )
    m, zero, shards = x.microbatches, c.zero, group.shards.ranks
    forward = data_parallel.forward_volume_bytes(weights, zero, shards, m)
    calls = (
        2.0 if x.plan.stack.overlap.sharded_all_reduce else 1.0
    )  # ZeRO-1 that reduces with an all-reduce
    backward = data_parallel.backward_volume_bytes(
        weights, gradients, zero, shards, m, np.where(zero == 1, calls, 1.0)
    )
    optimizer = data_parallel.optimizer_volume_bytes(weights, zero, shards)
    inside = group.shards.ranks_per_node
    leaving = data_parallel.leaving_bytes(forward + backward + optimizer, shards, inside)
    if np.any(
        group.mirrors.ranks > 1
    ):  # hybrid sharding: shards of gradients are reduced over the mirrors, which share no node
        mirrors = group.mirrors
        part = m * 2 * gradients / shards * (mirrors.ranks - 1) / np.maximum(mirrors.ranks, 1.0)
        backward = backward + part
        leaving = leaving + data_parallel.leaving_bytes(part, mirrors.ranks, mirrors.ranks_per_node)
    exposed, hidden = (
        x.slower * time.components["data_parallel"],
        time.hidden.get("data_parallel", 0.0),
    )
    return Cost(
        x.compute_s, exposed, hidden + np.zeros_like(exposed), forward, backward, optimizer, leaving
    )


def several_nodes(plan: Plan) -> str | None:
    return (
        None
        if plan.cluster.nodes > 1
        else "needs more than one node: on one it is the same as sharding over all GPUs"
    )


def one_node(plan: Plan) -> str | None:
    return (
        None
        if plan.cluster.nodes == 1
        else f"runs in one process on one node; here are {plan.cluster.nodes} nodes"
    )


def with_state(plan: Plan, **changes: object) -> Plan:
    """The plan with other bytes per parameter."""
    state = plan.stack.state.model_copy(update=changes)
    return plan.model_copy(update={"stack": plan.stack.model_copy(update={"state": state})})


def with_overlap(plan: Plan, **changes: object) -> Plan:
    """The plan with a stack that overlaps otherwise."""
    changed = plan.stack.overlap.model_copy(update=changes)
    return plan.model_copy(update={"stack": plan.stack.model_copy(update={"overlap": changed})})


def without_overlap(plan: Plan) -> Plan:
    """The plan with every collective before or after the computation."""
    training = plan.training.model_copy(update={"overlap": False})
    return plan.model_copy(update={"training": training})


def without_buckets(plan: Plan) -> Plan:
    """Gradients are reduced where they are: no second copy of them."""
    return with_state(plan, bucket=0.0)


@dataclass(frozen=True)
class Strategy:
    """One way of keeping replicas in step: a row of strategies.json."""

    name: str
    title: str
    family: str
    # what sets it apart, in a sentence; {bucket} and {local_steps} come from the request
    differs: str
    source: str
    stack: str  # whose plan is evaluated
    zero: int = 0
    cost: Callable[[Context], Cost] = evaluated
    offload: OffloadName = "none"
    shard: Literal["all", "node"] = "all"
    change: Callable[[Plan], Plan] = lambda plan: plan  # switches of the stack
    copies: int = 0  # further fp32 copies of the gradients, which stay from step to step
    numbers: Callable[[Plan, Machine], Machine] = lambda plan, m: m
    no_cost: str = ""  # source that it takes as many steps as exact training, which it is not
    steps: Callable[[Context], Steps] | None = None  # else how many it takes
    refuses: Callable[[Plan], str | None] = lambda plan: None
    # that replicas take on their own, unless the request says so; local SGD's are assumed (Lin et
    # al. 2018 go up to 16), DiLoCo's are from section 3 of its paper
    local_steps: int = 1

    def changed(self, plan: Plan) -> Plan:
        """The plan with the switches and the copies of gradients of this strategy."""
        plan = self.change(plan)
        if not self.copies:
            return plan
        return with_state(plan, bucket=plan.stack.state.bucket + self.copies * FP32_BYTES)

    def steps_of(self, x: Context) -> Steps:
        """Steps to equal loss."""
        if self.steps is not None:
            return self.steps(x)
        return Steps(1.0, self.no_cost or "the same arithmetic as one large batch: no cost")

    def differs_with(self, given: StrategySettings) -> str:
        """Description of a strategy with the numbers of the request."""
        bucket = number(given, "bucket") or float(BUCKET_CAP_BYTES)
        return self.differs.format(
            bucket=show(bucket, "B"), local_steps=given.local_steps or self.local_steps
        )

    @property
    def is_exact(self) -> bool:
        """Whether a step has the result of one large synchronous batch, so that its number of steps
        is not an assumption."""
        return self.steps is None and not self.no_cost

    @property
    def is_plan(self) -> bool:
        """Whether time and bytes are the estimator's own."""
        return self.cost is evaluated
