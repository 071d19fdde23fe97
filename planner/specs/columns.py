"""Layouts as columns: one record of float64 arrays, an entry per layout.

Formulas, rules and estimates read a table of layouts by the names below. A column is a plain array
or anything that computes like one: the factored columns of planner/estimate/factored are evaluated
when their values are read. Nothing here loops over layouts.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from planner.ledger import Array
from planner.specs.layout import (
    CODES,
    KEPT_RESULTS,
    RECOMPUTE_MODULES,
    Layout,
    OffloadName,
    PlacementName,
    RecomputeKind,
    ScheduleName,
    recompute_parts,
    recompute_text,
)

ByName = dict[str, Array]  # some columns by name: a table in the making, or a part of one


@dataclass(frozen=True, eq=False)
class Columns:
    """A table of layouts; see `Layout` for what each column means.

    recompute, schedule, offload and placement are codes: positions in the names of specs.layout.
    """

    tp: Array
    pp: Array
    vpp: Array
    dp: Array
    cp: Array
    ep: Array
    zero: Array
    shard_group: Array
    sequence_parallel: Array
    recompute: Array
    recompute_size: Array  # N of block:N, K of group:K, a bit per name of a set, else 0
    schedule: Array
    micro_batch: Array
    offload: Array
    placement: Array
    # of the layout's own request, where a table holds several (planner/search/batched.py)
    global_batch: Array | None = None

    @classmethod
    def of(cls, layouts: Iterable[Layout], gpus: int | None = None) -> Columns:
        """These layouts, one after the other.

        gpus: how many there are, where that is known. Raises ValueError where the degrees of a
        layout do not multiply to them; that a shard group divides dp * cp is checked by `Layout`.
        """
        rows = np.array([to_row(each) for each in layouts], dtype=float).reshape(-1, len(COLUMNS))
        columns = cls(*np.ascontiguousarray(rows.T))
        if gpus is not None and np.any(columns.gpus != gpus):
            row = int(np.argmax(columns.gpus != gpus))
            raise ValueError(
                f"tp * pp * cp * dp of {columns.layout(row)} is {columns.gpus[row]:g},"
                f" but there are {gpus} GPUs"
            )
        return columns

    def __len__(self) -> int:
        return len(self.tp)

    # ------------------------------------------------------------------- rows

    def named(self) -> ByName:
        """The columns by name; the global batch only where the table has it."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        return (
            columns if self.global_batch is None else columns | {"global_batch": self.global_batch}
        )

    def each(self, change: Callable[[Array], Array]) -> Columns:
        """The table with every column changed."""
        return Columns(**{name: change(column) for name, column in self.named().items()})

    def pick(self, rows: Array) -> Columns:
        """Some rows of the table."""
        return self.each(lambda column: column[rows])

    def layout(self, row: int) -> Layout:
        """One row as a layout."""
        return Layout(**self._values(row))

    def candidate(self, row: int) -> Layout:
        """One row as a layout that is not checked: rules speak of layouts that are not possible."""
        return Layout.model_construct(**self._values(row))

    def _values(self, row: int) -> dict[str, Any]:
        value: dict[str, Any] = {name: int(getattr(self, name)[row]) for name in COLUMNS}
        again = recompute_text(value["recompute"], value.pop("recompute_size"))
        value |= {name: names[value[name]] for name, names in CODES.items()}
        return value | {"recompute": again, "sequence_parallel": bool(value["sequence_parallel"])}

    # ------------------------------------------------------- named quantities

    @functools.cached_property
    def replicas(self) -> Array:
        """Data-parallel ranks with the same tensor and pipeline coordinates: dp * cp, since
        context-parallel ranks hold the same weights."""
        return self.dp * self.cp

    @functools.cached_property
    def gpus(self) -> Array:
        """Ranks of the layout."""
        return self.tp * self.pp * self.cp * self.dp

    @functools.cached_property
    def shards(self) -> Array:
        """Ranks over which ZeRO shards a state; 1 without ZeRO."""
        return np.where(self.zero >= 1, np.minimum(self.shard_group, self.replicas), 1.0)

    @functools.cached_property
    def syncs_per_layer(self) -> Array:
        """Whether gradients (ZeRO-2 without a pipeline) or parameters too (ZeRO-3) are communicated
        layer by layer."""
        return (self.zero >= 3) | ((self.zero == 2) & (self.pp == 1))

    @functools.cached_property
    def sequence_ranks(self) -> Array:
        """Ranks over which sequence parallelism divides what norms and residuals see."""
        return np.where(self.sequence_parallel > 0, self.tp, 1.0)

    def tokens(self, seq_len: int) -> Array:
        """Tokens of a micro-batch on one rank."""
        return self.micro_batch * seq_len / self.cp

    def batch(self, global_batch: int) -> Array:
        """Sequences per step: of the table where it has them, else of the plan."""
        return float(global_batch) if self.global_batch is None else self.global_batch

    def microbatches(self, global_batch: int) -> Array:
        """Micro-batches per replica and step."""
        return self.batch(global_batch) / (self.dp * self.micro_batch)

    def is_recompute(self, *kinds: RecomputeKind) -> Array:
        """Rows with one of these recompute rules."""
        return _is_one_of(self.recompute, CODES["recompute"], kinds)

    def repeats_module(self, *names: str) -> Array:
        """Rows that recompute one of these modules by itself."""
        return self.is_recompute("modules") & self._has(RECOMPUTE_MODULES, names)

    def keeps_result(self, name: str) -> Array:
        """Rows that keep this result of layers that they repeat else."""
        return self.is_recompute("keep") & self._has(KEPT_RESULTS, (name,))

    def _has(self, known: Sequence[str], names: Sequence[str]) -> Array:
        """Rows whose set has one of these."""
        bits = (np.floor(self.recompute_size / 2.0 ** known.index(name)) for name in names)
        return functools.reduce(operator.or_, (np.mod(bit, 2.0) >= 1.0 for bit in bits))

    def is_schedule(self, *names: ScheduleName) -> Array:
        """Rows with one of these pipeline schedules."""
        return _is_one_of(self.schedule, CODES["schedule"], names)

    def offloads(self, *names: OffloadName) -> Array:
        """Rows that offload one of these."""
        return _is_one_of(self.offload, CODES["offload"], names)

    def is_placement(self, *names: PlacementName) -> Array:
        """Rows with one of these rank orders."""
        return _is_one_of(self.placement, CODES["placement"], names)


COLUMNS = tuple(field.name for field in fields(Columns) if field.name != "global_batch")


def _is_one_of(column: Array, known: Sequence[str], names: Sequence[str]) -> Array:
    first, *others = names
    out: Array = column == known.index(first)
    for name in others:
        out = out | (column == known.index(name))
    return out


def to_row(layout: Layout) -> list[float]:
    """A layout as numbers in the order of COLUMNS."""
    kind, size = recompute_parts(layout.recompute)
    codes: dict[str, float] = {
        name: names.index(getattr(layout, name))
        for name, names in CODES.items()
        if name != "recompute"
    }
    codes |= {"recompute": kind, "recompute_size": size}
    return [codes[name] if name in codes else getattr(layout, name) for name in COLUMNS]


def joined(tables: Sequence[Columns]) -> Columns:
    """The rows of several tables with the same columns."""
    if len(tables) == 1:
        return tables[0]
    parts = [table.named() for table in tables]
    return Columns(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def unique_rows(columns: Mapping[str, Array]) -> tuple[ByName, Array]:
    """(distinct combinations of these columns, index of each row's combination): evaluate once,
    gather."""
    rows = len(next(iter(columns.values())))
    differ = [each for each in columns.values() if rows > 1 and (each != each[0]).any()]
    if not differ:
        return {name: column[:1] for name, column in columns.items()}, np.zeros(rows, np.intp)
    key = differ[0]
    if len(differ) > 1:
        key, stride = np.zeros(rows), 1.0
        for column in differ:
            values, code = np.unique(column, return_inverse=True)
            key = key + code * stride
            stride *= len(values)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return {name: column[first] for name, column in columns.items()}, inverse
