"""The best layout of a scenario, over all of its plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.estimate import Estimates, Outline
from planner.inputs.scenario import Scenario
from planner.search import BEST, Found, Wanted, search
from planner.search.choose import choice, of_all
from planner.specs.capabilities import values
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec


@dataclass(frozen=True)
class Answer:
    """Searches of all plans of a scenario, and the chosen one: a row of a table of full
    estimates."""

    found: tuple[Found, ...]
    chosen: Estimates
    row: int
    fits: bool


def answer_of(
    scenario: Scenario,
    tick: Callable[[float], None] | None = None,
    beside: Callable[[Outline], int | None] | None = None,
    wanted: Wanted = BEST,
) -> Answer | None:
    """Fastest layout that fits over all plans; where none fits, the one that needs the least
    memory. None: none allowed.

    tick: called with the share of the work that is done, now and then. beside: another row of the
    chosen plan that is needed in full, which is evaluated with the chosen one. wanted: what
    the searches are looked at for besides.
    """
    found = searches(scenario.plans, tick, wanted)
    evaluated = [one.estimates for one in found if one.estimates is not None]
    if not evaluated:
        return None
    choices = [(choice(one), one) for one in evaluated]
    taken, estimates = min(choices, key=lambda pair: of_all(pair[0].rank, pair[1].plan))
    other = None if beside is None else beside(estimates)
    chosen, row = estimates.some([taken.row] if other is None else [taken.row, other])[0]
    return Answer(found, chosen, row, taken.fits)


def searches(
    plans: Sequence[Plan], tick: Callable[[float], None] | None = None, wanted: Wanted = BEST
) -> tuple[Found, ...]:
    """A search of each plan of a request; what one finds bounds what others are worth."""
    out: dict[int, Found] = {}
    best: tuple[int, float] | None = None
    # the stack that runs most comes first: others seldom beat it
    for done, i in enumerate(sorted(range(len(plans)), key=lambda i: -_ways(plans[i].stack))):
        ticked = None if tick is None else functools.partial(_share, tick, done, len(plans))
        found = out[i] = search(plans[i], ticked, replace(wanted, limit=best))
        if found.estimates is not None:
            rank = of_all(choice(found.estimates).rank, found.plan)
            best = rank if best is None else min(best, rank)
        if tick is not None:
            tick((done + 1) / len(plans))
    return tuple(out[i] for i in range(len(plans)))


def _share(tick: Callable[[float], None], done: int, count: int, share: float) -> None:
    tick((done + share) / count)


def _ways(stack: StackSpec) -> int:
    """Degrees of parallelism that a stack searches."""
    return sum(bool(values(stack, name)) for name in ("tp", "pp", "cp", "ep"))
