"""How the choices behind the bands (planner/evidence/band.py, benchmarks/studies/widths.py) score
on suites left out.

Prints coverage and interval score of the shipped bands, of one band for all and of bands that know
how far each suite was missed, then with one choice after the other changed. Seconds.

    python -m benchmarks.bands
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.studies import widths
from benchmarks.studies.bands import ends, one_band
from planner.evidence import band, case
from planner.evidence.spread import COVERAGE, SIDE
from planner.evidence.weights import suite_members
from planner.ledger import Array


def line(name: str, runs: band.Residuals, low: Array, high: Array) -> None:
    """Coverage and score by runs, and as mean of suites."""
    value, suite = runs.log_ratio, 1 / suite_members(runs.suite)
    inside = ((value >= low) & (value <= high)).astype(float)
    missed = np.maximum(low - value, 0) + np.maximum(value - high, 0)
    score = high - low + 2 / (1 - COVERAGE) * missed
    cells = [f"{np.average(x, weights=w):9.3f}" for w in (None, suite) for x in (inside, score)]
    print(f"{name:44}", *cells)


@contextmanager
def changed(place: Any, name: str, value: Any) -> Iterator[None]:
    """One choice, for a while: of a module or a dictionary."""
    choices = place if isinstance(place, dict) else vars(place)
    shipped = choices[name]
    choices[name] = value
    try:
        yield
    finally:
        choices[name] = shipped


def own_quantiles(runs: band.Residuals) -> tuple[Array, Array]:
    """Both ends of a band that knows the quantiles of each run's suite: what no band can know."""
    low, high = np.zeros(len(runs)), np.zeros(len(runs))
    for name in set(runs.suite.tolist()):
        at = runs.suite == name
        low[at], high[at] = np.quantile(runs.log_ratio[at], [1 - SIDE, SIDE])
    return low, high


def main() -> None:
    runs = band.recorded()

    def score(name: str) -> None:
        line(name, runs, *ends(runs, lambda r: r.suite, runs))

    print(f"{len(runs):,} runs, {len(set(runs.suite.tolist()))} suites")
    heads = ("inside", "score", "of suites", "score")
    print(f"{'':44}", *(f"{name:>9}" for name in heads))
    score("shipped")
    line("one band for all", runs, *one_band(runs, runs))
    line("each suite's own quantiles (oracle)", runs, *own_quantiles(runs))
    choices = {
        "CORRELATION": (0.05, 0.4, 1.0),
        "LATER_WEIGHT": (1.0, 4.0),
        "SHRINK": (0.005, 0.01, 0.05),
        "CONFORMAL": (1.0, 1.1),
    }
    for name, values in choices.items():
        for value in values:
            with changed(widths, name, value):
                score(f"{name} {value:g}")
    for times in (0.0, 1.0, 2.0):
        prior = {name: times * value for name, value in widths.PRIOR.items()}
        with changed(widths, "PRIOR", prior):
            score(f"PRIOR times {times:g}")
    for name in band.WIDENS:
        kept = {other: words for other, words in band.WIDENS.items() if other != name}
        if name not in band.ONE_SIDED:
            with changed(band, "WIDENS", kept), changed(widths, "WIDENS", kept):
                score(f"without {name}")
    shown = [
        name for name, feature in case.FEATURES.items() if max(feature.slower, feature.faster) > 1
    ]
    for name in shown:
        with changed(case.FEATURES, name, replace(case.FEATURES[name], slower=1.0, faster=1.0)):
            score(f"without unstated {name}")


if __name__ == "__main__":
    main()
