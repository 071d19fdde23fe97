"""Peak memory of every layout, stage by stage and phase by phase: the answer is the worst of
them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate import mechanisms, uneven
from planner.estimate.matrices import largest
from planner.estimate.memory import eviction
from planner.estimate.memory.activations import kept, layer_activations
from planner.estimate.memory.held import outside, reserved_of
from planner.estimate.memory.phases import PHASES
from planner.estimate.memory.stage import live_chunks
from planner.estimate.memory.timeline import StageMemory, one_stage
from planner.estimate.moments import state_ledger
from planner.estimate.stages import first_with, fullest_inner, repeated, stage_split
from planner.estimate.state_types import state_of
from planner.estimate.trained import weights_of
from planner.formulas.stages import contents
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.layers import memory_kinds
from planner.specs.layout import RECOMPUTE_KINDS
from planner.specs.plan import Plan

__all__ = [
    "PHASES",
    "Memory",
    "Need",
    "best_recompute_group",
    "evicted_bytes",
    "layer_activations",
    "needed",
    "peak_memory",
    "representative_stages",
    "state_ledger",
    "state_of",
]

# reserved over allocated lies between none and this many times the stack's fragmentation_frac
_SLACK_BAND = 2.0
# reserved over allocated where segments expand, a share of what comes and goes: mean
# over the steps of decoders through the allocator block by block, 0.01 to 0.15 (segments that do
# not: 0.06 to 0.2), tests/test_allocator.py
EXPANDABLE_FRAC = 0.04
# the same where the device is full and weights are frozen: all that comes and goes is free once per
# step, so that segments go back. Mean over the least devices on which steps of decoders run block
# by block, 0.00 to 0.09 (0.03 to 0.05 with full recompute); where all weights are trained,
# gradients and states lie among activations for good, and what is reserved is needed
FROZEN_FRAC = 0.05

# the same where micro-batches are as long as their longest document, and segments do not expand:
# blocks freed at one length are too small for the next. Mean of three models over 200 steps (1.1,
# 1.1, 1.5; on the smallest device that runs them 0.17 to 0.23) in the order in which
# transformers' code allocates (python -m benchmarks.frameworks reserved)
VARIED_FRAC = 1.2


@dataclass(frozen=True)
class Memory:
    """Bytes per GPU. Arrays are (rows,) for the worst stage; `stages` keeps the per-stage peaks,
    (stages, rows)."""

    peak: Array
    components: Ledger
    reserved: Array
    reserved_high: Array  # with twice the stack's usual fragmentation; without any it is the peak
    device: Array  # what nvidia-smi shows: reserved, context and communicators
    # the same without what goes where memory ends: states that the driver pages, segments that the
    # allocator gives back; None: all of it
    firm: Array | None
    context: Array
    communicators: Array
    worst_stage: Array
    worst_phase: Array
    stages: Array  # stage numbers evaluated
    stage_layers: Array
    stage_peaks: Array
    stage_reserved: Array
    stage_phases: Array  # worst phase of each stage, index into PHASES
    stage_components: list[Ledger]  # of the worst phase, one ledger of rows per stage
    phases: list[Ledger]  # of every phase; leaves (stages, rows)
    host: Array  # bytes in host memory per GPU, offloaded states and activations
    drive: Array  # bytes on the node's NVMe drives per GPU
    host_saving: (
        Array  # bytes of host memory per GPU that saving a checkpoint from a host copy takes
    )
    host_loading: Array  # bytes of host memory per GPU that loading a checkpoint takes
    host_pretrained: Array  # bytes of host memory per GPU while weights are read to begin with
    layer_bytes: Array  # activations of one layer and micro-batch without recompute
    input_bytes: Array  # the input of one layer

    @property
    def timeline(self) -> list[list[Ledger]]:
        """One ledger of rows per stage and phase."""
        return [
            [{name: leaf[i] for name, leaf in ledger.items()} for ledger in self.phases]
            for i in range(len(self.stages))
        ]


def representative_stages(plan: Plan, c: Columns) -> list[Array]:
    """First, last and the fullest stage between them, of which one is the worst; where layers
    differ also the first stage with layers of a later kind, the stage after it (which may hold only
    that kind and have more micro-batches in flight than the fullest), and the first stage with most
    layers of the kind. Columns of stage numbers."""
    stages = [0.0 * c.pp, fullest_inner(plan, c), c.pp - 1]
    for kind in range(len(memory_kinds(plan.model).kinds) - 1, 0, -1):
        begins = first_with(plan, c, kind, False)
        stages[2:2] = [begins, np.minimum(begins + 1, c.pp - 1), first_with(plan, c, kind, True)]
    return stages


def most_of_host(plan: Plan, host: Array, pretrained: Array) -> Array:
    """Bytes in host memory per GPU that decide whether a layout fits: of a step, and of reading the
    weights where the request says who reads them. A default of the stack decides nothing, since
    one option of a loader changes it."""
    return host if plan.training.weight_readers is None else np.maximum(host, pretrained)


@dataclass(frozen=True)
class Need:
    """Bytes per GPU that decide whether a layout fits; see Memory."""

    device: Array
    host: Array  # see `most_of_host`
    drive: Array | None = None  # None where no drives are known
    firm: Array | None = None


def needed(plan: Plan, c: Columns) -> Need:
    """Totals of `peak_memory` on device and host without the leaves, for tables of factored
    columns."""
    plan = uneven.of_longest(plan)
    parameters, slack = weights_of(plan, c), fragmentation(plan)
    reserved: list[Array] = []
    firm: list[Array | None] = []
    host: list[Array] = []
    drive: list[Array] = []
    around = sum(outside(plan, c))
    for stage in representative_stages(plan, c):
        memory_of_stage = _pressed(
            plan, c, one_stage(plan, c, parameters, stage, stage_split(plan, c, stage))
        )
        (reserved_bytes,) = reserved_of(memory_of_stage.phases, memory_of_stage.segments, slack)
        reserved.append(_within(plan, reserved_bytes, memory_of_stage.firm, around))
        firm.append(memory_of_stage.firm)
        host.append(most_of_host(plan, memory_of_stage.host, memory_of_stage.host_pretrained))
        drive.append(memory_of_stage.drive)
    device = functools.reduce(np.maximum, reserved) + around
    most = _most(firm)
    kept = None if most is None else most + around
    drives = None if plan.cluster.nvme is None else functools.reduce(np.maximum, drive)
    return Need(device, functools.reduce(np.maximum, host), drives, kept)


def _most(each: Sequence[Array | None]) -> Array | None:
    """The largest of several stages; None for no stages."""
    known = [value for value in each if value is not None]
    return functools.reduce(np.maximum, known) if known else None


def fragmentation(plan: Plan) -> float:
    """Allocator slack: reserved over the memory allocated and freed within a step."""
    usual = _of_lengths_alike(plan)
    varies = plan.lengths is not None and plan.lengths.packing in ("longest", "bucketed")
    return VARIED_FRAC if varies and plan.could_expand_segments else usual


def _of_lengths_alike(plan: Plan) -> float:
    """Memory if all micro-batches have one length."""
    usual = float(plan.stack.fragmentation_frac)
    return min(usual, EXPANDABLE_FRAC) if plan.expandable_segments else usual


def _pressed(plan: Plan, c: Columns, stage: StageMemory) -> StageMemory:
    """A stage with its minimum memory on a full device."""
    slack = fragmentation(plan)
    # of other lengths, segments go back where memory ends
    usual = _of_lengths_alike(plan)
    least = usual if plan.training.adapter is None else min(usual, FROZEN_FRAC)
    stage = eviction.without_evicted(plan, c, stage, slack, least)
    if stage.firm is None and least < slack:
        return replace(stage, firm=reserved_of(stage.phases, stage.segments, least)[0])
    return stage


def _within(plan: Plan, reserved: Array, firm: Array | None, around: Array) -> Array:
    """Reserved memory of a device of this size: as allocated, or at least the need."""
    if firm is None:
        return reserved
    return np.minimum(reserved, np.maximum(firm, plan.usable_bytes - around))


def peak_memory(plan: Plan, c: Columns, stages: Array | None = None) -> Memory:
    """Peak per GPU of every layout over the given stages (by default those that can be the
    worst)."""
    plan, rows = uneven.of_longest(plan), len(c)
    stages = np.stack(representative_stages(plan, c)) if stages is None else stages
    count = len(stages)
    many = c.each(lambda column: np.tile(column, count))  # one row per layout and stage
    stage = np.broadcast_to(stages, (count, rows)).reshape(-1)
    split = stage_split(plan, many, stage)
    memory_of_stage: StageMemory = one_stage(plan, many, weights_of(plan, many), stage, split)
    memory_of_stage = _pressed(plan, many, memory_of_stage)
    sums = np.stack([total(phase) for phase in memory_of_stage.phases])
    phase = sums.argmax(axis=0)
    tops = sums.max(axis=0).reshape(count, rows)
    wide = [
        {name: _wide(leaf, phase.shape) for name, leaf in ledger.items()}
        for ledger in memory_of_stage.phases
    ]
    leaves = {
        name: np.choose(phase, [ledger[name] for ledger in wide]).reshape(count, rows)
        for name in wide[0]
    }
    slack, band = fragmentation(plan), _SLACK_BAND * _of_lengths_alike(plan)
    held_bytes, high = (
        reserved_bytes.reshape(count, rows)
        for reserved_bytes in reserved_of(wide, memory_of_stage.segments, slack, max(slack, band))
    )
    context, communicators = outside(plan, c)
    firm = None if memory_of_stage.firm is None else memory_of_stage.firm.reshape(count, rows)
    held_bytes = _within(plan, held_bytes, firm, context + communicators)
    worst = (held_bytes >= held_bytes.max(axis=0) * (1 - 1e-12)).argmax(
        axis=0
    )  # the first of equals
    at = (worst, np.arange(rows))
    peak, components = tops[at], {name: leaf[at] for name, leaf in leaves.items()}
    reserved = held_bytes[at]
    return Memory(
        peak=peak,
        components=components,
        reserved=reserved,
        reserved_high=high[at],
        device=reserved + context + communicators,
        firm=None if firm is None else firm.max(axis=0) + context + communicators,
        context=context,
        communicators=communicators,
        worst_stage=stage.reshape(count, rows)[at],
        worst_phase=phase.reshape(count, rows)[at],
        stages=np.broadcast_to(stages, (count, rows)),
        stage_layers=split.layers.reshape(count, rows),
        stage_peaks=tops,
        stage_reserved=held_bytes,
        stage_phases=phase.reshape(count, rows),
        stage_components=[{name: leaf[i] for name, leaf in leaves.items()} for i in range(count)],
        phases=[{k: v.reshape(count, rows) for k, v in ledger.items()} for ledger in wide],
        host=memory_of_stage.host.reshape(count, rows).max(axis=0),
        drive=memory_of_stage.drive.reshape(count, rows).max(axis=0),
        host_saving=memory_of_stage.host_saving.reshape(count, rows).max(axis=0),
        host_loading=memory_of_stage.host_loading.reshape(count, rows).max(axis=0),
        host_pretrained=memory_of_stage.host_pretrained.reshape(count, rows).max(axis=0),
        layer_bytes=memory_of_stage.layer[-rows:],
        input_bytes=memory_of_stage.input[-rows:],
    )


def _wide(leaf: Array, shape: tuple[int, ...]) -> Array:
    known = getattr(leaf, "shape", ())
    if not known:  # as most: np.broadcast_to takes five times as long
        return np.full(shape, leaf, dtype=float)
    return leaf if known == shape else np.broadcast_to(leaf, shape)


def evicted_bytes(plan: Plan, c: Columns) -> Array:
    """Bytes of optimizer states that leave the fullest stage for host memory."""
    if not mechanisms.defined(plan, c, "evicted"):
        return 0.0
    plan = uneven.of_longest(plan)
    parameters, slack = weights_of(plan, c), fragmentation(plan)
    stages = (
        one_stage(plan, c, parameters, stage, stage_split(plan, c, stage))
        for stage in representative_stages(plan, c)
    )
    away = (eviction.evicted(plan, c, stage, slack) for stage in stages)
    return largest([left for left in away if left is not None])


def best_recompute_group(plan: Plan, c: Columns) -> int:
    """Layers per recompute group with which the first stage of a layout (a table of one row), where
    most micro-batches are in flight, keeps least: their inputs and the group that is repeated.

    On one chunk of L layers near sqrt(live L input / layer), where the inputs of the micro-batches
    in flight take as much as the group (Chen et al. 2016, arXiv 1604.06174, with one in flight).
    """
    plan = uneven.of_longest(plan)
    chunks = contents(plan, int(c.pp[0]), int(c.vpp[0])).layers[:, 0]
    sizes = np.arange(1.0, max(chunks.max(), 1.0) + 1)
    many = c.each(lambda column: np.broadcast_to(column, sizes.shape))
    kind = float(RECOMPUTE_KINDS.index("group"))
    many = replace(many, recompute=np.full_like(sizes, kind), recompute_size=sizes)
    first = 0.0 * sizes
    activations = kept(plan, many, stage_split(plan, many, first), repeated(plan, many, first))
    live = live_chunks(plan, many, first) / many.vpp
    return int(sizes[(live * activations.stage + activations.working).argmin()])
