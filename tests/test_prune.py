"""Layouts that a search prunes by bounds are never among the best: compared with every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner import api
from planner.estimate import outline
from planner.inputs.scenario import resolve
from planner.search import Wanted, allowed_layouts, families, prune, search
from planner.search.choose import best, choice, ranked

PLAIN = {"stack_defaults": True}
REQUESTS: list[dict[str, Any]] = [
    {"model": "llama-3-8b", "gpu": "h100", "gpus": 64},
    {"model": "llama-2-70b", "gpu": "rtx4090", "gpus": 48, "recompute": "full", **PLAIN},
    {"model": "qwen3-30b-a3b", "gpu": "h100", "gpus": 16},
    {"model": "gpt-oss-20b", "gpu": "a100", "gpus": 24, "dispatcher": "deepep", **PLAIN},
    {"model": "llama-2-13b", "gpu": "a100", "gpus": 24, "stack": "zero-bubble"},
    {"model": "llama-3-8b", "gpu": "h100", "gpus": 32, "stack": "torchtitan", "compile": True},
    {"model": "llama-2-13b", "gpu": "a100", "gpus": 16, "search_offload": True, **PLAIN},
    {"model": "llama-3-8b", "gpu": "h100", "gpus": 64, "where": ("cp > 1", "pp > 1"), **PLAIN},
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "_FEW", 64)
    monkeypatch.setattr(prune, "_FIRST", 256)
    monkeypatch.setattr(prune, "_REFINED", 512)


@pytest.mark.parametrize("given", REQUESTS, ids=lambda given: " ".join(map(str, given.values())))
def test_the_best_are_those_of_all_layouts(given: dict[str, Any]) -> None:
    """Every layout is evaluated with the free options of the stack that the search has taken."""
    for plan in resolve(api.read_options(given)).plans:
        searched = search(plan, wanted=Wanted(5, families=True))
        space = allowed_layouts(searched.plan)
        if not space.count:
            continue
        every = outline(searched.plan, space)
        kept = searched.estimates
        assert kept is not None
        assert kept.space.count + searched.excluded == space.count
        whole, part = choice(every), choice(kept)
        assert part.rank[0] == whole.rank[0]
        assert np.isclose(part.rank[1], whole.rank[1], rtol=1e-9)
        assert kept.table.layout(part.row) == every.table.layout(whole.row)
        listed = [
            [e.rows(np.array([row])).layout(0) for row in ranked(e, 5)] for e in (every, kept)
        ]
        assert listed[0] == listed[1]
        for name, among in families(every).items():
            row = best(every, among)
            other = best(kept, families(kept)[name])
            assert (row is None) == (other is None)
            if row is not None and other is not None:
                assert kept.table.layout(other) == every.table.layout(row)


@pytest.mark.parametrize("stack", ["megatron-core", "torchtitan"])
@pytest.mark.parametrize("stack_defaults", [True, False], ids=["as it comes", "free options"])
def test_most_layouts_are_excluded(stack: str, stack_defaults: bool) -> None:
    """Where a rule forbids whole rows, too: torchtitan has no tp without sequence parallelism."""
    given = {**REQUESTS[0], "gpus": 256, "stack": stack, "stack_defaults": stack_defaults}
    for plan in resolve(api.read_options(given)).plans:
        searched = search(plan)
        assert searched.estimates is not None
        assert searched.excluded > 5 * searched.estimates.space.count
