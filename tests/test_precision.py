"""Recipes of training in 8 and 4 bit: bytes of scales by hand, laws of time and memory, and who
refuses what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import plans
import pytest
from command import argv, dpplan
from run_tables import row, row_plan

from planner.estimate import evaluate
from planner.estimate.layer import local_shape
from planner.estimate.layer.dispatch import sent_bytes
from planner.estimate.layer.gemm import gemm_s
from planner.estimate.layer.matmul import casts_s, weight_gemms, weight_gemms_s
from planner.estimate.layer.operators import copy_s
from planner.estimate.machine import Machine, machine
from planner.estimate.memory import layer_activations
from planner.estimate.memory.low_precision import copies_bytes
from planner.estimate.sync import gathered_bytes
from planner.formulas import casts
from planner.inputs import catalog
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.mechanisms.transpose_weights import TransposeWeights
from planner.specs.adapters import AdapterSpec
from planner.specs.base import PlanError
from planner.specs.hardware import GpuSpec
from planner.specs.names import PRECISIONS
from planner.specs.plan import Plan
from planner.specs.precision import RECIPES
from planner.specs.stack import StackSpec

WIDE = {"hidden": 8192, "heads": 64, "head_dim": 128, "ffn_hidden": 28672, "layers": 4}


def plan(precision: str, gpu: str = "gb300-279gb", stack: str = "nemo", **more: Any) -> Plan:
    shape = plans.model(**WIDE, kv_heads=8)
    return plans.plan(
        shape, gpus=8, gpu=gpu, software=stack, seq_len=8192, precision=precision, **more
    )


def of_layer(plan: Plan) -> tuple[float, float]:
    """(GEMMs, casts) of a layer and micro-batch, both ways, in seconds."""
    ones = {name: np.ones(1) for name in ("tp", "cp", "ep", "micro_batch")}
    shape = local_shape(plan, **ones, sequence_parallel=np.zeros(1))
    m: Machine = machine(plan)
    items = [(weight_gemms_s(plan, m, p), casts_s(plan, m, p)) for p in weight_gemms(shape)]
    return (
        sum(float((gemm.forward + gemm.backward)[0]) for gemm, _ in items),
        sum(float((cast.forward + cast.backward)[0]) for _, cast in items),
    )


def leaf(plan: Plan, name: str, **layout: Any) -> float:
    rows = plans.rows(8, {"dp": 8, **layout})
    return float(np.ravel(evaluate(plan, rows).memory.components[name])[0])


def test_scales_by_hand() -> None:
    """A tensor of 8192 x 4096: 32 Mi elements. MXFP8 has 32 Mi bytes and a byte for each 32, NVFP4
    16 Mi and a byte for each 16, blocks of 128 four bytes each; one scale per tensor is nothing."""
    elements = 8192 * 4096
    whole = {
        "fp8-delayed": elements,
        "fp8-tensorwise": elements,
        "fp8-blockwise": elements + elements // 128 * 4,
        "mxfp8": elements + elements // 32,
        "nvfp4": elements // 2 + elements // 16,
    }
    for name, by_hand in whole.items():
        recipe = RECIPES[name]
        assert elements * casts.operand_bytes(recipe.element, recipe.scale, recipe.block) == by_hand
    # read once to find the largest value and once to cast, two copies of 9/16 byte written
    four = RECIPES["nvfp4"]
    each = casts.operand_bytes(four.element, four.scale, four.block)
    moved = casts.cast_bytes(elements, four.reads, four.copies("blackwell"), each)
    assert moved == elements * (2 + 2 + 2 * 9 / 16)
    # Hopper's units want the weight gradient's copy transposed, Blackwell's do not
    assert [RECIPES["fp8-delayed"].copies(a) for a in ("hopper", "blackwell")] == [2, 1]


@pytest.mark.parametrize("gpu", ["b200-sxm-180gb", "gb200-186gb", "b300-sxm-270gb", "gb300-279gb"])
def test_fewer_bits_are_never_slower_in_large_gemms(gpu: str) -> None:
    values = {name: of_layer(plan(name, gpu)) for name in ("bf16", "mxfp8", "fp8-delayed", "nvfp4")}
    gemm = {name: seconds for name, (seconds, _) in values.items()}
    assert gemm["bf16"] > gemm["mxfp8"] > gemm["fp8-delayed"] > gemm["nvfp4"]
    cast = {name: seconds for name, (_, seconds) in values.items()}
    assert cast["bf16"] == 0 < cast["fp8-delayed"] < cast["mxfp8"] < cast["nvfp4"]


def test_transformer_engine_s_own_times_on_b300() -> None:
    """Its profile of a layer of 4096 and 16384 wide over 15,872 tokens (docs/examples/
    gemm_profiling at d0067d0d), operands cast before: 3.76 ms in NVFP4, 7.16 in MXFP8, 6.81 with
    one scale per tensor."""
    m = 15872
    forward = [(m, 12288, 4096), (m, 4096, 4096), (m, 16384, 4096), (m, 4096, 16384)]
    shapes = [
        *forward,
        *((rows, inner, columns) for rows, columns, inner in forward),
        *((inner, columns, rows) for rows, columns, inner in forward),
    ]
    for name, measured, within in (
        ("nvfp4", 3.764e-3, 0.08),
        ("mxfp8", 7.161e-3, 0.12),
        ("fp8-tensorwise", 6.812e-3, 0.12),
    ):
        planned = plan(name, "b300-sxm-270gb")
        numbers = machine(planned)
        seconds = sum(
            float(gemm_s(planned, numbers, *map(float, shape), recipe=planned.recipe))
            for shape in shapes
        )
        assert seconds == pytest.approx(measured, rel=within), name


def test_what_weights_take() -> None:
    """Per weight of a layer: Megatron-Core keeps 16 bit and both copies beside it, NeMo only the
    copies, of which a per-tensor recipe needs two on Hopper and one on Blackwell; blocks of NeMo
    stay beside 16 bit."""
    megatron = plan("mxfp8", stack="megatron-core")
    wide = leaf(plan("bf16"), "parameters", zero=1)
    beside = leaf(megatron, "low_precision_copies", zero=1)
    weights = beside / copies_bytes(megatron)
    assert copies_bytes(megatron) == 2 * (1 + 1 / 32)
    assert leaf(megatron, "parameters", zero=1) == wide
    for name, gpu, each in (
        ("mxfp8", "gb300-279gb", 2.0625),
        ("fp8-tensorwise", "gb300-279gb", 1.0),
        ("fp8-tensorwise", "h100-sxm5-80gb", 2.0),
    ):
        job = plan(name, gpu)
        assert leaf(job, "low_precision_copies", zero=1) == 0
        assert wide - leaf(job, "parameters", zero=1) == pytest.approx((2 - each) * weights)
    planned = plan("mxfp8", stack="megatron-core", low_parts=("weights",))
    assert leaf(planned, "low_precision_copies", zero=1) == 0
    blocks = plan("fp8-blockwise", "h100-sxm5-80gb")
    assert leaf(blocks, "low_precision_copies", zero=1) == pytest.approx(
        weights * 2 * (1 + 4 / 128)
    )
    # under ZeRO-3 the gathered weights are copied
    assert leaf(plan("mxfp8", stack="pytorch-fsdp"), "low_precision_copies", zero=3) == 0


def test_weights_without_transposed_copies() -> None:
    """One byte per weight on Hopper in place of two, for a read and a write in every backward
    pass; nothing changes on Blackwell, nor for blocks, each layout of which has scales of its
    own."""
    for name, gpu, fewer in (
        ("fp8-delayed", "h100-sxm5-80gb", True),
        ("fp8-delayed", "gb300-279gb", False),
        ("fp8-blockwise", "h100-sxm5-80gb", False),
    ):
        cached = plan(name, gpu, low_parts=("weights",))
        again = plan(name, gpu, low_parts=("weights",), mechanisms=(TransposeWeights(),))
        assert copies_bytes(cached) - copies_bytes(again) == pytest.approx(float(fewer))
        weights = 8192 * (8192 * 2 + 8192 // 8 * 2 + 3 * 28672)
        moved = copy_s(machine(cached), np.array([2.0 * weights * fewer]))[0]
        (gemms, casts_), (others, more) = of_layer(cached), of_layer(again)
        assert gemms == pytest.approx(others)
        assert more - casts_ == pytest.approx(float(moved))


@pytest.mark.parametrize(
    ("precision", "gpu"), [("bf16", "h100"), ("fp8-blockwise", "h100"), ("fp8-delayed", "b200")]
)
def test_transposing_weights_is_refused_where_no_copy_is_kept(precision: str, gpu: str) -> None:
    options = {"model": "qwen3-0.6b", "gpus": 8, "stack": "megatron-core"}
    options["transpose_weights"] = True
    with pytest.raises(PlanError, match="--transpose-weights: needs 8-bit weights"):
        resolve(read_options({**options, "precision": precision, "gpu": gpu}))
    resolve(read_options({**options, "precision": "fp8-delayed", "gpu": "h100"}))


def test_what_activations_take() -> None:
    rows = plans.rows(8, {"dp": 8})
    kept = {
        name: layer_activations(plan(name), rows)["mlp/input"][0]
        for name in ("bf16", "mxfp8", "nvfp4")
    }
    assert kept["mxfp8"] / kept["bf16"] == (1 + 1 / 32) / 2
    assert kept["nvfp4"] / kept["bf16"] == (1 / 2 + 1 / 16) / 2
    # a quarter of the layers in 16 bit: between both
    mixed = layer_activations(plan("nvfp4", wide_layers=1), rows)["mlp/input"][0]
    assert mixed == pytest.approx(0.75 * kept["nvfp4"] + 0.25 * kept["bf16"])
    times = [of_layer(plan("nvfp4", wide_layers=n))[0] for n in (0, 2, 4)]
    assert times[1] == pytest.approx((times[0] + times[2]) / 2)
    assert times[2] == pytest.approx(of_layer(plan("bf16"))[0])


def test_what_travels_in_fewer_bits() -> None:
    assert gathered_bytes(plan("fp8-tensorwise")) == 1
    assert gathered_bytes(plan("mxfp8")) == 2, "Megatron gathers blocks in 16 bit"
    assert gathered_bytes(plan("fp8-tensorwise", stack="megatron-core")) == 2
    moe: dict[str, Any] = {"gpu": "h100-sxm5-80gb", "software": "hai-llm", "precision": "fp8"}
    # dispatch in 1 + 4 / 128 bytes, combine in 2
    assert sent_bytes(plans.plan(plans.expert_model(), **moe)) == (1 + 4 / 128 + 2) / 2
    assert sent_bytes(plans.plan(plans.expert_model(), low_parts=(), **moe)) == 2


def test_attention_in_fp8_is_faster_where_it_is_asked_for() -> None:
    whole, request = (
        float(np.ravel(evaluate(subject, plans.rows(8, {"dp": 8})).time.components["attention"])[0])
        for subject in (plan("mxfp8"), plan("mxfp8", low_parts=("attention", "weights")))
    )
    assert request < whole < 1.3 * request


def test_gpus_refuse_what_their_units_do_not_have() -> None:
    has = {
        "a100-sxm4-80gb": {"fp16", "bf16"},
        "l40s": {"fp8", "fp8-delayed", "fp8-rowwise"},
        "h100-sxm5-80gb": {"fp8", "fp8-blockwise"},
        "gb300-279gb": {"fp8", "fp8-blockwise", "mxfp8", "nvfp4"},
        "mi300x-192gb": {"fp8", "fp8-blockwise"},
    }
    lacks = {
        "a100-sxm4-80gb": {"fp8", "mxfp8", "nvfp4"},
        "l40s": {"fp8-blockwise", "mxfp8"},
        "h100-sxm5-80gb": {"mxfp8", "nvfp4"},
        "mi300x-192gb": {"mxfp8", "nvfp4"},
    }
    for name, formats in has.items():
        gpu = catalog.load("gpus", GpuSpec, name)
        assert all(gpu.rate(entry) for entry in formats)
        assert not any(gpu.rate(entry) for entry in lacks.get(name, ()))
    answer = dpplan("estimate", "--model", "llama3-8b", "--gpu", "h100", "--precision", "mxfp8")
    assert answer.status != 0
    assert "came with Blackwell" in answer.stderr
    assert "fp8-blockwise" in answer.stderr


def test_stacks_refuse_recipes_that_they_do_not_have() -> None:
    known = catalog.load_all("stacks", StackSpec)
    for stack in known:
        assert set(stack.precision.recipes) <= set(RECIPES) <= set(PRECISIONS)
        assert set(stack.precision.weights) <= set(stack.precision.recipes)
        assert set(stack.precision.dispatch) <= set(stack.precision.recipes)
    ask = ("estimate", "--model", "llama3-8b", "--gpu", "gb300", "--gpus", "8")
    answer = dpplan(*ask, "--precision", "nvfp4", "--stack", "torchtitan")
    assert answer.status != 0
    assert "fp8-tensorwise, fp8-rowwise, mxfp8" in answer.stderr
    assert dpplan(*ask, "--precision", "nvfp4").status == 0, "other stacks have it"
    answer = dpplan(*ask, "--low-precision", "weights")
    assert answer.status != 0
    answer = dpplan(*ask, "--precision", "fp8", "--low-precision", "dispatch")
    assert "has none" in answer.stderr


def test_nvidia_s_recipe_of_llama_3_70b_in_mxfp8_fits_64_gb300() -> None:
    """llama3_70b_pretrain_64gpu_gb300_fp8mx_config of Megatron-Bridge, which ran."""
    layout = argv("--tp 1 --pp 4 --vpp 5 --micro-batch 1 --global-batch 256 --recompute none")
    ask = ("--model", "llama3-70b", "--gpu", "gb300", "--gpus", "64", "--stack", "nemo")
    answer = dpplan("estimate", *ask, *layout, "--seq-len", "8192", "--precision", "mxfp8")
    assert "DOES NOT FIT" not in answer.stdout.upper()
    assert "GiB short" not in answer.stdout


def test_rows_name_their_recipes() -> None:
    for options, precision, match in (
        ("fp_recipe=nvfp4", "fp4", "nvfp4"),
        ("fp_recipe=mxfp8", "fp8", "mxfp8"),
        ("fp8_recipe=fp8-cs", "fp8", "fp8-tensorwise"),
        ("", "fp8", "fp8"),
    ):
        plan, _ = row_plan(
            row(gpu="gb300-279gb", stack="nemo", precision=precision, options=options)
        )
        assert plan.training.precision == match
    assert plan.precision == "fp8-tensorwise", "what NeMo calls fp8"
    gathers = row(gpu="gb200-186gb", precision="fp8", options="fp_recipe=mxfp8;fp8_param_gather=1")
    assert row_plan(gathers)[0].is_low("weights")
    with pytest.raises(PlanError, match="nvfp4"):
        row_plan(row(gpu="h100-sxm5-80gb", precision="fp4", options="fp_recipe=nvfp4"))


def test_activations_that_cast() -> None:
    """Where activations write 8 bit themselves, the input of the MLP's second GEMM and the
    gradients of its first are not read in 16 bit; tensors whose scale is their own are."""

    def casts(stack: str, precision: str) -> dict[str, tuple[float, float]]:
        ones = {name: np.ones(1) for name in ("tp", "cp", "ep", "micro_batch")}
        planned = plan(precision, stack=stack)
        shape = local_shape(planned, **ones, sequence_parallel=np.zeros(1))
        m: Machine = replace(machine(planned), kernel_gap=0.0)
        casts_by_name = {}
        for p in weight_gemms(shape):
            each = casts_s(planned, m, p)
            casts_by_name[p.name] = float(each.forward[0]), float(each.backward[0])
        return casts_by_name

    apart, inside = casts("nemo", "fp8-delayed"), casts("nemo-mlperf-5.1", "fp8-delayed")
    # 2 bytes read and 1 written (Blackwell multiplies both layouts): a third is left
    assert inside["mlp_out"][0] == pytest.approx(apart["mlp_out"][0] / 3)
    assert inside["mlp_in"][1] == pytest.approx(apart["mlp_in"][1] / 3)
    for name in ("qkv", "attention_out"):
        assert inside[name] == pytest.approx(apart[name])
    assert inside["mlp_in"][0] == pytest.approx(apart["mlp_in"][0])
    assert casts("nemo", "nvfp4") == casts("nemo-mlperf-5.1", "nvfp4")


# hipBLASLt of ROCm 6.2 in fp8 on MI300X, TFLOP/s by m = n = k: Azure/AI-benchmarking-guide,
# Azure_Results/ND_MI300X_v5_results.md
FP8_OF_MI300X = {4096: 955.0, 8192: 1159.0, 16384: 1015.0, 32768: 1029.0}


@pytest.mark.parametrize("n", FP8_OF_MI300X)
def test_fp8_of_mi300x(n: int) -> None:
    planned = plan("fp8-delayed", gpu="mi300x-192gb")
    time = gemm_s(planned, machine(planned), float(n), float(n), float(n), recipe=planned.recipe)
    assert 0.85 < 2.0 * n**3 / float(time) / 1e12 / FP8_OF_MI300X[n] < 1.15


@pytest.mark.parametrize(("gpu", "copies"), [("gb300-279gb", 1.0), ("h200-sxm-141gb", 2.0)])
def test_frozen_weights_in_8_bit(gpu: str, copies: float) -> None:
    """Frozen weights of layers are kept as GEMMs read them: in one layout on Blackwell, in both on
    Hopper, which is as much as 16 bit."""
    adapter = AdapterSpec(rank=16)
    each = {
        parts: leaf(plan("fp8-delayed", gpu, adapter=adapter, low_parts=parts), "parameters")
        for parts in ((), ("weights",))
    }
    layers = 4 * (2 * 8192 * (8192 + 1024) + 3 * 8192 * 28672)
    assert each[()] - each["weights",] == pytest.approx((2.0 - copies) * layers, rel=1e-4)
