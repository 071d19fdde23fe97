"""Cross-validation: predictions of measured runs by numbers fitted without them, leaving out whole models, GPU counts or suites."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from planner.ledger import Array
from planner.validate.errors import errors
from planner.validate.fit import CLOCK_ONLY, PLATFORM, SHARED, Case, Parameter, Value, fit, log_time, moved, suite_weights
from planner.validate.ranking import group_of, groups_of, layout_of, ranking

_LARGE = 64  # GPUs: platforms are fitted up to here and judged beyond

Fold = Callable[[Case], str]

FOLDS: dict[str, tuple[str, Fold]] = {
    "halves": ("each half of a platform's runs by the other, drawn by run id", lambda c: str(crc32(c.row["run_id"].encode()) % 2)),
    "models": ("each model by the platform's other models", lambda c: f"{c.plan.model.layers}/{c.plan.model.hidden}"),
    "gpus": ("each number of GPUs by the platform's other numbers", lambda c: str(c.plan.cluster.gpus)),
    "scale": (f"runs on more than {_LARGE} GPUs by those on up to {_LARGE}",
              lambda c: "large" if c.plan.cluster.gpus > _LARGE else "small"),
}  # fmt: skip


def cross_validate(found: Sequence[Case]) -> dict[str, Any]:
    """All tables: platforms fitted on part of their own runs, and defaults fitted on all other suites."""
    platforms = _by_platform(found)
    problems = {name: fit(members, PLATFORM)[0] for name, members in platforms.items()}
    out: dict[str, Any] = {
        "defaults": _table(found, np.array([log_time(c, c.numbers) for c in found]), np.ones(len(found), bool)),
    }
    for name, (_, fold) in FOLDS.items():
        predicted, held_out = _within(found, platforms, problems, PLATFORM, fold, only="large" if name == "scale" else None)
        out[name] = _table(found, predicted, held_out)
    one = {name: fit(members, CLOCK_ONLY) for name, members in platforms.items()}
    clocks = {v.label: v for name, (_, values) in one.items() for v in [_named(values[0], name)]} if found else {}
    out["clock"] = _table(found, _whole(found, platforms, {n: p for n, (p, _) in one.items()}, CLOCK_ONLY), np.ones(len(found), bool))
    predicted, values = without_each_suite(found)
    out["suites"] = _table(found, predicted, np.ones(len(found), bool))
    out["parameters"] = [_shown(v) for v in values]
    out["clocks"] = [_shown(v) for v in clocks.values()]
    return out


DESCRIPTIONS = {
    "defaults": "shipped defaults, nothing fitted here",
    **{name: text for name, (text, _) in FOLDS.items()},
    "clock": "one clock per platform, fitted on all of its runs",
    "suites": "each suite by defaults fitted on all other suites",
}


def without_each_suite(found: Sequence[Case]) -> tuple[Array, list[Value]]:
    """Log step time of each case by shared numbers fitted on all other suites, and the values fitted on all suites."""
    weight = suite_weights(found)
    problem, values = fit(found, SHARED, weight)
    suites = np.array([case.row["suite"] for case in found])
    predicted = np.zeros(len(found))
    for suite in sorted(set(suites)):
        inside = suites == suite
        multipliers, _ = problem.solve(np.where(inside, 0.0, weight))
        for i in np.flatnonzero(inside):
            predicted[i] = log_time(found[i], moved(found[i], SHARED, multipliers))
    return predicted, values


def _by_platform(found: Sequence[Case]) -> dict[str, list[Case]]:
    out: dict[str, list[Case]] = defaultdict(list)
    for case in found:
        out[case.platform].append(case)
    return dict(sorted(out.items()))


def _within(found: Sequence[Case], platforms: dict[str, list[Case]], problems: dict[str, Any], parameters: Sequence[Parameter],
            fold: Fold, only: str | None = None) -> tuple[Array, Array]:  # fmt: skip
    """Held-out log step times, and which cases could be held out (their platform has more than one fold)."""
    index = {id(case): i for i, case in enumerate(found)}
    predicted, held_out = np.zeros(len(found)), np.zeros(len(found), bool)
    for name, members in platforms.items():
        names = np.array([fold(case) for case in members])
        for one in sorted(set(names)) if len(set(names)) > 1 else []:
            if only is not None and one != only:
                continue
            multipliers, _ = problems[name].solve(np.where(names == one, 0.0, 1.0))
            for j in np.flatnonzero(names == one):
                i = index[id(members[j])]
                predicted[i], held_out[i] = log_time(members[j], moved(members[j], parameters, multipliers)), True
    return predicted, held_out


def _whole(found: Sequence[Case], platforms: dict[str, list[Case]], problems: dict[str, Any],
           parameters: Sequence[Parameter]) -> Array:  # fmt: skip
    multipliers = {name: problems[name].solve(np.ones(len(members)))[0] for name, members in platforms.items()}
    return np.array([log_time(case, moved(case, parameters, multipliers[case.platform])) for case in found])


def _table(found: Sequence[Case], predicted: Array, held_out: Array) -> dict[str, Any]:
    """Errors of the held-out cases: all, tier A, mean over suites, each suite, and the ranking of layouts."""
    suites: dict[str, list[float]] = defaultdict(list)
    tier_a: dict[str, list[float]] = defaultdict(list)
    entries = []
    for i in np.flatnonzero(held_out):
        case = found[i]
        error = float(np.exp(predicted[i] - case.log_seconds) - 1)
        suites[case.row["suite"]].append(error)
        if case.row.get("tier", "") == "A":
            tier_a[case.row["suite"]].append(error)
        entries.append({
            "run_id": case.row["run_id"], "suite": case.row["suite"], "group": group_of(case.row), "layout": layout_of(case.row),
            "predicted_step_s": float(np.exp(predicted[i])), "measured_step_s": float(np.exp(case.log_seconds)),
            "gpu_busy_s": 0.0, "collectives": 0.0, "outcome": "ok",
        })  # fmt: skip
    return {
        "all": _errors(suites),
        "tier_a": _errors(tier_a),
        "suites": {name: errors(each) for name, each in sorted(suites.items())},
        "ranking": ranking(groups_of(entries, 0.0)),
    }


def _errors(suites: dict[str, list[float]]) -> dict[str, Any]:
    each = [float(errors(found)["mape"]) for found in suites.values()]
    return {**errors([e for found in suites.values() for e in found]), "mean_of_suites": sum(each) / len(each) if each else None}


def _named(value: Value, platform: str) -> Value:
    return Value(value.parameter, f"{value.label} {platform}", value.multiplier, value.spread, value.runs, value.on_bound)


def _shown(value: Value) -> dict[str, Any]:
    return {
        "name": value.label, "meaning": value.parameter.meaning, "multiplier": value.multiplier, "spread": value.spread,
        "runs": value.runs, "low": value.parameter.low, "high": value.parameter.high, "on_bound": value.on_bound,
    }  # fmt: skip
