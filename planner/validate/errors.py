"""Errors over rows: mean, median, bias and worst of step time and memory, and out-of-memory rows called right."""

from __future__ import annotations

from typing import Any

from planner.validate.ranking import ranking


def summarise(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors of step time and memory, out-of-memory rows called right, and ranking over groups."""
    ran = [e for e in entries if e["outcome"] != "oom"]
    times = [e["predicted_step_s"] / e["measured_step_s"] - 1 for e in ran if e["measured_step_s"]]
    peaks = [e["predicted_peak_gib"] / e["measured_peak_gib"] - 1 for e in ran if e["measured_peak_gib"]]
    oom = [e for e in entries if e["outcome"] == "oom"]
    return {
        "time": errors(times),
        "memory": errors(peaks),
        "oom": {"n": len(oom), "right": sum(not e["predicted_fits"] for e in oom)},
        "ran": {"n": len(ran), "right": sum(e["predicted_fits"] for e in ran)},
        "ranking": ranking(ran),
    }


def errors(relative: list[float]) -> dict[str, Any]:
    """n, mean and median absolute percentage error, bias (median signed error) and the worst, all as fractions."""
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
