"""States of a pipeline stage: parameters, gradients and optimizer, sharded and offloaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.estimate.gradients import tensors
from planner.estimate.memory import frozen, low_precision
from planner.estimate.moments import moments, state_ledger
from planner.estimate.stages import StageSplit
from planner.estimate.state_types import state_of
from planner.estimate.states import RankParameters
from planner.estimate.trained import Weights, trained_split
from planner.formulas import experts as expert_ranks
from planner.formulas import memory
from planner.formulas.data_parallel import shard_count, whole_tensor_shards
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layout import OFFLOADED_OPTIMIZER, OFFLOADED_PARAMS
from planner.specs.plan import Plan

_OF_FILE = 2.0  # bytes of a weight as it was published
ZERO_1, ZERO_2, ZERO_3, _NEVER = 1.0, 2.0, 3.0, 4.0  # the first ZeRO stage that shards a state
_LEAVING_LAYERS = 2.0  # whose gradients are being computed, and on their way to host memory


@dataclass(frozen=True)
class Elements:
    """Elements of a stage on a rank before data parallelism shards them, and ranks that can share
    them."""

    layers: Array  # routed experts apart
    shared: Array  # layers, embedding and head: all but routed experts
    experts: Array
    zero: Array
    shards: Array
    expert_shards: Array  # experts have replicas of their own, over which ZeRO shards them

    @cached_property
    def all(self) -> Array:
        return self.shared + self.experts

    def ranks(self, level: float) -> tuple[Array, Array]:
        """Ranks that share a state which ZeRO shards from this stage on, and for experts."""
        return (
            shard_count(self.zero, level, self.shards),
            shard_count(self.zero, level, self.expert_shards),
        )

    def bytes(self, each: float, level: float) -> Array:
        """Bytes of a state with `each` bytes per element, sharded from ZeRO stage `level` on."""
        ranks, others = self.ranks(level)
        return memory.state_bytes(self.shared, each, ranks) + memory.state_bytes(
            self.experts, each, others
        )

    @cached_property
    def owned(self) -> Array:
        """Elements that the rank's optimizer updates."""
        ranks, others = self.ranks(ZERO_1)
        return self.shared / ranks + self.experts / others

    @property
    def inner_frac(self) -> Array:
        """Share of the elements in layers."""
        return (self.layers + self.experts) / np.maximum(self.all, 1.0)


def trained_elements(
    plan: Plan, c: Columns, trained: RankParameters, split: StageSplit
) -> Elements:
    """Elements of a stage that are trained."""
    layers, first, last = trained_split(plan, split), split.first, split.last
    return Elements(
        layers=trained.of_stage(layers, 0.0 * first, 0.0 * last),
        shared=trained.of_stage(layers, first, last),
        experts=trained.experts_of_stage(layers),
        zero=c.zero,
        shards=_shards(plan, c),
        expert_shards=np.where(
            c.zero >= 1, np.minimum(c.shards * c.tp, expert_ranks.replicas(plan, c)), 1.0
        ),
    )


def _shards(plan: Plan, c: Columns) -> Array:
    """Ranks that share states."""
    if not state_of(plan).whole_tensors or plan.partial or not np.any(c.zero >= ZERO_1):
        return c.shards
    every = tensors(plan.model, *plan.joint)
    return whole_tensor_shards([tensor.elements for tensor in every], c.shards)


@dataclass(frozen=True)
class States:
    """Bytes of states on a stage."""

    parameters: Array
    gradients: Array
    optimizer: Array
    host: Array
    whole_parameters: Array  # before anything is offloaded
    whole_optimizer: Array
    saving: Array
    loading: Array
    pretrained: (
        Array  # bytes in host memory per GPU while weights are read that training begins with
    )


def parameter_ranks(plan: Plan, trained: Elements) -> tuple[Array, Array]:
    """Ranks that share parameters, and parameters of routed experts."""
    return trained.ranks(_of_parameters(plan))


def _of_parameters(plan: Plan) -> float:
    return ZERO_2 if state_of(plan).zero2_gathers else ZERO_3


def states_of(
    plan: Plan, c: Columns, weights: Weights, split: StageSplit, trained: Elements
) -> States:
    """The states of a stage. trained: elements of it."""
    ledger = state_ledger(plan)
    # two directions of the schedule, two copies of the parameters
    copies = np.where(c.is_schedule("dualpipe"), 2.0, 1.0)
    parameters = _trained_parameters(plan, trained)
    saving = parameters * copies  # what is not trained is in no checkpoint
    if plan.partial:
        ranks = parameter_ranks(plan, trained)
        parameters = parameters + frozen.held_bytes(plan, c, weights, split, ranks)
    parameters = parameters * copies
    buffers = sum(frozen.buffers_bytes(plan, c, weights.every, split), 0.0 * c.tp) * copies
    gradients = trained.bytes(ledger["gradients"], ZERO_2)
    optimizer = _optimizer(plan, c, weights.trained, split, trained)
    saving, loading = saving + optimizer, parameters + optimizer
    if plan.stack.loading == "whole":  # all that the file has for these layers
        each = ledger["parameters"] + ledger["optimizer"]
        loading = memory.state_bytes(trained.all, each, 1.0) + 0.0 * saving
    no_optimizer, no_params = c.offloads(*OFFLOADED_OPTIMIZER), c.offloads(*OFFLOADED_PARAMS)
    host = np.where(no_optimizer, optimizer + gradients, 0.0)
    return States(
        parameters=np.where(no_params & (c.zero >= ZERO_3), buffers, parameters),
        gradients=_resident_gradients(plan, c, weights.trained, gradients),
        optimizer=np.where(no_optimizer, 0.0, optimizer),
        host=host + np.where(no_params, parameters - buffers, 0.0),
        whole_parameters=parameters,
        whole_optimizer=optimizer,
        saving=saving,
        loading=loading,
        pretrained=_pretrained(plan, c, weights, split, trained),
    )


def _pretrained(
    plan: Plan, c: Columns, weights: Weights, split: StageSplit, trained: Elements
) -> Array:
    """Bytes in host memory per GPU while the weights are read that training begins with: of a copy
    per rank, or of one of a host that its other ranks receive theirs from. Weights that stay in the
    16 bits of the file are pages of it (safetensors), which the system takes back, unless the
    request says that they are copied; shards, and codes that are made on the GPU, pass in parts.
    Compared with `python -m benchmarks.frameworks reading`."""
    stated, ranks = plan.training.weight_readers, np.minimum(c.gpus, plan.cluster.gpus_per_host)
    readers = stated or plan.stack.pretrained
    width, base = state_ledger(plan)["parameters"], plan.training.base_precision
    whole = trained.bytes(width if stated or width > _OF_FILE else 0.0, _NEVER)
    if plan.partial and (stated or base == "fp32"):
        whole = whole + frozen.held_bytes(plan, c, weights, split, (1.0, 1.0))
    copies = ranks if readers == "each-rank" else 1.0 * (readers != "in-parts")
    return whole * copies / ranks


def _trained_parameters(plan: Plan, trained: Elements) -> Array:
    """Bytes of the parameters that are trained, of one copy."""
    each, level = state_ledger(plan)["parameters"], _of_parameters(plan)
    parameters = trained.bytes(each, level)
    # only layers are in 8 or 4 bit: embedding and head stay in 16
    narrower = low_precision.kept_bytes(plan, each, state_of(plan).master)
    if plan.training.adapter is not None or narrower == each:
        return parameters
    (ranks, others), saved = trained.ranks(level), each - narrower
    return (
        parameters
        - memory.state_bytes(trained.layers, saved, ranks)
        - memory.state_bytes(trained.experts, saved, others)
    )


def _optimizer(
    plan: Plan, c: Columns, p: RankParameters, split: StageSplit, trained: Elements
) -> Array:
    """Bytes of master copy and moments."""
    state, kept = state_of(plan), moments(plan, c, p)
    master = state.master if plan.training.mixed_precision else 0.0
    whole = master if state.whole_master else 0.0
    each, (ranks, others) = master - whole, trained.ranks(ZERO_1)
    layers, ends = trained.layers, trained.shared - trained.layers
    optimizer = (
        memory.state_bytes(layers, each + kept.layers, ranks)
        + memory.state_bytes(ends, each + kept.ends, ranks)
        + memory.state_bytes(trained.experts, each + kept.experts, others)
        + trained.bytes(whole, _NEVER)
    )
    if (chosen := plan.trained_layers) is not None and chosen.kept_moments:
        rest = p.of_stage(split, 0.0 * split.first, 0.0 * split.last) - layers
        rest_experts = p.experts_of_stage(split) - trained.experts
        optimizer = optimizer + memory.state_bytes(rest, kept.layers, ranks)
        optimizer = optimizer + memory.state_bytes(rest_experts, kept.experts, others)
    return optimizer


def _resident_gradients(plan: Plan, c: Columns, p: RankParameters, gradients: Array) -> Array:
    """Bytes of gradients on the GPU: where the CPU updates, sharded ones leave for host memory
    layer by layer."""
    if plan.stack.offload_update != "cpu":
        return gradients
    each, ranks = state_ledger(plan)["gradients"], shard_count(c.zero, ZERO_2, c.shards)
    in_flight = _LEAVING_LAYERS * p.per_layer() * each / ranks
    leaves = c.offloads(*OFFLOADED_OPTIMIZER) & (c.zero >= ZERO_2)
    return np.where(leaves, np.minimum(in_flight, gradients), gradients)
