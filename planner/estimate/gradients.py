"""Gradients as tensors, in the order in which they become ready, and the buckets that
DistributedDataParallel makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from planner.formulas.params import parameter_leaves, stream_of
from planner.specs import parts
from planner.specs.layers import Kind, layers_of
from planner.specs.model import ModelSpec

# torch.nn.parallel.DistributedDataParallel: bucket_cap_mb, and dist._DEFAULT_FIRST_BUCKET_BYTES,
# smaller so that it starts early
BUCKET_CAP_BYTES = 25 * 2**20
FIRST_BUCKET_BYTES = 2**20


@dataclass(frozen=True)
class Tensor:
    """One parameter as a framework registers it; `work`: its share of the GEMMs of its layer, or
    of the head."""

    name: str
    elements: int
    layer: int | None  # None: embedding, final norm and head
    work: float


def first_bytes(cap: float) -> float:
    """Size at which the first bucket is closed: a smaller one, unless a cap was set."""
    return float(FIRST_BUCKET_BYTES) if cap == BUCKET_CAP_BYTES else cap


def assign(
    sizes: Sequence[float], first: float = FIRST_BUCKET_BYTES, cap: float = BUCKET_CAP_BYTES
) -> list[list[int]]:
    """Positions of gradients by bucket, for sizes in bytes in the order in which gradients become
    ready.

    A bucket is closed when it has reached its limit, so that it may exceed it by all but a byte of
    its last gradient (compute_bucket_assignment_by_size in
    torch/csrc/distributed/c10d/reducer.cpp).
    """
    buckets: list[list[int]] = []
    current: list[int] = []
    filled, limit = 0.0, first
    for i, size in enumerate(sizes):
        current.append(i)
        filled += size
        if filled >= limit:
            buckets.append(current)
            current, filled, limit = [], 0.0, cap
    return [*buckets, current] if current else buckets


def tensors(model: ModelSpec, joint_qkv: bool = False, joint_gate: bool = False) -> list[Tensor]:
    """Parameters in the order in which a forward pass uses them: their gradients become ready in
    the reverse order."""
    first, layers, last = _blocks(model, joint_qkv, joint_gate)
    inner = [Tensor(name, n, i, work) for i, layer in enumerate(layers) for name, n, work in layer]
    return [
        *(Tensor(*entry[:2], None, entry[2]) for entry in first),
        *inner,
        *(Tensor(*entry[:2], None, entry[2]) for entry in last),
    ]


_Block = list[tuple[str, int, float]]  # name, elements and work of tensors


def _blocks(
    model: ModelSpec, joint_qkv: bool, joint_gate: bool
) -> tuple[_Block, list[_Block], _Block]:
    """Tensors of embedding, of every layer (layers of a kind share one list) and of head."""
    leaves, layers = parameter_leaves(model), layers_of(model)
    kinds = [_layer(model, kind, joint_qkv, joint_gate) for kind in layers.kinds]
    last = [leaf for leaf in leaves if leaf.place == "last"]
    head = sum(leaf.count for leaf in last if leaf.matmul)
    first: _Block = [(leaf.name, leaf.count, 0.0) for leaf in leaves if leaf.place == "first"]
    return (
        first,
        [kinds[i] for i in layers.order],
        [(leaf.name, leaf.count, leaf.count / head if leaf.matmul else 0.0) for leaf in last],
    )


def _layer(model: ModelSpec, kind: Kind, joint_qkv: bool, joint_gate: bool) -> _Block:
    """Tensors of a layer: a norm, all parts but the last, the other norms, the last part."""
    stream = stream_of(model, kind)
    by_part = [
        [
            entry
            for tensor in part.tensors(stream)
            for entry in _kept_as(tensor, joint_qkv, joint_gate)
        ]
        for part in kind.parts
    ]
    whole = sum(n for part in by_part for _, n, product in part if product)
    norm = [("norm/layer", stream.hidden, False)] * (2 if model.norm_bias else 1)
    norm = norm * model.norm_weight
    before = [entry for part in by_part[:-1] for entry in part]
    after = by_part[-1]
    if not before:
        before, after = after, before
    ordered = [*norm * min(kind.norms, 1), *before, *norm * (kind.norms - 1), *after]
    return [(name, n, n / whole if product else 0.0) for name, n, product in ordered]


def _kept_as(leaf: parts.Tensor, joint_qkv: bool, joint_gate: bool) -> list[tuple[str, int, bool]]:
    """Tensors of a leaf: name, elements, whether a GEMM has it."""
    sizes = list(leaf.sizes) or [leaf.count]
    if leaf.join == "qkv" and joint_qkv:
        sizes = [sum(sizes)]
    if leaf.join == "gate" and joint_gate:
        sizes = [sum(sizes[:-1]), sizes[-1]]
    return [(leaf.name, n, leaf.matmul) for _ in range(leaf.experts) for n in sizes if n]


@dataclass(frozen=True)
class Buckets:
    """The gradient buckets of a whole model, as a closed form of their reductions needs them."""

    count: int
    first_layers: float  # layers whose backward has run when the first bucket is full
    last_bytes: float  # of the bucket that is ready at the end of backward


@cache
def buckets_of(
    model: ModelSpec, joint_qkv: bool, joint_gate: bool, wire_bytes: float, cap: float
) -> Buckets:
    """Buckets of the whole model; a tensor larger than the cap is a bucket of its own."""
    first, layers, last = _blocks(model, joint_qkv, joint_gate)
    closed, filled, limit, size = 0, 0.0, first_bytes(cap), 0.0
    known: dict[
        tuple[int, float, float], tuple[int, float, float, float]
    ] = {}  # layers of a kind end alike where they start alike
    for block in (last, *reversed(layers), first):
        key = (id(block), filled, limit)
        if key not in known:
            more, full = 0, 0.0
            for _, elements, _ in reversed(block):
                filled += wire_bytes * elements
                if filled >= limit:
                    more, full, filled, limit = more + 1, filled, 0.0, cap
            known[key] = more, filled, limit, full
        more, filled, limit, full = known[key]
        closed, size = closed + more, full or size
    ready = _first_layers(last, layers, wire_bytes, first_bytes(cap))
    return Buckets(closed + (filled > 0), ready, filled or size)


def _first_layers(
    last: _Block, layers: list[_Block], wire_bytes: float, limit_bytes: float
) -> float:
    """Layers whose backward has run when the first bucket is full: none where it is the head's."""
    filled, done = 0.0, 0.0
    for block in (last, *reversed(layers)):
        for _, elements, work in reversed(block):
            filled += wire_bytes * elements
            done += 0.0 if block is last else work
            if filled >= limit_bytes:
                return done
    return done
