"""Evaluating deferred columns, block by block of combinations whose rows go with the same options.

Two passes: what is deferred on levels that many rows share is evaluated there once (`settle`); the
rest is evaluated for every row, in blocks that stay in the processor's cache (`run`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.estimate.factored.column import Column, Grouped, dense
from planner.estimate.factored.levels import Level, Levels
from planner.ledger import Array

# values of a column that are worked on together: few enough for the cache, enough for numpy
BLOCK = 16384

# takes the combinations of a block, their options and the values of each wanted column
Keep = Callable[[Array, Array, list[Array]], None]


def known(column: Column) -> Array:
    """The values of a column as one array, evaluated now if they are deferred."""
    if column.deferred:
        settle(column.levels, [column], rows_too=True)
    return dense(column)


def settle(levels: Levels, wanted: Sequence[Column], rows_too: bool = False) -> None:
    """Evaluate what is deferred on levels that many rows share, the coarsest first; values that
    differ by row stay deferred unless rows_too."""
    needed = _needed(wanted)
    read = {x.number for x in wanted}
    read.update(
        x.number for column in needed for x in _columns(column) if x.level is not column.level
    )
    taken: dict[Level, list[Column]] = {}
    for column in needed:
        if column.number in read and (rows_too or column.level is not levels.rows):
            taken.setdefault(column.level, []).append(column)
    for level in sorted(taken, key=lambda level: level.count):
        _settle(levels, level, taken[level])


def _settle(levels: Levels, level: Level, wanted: Sequence[Column]) -> None:
    """Evaluate these columns of one level."""
    groups = levels.groups(level)
    parts: list[list[Array]] = [[] for _ in wanted]

    def keep(rows: Array, options: Array, values: list[Array]) -> None:
        group, start = groups.group[rows[0]], groups.place[rows[0]]
        for column, arrays, value in zip(wanted, parts, values, strict=True):
            if len(arrays) <= group:  # blocks come group by group
                shape = len(groups.members[group][0]), min(column.width, len(options))
                arrays.append(np.empty(shape, value.dtype))
            arrays[group][start : start + len(rows)] = value

    run(levels, level, wanted, keep)
    for column, arrays in zip(wanted, parts, strict=True):
        column.content = Grouped(arrays)


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation of a block: reads slots or numbers, writes a slot, empties slots that are not
    read again."""

    operation: Callable[..., Array]
    operands: list[tuple[int, Any]]  # (slot, None), or (-1, number)
    slot: int
    emptied: list[int]


def run(levels: Levels, level: Level, wanted: Sequence[Column], keep: Keep) -> None:
    """Evaluate columns on a level, block by block."""
    leaves, steps, slots = _program(wanted)
    registers: list[Any] = [None] * (len(leaves) + len(steps))
    places = [slots[x.number] for x in wanted]
    for rows, options in levels.groups(level).members:
        cuts = _cuts(levels, level, leaves, rows, options)
        size = max(1, BLOCK // len(options))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            for slot, (values, index) in enumerate(cuts):
                registers[slot] = values if index is None else values.take(index[part], axis=0)
            for step in steps:
                registers[step.slot] = step.operation(
                    *[registers[slot] if slot >= 0 else number for slot, number in step.operands]
                )
                for slot in step.emptied:
                    registers[slot] = None
            keep(rows[part], options, [registers[place] for place in places])


def _program(wanted: Sequence[Column]) -> tuple[list[Column], list[_Step], dict[int, int]]:
    """(columns that are known, operations on them in order, slot of every column by its number)."""
    needed = _needed(wanted)
    leaves = {
        x.number: x
        for x in [*(y for column in needed for y in _columns(column)), *wanted]
        if not x.deferred
    }
    numbers = [*leaves, *(column.number for column in needed)]
    slots = {number: slot for slot, number in enumerate(numbers)}
    last = {slots[x.number]: column.number for column in needed for x in _columns(column)}
    stay = {slots[x.number] for x in wanted} | set(range(len(leaves)))
    steps = []
    for column in needed:
        assert column.deferred is not None
        operands = [
            (slots[x.number], None) if isinstance(x, Column) else (-1, x)
            for x in column.deferred.operands
        ]
        read = {slot for slot, _ in operands if slot >= 0} - stay
        emptied = [slot for slot in read if last[slot] == column.number]
        steps.append(_Step(column.deferred.operation, operands, slots[column.number], emptied))
    return list(leaves.values()), steps, slots


def _cuts(
    levels: Levels, level: Level, leaves: Sequence[Column], rows: Array, options: Array
) -> list[tuple[Array, Array | None]]:
    """For every leaf the values that these combinations and options need: (values, row of them for
    each combination; None: one for all)."""
    places = {level: rows}
    for x in leaves:
        if x.level not in places:
            places[x.level] = levels.map(level, x.level)[rows]
    return [_cut(x, places[x.level], options) for x in leaves]


def _cut(x: Column, rows: Array, options: Array) -> tuple[Array, Array | None]:
    if isinstance(x.content, Grouped):
        groups = x.levels.groups(x.level)
        group = groups.group[rows[0]]
        if (groups.group[rows] == group).all():
            values, present = x.content.parts[group], groups.members[group][1]
            if x.width > 1 and len(present) != len(options):
                values = values.take(np.searchsorted(present, options), axis=1)
            return values, groups.place[rows]
    values = dense(x)
    if x.width > 1 and len(options) != x.width:
        values = values.take(options, axis=1)
    return values, None if x.level.count == 1 else rows


def _columns(column: Column) -> list[Column]:
    """Operands of an operation."""
    return column.deferred.columns if column.deferred else []


def _needed(wanted: Sequence[Column]) -> list[Column]:
    """Deferred columns that are needed, in dependency order."""
    out: dict[int, Column] = {}
    seen: set[int] = set()
    stack: list[tuple[Column, bool]] = [(x, False) for x in reversed(wanted)]
    while stack:
        column, ready = stack.pop()
        if ready:
            out[column.number] = column
        elif column.deferred and column.number not in seen:
            seen.add(column.number)
            stack.append((column, True))
            stack += [(x, False) for x in column.deferred.columns]
    return list(out.values())
