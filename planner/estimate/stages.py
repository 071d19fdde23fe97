"""Contents of pipeline stages as columns: layers of a rank, what recompute repeats of its chunks,
and the ranks to look at."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner import schedules
from planner.formulas.stages import (
    Contents,
    Shape,
    chunks_of,
    contents_of,
    mtp_layers,
    shape_of,
    stated_chunks,
)
from planner.ledger import Array, rowwise
from planner.specs.columns import Columns, unique_rows
from planner.specs.document import UNSET
from planner.specs.documents import plan as documents
from planner.specs.layers import Layers, memory_kinds, timed_kinds
from planner.specs.layout import SCHEDULES, Layout
from planner.specs.model import ModelSpec
from planner.specs.pipeline_layout import chunk_text
from planner.specs.plan import Plan

_FOLDED = tuple(name for name in SCHEDULES if schedules.BY_NAME[name].CHUNKS == "two")


@dataclass(frozen=True)
class StageSplit:
    """Layers and ends of a pipeline rank, one value per row."""

    kinds: tuple[Array, ...]  # layers of every distinguished kind
    first: Array  # 1 where it has the embedding
    last: Array  # 1 where it has the head
    mtp: Array  # layers of multi-token prediction among the others, each with a head of its own

    @property
    def layers(self) -> Array:
        return functools.reduce(np.add, self.kinds)


@dataclass(frozen=True)
class Repeated:
    """Layers of a rank that full, block and group recomputation keep and repeat, chunk by chunk:
    groups and blocks do not span chunks. One value per row."""

    inputs: Array  # kept in place of whole layers
    kinds: tuple[Array, ...]  # layers of every kind that are repeated
    group: Array  # layers of the largest group


def folded(c: Columns) -> Array:
    """Rows whose pipeline turns round at the last rank (a V), so that the first has the head."""
    return c.is_schedule(*_FOLDED)


def stage_split(plan: Plan, c: Columns, stage: Array, layers: Layers | None = None) -> StageSplit:
    """Contents of the given rank of every row (formulas.stages.contents). layers: kinds of layers
    to distinguish, by default those that differ in memory."""
    known = layers or memory_kinds(plan.model)
    kinds = tuple(
        _of_pipelines(plan, c, functools.partial(_layers, kind), stage, layers=known)
        for kind in range(len(known.kinds))
    )
    mtp = _of_pipelines(plan, c, _mtp, stage) if mtp_layers(plan) else 0.0 * stage
    last = np.where(folded(c), 0.0, c.pp - 1)
    return StageSplit(kinds, (stage == 0) * 1.0, (stage == last) * 1.0, mtp)


def repeated(plan: Plan, c: Columns, stage: Array) -> Repeated:
    """Recomputed layers of the chunks of the given rank of every row.

    block:N repeats the first N layers of every chunk, group:K each of its groups of K layers, of
    which the last may be smaller: Megatron-Core's recompute_method block and uniform with
    recompute_num_layers (megatron/core/recompute.py), which work on one chunk at a time.
    """
    some = c.is_recompute("block", "group", "full", "keep")
    block, size = c.is_recompute("block"), np.maximum(c.recompute_size, 1.0)
    most = np.where(block, size, np.where(some, np.inf, 0.0))  # layers of a chunk that are repeated
    kinds = tuple(
        _of_pipelines(plan, c, functools.partial(_repeated, kind), stage, most)
        for kind in range(len(memory_kinds(plan.model).kinds))
    )
    all_of = functools.reduce(np.add, kinds)
    group = np.where(c.is_recompute("group"), size, 1.0)
    groups = _of_pipelines(plan, c, _groups, stage, group)
    largest = np.minimum(group, np.maximum(_of_pipelines(plan, c, _largest, stage), 1.0))
    return Repeated(np.where(block, all_of, groups), kinds, largest)


def repeated_share(plan: Plan, c: Columns) -> Array:
    """Share of the model's layers that recompute repeats: 1 for full and grouped, N layers of every
    chunk for block:N."""
    size = np.where(c.is_recompute("block"), c.recompute_size, 0.0)
    partly = _of_pipelines(plan, c, _share, size)
    return np.where(c.is_recompute("full", "group", "keep"), 1.0, partly)


def rank_texts(plan: Plan, c: Columns) -> list[str]:
    """Contents of every rank of a layout (a table of one row), in the letters of a pipeline layout,
    with bars between chunks."""
    pp, vpp = int(c.pp[0]), int(c.vpp[0])
    words = np.array([chunk_text(chunk) for chunk in chunks_of(plan, pp, vpp)]).reshape(vpp, pp)
    if folded(c)[0]:
        words[1:] = words[1:, ::-1]
    return ["|".join(column) for column in words.T.tolist()]


def layout_document(plan: Plan, layout: Layout) -> documents.Layout:
    """A layout as documents tell it: with the batch that it divides, and with its chunks where they
    differ."""
    batch = plan.training.global_batch
    return documents.Layout(
        **layout.model_dump(),
        global_batch=batch,
        grad_accum=round(batch / (layout.dp * layout.micro_batch)),
        pipeline_layout=stated_chunks(plan, layout.pp, layout.vpp) or UNSET,
    )


def fullest_inner(plan: Plan, c: Columns) -> Array:
    """The rank with most layers, among those that are neither first nor last; the first of
    equals, and of two ranks the last."""
    return _of_pipelines(plan, c, _inner)


def by_memory(model: ModelSpec, timed: Sequence[Array]) -> tuple[Array, ...]:
    """Layers by kinds that differ in memory, which are fewer than those that differ in time."""
    pairs = set(zip(memory_kinds(model).order, timed_kinds(model).order, strict=True))
    return tuple(
        functools.reduce(np.add, (timed[i] for kind, i in sorted(pairs) if kind == memory_kind))
        for memory_kind in range(len(memory_kinds(model).kinds))
    )


def slowest_inner(plan: Plan, c: Columns, layer_s: Sequence[Array], head_s: Array) -> Array:
    """The slowest rank among those that are neither first nor last; see
    `fullest_inner`. layer_s: seconds of a layer of every kind that differs in time; head_s: what a
    module of multi-token prediction adds to its layer."""
    if len(layer_s) == 1:
        return fullest_inner(plan, c)
    return _of_pipelines(plan, c, _slow, head_s, *layer_s, layers=timed_kinds(plan.model))


def first_with(plan: Plan, c: Columns, kind: int, most: bool) -> Array:
    """The first rank of every row that has layers of a kind, or the most of them."""
    return _of_pipelines(plan, c, functools.partial(_with, kind, most))


def _of_pipelines(
    plan: Plan,
    c: Columns,
    value: Callable[..., Array],
    *columns: Array,
    layers: Layers | None = None,
) -> Array:
    """`value(contents, *columns)` for the pipeline of each row."""
    shape = shape_of(plan, layers)
    return rowwise(functools.partial(_each, shape, value), c.pp, c.vpp, folded(c), *columns)


def _each(
    shape: Shape, value: Callable[..., Array], pp: Array, vpp: Array, fold: Array, *columns: Array
) -> Array:
    out = np.zeros(len(pp))
    for p, v, f, rows in _pipelines(pp, vpp, fold):
        contents = contents_of(shape, p, v, f)
        out[rows] = value(contents, *(column[rows] for column in columns))
    return out


_Pipelines = list[tuple[int, int, bool, Any]]  # pp, vpp, whether folded, rows
_FEW = 4096  # rows of tables that are looked at again and again


def _pipelines(pp: Array, vpp: Array, fold: Array) -> _Pipelines:
    """The distinct pipelines of a table, each with its rows."""
    table = np.array((pp, vpp, fold), dtype=float)
    return _known_pipelines(table.tobytes()) if len(pp) <= _FEW else _distinct(table)


@functools.lru_cache(maxsize=256)
def _known_pipelines(table: bytes) -> _Pipelines:
    return _distinct(np.frombuffer(table).reshape(3, -1))


def _distinct(table: Array) -> _Pipelines:
    kinds, which = unique_rows(dict(zip(("pp", "vpp", "fold"), table, strict=True)))
    parts: list[Any] = [slice(None)]
    if len(kinds["pp"]) != 1:
        ends = np.cumsum(np.bincount(which, minlength=len(kinds["pp"])))
        parts = np.split(np.argsort(which, kind="stable"), ends[:-1])
    return [
        (int(p), int(v), bool(f), rows)
        for p, v, f, rows in zip(*kinds.values(), parts, strict=True)
    ]


def _layers(kind: int, contents: Contents, stage: Array) -> Array:
    return np.asarray(contents.kinds[kind].sum(axis=0)[stage.astype(np.intp)])


def _mtp(contents: Contents, stage: Array) -> Array:
    return np.asarray(contents.mtp.sum(axis=0)[stage.astype(np.intp)])


def _repeated(kind: int, contents: Contents, stage: Array, most: Array) -> Array:
    at = stage.astype(np.intp)
    layers = contents._replace(kinds=contents.kinds[..., at], before=contents.before[:, at])
    return np.asarray(layers.first_of(kind, most).sum(axis=0))


def _groups(contents: Contents, stage: Array, size: Array) -> Array:
    return np.asarray(np.ceil(contents.layers[:, stage.astype(np.intp)] / size).sum(axis=0))


def _largest(contents: Contents, stage: Array) -> Array:
    return np.asarray(contents.layers.max(axis=0)[stage.astype(np.intp)])


def _share(contents: Contents, size: Array) -> Array:
    all_of = contents.layers
    return np.asarray(np.minimum(all_of[..., None], size).sum(axis=(0, 1)) / all_of.sum())


def _inner(contents: Contents) -> Array:
    layers = contents.layers.sum(axis=0)
    return np.asarray(1.0 + layers[1:-1].argmax() if len(layers) > 2 else len(layers) - 1.0)


def _slow(contents: Contents, head_s: Array, *layer_s: Array) -> Array:
    inner = np.arange(1, contents.layers.shape[1] - 1)
    if not len(inner):
        return 0.0 * head_s + (contents.layers.shape[1] - 1.0)
    layers, mtp = contents.kinds.sum(axis=1)[:, inner], contents.mtp.sum(axis=0)[inner]
    _, distinct = np.unique(np.vstack([layers, mtp]), axis=1, return_index=True)
    distinct.sort()
    seconds = mtp[distinct, None] * head_s
    for count, each in zip(layers[:, distinct], layer_s, strict=True):
        seconds = seconds + count[:, None] * each
    return np.asarray(1.0 + distinct[seconds.argmax(axis=0)])


def _with(kind: int, most: bool, contents: Contents) -> Array:
    layers = contents.kinds[kind].sum(axis=0)
    return np.asarray(float((layers if most else layers > 0).argmax()))
