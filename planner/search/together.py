"""Values of several options that are best together, by the separate worth of each.

Changes of seconds multiply and changes of memory add up, nearly: options that gain nothing by
themselves may gain together, where one makes the room that another takes, or where both are needed
to make another layout the best. What is predicted here is evaluated before it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.ledger import Array
from planner.specs.plan import SoftwareChoice

_MOST = 3  # combinations that are evaluated

Taken = frozenset[
    SoftwareChoice
]  # one value of an option at most; others are as the stack has them


@dataclass(frozen=True)
class Measured:
    """Layouts with some options."""

    seconds: Array  # infinite where a layout does not run
    device: Callable[[], Array]  # bytes per GPU


@dataclass(frozen=True)
class Effects:
    """Changes of each layout by the values of one option. Arrays (values, layouts); the first
    value changes nothing."""

    ratio: Array  # times as many seconds; infinite where a layout does not run
    added: Array  # bytes


def better_together(
    known: Mapping[Taken, Measured], here: Taken, usable: float, least: float
) -> list[Taken]:
    """Options that differ from `here` in several and with which a layout is predicted to take less
    than `least` seconds within `usable` bytes, the fastest first.

    known: the same layouts with these options, and with others. What a value changes is read off
    two of them that differ only in it.
    """
    every = {choice.option for taken in known for choice in taken}
    alone = [
        {_value(new, option): (known[new], known[old]) for new, old in _pairs(known, here, option)}
        for option in sorted(every)
    ]
    ratios = [
        np.stack([np.ones_like(known[here].seconds), *(_ratio(*pair) for pair in each.values())])
        for each in alone
    ]
    start = known[here].seconds
    if not ratios or np.all(
        np.prod([ratio.min(axis=0) for ratio in ratios], axis=0) * start >= least
    ):
        return []  # whatever memory they take
    device = known[here].device()
    effects = [
        Effects(ratio, np.stack([np.zeros_like(start), *(_added(*pair) for pair in each.values())]))
        for ratio, each in zip(ratios, alone, strict=True)
    ]
    out = []
    for numbers in combined(start, device, effects, usable, least):
        changed = {
            option: list(each)[number - 1]
            for option, each, number in zip(sorted(every), alone, numbers, strict=True)
            if number
        }
        kept = (choice for choice in here if choice.option not in changed)
        out.append(frozenset({*kept, *filter(None, changed.values())}))
    return out


def _pairs(known: Iterable[Taken], here: Taken, option: str) -> list[tuple[Taken, Taken]]:
    """Choices with another value of the option, paired with the choice of its current value."""
    usual = {choice for choice in here if choice.option == option}
    each = [(new, frozenset({*_others(new, option), *usual})) for new in known]
    return [(new, old) for new, old in each if new != old and old in known]


def _others(taken: Taken, option: str) -> list[SoftwareChoice]:
    return [choice for choice in taken if choice.option != option]


def _value(taken: Taken, option: str) -> SoftwareChoice | None:
    return next((choice for choice in taken if choice.option == option), None)


def _ratio(new: Measured, old: Measured) -> Array:
    runs = np.isfinite(old.seconds)
    return np.where(runs, new.seconds / np.where(runs, old.seconds, 1.0), np.inf)


def _added(new: Measured, old: Measured) -> Array:
    runs = np.isfinite(new.seconds) & np.isfinite(old.seconds)
    return np.where(runs, new.device(), 0.0) - np.where(runs, old.device(), 0.0)


def combined(
    seconds: Array, device: Array, effects: Sequence[Effects], usable: float, least: float
) -> list[tuple[int, ...]]:
    """Combinations, a value of every option, with which a layout is predicted to take less than
    `least` seconds within `usable` bytes, the fastest first; only with several changes, since
    single ones are known.

    seconds, device: of every layout as it is. Exact: options are joined one by one, and of a
    layout's combinations only those are kept that no other beats in both, and that the best values
    of the options still to come can make fast and small enough.
    """
    fast = _rest([np.log(each.ratio).min(axis=0) for each in effects])
    small = _rest([each.added.min(axis=0) for each in effects])
    best: dict[tuple[int, ...], float] = {}
    for row in np.flatnonzero((seconds * np.exp(fast[0]) < least) & (device + small[0] <= usable)):
        time, need = np.log(seconds[[row]]), device[[row]]
        values = np.zeros((1, 0), dtype=np.intp)
        for i, each in enumerate(effects, 1):
            count = len(each.ratio)
            time = np.add.outer(time, np.log(each.ratio[:, row])).reshape(-1)
            need = np.add.outer(need, each.added[:, row]).reshape(-1)
            value = np.tile(np.arange(count), len(values))
            values = np.column_stack([np.repeat(values, count, axis=0), value])
            order = np.lexsort((need, time))
            order = order[
                (time[order] + fast[i][row] < np.log(least))
                & (need[order] + small[i][row] <= usable)
            ]
            before = np.minimum.accumulate(need[order])[:-1]
            order = order[np.append(True, need[order][1:] < before)[: len(order)]]
            time, need, values = time[order], need[order], values[order]
        for taken, cost in zip(map(tuple, values.tolist()), time, strict=True):
            if np.count_nonzero(taken) > 1:
                best[taken] = min(best.get(taken, np.inf), float(cost))
    return sorted(best, key=best.__getitem__)[:_MOST]


def _rest(each: Sequence[Array]) -> list[Array]:
    """Sums of these from each position on; nothing at the end."""
    return [sum(each[i:], 0.0 * each[0]) for i in range(len(each) + 1)]
