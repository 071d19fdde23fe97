"""Layouts as columns: a table is a dict of float64 arrays of equal length, one row per layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from planner.ledger import Array
from planner.specs.layout import (
    OFFLOADS,
    PLACEMENTS,
    RECOMPUTE_KINDS,
    SCHEDULES,
    Layout,
    OffloadName,
    recompute_parts,
)

Table = dict[str, Array]

COLUMNS = (
    "tp",
    "pp",
    "vpp",
    "dp",
    "cp",
    "ep",
    "zero",
    "shard_group",
    "sequence_parallel",
    "recompute",
    "recompute_size",
    "schedule",
    "micro_batch",
    "offload",
    "placement",
)


def to_table(layouts: Iterable[Layout]) -> Table:
    """Columns of these layouts; codes of recompute, schedule and offload index the names in
    specs.layout."""
    rows = []
    for one in layouts:
        kind, size = recompute_parts(one.recompute)
        rows.append(
            (
                one.tp,
                one.pp,
                one.vpp,
                one.dp,
                one.cp,
                one.ep,
                one.zero,
                one.shard_group,
                one.sequence_parallel,
                kind,
                size,
                SCHEDULES.index(one.schedule),
                one.micro_batch,
                OFFLOADS.index(one.offload),
                PLACEMENTS.index(one.placement),
            )
        )
    return from_rows(np.array(rows, dtype=float).reshape(len(rows), len(COLUMNS)))


def from_rows(rows: Array) -> Table:
    """Table of a (layouts, columns) array in the order of COLUMNS."""
    return {name: np.ascontiguousarray(rows[:, i], dtype=float) for i, name in enumerate(COLUMNS)}


def offloads(table: Table, *names: OffloadName) -> Array:
    """Rows that offload one of these."""
    return np.isin(table["offload"], [OFFLOADS.index(name) for name in names])


def repeated_share(c: Table, layers: int) -> Array:
    """Share of a stage's forward pass that recompute repeats: 1 for full and grouped, N of the
    stage's layers for block:N."""
    kind = c["recompute"]
    code = RECOMPUTE_KINDS.index
    whole = (kind == code("full")) | (kind == code("group"))
    block = np.minimum(c["recompute_size"] * c["pp"] / layers, 1.0)
    return np.where(whole, 1.0, np.where(kind == code("block"), block, 0.0))


def microbatch_count(global_batch: int, c: Mapping[str, Array]) -> Array:
    """Micro-batches per replica and step: of the plan's batch, or of the row's own where the table
    has a column `global_batch`.

    A table of several requests that differ in their batch has that column (planner/search/many.py); no
    layout has.
    """
    return c.get("global_batch", float(global_batch)) / (c["dp"] * c["micro_batch"])


def length(table: Table) -> int:
    return len(table["tp"])


def pick(table: Table, rows: Array) -> Table:
    """Some rows of a table."""
    return {name: column[rows] for name, column in table.items()}


def joined(tables: Sequence[Table]) -> Table:
    """The rows of several tables with the same columns."""
    return (
        tables[0]
        if len(tables) == 1
        else {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}
    )


def to_layout(table: Table, row: int) -> Layout:
    """One row as a layout."""
    value = {name: table[name][row] for name in COLUMNS}
    kind = RECOMPUTE_KINDS[int(value["recompute"])]
    size = int(value["recompute_size"])
    whole = {
        k: int(value[k])
        for k in ("tp", "pp", "vpp", "dp", "cp", "ep", "zero", "shard_group", "micro_batch")
    }
    return Layout(
        **whole,
        sequence_parallel=bool(value["sequence_parallel"]),
        recompute=f"{kind}:{size}" if kind in ("block", "group") else kind,
        schedule=SCHEDULES[int(value["schedule"])],
        offload=OFFLOADS[int(value["offload"])],
        placement=PLACEMENTS[int(value["placement"])],
    )


def cut(value: Any, row: int, rows: int) -> Any:
    """A record of many layouts with the values of one: of every array whose last axis has one for
    each of them."""
    if isinstance(value, np.ndarray):
        return value[..., row : row + 1] if value.ndim and value.shape[-1] == rows else value
    if isinstance(value, dict):
        return {k: cut(v, row, rows) for k, v in value.items()}
    if isinstance(value, list | tuple):
        made = [cut(v, row, rows) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value)(
            **{f.name: cut(getattr(value, f.name), row, rows) for f in dataclasses.fields(value)}
        )
    return value


def unique_rows(table: Table, columns: Sequence[str]) -> tuple[Table, Array]:
    """(table of distinct combinations of `columns`, index of each row's combination): evaluate
    once, gather."""
    key = np.zeros(length(table))
    stride = 1.0
    for name in columns:
        values, code = np.unique(table[name], return_inverse=True)
        key += code * stride
        stride *= len(values)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return {name: table[name][first] for name in columns}, inverse
