"""Memory of one pipeline stage through a training step: what is alive at the fullest moment of
every phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner import schedules
from planner.estimate import mechanisms, quantised, sync
from planner.estimate.layer import dispatch
from planner.estimate.matrices import gathered_bytes, largest, layer_matrices
from planner.estimate.memory import activations, caches, frozen, loss, low_precision, offload
from planner.estimate.memory.gradients import stage_gradients
from planner.estimate.memory.workspaces import workspace_bytes
from planner.estimate.moments import Moments, moments, state_ledger
from planner.estimate.stages import StageSplit, repeated
from planner.estimate.state_types import state_of
from planner.estimate.states import RankParameters
from planner.estimate.trained import Weights, backward_split, trained_again, trained_split
from planner.formulas import experts as expert_ranks
from planner.formulas import memory
from planner.formulas.data_parallel import shard_count
from planner.formulas.optimizers import optimizer_of
from planner.formulas.stages import mtp_layers
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.layers import parts_of
from planner.specs.layout import OFFLOADED_OPTIMIZER, OFFLOADED_PARAMS
from planner.specs.mechanism import Sharded, Stage
from planner.specs.options import MECHANISMS
from planner.specs.parts import Mlp
from planner.specs.plan import Plan

PHASES = (
    "load",
    "forward",
    "loss",
    "backward",
    "end of backward",
    "gradient synchronisation",
    "optimizer step",
)

LASTING = (
    "parameters",
    "optimizer",
    "gradients",
    "reference_model",
    "communication_buckets",
    "low_precision_copies",
    "workspaces",
    *(leaf for each in MECHANISMS for leaf in each.LASTING),
)  # allocated once, or in a few large blocks

_ZERO_1, _ZERO_2, _ZERO_3, _NEVER = 1.0, 2.0, 3.0, 4.0  # the first ZeRO stage that shards a state

_LEAVING_LAYERS = 2.0  # whose gradients are being computed, and on their way to host memory
_BUFFERS = 2.0  # of DeepSpeed's ZeRO-1 and 2, one of which is filled while the other is reduced
_CAST_BYTES = 2.0  # of a parameter in 16 bit


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
    layer: Array  # activations of a mean layer without recompute
    input: Array
    firm: Array | None = None  # reserved without what a driver can page; None: nothing is paged


@dataclass(frozen=True)
class _States:
    """Bytes of states on a stage."""

    parameters: Array
    gradients: Array
    optimizer: Array
    host: Array
    whole: Ledger  # of parameters and optimizer, before anything is offloaded
    saving: Array
    loading: Array
    elements: Array  # what is trained of the stage on this rank, before data parallelism
    owned: Array  # of these, what this rank's optimizer updates
    inner: Array  # share of the elements that are of layers
    reference: Array  # weights of a model that is held beside this one
    teacher: Array  # weights that the pass of a teacher gathers


def _states(
    plan: Plan, c: Columns, of: Weights, split: StageSplit, first: Array, last: Array
) -> _States:
    p, held, state = of.trained, trained_split(plan, split), state_of(plan)
    shared, experts = p.of_stage(held, first, last), p.experts_of_stage(held)
    layers, kept = p.of_stage(held, 0.0 * first, 0.0 * last), moments(plan, c, p)
    shard = c.shards
    # experts have replicas of their own, over which ZeRO shards them
    expert_shard = np.where(
        c.zero >= 1, np.minimum(shard * c.tp, expert_ranks.replicas(plan, c)), 1.0
    )
    ledger = state_ledger(plan)

    def cuts(level: float) -> tuple[Array, Array]:
        return shard_count(c.zero, level, shard), shard_count(c.zero, level, expert_shard)

    def cut(each: float, level: float, more: Moments | None = None) -> Array:
        own, others = cuts(level)
        if more is None:
            return memory.state_bytes(shared, each, own) + memory.state_bytes(experts, each, others)
        return (
            memory.state_bytes(layers, each + more.layers, own)
            + memory.state_bytes(shared - layers, each + more.ends, own)
            + memory.state_bytes(experts, each + more.experts, others)
        )

    dual = np.where(
        c.is_schedule("dualpipe"), 2.0, 1.0
    )  # two directions, two copies of the parameters
    whole = _ZERO_2 if state.zero2_gathers else _ZERO_3
    parameters = cut(ledger["parameters"], whole)
    # layers alone are in 8 or 4 bit: embedding and head stay in 16
    narrower = low_precision.kept_bytes(plan, ledger["parameters"], state.master)
    if plan.training.adapter is None and narrower != ledger["parameters"]:
        saved = ledger["parameters"] - narrower
        parameters = (
            parameters
            - memory.state_bytes(layers, saved, shard_count(c.zero, whole, shard))
            - memory.state_bytes(experts, saved, shard_count(c.zero, whole, expert_shard))
        )
    saved = parameters * dual  # what is not trained is in no checkpoint
    if plan.training.partial:
        parameters = parameters + frozen.held_bytes(plan, c, of, split, cuts(whole))
    parameters = parameters * dual
    reference = frozen.reference_bytes(plan, of, split, cuts(whole))
    teacher, its_layers = frozen.teacher_bytes(plan, c, cuts(whole))
    gradients = cut(ledger["gradients"], _ZERO_2)
    master = state.master if plan.training.mixed_precision else 0.0
    whole = master if state.whole_master else 0.0
    optimizer = cut(master - whole, _ZERO_1, kept) + cut(whole, _NEVER)
    if plan.training.lisa_states == "visited":  # moments of layers that had their turn
        rest = p.of_stage(split, 0.0 * first, 0.0 * last) - layers
        others = p.experts_of_stage(split) - experts
        own, theirs = cuts(_ZERO_1)
        optimizer = optimizer + memory.state_bytes(rest, kept.layers, own)
        optimizer = optimizer + memory.state_bytes(others, kept.experts, theirs)
    away_optimizer, away_params = c.offloads(*OFFLOADED_OPTIMIZER), c.offloads(*OFFLOADED_PARAMS)
    saving = saved + optimizer
    loading = parameters + optimizer
    if plan.stack.loading == "whole":  # all that the file has for these layers
        loading = (
            memory.state_bytes(shared + experts, ledger["parameters"] + ledger["optimizer"], 1.0)
            + 0.0 * saving
        )
    host = np.where(away_optimizer, optimizer + gradients, 0.0) + np.where(
        away_params, parameters, 0.0
    )
    owned = shared / shard_count(c.zero, 1.0, shard) + experts / shard_count(
        c.zero, 1.0, expert_shard
    )
    resident = {"parameters": parameters, "optimizer": optimizer}
    optimizer = np.where(away_optimizer, 0.0, optimizer)
    if (
        plan.stack.offload_update == "cpu"
    ):  # the CPU updates: sharded gradients leave for host memory layer by layer
        in_flight = (
            _LEAVING_LAYERS * p.per_layer() * ledger["gradients"] / shard_count(c.zero, 2.0, shard)
        )
        gradients = np.where(
            away_optimizer & (c.zero >= 2), np.minimum(in_flight, gradients), gradients
        )
    parameters = np.where(away_params & (c.zero >= 3), 0.0, parameters)
    return _States(
        parameters,
        gradients,
        optimizer,
        host,
        resident,
        saving,
        loading,
        shared + experts,
        owned,
        (layers + experts) / np.maximum(shared + experts, 1.0),
        reference + teacher,
        its_layers,
    )


def live_chunks(plan: Plan, c: Columns, stage: Array) -> Array:
    """Forward chunks whose activations a stage holds at its peak; vpp of them are a micro-batch."""
    microbatches = c.microbatches(plan.training.global_batch)
    return schedules.live_chunks(c.schedule, stage, c.pp, c.vpp, microbatches)


def one_stage(plan: Plan, c: Columns, of: Weights, stage: Array, split: StageSplit) -> StageMemory:
    """Ledgers of all phases of one stage per row. All phases have the same leaves."""
    training, stack, state = plan.training, plan.stack, state_of(plan)
    first, last, p = split.first, split.last, of.trained
    own = _states(plan, c, of, split, first, last)
    again = trained_again(plan, repeated(plan, c, stage))
    kept = activations.kept(plan, c, backward_split(plan, split), again)
    microbatches = c.microbatches(training.global_batch)
    chunks = live_chunks(plan, c, stage)
    live = chunks / c.vpp  # micro-batches whose activations the stage holds
    heads = last + split.mtp  # every depth of multi-token prediction has a loss of its own
    ends = activations.head_activations(plan, c) * heads
    if mtp_layers(plan):
        ends = ends + activations.module_activations(plan, c) * split.mtp
    passed = (
        stack.activations.stage_outputs * activations.one_input(plan, c) * (1 - last) * (c.pp > 1)
    )
    beside = passed + activations.embedding_mask(plan, c) * first  # of a micro-batch, in no layer
    every = of.every
    layers = every.of_stage(split, 0.0 * first, 0.0 * last) + every.experts_of_stage(split)
    offloaded, host = offload.moved(
        plan, c, kept, live * kept.stage, live * sync.compute_bytes(plan) * layers
    )
    alive = live * (kept.stage + beside) + ends - offloaded
    whole_pass = {"activations": alive + caches.cached(plan, c, again)}
    # with the first gradients of a micro-batch all there, the others in flight still wait
    others = np.maximum(chunks - 1, 0.0) / c.vpp
    waiting = (
        others * (kept.stage + beside)
        + kept.unit
        - offload.moved(plan, c, kept, others * kept.stage + kept.unit, 0.0)[0]
    )

    root = first * total(every.first) + last * total(every.last)
    gathered, reducing = _gathered(plan, c, of, split, (layers, root), own.elements)
    buckets = _buckets(plan, c, own.elements)
    cast = np.where(
        state.cast_copy & training.mixed_precision & (c.zero < 3), _CAST_BYTES * own.elements, 0.0
    )
    standing = np.where(state.persistent_gradients | (microbatches > 1), own.gradients, 0.0)
    temporary = _temporary(plan, c, own)
    placeholders, embedding, head = _gradient_copies(plan, c, p, first, last, microbatches)
    copied = state.gradient_copy * own.elements / c.vpp + placeholders
    # while the first layers are repeated, their gradients are not there yet, nor is the embedding's
    ahead = np.minimum(kept.unit_layers * p.per_layer() + first * p.words, own.elements)
    reached = np.maximum(standing, own.gradients * (1 - ahead / np.maximum(own.elements, 1.0)))

    nothing = 0.0 * own.parameters
    idle: Ledger = {
        "parameters": own.parameters,
        "optimizer": own.optimizer,
        "gradients": standing,
        "reference_model": own.reference,
        "activations": nothing,
        "recompute_working_set": nothing,
        "backward_temporaries": nothing,
        "logits": nothing,
        "gathered_layers": nothing,
        "dequantised_weights": nothing,
        "sequence_buffers": nothing,
        "communication_buckets": buckets,
        "gradient_copies": nothing,
        "cast_copies": nothing,
        "low_precision_copies": low_precision.beside_bytes(plan, c, layers),
        "optimizer_temporaries": nothing,
        "workspaces": workspace_bytes(plan) + nothing,
    }
    running = {
        **idle,
        "activations": alive,
        "gathered_layers": gathered,
        "sequence_buffers": activations.sequence_buffers(plan, c),
        "cast_copies": cast,
        "gradient_copies": placeholders,
    }
    weight = sync.compute_bytes(plan) * _last_product(plan, c, p) * (state.layer_gradient_copy == 0)
    if training.adapter is not None:
        weight = 0.0 * weight
    inside = {
        "recompute_working_set": kept.working + _beside(plan, c, kept),
        "backward_temporaries": kept.transient + weight,
    }
    made = {"dequantised_weights": quantised.made_bytes(plan, c) + nothing}
    inside |= made
    at_loss = (loss.logits(plan, c) + loss.free_logits(plan, c)) * heads
    phases = [
        {**idle, "gradients": np.where(state.persistent_gradients, own.gradients, 0.0)},
        {**running, **made, **whole_pass},
        {
            **running,
            **whole_pass,
            "logits": at_loss,
            "gathered_layers": np.maximum(gathered, own.teacher),
            "gradient_copies": placeholders + np.where(last > 0, head, 0.0),
        },
        {**running, **inside},
        {
            **running,
            **inside,
            "activations": waiting,
            "gradients": reached,
            "gathered_layers": gathered + reducing,
            "gradient_copies": copied,
        },
        {
            **running,
            "activations": waiting,
            "gradients": own.gradients,
            "gathered_layers": gathered + reducing,
            "gradient_copies": copied + embedding,
        },
        {
            **idle,
            "gradients": own.gradients,
            "gradient_copies": placeholders,
            "optimizer_temporaries": temporary,
        },
    ]
    if freed := mechanisms.freed(plan, c, phases, lambda: stage_gradients(plan, c, p, weight)):
        phases, temporary = freed, nothing
    # the caching allocator keeps what the passes freed; flat buffers larger than any of it need
    # segments of their own
    flat = np.where(state.flat_temporaries, temporary + embedding, 0.0)

    def trained() -> Stage:
        return Stage(
            plan, c, own.elements, own.owned, **own.whole, element_bytes=sync.compute_bytes(plan)
        )

    phases, host, drive = mechanisms.with_memory(plan, c, phases, own.host + host, trained)
    return StageMemory(phases, flat, host, drive, own.saving, own.loading, kept.whole, kept.input)


def _beside(plan: Plan, c: Columns, of: activations.Kept) -> Array:
    """Activations of other repeated layers that are alive beside the one that backward works on."""
    more = plan.stack.activations.frozen_layers - 1.0
    alive = (c.zero >= _ZERO_2) & (c.replicas > 1) & c.is_recompute("full", "group")
    return np.where(alive, more * (plan.training.adapter is not None) * of.whole, 0.0)


def _gathered(
    plan: Plan,
    c: Columns,
    of: Weights,
    split: StageSplit,
    held: tuple[Array, Array],
    trained: Array,
) -> tuple[Array, Array]:
    """Bytes of weights that a pass gathers, and of gradients that are being reduced. held: elements
    of layers, and of embedding and head; trained: of the stage."""
    training, (layers, root) = plan.training, held
    narrow, layer = sync.compute_bytes(plan), of.trained.per_layer()
    whole_layer, elements = of.every.per_layer(), layers + root
    if training.adapter is not None:
        whole_layer, elements = whole_layer + layer, elements + trained
    whole = state_of(plan).zero2_gathers & (c.zero == 2)
    saved = quantised.saved_per_layer(plan, c, of.every, narrow)
    gathered = np.where(
        c.zero >= _ZERO_3,
        narrow * root + frozen.GATHERED_LAYERS * (narrow * whole_layer - saved),
        np.where(whole, narrow * elements - saved * split.layers, 0.0),
    )
    beside = mechanisms.gathered(plan, c, lambda: Sharded(elements, narrow, c.shards))
    if beside is not None:
        gathered = gathered + np.where(c.zero >= _ZERO_3, beside, 0.0)
    sharded = np.where(c.zero == _ZERO_2, narrow * layer, 0.0)
    both = (narrow + sync.wire_bytes(plan)) * layer
    return gathered, np.where((c.zero >= _ZERO_3) | whole, both, sharded)


def _temporary(plan: Plan, c: Columns, own: _States) -> Array:
    """Bytes of buffers of the optimizer's step."""
    state = state_of(plan)
    temporary = state.optimizer_temporary * own.owned
    known = optimizer_of(plan.training.optimizer, plan.training.optimizer_rank)
    if known.work is not None:  # one after the other, in place of buffers for all of them
        matrix = largest(
            [
                known.temporary_bytes(m.rows, m.columns)
                + gathered_bytes(plan, c, m.rows * m.columns)
                for m in layer_matrices(plan, c.tp, c.ep)
            ]
        )
        temporary = temporary * (1 - own.inner) + matrix
    if state.zero3_turn is not None:
        turn = state.optimizer_temporary * (plan.training.sub_group_size or state.zero3_turn)
        temporary = np.where(c.zero >= _ZERO_3, np.minimum(temporary, turn), temporary)
    on_cpu = c.offloads(*OFFLOADED_OPTIMIZER) & (plan.stack.offload_update == "cpu")
    return np.where(on_cpu, 0.0, temporary)


def _buckets(plan: Plan, c: Columns, trained: Array) -> Array:
    """Bytes of the buckets in which gradients and tokens of experts travel."""
    buckets = (c.replicas > 1) * 1.0 * (_fixed_buckets(plan, c) + state_of(plan).bucket * trained)
    if plan.model.routed is not None and plan.model.moe_layers:
        local = activations.tokens_of(plan, c)[1]
        etp = expert_ranks.tensor_of(plan, c.tp)
        buckets = buckets + dispatch.buffer_bytes(plan, c.ep, etp, local)
    return buckets


def _fixed_buckets(plan: Plan, c: Columns) -> Array:
    """Bytes of fixed-size buckets, if the request sets their size: as many as are filled and
    reduced at once, or one without overlap."""
    state, asked = state_of(plan), plan.training.data_bucket
    whole = state.fixed_buckets
    zero3 = whole if state.zero3_buckets is None else state.zero3_buckets
    several = 1.0 if state.zero3_buckets is None else _BUFFERS
    if asked is not None and whole > 0:
        whole, zero3 = several * asked, asked
    if not sync.beside(plan, "reduce"):
        whole = whole / several
    return np.where(c.zero >= _ZERO_3, zero3, whole)


def _last_product(plan: Plan, c: Columns, p: RankParameters) -> Array:
    """Size of the MLP down-projection (of all experts of a layer, which are one tensor), whose
    weight gradient is allocated while its input and grad-input are live."""
    dense = 0.0 * c.tp
    for part, _ in parts_of(plan.model):
        if isinstance(part, Mlp):
            dense = np.maximum(dense, part.ffn_hidden * plan.model.hidden / c.tp)
    moe = plan.model.routed
    return np.maximum(dense, p.most_experts / (moe.inputs + 1 if moe else 1))


def _gradient_copies(
    plan: Plan, c: Columns, p: RankParameters, first: Array, last: Array, microbatches: Array
) -> tuple[Array, Array, Array]:
    """(placeholders of a layer's weights and of the head, gradient of the embedding, gradient of
    the head).

    Where gradients accumulate, autograd still hands over a gradient of each weight: an empty one
    per shape where the GEMM adds to the buffer itself (Transformer Engine, get_dummy_wgrad), and
    a real one for the embedding at the end of backward.
    """
    state = state_of(plan)
    each = state.layer_gradient_copy
    local = plan.model.routed.experts / c.ep if plan.model.routed is not None else 1.0
    placeholders = each * (p.largest + p.most_experts / local) + 0.0 * first
    words = p.words
    adds = (microbatches > 1) | (state.persistent_gradients and state.gradient > state.compute)
    return (
        placeholders,
        np.where(adds, sync.compute_bytes(plan), 0.0) * words * first,
        each * words * last,
    )
