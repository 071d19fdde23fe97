"""Memory of one pipeline stage through a training step: live bytes at the fullest moment of every
phase."""

from __future__ import annotations

from dataclasses import dataclass

from planner.estimate import mechanisms, sync
from planner.estimate.memory import buffers, frozen, gradients, low_precision, passes, weights
from planner.estimate.memory.phases import PHASES, Phased, throughout
from planner.estimate.memory.stage import Leaf, StageOf
from planner.estimate.quantised import base_of
from planner.estimate.stages import StageSplit
from planner.estimate.state_types import state_of
from planner.estimate.trained import Weights
from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.mechanism import Stage
from planner.specs.options import MECHANISMS
from planner.specs.plan import Plan

# in the order in which they are added up; mechanisms add leaves of their own
LEAVES: dict[str, Leaf] = {
    "parameters": Leaf(lambda s: throughout(s.states.parameters), lasting=True),
    "optimizer": Leaf(lambda s: throughout(s.states.optimizer), lasting=True),
    "gradients": Leaf(gradients.accumulated, lasting=True),
    "reference_model": Leaf(weights.others, frozen.holds_another, lasting=True),
    "activations": Leaf(passes.kept),
    "recompute_working_set": Leaf(passes.recomputed),
    "backward_temporaries": Leaf(passes.temporaries),
    "logits": Leaf(passes.logits),
    "gathered_layers": Leaf(weights.gathered),
    "dequantised_weights": Leaf(weights.dequantised, lambda plan: base_of(plan) is not None),
    "sequence_buffers": Leaf(passes.sequence_buffers),
    "communication_buckets": Leaf(buffers.buckets, lasting=True),
    "gradient_copies": Leaf(gradients.copies),
    "cast_copies": Leaf(
        weights.cast, lambda plan: state_of(plan).cast_copy and plan.training.mixed_precision
    ),
    "low_precision_copies": Leaf(
        weights.low_precision_copies, low_precision.keeps_copies, lasting=True
    ),
    "optimizer_temporaries": Leaf(buffers.of_optimizer),
    "workspaces": Leaf(buffers.workspaces, lasting=True),
}

LASTING = (
    *(name for name, leaf in LEAVES.items() if leaf.lasting),
    *(leaf for each in MECHANISMS for leaf in each.LASTING),
)


@dataclass(frozen=True)
class StageMemory:
    """Ledgers of the phases of PHASES and bytes in host memory, one value per row."""

    phases: list[Ledger]
    # flat buffers, for which what activations freed makes no room: reserved beside forward and
    # backward
    segments: Array
    host: Array
    drive: Array  # bytes on NVMe drives
    host_saving: Array
    host_loading: Array
    host_pretrained: Array
    layer: Array  # activations of a mean layer without recompute
    input: Array
    firm: Array | None = None  # reserved without what a driver can page; None: nothing is paged


def one_stage(
    plan: Plan, c: Columns, weights: Weights, stage: Array, split: StageSplit
) -> StageMemory:
    """Ledgers of all phases of one stage per row. All phases have the same leaves."""
    s = StageOf(plan, c, weights, stage, split)
    leaves = {
        name: leaf.bytes(s) if leaf.needed(plan) else Phased() for name, leaf in LEAVES.items()
    }
    phases = [{name: each[at] for name, each in leaves.items()} for at in range(len(PHASES))]
    freed = mechanisms.freed(plan, c, phases, lambda: gradients.of_stage(s))
    segments = _flat_buffers(s, leaves["optimizer_temporaries"].step if freed is None else 0.0)
    host = s.states.host + s.offloaded[1]
    phases, host, drive = mechanisms.with_memory(
        plan, c, phases if freed is None else freed, host, lambda: _for_mechanisms(s)
    )
    states, kept = s.states, s.kept
    return StageMemory(
        phases,
        segments,
        host,
        drive,
        states.saving,
        states.loading,
        states.pretrained,
        kept.whole,
        kept.input,
    )


def _flat_buffers(s: StageOf, temporary: Array) -> Array:
    """Flat buffers that exceed every block freed by the passes, so that the caching allocator
    reserves segments for them. temporary: bytes of the optimizer's buffers."""
    if not s.state.flat_temporaries:
        return 0.0
    return temporary + gradients.of_embedding(s)


def _for_mechanisms(s: StageOf) -> Stage:
    return Stage(
        s.plan,
        s.c,
        s.trained.all,
        s.trained.owned,
        s.states.whole_parameters,
        s.states.whole_optimizer,
        element_bytes=sync.compute_bytes(s.plan),
    )
