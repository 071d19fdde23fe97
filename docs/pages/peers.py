"""Predictions of other public planners for the shipped runs, beside those by dpplan."""

from __future__ import annotations

import csv
from collections import defaultdict

from pages.accuracy import runs, unseen
from pages.text import ROOT, percent, table
from planner.studies.documents.validate import Run
from planner.studies.validate.errors import errors

# docs/data/peers.csv: each tool as its documentation says, with its shipped hardware (Calculon with
# profiles of our own for GPUs it does not ship); a run is missing where a tool cannot express it
_TOOLS = {
    "zhebrak": "zhebrak/llm-cluster-simulator, 2026-04",
    "calculon": "calculon-ai/calculon, 2024",
    "simumax": "MooreThreads/SimuMax, 2026-05, with its measured efficiencies",
    "llmanalysis": "cli99/llm-analysis 0.5",
}


def _predicted() -> dict[str, dict[str, float]]:
    """Step time in seconds by tool and run."""
    by_tool: dict[str, dict[str, float]] = defaultdict(dict)
    with (ROOT / "docs" / "data" / "peers.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["predicted_step_s"]:
                by_tool[line["tool"]][line["run_id"]] = float(line["predicted_step_s"])
    return by_tool


def _cells(on: list[Run], theirs: dict[str, float]) -> list[str]:
    """Mean and median error of a tool, then ours where numbers were fitted without the suite."""
    peer = errors([theirs[run.run_id] / _measured(run) - 1 for run in on])
    ours = errors([unseen()[run.run_id] / _measured(run) - 1 for run in on])
    return [percent(value) for value in (peer.mape, peer.median_ape, ours.mape, ours.median_ape)]


def _measured(run: Run) -> float:
    assert run.measured_step_s is not None
    return run.measured_step_s


def page() -> str:
    """One line per tool, over the runs that it expresses, and over those that all of them do."""
    predicted = _predicted()
    complete = [run for run in runs() if run.run_id in unseen()]
    common = [run for run in complete if all(run.run_id in predicted[tool] for tool in _TOOLS)]
    rows = []
    for tool, title in _TOOLS.items():
        on = [run for run in complete if run.run_id in predicted[tool]]
        same = _cells(common, predicted[tool])
        rows.append([title, f"{len(on):,}", *_cells(on, predicted[tool]), same[0], same[2]])
    header = [
        "planner",
        ">runs it expresses",
        ">its mean error",
        ">its median",
        ">dpplan's mean",
        ">dpplan's median",
        f">its mean on {len(common)} that all express",
        ">dpplan's",
    ]
    return (
        table(header, rows)
        + "\nStep time of shipped runs. dpplan's come from numbers fitted without the run's"
        " suite; its defaults were chosen with these runs in view, those of the others were"
        " not.\n"
    )
