"""Pipeline stages: how the layers of a model are assigned to chunks."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from planner.formulas import flops
from planner.formulas.params import layer_tensors, parameter_leaves
from planner.ledger import Array, total
from planner.specs.capabilities import has
from planner.specs.layers import Kind, Layers, memory_kinds, timed_kinds
from planner.specs.model import ModelSpec
from planner.specs.pipeline_layout import Chunk, layout_text, pipeline_layout
from planner.specs.plan import Plan

ENDS = 2  # what embedding and head count where each counts as a layer
ENDS_COUNT = ("ends count", "stated", "ends dealt")  # splits in which they may
_WORTH = 0.01  # share by which the dearest chunk has to become cheaper to be worth stating
_HALVINGS = 40  # of the interval in which the least cost of the dearest chunk is looked for
_ONE_FORWARD = 1e-12  # beside a threshold that a sum of shares reaches exactly


class Costs(NamedTuple):
    """FLOP forward per token."""

    layers: tuple[float, ...]  # of every layer
    end: float  # of head and modules of multi-token prediction


class Shape(NamedTuple):
    """All that the contents of a pipeline depend on besides its ranks and chunks."""

    order: tuple[int, ...]  # kind of every layer
    module: tuple[int, ...]  # of every layer of a module of multi-token prediction
    mtp: int  # modules of multi-token prediction
    split: str
    head_layers: float  # cost of the head, in layers
    stated: str | None  # the pipeline layout that was stated
    costs: Costs | None  # of unlike layers that are dealt out by them
    asked: bool  # unequal stages even where layers divide

    @property
    def layers(self) -> int:
        return len(self.order)


class Contents(NamedTuple):
    """Layers of every chunk by kind, MTP layers among them, and how many of those; shapes
    (..., vpp, pp): the chunks of a rank are a column."""

    kinds: Array  # (kinds, vpp, pp)
    mtp: Array
    before: Array  # layers of the model before the chunk
    seen: Array  # (kinds, layers + 1): layers of the kind among the first ones

    @property
    def layers(self) -> Array:
        return np.asarray(self.kinds.sum(axis=0))

    def first_of(self, kind: int, most: Array) -> Array:
        """Layers of a kind among the first layers of every chunk, up to this count; most: a shape
        that broadcasts against (vpp, pp)."""
        start = self.before.astype(np.intp)
        end = (self.before + np.minimum(self.layers, most)).astype(np.intp)
        return np.asarray(self.seen[kind][end] - self.seen[kind][start])


def contents(
    plan: Plan, pp: int, vpp: int, folded: bool = False, layers: Layers | None = None
) -> Contents:
    """Contents of every chunk of a pipeline of pp ranks with vpp chunks each.

    Rank r holds chunks r, r + pp, r + 2 pp ...; folded (a V): r and 2 pp - 1 - r.

    A pipeline layout that was stated holds. Else chunks that layers divide into are equal.
    Where layers differ in FLOP, and the contents of chunks are stated to the
    stack, or the request has unequal stages and the stack lets them be stated, the dearest chunk is
    made as cheap as it can be. Otherwise `layer_split` of the stack decides:

    - "even", "even, last": the first or the last chunks take one layer more;
    - "ends count": embedding and head count as a layer each where that makes all chunks equal
      (Megatron-LM's account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split,
      DeepSpeed's type:transformer|embedding), else as "even";
    - "stated": the same, else the contents of every chunk are stated to the stack: the head counts
      as the layers whose GEMMs it costs, as in the recipes of Megatron-Bridge (DeepSeek-V3 on 16
      chunks: 15 times 4 layers, then 1 with the head);
    - "ends dealt": embedding and head are dealt out as a layer each (torchtitan);
    - "blocks": embedding, layers, final norm and head are dealt out as equals, the first stages
      taking one more (pipe_partition_uniform of Aleph Alpha scaling), even where layers divide;
    - "cost": a stage takes blocks until their cumulated GEMMs pass its share, the head among them
      (nanotron, models/base.py), even where layers divide.
    """
    return contents_of(shape_of(plan, layers), pp, vpp, folded)


def shape_of(plan: Plan, layers: Layers | None = None) -> Shape:
    """The properties of a plan that the contents of its pipelines depend on. layers: kinds of
    layers to distinguish, by default those that differ in memory."""
    model, split = plan.model, plan.stack.layer_split
    known = layers or memory_kinds(model)
    return Shape(
        known.order,
        known.module,
        model.mtp,
        split,
        _head_in_layers(model, split) if split in ("cost", "stated") else 0.0,
        plan.request.pipeline_layout,
        _costs_of(plan),
        bool(plan.request.uneven_stages),
    )


def _costs_of(plan: Plan) -> Costs | None:
    able = has(plan.stack, "pipeline_layout", "any") and plan.request.uneven_stages is not False
    stated = plan.stack.layer_split == "stated" or plan.request.uneven_stages
    return _layer_costs(plan.model, plan.training.seq_len) if able and stated else None


@functools.lru_cache(maxsize=256)
def _layer_costs(model: ModelSpec, seq_len: int) -> Costs | None:
    """None where all layers are alike, or stay on one stage."""
    layers = timed_kinds(model)
    if len(layers.kinds) == 1 or model.towers:  # which no pipeline divides
        return None
    each = [_forward_flop(model, kind, float(seq_len)) for kind in layers.kinds]
    head = 2.0 * model.head_rows * model.hidden
    end = head + model.mtp * (head + sum(each[kind] for kind in layers.module))
    return Costs(tuple(each[kind] for kind in layers.order), end)


def _forward_flop(model: ModelSpec, kind: Kind, seq_len: float) -> float:
    """Forward FLOP of a layer of a kind, per token."""
    weights = sum(
        tensor.count
        * tensor.active_frac[0]
        / tensor.active_frac[1]
        * (1.0 if tensor.rows is None else tensor.used(seq_len) / seq_len)
        for tensor in layer_tensors(model, kind)
        if tensor.matmul
    )
    cores = (flops.core_forward_flop(core, seq_len) for part in kind.parts for core in part.core())
    return float(2 * weights + sum(cores, start=0.0) / seq_len)


@functools.lru_cache(maxsize=4096)
def contents_of(shape: Shape, pp: int, vpp: int, folded: bool) -> Contents:
    """See `contents`."""
    mtp = np.zeros(pp * vpp)
    if shape.stated is None:
        each = _dealt(shape, pp, vpp)
        mtp[-1] = shape.mtp  # beside the head, whose weights they share
    else:
        chunks = pipeline_layout(shape.stated)
        mtp = np.array([float(chunk.mtp) for chunk in chunks])
        each = np.array([float(chunk.layers) for chunk in chunks])
    each = each + len(shape.module) * mtp
    ends = np.cumsum(each)
    order = np.array(shape.order + shape.module * round(mtp.sum()))
    same = order[None, :] == np.arange(max(shape.order) + 1)[:, None]
    seen = np.pad(np.cumsum(same, axis=1), ((0, 0), (1, 0))).astype(float)
    kinds = np.diff(seen[:, ends.astype(np.intp)], axis=1, prepend=0.0)
    tables = [part.reshape(*part.shape[:-1], vpp, pp) for part in (kinds, mtp, ends - each)]
    if folded:
        tables = [
            np.concatenate([table[..., :1, :], table[..., 1:, ::-1]], axis=-2) for table in tables
        ]
    kinds, mtp, before = tables
    return Contents(kinds, mtp, before, seen)


def _dealt(shape: Shape, pp: int, vpp: int) -> Array:
    """Layers of every chunk, in the order of the layers."""
    layers, split, chunks = shape.layers, shape.split, pp * vpp
    if pp > 1 and vpp == 1 and split in _ENDS_OF_STAGES:
        return np.diff(_ENDS_OF_STAGES[split](shape, pp), prepend=0.0)
    if layers % chunks == 0 and not shape.asked:
        return _even(layers, chunks)
    usual = _usual(shape, pp, vpp)
    if shape.costs is None or chunks > layers:  # which a rule refuses
        return usual
    return _cheapest(shape.costs, usual)


def _usual(shape: Shape, pp: int, vpp: int) -> Array:
    """Layers of every chunk, of all kinds."""
    layers, split, chunks = shape.layers, shape.split, pp * vpp
    if layers % chunks == 0:
        return _even(layers, chunks)
    counted = split == "ends dealt" or (split in ENDS_COUNT and (layers + ENDS) % chunks == 0)
    if counted and bool(ends_fit(layers, pp, vpp)):
        return _even(layers + ENDS, chunks) - np.bincount([0, chunks - 1], minlength=chunks)
    if split == "even, last":
        return _even(layers, chunks)[::-1]
    return _beside_head(layers, round(shape.head_layers), chunks)


def ends_fit(layers: int, pp: Array, vpp: Array) -> Array:
    """Whether embedding and head can be dealt out as a layer each so that every rank is left with
    a layer."""
    units = layers + ENDS
    return (pp > 1) & (2 * pp <= units) & (pp * vpp <= units)


def mtp_layers(plan: Plan) -> int:
    """Layers of multi-token prediction: of the model, or of a stated pipeline layout."""
    stated = plan.request.pipeline_layout
    return plan.model.mtp if stated is None else sum(chunk.mtp for chunk in pipeline_layout(stated))


def chunks_of(plan: Plan, pp: int, vpp: int) -> tuple[Chunk, ...]:
    """The chunks in the words of a pipeline layout: stating it holds what the stack would."""
    whole = contents(plan, pp, vpp)
    last, inner = pp * vpp - 1, len(memory_kinds(plan.model).module)
    plain = whole.layers - inner * whole.mtp
    each = zip(plain.reshape(-1), whole.mtp.reshape(-1), strict=True)
    return tuple(Chunk(i == 0, round(n), round(m), i == last) for i, (n, m) in enumerate(each))


def stated_chunks(plan: Plan, pp: int, vpp: int) -> str | None:
    """The pipeline layout to state to the stack; None where all chunks have as many layers."""
    chunks = chunks_of(plan, pp, vpp)
    alike = len({(chunk.layers, chunk.mtp) for chunk in chunks}) == 1
    return None if alike else layout_text(chunks)


def largest_chunk(plan: Plan, pp: int, vpp: int) -> int:
    """Layers of the chunk that has most of them; all of the model where there are more chunks than
    layers, which a rule refuses."""
    stated, model = plan.request.pipeline_layout, plan.model
    most = model.layers + ENDS if stated is None else len(pipeline_layout(stated))
    if pp * vpp > most or (stated is not None and pp * vpp < most):
        return model.layers
    return int(contents(plan, pp, vpp).layers.max())


def equal_chunks(plan: Plan, pp: Array, vpp: Array) -> Array:
    """Whether all chunks are equal, or would be with embedding and head as a layer each where the
    stack counts them."""
    layers, chunks = plan.model.layers, np.maximum(pp * vpp, 1)
    whole = np.mod(layers, chunks) == 0
    if plan.stack.layer_split not in ENDS_COUNT:
        return whole
    return whole | (ends_fit(layers, pp, vpp) & (np.mod(layers + ENDS, chunks) == 0))


def _beside_head(layers: int, head: int, chunks: int) -> Array:
    """Equal work, the first chunks taking more, where the head is worth some layers."""
    dealt = _even(layers + head, chunks)
    if dealt[-1] >= head or chunks == 1:
        dealt[-1] -= head
        return dealt
    return np.append(_even(layers, chunks - 1), 0.0)


def _cheapest(costs: Costs, usual: Array) -> Array:
    """Layers of every chunk with which the dearest chunk costs least, later chunks being filled
    first: fewer micro-batches are in flight there. The usual ones where that gains little."""
    sums, chunks = np.concatenate([[0.0], np.cumsum(costs.layers)]), len(usual)

    def dearest(each: Array) -> float:
        ends = np.cumsum(each).astype(np.intp)
        spent = np.diff(sums[ends], prepend=0.0)
        spent[-1] += costs.end
        return float(spent.max())

    def filled(most: float) -> Array:
        """Chunks of at most that size, except for the first; every other has at least one layer."""
        each, left = np.zeros(chunks), len(costs.layers)
        for chunk in range(chunks - 1, 0, -1):
            room = most - (costs.end if chunk == chunks - 1 else 0.0)
            start = int(np.searchsorted(sums, sums[left] - room * (1 + _ONE_FORWARD)))
            start = max(min(start, left - (chunk < chunks - 1)), chunk)
            each[chunk], left = left - start, start
        each[0] = left
        return each

    low, high = sums[-1] / chunks, dearest(usual)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if dearest(filled(middle)) <= middle else (middle, high)
    best = filled(high)
    return best if dearest(best) < dearest(usual) * (1 - _WORTH) else usual


def _even(units: int, chunks: int) -> Array:
    least, more = divmod(units, chunks)
    return least + 1.0 * (np.arange(chunks) < more)


def _blocks(shape: Shape, pp: int) -> Array:
    """Layers up to the end of every stage; embedding, norm and head are blocks too."""
    least, more = divmod(shape.layers + 3, pp)
    stage = np.arange(1, pp + 1)
    return np.clip(stage * least + np.minimum(stage, more) - 1.0, 0.0, shape.layers)


def _costs(shape: Shape, pp: int) -> Array:
    share = (shape.layers + shape.head_layers) / pp
    ends = np.floor(np.arange(1, pp + 1) * share * (1 + _ONE_FORWARD)) + 1
    return np.append(np.minimum(ends[:-1], shape.layers), float(shape.layers))


_ENDS_OF_STAGES = {"blocks": _blocks, "cost": _costs}


@functools.lru_cache(maxsize=256)
def _head_in_layers(model: ModelSpec, split: str) -> float:
    """FLOP of the head's GEMMs over the FLOP of a mean layer; nanotron counts every weight of a
    layer."""
    head = float(model.head_rows * model.hidden)
    if split == "cost":
        inner = sum(
            leaf.count * leaf.times
            for leaf in parameter_leaves(model)
            if leaf.matmul and leaf.place not in ("first", "last")
        )
    else:
        inner = total(flops.matmul_weights(model)) - head
    return float(head * model.layers / inner)
