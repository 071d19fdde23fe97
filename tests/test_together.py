"""Options that are best together, against every combination of them."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from planner.search.together import Effects, Measured, better_together, combined
from planner.specs.plan import SoftwareChoice

USABLE = 80.0


def _drawn(seed: int) -> tuple[np.ndarray, np.ndarray, list[Effects]]:
    """Layouts at random, a few faster than the best of those with room, and what four options of
    two to four values change."""
    draw = np.random.default_rng(seed)
    seconds, device = draw.uniform(1.0, 1.2, 30), draw.uniform(60.0, 100.0, 30)
    effects = []
    for values in draw.integers(1, 4, 4):
        ratio = np.concatenate([np.ones((1, 30)), draw.uniform(0.97, 1.05, (values, 30))])
        added = np.concatenate([np.zeros((1, 30)), draw.uniform(-8.0, 8.0, (values, 30))])
        effects.append(Effects(ratio, added))
    return seconds, device, effects


@pytest.mark.parametrize("seed", range(20))
def test_no_combination_is_predicted_faster(seed: int) -> None:
    seconds, device, effects = _drawn(seed)
    rows = np.arange(len(seconds))

    def of(values: tuple[int, ...]) -> float:
        pairs = list(zip(effects, values, strict=True))
        need = device + sum(each.added[value] for each, value in pairs)
        time = seconds * np.prod([each.ratio[value] for each, value in pairs], axis=0)
        return float(np.min(time[rows], where=need <= USABLE, initial=np.inf))

    every = {
        values: of(values) for values in itertools.product(*(range(len(e.ratio)) for e in effects))
    }
    least = min(seconds for values, seconds in every.items() if np.count_nonzero(values) <= 1)
    best = min(every.values())
    result = combined(seconds, device, effects, USABLE, least)
    assert all(np.count_nonzero(values) > 1 and every[values] < least for values in result)
    assert bool(result) == (best < least)
    if result:
        assert every[result[0]] == pytest.approx(best)


def test_what_makes_room_and_what_takes_it_are_taken_together() -> None:
    """The second layout is fastest with both: one makes 10 bytes room, the other takes 4 to be
    faster; either alone leaves the first the best."""
    small, quick = (SoftwareChoice(name, True, {}) for name in ("small", "quick"))
    known = {
        frozenset[SoftwareChoice](): (np.array([1.0, 1.0]), np.array([70.0, 85.0])),
        frozenset({small}): (np.array([1.05, 1.02]), np.array([69.0, 75.0])),
        frozenset({quick}): (np.array([1.0, 0.96]), np.array([79.0, 89.0])),
    }
    measured = {
        taken: Measured(s, functools.partial(np.asarray, d)) for taken, (s, d) in known.items()
    }
    assert better_together(measured, frozenset(), USABLE, 0.995) == [frozenset({small, quick})]
    assert not better_together(measured, frozenset(), USABLE, 0.97)
