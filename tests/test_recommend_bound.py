"""Bounds of a kind of GPU before any search, against the picks that searches find."""

from __future__ import annotations

from typing import Any

import pytest

from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.specs.options.recommend import GOALS, Limits
from planner.verbs.recommend import cluster
from planner.verbs.recommend.kinds import Kind, kind
from planner.verbs.requests import answer

TOKENS = 2e10
REQUESTS: list[dict[str, Any]] = [
    {"model": "gpt2", "gpu": "rtx4090", "stack": "pytorch-ddp"},
    {"model": "llama-2-7b", "gpu": "h100", "stack": "megatron-core"},
    {"model": "llama-2-7b", "gpu": "h100", "stack": "megatron-core", "precision": "fp8"},
    {"model": "llama-2-7b", "gpu": "a100", "lora": 16, "stack": "pytorch-fsdp"},
    {"model": "gpt-oss-20b", "gpu": "b200", "stack": "megatron-core", "precision": "mxfp8"},
    {"model": "bert-large", "gpu": "v100-sxm2-32gb", "stack": "pytorch-ddp"},
    {"model": "resnet-50", "gpu": "a100", "stack": "pytorch-ddp"},
    {"model": "t5-base", "gpu": "l40s", "stack": "pytorch-ddp"},
]


def _kind(given: dict[str, Any]) -> Kind:
    base = read_options({"global_batch": 64, "tokens": TOKENS, **given})
    model, _ = model_spec(base.model)
    return kind("kind", base, model, TOKENS, Limits(max_gpus=16))


@pytest.mark.parametrize("given", REQUESTS, ids=lambda given: " ".join(map(str, given.values())))
def test_no_pick_undercuts_the_bound(given: dict[str, Any]) -> None:
    here = _kind(given)
    (point,) = answer(here.requests[:1], reasons=False)
    assert here.least is not None
    assert point.report is not None
    assert here.least.run_gpu_s is not None
    gpus = point.options.gpus
    least, taken = here.least.step_s(gpus), point.report.step.seconds
    assert 0 < least < taken
    assert (
        here.least.run_gpu_s / least / gpus <= (point.report.run.days or 0) * 86400 / taken * 1.001
    )


def test_more_of_a_bound_is_more_of_all_of_it() -> None:
    least = _kind(REQUESTS[1]).least
    assert least is not None
    twice = least.at_least(2 * least.step_gpu_s)
    for gpus in (8, 4096):
        assert twice.step_s(gpus) == pytest.approx(2 * least.step_s(gpus))
        assert twice.cost(gpus) == pytest.approx(2 * least.cost(gpus))
    assert least.at_least(0.0) == least


@pytest.mark.parametrize(
    "given",
    [
        {"model": "llama-2-7b", "stack": "pytorch-fsdp", "stack_defaults": True},
        {"model": "llama-2-7b", "stack": "pytorch-fsdp"},
    ],
    ids=["no free options", "free options"],
)
def test_a_ladder_answers_as_all_counts_do(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    """With bounds, rungs and first looks, as for requests with many layouts, and without."""
    given = {**given, "tokens": 2e11}
    limits, names = Limits(days=60, max_gpus=1024), ("h100", "a100", "rtx4090", "v100-sxm2-16gb")
    monkeypatch.setattr("planner.verbs.recommend.ladder.EVERY", float("inf"))
    whole = cluster(limits, given, names)
    monkeypatch.setattr("planner.verbs.recommend.ladder.EVERY", 0)
    some = cluster(limits, given, names)
    assert some.tried < whole.tried * 0.8
    for goal in GOALS:
        best, other = whole.answers.by_goal[goal], some.answers.by_goal[goal]
        assert best is not None
        assert other is not None
        assert (best.machine, best.gpus) == (other.machine, other.gpus)
    untried = [row for row in some.types if not row.tried]
    assert (whole.excluded, some.excluded) == (0, len(untried))
    reasons = [row.reason or "" for row in untried]
    assert all("not searched" in reason or "more than" in reason for reason in reasons)
