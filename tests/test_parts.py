"""Layers made of parts: what a stack says, what every part declares."""

from __future__ import annotations

import runpy
from pathlib import Path

import plans
import pytest
from part_models import MODELS, keys_of, model_of
from plans import flat_of
from pydantic import ValidationError

from planner.formulas.flops import core_forward_flop, core_pairs
from planner.formulas.params import parameter_leaves, stream_of
from planner.specs.layers import layers_of
from planner.specs.model import ModelSpec, stated
from planner.specs.parts import Attended, Stream
from planner.specs.parts.base import MOST_LAYERS


@pytest.mark.parametrize("name", MODELS)
def test_products_are_the_weights(name: str) -> None:
    """GEMMs and tensors are declared apart; both know every weight."""
    model = model_of(name)
    plan = stream_of(model)
    for part in {part for kind in layers_of(model).kinds for part in kind.parts}:
        kept = [
            tensor for tensor in part.tensors(plan) if tensor.matmul and tensor.shard != "expert"
        ]
        weights = sum(entry.count for entry in kept)
        products = sum(
            product.times * product.k * product.n.elements for product in part.products(plan)
        )
        assert products == weights, part.type


def test_a_stack_repeats_until_all_layers_are_there() -> None:
    result = layers_of(model_of("gemma3_text"))
    assert [kind.name for kind in result.kinds] == ["short + mlp", "attention + mlp"]
    assert result.order == (0, 0, 0, 0, 0, 1, 0, 0)
    assert result.counts == (7, 1)
    assert [kind.norms for kind in result.kinds] == [4, 4]


def test_side_by_side_parts_share_a_norm() -> None:
    (kind,) = layers_of(model_of("falcon_h1")).kinds
    assert [[part.type for part in block] for block in kind.blocks] == [
        ["attention", "mamba2"],
        ["mlp"],
    ]
    assert kind.norms == 2


def test_a_flat_decoder_is_its_stack() -> None:
    flat = plans.model(layers=4, attention_window=8, window_every=2)
    keys = ("heads", "kv_heads", "head_dim")
    shape = {key: getattr(flat_of(flat), key) for key in keys}
    short = {**shape, "type": "attention", "name": "short", "window": 8}
    fields = stated(flat, exclude={"published"})
    stack = [{"layers": ["short + mlp", "attention + mlp"]}]
    stacked = ModelSpec.model_validate({**fields, "parts": [short], "stack": stack})
    assert parameter_leaves(stacked) == parameter_leaves(flat)
    assert layers_of(stacked).order == layers_of(flat).order
    ours, other = (
        [[part.core() for part in kind.parts] for kind in layers_of(model).kinds]
        for model in (flat, stacked)
    )
    assert ours == other


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stack": [{"layers": ["mamba"], "times": 3}]}, "stack makes 3 layers, but layers is 4"),
        ({"stack": [{"layers": ["mambo"]}]}, "no part is called 'mambo'"),
        ({"stack": [{"layers": ["mamba + attention"]}]}, "attention needs heads"),
        ({"stack": [{"layers": ["mamba"]}, {"layers": ["mamba"]}]}, "times is needed"),
        ({"stack": []}, "heads is needed"),
    ],
)
def test_a_stack_that_says_too_little_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ModelSpec.model_validate({**keys_of("mamba"), **change})


def test_pairs_that_masks_leave() -> None:
    """Counted pair by pair: s 12, windows and blocks of 4."""
    s = 12
    causal = {(i, j) for i in range(s) for j in range(i + 1)}
    masks = {
        Attended(1, 8, 8): causal,
        Attended(1, 8, 8, window=4): {(i, j) for i, j in causal if i - j < 4},
        Attended(1, 8, 8, chunk=4): {(i, j) for i, j in causal if i // 4 == j // 4},
        Attended(1, 8, 8, mask="full"): {(i, j) for i in range(s) for j in range(s)},
        Attended(1, 8, 8, keys=5): {(i, j) for i in range(s) for j in range(5)},
    }
    # entries of 3 tokens, seen from the last of them on, and 4 tokens near by
    entries = {(i, j) for i in range(s) for j in range(s // 3) if (j + 1) * 3 <= i + 1}
    near = masks[Attended(1, 8, 8, window=4)]
    number = float(core_pairs(Attended(1, 8, 8, rate=3, near=4), float(s)))
    # the entry of a query's own tokens counts half of the time it takes to be whole
    assert number == pytest.approx(len(entries) - s / 3 + s / 2 + len(near) - 2)
    for core, pairs in masks.items():
        # the diagonal counts half, as s^2 / 2 has it
        half = (core.window or s) / 2 if core.mask == "causal" and not core.keys else 0.0
        assert float(core_pairs(core, float(s))) == pytest.approx(len(pairs) - half), core
        assert float(core_forward_flop(core, float(s))) == pytest.approx(
            2 * 16 * (len(pairs) - half)
        )


def test_the_example_of_a_new_mixer_is_whole() -> None:
    """The part of docs/extending: its declarations must be consistent."""
    path = Path(__file__).parent.parent / "docs" / "examples" / "part.py"
    result = runpy.run_path(str(path))
    part = result["Retention"](name="retention", heads=4, key_dim=8, value_dim=16)
    plan = Stream(hidden=32)
    weights = sum(tensor.count for tensor in part.tensors(plan))
    assert weights == 32 * 2 * (32 + 64) + 64 * 32
    assert weights == sum(product.k * product.n.elements for product in part.products(plan))
    assert float(core_forward_flop(part.core()[0], 10.0)) == 10 * part.core()[0].flop
    assert [limit.count for limit in part.limits()] == [4]
    assert sum(entry.elements.local(2.0) for entry in part.kept(plan)) == (2 * 96 + 2 * 64) / 2


@pytest.mark.parametrize("name", MODELS)
def test_what_tensor_parallelism_divides_is_whole_on_one_rank(name: str) -> None:
    """Shares of all ranks add up to the whole, or to more where units are repeated."""
    model = model_of(name)
    plan = stream_of(model)
    for part in {part for kind in layers_of(model).kinds for part in kind.parts}:
        for tensor in part.tensors(plan):
            assert float(tensor.local(1.0)) == tensor.count
            assert 2 * float(tensor.local(2.0)) >= tensor.count
        kept = [entry.elements for entry in part.kept(plan)] + [
            stream.elements for stream in part.streams(plan)
        ]
        for elements in kept:
            assert float(elements.local(1.0)) == elements.elements


@pytest.mark.parametrize("parts", [3, "own", [3], [{"name": [1]}], [{"type": "mlp", "name": {}}]])
def test_parts_of_another_form_are_refused(parts: object) -> None:
    stack = [{"layers": ["attention + own"]}]
    with pytest.raises(ValidationError, match="parts"):
        ModelSpec.model_validate({**plans.keys(), "parts": parts, "stack": stack})


def test_many_layers_without_a_pattern_are_read_at_once() -> None:
    experts = {"experts": 2, "experts_per_token": 1, "ffn_hidden": 8, "every": MOST_LAYERS // 2 - 1}
    model = ModelSpec.model_validate({**plans.keys(layers=MOST_LAYERS), "moe": experts})
    assert model.moe_layers == 3
    assert len(model.stack) == 6
