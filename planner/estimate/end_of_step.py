"""Data-parallel communication at the end of a step: gradients that are reduced once, parameters
that are gathered once, and the ends of sharded passes that nothing hides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.estimate import communicate, sync
from planner.estimate.communicate import Group, Traffic, share_of
from planner.estimate.gradients import Buckets, tensors
from planner.estimate.machine import Machine
from planner.formulas import data_parallel, overlap
from planner.ledger import Array, Ledger, merge
from planner.specs.columns import Columns
from planner.specs.plan import Plan

# share of the gathers of embedding and head that nothing hides under prefetching: the one forward,
# at the start of the step
_ROOT_EXPOSED = 0.5


@dataclass(frozen=True)
class StageElements:
    """Elements that a stage reduces and updates."""

    shared: Array  # all but routed experts
    experts: Array
    root: Array  # of `shared`, embedding and head, which FSDP handles as one group
    held: Array  # all of embedding and head, frozen or not

    @cached_property
    def all(self) -> Array:
        return self.shared + self.experts


@dataclass(frozen=True, eq=False)
class Ends:
    """A stage of every layout at the end of its step, and who communicates."""

    plan: Plan
    m: Machine
    c: Columns
    who: sync.Replicas
    sharded: sync.ShardedLayer
    of: StageElements
    window_s: Array  # of backward, beside which gradients are reduced
    layer_backward_s: Array  # of one layer and micro-batch

    @cached_property
    def buckets(self) -> Buckets | None:
        """Gradient buckets; None: parts of equal size."""
        cap = self.plan.training.data_bucket or self.plan.stack.overlap.bucket
        return None if cap is None else sync.bucketing(self.plan, float(cap))

    @cached_property
    def gradient_bytes(self) -> Array:
        """Bytes of gradients as sent, without routed experts."""
        return sync.wire_bytes(self.plan) * self.of.shared

    @cached_property
    def parameter_bytes(self) -> tuple[Array, Array]:
        """Bytes of parameters as sent: without routed experts, and of routed experts."""
        each, root = sync.gathered_bytes(self.plan), self.of.root
        shared = sync.compute_bytes(self.plan) * root + each * (self.of.shared - root)
        return shared, each * self.of.experts

    @cached_property
    def reduced_s(self) -> Array:
        """Seconds in which all gradients are reduced."""
        who, m, sent = self.who, self.m, self.gradient_bytes
        seconds = self._reduce_s(self.of.shared, who.group)
        if np.any(mirrored := who.mirrors.ranks > 1):  # hybrid: shards, and then what mirrors hold
            parts = communicate.reduce_scatter_s(m, sent, who.shards)
            among = communicate.all_reduce_s(m, sent / who.shards.ranks, who.mirrors)
            seconds = np.where(mirrored, parts + among, seconds)
        return seconds + self._reduce_s(self.of.experts, who.experts)

    def _reduce_s(self, elements: Array, group: Group) -> Array:
        count, wire = 1 if self.buckets is None else self.buckets.count, sync.wire_bytes(self.plan)
        calls = np.maximum(count * elements / np.maximum(self.of.all, 1.0), 1.0)
        seconds = calls * communicate.all_reduce_s(self.m, wire * elements / calls, group)
        if not self.plan.stack.overlap.sharded_all_reduce:
            parts = communicate.reduce_scatter_s(self.m, wire * elements / calls, group)
            seconds = np.where(self.c.zero >= 1, calls * parts, seconds)
        return np.where(elements > 0, seconds, 0.0)  # a model without experts makes no call

    @cached_property
    def gathered_s(self) -> Array:
        """Seconds in which ranks gather the parameters that each of them updated."""
        shared, experts = self.parameter_bytes
        return self.gather_s(shared, self.who.shards) + self.gather_s(experts, self.who.experts)

    def gather_s(self, sent: Array, group: Group) -> Array:
        """Seconds of the all-gather of a sharded state of `sent` bytes."""
        seconds = communicate.all_gather_s(self.m, sent, group)
        return np.where((self.c.zero >= 1) & (sent > 0), seconds, 0.0)


@dataclass(frozen=True)
class EndOfStep:
    """Time that data parallelism adds once per step."""

    exposed: Array
    total: Array  # hidden and exposed together
    reduced: Array  # time of the gradients' all-reduce, or of the reduce-scatter of ZeRO-1
    gathered: Array  # time of ZeRO-1's parameter all-gather
    gathered_bytes: Array
    elements: Array  # parameters of the stage


def end_of_step(e: Ends) -> EndOfStep:
    """Gradient reduction of a stage, or the unhidden ends of a sharded pass."""
    once = merge(*(part(e) for part in _ONCE))
    per_layer = merge(*(part(e) for part in _PER_LAYER))

    def either(name: str) -> Array:
        here, others = per_layer.get(name, 0.0), once.get(name, 0.0)
        return np.where(e.who.several, np.where(e.c.syncs_per_layer, here, others), 0.0)

    return EndOfStep(
        exposed=either("exposed"),
        total=either("total"),
        reduced=either("reduced"),
        gathered=either("gathered"),
        gathered_bytes=sum(e.parameter_bytes),
        elements=e.of.all,
    )


# Parts of the end of a step: seconds that are exposed, in total, in reductions and in gathers.


def _once(e: Ends) -> Ledger:
    """Gradients in buckets beside backward, parameters beside the next forward pass."""
    whole = e.reduced_s + e.gathered_s
    sent, buckets = e.gradient_bytes, e.buckets
    last_bytes = np.minimum(sync.LAST_BYTES if buckets is None else buckets.last_bytes, sent)
    last_s = communicate.all_reduce_s(e.m, last_bytes, e.who.group)
    if buckets is None:  # equal parts, ready at equal times
        first_s = e.window_s * last_bytes / np.maximum(sent, 1.0)
    else:
        first_s = buckets.first_layers * e.layer_backward_s
    stack = e.plan.stack.overlap
    hides = np.where(e.c.zero >= 1, stack.sharded_sync, stack.gradient_sync) > 0
    if e.plan.training.overlap is False:
        hides = hides & False
    hidden = e.reduced_s * sync.beside(e.plan, "reduce")
    hidden = hidden + e.gathered_s * sync.beside(e.plan, "forward")
    left = overlap.bucketed_exposed_s(hidden, e.window_s, first_s, last_s, e.m.slowdown)
    exposed = np.where(hides, left + (whole - hidden), whole)
    return {"exposed": exposed, "total": whole, "reduced": e.reduced_s, "gathered": e.gathered_s}


def _broadcasts(e: Ends) -> Ledger:
    """Calls of a stack that sends every tensor after the update, beside nothing."""
    each_s, fusion = e.plan.stack.overlap.broadcast, e.plan.stack.fusion
    if each_s is None:
        return {}
    count = len(tensors(e.plan.model, fusion.joint_qkv, fusion.joint_gate)) / e.c.pp
    seconds = data_parallel.broadcasts_s(e.who.shards.ranks, count, each_s)
    seconds = np.where((e.c.zero >= 1) & (e.who.shards.nodes > 1), seconds, 0.0)
    return dict.fromkeys(("exposed", "total", "gathered"), seconds)


def _first_and_last(e: Ends) -> Ledger:
    """The first gather and the last reduction, which have nothing to hide behind; without
    prefetching all layers were waited for already."""
    gather = e.sharded.gather * sync.beside(e.plan, "forward")
    seconds = gather + e.sharded.scatter * sync.beside(e.plan, "reduce")
    waits = seconds if e.plan.stack.overlap.prefetch else 0.0
    return {"exposed": waits, "total": seconds}


def _root(e: Ends) -> Ledger:
    """Gathers of embedding and head, one group: half of them exposed, without prefetching all."""
    sent = 2 * sync.compute_bytes(e.plan) * e.of.held
    seconds = communicate.all_gather_s(e.m, sent, e.who.shards)
    waits = not (sync.beside(e.plan, "forward") and sync.beside(e.plan, "backward"))
    whole = waits or not e.plan.stack.overlap.prefetch
    return {"exposed": (1.0 if whole else _ROOT_EXPOSED) * seconds, "total": seconds}


def _updated(e: Ends) -> Ledger:
    """ZeRO-2 that keeps parameters whole gathers what was updated, with nothing to hide it (arXiv
    1910.02054, section 7.2.1): Qwen2.5-32B of llmq 8.4 -> 0.2 %, LLaMA-7B of the A800 gist 22.5 ->
    21.9 %. FSDP gathers them layer by layer in the next forward pass, behind the layer before where
    it prefetches; the root group has its own gather."""
    if not e.plan.stack.state.zero2_gathers:
        seconds = e.gathered_s + _broadcasts(e).get("gathered", 0.0)
    elif e.plan.stack.overlap.prefetch:
        return {}
    else:
        layers = sync.gathered_bytes(e.plan) * np.maximum(e.of.shared - e.of.root, 0.0)
        seconds = e.gather_s(layers, e.who.shards)
    seconds = np.where(e.c.zero == 2, seconds, 0.0)
    return dict.fromkeys(("exposed", "total", "gathered"), seconds)


_ONCE = (_once, _broadcasts)
_PER_LAYER = (_first_and_last, _root, _updated)  # under ZeRO-2 and 3


def traffic(plan: Plan, c: Columns, who: sync.Replicas, end: EndOfStep) -> list[Traffic]:
    """Rows of the communication table: once per step. The exposed part is shared between reduction
    and gather as their times are."""
    shown = np.clip(share_of(end.exposed, end.reduced + end.gathered), 0.0, 1.0)
    wire, across = sync.wire_bytes(plan) * end.elements, (who.group.nodes > 1) * 1.0
    halves = (c.zero >= 1) & (not plan.stack.overlap.sharded_all_reduce)
    reduced = end.reduced, "gradients of the stage", wire
    gathered = end.gathered, "parameters of the stage", end.gathered_bytes
    rows = []
    for operation, where, (seconds, contents, sent) in (
        ("all_reduce", ~halves, reduced),
        ("reduce_scatter", halves, reduced),
        ("all_gather", end.gathered > 0, gathered),
    ):
        seconds = np.where(where, seconds, 0.0)
        times = (seconds > 0) * 1.0, seconds, seconds * shown
        rows.append(Traffic(operation, "data", contents, "data_parallel", sent, *times, across))
    return rows
