"""Blocks that are frozen by name, adapters beside traced products, and recompute by operator."""

from __future__ import annotations

from typing import Any

import plans
import pytest
from test_trace import GIVEN, TOY, _model

from planner import api
from planner.estimate.memory import traced
from planner.estimate.trained import trained_count, trained_gemms
from planner.formulas.flops import matmul_weights
from planner.formulas.params import parameter_count
from planner.inputs.scenario import resolve
from planner.ledger import total
from planner.specs.adapters import AdapterSpec
from planner.specs.base import PlanError
from planner.specs.layers import layers_of
from planner.specs.options import Options
from planner.specs.plan import Plan

VLM: dict[str, Any] = {"model": "qwen2.5-vl-3b", "gpu": "h100", "gpus": 8, "stack": "pytorch-fsdp"}
TOWER = "before+*Vision*"
ALONE = {"zero": 0, "micro_batch": 1, "recompute": "none", "compile": False, "advice": 0}


def _plan(**given: Any) -> Plan:
    return resolve(Options(**given)).plans[0]


def _estimate(**given: Any) -> Any:
    return api.estimate(Options(**{**ALONE, **given}), brief=True)


def test_the_parameters_of_a_frozen_tower_are_not_trained() -> None:
    plan = _plan(**VLM, freeze=TOWER)
    tower = [part for part in plan.model.traced if part.name.startswith(("before", "Qwen2_5_VLV"))]
    layers = {part.name: part.parameters for part in tower}
    blocks = layers.pop("before") + 32 * layers["Qwen2_5_VLVisionBlock"]
    assert trained_count(plan) == parameter_count(plan.model) - blocks


def test_a_frozen_tower_has_no_backward_pass() -> None:
    plan = _plan(**VLM, freeze=TOWER)
    every, above, trained = trained_gemms(plan)
    assert every == pytest.approx(total(matmul_weights(plan.model, plan.training.seq_len)))
    assert trained == pytest.approx(above)
    assert above < every
    usual, frozen = (_estimate(**{**VLM, **more}) for more in ({}, {"freeze": TOWER}))
    assert frozen.step.seconds < usual.step.seconds
    assert frozen.memory.peak_bytes < usual.memory.peak_bytes


def test_gradients_pass_through_what_is_frozen_above_the_trained_part() -> None:
    plan = _plan(**VLM, freeze=f"{TOWER}+*Decoder*+after_5+embedding+head")
    every, above, trained = trained_gemms(plan)
    assert trained < above / 10 < every
    after = next(part.parameters for part in plan.model.traced if part.name == "after")
    assert trained_count(plan) == after


@pytest.mark.parametrize("names", ["mlp", "attention", "embedding+mlp", "attention+mlp"])
def test_parts_of_a_layer_are_frozen(names: str) -> None:
    plan = _plan(model="gpt2", gpu="h100", gpus=1, freeze=names)
    layers = plan.trained_layers
    assert layers is not None
    assert (layers.count, layers.words) == (12, "embedding" not in names)
    whole = {"mlp": 4_723_968, "attention": 2_363_904}  # weights and biases, and the norm before
    frozen = 12 * sum(whole.get(name, 0) for name in names.split("+"))
    tables = (50257 + 1024) * 768 * ("embedding" in names)
    assert trained_count(plan) == parameter_count(plan.model) - frozen - tables


@pytest.mark.parametrize(
    ("freeze", "says"), [("towr", "no block of .* known: "), ("*+embedding", "all of .* is frozen")]
)
def test_names_that_leave_nothing_to_train_or_name_nothing(freeze: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        _plan(**VLM, freeze=freeze)


def test_a_pipeline_of_frozen_blocks_is_refused() -> None:
    with pytest.raises(PlanError, match="no schedule"):
        _estimate(**{**GIVEN, "stack": "torchtitan", "pp": 2, "freeze": "embedding"})


# ----------------------------------------------------------------- adapters and selective recompute

SAVED = {"saved": "1024*b*s", "fused_saved": "512*b*s", "frozen_saved": "256*b*s"}
BLOCK = {"parameters": 4096, "gemms": [{"name": "q", "k": 64, "n": 64}], "enters": "64*b*s"}
LENGTH = 128


def _planned(**training: Any) -> Plan:
    model = _model(**{**BLOCK, **SAVED})
    return plans.plan(model, software="pytorch-fsdp", seq_len=LENGTH, gpus=1, **training)


@pytest.mark.parametrize(("dropout", "elements"), [(0.0, 1024), (0.5, 256)])
def test_a_frozen_matrix_keeps_no_input_where_its_adapter_has_a_copy(
    dropout: float, elements: int
) -> None:
    plan = _planned(adapter=AdapterSpec(rank=4, dropout=dropout))
    assert trained_count(plan) == 2 * 4 * (64 + 64)
    c, (part,) = plans.rows(1, {"micro_batch": 2}), plan.model.traced
    saved = traced.saved(plan, c, part, gradients=False)
    assert saved == pytest.approx(2 * 2 * LENGTH * elements)


def test_compiled_blocks_keep_the_less_of_both() -> None:
    plan, c = _planned(compile=True), plans.rows(1, {"micro_batch": 1})
    (part,) = plan.model.traced
    saved = [traced.saved(plan, c, part, gradients).item() for gradients in (True, False)]
    assert saved == [2 * LENGTH * 512, 2 * LENGTH * 256]


def test_what_products_give_is_kept_worked_by_hand() -> None:
    attention = {"heads": 2, "kv_heads": 2, "head_dim": 16}
    model = _model(**{**BLOCK, **SAVED, "attention": [attention]})
    plan = plans.plan(model, software="pytorch-fsdp", seq_len=LENGTH, gpus=1)
    (kind,) = layers_of(model).kinds
    kept = traced.products(plan, plans.rows(1, {"micro_batch": 3}), kind)
    of_token = 2 * 64 + 2 * 64 + 2 * (2 * 16 + 4)  # input, GEMM, attention with its statistics
    assert kept == pytest.approx(3 * LENGTH * of_token)


def test_operators_that_are_recomputed() -> None:
    given = {**GIVEN, **ALONE, "gpus": 1, "stack": "pytorch-fsdp", "micro_batch": 4}
    none, some, full = (
        _estimate(**{**given, "recompute": kind}) for kind in ("none", "selective", "full")
    )
    times, bytes_of = (
        [x.step.seconds for x in (none, some, full)],
        [x.memory.components["activations"] for x in (none, some, full)],
    )
    assert times == sorted(times)
    assert bytes_of == sorted(bytes_of, reverse=True)
    assert len({*times}) == len({*bytes_of}) == 3


@pytest.mark.parametrize(
    ("model", "selective"), [(TOY, "per-op"), ("llama-3-8b", "products")], ids=["traced", "ruled"]
)
def test_a_selection_of_another_kind_of_block_is_refused(model: str, selective: Any) -> None:
    given: dict[str, Any] = {
        "model": model,
        "gpu": "h100",
        "gpus": 8,
        "stack": "pytorch-fsdp",
        "advice": 0,
    }
    with pytest.raises(PlanError, match="products"):
        api.estimate(Options(**given, recompute="selective", selective=selective))
