"""Quotations of sources are right: numbers of a table stand in the text it quotes, and phrases of
ours hold what the passage says."""

from __future__ import annotations

import csv
import re
import tomllib
from typing import Any

import pytest
from command import ROOT

from planner.evidence.projects import PROJECTS
from planner.inputs import catalog
from planner.specs.model import ModelSpec

QUOTATIONS = tomllib.loads((ROOT / "tests/data/quotations.toml").read_text(encoding="utf-8"))
with PROJECTS.open(encoding="utf-8", newline="") as file:
    TABLE = list(csv.DictReader(file))
# rows whose source is quoted, and not only named by its table
ROWS = [
    row for row in TABLE if re.search(r"(?i)\bhours? |hours|days|weeks|months|week", row["source"])
]

_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_SCALE |= {" billion": 1e9, " trillion": 1e12}
_WORDS = {"one trillion": "1 trillion", "two months": "60 days", "two weeks": "14 days"}


def numbers(text: str) -> set[float]:
    """Numbers of a text with their scale, and products of those with a cross between."""
    for words, digits in _WORDS.items():
        text = text.replace(words, digits)
    text = re.sub(r"arXiv [\d.]+|section [\d.]+|tables? \d+", "", text)
    items = {
        float(digits.replace(",", "")) * _SCALE[scale]
        for digits, scale in re.findall(
            r"(\d[\d,]*(?:\.\d+)?)( billion| trillion|[kKMBT](?![a-z]))?", text
        )
    }
    for name, other in re.findall(r"(\d+) ?x ?(\d+)", text):
        items.add(float(name) * float(other))
    for nodes, gpus in re.findall(r"(\d+) DGX-A100 \((\d+)x", text):
        items.add(float(nodes) * float(gpus))
    return items


@pytest.mark.parametrize("row", ROWS, ids=[row["project"] for row in ROWS])
def test_numbers_of_a_project_stand_in_what_its_source_is_quoted_for(row: dict[str, str]) -> None:
    result = numbers(row["source"])
    per_token = re.search(r"per trillion tokens", row["source"])
    for name in ("gpus", "gpu_hours", "days", "tokens"):
        if not row[name]:
            continue
        value = float(row[name])
        if name == "gpu_hours" and per_token:
            value /= float(row["tokens"]) / 1e12
        assert any(value == pytest.approx(entry, rel=1e-6) for entry in result), (
            name,
            value,
            result,
        )


def test_enough_projects_are_quoted() -> None:
    assert len(ROWS) >= 20
    assert len(TABLE) >= 40
    assert {row["status"] for row in TABLE} == {"quoted", "recalled"}


@pytest.mark.parametrize("values", QUOTATIONS["quotation"], ids=lambda entry: entry["source"][:40])
def test_a_quotation_says_what_its_source_does(values: dict[str, Any]) -> None:
    text = re.sub(r"\s+", " ", (ROOT / values["file"]).read_text(encoding="utf-8"))
    assert re.sub(r"\s+", " ", values["phrase"]) in text
    for words in values["says"]:
        assert words in values["passage"], words
        assert words in values["phrase"], words


def test_totals_of_models_are_those_of_projects() -> None:
    """A project that states no numbers takes them from its model's profile, with a source."""
    profiles = {m.name: m.published.run for m in catalog.load_all("models", ModelSpec)}
    for row in TABLE:
        if not row["gpu_hours"] and not row["days"]:
            run = profiles[row["model"]]
            assert run is not None, row["project"]
            assert run.gpu_hours or run.days
            assert run.source
