"""Gradient buckets of DistributedDataParallel: which gradients share one, when each is ready, and when it is reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate, sync
from planner.estimate.machine import Machine
from planner.estimate.step import StepTime
from planner.estimate.table import Table
from planner.formulas import overlap
from planner.formulas.params import Leaf, parameter_leaves
from planner.ledger import Array
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

# torch.nn.parallel.DistributedDataParallel: bucket_cap_mb, and dist._DEFAULT_FIRST_BUCKET_BYTES, smaller so that it starts early
BUCKET_CAP_BYTES = 25 * 2**20
FIRST_BUCKET_BYTES = 2**20


@dataclass(frozen=True)
class Tensor:
    """One parameter as a framework registers it; `work`: its share of the products of its layer, or of the head."""

    name: str
    elements: int
    layer: int | None  # None: embedding, final norm and head
    work: float


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together; seconds count from the start of the backward pass."""

    tensors: int
    bytes: float
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """One backward pass with its reductions."""

    buckets: tuple[Bucket, ...]
    backward_s: float  # without any reduction beside it
    tail_s: float  # from the end of backward to the end of the last reduction
    contention_s: float  # by which backward is longer because it shares the chip

    @property
    def exposed_s(self) -> float:
        return self.tail_s + self.contention_s


def assign(sizes: Sequence[float], first: float = FIRST_BUCKET_BYTES, cap: float = BUCKET_CAP_BYTES) -> list[list[int]]:
    """Positions of gradients by bucket, for sizes in bytes in the order in which gradients become ready.

    A bucket is closed when it has reached its limit, so that it may exceed it by all but a byte of its last gradient
    (compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp).
    """
    buckets: list[list[int]] = []
    current: list[int] = []
    held, limit = 0.0, first
    for i, size in enumerate(sizes):
        current.append(i)
        held += size
        if held >= limit:
            buckets.append(current)
            current, held, limit = [], 0.0, cap
    return [*buckets, current] if current else buckets


def tensors(model: ModelSpec, joint_qkv: bool = False, joint_gate: bool = False) -> list[Tensor]:
    """Parameters in the order in which a forward pass uses them: their gradients become ready in the reverse order."""
    leaves = parameter_leaves(model)
    out = [Tensor(leaf.name, leaf.count, None, 0.0) for leaf in leaves if leaf.place == "first"]
    for layer in range(model.layers):
        kind = "dense_layer" if model.moe is None or layer < model.dense_layers else "moe_layer"
        own = [leaf for leaf in leaves if leaf.place in ("layer", kind)]
        whole = sum(leaf.count for leaf in own if leaf.matmul)
        parts = [part for leaf in own if leaf.name != "norm/layer" for part in _parts(model, leaf, joint_qkv, joint_gate)]
        norm = next(leaf for leaf in own if leaf.name == "norm/layer")
        biased = 2 if model.norm_bias else 1
        norms = [("norm/layer", norm.count // (model.norms_per_layer * biased), False)] * biased
        middle = next((i for i, (name, _, _) in enumerate(parts) if name.startswith(("mlp", "moe"))), len(parts))
        ordered = [*norms, *parts[:middle], *norms * (model.norms_per_layer - 1), *parts[middle:]]
        out += [Tensor(name, n, layer, n / whole if product else 0.0) for name, n, product in ordered]
    last = [leaf for leaf in leaves if leaf.place == "last"]
    head = sum(leaf.count for leaf in last if leaf.matmul)
    return out + [Tensor(leaf.name, leaf.count, None, leaf.count / head if leaf.matmul else 0.0) for leaf in last]


def _parts(model: ModelSpec, leaf: Leaf, joint_qkv: bool, joint_gate: bool) -> list[tuple[str, int, bool]]:
    """Tensors of a leaf: name, elements, whether a product has it."""
    if leaf.name in ("attention/qkv", "attention/qkv_bias") and not joint_qkv:
        rows = leaf.count // (model.heads + 2 * model.kv_heads)
        return [(leaf.name, rows * heads, leaf.matmul) for heads in (model.heads, model.kv_heads, model.kv_heads)]
    if leaf.name in ("mlp/weights", "moe/experts", "moe/shared"):
        matrices = 3 if model.mlp == "gated" else 2
        experts = model.moe.experts if model.moe is not None and leaf.name == "moe/experts" else 1
        one = leaf.count // (matrices * experts)
        sizes = [2 * one, one] if joint_gate and matrices == 3 else [one] * matrices
        return [(leaf.name, size, True) for _ in range(experts) for size in sizes]
    return [(leaf.name, leaf.count, leaf.matmul)]


def ready_s(found: Sequence[Tensor], layers: int, layer_s: float, head_s: float) -> Array:
    """Seconds from the start of backward at which each gradient is ready, in the order of `found` (that of the forward pass).

    A layer's time goes to its products in proportion to their weights, attention and all else with them; the head comes first.
    """
    spent = np.array([one.work * (head_s if one.layer is None else layer_s) for one in found])
    times = np.cumsum(spent[::-1])[::-1]
    loss = 0.0 if any(one.layer is None and one.work > 0 for one in found) else head_s  # a tied head: its product and the loss
    return np.minimum(times + loss, layers * layer_s + head_s)


def timeline(ready: Array, sizes: Array, reduce_s: Array, counts: Sequence[int], backward_s: float, slowdown: float) -> Timeline:
    """Buckets in the order in which they become ready, each reduced after the one before it."""
    ends = overlap.bucket_ends_s(ready, reduce_s)
    beside = float(np.sum(np.clip(np.minimum(ends, backward_s) - (ends - reduce_s), 0.0, None)))
    buckets = tuple(
        Bucket(count, float(size), float(at), float(end - spent), float(end))
        for count, size, at, end, spent in zip(counts, sizes, ready, ends, reduce_s, strict=True)
    )
    return Timeline(buckets, backward_s, max(float(ends[-1]) - backward_s, 0.0), slowdown * beside)


def of_estimate(
    plan: Plan, m: Machine, table: Table, time: StepTime, cap: float = BUCKET_CAP_BYTES, first: float = FIRST_BUCKET_BYTES
) -> Timeline:
    """The backward pass of the last micro-batch of one layout (a table of one row) of plain data parallelism."""
    found = tensors(plan.model, plan.stack.fusion.joint_qkv, plan.stack.fusion.joint_gate)
    layers, whole = time.ranks.work[0], time.ranks.work[2]
    layer_s = float(np.ravel(layers.input_gradient + layers.weight_gradient)[0]) / plan.model.layers
    backward_s = float(np.ravel(whole.input_gradient + whole.weight_gradient)[0])
    ready = ready_s(found, plan.model.layers, layer_s, max(backward_s - plan.model.layers * layer_s, 0.0))[::-1]
    sizes = np.array([sync.wire_bytes(plan) * one.elements for one in reversed(found)])
    groups = assign(sizes.tolist(), first, cap)
    bucket_bytes = np.array([sizes[group].sum() for group in groups])
    who = sync.replicas(plan, table)
    reduce_s = np.array([float(np.ravel(communicate.all_reduce_s(m, size, who.group))[0]) for size in bucket_bytes])
    latest = np.array([ready[group].max() for group in groups])
    return timeline(latest, bucket_bytes, reduce_s, [len(group) for group in groups], backward_s, float(m.slowdown))
