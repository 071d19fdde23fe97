"""A row of a runs table in the place of a recipe: its options, and those typed beside it, which
win."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.formats.plan import Planned, settled
from planner.formats.recipe import FIELD, Recipe
from planner.specs.base import PlanError
from planner.specs.options import Given
from planner.studies.runs.cells import Skip
from planner.studies.runs.read import read
from planner.studies.validate.reinforcement import is_phased, requested
from planner.studies.validate.rows import SHIPPED, read_rows

_TABLE = ".csv:"  # before the id of a run, as in runs.csv:a-0001


def planned(names: tuple[str, ...], given: Mapping[str, Any]) -> Planned:
    """The request of `FILE.csv:RUN`; a table that is not here is one that ships. Raises
    PlanError."""
    name = names[0]
    if len(names) > 1:
        raise PlanError(FIELD, " ".join(names), "is a run and other files; keep one")
    stem, _, run_id = name.partition(_TABLE)
    path = Path(f"{stem}.csv")
    if not path.is_file() and (SHIPPED / path.name).is_file():
        path = SHIPPED / path.name
    known = {row["run_id"]: row for row in read_rows(path)}
    if run_id not in known:
        near = ", ".join(difflib.get_close_matches(run_id, known, n=3) or list(known)[:3])
        raise PlanError(FIELD, name, f"has no run {run_id!r}; it has {near}")
    row = known[run_id]
    try:
        if is_phased(row):
            remedy = "is a run of reinforcement learning, whose step another command plans"
            raise PlanError(FIELD, name, f"{remedy}: {requested(row).command}")
        run = read(row)
    except Skip as why:
        raise PlanError(FIELD, name, f"cannot be a request: {why}") from None
    origins = {
        option: replace(one, where=f"row {run_id} of {path.name}, {one.where}")
        for option, one in run.options.origins.items()
    }
    options = {**run.options.given(), "gpus": run.options.gpus}  # one is the default, and said
    recipe = Recipe(("run",), options, run.arguments, run.stated)
    return settled(recipe, Given(options, origins), Given(given))
