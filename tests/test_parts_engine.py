"""Parts in the estimate: every one has a cost, and stacks of equal layers cost what the flat model
costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from part_models import MODELS, keys_of, model_of

from planner.estimate import evaluate
from planner.estimate.layer import operators
from planner.estimate.layer.attention import core_s
from planner.estimate.layer.matmul import weight_gemms
from planner.estimate.layer.shape import key_of, local_shape
from planner.estimate.memory import layer_activations
from planner.estimate.stages import stage_split
from planner.estimate.states import rank_parameters
from planner.formulas import rules
from planner.formulas.params import parameter_leaves
from planner.inputs import catalog
from planner.specs.layers import attended_of, limits_of, parts_of, scans_of
from planner.specs.model import ModelSpec

LAYOUTS: tuple[dict[str, Any], ...] = (
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
    plan = plans.plan(model_of(name), gpus=4, gpu="h100-sxm5-80gb", global_batch=16)
    c = plans.rows(4, *LAYOUTS)
    estimates = evaluate(plan, c)
    whole, full = estimates.memory.layer_bytes[0], estimates.memory.stage_peaks
    assert np.all(np.isfinite(estimates.time.seconds) & (estimates.time.seconds > 0))
    assert np.all(np.isfinite(full) & (full > 0))
    assert whole > estimates.memory.input_bytes[0]
    # all weights that are multiplied with are in some GEMM of the mean layer
    shape = local_shape(plan, **key_of(plans.rows(4, {})))
    inner = [
        parameter_leave
        for parameter_leave in parameter_leaves(plan.model)
        if parameter_leave.matmul and parameter_leave.place == "layer"
    ]
    kept = sum(entry.count * entry.times for entry in inner)
    gemms = sum(p.per_layer * p.n * p.k * p.batch for p in weight_gemms(shape))
    assert float(gemms[0] if np.ndim(gemms) else gemms) * plan.model.layers == pytest.approx(kept)


def test_layers_of_several_kinds_add_up_to_the_model() -> None:
    """Whatever the stages, all ranks together hold what the model has."""
    shape = model_of("jamba").model_copy(update={"vocab": 128})  # needs no padding
    plan = plans.plan(shape, gpus=4)
    for pp, vpp in ((1, 1), (2, 1), (4, 1), (2, 2)):
        c = plans.rows(4, {"pp": pp, "vpp": vpp})
        kept = 0.0
        for stage in range(pp):
            split = stage_split(plan, c, np.array([float(stage)]))
            p = rank_parameters(plan, c)
            kept += float(p.of_stage(split, split.first, split.last)[0])
            kept += float(p.experts_of_stage(split)[0])
        assert kept == sum(
            parameter_leave.count * parameter_leave.times
            for parameter_leave in parameter_leaves(plan.model)
        )


def test_a_window_saves_time_and_a_longer_pattern_of_full_layers_less() -> None:
    seconds = []
    for every in (1, 3, 7):  # of 8 layers
        stack = [{"layers": [*["short + mlp"] * every, "attention + mlp"]}]
        fields = keys_of("gemma3_text")
        plan = plans.plan(ModelSpec.model_validate({**fields, "stack": stack}), seq_len=65536)
        seconds.append(evaluate(plan, plans.rows(8, {})).time.seconds[0])
    assert seconds[0] > seconds[1] > seconds[2]


def test_heads_groups_and_channels_limit_what_is_shared() -> None:
    plan = plans.plan(model_of("kimi_linear"), gpus=8)
    whats = {limit.what for limit in limits_of(plan.model)}
    assert {"heads", "heads of Kimi delta attention", "width of the MLP"} <= whats
    c = plans.rows(8, {"tp": 4}, {"tp": 8}, {"cp": 8}, {"cp": 2, "tp": 4})
    (heads,) = [rule for rule in rules.RULES if rule.name == "heads divide by tp"]
    assert heads.holds(plan, c).tolist() == [True, False, True, True]
    text = heads.sentence(plan, plans.layout(8, tp=8))
    assert "4 heads" in text
    (context,) = [rule for rule in rules.RULES if rule.name == "heads of scans divide by cp"]
    assert context.holds(plan, c).tolist() == [True, True, False, False]
    assert "4 heads of Kimi delta attention" in context.sentence(plan, plans.layout(8, cp=8))


def test_every_scan_has_a_name_where_it_limits_context_parallelism() -> None:
    (rule,) = [rule for rule in rules.RULES if rule.name == "heads of scans divide by cp"]
    for name in MODELS:
        plan = plans.plan(model_of(name), gpus=64)
        for core, _ in scans_of(plan.model):
            cp = 2 * core.units
            if cp <= 64 and not rule.holds(plan, plans.rows(64, {"cp": cp}))[0]:
                assert f"share the {core.units} " in rule.sentence(plan, plans.layout(64, cp=cp))


def test_tensor_parallelism_divides_the_groups_of_mamba_2() -> None:
    """As Megatron-Core asserts: Nemotron-H has 8 groups, and 256 heads."""
    model = catalog.load("models", ModelSpec, "nemotron-h-56b")
    plan = plans.plan(model, gpus=16)
    (rule,) = [rule for rule in rules.RULES if rule.name == "heads divide by tp"]
    assert rule.holds(plan, plans.rows(16, {"tp": 8}, {"tp": 16})).tolist() == [True, False]
    text = rule.sentence(plan, plans.layout(16, tp=16))
    assert "groups of states" in text
    assert "nearest: --tp 8" in text


def test_modules_of_multi_token_prediction_are_on_the_last_stage() -> None:
    fields = plans.keys(layers=4)
    without, having = (
        plans.plan(ModelSpec.model_validate({**fields, "mtp": n}), gpus=4) for n in (0, 1)
    )
    c = plans.rows(4, {"pp": 4})
    first, other = (evaluate(subject, c) for subject in (without, having))
    assert other.time.seconds[0] > first.time.seconds[0]
    assert other.memory.stage_layers[:, 0].tolist() != first.memory.stage_layers[:, 0].tolist()
    assert other.memory.stage_layers[-1, 0] == 2.0


def test_a_fused_rotation_of_latent_attention_touches_what_it_turns_and_makes() -> None:
    # DeepSeek-V2-Lite: 16 heads, 128 unrotated, 64 rotated, values of 128. Queries: 64 read and
    # written in place; keys and values: 128 + 128 read, 192 + 128 written. Torch operators rotate
    # queries and keys, and copy values beside them
    latent = catalog.load("models", ModelSpec, "deepseek-v2-lite")
    ((core, _),) = attended_of(latent)
    fused = plans.plan(latent, software="megatron-core")
    turned, result = operators._rotated(fused, core)
    assert turned * 4.0 + result * 4.0 == 16 * 2.0 * (64 + 64 + 128 + 128 + 192 + 128)
    split = plans.plan(latent, software="pytorch-fsdp")
    assert operators._rotated(split, core) == (16 * (192 + 192), 16 * (192 + 192 + 128))


def test_a_sink_takes_a_kernel_backward_or_a_copy_of_the_scores() -> None:
    fields = plans.keys()
    part = {"type": "attention", "name": "own", "heads": 8, "kv_heads": 8, "head_dim": 64}

    def core(sinks: bool, attention: str) -> tuple[float, float]:
        stack = [{"layers": ["own + mlp"]}]
        parts = [{**part, "sinks": sinks}]
        model = ModelSpec.model_validate({**fields, "parts": parts, "stack": stack})
        plan = plans.plan(model, gpus=8)
        plan = plan.model_copy(
            update={"training": plan.training.model_copy(update={"attention": attention})}
        )
        result = core_s(local_shape(plan, **key_of(plans.rows(8, {}))), plans.numbers(plan))
        return float(result.forward[0]), float(result.backward[0])

    fused, plain = core(True, "flash2"), core(False, "flash2")
    assert fused[0] == plain[0]
    assert 1.0 < fused[1] / plain[1] < 1.2
    eager, without = core(True, "eager"), core(False, "eager")
    assert eager[0] > 1.05 * without[0]
    assert eager[1] > 1.02 * without[1]


def test_ranks_add_up_what_steers_the_scan_of_mamba() -> None:
    """Elements of its steps and of input and output weights, forward and backward; Mamba-2's ranks
    have heads and groups of their own."""
    for name, several in (("jamba", True), ("nemotron_h", False)):
        plan = plans.plan(model_of(name), gpus=4, gpu="h100-sxm5-80gb", global_batch=16)
        alone, shared = evaluate(plan, plans.rows(4, {})), evaluate(plan, plans.rows(4, {"tp": 2}))
        kept = [t for t in shared.time.traffic if t.what == "steering of a scan"]
        assert bool(kept) == several
        assert not any(t.what == "steering of a scan" and t.count[0] for t in alone.time.traffic)
        for entry in kept:
            steered = [part.inner_sums() for part, _ in parts_of(plan.model) if part.inner_sums()]
            tokens = plan.training.seq_len
            assert float(entry.bytes[0]) == 2 * tokens * steered[0]
            layers = sum(n for part, n in parts_of(plan.model) if part.inner_sums())
            assert float(entry.count[0]) == 2 * layers * plan.training.global_batch / 2


def test_the_gate_of_shared_experts_and_of_attention_have_a_price() -> None:
    plan = plans.plan(model_of("qwen3_next"), gpus=8)
    names = evaluate(plan, plans.rows(8, {})).time.detail
    for name in ("matmul/shared_gate", "memory_bound/moe/shared_gate"):
        assert float(names[f"layer/{name}"][0]) > 0
    assert float(names["layer/memory_bound/attention/gate"][0]) > 0
    assert {"moe/shared_gate", "attention/gate"} <= layer_activations(
        plan, plans.rows(8, {})
    ).keys()
