"""What the engine makes of parts: every one has a price, and stacks of equal layers cost what the
flat model costs."""

from __future__ import annotations

import numpy as np
import pytest

from planner.estimate import evaluate
from planner.estimate.layer import operators
from planner.estimate.layer.matmul import weight_gemms
from planner.estimate.layer.shape import key_of, local_shape
from planner.estimate.stages import stage_split
from planner.estimate.states import rank_parameters
from planner.formulas import rules
from planner.formulas.params import parameter_leaves
from planner.inputs import catalog
from planner.specs.layers import attended_of, limits_of
from planner.specs.model import ModelSpec
from tests import plans
from tests.part_models import MODELS, model_of

LAYOUTS = (
    {},
    {"tp": 2, "sequence_parallel": True},
    {"pp": 2},
    {"cp": 2},
    {"recompute": "full"},
    {"recompute": "selective"},
    {"zero": 1},
)


@pytest.mark.parametrize("name", MODELS)
def test_every_part_has_time_and_memory(name: str) -> None:
    of = plans.plan(model_of(name), gpus=4, gpu="h100-sxm5-80gb", global_batch=16)
    c = plans.rows(4, *LAYOUTS)
    found = evaluate(of, c)
    whole, full = found.memory.layer_bytes[0], found.memory.stage_peaks
    assert np.all(np.isfinite(found.time.seconds) & (found.time.seconds > 0))
    assert np.all(np.isfinite(full) & (full > 0))
    assert whole > found.memory.input_bytes[0]
    # all weights that are multiplied with are in some GEMM of the mean layer
    shape = local_shape(of, **key_of(plans.rows(4, {})))
    inner = [one for one in parameter_leaves(of.model) if one.matmul and one.place == "layer"]
    held = sum(one.count * one.times for one in inner if one.name != "moe/shared_gate")
    gemms = sum(p.per_layer * p.n * p.k * p.batch for p in weight_gemms(shape))
    assert float(gemms[0] if np.ndim(gemms) else gemms) * of.model.layers == pytest.approx(held)


def test_layers_of_several_kinds_add_up_to_the_model() -> None:
    """Whatever the stages, all ranks together hold what the model has."""
    shape = model_of("jamba").model_copy(update={"vocab": 128})  # needs no padding
    of = plans.plan(shape, gpus=4)
    for pp, vpp in ((1, 1), (2, 1), (4, 1), (2, 2)):
        c = plans.rows(4, {"pp": pp, "vpp": vpp})
        held = 0.0
        for stage in range(pp):
            split = stage_split(of, c, np.array([float(stage)]))
            p = rank_parameters(of, c)
            held += float(p.of_stage(split, split.first, split.last)[0])
            held += float(p.experts_of_stage(split)[0])
        assert held == sum(one.count * one.times for one in parameter_leaves(of.model))


def test_a_stack_costs_what_the_same_flat_decoder_costs() -> None:
    flat = plans.model(layers=4)
    fields = flat.model_dump(exclude={"published", "norms_per_layer"})
    stacked = ModelSpec.model_validate({**fields, "stack": [{"layers": ["attention + mlp"]}]})
    c = plans.rows(8, {}, {"tp": 2}, {"pp": 2}, {"recompute": "full"})
    one, other = (evaluate(of, c) for of in (plans.plan(flat), plans.plan(stacked)))
    assert np.array_equal(one.time.seconds, other.time.seconds)
    assert np.array_equal(one.memory.peak, other.memory.peak)


def test_a_window_saves_time_and_a_longer_pattern_of_full_layers_less() -> None:
    seconds = []
    for every in (1, 5, 100):
        stack = [{"layers": [*["short + mlp"] * every, "attention + mlp"]}]
        fields = model_of("gemma3_text").model_dump(exclude={"published"})
        of = plans.plan(ModelSpec.model_validate({**fields, "stack": stack}), seq_len=65536)
        seconds.append(evaluate(of, plans.rows(8, {})).time.seconds[0])
    assert seconds[0] > seconds[1] > seconds[2]


def test_heads_groups_and_channels_limit_what_is_shared() -> None:
    of = plans.plan(model_of("kimi_linear"), gpus=8)
    whats = {limit.what for limit in limits_of(of.model)}
    assert {"heads", "heads of Kimi delta attention", "width of the MLP"} <= whats
    c = plans.rows(8, {"tp": 4}, {"tp": 8}, {"cp": 8}, {"cp": 2, "tp": 4})
    (heads,) = [rule for rule in rules.RULES if rule.name == "heads divide by tp"]
    assert heads.holds(of, c).tolist() == [True, False, True, True]
    said = heads.sentence(of, plans.layout(8, tp=8))
    assert "4 heads" in said
    (context,) = [rule for rule in rules.RULES if rule.name == "heads divide by cp"]
    assert context.holds(of, c).tolist() == [True, True, False, False]
    assert "heads or channels of kda" in context.sentence(of, plans.layout(8, cp=8))


def test_modules_of_multi_token_prediction_are_on_the_last_stage() -> None:
    fields = plans.model(layers=4).model_dump(exclude={"published"})
    without, having = (
        plans.plan(ModelSpec.model_validate({**fields, "mtp": n}), gpus=4) for n in (0, 1)
    )
    c = plans.rows(4, {"pp": 4})
    one, other = (evaluate(of, c) for of in (without, having))
    assert other.time.seconds[0] > one.time.seconds[0]
    assert other.memory.stage_layers[:, 0].tolist() != one.memory.stage_layers[:, 0].tolist()
    assert other.memory.stage_layers[-1, 0] == 2.0


def test_a_fused_rotation_of_latent_attention_touches_what_it_turns_and_makes() -> None:
    # DeepSeek-V2-Lite: 16 heads, 128 unrotated, 64 rotated, values of 128. Queries: 64 read and
    # written in place; keys and values: 128 + 128 read, 192 + 128 written
    latent = catalog.load("models", ModelSpec, "deepseek-v2-lite")
    ((core, _),) = attended_of(latent)
    fused = plans.plan(latent, software="megatron-core")
    turned, made = operators._rotated(fused, core)
    assert turned * 4.0 + made * 4.0 == 16 * 2.0 * (64 + 64 + 128 + 128 + 192 + 128)
    split = plans.plan(latent, software="pytorch-fsdp")
    assert operators._rotated(split, core) == (16 * (192 + 192 + 128),) * 2
