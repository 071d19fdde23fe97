"""The best layout of a scenario, over all of its plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate import Estimates, Outline
from planner.inputs.scenario import Scenario
from planner.ledger import is_recording
from planner.search import (
    BEST,
    Found,
    Wanted,
    improved,
    in_turn,
    is_far,
    reached,
    started,
    wanted_s,
)
from planner.search.choose import ENOUGH, Rank, choice, of_all
from planner.search.question import KEPT, Question, question_of
from planner.specs.plan import Plan


@dataclass(frozen=True)
class Answer:
    """Searches of all plans of a scenario, and the chosen one: a row of a table of full
    estimates."""

    searches: tuple[Found, ...]
    chosen: Estimates
    row: int
    fits: bool


def answer_of(
    scenario: Scenario,
    tick: Callable[[float], None] | None = None,
    beside: Callable[[Outline], int | None] | None = None,
    wanted: Wanted = BEST,
    most: float = np.inf,
) -> Answer | None:
    """Fastest layout that fits over all plans; where none fits, the one that needs the least
    memory. None: none allowed.

    tick: called with the share of the work that is done, now and then. beside: another row of the
    chosen plan that is needed in full, which is evaluated with the chosen one. wanted: what
    the searches are looked at for besides. most: seconds of a step per sequence beyond which no
    layout is wanted; there may be none then, or a slower one.
    """
    plans = scenario.plans
    if tick is None and not wanted.whole and not is_recording():
        result = kept(question_of((plans, wanted, most)))
    else:
        result = searches(plans, tick, wanted, most)
    evaluated = [entry.estimates for entry in result if entry.estimates is not None]
    if not evaluated:
        return None
    choices = [(choice(entry), entry) for entry in evaluated]
    taken, estimates = min(choices, key=lambda pair: of_all(pair[0].rank, pair[1].plan))
    other = None if beside is None else beside(estimates)
    chosen, row = estimates.some([taken.row] if other is None else [taken.row, other])[0]
    return Answer(result, chosen, row, taken.fits)


@functools.lru_cache(maxsize=KEPT)
def kept(question: Question[tuple[Sequence[Plan], Wanted, float]]) -> tuple[Found, ...]:
    """The searches of the last few questions."""
    plans, wanted, most = question.plans
    return searches(plans, wanted=wanted, most=most)


def searches(
    plans: Sequence[Plan],
    tick: Callable[[float], None] | None = None,
    wanted: Wanted = BEST,
    most: float = np.inf,
) -> tuple[Found, ...]:
    """A search of each plan of a request; other free options are tried where it is not far behind
    the best, or what is wanted (most, as in `answer_of`)."""
    steps = len(plans) + sum(bool(plan.free) for plan in plans)

    def ticked(step: int) -> Callable[[float], None] | None:
        return None if tick is None else functools.partial(_share, tick, step, steps)

    starts: dict[int, Found] = {}
    ranks: dict[int, Rank] = {}
    known: list[Rank] = [] if np.isinf(most) else [(ENOUGH, most)]
    for step, i in enumerate(in_turn(plans)):
        best = min([*ranks.values(), *known], default=None)
        result = started(plans[i], ticked(step), wanted, wanted_s(plans[i], best))
        starts[i] = _ended(result, ticked(step))
        if result.estimates is not None:
            ranks[i] = of_all(choice(result.estimates).rank, result.plan)
    best = min([*ranks.values(), *known], default=None)
    out, step = [], len(plans)
    each = reached(plans, [starts[i] for i in range(len(plans))], best)
    for i, (plan, result) in enumerate(zip(plans, each, strict=True)):
        far = best is None or i not in ranks or is_far(ranks[i], best, plan, result.reach)
        result = improved(plan, result, wanted, far=far, most=wanted_s(plan, best))
        out.append(_ended(result, ticked(step)) if plan.free else result)
        step += bool(plan.free)
    return tuple(out)


def _ended(result: Found, tick: Callable[[float], None] | None) -> Found:
    """A search that has ended, whether it has said how far it was or not."""
    if tick is not None:
        tick(1.0)
    return result


def _share(tick: Callable[[float], None], done: int, count: int, share: float) -> None:
    tick((done + share) / count)
