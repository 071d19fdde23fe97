"""Images of a sample beside its text, and runs counted in samples."""

from __future__ import annotations

from typing import Any

import plans
import pytest

from planner import api
from planner.estimate.memory.activations import kind_activations
from planner.formulas.flops import matmul_weights
from planner.formulas.params import parameter_count
from planner.inputs.images import with_images
from planner.inputs.scenario import resolve
from planner.ledger import total
from planner.specs.base import PlanError
from planner.specs.layers import layers_of
from planner.specs.model import ModelSpec
from planner.specs.options import Options

VLM: dict[str, Any] = {"model": "qwen3-vl-4b", "gpu": "h100", "gpus": 8, "stack": "pytorch-fsdp"}


def _model(**given: Any) -> ModelSpec:
    model: ModelSpec = resolve(Options(**VLM, **given)).plans[0].model
    return model


def test_one_image_is_what_the_file_counts() -> None:
    assert _model(images_per_sample=1.0).parts == _model().parts


@pytest.mark.parametrize("images", [0.5, 3.0])
def test_towers_work_on_all_images_and_text_stays(images: float) -> None:
    usual, many = _model(), _model(images_per_sample=images)
    assert parameter_count(many) == parameter_count(usual)
    assert many.image_tokens == images * 196
    for first, other in zip(usual.traced, many.traced, strict=True):
        at = [x.enters.at(1.0, 2048.0) for x in (first, other)]
        of_images = not any(power for _, power, _ in first.enters.terms)
        assert at[1] == pytest.approx(at[0] * (images if of_images else 1.0))


def test_flop_and_bytes_are_linear_in_images() -> None:
    models = [_model(images_per_sample=n) for n in (1.0, 2.0, 3.0)]
    single, two, three = (total(matmul_weights(each, 2048)) for each in models)
    assert three - two == pytest.approx(two - single)
    assert two > single
    saved = []
    for model in models:
        plan = plans.plan(model, software="pytorch-fsdp", seq_len=2048, gpus=1)
        c, layers = plans.rows(1, {"micro_batch": 2}), layers_of(model)
        each = [total(kind_activations(plan, c, kind, False)) for kind in layers.kinds]
        saved.append(sum(n * x for n, x in zip(layers.counts, each, strict=True)).item())
    assert saved[2] - saved[1] == pytest.approx(saved[1] - saved[0])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"images_per_sample": 11.0}, "2,156 tokens of 2,048"),
        ({"model": "gpt2", "images_per_sample": 1.0}, "counts no images"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        resolve(Options(**{**VLM, **given}))


def test_a_run_of_samples_has_their_tokens() -> None:
    given: dict[str, Any] = {"model": "gpt2", "gpu": "h100", "gpus": 8, "seq_len": 512}
    given |= {"advice": 0}
    of_samples = api.estimate(Options(**given, samples=1000), brief=True)
    of_tokens = api.estimate(Options(**given, tokens=512_000), brief=True)
    assert of_samples.run == of_tokens.run
    assert of_samples.run is not None
    with pytest.raises(PlanError, match="leave one of them out"):
        api.estimate(Options(**given, samples=1000, tokens="1M"))


def test_models_without_images_are_left_as_they_are() -> None:
    model = plans.model()
    assert with_images(Options(model="small"), model) == (model, [])


@pytest.mark.parametrize("compiled", [True, False])
def test_a_layout_of_images_beside_compiled_code_says_that_it_changes_nothing(
    compiled: bool,
) -> None:
    given: dict[str, Any] = {"model": "convnext-base", "gpu": "a100", "gpus": 1, "zero": 0}
    given |= {"stack": "hf-trainer", "micro_batch": 32, "recompute": "none", "advice": 0}
    document = api.estimate(Options(**given, channels_last=True, compile=compiled))
    remarks = [text for text in document.assumptions if "changes nothing beside --compile" in text]
    assert bool(remarks) is compiled
