"""Frozen weights in fewer bits beside adapters: bytes of a matrix as the libraries keep it, of a
model as it was measured, buffers, time, and refusals.

Sizes: bitsandbytes 0.50.2 on a CPU for a 4096 x 1024 weight (functional.quantize_4bit,
int8_vectorwise_quant); torchao 0.18, to_nf4; GPTQ from the buffers that qlinear_tritonv2.py of
AutoGPTQ registers."""

from __future__ import annotations

from typing import Any, get_args

import plans
import pytest
from command import argv, dpplan, refused

from planner.estimate import Estimates, evaluate
from planner.estimate.matrices import held_matrices
from planner.formulas.params import layer_tensors
from planner.inputs import catalog
from planner.specs.adapters import AdapterSpec
from planner.specs.layers import layers_of
from planner.specs.model import ModelSpec
from planner.specs.names import BaseName
from planner.specs.quantised import BASES

LORA = AdapterSpec(rank=16, targets=("q_proj", "k_proj", "v_proj", "o_proj"), precision="fp32")


def estimates_of(base: str | None, gpus: int = 1, model: Any = None, **layout: Any) -> Estimates:
    plan = plans.plan(
        model, software="hf-fsdp", gpus=gpus, adapter=LORA, base_precision=base, seq_len=1024
    )
    return evaluate(plan, plans.rows(gpus, {"zero": 0, **layout}))


def leaf(estimates: Estimates, name: str, phase: int = 0) -> float:
    return float(estimates.memory.timeline[0][phase][name][0])


def test_bytes_of_a_matrix_are_those_of_the_libraries() -> None:
    assert set(get_args(BaseName)) == BASES.keys()
    k, n = 1024.0, 4096.0
    codes, words, groups = 4096 * 1024 // 2, 1024 // 8 * 4096 * 4, 1024 // 128
    by_library: dict[BaseName, float] = {
        "nf4": codes + 262_144 + 64,
        "nf4-double": codes + 65_536 + 1024 + 1024 + 4 + 64,
        "int8": 2 * codes + 16_384,
        # qweight, qzeros and scales, g_idx
        "gptq": words + groups * 4096 // 8 * 4 + groups * 4096 * 2 + 1024 * 4,
        "awq": words + groups * 4096 // 8 * 4 + groups * 4096 * 2,
        "hqq": codes + 1024 // 64 * 4096 * 4,
        "fp8": 2 * codes + 4,
        "fp8-blockwise": 2 * codes + 8 * 32 * 4,
        "mxfp4": codes + 4096 * 1024 // 32,
    }
    for name, size in by_library.items():
        assert BASES[name].matrix_bytes(k, n) == size
    # torchao: factors of scales in bf16, one table of 16 values
    assert BASES["nf4-double"].matrix_bytes(k, n) == pytest.approx(
        codes + 65_536 + 512 + 2 + 32, rel=1e-3
    )
    assert BASES["gptq"].matrix_bytes(k, n, 32) - by_library["gptq"] == 24 * 4096 * (2 + 0.5)


# of all matrices of the layers, as the libraries keep them on the meta device or make them:
# AutoAWQ 0.2.9 (WQLinear_GEMM), GPTQModel 7.7.0 (buffers of BaseQuantLinear), HQQ 0.2.8
# (Quantizer.quantize)
BY_LIBRARY: dict[tuple[str, BaseName, int | None], int] = {
    ("llama-2-7b", "awq", None): 3_364_487_168,
    ("llama-2-7b", "gptq", None): 3_369_041_920,
    ("llama-2-7b", "gptq", 32): 3_748_495_360,
    ("llama-2-7b", "hqq", None): 3_642_753_024,
    ("mistral-7b", "awq", None): 3_625_975_808,
    ("mistral-7b", "gptq", None): 3_630_956_544,
    ("mistral-7b", "gptq", 32): 4_039_901_184,
    ("mistral-7b", "hqq", None): 3_925_868_544,
    ("llama-2-70b", "awq", None): 35_562_455_040,
    ("llama-2-70b", "gptq", None): 35_587_358_720,
    ("llama-2-70b", "gptq", 32): 39_598_161_920,
    ("llama-2-70b", "hqq", None): 38_503_710_720,
}


def test_bytes_of_models_are_those_of_the_libraries() -> None:
    """0.520 bytes per parameter of AWQ and GPTQ in groups of 128, 0.579 in groups of 32, 0.5625 of
    HQQ. TheBloke/Llama-2-70B-AWQ is 36.61 GB with embedding, head and norms in 16 bit."""
    first = plans.rows(1, {})
    for (name, base, group), size in BY_LIBRARY.items():
        model = catalog.load("models", ModelSpec, name)
        plan = plans.plan(model, gpus=1, software="hf-fsdp")
        result = sum(
            float((m.count * BASES[base].matrix_bytes(m.rows, m.columns, group))[0])
            for m in held_matrices(plan, first.tp, first.ep)
        )
        assert result * model.layers == size
        if (name, base) == ("llama-2-70b", "awq"):
            wide = 2 * (2 * model.vocab + 2 * model.layers + 1) * model.hidden
            assert round((size + wide) / 1e9, 2) == 36.61


def test_what_was_measured_after_training() -> None:
    """Mistral 7B beside rank 16 on q, k, v and o, one A100: allocated after 100 steps, weights,
    adapters and moments in fp32 (fms-acceleration, scripts/benchmarks/refs)."""
    mistral = catalog.load("models", ModelSpec, "mistral-7b")
    for base, measured in (("nf4-double", 4.0107), ("gptq", 4.0390)):
        answer = estimates_of(base, model=mistral)
        kept = sum(leaf(answer, name) for name in ("parameters", "optimizer", "workspaces"))
        assert kept / 2**30 == pytest.approx(measured, rel=0.003)


def test_embedding_head_norms_and_routers_stay_in_16_bit() -> None:
    for shape in (plans.model(), plans.expert_model()):
        wide, narrow = estimates_of(None, model=shape), estimates_of("fp8", model=shape)
        kinds = layers_of(shape).kinds
        stay = ("router", "norm", "bias")
        each = sum(
            tensor.count
            for tensor in layer_tensors(shape, kinds[0])
            if not any(word in tensor.name for word in stay)
        )
        saved = leaf(wide, "parameters") - leaf(narrow, "parameters")
        # a byte of each, less a scale of four bytes per matrix
        assert saved == pytest.approx(shape.layers * each, rel=1e-3)


def test_a_matrix_is_made_in_16_bit_for_each_gemm() -> None:
    answer = estimates_of("nf4", micro_batch=1)
    largest = 2 * 512 * 1408
    assert [leaf(answer, "dequantised_weights", phase) for phase in range(7)] == [
        0.0,
        largest,
        0.0,
        largest,
        largest,
        0.0,
        0.0,
    ]


def test_a_chain_of_operators_keeps_the_weights_that_it_decodes() -> None:
    """AutoGPTQ's layers shift codes to int32 and cast them to int8, 5 bytes per weight; autograd
    keeps the 16-bit weights for the gradient of the input, of all layers or of the one that is
    repeated. A kernel makes one matrix at a time."""
    largest, layers = 512 * 1408, 8
    layer = 4 * 512 * 512 + 3 * largest

    def of(software: str, recompute: str) -> list[float]:
        plan = plans.plan(software=software, gpus=1, adapter=LORA, base_precision="gptq")
        estimates = evaluate(plan, plans.rows(1, {"recompute": recompute}))
        return [leaf(estimates, "dequantised_weights", phase) for phase in (1, 2, 3)]

    forward, loss, backward = of("hf-trainer", "full")
    assert (forward, loss) == (5 * largest, 0)
    assert backward == pytest.approx(2 * layer + 3 * largest, rel=0.01)
    kept = of("hf-trainer", "none")
    assert kept[1] == pytest.approx(2 * layers * layer, rel=0.01)
    assert of("fms-acceleration", "full") == [2 * largest, 0, 2 * largest]


def test_int8_makes_its_matrix_in_the_type_it_was_given() -> None:
    """MatMul8bitLt.backward: codes to ctx.dtype_A, fp32 behind norms in fp32; Linear4bit casts what
    it is given to 16 bit first."""
    for base, each in (("int8", (2, 4)), ("nf4", (2, 2))):
        for upcast, size in zip((None, "norms"), each, strict=True):
            plan = plans.plan(
                software="hf-fsdp", gpus=1, adapter=LORA, base_precision=base, base_upcast=upcast
            )
            estimates = evaluate(plan, plans.rows(1, {"zero": 0}))
            assert leaf(estimates, "dequantised_weights", 3) == size * 512 * 1408


def test_shards_travel_as_they_are_kept() -> None:
    wide, narrow = (estimates_of(base, 8, zero=3) for base in (None, "nf4-double"))
    for name in ("parameters", "gathered_layers"):
        assert leaf(narrow, name, 1) < 0.6 * leaf(wide, name, 1)


def test_making_them_takes_time_and_int8_multiplies_codes_forward() -> None:
    seconds = [
        float(estimates_of(base).time.seconds[0]) for base in (None, "nf4-double", "int8", "fp8")
    ]
    assert seconds[0] < min(seconds[1:])
    assert seconds[2] < seconds[3]


def test_on_the_command_line() -> None:
    request: tuple[str, ...] = argv("--model llama-3-8b --gpu rtx4090 --gpus 1 --stack hf-fsdp")
    request += ("--seq-len", "2048", "--micro-batch", "1", "--global-batch", "1")
    request += ("--recompute", "full")
    lora = ("--lora", "16", "--loss-kernel", "liger")
    wide, narrow = (
        dpplan("estimate", *request, *lora, *more, "--json").json()
        for more in ((), ("--base-precision", "qlora"))
    )
    assert narrow["training"]["base_precision"] == "nf4-double"
    assert "--base-precision nf4-double" in narrow["command"]
    assert narrow["memory"]["peak_bytes"] < 9 * 2**30 < wide["memory"]["peak_bytes"]
    refused(dpplan("estimate", *request, "--base-precision", "nf4"), "--base-precision")
    bad = ("--base-precision", "nf4", "--base-group", "64")
    refused(dpplan("estimate", *request, *lora, *bad), "--base-group")


def test_adapters_that_do_not_fit_are_told_of_nf4() -> None:
    request: tuple[str, ...] = argv(
        "--model llama-3-8b --gpu v100-sxm2-16gb --gpus 1 --stack hf-fsdp"
    )
    request += ("--seq-len", "1024", "--micro-batch", "1", "--global-batch", "1", "--lora", "16")
    document = dpplan("estimate", *request, "--json").json()
    kept = [advice for advice in document["advice"] if "base_precision" in advice["changes"]]
    assert kept
    assert kept[0]["fits"]
