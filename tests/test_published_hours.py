"""GPU hours of published runs beside the hours of dpplan's picks (docs/log/search.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.published_hours import hours
from planner.inputs import catalog
from planner.specs.model import ModelSpec

ROOT = Path(__file__).parents[1]
HOURS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "log" / "search.md").read_text().splitlines()
    if line.count("|") == 9 and line.split("|")[1].strip() in catalog.ids("models")
]


def test_published_hours_are_those_of_the_models() -> None:
    assert {"deepseek-v3", "llama-3.1-405b", "llama-4-scout", "gpt-oss-120b"} <= {
        row[0] for row in HOURS
    }
    runs = {model.name: model.published.run for model in catalog.load_all("models", ModelSpec)}
    for name, gpus, _, published, *_ in HOURS:
        run, (count, gpu) = runs[name], gpus.split(" ")
        assert run is not None
        assert run.gpu_hours == pytest.approx(float(published.split()[0]) * 1e6, rel=0.01), name
        assert run.gpus in (None, int(count.replace(",", ""))), name
        assert str(run.gpu).startswith(gpu), name


@pytest.mark.parametrize("name", ["llama-7b", "llama-3.1-405b"])
def test_hours_of_picks_are_those_of_the_table(name: str) -> None:
    (row,) = (row for row in HOURS if row[0] == name)
    model = next(each for each in catalog.load_all("models", ModelSpec) if each.name == name)
    taken = hours(model, int(row[1].split()[0].replace(",", "")), float(row[2]) * 1e12)
    assert taken == pytest.approx(float(row[4].split()[0]) * 1e6, rel=0.01)
