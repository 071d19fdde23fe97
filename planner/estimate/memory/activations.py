"""Bytes that one layer keeps for backward, operator by operator, and what remains of them under a
recompute rule.

Symbols as in formulas.memory. Every function returns one value per row of the table.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from planner.estimate.machine.kernels import split_experts
from planner.estimate.memory import attention, beside_frozen, eager, modules, norms, traced
from planner.estimate.memory.low_precision import low_copy_bytes
from planner.estimate.memory.norms import COUNTED_ELEMENT
from planner.estimate.memory.tokens import routed_tokens, tokens_of
from planner.estimate.stages import Repeated, StageSplit
from planner.formulas import experts, memory, recompute
from planner.formulas.params import MTP_NORMS, stream_of
from planner.ledger import Array, Ledger, total
from planner.specs.columns import Columns
from planner.specs.layers import Kind, memory_kinds, parts_of
from planner.specs.parts import (
    Attended,
    Attention,
    CrossAttention,
    Latent,
    Mlp,
    Moe,
    Part,
    Scan,
    Traced,
)
from planner.specs.plan import Plan
from planner.specs.polynomial import NONE
from planner.specs.towers import head_plan, kind_plan, plans

# bytes per element of an MLP without a gate: inputs of GeLU and of its second GEMM
_PLAIN_MLP = 4.0
_DROPOUT_MASKS = 2.0  # of a byte per element: after attention and after the MLP
_ROUTER_BYTES = 8.0  # per token and expert: fp32 logits and their softmax
# copies of h per routed token: gathered for the experts, to be weighted
_EXPERT_INPUT, _EXPERT_OUTPUT = 1.0, 1.0


def one_input(plan: Plan, c: Columns, kind: Kind | None = None) -> Array:
    """Bytes of a layer's input, what full recompute keeps; for a kind, of its tower."""
    if kind is not None:
        enters = next((x.enters for x in kind.parts if isinstance(x, Traced) and x.enters), None)
        if enters is not None:
            return traced.counted(plan, c, enters, NONE) / c.sequence_ranks
        plan, _ = kind_plan(plan, kind)
    return memory.product_input_bytes(
        tokens_of(plan, c)[1], float(plan.model.hidden), eager.residual_bytes(plan)
    )


def layer_activations(plan: Plan, c: Columns) -> Ledger:
    """Bytes that one mean layer keeps for backward, by operator, without recompute."""
    layers, out = memory_kinds(plan.model), dict[str, Array]()
    for kind, count in zip(layers.kinds, layers.counts, strict=True):
        for frozen, turn in _turns(plan):
            share = turn * count / plan.model.layers
            for name, leaf in kind_activations(plan, c, kind, frozen).items():
                out[name] = out.get(name, 0.0) + share * leaf
    return out


def _turns(plan: Plan) -> list[tuple[bool, float]]:
    """(whether weights are frozen, share of the layers)."""
    trained, adapter = plan.gradients_frac, plan.training.adapter is not None
    turns = [(adapter, 1.0)] if adapter else [(False, trained), (True, 1.0 - trained)]
    return [(frozen, share) for frozen, share in turns if share]


def kind_activations(plan: Plan, c: Columns, kind: Kind, frozen: bool) -> Ledger:
    """Bytes that one layer of a kind keeps for backward, by operator, without recompute."""
    plan, kind = kind_plan(plan, kind)
    out = _norm_activations(plan, c, kind)
    stream = stream_of(plan.model)
    for block in kind.blocks:
        for i, part in enumerate(block):
            # what stands side by side reads one input, unless each has a norm of its own
            own_input = i == 0 or kind.norms > len(kind.blocks)
            kept = _of_part(plan, c, part, own_input)
            tokens = tokens_of(plan, c)[0]
            if isinstance(part, Traced):
                gradients = not frozen and plan.gradient_of(part.name) > 0
                kept["traced/saved"] = traced.saved(plan, c, part, gradients)
            for tensor in part.kept(stream):
                elements = tokens * tensor.elements.local(c.tp)
                kept[tensor.name] = plan.training.element_bytes * elements
            if frozen or not plan.gradient_of(part.name):
                kept = beside_frozen.kept(plan, c, part, kept, (tokens, routed_tokens(plan, c)))
            for name, leaf in kept.items():
                out[name] = out.get(name, 0.0) + leaf
    if frozen and not plan.fused_norm:
        # the normed element is kept only for the gradient of the norm's weight
        frozen_share = frozen_norm_bytes(plan) / norms.norm_bytes(plan)
        for name in ("norm", "attention/qk_norm"):
            if name in out:
                out[name] = out[name] * frozen_share
    return out


def _of_part(plan: Plan, c: Columns, part: Part, own_input: bool) -> Ledger:
    if isinstance(part, Traced):
        return traced.scores(plan, c, part, lambda core: attention.score_bytes(plan, core))
    if isinstance(part, Mlp):
        return _dense_activations(plan, c, part, own_input)
    if isinstance(part, Moe):
        return _expert_activations(plan, c, part)
    inputs = memory.product_input_bytes(
        _inputs(plan, c), float(plan.model.hidden), _input_bytes(plan)
    )
    if eager.casts_inputs(plan):
        inputs, own_input = inputs * eager.input_copies(plan, part), True
    if isinstance(part, Latent):
        return {"latent/input": inputs * own_input} | attention.latent(plan, c, part)
    out: Ledger = {f"{'attention' if part.mixes else 'mlp'}/input": inputs * own_input}
    if isinstance(part, Attention | CrossAttention):
        return out | attention.by_heads(plan, c, part)
    return out


def _input_bytes(plan: Plan) -> float:
    """Bytes per element of the saved input of a GEMM: the mean over layers where some stay in 16
    bit."""
    low, share = low_copy_bytes(plan), plan.training.wide_layers / plan.model.layers
    wide = plan.training.element_bytes
    return wide if low == 0 else share * wide + (1 - share) * low


def _inputs(plan: Plan, c: Columns) -> Array:
    """Tokens of the inputs that column-parallel GEMMs keep."""
    tokens, local = tokens_of(plan, c)
    gathered = plan.stack.activations.gathered_inputs
    whole = gathered == "always" or ((gathered == "without pipeline") & (c.pp == 1))
    return np.where(whole, tokens, local)


def _norm_activations(plan: Plan, c: Columns, kind: Kind) -> Ledger:
    """Norms of a layer, and masks of dropout."""
    (_, local), h = tokens_of(plan, c), float(plan.model.hidden)
    count, doubled = float(kind.norms), plan.model.norms_per_block - 1.0
    # what stands side by side has one input, which norms of one kernel keep once
    shared = plan.fused_norm and not eager.norms_cast(plan)
    beside = sum(len(block) > 1 for block in kind.blocks) * max(doubled, 0.0) * shared
    out: Ledger = {
        "norm": memory.norm_kept_bytes(local, h, count - beside, norms.norm_bytes(plan)),
        "norm/statistics": memory.norm_kept_bytes(local, 1.0, count, norms.statistic_bytes(plan)),
    }
    if _drops_hidden(plan):
        out["dropout"] = memory.dropout_mask_bytes(local, h, _DROPOUT_MASKS)
    return out


def _drops_hidden(plan: Plan) -> bool:
    return plan.model.dropout and plan.model.dropout_of != "attention"


def embedding_mask(plan: Plan, c: Columns) -> Array:
    """Dropout mask of the embedding of a micro-batch; it is not recomputed."""
    masks = 1.0 if _drops_hidden(plan) else 0.0
    masks_bytes = [
        memory.dropout_mask_bytes(tokens_of(tower, c)[1], float(tower.model.hidden), masks)
        for tower, _ in plans(plan)
    ]
    return functools.reduce(np.add, masks_bytes)


def _mlp_bytes(plan: Plan, part: Mlp | Moe) -> float:
    """Bytes per MLP element: inputs of the activation function and of the second GEMM."""
    e = plan.training.element_bytes
    composed = eager.composed_bytes(plan, part)
    if composed is not None:
        return composed
    each = eager.gated_bytes(plan) if part.gated else _PLAIN_MLP
    # a ReLU keeps only its output, which the second GEMM keeps anyway
    if not part.gated and part.activation == "relu":
        each -= COUNTED_ELEMENT if each >= 2 * COUNTED_ELEMENT else 0.0
    each = each * plan.stream_bytes / COUNTED_ELEMENT - (e - _input_bytes(plan))
    return each - part.inputs * (plan.stream_bytes - _activated_bytes(plan))


def _activated_bytes(plan: Plan) -> float:
    """Bytes per element that the activation function of an MLP reads, as backward has it."""
    stated = plan.stated(lambda each: each.activated_bytes())
    return plan.stream_bytes if stated is None else stated


def _dense_activations(plan: Plan, c: Columns, part: Mlp, own_input: bool) -> Ledger:
    """A dense MLP."""
    tokens, h = tokens_of(plan, c)[0], float(plan.model.hidden)
    inputs = memory.product_input_bytes(_inputs(plan, c), h, _input_bytes(plan))
    if eager.casts_inputs(plan):
        inputs, own_input = inputs * eager.input_copies(plan, part), True
    width = float(part.ffn_hidden)
    return {
        "mlp/input": inputs if own_input else 0.0 * inputs,
        "mlp/hidden": memory.mlp_kept_bytes(tokens, width, _mlp_bytes(plan, part), c.tp),
    }


def _expert_activations(plan: Plan, c: Columns, moe: Moe) -> Ledger:
    """Router, experts and shared experts."""
    tokens, _ = tokens_of(plan, c)
    h, e = float(plan.model.hidden), plan.training.element_bytes
    etp, each = experts.tensor_of(plan, c.tp), _mlp_bytes(plan, moe)
    wider, e = eager.expert_bytes(plan) / e, eager.expert_bytes(plan)
    shared, each = each, wider * each
    routed = routed_tokens(plan, c)
    # what is clamped beside what the activation reads
    clamped = e * moe.inputs * (moe.clamped and split_experts(plan))
    width, read = float(moe.ffn_hidden), float(moe.read(int(h)))
    # inputs of the activation function
    before = min(each, moe.inputs * wider * _activated_bytes(plan))
    scored = float(moe.experts + moe.zero_experts)
    return {
        "moe/input": memory.product_input_bytes(_inputs(plan, c), h, e / wider),
        "moe/router": memory.product_input_bytes(tokens, scored, _ROUTER_BYTES),
        "moe/routed": memory.product_input_bytes(
            routed, read, wider * _EXPERT_INPUT * _input_bytes(plan)
        ),
        "moe/combined": memory.product_input_bytes(
            routed, read, _EXPERT_OUTPUT * e * (not plan.stack.experts.weighted_inside)
        ),
        "moe/hidden": memory.mlp_kept_bytes(routed, width, before + clamped, etp),
        "moe/activated": memory.mlp_kept_bytes(routed, width, each - before, etp),
        "moe/shared": memory.mlp_kept_bytes(tokens, float(moe.shared_ffn_hidden), shared, c.tp),
    }


def _selective_saving(plan: Plan, c: Columns, kind: Kind, kept: Ledger) -> Array:
    """Bytes per layer that selective recompute no longer keeps."""
    plan, kind = kind_plan(plan, kind)
    if plan.selective == "products":
        return np.maximum(total(kept) - traced.products(plan, c, kind), 0.0)
    core = kept.get("attention/core", 0.0 * c.tp)
    if plan.selective == "attention":
        return core
    # torchtitan's rule keeps the layer's input, the attention's output and the output of every
    # second GEMM: q, v, gate, down; compiled, the last of these is not kept, since backward does
    # not read it. It runs in 16 bit
    e, model = COUNTED_ELEMENT, plan.model
    tokens = c.tokens(plan.training.seq_len)
    whole = 1.0 if plan.training.compile else 2.0
    widths = whole * model.hidden + sum(modules.selected(part) for part in kind.parts) / c.tp
    return np.maximum(total(kept) - e * tokens * widths - core, 0.0)


@dataclass(frozen=True)
class Kept:
    """Bytes per row of the table: of a stage's layers for one micro-batch, of the workspace of
    backward, of one layer."""

    stage: Array  # kept by all layers of the stage for one micro-batch
    unit: Array  # kept by the unit that backward works on: a layer, or a recompute group
    unit_layers: Array
    working: Array  # of a repeated layer or group, beyond what was kept
    whole: Array  # one mean layer without recompute
    input: Array
    largest: Array  # what the layer that keeps most keeps
    transient: Array  # gradients alive inside the largest operator of backward
    leaving: Array  # share of `stage` that goes to the host where activations are offloaded


def kept(plan: Plan, c: Columns, split: StageSplit, again: Repeated) -> Kept:
    """Activations of a stage that remain under the recomputation of every row. again: the
    recomputed layers; a group works on one of its chunk at a time."""
    entering = _mean_input(plan, c)
    repeats = c.is_recompute("full", "block", "group", "keep")
    selective, grouped = c.is_recompute("selective"), c.is_recompute("group")
    stage = np.where(repeats, again.inputs * entering, 0.0)
    unit, working, largest = 0.0 * stage, 0.0 * stage, 0.0 * stage
    away = np.where(repeats, again.inputs, 0.0) * modules.leaving_of_repeated(plan, entering, {})
    known, mean = memory_kinds(plan.model), 0.0 * stage
    kinds = zip(known.kinds, known.counts, split.kinds, again.kinds, strict=True)
    turns = ((frozen, share, *kind) for kind in kinds for frozen, share in _turns(plan))
    for frozen, share, kind, *counts in turns:
        of_model, count, repeated = (share * n for n in counts)  # layers
        ledger = kind_activations(plan, c, kind, frozen)
        whole = total(ledger)
        entering = one_input(plan, c, kind)
        # the input is among the activations already, unless a norm of several operators keeps
        # fp32 copies in its place
        wide = eager.residual_bytes(plan) > plan.training.element_bytes
        kept_as_it_is = plan.fused_norm or wide
        counted = entering if kept_as_it_is else 0.0 * entering
        mean = mean + of_model / plan.model.layers * whole
        saved = np.where(selective, _selective_saving(plan, c, kind, ledger), 0.0)
        lasting = modules.left(c, ledger)
        saved = saved + (whole - total(lasting))
        here = count > 0
        left = count - repeated  # layers that keep what backward needs
        results = _results(plan, c, kind)
        beside = total(results)
        stage = stage + recompute.kept_bytes(left, whole, saved, repeated, beside)
        away = away + left * modules.leaving(plan, kind, lasting)
        away = away + repeated * modules.leaving_of_repeated(plan, 0.0 * entering, results)
        first = np.where(repeats, entering + beside, whole - saved)
        unit = np.where(here, np.maximum(unit, first), unit)
        most = np.where(left > 0, whole - saved, entering + beside)
        largest = np.where(here, np.maximum(largest, most), largest)
        layers = np.where(grouped, again.group, 1.0)
        alone = np.maximum(modules.largest_freed(c, ledger), np.where(selective, saved, 0.0))
        once = np.where(repeats, np.maximum(layers * whole - counted - beside, 0.0), alone)
        working = np.where(here, np.maximum(working, once), working)
    return Kept(
        stage,
        np.minimum(unit, stage),
        again.group,
        working,
        mean,
        _mean_input(plan, c),
        largest,
        _transient(plan, c),
        np.minimum(away / np.maximum(stage, 1.0), 1.0),
    )


def _mean_input(plan: Plan, c: Columns) -> Array:
    """Bytes of the input of a mean layer."""
    if not plan.model.towers:
        layers = memory_kinds(plan.model)
        if not any(isinstance(part, Traced) for part, _ in parts_of(plan.model)):
            return one_input(plan, c)
        each = [
            count / plan.model.layers * one_input(plan, c, kind)
            for kind, count in zip(layers.kinds, layers.counts, strict=True)
        ]
        return functools.reduce(np.add, each)
    each = [view.share * one_input(tower, c) for tower, view in plans(plan)]
    return functools.reduce(np.add, each)


def _results(plan: Plan, c: Columns, kind: Kind) -> dict[str, Array]:
    """Bytes of the results that every row keeps of a layer that it repeats else."""
    if not np.any(c.is_recompute("keep")):
        return {"": 0.0 * c.tp}
    plan, kind = kind_plan(plan, kind)
    results = modules.results(plan, c, kind, tokens_of(plan, c), routed_tokens(plan, c))
    return modules.kept_results(c, results)


def _transient(plan: Plan, c: Columns) -> Array:
    """Gradients alive in a layer's backward: of the MLP's hidden elements or of the scores."""
    return functools.reduce(np.maximum, [_of_tower(tower, c) for tower, _ in plans(plan)])


def _of_tower(plan: Plan, c: Columns) -> Array:
    model, e, stream = plan.model, plan.training.element_bytes, plan.stream_bytes
    tokens, local = tokens_of(plan, c)
    hidden, core, gone = 0.0 * tokens, 0.0 * tokens, 0.0 * tokens
    for part, _ in parts_of(model):
        if isinstance(part, Traced):
            works = traced.working(plan, c, part)
            hidden = np.maximum(hidden, works)
            continue
        if isinstance(part, Mlp | Moe):
            if isinstance(part, Mlp):
                keeps, elements = _dense_activations(plan, c, part, True), tokens / c.tp
                elements = elements * float(part.ffn_hidden)
            else:
                keeps, etp = _expert_activations(plan, c, part), experts.tensor_of(plan, c.tp)
                elements = routed_tokens(plan, c) * part.ffn_hidden / etp
                elements = elements + tokens * part.shared_ffn_hidden / c.tp
            gone = np.maximum(gone, total(keeps))
            each = beside_frozen.hidden_gradients(plan, part) * stream
            hidden = np.maximum(hidden, elements * each)
        for attended in part.core():
            if isinstance(attended, Attended):
                core = np.maximum(core, attention.score_gradients(plan, c, attended))
            elif isinstance(attended, Scan):  # gradients of all that it reads
                core = np.maximum(core, tokens * attended.read_elements / c.tp * e)
    added = memory.product_input_bytes(local, float(model.hidden), eager.residual_bytes(plan))
    # scores have their gradients when what is behind them is gone: the MLP and its norms
    behind = 2.0 * model.norms_per_block - 1.0
    gone = gone + memory.norm_kept_bytes(local, float(model.hidden), behind, norms.norm_bytes(plan))
    return np.maximum(hidden, core - gone) + added


def sequence_buffers(plan: Plan, c: Columns) -> tuple[Array, Array]:
    """Whole tensors of one GEMM under sequence parallelism: its gathered input, where that is
    not kept (Megatron-LM's "mpu" buffer, nanotron's MemoryBuffer), and an output that is yet to be
    scattered."""
    plan = max(plans(plan), key=lambda view: view[1].seq_len * view[1].model.hidden)[0]
    tokens, local = tokens_of(plan, c)
    h, e = float(plan.model.hidden), plan.training.element_bytes
    whole = np.where(local < tokens, memory.product_input_bytes(tokens, h, e), 0.0)
    return np.where(_inputs(plan, c) < tokens, whole, 0.0), whole


def module_activations(plan: Plan, c: Columns) -> Array:
    """Activations of a multi-token prediction module beside its layer and head: inputs of its norms
    and of its projection."""
    plan = head_plan(plan)
    h, (_, local) = float(plan.model.hidden), tokens_of(plan, c)
    each = norms.norm_bytes(plan)
    normed = memory.norm_kept_bytes(local, h, MTP_NORMS - 1.0, each)
    return normed + memory.product_input_bytes(_inputs(plan, c), 2 * h, _input_bytes(plan))


def head_activations(plan: Plan, c: Columns) -> Array:
    """Activations of final norm and head for a micro-batch: their inputs. Where both are frozen,
    forward holds them until its loss is there, and backward none."""
    plan = head_plan(plan)
    if plan.model.traced and not plan.model.vocab:  # its blocks count all that is kept
        return 0.0 * c.tp
    h, (_, local) = float(plan.model.hidden), tokens_of(plan, c)
    of_norm, inputs = norms.norm_bytes(plan), plan.training.element_bytes
    if not (plan.trains_head or plan.stack.activations.head_input):
        of_norm = frozen_norm_bytes(plan)
        # a kernel with the head in it keeps the gradient of its input in place of that
        inputs = inputs * (plan.loss_kernel == "fused-linear")
    if plan.loss_kernel == "tiled":  # which keeps a copy of its own
        inputs = 0.0
    norm = memory.norm_kept_bytes(local, h, float(plan.model.final_norm), of_norm)
    return norm + memory.product_input_bytes(_inputs(plan, c), h, inputs)


def frozen_norm_bytes(plan: Plan) -> float:
    """Bytes that a frozen norm keeps per element: of several operators no normed element, which
    only the gradient of its weight needs."""
    return norms.norm_bytes(plan) - norms.normed_bytes(plan) * (not plan.fused_norm)


def unread_norm(plan: Plan, c: Columns) -> Array:
    """Bytes of the norm of an embedding that is frozen: none is kept, since nothing before it is
    trained. Repeated layers keep their input all the same."""
    if plan.training.adapter is None or plan.training.train_embeddings:
        return 0.0 * c.tp
    (_, local), h = tokens_of(plan, c), float(plan.model.hidden)
    kept = memory.norm_kept_bytes(local, h, 1.0, frozen_norm_bytes(plan))
    return np.where(c.is_recompute("full", "block", "group", "keep"), 0.0, kept)
