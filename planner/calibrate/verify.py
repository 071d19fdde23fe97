"""Predicted against measured: what the estimate says of each decoder beside what training it took
and held."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from planner.calibrate.cases import Case
from planner.calibrate.predict import predict
from planner.calibrate.record import Record

STATES = ("parameters", "gradients", "optimizer")
_WHOLE_TENSORS = ("zero1",)  # deals out whole tensors: ranks differ, their sum does not


def compare(
    measured: Sequence[Record],
    *,
    gpu: str,
    ranks: int,
    precision: str,
    calibration: str | None,
    tolerance: float,
    speed: float = 1.0,
) -> dict[str, Any]:
    """The document of `dpplan calibrate --verify --json`. speed: the machine's now over that of its
    calibration, by the probe."""
    rows = [
        one_case(r, gpu=gpu, ranks=ranks, precision=precision, calibration=calibration)
        for r in measured
        if r["kind"] == "step" and not r["used_in_fit"]
    ]
    errors = [abs(row["error"]) for row in rows]
    quiet = all(row["quiet"] for row in rows)
    by_kind: dict[str, list[float]] = {}
    for row in rows:
        by_kind.setdefault(row["case"]["parallel"], []).append(row["error"])
    summary = {
        "n": len(rows),
        "mape": sum(errors) / len(errors) if errors else None,
        "median_ape": median(errors) if errors else None,
        "worst": max(errors, default=None),
        "bias": sum(row["error"] for row in rows) / len(rows) if rows else None,
        "states_exact": all(row["states_exact"] for row in rows),
        "tolerance": tolerance,
        "within": bool(errors) and sum(errors) / len(errors) <= tolerance,
        "parallel": {
            name: {"n": len(e), "mape": sum(map(abs, e)) / len(e), "worst": max(map(abs, e))}
            for name, e in by_kind.items()
        },
    }
    return {
        "schema_version": 1,
        "gpu": gpu,
        "ranks": ranks,
        "precision": precision,
        "calibration": calibration,
        "speed": speed,
        "cases": rows,
        "summary": summary,
        "quiet": quiet,
    }


def one_case(
    r: Record, *, gpu: str, ranks: int, precision: str, calibration: str | None
) -> dict[str, Any]:
    """One decoder: seconds, parts, bytes of each rank."""
    case = Case(**r["case"])
    said = predict(case, gpu=gpu, ranks=ranks, precision=precision, calibration=calibration)
    expected = [sum(one[name] for name in STATES) for one in said["states"]]
    held = [sum(one[name] for name in STATES) for one in r["states"]]
    worst = max(range(len(held)), key=lambda i: held[i])
    # parts are timed in steps of their own: their shares of the undisturbed step count
    scale = r["seconds"] / max(sum(r["parts"].values()), 1e-12)
    parts = {name: scale * seconds for name, seconds in r["parts"].items()}
    communication = said["communication_s"]
    passes = said["step_s"] - said["optimizer_s"] - communication
    return {
        "name": case.name,
        "case": r["case"],
        "used_in_fit": False,
        "quiet": r["quiet"],
        "spread": r["spread"],
        "predicted_step_s": said["step_s"],
        "measured_step_s": r["seconds"],
        "error": said["step_s"] / r["seconds"] - 1,
        "predicted_parts": {
            "forward and backward": passes,
            "optimizer": said["optimizer_s"],
            "communication": communication,
        },
        "measured_parts": {
            "forward": parts["forward"],
            "backward": parts["backward"],
            "optimizer": parts["optimizer"],
        },
        "communication_ratio": communication / max(said["step_s"] - communication, 1e-12),
        "predicted_bytes": expected[min(worst, len(expected) - 1)],
        "measured_bytes": held[worst],
        "predicted_states": said["states"],
        "measured_states": r["states"],
        "states_exact": exact(case, said["states"], r["states"]),
        "predicted_peak_bytes": said["peak_bytes"],
        "measured_peak_bytes": r.get("peak_bytes"),
        "predicted_tokens_per_s": said["tokens_per_s"],
        "measured_tokens_per_s": said["tokens_per_s"] * said["step_s"] / r["seconds"],
    }


def exact(case: Case, said: Sequence[dict[str, float]], held: Sequence[dict[str, float]]) -> bool:
    """Whether every rank holds the bytes that were predicted, to the byte."""
    for name in STATES:
        predicted, found = [one[name] for one in said], [one[name] for one in held]
        if case.parallel in _WHOLE_TENSORS and name == "optimizer":
            if round(sum(predicted)) != sum(found):
                return False
        elif [round(x) for x in predicted] != list(found):
            return False
    return True
