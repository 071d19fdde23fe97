"""Small tables of runs for tests of validate: rows as text, files of them, and entries as if they
had been predicted."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from planner.specs.layout import Layout
from planner.specs.plan import Plan
from planner.studies.documents.validate import Run
from planner.studies.validate import words
from planner.studies.validate.scored import scored

PLAIN = {
    "run_id": "r",
    "suite": "small",
    "gpu": "a100-sxm4-80gb",
    "gpus": "8",
    "gpus_per_node": "8",
    "stack": "megatron-core",
    "layers": "24",
    "hidden": "2048",
    "heads": "16",
    "vocab": "50304",
    "seq_len": "2048",
    "precision": "bf16",
    "tp": "1",
    "pp": "1",
    "dp": "8",
    "zero": "1",
    "micro_batch": "4",
    "global_batch": "64",
    "recompute": "none",
    "step_s": "",
    "peak_memory_gib": "",
    "memory_kind": "",
    "outcome": "ok",
    "options": "",
}


def row(**changes: object) -> dict[str, str]:
    return PLAIN | {name: str(value) for name, value in changes.items()}


def row_plan(cells: dict[str, str]) -> tuple[Plan, Layout]:
    """Plan and layout of the estimate of a row."""
    known = scored(cells)
    return known.estimates.plan, known.estimates.table.layout(0)


def left_open(cells: dict[str, str]) -> tuple[str, ...]:
    """Options of its layout that nothing says."""
    return scored(cells).run.open


def not_expressed(cells: dict[str, str]) -> list[str]:
    """Words that its estimate leaves out."""
    known = scored(cells)
    return words.not_expressed(cells, known.run, known.estimates.plan)


def write(path: Path, *rows: dict[str, str], names: tuple[str, ...] = tuple(PLAIN)) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, names, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    return path


def entry(predicted: float, measured: float | None, **changes: Any) -> Run:
    """A run predicted and measured to take these seconds."""
    given: dict[str, Any] = {
        "run_id": "r",
        "suite": "small",
        "gpu": "g",
        "gpus": 8,
        "stack": "k",
        "model": "m",
        "parameters": 1,
        "tier": "A",
        "architecture": "ampere",
        "family": "megatron",
        "features": {},
        "low_step_s": predicted,
        "high_step_s": predicted,
        "precision": "bf16",
        "experts": 0,
        "task": "pre-training",
        "seq_len": 2048,
        "micro_batch_tokens": 4096.0,
        "predicted_step_s": predicted,
        "measured_step_s": measured,
        "time_error": None,
        "repeat_deviation": None,
        "components": {},
        "phases": {},
        "gpu_busy_s": 0.0,
        "mfu": 0.5,
        "collectives": 0.0,
        "predicted_peak_gib": 1.0,
        "measured_peak_gib": None,
        "memory_error": None,
        "memory_kind": "",
        "not_expressed": "",
        "not_printed": "",
        "command": "",
        "notes": {},
        "predicted_fits": True,
        "fit_chance": 1.0,
        "room": 2.0,
        "need": None,
        "outcome": "ok",
        "group": "g",
        "layout": str(predicted),
    }
    return Run(**given | changes)
