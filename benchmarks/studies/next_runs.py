"""Runs that a calibration asks for: error against their number, chosen and drawn.

python -m benchmarks.studies.next_runs [--unseen]

For every platform (suite, GPU, stack) with ten runs and five layouts or more: the platform's
numbers are fitted to 1, 2, 3, 5 and 10 of its runs as `dpplan check --save` fits them, and all runs
of other layouts are predicted. Chosen: each run is the one that narrows the predictions of all
layouts of the platform most, by `validate.design`, which sees layouts and no time. Drawn: the mean
of 40 draws. Expected: the error that the command names beforehand, over the error there is.

--unseen: before is by shared numbers fitted without the suite.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from benchmarks.learn_from_logs import Platform, platforms
from planner.ledger import Array
from planner.studies.check.learn import TRUST
from planner.studies.check.next_run import REST, REST_RUNS, SPREAD
from planner.studies.validate import design

COUNTS = (1, 2, 3, 5, 10)
_FEWEST = 10  # runs of a platform
_DRAWS = 40


def chosen(platform: Platform, count: int) -> list[int]:
    """Runs in the order in which the planner takes them, each of another layout."""
    taken: list[int] = []
    prior = design.likeness(platform.slopes, SPREAD, TRUST.noise)
    for _ in range(count):
        had = set(platform.layouts[taken])
        left = [i for i, layout in enumerate(platform.layouts) if layout not in had]
        if not left:
            break
        gains = design.gains(prior, taken, TRUST.noise)
        taken.append(max(left, key=lambda i: float(gains[i])))
    return taken


def expected(platform: Platform, taken: list[int]) -> float:
    """The error that `dpplan check --save` names after these runs."""
    known = design.covariance(platform.slopes[taken], SPREAD, TRUST.noise)
    rest = design.remaining(platform.after(tuple(taken))[taken], REST, REST_RUNS)
    return design.expected_error(platform.slopes, known, rest)


def drawn(platform: Platform, count: int) -> Array | None:
    """(before, after) over draws of this many runs; None where no other layout is left."""
    random, runs = np.random.default_rng(0), len(platform.residual)
    sets = [tuple(random.choice(runs, count, replace=False)) for _ in range(_DRAWS)]
    errors = [pair for known in sets if (pair := platform.errors(known)) is not None]
    return np.mean(errors, axis=0) if errors else None


def main() -> None:
    """Print a line per platform and the means over platforms."""
    print(f"| suite, GPU, stack | runs | {' | '.join(f'{n}: chosen, drawn' for n in COUNTS)} |")
    print(f"| --- | ---: |{' ---: |' * len(COUNTS)}")
    over: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for name, platform in platforms(unseen="--unseen" in sys.argv[1:]).items():
        runs = len(platform.residual)
        if runs < _FEWEST:
            continue
        order, cells = chosen(platform, COUNTS[-1]), []
        for count in COUNTS:
            by_choice, by_chance = platform.errors(tuple(order[:count])), drawn(platform, count)
            if count > runs // 2 or by_choice is None or by_chance is None:
                cells.append("-")
                continue
            right = expected(platform, order[:count]) / by_choice[1]
            over[count].append((*by_choice, *by_chance, right))
            cells.append(f"{100 * by_choice[1]:.1f}, {100 * by_chance[1]:.1f} %")
        print(f"| {name} | {runs} | {' | '.join(cells)} |", flush=True)
    for count, rows in over.items():
        table = np.array(rows)
        logs = np.log(table)
        better = int((table[:, 1] < table[:, 3]).sum())
        print(
            f"{count} runs, {len(rows)} platforms: chosen {100 * table[:, 1].mean():.2f} %"
            f" (median {100 * np.median(table[:, 1]):.2f}), drawn {100 * table[:, 3].mean():.2f} %"
            f" ({100 * np.median(table[:, 3]):.2f}); after over before, geometric mean: chosen"
            f" {np.exp((logs[:, 1] - logs[:, 0]).mean()):.3f}, drawn"
            f" {np.exp((logs[:, 3] - logs[:, 2]).mean()):.3f}; chosen better on {better};"
            f" expected over actual: geometric mean {np.exp(logs[:, 4].mean()):.2f}"
        )


if __name__ == "__main__":
    main()
