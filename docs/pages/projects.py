"""The section of docs/accuracy on whole projects: what published ones took over the best plan."""

from __future__ import annotations

import csv

import numpy as np

from pages.text import percent, table
from planner.evidence import projects
from planner.inputs import catalog
from planner.specs.model import ModelSpec
from planner.units import show


def parts() -> list[str]:
    """Markdown of the section."""
    recorded, usual = projects.recorded(), projects.usual()
    covered, ratio = projects.inside(recorded), np.exp(recorded.log_ratio)
    with projects.PROJECTS.open(encoding="utf-8", newline="") as file:
        known = {row["project"]: row for row in csv.DictReader(file)}
    profiles = {model.name: model.published.run for model in catalog.load_all("models", ModelSpec)}

    def source(project: str) -> str:
        row = known[project]
        run = profiles.get(row["model"])
        text = row["source"] or (run.source if run is not None else "")
        return text if row["status"] == "quoted" else f"{text} (recalled)"

    return [
        "## Plans and projects\n",
        (
            f"Published totals of {len(recorded)} projects of {len(set(recorded.team.tolist()))}"
            " teams over the best plan for the same tokens on the same machines, with today's"
            " software, failures and checkpoints counted. A project takes more for tuning short of"
            " the best, restarts, preemption, growing batches, evaluation and older programs; a"
            " ratio below 1 is a plan that is predicted too slow. The middle project took"
            f" {usual.middle:.2f} times the plan, four fifths {usual.low:.2f} to {usual.high:.2f}"
            " times (quantiles in which projects of one team count less each); in the band of all"
            f" other teams lie {covered.sum()} ({percent(covered.mean(), 0)}). `--as project`"
            " counts it in days, cost and energy. Machines and totals as"
            " `planner/data/projects.csv` and the profiles of models have them; a batch or a number"
            " of GPUs that is not published is the default or such that the run lasts about a"
            " month. Recalled ones were not read again.\n"
        ),
        table(
            ["project", "team", ">GPU-hours", ">best plan", ">ratio", "source"],
            [
                [
                    f"`{recorded.project[i]}`",
                    recorded.team[i],
                    *(
                        show(float(hours[i]), "count")
                        for hours in (recorded.published_gpu_hours, recorded.best_gpu_hours)
                    ),
                    f"{ratio[i]:.2f}",
                    source(str(recorded.project[i])),
                ]
                for i in np.argsort(ratio)
            ],
        ),
    ]
