"""A swept number followed: scaling efficiency, the point where more GPUs stop paying, and what of a
step shrinks with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.formulas import scaling as formulas
from planner.report.layout import Report

_FEWEST = 3  # points of a fit with two unknowns that leave a residual


def curve(
    axis: str, label: str, rows: Sequence[tuple[float, Report]], scaling: str, stop_below: float
) -> Report:
    """One line of a sweep.

    rows: (value on the axis, point document), ascending; what does not fit or was refused stays in
    `points` without figures.
    """
    fitting = [(value, row) for value, row in rows if row.get("memory", {}).get("fits")]
    out: Report = {
        "label": label,
        "axis": axis,
        "points": [_point(value, row) for value, row in rows],
    }
    out |= {"amdahl": None, "parts": None, "pays_until": None, "stops_at": None, "best": None}
    if not fitting:
        return out
    best = max(fitting, key=lambda x: x[1]["throughput"]["tokens_per_s_per_gpu"])
    out["best"] = best[0]
    if axis != "gpus":
        return out
    follow(out["points"])
    kept, stops = pays(out["points"], stop_below)
    out["pays_until"], out["stops_at"] = kept, stops
    if len(fitting) > 1:
        out["parts"] = parts(fitting[0], fitting[-1], scaling)
    if scaling == "strong" and len(fitting) >= _FEWEST:
        out["amdahl"] = amdahl([(value, row["step"]["seconds"]) for value, row in fitting])
    return out


def _point(value: float, row: Report) -> Report:
    if not row.get("memory", {}).get("fits"):
        return {"value": value, "fits": False, "why": row["refused"] or "does not fit"}
    run = row["run"]
    return {
        "value": value,
        "fits": True,
        "step_seconds": row["step"]["seconds"],
        "tokens_per_s": row["throughput"]["tokens_per_s"],
        "tokens_per_s_per_gpu": row["throughput"]["tokens_per_s_per_gpu"],
        "mfu": row["throughput"]["mfu"],
        "days": run["days"],
        "cost_usd": run["cost_usd"],
        "bottleneck": row["step"]["bottleneck"],
    }


def follow(points: Sequence[Report], rate: str = "tokens_per_s") -> None:
    """Add efficiency, speed-up and what each added GPU brings, all of the quantity `rate`, to the
    points that fit."""
    fitting = [p for p in points if p["fits"]]
    first = before = fitting[0]
    for p in fitting:
        here, gpus = p[rate], p["value"]
        p["speed_up"] = here / first[rate]
        p["efficiency"] = float(formulas.efficiency(here, gpus, first[rate], first["value"]))
        p["marginal_frac"] = (
            None
            if p is first
            else float(
                formulas.marginal_frac(
                    here, gpus, before[rate], before["value"], first[rate], first["value"]
                )
            )
        )
        before = p


def pays(points: Sequence[Report], stop_below: float) -> tuple[float, float | None]:
    """(largest count up to which each added GPU brings `stop_below` of what one brought at the
    first, first that does not)."""
    fitting = [p for p in points if p["fits"]]
    until = fitting[0]["value"]
    for p in fitting[1:]:
        if p["marginal_frac"] < stop_below:
            return until, p["value"]
        until = p["value"]
    return until, None


def amdahl(times: Sequence[tuple[float, float]]) -> Report:
    """Serial and parallel seconds fitted to (GPUs, step seconds), with what the fit misses."""
    gpus, seconds = (np.array(column) for column in zip(*times, strict=True))
    serial, parallel = formulas.amdahl_fit(gpus, seconds)
    fitted = formulas.amdahl_s(serial, parallel, gpus)
    missed = fitted / seconds - 1
    return {
        "serial_s": serial,
        "parallel_gpu_s": parallel,
        "serial_share_at_last": serial / float(fitted[-1]),
        "most_speed_up": float(seconds[0] / serial) if serial > 0 else None,
        "points": [
            {
                "value": float(n),
                "step_seconds": float(t),
                "fitted_s": float(f),
                "residual_frac": float(r),
            }
            for n, t, f, r in zip(gpus, seconds, fitted, missed, strict=True)
        ],
        "worst_residual_frac": float(missed[np.abs(missed).argmax()]),
    }


def parts(first: tuple[float, Report], last: tuple[float, Report], scaling: str) -> Report:
    """Each component of the step at the first and the last count: what shrinks as it should, and
    what is left over.

    ideal: the first count's seconds, divided by the growth in GPUs under a fixed batch; excess:
    what the last count takes beyond.
    exponent: of seconds ~ GPUs ^ exponent between the two; -1 shrinks with the GPUs, 0 does not.
    Sums hold for every column.
    """
    growth = last[0] / first[0]
    divide = growth if scaling == "strong" else 1.0
    a, b = (row["step"]["components"] for row in (first[1], last[1]))
    names = [*a, *(name for name in b if name not in a)]
    lines = {}
    for name in names:
        before, after = a.get(name, 0.0), b.get(name, 0.0)
        exponent = (
            math.log(after / before) / math.log(growth)
            if before > 0 and after > 0 and growth != 1
            else None
        )
        ideal = before / divide
        lines[name] = {
            "first_s": before,
            "last_s": after,
            "ideal_s": ideal,
            "excess_s": after - ideal,
            "exponent": exponent,
        }
    ideal = sum(line["ideal_s"] for line in lines.values())
    whole = sum(line["last_s"] for line in lines.values())
    return {
        "first": first[0],
        "last": last[0],
        "components": lines,
        "ideal_s": ideal,
        "excess_s": whole - ideal,
    }
