"""Diffusion transformers: streams of image and text that attend to each other, modulated by what is
made once per sample."""

from __future__ import annotations

import diffusion_models as small_models
import pytest

from planner import api
from planner.formulas.flops import attended_elements, matmul_weights
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.ledger import total
from planner.specs.model import ModelSpec

# diffusers 0.42 on the meta device, with the transformer/config.json of each
DIFFUSERS = {
    "flux-1-dev": 11_901_408_320,
    "sd3-medium": 2_028_328_000,
    "sd3.5-large": 8_056_627_520,
}
LAYERS = {"flux-1-dev": {"": 2, "text": 2, "both": 3}, "sd3-medium": {"": 3, "text": 3}}
# the small models there: parameters, and FLOP that FlopCounterMode counts forward for one image of
# this many tokens and 10 of text, of all products but attention's
SMALL = {"flux-1-dev": (48, 146_760, 7_303_424), "sd3-medium": (64, 114_832, 65_536 + 5_443_840)}


def test_diffusion_transformers_count_as_diffusers() -> None:
    values = {name: catalog.load("models", ModelSpec, name) for name in DIFFUSERS}
    assert {name: parameter_count(value) for name, value in values.items()} == DIFFUSERS
    assert {entry.samples for entry in values.values()} == {"images"}


@pytest.mark.parametrize("name", SMALL)
def test_products_are_those_that_torch_counts(name: str) -> None:
    """But for what is made of a sample's step and pooled text, which is not counted; and for
    queries of the text's last layer, which are."""
    tokens, parameters, flop = SMALL[name]
    spec = small_models.small(name, LAYERS[name])
    assert parameter_count(spec) == parameters
    ours = 2 * tokens * total(matmul_weights(spec, tokens))
    assert ours + 2 * small_models.CONDITIONS[name] == pytest.approx(flop, abs=1e-6)


def test_joined_attention_sees_image_and_text() -> None:
    """Two double blocks and three single ones: all of 48 + 10 tokens, all of them keys, of two
    heads whose queries and values are 16 wide."""
    spec = small_models.small("flux-1-dev", LAYERS["flux-1-dev"])
    assert 48 * attended_elements(spec, 48) == pytest.approx(5 * 58 * 58 * 64)


def test_images_of_another_size_are_other_tokens() -> None:
    given = {"model": "flux-1-dev", "gpu": "h100", "gpus": 64, "advice": 0, "global_batch": 64}
    large = api.estimate(api.read_options(given))
    small = api.estimate(api.read_options({**given, "seq_len": 1024}))
    assert small.step.seconds < large.step.seconds
    text = " ".join(large.assumptions)
    lengths = "4,096 tokens per image, 512 of its text, 4,608 of its both"
    assert f"{lengths}, 1,024 x 1,024 pixels" in text
    assert large.throughput.samples_per_s == pytest.approx(64 / large.step.seconds)
