"""Measured runs against predictions: read the columns of a runs table, estimate each row from the
row alone, report errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner.estimate import Estimates, evaluate
from planner.estimate.columns import to_table
from planner.formulas.params import parameter_count
from planner.inputs.calibration import Calibration, read_calibration
from planner.ledger import Array
from planner.show.validate_page import page
from planner.specs.base import PlanError, sentence
from planner.verbs.validate.ablation import ablations
from planner.verbs.validate.bands import coverage
from planner.verbs.validate.crossval import cross_validate, without_each_suite
from planner.verbs.validate.errors import kinds, recipe_of, repeat_deviations, summarise
from planner.verbs.validate.files import read_all, residual_lines, run_lines
from planner.verbs.validate.fit import cases
from planner.verbs.validate.plans import row_model, row_plan
from planner.verbs.validate.ranking import busy_s, collectives, group_of, groups_of, layout_of
from planner.verbs.validate.rows import (
    KNOWN_OPTIONS,
    OUTCOMES,
    REQUIRED,
    Row,
    Skip,
    measured,
    options_of,
    read_rows,
)

__all__ = [
    "REQUIRED",
    "Row",
    "ablations",
    "cases",
    "coverage",
    "cross_validate",
    "page",
    "predict",
    "read_all",
    "read_rows",
    "residual_lines",
    "row_model",
    "row_plan",
    "run_lines",
    "summarise",
    "validate",
    "validate_rows",
]


def predict(row: Row, calibration: Calibration | None = None) -> Estimates:
    """Estimate of one row from the row alone. Raises PlanError or ValueError with the reason where
    it cannot be expressed."""
    plan, layout = row_plan(row, calibration)
    return evaluate(plan, to_table([layout]))


def _peak_bytes(one: Estimates, kind: str) -> float:
    """The statistic the source measured, of the rank it printed: torch's counters, or what
    nvidia-smi shows."""
    m = one.memory
    printed = (
        0 if one.plan.stack.peak_of == "first stage" else int(np.argmax(m.stage_reserved[:, 0]))
    )
    outside = float(m.context[0] + m.communicators[0]) if kind == "nvidia-smi" else 0.0
    statistic: Array = m.stage_reserved if kind in ("reserved", "nvidia-smi") else m.stage_peaks
    return float(statistic[printed, 0]) + outside


def validate_rows(rows: list[Row], calibration: Calibration | None = None) -> dict[str, Any]:
    """Predicted against measured for every row: the document of `dpplan validate --json`."""
    return _validated(rows, calibration)[0]


def _validated(
    rows: list[Row], calibration: Calibration | None
) -> tuple[dict[str, Any], list[Row]]:
    """The document, and the rows that its `rows` belong to."""
    done: list[dict[str, Any]] = []
    kept: list[Row] = []
    recipes: list[str] = []
    skipped: list[dict[str, str]] = []
    for row in rows:
        try:
            outcome = row.get("outcome", "") or "ok"
            if outcome not in OUTCOMES:
                raise Skip(f"outcome is {outcome!r}; it must be one of {', '.join(OUTCOMES)}")
            measured_s, measured_gib = measured(row, "step_s"), measured(row, "peak_memory_gib")
            one = predict(row, calibration)
        except (PlanError, ValueError) as error:
            skipped.append(
                {
                    "run_id": row.get("run_id", ""),
                    "suite": row.get("suite", ""),
                    "reason": _reason(error),
                }
            )
            continue
        ran = outcome != "oom"
        predicted_s, predicted_gib = (
            float(one.time.seconds[0]),
            _peak_bytes(one, row.get("memory_kind", "")) / 2**30,
        )
        components = {
            name: float(np.asarray(leaf).reshape(-1)[0])
            for name, leaf in one.time.components.items()
        }
        recipes.append(recipe_of(row))
        kept.append(row)
        done.append(
            {
                "run_id": row["run_id"],
                "suite": row["suite"],
                "gpu": row["gpu"],
                "gpus": one.plan.cluster.gpus,
                "stack": row["stack"],
                "model": one.plan.model.name,
                "parameters": parameter_count(one.plan.model),
                "tier": row.get("tier", ""),
                "architecture": one.plan.cluster.gpu.architecture,
                "precision": one.plan.training.precision,
                "experts": one.plan.model.moe.experts if one.plan.model.moe else 0,
                "micro_batch_tokens": float(
                    one.table["micro_batch"][0] * one.plan.training.seq_len / one.table["cp"][0]
                ),
                "predicted_step_s": predicted_s,
                "measured_step_s": measured_s,
                "time_error": predicted_s / measured_s - 1 if measured_s and ran else None,
                "unseen_step_s": None,
                "repeat_deviation": None,
                "components": components,
                "gpu_busy_s": busy_s(one.time),
                "collectives": collectives(one.time),
                "predicted_peak_gib": predicted_gib,
                "measured_peak_gib": measured_gib,
                "memory_error": predicted_gib / measured_gib - 1 if measured_gib and ran else None,
                "memory_kind": row.get("memory_kind", ""),
                "not_expressed": ";".join(sorted(set(options_of(row)) - KNOWN_OPTIONS)),
                "predicted_fits": bool(one.fits[0]),
                "outcome": outcome,
                "group": group_of(row),
                "layout": layout_of(row),
            }
        )
    times = [entry["measured_step_s"] if entry["outcome"] != "oom" else None for entry in done]
    for entry, deviation in zip(done, repeat_deviations(recipes, times), strict=True):
        entry["repeat_deviation"] = deviation
    suites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in done:
        suites[entry["suite"]].append(entry)
    summary = summarise(done)
    noise = summary["noise"]["mean"] or 0.0
    document = {
        "schema_version": 1,
        "rows": done,
        "summary": summary,
        "suites": {name: summarise(entries, noise) for name, entries in sorted(suites.items())},
        "kinds": kinds(done),
        "groups": groups_of(done, noise),
        "skipped": skipped,
    }
    return document, kept


def validate(
    paths: Sequence[Path] = (),
    calibration: str | None = None,
    suites: Sequence[str] = (),
    *,
    with_coverage: bool = False,
    with_ablations: bool = False,
    with_cross_validation: bool = False,
    with_unseen: bool = False,
) -> dict[str, Any]:
    """The document for these files (the shipped runs where none is named), and what else was asked
    for.

    with_unseen: each row also by shared numbers fitted on all other suites, which coverage and
    cross-validation imply.
    """
    rows = read_all(paths, suites)
    measured_node = read_calibration(calibration) if calibration else None
    document, kept = _validated(rows, measured_node)
    if with_cross_validation or with_coverage or with_unseen:
        ran = [e["measured_step_s"] is not None and e["outcome"] != "oom" for e in document["rows"]]
        found = cases([row for row, one in zip(kept, ran, strict=True) if one], measured_node)
        if with_cross_validation:
            crossed = cross_validate(found, document["summary"]["noise"]["mean"] or 0.0)
            document["cross_validation"] = crossed
            seconds = [row["predicted_step_s"]["suites"] for row in crossed["rows"]]
        else:
            seconds = without_each_suite(found)[0].tolist()
        for entry, unseen in zip(
            (e for e, one in zip(document["rows"], ran, strict=True) if one), seconds, strict=True
        ):
            entry["unseen_step_s"] = unseen
    if with_coverage:
        document["coverage"] = coverage(document["rows"])
    if with_ablations:
        document["ablations"] = ablations(rows, measured_node)
    return document


def _reason(error: Exception) -> str:
    """One sentence why a row is skipped."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        message = sentence(first["msg"])
        return f"{key} is {str(first['input'])[:80]!r}: {message}" if key else message
    return " ".join(str(error).split())
