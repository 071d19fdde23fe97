"""Contents of a pipeline stage from which its memory is computed, with values that several leaves
need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from planner import schedules
from planner.estimate import sync
from planner.estimate.memory import activations, eager, frozen, loss, offload
from planner.estimate.memory.phases import Phased
from planner.estimate.memory.states import (
    Elements,
    States,
    parameter_ranks,
    states_of,
    trained_elements,
)
from planner.estimate.memory.tokens import tokens_of
from planner.estimate.stages import Repeated, StageSplit, repeated
from planner.estimate.state_types import state_of
from planner.estimate.trained import Weights, backward_split, trained_again
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.plan import Plan
from planner.specs.stack import StateBytes


def live_chunks(plan: Plan, c: Columns, stage: Array) -> Array:
    """Forward chunks whose activations a stage holds at its peak; vpp of them are a micro-batch."""
    microbatches = c.microbatches(plan.training.global_batch)
    return schedules.live_chunks(c.schedule, stage, c.pp, c.vpp, microbatches)


@dataclass(frozen=True, eq=False)
class StageOf:
    """A pipeline stage of every layout; values that several leaves use are computed once, on first
    use."""

    plan: Plan
    c: Columns
    weights: Weights
    number: Array
    split: StageSplit

    @cached_property
    def state(self) -> StateBytes:
        """Types of the states."""
        return state_of(self.plan)

    @cached_property
    def trained(self) -> Elements:
        return trained_elements(self.plan, self.c, self.weights.trained, self.split)

    @property
    def parameter_ranks(self) -> tuple[Array, Array]:
        """Ranks that share parameters, and parameters of routed experts."""
        return parameter_ranks(self.plan, self.trained)

    @cached_property
    def states(self) -> States:
        return states_of(self.plan, self.c, self.weights, self.split, self.trained)

    @cached_property
    def layers(self) -> Array:
        """Elements of its layers, trained or not."""
        every, nothing = self.weights.every, 0.0 * self.split.first
        return every.of_stage(self.split, nothing, nothing) + every.experts_of_stage(self.split)

    @cached_property
    def microbatches(self) -> Array:
        return self.c.microbatches(self.plan.training.global_batch)

    @cached_property
    def again(self) -> Repeated:
        """Layers that recompute repeats."""
        return trained_again(self.plan, repeated(self.plan, self.c, self.number))

    @cached_property
    def kept(self) -> activations.Kept:
        """Activations that layers keep."""
        split = backward_split(self.plan, self.split)
        return activations.kept(self.plan, self.c, split, self.again)

    @cached_property
    def chunks(self) -> Array:
        """Chunks whose activations it holds."""
        return live_chunks(self.plan, self.c, self.number)

    @cached_property
    def in_no_layer(self) -> Array:
        """Bytes of a micro-batch: output of the stage where the stack keeps it, mask of scores that
        are in memory, mask of the embedding."""
        each = self.plan.stack.activations.stage_outputs
        each = each * activations.one_input(self.plan, self.c)
        passed = each * (1 - self.split.last) * (self.c.pp > 1)
        if self.plan.stack.pipelining == "torch":
            kept = loss.sent(self.plan, self.c, self.chunks / self.c.vpp)
            passed = passed + kept * self.split.last * (self.c.pp > 1)
        scores = tokens_of(self.plan, self.c)[0] * self.plan.training.seq_len
        if eager.masks(self.plan):
            passed = passed + self.plan.training.element_bytes * scores
        # a byte for all layers, which those that are repeated read again
        repeats = self.c.is_recompute("full", "block", "group", "keep")
        passed = passed + eager.masked_rows(self.plan, self.c) * repeats * scores
        return passed + activations.embedding_mask(self.plan, self.c) * self.split.first

    @cached_property
    def offloaded(self) -> tuple[Array, Array]:
        """Bytes of activations that are not on the GPU, and bytes in host memory."""
        live = self.chunks / self.c.vpp
        weights = live * sync.compute_bytes(self.plan) * self.layers
        return offload.moved(self.plan, self.c, self.kept, live * self.kept.stage, weights)

    @cached_property
    def heads(self) -> Array:
        """Losses that it computes: every depth of multi-token prediction has its own."""
        return self.split.last + self.split.mtp

    @cached_property
    def second(self) -> tuple[Array, Array]:
        """Bytes of a second model's weights, and of those that its pass gathers."""
        return frozen.second_bytes(self.plan, self.c, self.parameter_ranks)


def always(plan: Plan) -> bool:
    """Condition of a leaf that every plan has."""
    return True


class Leaf(NamedTuple):
    """A leaf of memory."""

    bytes: Callable[[StageOf], Phased]
    needed: Callable[[Plan], bool] = always  # plans that have it; in others it is 0
    lasting: bool = False  # allocated once, or in a few large blocks
