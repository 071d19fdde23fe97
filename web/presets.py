"""Published runs as presets: a state of the page, and what was measured with it. The file is made
of the rows of planner/studies/data/runs by benchmarks/presets.py."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from planner import api
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.units import percent, show
from web.state import Pairs

FILE = Path(api.__file__).parent / "data" / "presets.csv"


@dataclass(frozen=True)
class Preset:
    """A published run."""

    run_id: str
    title: str
    query: str
    step_s: float
    source: str
    source_ref: str

    @property
    def pairs(self) -> Pairs:
        """The options as pairs of an address."""
        return parse_qsl(self.query)

    @property
    def instead(self) -> tuple[str, str] | None:
        """The model that the run names and the title of the one of the catalogue that it opens
        with, where these are not the same."""
        named, chosen = self.title.rpartition(" on ")[0], dict(self.pairs)["model"]
        try:
            if catalog.find("models", named).stem == chosen:
                return None
        except PlanError:  # a name that the catalogue has none of
            pass
        titles = {entry.id: entry.title for entry in api.list_catalog("models")}
        return named, titles[chosen]

    @property
    def measured(self) -> str:
        """The measured step for people."""
        return show(self.step_s, "s")


@cache
def presets() -> dict[str, Preset]:
    """Every preset by the id of its run."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = [dict(row) for row in csv.DictReader(file)]
    runs = [Preset(step_s=float(row.pop("step_s")), **row) for row in rows]
    return {run.run_id: run for run in runs}


def preset(run_id: str) -> Preset:
    """One preset. Raises PlanError where there is none of this id."""
    run = presets().get(run_id)
    if run is None:
        raise PlanError("preset", run_id[:50], "is not a published run here; /presets lists them")
    return run


def shown(run_id: str, predicted_s: float) -> dict[str, Any]:
    """A preset as the page shows it: measurement, error of the answer, neighbours."""
    run, ids = preset(run_id), list(presets())
    at = ids.index(run_id)
    return {
        "run": run,
        "instead": run.instead,
        "off": percent(predicted_s / run.step_s - 1, 1, sign=True),
        "predicted": show(predicted_s, "s"),
        "before": ids[at - 1],
        "next": ids[(at + 1) % len(ids)],
    }
