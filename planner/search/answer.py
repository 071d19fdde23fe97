"""The best layout of a scenario, over all of its plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.estimate import Estimates, Outline
from planner.inputs.scenario import Scenario
from planner.search import Found, best, search, smallest


@dataclass(frozen=True)
class Answer:
    """Searches of all plans of a scenario, and the chosen one: a row of a table of full
    estimates."""

    found: tuple[Found, ...]
    chosen: Estimates
    row: int
    fits: bool


def answer_of(scenario: Scenario, tick: Callable[[float], None] | None = None) -> Answer | None:
    """Fastest layout that fits over all plans; where none fits, the one that needs the least
    memory. None: none allowed.

    tick: called with the share of the work that is done, now and then.
    """
    count = len(scenario.plans)
    found = tuple(
        search(plan, None if tick is None else lambda share, i=i: tick((i + share) / count))  # type: ignore[misc]
        for i, plan in enumerate(scenario.plans)
    )
    fitting: list[tuple[float, int, Outline]] = []
    short: list[tuple[float, int, Outline]] = []
    for one in found:
        if one.estimates is None:
            continue
        row = best(one.estimates)
        if row is not None:
            fitting.append((float(one.estimates.time.seconds[row]), row, one.estimates))
        else:
            least = smallest(one.estimates)
            short.append((float(one.estimates.memory.device[least]), least, one.estimates))
    if not fitting and not short:
        return None
    _, row, estimates = min(fitting or short, key=lambda x: x[0])
    chosen, at = estimates.some([row])[0]
    return Answer(found, chosen, at, bool(fitting))
