"""How much other free options could gain where a stack is behind the best of others: whether they
are worth a search."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate.step import step_time
from planner.estimate.ties import TIE
from planner.formulas.rules import check
from planner.ledger import Array, Ledger, total
from planner.search.software import (
    GAIN,
    NEAR,
    SHORTENS,
    Choices,
    acts,
    choices_of,
    may_run,
    values_of,
    with_value,
)
from planner.specs.columns import Columns, joined
from planner.specs.plan import Plan

# options gain more together, and on other layouts, than the product of what each gains by itself:
# up to 5 % more over the requests of benchmarks.pins
_TOGETHER = 0.1
_FOLLOW = ("bubble", "overhead")  # components that are as long as the others make them


@dataclass(frozen=True)
class Behind:
    """Layouts of a request of which those that fit are behind the best of other plans."""

    choices: Choices  # the free options that they have
    table: Columns
    least: float  # seconds of a step of the fastest that fits
    most: float  # of the best of other plans


def reach(plan: Plan, requests: Sequence[Behind]) -> list[float]:
    """For each request how many times as fast, with other options, a layout is at most that then
    comes near the best of other plans: the product of what the best value of each option gains by
    itself; 1 where none comes near. Layouts that are faster do not fit, and are left out. plan: as
    in `polished`."""
    alike: dict[Choices, list[int]] = {}
    for i, request in enumerate(requests):
        alike.setdefault(request.choices, []).append(i)
    out = [1.0] * len(requests)
    for choices, members in alike.items():
        tables = [requests[i].table for i in members]
        counts = [len(table) for table in tables]
        table, most = joined(tables), np.repeat([requests[i].most for i in members], counts)
        least = np.repeat([requests[i].least for i in members], counts) / (1 + TIE)
        time = step_time(plan.choosing(choices), table, sums=True)
        shares = _shares(plan, choices, table, time.components)
        left = time.seconds * (1 - functools.reduce(np.add, shares.values(), 0.0))
        rows = np.flatnonzero((time.seconds >= least) & (left <= most))
        options = [name for name, share in shares.items() if np.max(share) > GAIN]
        if not len(rows) or not options:
            continue
        gains = np.ones(len(table))
        gains[rows] = (1 + _TOGETHER) * _gains(
            plan, choices, table.pick(rows), time.seconds[rows], options
        )
        near = time.seconds / gains <= most * (1 + NEAR)
        for i, mine in zip(members, np.split(near * gains, np.cumsum(counts)[:-1]), strict=True):
            out[i] = float(mine.max(initial=1.0))
    return out


def _shares(plan: Plan, choices: Choices, table: Columns, components: Ledger) -> dict[str, Array]:
    """The largest share of a step that each option can save by other values than these, no
    component counted twice; components that follow the others aside."""
    always = {value.option for value in choices if value.start == "always"}
    others = dict.fromkeys(value.option for value in plan.free)
    every = {name: leaf for name, leaf in components.items() if name not in _FOLLOW}
    whole, left = total(every), dict(every)
    out = {}
    for option in others:
        if option not in always and acts(option, table):
            names = SHORTENS.get(option, tuple(every))
            out[option] = total({name: left.pop(name) for name in names if name in left}) / whole
    return out


def _gains(
    plan: Plan, choices: Choices, table: Columns, start: Array, options: Sequence[str]
) -> Array:
    """How many times as fast layouts are, which take `start` seconds with these choices, if the
    best value of each of the options gained what it gains by itself."""
    state = {choice.option: choice for choice in choices}
    without = check(plan.choosing(()), table)
    times = np.ones(len(table))
    for option in options:
        least = start.copy()
        for value in values_of(plan, option):
            if state.get(option) == value:
                continue
            variant = plan.choosing(choices_of(plan, with_value(state, option, value)))
            rows = np.flatnonzero(may_run(variant, table, without))
            if len(rows):
                seconds = step_time(variant, table.pick(rows), sums=True).seconds
                least[rows] = np.minimum(least[rows], seconds)
        times *= start / least
    return times
