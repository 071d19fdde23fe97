"""The best layout of a scenario, over all of its plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.estimate import Estimates, Outline
from planner.inputs.scenario import Scenario
from planner.search import BEST, Found, Wanted, improved, is_far, started
from planner.search.choose import choice, of_all
from planner.specs.plan import Plan


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
    """A search of each plan of a request; other free options are tried where it is not far behind
    the best."""
    steps = len(plans) + sum(bool(plan.free) for plan in plans)

    def done(step: int) -> Callable[[float], None] | None:
        return None if tick is None else functools.partial(_share, tick, step, steps)

    starts = [_ended(started(plan, done(i), wanted), done(i)) for i, plan in enumerate(plans)]
    ranks = [
        None if one.estimates is None else of_all(choice(one.estimates).rank, one.plan)
        for one in starts
    ]
    best = min((rank for rank in ranks if rank is not None), default=None)
    out, step = [], len(plans)
    for plan, found, rank in zip(plans, starts, ranks, strict=True):
        far = rank is None or best is None or is_far(rank, best)
        better = improved(plan, found, wanted, far=far)
        out.append(_ended(better, done(step)) if plan.free else better)
        step += bool(plan.free)
    return tuple(out)


def _ended(found: Found, tick: Callable[[float], None] | None) -> Found:
    """A search that has ended, whether it has said how far it was or not."""
    if tick is not None:
        tick(1.0)
    return found


def _share(tick: Callable[[float], None], done: int, count: int, share: float) -> None:
    tick((done + share) / count)
