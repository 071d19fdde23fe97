"""Models of several towers: T5's two stacks, each with its own number of tokens."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest

from planner import api
from planner.estimate import evaluate
from planner.estimate.memory.activations import kind_activations
from planner.formulas.flops import PALM, attended_elements, matmul_weights
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.ledger import total
from planner.specs.base import PlanError
from planner.specs.layers import layers_of, of_samples
from planner.specs.model import ModelSpec
from planner.specs.towers import views

MODELS = Path(catalog.__file__).parents[1] / "models"


def model(name: str) -> ModelSpec:
    return catalog.load("models", ModelSpec, name)


# T5ForConditionalGeneration of transformers 5.23 on the meta device; FLAN's with the head of
# their own that the released files hold (elements of google/flan-t5-*), which 5.23 ties
T5 = {
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "flan-t5-base": 222_903_552 + 32_128 * 768,
    "flan-t5-large": 750_251_008 + 32_128 * 1024,
    "flan-t5-xl": 2_783_959_040 + 32_128 * 2048,
    "flan-t5-xxl": 11_003_736_064 + 32_128 * 4096,
}


def test_t5_counts_as_transformers() -> None:
    assert {name: parameter_count(model(name)) for name in T5} == T5


def small_t5(gated: bool, target: int = 24) -> ModelSpec:
    """Two layers a stack, 48 wide, three heads of 8, an MLP of 80, 64 words."""
    raw: dict[str, Any] = tomllib.loads((MODELS / "t5-small.toml").read_text("utf-8"))
    raw |= {"layers": 4, "hidden": 48, "vocab": 64, "published": {}}
    raw["towers"][0]["tokens"] = target
    sizes = {"heads": 3, "kv_heads": 3, "head_dim": 8, "ffn_hidden": 80, "gated": gated}
    elements = {"distances": 32 * 3, "last_norm": 48}
    for part in raw["parts"]:
        part.update({key: value for key, value in sizes.items() if key in part})
        part.update({"elements": elements[part["name"]]} if part["type"] == "extra" else {})
    first, _, last, writing, more = raw["stack"]
    raw["stack"] = [first, last, writing, {**more, "times": 1}]
    return ModelSpec.model_validate(raw)


@pytest.mark.parametrize(("gated", "gemms"), [(False, 3_883_008), (True, 4_866_048)])
def test_flop_are_those_that_torch_counts(gated: bool, gemms: int) -> None:
    """FlopCounterMode on T5ForConditionalGeneration of that shape, eager, 40 tokens read and 24
    written: aten.mm, and aten.bmm of whole score matrices."""
    spec = small_t5(gated)
    assert parameter_count(spec) == (77_568 if gated else 62_208)
    assert 2 * 40 * total(matmul_weights(spec, 40)) == pytest.approx(gemms, abs=1e-6)
    assert 2 * 40 * attended_elements(spec, 40, PALM) == pytest.approx(602_112, abs=1e-6)


# bytes that two layers of the encoder or of the decoder keep of T5ForConditionalGeneration in bf16
# (128 wide, 8 heads of 16, ReLU MLP of 352, no dropout), two samples of this many tokens read and
# written: bytes alive after the forward pass of 4 layers minus 2 layers
KEPT = {("reading", 64, 32): 1_361_920, ("reading", 96, 160): 2_239_488}
KEPT |= {("writing", 64, 32): 1_107_456, ("writing", 96, 160): 6_716_928}


@pytest.mark.parametrize(("stack", "read", "written"), KEPT)
def test_bytes_kept_are_those_of_torch(stack: str, read: int, written: int) -> None:
    """To the byte, except for T5's own norm, which keeps its input in 16 bit beside the fp32
    copy."""
    raw: dict[str, Any] = small_t5(False, written).model_dump(exclude={"head_tower", "stack"})
    raw |= {"layers": 8, "hidden": 128, "dropout": False, "head_tower": "decoder"}
    sizes = {"heads": 8, "kv_heads": 8, "head_dim": 16, "ffn_hidden": 352}
    raw["parts"] = [
        part | {key: value for key, value in sizes.items() if key in part}
        for part in raw["parts"]
        if part["type"] != "extra"
    ]
    raw["stack"] = [
        {"layers": ["reading + mlp"], "times": 4},
        {"layers": ["writing + cross + mlp"], "times": 4, "tower": "decoder"},
    ]
    spec = ModelSpec.model_validate(raw)
    # cross-attention has no bias, and writes its scores there only because all of it is eager
    kernel = None if stack == "reading" else "fused_softmax"
    plan = plans.plan(spec, software="hf-deepspeed", gpus=1, seq_len=read, attention=kernel)
    kind = next(kind for kind in layers_of(spec).kinds if stack in kind.name)
    kept = total(kind_activations(plan, plans.rows(1, {"micro_batch": 2}), kind, frozen=False))
    norms, tokens = (2, read) if stack == "reading" else (3, written)
    assert 2 * float(kept[0] + norms * 2 * tokens * 128 * 2) == KEPT[stack, read, written]


def test_a_tower_is_a_model_of_its_own() -> None:
    reading, writing = views(small_t5(False), 40)
    assert (reading.seq_len, reading.model.layers, reading.share) == (40, 2, 0.5)
    assert (writing.seq_len, writing.model.layers, writing.name) == (24, 2, "decoder")
    cross = next(part for part in writing.model.parts if part.name == "cross")
    assert (cross.source_tokens, cross.source_hidden) == (40, 48)  # type: ignore[union-attr]


def _estimated(spec: ModelSpec, batch: int = 8) -> Any:
    plan = plans.plan(spec, seq_len=64, global_batch=batch, gpus=1)
    return evaluate(plan, plans.rows(1, {"micro_batch": batch}))


def test_more_targets_take_more_of_everything() -> None:
    few, many = _estimated(small_t5(False, 16)), _estimated(small_t5(False, 256))
    assert np.all(many.time.seconds > few.time.seconds)
    assert np.all(many.memory.peak > few.memory.peak)


def test_towers_of_one_length_are_a_model_without_any() -> None:
    """Layers divided between two towers with the same tokens cost what they cost in one."""
    raw: dict[str, Any] = tomllib.loads((MODELS / "vit-b-16.toml").read_text("utf-8"))
    whole = ModelSpec.model_validate(raw)
    first, middle, last = raw["stack"]
    half = {**middle, "times": 5}
    raw["stack"] = [first, half, {**half, "tower": "rest"}, {**last, "times": 1, "tower": "rest"}]
    raw["towers"] = [{"name": "rest", "tokens": 197}]
    split = ModelSpec.model_validate(raw)
    assert parameter_count(split) == parameter_count(whole)
    items = []
    for spec in (whole, split):
        plan = plans.plan(spec, seq_len=197, global_batch=64, gpus=8)
        rows = plans.rows(8, {"micro_batch": 8}, {"tp": 2, "micro_batch": 8, "recompute": "full"})
        items.append(evaluate(plan, rows))
    entry, two = items
    np.testing.assert_allclose(two.time.seconds, entry.time.seconds, rtol=0.01)
    np.testing.assert_allclose(two.memory.peak, entry.memory.peak, rtol=0.02)


def test_every_model_of_samples_is_estimated_on_one_gpu_and_on_eight() -> None:
    kept = [entry for entry in catalog.load_all("models", ModelSpec) if of_samples(entry)]
    assert len(kept) >= 20
    for spec in kept:
        assert spec.published.sequence is not None, spec.name
        length = spec.published.sequence.tokens
        for gpus in (1, 8):
            plan = plans.plan(spec, software="pytorch-fsdp", seq_len=length, gpus=gpus)
            estimates = evaluate(plan, plans.rows(gpus, {"zero": 3 * (gpus > 1)}))
            assert np.all(np.isfinite(estimates.time.seconds) & (estimates.time.seconds > 0)), (
                spec.name
            )
            assert np.all(np.isfinite(estimates.memory.peak) & (estimates.memory.peak > 0)), (
                spec.name
            )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head_tower": "writer"}, "no tower is called 'writer'"),
        ({"towers": []}, "no tower is called 'decoder'; known: none"),
        (
            {"towers": [{"name": "decoder", "tokens": 4}, {"name": "idle", "tokens": 4}]},
            "no layer of the stack uses 'idle'",
        ),
    ],
)
def test_towers_that_do_not_fit_the_stack_are_refused(change: Any, words: str) -> None:
    raw = tomllib.loads((MODELS / "t5-small.toml").read_text("utf-8"))
    with pytest.raises(ValueError, match=words):
        ModelSpec.model_validate({**raw, **change})


def test_t5_is_planned_in_samples_and_not_over_a_pipeline() -> None:
    given = {"model": "t5-3b", "gpu": "a100-80gb", "gpus": 8, "advice": 0}
    estimate = api.estimate(api.read_options(given))
    assert estimate.layout.pp == estimate.layout.cp == 1
    assert estimate.throughput.samples == "samples"
    assert estimate.throughput.samples_per_s == pytest.approx(2048 / estimate.step.seconds)
    text = " ".join(estimate.assumptions)
    assert "512 tokens per sample, 114 of its decoder" in text
    assert "global batch 2,048 samples" in text
    with pytest.raises(PlanError, match="samples of several lengths"):
        api.estimate(api.read_options({**given, "pp": 2, "stack": "megatron-core"}))
