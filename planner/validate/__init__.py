"""Measured runs against predictions: read the columns of a runs table, estimate each row from the row alone, report errors."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from typing import Any

from pydantic import ValidationError

from planner import request
from planner.estimate import Estimates, evaluate
from planner.estimate.table import to_table
from planner.ledger import Array
from planner.specs.base import PlanError
from planner.validate.errors import summarise
from planner.validate.plans import row_model, row_plan
from planner.validate.ranking import LAYOUT, group_of
from planner.validate.rows import KNOWN_OPTIONS, OUTCOMES, REQUIRED, Row, Skip, measured, options_of, read_rows

__all__ = [
    "REQUIRED",
    "Row",
    "predict",
    "read_rows",
    "residual_lines",
    "row_model",
    "row_plan",
    "summarise",
    "validate_rows",
]


def predict(row: Row, calibration: request.Calibration | None = None) -> Estimates:
    """Estimate of one row from the row alone. Raises PlanError or ValueError with the reason where it cannot be expressed."""
    plan, layout = row_plan(row, calibration)
    return evaluate(plan, to_table([layout]))


def _peak_bytes(one: Estimates, kind: str) -> float:
    """The statistic the source measured: torch's counters, or what nvidia-smi shows."""
    m = one.memory
    chosen: Array = {"reserved": m.reserved, "nvidia-smi": m.device}.get(kind, m.peak)
    return float(chosen[0])


def validate_rows(rows: list[Row], calibration: request.Calibration | None = None) -> dict[str, Any]:
    """Predicted against measured for every row: the document of `dpplan validate --json`."""
    done: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for row in rows:
        try:
            outcome = row.get("outcome", "") or "ok"
            if outcome not in OUTCOMES:
                raise Skip(f"outcome is {outcome!r}; it must be one of {', '.join(OUTCOMES)}")
            measured_s, measured_gib = measured(row, "step_s"), measured(row, "peak_memory_gib")
            one = predict(row, calibration)
        except (PlanError, ValueError) as error:
            skipped.append({"run_id": row.get("run_id", ""), "suite": row.get("suite", ""), "reason": _reason(error)})
            continue
        done.append({
            "run_id": row["run_id"], "suite": row["suite"], "gpu": row["gpu"], "gpus": one.plan.cluster.gpus,
            "stack": row["stack"], "tier": row.get("tier", ""),
            "predicted_step_s": float(one.time.seconds[0]),
            "measured_step_s": measured_s,
            "predicted_peak_gib": _peak_bytes(one, row.get("memory_kind", "")) / 2**30,
            "measured_peak_gib": measured_gib,
            "memory_kind": row.get("memory_kind", ""),
            "not_expressed": ";".join(sorted(set(options_of(row)) - KNOWN_OPTIONS)),
            "predicted_fits": bool(one.fits[0]),
            "outcome": outcome,
            "group": group_of(row),
            "layout": "/".join(row.get(name, "") for name in LAYOUT) + "/" + row.get("options", ""),
        })  # fmt: skip
    suites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in done:
        suites[entry["suite"]].append(entry)
    return {
        "schema_version": 1,
        "rows": done,
        "summary": summarise(done),
        "suites": {name: summarise(entries) for name, entries in sorted(suites.items())},
        "skipped": skipped,
    }


def _reason(error: Exception) -> str:
    """One sentence why a row is skipped."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        return f"{key} is {str(first['input'])[:80]!r}: {message}" if key else message
    return " ".join(str(error).split())


def residual_lines(document: dict[str, Any]) -> str:
    """CSV of measured over predicted step time per run, the basis of `planner.uncertainty`."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["run_id", "gpu", "stack", "gpus", "measured_over_predicted"])
    for entry in document["rows"]:
        if entry["measured_step_s"] and entry["outcome"] != "oom":
            ratio = entry["measured_step_s"] / entry["predicted_step_s"]
            lines.writerow([entry["run_id"], entry["gpu"], entry["stack"], entry["gpus"], f"{ratio:.4f}"])
    return out.getvalue()
