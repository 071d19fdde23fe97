"""The best layout of a scenario, over all of its plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.estimate import Estimates, Outline
from planner.inputs.scenario import Scenario
from planner.search import Found, Wanted, search
from planner.search.choose import choice, of_all


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
    wanted: Wanted = Wanted(),
) -> Answer | None:
    """Fastest layout that fits over all plans; where none fits, the one that needs the least
    memory. None: none allowed.

    tick: called with the share of the work that is done, now and then. beside: another row of the
    chosen plan that will be asked for in full, which is evaluated with the chosen one. wanted: what
    the searches are looked at for besides.
    """
    count = len(scenario.plans)
    found = tuple(
        search(plan, None if tick is None else lambda share, i=i: tick((i + share) / count), wanted)  # type: ignore[misc]
        for i, plan in enumerate(scenario.plans)
    )
    evaluated = [one.estimates for one in found if one.estimates is not None]
    if not evaluated:
        return None
    choices = [(choice(one), one) for one in evaluated]
    taken, estimates = min(choices, key=lambda pair: of_all(pair[0].rank, pair[1].plan))
    other = None if beside is None else beside(estimates)
    chosen, row = estimates.some([taken.row] if other is None else [taken.row, other])[0]
    return Answer(found, chosen, row, taken.fits)
