"""Frozen models, partial rollouts, engines in the trainer and evaluated changes of a step of
reinforcement learning."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_reinforcement import APART, ENGINE, HERE, JOB, KEEPS, changed, seconds, step, trained

from planner.formulas import generation as formulas
from planner.rl.options import RlOptions
from planner.rl.specs import Scorer
from planner.rl.step import Loop, rl_step
from planner.rl.verb import rl
from planner.rl.view import view
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
    assert before.step_s is not None
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


def test_an_engine_without_room_for_a_sequence_has_no_time() -> None:
    small = {"model": "qwen2.5-7b", "gpu": "rtx4090", "gpus": 1}
    answer = rl(RlOptions(framework="trl"), small)
    assert not answer.fits
    assert (answer.step_s, answer.step_low_s, answer.usd_per_1000_steps) == (None, None, None)
    assert {phase.seconds for phase in answer.phases} == {None}
    assert (
        "an engine has no room for a sequence, so that a step has no time" in view(answer).verdict
    )
    assert all(change.fits and change.step_change_frac is None for change in answer.changes)


def test_a_step_that_does_not_fit_has_no_times() -> None:
    """Engines have room, training has not: no time is printed of a step that cannot run."""
    answer = rl(RlOptions(), {"model": "qwen2.5-72b", "gpu": "h100", "gpus": 8})
    assert not answer.fits
    assert answer.generation.slots >= 1
    assert (answer.step_s, answer.step_high_s, answer.usd_per_1000_steps) == (None, None, None)
    assert {phase.seconds for phase in answer.phases} == {None}
    assert all(split.step_s is None for split in answer.splits if not split.fits)
    shown = view(answer)
    assert "so that a step has no time" in shown.verdict
    assert not any("time" in block.header for block in shown.blocks if block.title == "Phases")
    assert all(change.step_change_frac is None for change in answer.changes)
    assert all(change.step_s > 0 for change in answer.changes)


def test_adapters_or_the_host_make_a_step_fit() -> None:
    small = {"model": "qwen2.5-1.5b", "gpu": "rtx3090", "gpus": 1}
    answer = rl(RlOptions(framework="trl"), small)
    ways = [set(change.options) for change in answer.changes]
    assert {"lora"} in ways
    assert {"offload"} in ways
    fitting = rl(RlOptions(framework="trl"), {**small, "lora": 16})
    assert fitting.fits


@pytest.mark.parametrize(
    ("settings", "flag", "remedy"),
    [
        ({"reward_model": "llama-3.1-405b"}, "--reward-model", "--scoring-gpus"),
        ({"prompt_length": 200_000}, "--prompt-length", "take shorter"),
        ({"response_length": 9000, "response_max": 4000}, "--response-max", "--response-length"),
        ({"stream": 4}, "--stream", "--generation-gpus"),
    ],
)
def test_a_wrong_request_names_its_option_and_a_remedy(
    settings: dict[str, Any], flag: str, remedy: str
) -> None:
    with pytest.raises(PlanError) as error:
        rl(RlOptions(**settings), {"model": "qwen2.5-7b", "gpu": "h100", "gpus": 8})
    assert error.value.field == flag
    assert remedy in error.value.remedy


def test_lengths_beyond_the_positions_are_doubtful() -> None:
    request = {"model": "qwen2.5-0.5b", "gpu": "h100", "gpus": 1}
    answer = rl(RlOptions(prompt_length=30_000, response_max=8192), request)
    assert any("--response-max" in doubt for doubt in answer.doubts)
    assert not rl(RlOptions(), request).doubts


@pytest.mark.parametrize(
    ("model", "framework", "counts"),
    [
        ("qwen2.5-0.5b", "trl", (1, 4, 16)),
        ("qwen2.5-7b", "slime", (8, 16, 64)),
        ("qwen3-30b-a3b", "nemo-rl", (16, 64, 128)),
    ],
)
def test_no_model_takes_longer_on_more_gpus(
    model: str, framework: str, counts: tuple[int, ...]
) -> None:
    settings = RlOptions(framework=framework, response_max=8192, update_batch=256)
    steps = [rl(settings, {"model": model, "gpu": "h100", "gpus": gpus}) for gpus in counts]
    times = [step.step_s for step in steps if step.fits and step.step_s is not None]
    assert len(times) > 1
    assert times == sorted(times, reverse=True)


def test_a_controller_hands_over_rows_as_long_as_the_longest() -> None:
    """1,024 rows of 4,096 tokens of 50 bytes at 1 GB/s: 0.21 s before each pass."""
    plain, handed = (
        step(),
        rl_step(trained(), ENGINE, JOB, HERE, KEEPS, Loop(row_bytes=50.0, row_rate=1e9)),
    )
    for name in ("training", "old log-probabilities"):
        more = seconds(handed)[name] - seconds(plain)[name]
        assert more == pytest.approx(1024 * 4096 * 50 / 1e9)


def test_parts_of_a_step_train_while_others_are_generated() -> None:
    """Done after 10 and 20 s: 6 s of training are 3 s after the first and 3 s after the second."""
    ready, left = np.array([10.0, 20.0]), np.array([1.0, 0.5])
    assert formulas.trained_by_s(ready, 6.0, left).tolist() == [16.0, 23.0]
    assert formulas.trained_by_s(ready, 30.0, left).tolist() == [40.0, 35.0]  # waits for the first
    whole, parts = step(pools=APART), rl_step(trained(), ENGINE, changed(parts=4), APART, KEEPS)
    done = parts.generation.done_fracs
    assert list(done) == sorted(done)
    assert (len(done), done[-1]) == (4, 1.0)
    generating = seconds(whole)["generation"]
    assert max(generating, seconds(whole)["training"]) < parts.seconds < whole.seconds


def test_a_step_never_takes_longer_on_more_gpus() -> None:
    given = {"model": "qwen2.5-0.5b", "gpu": "h20"}
    settings = RlOptions(
        algorithm="dapo",
        prompts=128,
        responses=8,
        response_length=1024,
        response_max=20_000,
        update_batch=256,
    )
    times = [rl(settings, {**given, "gpus": gpus}).step_s or 0.0 for gpus in (8, 16, 24, 32, 64)]
    for fewer, more in itertools.pairwise(times):
        assert more <= 1.01 * fewer
