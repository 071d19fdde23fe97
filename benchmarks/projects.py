"""Published totals of GPU-hours against the best plan for the same tokens on the same machines.

Writes planner/data/project_ratios.csv from planner/data/projects.csv, whose empty cells are those
of `published` of the model's profile, and prints how well projects of other teams tell what one
takes. Minutes of a core.

    python benchmarks/projects.py            from the recorded ratios
    python benchmarks/projects.py --write    evaluate every project first
"""

from __future__ import annotations

import argparse
import csv

import numpy as np

from planner import api
from planner.error import PlanError
from planner.evidence import projects
from planner.inputs import catalog
from planner.inputs.tables import csv_text
from planner.specs.model import ModelSpec
from planner.specs.published import PublishedRun

_DAY_H = 24.0
_NODE = 8
_MONTH_H = 30 * _DAY_H  # a run whose number of GPUs is not published is taken to last so long


def read() -> list[dict[str, str]]:
    """The table of projects, with what the profiles of their models say where it says nothing."""
    known = {model.name: model.published.run for model in catalog.load_all("models", ModelSpec)}
    with projects.PROJECTS.open(encoding="utf-8", newline="") as file:
        return [_filled(row, known.get(row["model"])) for row in csv.DictReader(file)]


def _filled(row: dict[str, str], run: PublishedRun | None) -> dict[str, str]:
    if run is not None:
        for name in ("gpu", "gpus", "gpu_hours", "days", "tokens", "source"):
            value = getattr(run, name)
            if not row[name] and value is not None and not (name == "days" and row["gpu_hours"]):
                row[name] = f"{value:.12g}" if isinstance(value, float) else str(value)
    if not row["gpu_hours"]:
        row["gpu_hours"] = f"{float(row['gpus']) * float(row['days']) * _DAY_H:.6g}"
    return row


def request(row: dict[str, str]) -> dict[str, object]:
    """Options of the best plan for a project."""
    nodes = float(row["gpu_hours"]) / _MONTH_H / _NODE
    gpus = row["gpus"] or str(_NODE * 2 ** max(0, round(float(np.log2(nodes)))))
    names = ("model", "gpu", "tokens", "global_batch", "seq_len", "precision")
    return {"gpus": int(gpus), **{name: row[name] for name in names if row[name]}}


def ratio(row: dict[str, str]) -> list[str] | None:
    """A line of the file: the project with the GPU-hours of the best plan."""
    try:
        given: dict[str, object] = request(row)
        for name in ("global_batch", "seq_len"):
            if name in given:
                given[name] = int(str(given[name]))
        answer = api.estimate(api.read_options(given), brief=True)
    except PlanError as error:
        print(f"{row['project']}: {error}")
        return None
    hours = answer.run.gpu_hours
    assert hours is not None
    fits = "" if answer.memory.fits else "  (does not fit)"
    line = [row["project"], row["team"], f"{float(row['gpu_hours']):.6g}", f"{hours:.6g}"]
    print(*line, f"{float(row['gpu_hours']) / hours:.2f}{fits}", flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="evaluate every project first")
    if parser.parse_args().write:
        lines = [line for row in read() if (line := ratio(row)) is not None]
        text = csv_text(list(projects.RATIO_COLUMNS), lines)
        projects.RATIOS.write_text(text, encoding="utf-8")
        projects.forget()
    recorded, usual = projects.recorded(), projects.usual()
    print(f"{len(recorded)} projects of {len(set(recorded.team.tolist()))} teams")
    print(f"over best: {usual.low:.2f}, {usual.middle:.2f}, {usual.high:.2f}")
    covered = projects.inside(recorded)
    print(
        f"inside the band of other teams: {covered.sum()} of {len(covered)} ({covered.mean():.0%})"
    )


if __name__ == "__main__":
    main()
