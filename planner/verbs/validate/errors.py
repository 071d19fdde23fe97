"""Errors over rows: mean, median, bias and worst of step time and memory, out-of-memory rows called
right, the noise floor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from planner.verbs.validate.ranking import groups_of, ranking
from planner.verbs.validate.rows import Row

# columns that say who measured and what came out; two runs equal in all others are one recipe
# measured twice
_NOT_RECIPE = (
    "run_id",
    "source",
    "source_ref",
    "assumptions",
    "tier",
    "step_s",
    "peak_memory_gib",
    "memory_kind",
)


def summarise(entries: list[dict[str, Any]], noise: float | None = None) -> dict[str, Any]:
    """Errors of step time and memory, out-of-memory rows called right, ranking over groups, and the
    noise floor.

    noise: the noise floor that decides ties; by default that of these entries.
    """
    ran = [e for e in entries if e["outcome"] != "oom"]
    times = [e["predicted_step_s"] / e["measured_step_s"] - 1 for e in ran if e["measured_step_s"]]
    peaks = [
        e["predicted_peak_gib"] / e["measured_peak_gib"] - 1 for e in ran if e["measured_peak_gib"]
    ]
    oom = [e for e in entries if e["outcome"] == "oom"]
    floor = noise_floor(entries)
    groups = groups_of(ran, floor["mean"] or 0.0 if noise is None else noise)
    return {
        "time": errors(times),
        "memory": errors(peaks),
        "oom": {"n": len(oom), "right": sum(not e["predicted_fits"] for e in oom)},
        "ran": {"n": len(ran), "right": sum(e["predicted_fits"] for e in ran)},
        "ranking": ranking(groups),
        "noise": floor,
    }


_SHORT = 1024  # tokens per micro-batch and rank up to which launches and small kernels weigh most

# kinds of runs whose errors are reported apart
KINDS: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
    ("all", lambda e: True),
    ("tier A", lambda e: bool(e["tier"] == "A")),
    ("tier B", lambda e: bool(e["tier"] == "B")),
    ("mixture of experts", lambda e: bool(e["experts"] > 0)),
    ("fp8", lambda e: bool(e["precision"] == "fp8")),
    ("Volta", lambda e: bool(e["architecture"] == "volta")),
    (f"up to {_SHORT} tokens per micro-batch", lambda e: bool(e["micro_batch_tokens"] <= _SHORT)),
    ("more than 128 GPUs", lambda e: bool(e["gpus"] > 128)),
)


def kinds(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors of step time of each kind of run, over its runs and as mean over its suites."""
    out = {}
    for name, belongs in KINDS:
        suites: dict[str, list[float]] = defaultdict(list)
        for entry in entries:
            if entry["time_error"] is not None and belongs(entry):
                suites[entry["suite"]].append(entry["time_error"])
        each = [float(errors(found)["mape"]) for found in suites.values()]
        out[name] = {
            **errors([x for found in suites.values() for x in found]),
            "suites": len(each),
            "mape_of_suites": sum(each) / len(each) if each else None,
        }
    return out


def errors(relative: list[float]) -> dict[str, Any]:
    """n, mean and median absolute percentage error, bias (median signed error) and the worst, all
    as fractions."""
    if not relative:
        return {"n": 0, "mape": None, "median_ape": None, "bias": None, "worst": None}
    absolute = sorted(abs(x) for x in relative)
    return {
        "n": len(relative),
        "mape": sum(absolute) / len(absolute),
        "median_ape": median(absolute),
        "bias": median(sorted(relative)),
        "worst": max(relative, key=abs),
    }


def median(ordered: list[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def recipe_of(row: Row) -> str:
    """Everything a row says about a run but who measured it and what came out."""
    return "|".join(
        f"{name}={value}"
        for name, value in sorted(row.items())
        if value and name not in _NOT_RECIPE
    )


def repeat_deviations(recipes: list[str], seconds: list[float | None]) -> list[float | None]:
    """Deviation of each time from the median of its recipe; None where a recipe was measured
    once."""
    found: dict[str, list[float]] = defaultdict(list)
    for recipe, value in zip(recipes, seconds, strict=True):
        if value:
            found[recipe].append(value)
    middle = {recipe: median(sorted(values)) for recipe, values in found.items() if len(values) > 1}
    return [
        value / middle[recipe] - 1 if value and recipe in middle else None
        for recipe, value in zip(recipes, seconds, strict=True)
    ]


def noise_floor(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """How far repeats of one recipe lie from their median: what no prediction can be expected to
    undercut."""
    found = sorted(
        abs(e["repeat_deviation"]) for e in entries if e.get("repeat_deviation") is not None
    )
    if not found:
        return {"n": 0, "mean": None, "median": None, "worst": None}
    return {
        "n": len(found),
        "mean": sum(found) / len(found),
        "median": median(found),
        "worst": found[-1],
    }
