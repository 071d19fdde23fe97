"""Frozen models, partial rollouts, engines in the trainer and evaluated changes of a step of
reinforcement learning."""

from __future__ import annotations

from typing import Any

import pytest
from test_reinforcement import JOB, changed, seconds, step, trained

from planner.rl.options import RlOptions
from planner.rl.specs import Scorer
from planner.rl.verb import rl
from planner.specs.base import PlanError


def test_a_frozen_model_takes_passes_by_its_size_and_its_own_gpus_hide_them() -> None:
    def scored(size: float, gpus: int) -> float:
        scorer = Scorer("reward model", size, gpus, "generation")
        return seconds(step(changed(scorers=(scorer,)))).get("reward model", 0.0)

    passes = seconds(step())["old log-probabilities"]
    assert scored(1.0, 0) == pytest.approx(passes)
    assert scored(2.0, 0) == pytest.approx(2 * passes)
    generating = seconds(step())["generation"]
    slow = 4 * generating / passes  # a model that takes four times as long as generation
    assert scored(slow, 8) == pytest.approx(3 * generating)
    assert scored(0.5 * generating / passes, 8) == 0  # done before the last response


def test_unfinished_responses_that_go_on_leave_no_tail() -> None:
    """All slots stay full: tokens over slots at the time of a token."""
    partial = step(changed(partial=True)).generation
    each = JOB.sequences / 8
    assert partial.seconds - partial.prompts_s == pytest.approx(
        each * JOB.response / partial.running * partial.token_s
    )
    assert partial.seconds < step().generation.seconds


def test_an_engine_in_the_trainer_takes_what_memory_it_leaves() -> None:
    inside = step(in_process=True, budget_frac=0.1)
    assert "refit" not in seconds(inside)
    phases = {phase.name: phase.device_bytes for phase in inside.phases}
    assert inside.generation.slots > 1
    usable = float(trained().plan.usable_bytes)
    assert phases["generation"] <= usable


def test_changes_are_the_requests_that_they_say() -> None:
    small = {"model": "qwen2.5-0.5b", "gpu": "a100", "gpus": 4, "stack_defaults": True}
    settings = RlOptions(prompts=64, response_length=512)
    before = rl(settings, small)
    assert before.changes
    assert [c.step_s for c in before.changes] == sorted(c.step_s for c in before.changes)
    for change in before.changes:
        assert change.step_s < 0.98 * before.step_s
        assert change.fits
    partial = next(c for c in before.changes if "partial_rollout" in c.options)
    after = rl(settings.changed(partial_rollout=True), small)
    assert after.step_s == pytest.approx(partial.step_s)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"reward_model": "llama-3.1-405b", "scoring_gpus": 1}, "--scoring-gpus"),
        ({"reward_model": "no-such-model"}, "--reward-model"),
        ({"scoring_gpus": 1, "reference": "no"}, "--scoring-gpus"),
        ({"generation_engine": "transformers", "ahead": 1}, "--ahead"),
        ({"prompt_length": 40_000}, "--prompt-length"),
        ({"reward_model": "llama-3.1-8b", "scoring_gpus": 8}, "--scoring-gpus"),
    ],
)
def test_models_that_fit_nowhere_and_prompts_too_long_name_the_remedy(
    more: dict[str, Any], field: str
) -> None:
    with pytest.raises(PlanError) as error:
        rl(RlOptions(**more), {"model": "qwen2.5-7b", "gpu": "h100", "gpus": 8})
    assert error.value.field == field
