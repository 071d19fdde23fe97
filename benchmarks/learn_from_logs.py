"""Error on the other layouts of a cluster after `dpplan check --save` on one of the shipped runs.

    python benchmarks/learn_from_logs.py [--unseen]

For every platform (runs of one suite, GPU and stack) with five or more layouts, each run in turn is
what `dpplan check --save` learns from, and all runs of other layouts are predicted. Printed: mean
absolute error of those before and after; after calibrating on more runs, drawn with a fixed seed;
what would be left if the platform's own middle were known (no calibration that moves all layouts
alike does better); what would be left if the middle of each layout were, of layouts with several
runs (the noise floor: no calibration at all does better); and why one run does not halve the error,
where it does not.

--unseen: before is by shared numbers fitted without the suite, as for an unseen
cluster; by default it is by the shipped numbers, which were chosen with these runs in view.

The step is taken as linear in the logarithms of the numbers, as in the first round of the fit.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from benchmarks.studies.crossval import without_each_suite
from planner.ledger import Array
from planner.studies.check.learn import TRUST
from planner.studies.validate import files, fit
from planner.studies.validate.parameters import PLATFORM
from planner.studies.validate.ranking import layout_of
from planner.studies.validate.scored import scored
from planner.studies.validate.words import not_expressed

FEWEST = 5  # layouts of a platform
COUNTS = (1, 2, 3, 5)  # runs that are learned from
_DRAWS = 40
_HALF = 0.5


@dataclass(frozen=True)
class Platform:
    """Runs of one cluster: logs of measured over predicted, and how they hang on the numbers."""

    residual: Array
    slopes: Array
    layouts: Array

    def after(self, known: tuple[int, ...]) -> Array:
        """Logs of measured over predicted of all runs, calibrated on these."""
        weight = np.isin(np.arange(len(self.residual)), known).astype(float)
        labels = {parameter.name: parameter for parameter in PLATFORM}
        start = np.zeros(len(PLATFORM))
        problem = fit.Problem(labels, start, self.slopes, self.residual)
        multipliers = {value.label: value.multiplier for value in problem.solve(weight, TRUST)}
        moved = np.log([multipliers.get(name, 1.0) for name in labels])
        return self.residual - self.slopes @ moved

    def errors(self, known: tuple[int, ...]) -> tuple[float, float] | None:
        """(before, after) of runs of other layouts; None where there is none."""
        others = ~np.isin(self.layouts, self.layouts[list(known)])
        if not others.any():
            return None
        return _mape(self.residual[others]), _mape(self.after(known)[others])


def _mape(logs: Array) -> float:
    return float(np.mean(np.abs(np.expm1(-logs))))


def platforms(*, unseen: bool) -> dict[str, Platform]:
    """Platforms with layouts enough, by name."""
    every = fit.cases(files.read_all([]))
    complete = [
        c for c in every if c.complete and not not_expressed(c.row, scored(c.row).run, c.plan)
    ]
    seconds = without_each_suite(complete)[0] if unseen else None
    kinds: dict[str, list[int]] = defaultdict(list)
    for i, case in enumerate(complete):
        kinds[case.platform].append(i)
    out = {}
    for name, members in kinds.items():
        layouts = np.array([layout_of(complete[i].row) for i in members], dtype=str)
        if len(set(layouts)) < FEWEST:
            continue
        residual, slopes = np.zeros(len(members)), np.zeros((len(members), len(PLATFORM)))
        for place, i in enumerate(members):
            ((logs, each),) = fit.elasticities(complete[i], [(PLATFORM, [{}])])
            predicted = logs[0] if seconds is None else np.log(seconds[i])
            residual[place] = complete[i].log_seconds - predicted
            names = [parameter.name for parameter in PLATFORM]
            at = [names.index(label) for label in fit.labels(complete[i], PLATFORM)]
            slopes[place, at] = each[0]
        out[name] = Platform(residual, slopes, layouts)
    return out


def learned(platform: Platform, count: int) -> tuple[float, float]:
    """Mean (before, after) over what is learned from: each run, or draws of several."""
    runs = len(platform.residual)
    if count == 1:
        known_sets = [(i,) for i in range(runs)]
    else:
        random = np.random.default_rng(0)
        most = min(count, runs // 2)
        known_sets = [tuple(random.choice(runs, most, replace=False)) for _ in range(_DRAWS)]
    errors_of = [errors for known in known_sets if (errors := platform.errors(known)) is not None]
    before, after = np.mean(errors_of, axis=0)
    return float(before), float(after)


def _floor(platform: Platform) -> float | None:
    """Error of layouts with several runs, the middle of each known; None where none has."""
    left = [
        same - np.median(same)
        for layout in set(platform.layouts)
        if len(same := platform.residual[platform.layouts == layout]) > 1
    ]
    return _mape(np.concatenate(left)) if left else None


def _why(before: float, after: float, middle: float, floor: float | None) -> str:
    """Why one run leaves more than half of the error."""
    if after <= _HALF * before:
        return "halved"
    if floor is not None and floor > _HALF * before:
        return "runs of one layout differ by more than half of it"
    if middle > _HALF * before:
        return "layouts are off each their own way"
    return "one run is not the middle of its cluster"


def main() -> None:
    unseen = "--unseen" in sys.argv[1:]
    head = ["runs", "layouts", "before", *(f"{n} run{'s' * (n > 1)}" for n in COUNTS), "middle"]
    head.append("floor")
    print(f"| suite, GPU, stack | {' | '.join(head)} | why not halved |")
    print(f"| --- |{' ---: |' * len(head)} --- |")
    ratios = defaultdict(list)
    for name, platform in platforms(unseen=unseen).items():
        results = [learned(platform, count) for count in COUNTS]
        middle = _mape(platform.residual - np.median(platform.residual))
        cells = [results[0][0], *(after for _, after in results), middle]
        for count, (before, after) in zip(COUNTS, results, strict=True):
            ratios[count].append(after / before)
        floor = _floor(platform)
        shown = [f"{100 * x:.1f} %" for x in cells]
        shown.append("-" if floor is None else f"{100 * floor:.1f} %")
        why = _why(*results[0], middle, floor)
        shape = f"{len(platform.residual)} | {len(set(platform.layouts))}"
        print(f"| {name} | {shape} | {' | '.join(shown)} | {why} |", flush=True)
        ratios["middle"].append(middle / results[0][0])  # type: ignore[index]
    for count, pairs in ratios.items():
        r = np.array(pairs)
        print(
            f"{count}: error after over before: geometric mean {np.exp(np.log(r).mean()):.3f},"
            f" median {np.median(r):.3f}; better on {(r < 1).sum()}, halved on"
            f" {(r < _HALF).sum()} of {len(r)}"
        )


if __name__ == "__main__":
    main()
