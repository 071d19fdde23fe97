"""Modules of multi-token prediction: what they hold, keep and take, and who says how many."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from part_models import keys_of

from planner import api
from planner.estimate import evaluate
from planner.estimate.states import rank_parameters
from planner.formulas.params import parameter_count, parameter_leaves
from planner.formulas.stages import contents
from planner.inputs import catalog
from planner.inputs.scenario import resolve
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

GIB = 2**30


def modules(count: int, base: ModelSpec | None = None) -> ModelSpec:
    return (base or plans.model(layers=4)).model_copy(update={"mtp": count})


def test_deepseek_v3_has_a_module_of_the_size_that_its_authors_publish() -> None:
    """11.5 B of its own, beside embedding and head that it shares (README_WEIGHTS.md of
    deepseek-ai/DeepSeek-V3, recalled)."""
    model = catalog.load("models", ModelSpec, "deepseek-v3")
    ours = parameter_count(modules(1, model)) - parameter_count(model)
    assert ours == pytest.approx(11.5e9, rel=0.01)


def test_the_last_of_several_stages_has_a_copy_of_the_embedding() -> None:
    """Modules read words: Megatron-Core keeps a copy where they are, as for a tied head."""
    plan = plans.plan(modules(1), gpus=4)
    words = float(plan.model.padded_vocab * plan.model.hidden)
    c = plans.rows(4, {}, {"pp": 2}, {"pp": 2, "tp": 2})
    last = rank_parameters(plan, c).last
    assert last["mtp/embedding"].tolist() == [0.0, words, words / 2]
    # the projection is divided by its columns
    projection = 2.0 * plan.model.hidden**2
    assert last["mtp/projection"].tolist() == [projection, projection, projection / 2]
    assert "mtp/embedding" not in rank_parameters(plans.plan(gpus=4), c).last


def test_every_depth_keeps_logits_and_the_inputs_of_its_norms_and_projection() -> None:
    c = plans.rows(4, {"pp": 4})
    none, first, two = (
        evaluate(plans.plan(modules(n), gpus=4), c).memory.stage_components[-1] for n in range(3)
    )
    many = [
        evaluate(plans.plan(modules(n), gpus=4), c).memory.timeline[-1][2] for n in range(3)
    ]  # at the loss
    logits = [float(phase["logits"][0]) for phase in many]
    assert logits[1] == 2 * logits[0] > 0
    assert logits[2] == 3 * logits[0]
    kept = [float(phase["activations"][0]) for phase in many]
    assert kept[2] - kept[1] == pytest.approx(kept[1] - kept[0])
    assert (
        float(two["parameters"][0]) > float(first["parameters"][0]) > float(none["parameters"][0])
    )


def test_a_module_may_have_several_layers() -> None:
    """Nemotron 3's module is an attention layer and an expert layer, whatever the last layer is."""
    fields = keys_of("nemotron_h") | {"mtp": 2}
    words = list(dict.fromkeys(word for entry in fields["stack"] for word in entry["layers"]))[:2]
    model = ModelSpec.model_validate({**fields, "mtp_layers": words})
    plan, c = plans.plan(model, gpus=4), plans.rows(4, {"pp": 2})
    assert contents(plan, 2, 1).layers.sum() == model.layers + 2 * len(words)
    stage_layers = evaluate(plan, c).memory.stage_layers[:, 0]
    assert stage_layers[-1] == model.layers / 2 + 2 * len(words)
    with pytest.raises(ValueError, match="no layer of the stack is 'mlp & mlp'"):
        ModelSpec.model_validate({**fields, "mtp_layers": ["mlp & mlp"]})
    with pytest.raises(ValueError, match="this model has none"):
        ModelSpec.model_validate({**plans.keys(), "mtp_layers": ["attention"]})
    leaves = [
        parameter_leave
        for parameter_leave in parameter_leaves(model)
        if parameter_leave.place == "mtp"
    ]
    assert sum(leaf.name == "norm/layer" for leaf in leaves) == len(words)


def test_a_module_takes_the_three_products_of_its_projection() -> None:
    plan = plans.plan(modules(1), gpus=4)
    c = plans.rows(4, {}, {"tp": 2, "sequence_parallel": True}, {"pp": 2})
    time = evaluate(plan, c).time
    each = time.detail["module/matmul/mtp_projection"]
    head = time.detail["head/matmul/logits"]
    assert np.all(each > 0)
    # the head's products, of which a module has one more set, have as many tokens
    wide, narrow = 2 * float(plan.model.hidden), float(plan.model.padded_vocab)
    assert each[0] / (head[0] / 2) == pytest.approx(wide / narrow, rel=0.5)
    sent = [t for t in time.traffic if t.what == "projection of multi-token prediction"]
    assert [float(np.sum(t.count[1])) > 0 for t in sent] == [True, True, True, False]


def test_a_measured_peak_of_megatron_is_met_with_its_module_alone() -> None:
    """CI of NVIDIA/Megatron-LM@d98e8a64, gpt3_mcore_te_tp2_pp2_ep4_etp1_memory_speed on 8 H100: the
    last stage allocates 55.98 GiB; unfused attention of Transformer Engine."""

    def peak(count: int) -> float:
        model = ModelSpec.model_validate(
            {
                "name": "ci",
                "layers": 16,
                "hidden": 1024,
                "heads": 32,
                "kv_heads": 32,
                "head_dim": 128,
                "ffn_hidden": 4096,
                "vocab": 50257,
                "vocab_multiple": 256,
                "mtp": count,
                "latent": {
                    "query_rank": 1536,
                    "kv_rank": 512,
                    "nope_head_dim": 128,
                    "rope_head_dim": 64,
                    "value_head_dim": 128,
                },
                "moe": {
                    "experts": 32,
                    "experts_per_token": 4,
                    "ffn_hidden": 1024,
                    "shared_ffn_hidden": 1024,
                    "dense_layers": 1,
                },
            }
        )
        values: dict[str, Any] = {"gpus": 8, "gpu": "h100-sxm5-80gb", "software": "megatron-core"}
        plan: Plan = plans.plan(model, **values, global_batch=32, seq_len=4096)
        training = plan.training.model_copy(update={"attention": "fused_softmax"})
        row: dict[str, Any] = {"tp": 2, "pp": 2, "vpp": 4, "ep": 4, "micro_batch": 4, "zero": 1}
        row |= {"schedule": "interleaved", "sequence_parallel": True}
        changed = plan.model_copy(update={"training": training})
        estimates = evaluate(changed, plans.rows(8, row), np.arange(2.0)[:, None])
        return float(estimates.memory.stage_peaks[-1][0]) / GIB

    assert peak(1) == pytest.approx(55.98, rel=0.05)
    assert peak(0) < 0.85 * 55.98


def test_their_number_is_asked_for_or_read_from_the_layout() -> None:
    base = {"model": "deepseek-v3", "gpu": "h800", "gpus": 2048}

    def count(**more: object) -> tuple[int, list[str]]:
        options = resolve(api.read_options({**base, **more}))
        kept = [
            assumption for assumption in options.assumptions if assumption.startswith("multi-token")
        ]
        return options.parts[0].mtp, kept

    assert count() == (0, [])
    assert count(mtp=1) == (1, ["multi-token prediction: 1 module trained (--mtp)"])
    text = "Et*4|(t*4|)*14tmL"
    assert count(pipeline_layout=text)[0] == 1
    with pytest.raises(PlanError, match="holds 1 of them"):
        count(pipeline_layout=text, mtp=2)
    with pytest.raises(PlanError, match="no further words"):
        resolve(api.read_options({**base, "model": "t5-3b", "mtp": 1}))
