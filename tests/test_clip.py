"""CLIP: a tower of images and one of texts, and a loss over all pairs of the batch."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest

from planner import api
from planner.estimate import evaluate
from planner.formulas.flops import PALM, attended_elements, matmul_weights
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.ledger import total
from planner.specs.model import ModelSpec

MODELS = Path(catalog.__file__).parents[1] / "models"
# CLIPModel of transformers 5.23 on the meta device
CLIP = {"clip-vit-b-32": 151_277_313, "clip-vit-l-14": 427_616_513}


def test_clip_counts_as_transformers() -> None:
    values = {name: catalog.load("models", ModelSpec, name) for name in CLIP}
    assert {name: parameter_count(value) for name, value in values.items()} == CLIP
    assert {entry.samples for entry in values.values()} == {"pairs"}


def small(pairs: int = 24) -> ModelSpec:
    """Three layers of images 48 wide (16 patches of 8 x 8 pixels) and two of texts 32 wide (16 of
    60 words), heads of 16."""
    raw: dict[str, Any] = tomllib.loads((MODELS / "clip-vit-b-32.toml").read_text("utf-8"))
    raw |= {"layers": 5, "hidden": 48, "contrast": pairs, "published": {}}
    raw["towers"][0] |= {"tokens": 16, "hidden": 32}
    sizes: dict[str, dict[str, int]] = {
        "seeing": {"heads": 3, "kv_heads": 3, "head_dim": 16},
        "image_mlp": {"ffn_hidden": 192},
        "reading": {"heads": 2, "kv_heads": 2, "head_dim": 16},
        "text_mlp": {"ffn_hidden": 128},
        "patches": {"inputs": 192, "outputs": 48, "tokens": 16},
        "image_ends": {"elements": 48 + 17 * 48 + 4 * 48 + 1},
        "image_embedding": {"inputs": 48, "outputs": pairs},
        "text_ends": {"elements": 60 * 32 + 16 * 32 + 2 * 32},
        "text_embedding": {"inputs": 32, "outputs": pairs},
    }
    raw["parts"] = [part | sizes[part["name"]] for part in raw["parts"]]
    first, middle, last, words, _, end = raw["stack"]
    raw["stack"] = [first, {**middle, "times": 1}, last, words, end]
    return ModelSpec.model_validate(raw)


def test_flop_are_those_that_torch_counts() -> None:
    """FlopCounterMode on CLIPModel of that shape, eager, four pairs: patches, dense layers, whole
    score matrices, and both embeddings without the logits."""
    spec = small()
    assert parameter_count(spec) == 124_913
    products = 1_179_648 + 14_426_112 + (16_128 - 2 * 4 * 4 * 24)
    assert 4 * 2 * 17 * total(matmul_weights(spec, 17)) == pytest.approx(products, abs=1e-6)
    assert 4 * 2 * 17 * attended_elements(spec, 17, PALM) == pytest.approx(928_000, abs=1e-6)


def _evaluated(spec: ModelSpec, batch: int, gpus: int = 8, micro: int = 8) -> Any:
    plan = plans.plan(spec, software="pytorch-ddp", seq_len=17, global_batch=batch, gpus=gpus)
    return evaluate(plan, plans.rows(gpus, {"micro_batch": micro}))


def test_logits_are_of_the_whole_batch() -> None:
    """A sample more to compare with is a row more of the logits of every sample."""
    few, many = _evaluated(small(), 2048), _evaluated(small(), 32_768)
    each = [
        name.time.detail["head/matmul/logits"][0] / steps
        for name, steps in ((few, 2048 / 64), (many, 32_768 / 64))
    ]
    assert each[1] > each[0]
    assert np.all(many.memory.peak > few.memory.peak)


def test_embeddings_are_gathered_over_all_ranks() -> None:
    """64 pairs in a micro-batch of 8 ranks, two embeddings of 24 in 16 bit; none on one GPU."""
    result = _evaluated(small(), 64)
    sent = [x for x in result.time.traffic if x.what == "embeddings of samples"]
    assert {x.operation for x in sent} == {"all_gather", "reduce_scatter"}
    assert all(float(x.bytes[0]) == 2 * 2 * 64 * 24 for x in sent)
    assert all(float(x.count[0]) == 1 for x in sent)
    alone = _evaluated(small(), 64, gpus=1, micro=64)
    assert all(x.count[0] == 0 for x in alone.time.traffic if x.what == "embeddings of samples")


@pytest.mark.parametrize("gpus", [1, 8])
def test_clip_is_planned_in_pairs(gpus: int) -> None:
    given = {"model": "clip-vit-b-32", "gpu": "a100-80gb", "gpus": gpus, "advice": 0}
    estimate = api.estimate(api.read_options(given))
    assert estimate.memory.fits
    assert (estimate.layout.pp, estimate.throughput.samples) == (1, "pairs")
    text = " ".join(estimate.assumptions)
    assert "50 tokens per pair, 77 of its text, 224 x 224 pixels" in text
    assert "global batch 32,768 pairs" in text
    assert sum(estimate.step.components.values()) == pytest.approx(estimate.step.seconds)
