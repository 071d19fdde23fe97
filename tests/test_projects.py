"""Published totals of whole projects, and what they take over the best plan."""

from __future__ import annotations

import csv
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.evidence import projects
from planner.evidence.spread import Spread
from planner.evidence.whole_run import whole_run
from planner.formulas.run_level import PROJECT_FRAC
from planner.inputs.model import model_spec
from planner.specs.documents.run import Project

REQUEST = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64, "tokens": "1T", "tp": 2, "pp": 1}
REQUEST |= {"zero": 1, "stack": "megatron-core", "recompute": "none", "micro_batch": 1}


def table() -> list[dict[str, str]]:
    with projects.PROJECTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_project_has_a_model_and_a_source() -> None:
    rows = table()
    assert len(rows) >= 40
    assert len({row["team"] for row in rows}) >= 12
    assert len({row["project"] for row in rows}) == len(rows)
    for row in rows:
        spec, _ = model_spec(row["model"])
        run = spec.published.run
        assert row["source"] or (run is not None and run.source), row["project"]
        assert row["status"] in ("quoted", "recalled"), row["project"]
        hours = row["gpu_hours"] or row["days"] or (run and (run.gpu_hours or run.days))
        assert hours, row["project"]


def test_every_project_was_evaluated() -> None:
    result = projects.recorded()
    assert set(result.project.tolist()) == {row["project"] for row in table()}
    assert (result.best_gpu_hours > 0).all()


def test_the_shipped_factors_are_those_of_the_table() -> None:
    usual = projects.usual()
    assert (usual.low, usual.middle, usual.high) == pytest.approx(PROJECT_FRAC, abs=0.006)


def test_projects_of_other_teams_tell_what_a_project_takes() -> None:
    """Four fifths lie in the band of the others, within what 53 of them can tell."""
    kept = projects.inside(projects.recorded())
    assert 0.7 <= kept.mean() <= 0.9


def test_usual_by_hand() -> None:
    """Eleven teams at 1.0 to 2.0: the middle is 1.5; ten more projects of one of them hardly move
    it."""
    ratio = np.linspace(1, 2, 11)
    team = np.array(list("abcdefghijk"))
    first = projects.Totals(team, team, ratio, np.ones(11))
    assert projects.usual_of(first).middle == pytest.approx(1.5)
    more = projects.Totals(
        np.arange(21), np.array([*team, *"a" * 10]), np.array([*ratio, *[1.0] * 10]), np.ones(21)
    )
    assert 1.3 < projects.usual_of(more).middle < 1.5
    assert not projects.inside(first)[[0, -1]].any()


def test_a_project_takes_its_factor_in_all_that_is_proportional() -> None:
    plan, project, stated = (
        api.estimate(api.read_options({**REQUEST, **more}), brief=True).run
        for more in ({}, {"run_as": "project"}, {"run_as": "plan"})
    )
    assert plan == stated
    for name in ("days", "gpu_hours", "cost_usd", "energy_kwh", "co2_kg"):
        assert getattr(project, name) == pytest.approx(PROJECT_FRAC[1] * getattr(plan, name)), name
    assert project.goodput == plan.goodput
    assert (plan.project.counted, project.project.counted) == (False, True)
    assert project.high / project.low > plan.high / plan.low


def test_the_band_of_a_project_is_no_narrower_than_the_step() -> None:
    run: Any = SimpleNamespace(goodput=0.9, failures=3, project=Project(0.8, 1.5, 3.0, True))
    result = whole_run(Spread.of_ends(0.9, 1.1), run, stated=True)
    assert result.ends() == pytest.approx((0.8 / 1.5, 2.0))
    wide = whole_run(Spread.of_ends(0.3, 4.0), run, stated=True)
    assert [math.log(end) for end in wide.ends()] == pytest.approx([math.log(0.3), math.log(4.0)])
