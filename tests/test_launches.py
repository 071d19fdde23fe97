"""Operators that the CPU issues for a layer, by what the recipe fuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import plans
import pytest

from planner.estimate.layer.launches import (
    UNFUSED_GATE,
    UNFUSED_NORM,
    UNFUSED_ROTARY,
    issued_operators,
)
from planner.estimate.layer.shape import hooked_of, key_of, local_shape
from planner.estimate.machine import machine
from planner.estimate.step import step_time
from planner.inputs import catalog
from planner.mechanisms.cuda_graphs import CudaGraphs, graph_scopes
from planner.specs.adapters import AdapterSpec
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.names import BaseName, GraphScope
from planner.specs.plan import Plan

# of a layer beside norms, RoPE and gate, as the dispatcher sees transformers: seven products, the
# attention kernel and two sums; backward two products each and five sums of gradients
_OTHERS = (7 + 1 + 2, 14 + 1 + 5)
_QK = 2


def _issued(plan: Plan, micro_batch: int = 1, **chosen: int) -> tuple[float, float]:
    c = plans.rows(plan.cluster.gpus, {"micro_batch": micro_batch, **chosen})
    shape = local_shape(plan, **key_of(c), **hooked_of(plan, c))
    result = issued_operators(shape, machine(plan), ())
    return float(np.ravel(result.forward)[0]), float(np.ravel(result.backward)[0])


@pytest.mark.parametrize(("norms", "forward", "backward"), [(2, 38, 71), (2 + _QK, 54, 103)])
def test_unfused_operators_are_those_that_the_dispatcher_sees(
    norms: int, forward: int, backward: int
) -> None:
    """Llama and Qwen 3 of transformers 5: operators per layer without views, counted by a
    TorchDispatchMode over models of two and of four layers in bf16."""
    ways = zip(
        _OTHERS,
        *((each.forward, each.backward) for each in (UNFUSED_NORM, UNFUSED_ROTARY, UNFUSED_GATE)),
        strict=True,
    )
    got = [
        others + norms * (1 + norm) + (1 + rotary) + (1 + gate)
        for others, norm, rotary, gate in ways
    ]
    assert got == [forward, backward]


def test_bigscience_waits_for_every_kernel_on_a100_alone() -> None:
    """Its scripts for A100 (tr11, tr13) set CUDA_LAUNCH_BLOCKING=1, those for V100 (tr1, tr8) do
    not: host and GPU take turns, 30 operators of 44 us forward and 39 backward beside the GPU's
    time, and 30 again where the layer is repeated."""
    waiting, layers, micro_batches = 44e-6, plans.model().layers, 8

    def launch(gpu: str, software: str, **chosen: str) -> float:
        plan = plans.plan(software=software, gpu=gpu, precision="fp16", seq_len=4096)
        time = step_time(plan, plans.rows(8, {"micro_batch": 1, **chosen}), None)
        return float(time.components["launch"][0] + time.components["recompute"][0])

    assert launch("a100-sxm4-80gb", "bigscience") == pytest.approx(
        micro_batches * layers * (30 + 39) * waiting
    )
    names = ("bigscience", "megatron-deepspeed")
    ours, other = (launch("a100-sxm4-80gb", name, recompute="full") for name in names)
    # except the share that the smooth maximum had already
    assert ours - other == pytest.approx(micro_batches * layers * (2 * 30 + 39) * waiting, rel=0.03)
    ours, other = (launch("v100-sxm2-32gb", name, recompute="full") for name in names)
    assert ours == other


def test_a_hugging_face_layer_issues_its_chains_and_hooks() -> None:
    """By hand: 30 + 2 x 7 + 9 + 1, and 39 + 2 x 15 + 15 + 2 with 10 for each of nine weights."""
    assert _issued(plans.plan(software="hf-deepspeed")) == (54, 86 + 90)


def test_zero_3_of_deepspeed_hooks_modules_and_gradients() -> None:
    """By hand: 22 around each of nine modules both ways; beside adapters of seven matrices, which
    have 14 weights with a gradient and a module each, 10 for every gradient."""
    plan = plans.plan(software="hf-deepspeed")
    assert _issued(plan, zero=3) == (54 + 9 * 22, 86 + 90 + 9 * 22)
    assert _issued(plans.plan(software="hf-fsdp"), zero=3) == (54, 86)
    adapted: dict[str, Any] = {"adapter": AdapterSpec(rank=8)}
    with_hooks, without = (
        _issued(plans.plan(software=name, **adapted), zero=2)
        for name in ("hf-deepspeed", "hf-trainer")
    )
    assert with_hooks[0] == without[0]
    assert with_hooks[1] == pytest.approx(without[1] + 14 * 10)
    gathering = _issued(plans.plan(software="hf-deepspeed", **adapted), zero=3)
    assert gathering == pytest.approx([x + (9 + 14) * 22 for x in with_hooks])


def test_one_gpu_under_deepspeed_has_the_hooks_of_its_published_runs() -> None:
    alone = plans.plan(software="hf-deepspeed", gpus=1)
    assert _issued(alone) == (54 + 9 * 22, 86 + 90 + 9 * 22)
    adapted = plans.plan(software="hf-deepspeed", gpus=1, adapter=AdapterSpec(rank=8))
    trainer = plans.plan(software="hf-trainer", gpus=1, adapter=AdapterSpec(rank=8))
    assert _issued(adapted)[0] == _issued(trainer)[0]


@pytest.mark.parametrize(
    ("base", "forward", "backward"), [("gptq", 9, 0), ("nf4", 1, 1), ("nf4-double", 3, 3)]
)
def test_operators_decode_matrices_that_are_kept_as_codes(
    base: BaseName, forward: int, backward: int
) -> None:
    """By hand: each of seven matrices by 9 operators of AutoGPTQ in forward, or by 1 or 3 of
    bitsandbytes in either pass; a model that keeps queries, keys and values as one has five."""
    for joint, matrices in (((), 7), (("qkv",), 5)):
        model = plans.model(joint=joint)
        codes, wide = (
            _issued(
                plans.plan(
                    model,
                    software="ms-swift",
                    adapter=AdapterSpec(rank=8),
                    base_precision=precision,
                )
            )
            for precision in (base, None)
        )
        more = [a - b for a, b in zip(codes, wide, strict=True)]
        assert more == pytest.approx([matrices * forward, matrices * backward])


def test_fused_kernels_leave_the_operators_of_the_stack() -> None:
    for change in ({"fused_kernels": True}, {"compile": True}, {"loss_kernel": "fused-linear"}):
        assert _issued(plans.plan(software="hf-deepspeed", **change)) == (30, 39 + 90)
    plan = plans.plan(software="pytorch-fsdp", loss_kernel="fused")
    assert _issued(plan) == _issued(plans.plan(software="pytorch-fsdp"))


def test_a_norm_that_is_said_to_be_eager_stays_so() -> None:
    plan = plans.plan(software="hf-deepspeed", fused_kernels=True, fused_norm=False)
    assert not plan.fused_norm
    assert plan.fused_rotary
    assert plan.fused_gate


@pytest.mark.parametrize(
    ("heads", "micro_batch", "split"), [(8, 1, False), (2, 1, True), (2, 2, False), (6, 1, True)]
)
def test_the_fused_softmax_takes_four_heads_at_a_time(
    heads: int, micro_batch: int, split: bool
) -> None:
    small = plans.model(heads=heads, kv_heads=heads, head_dim=64, positions="learned")
    plan = plans.plan(small, software="megatron-lm-2021", attention="fused_softmax")
    issued = _issued(plan, micro_batch)
    flash = _issued(plans.plan(small, software="megatron-lm-2021", attention="flash2"))
    assert issued == ((flash[0] + 4, flash[1] + 6) if split else flash)


def _seconds(plan: Plan) -> float:
    return float(step_time(plan, plans.rows(8, {})).seconds[0])


def graphs(*scopes: GraphScope) -> tuple[CudaGraphs, ...]:
    return (CudaGraphs(scopes),) if scopes else ()


def test_cuda_graphs_take_their_parts_from_the_cpu() -> None:
    """By hand: a graph replays an operator in 2 of 44 us. Attention is 8 of 14 operators of a dense
    layer; of experts, routing and its bookkeeping alone are captured."""
    dense, experts = plans.model(positions="learned"), plans.expert_model(positions="learned")

    def forward(model: ModelSpec, *scopes: GraphScope) -> float:
        return _issued(plans.plan(model, software="megatron-core", mechanisms=graphs(*scopes)))[0]

    saved = 1 - 2 / 44
    assert forward(dense, "attn") == pytest.approx(30 * (1 - saved * 8 / 14))
    assert forward(dense, "attn", "mlp") == pytest.approx(30 * 2 / 44) == forward(dense, "layer")
    bare = forward(experts)
    assert bare - forward(experts, "moe_router", "moe_preprocess") == pytest.approx(9 * saved)
    assert forward(experts, "mlp") == bare == forward(experts, "none")
    hybrid = catalog.load("models", ModelSpec, "nemotron-3-nano")
    scans = forward(hybrid, "none") - forward(hybrid, "mamba")
    assert scans > forward(hybrid, "none") - forward(hybrid, "attn") > 0  # 23 mixers scan, 6 attend
    both = forward(hybrid, "none") - forward(hybrid, "attn", "mamba")
    assert both == pytest.approx(scans + forward(hybrid, "none") - forward(hybrid, "attn"))
    whole = plans.plan(experts, software="megatron-core", mechanisms=graphs("full"))
    assert _seconds(whole) < _seconds(plans.plan(experts, software="megatron-core"))


def test_ablation_leaves_the_operators_of_fused_kernels() -> None:
    plan = plans.plan(software="hf-deepspeed")
    c = plans.rows(8, {})
    fused = dataclasses.replace(machine(plan), without=frozenset({"split_operators"}))
    result = issued_operators(local_shape(plan, **key_of(c)), fused, ())
    assert (float(result.forward[0]), float(result.backward[0])) == (30, 39 + 90)


def test_stated_graphs_replace_those_of_the_stack() -> None:
    usual = plans.plan(gpu="h100-sxm5-80gb", software="nemo-mlperf-5.1")
    eager = usual.model_copy(update={"mechanisms": graphs("none")})
    assert float(machine(usual).operator_launch) == 2e-6
    assert float(machine(eager).operator_launch) == 44e-6


@pytest.mark.parametrize("text", ["atn", "none+attn", "full+mlp", ""])
def test_unknown_scopes_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="moe_router"):
        graph_scopes(text)
    assert graph_scopes("mlp + attn") == ("attn", "mlp")


def test_what_is_fused_or_compiled_is_never_slower() -> None:
    eager = plans.plan(software="hf-deepspeed", seq_len=256, global_batch=8)
    fused = plans.plan(software="hf-deepspeed", seq_len=256, global_batch=8, fused_kernels=True)
    generated = plans.plan(software="hf-deepspeed", seq_len=256, global_batch=8, compile=True)
    assert _seconds(generated) < _seconds(fused) < _seconds(eager)


def test_long_micro_batches_do_not_wait_for_the_cpu() -> None:
    long: ModelSpec = plans.model(hidden=4096, heads=32, kv_heads=32, head_dim=128)
    plan = plans.plan(long, software="hf-deepspeed", seq_len=8192, global_batch=32)
    result = step_time(plan, plans.rows(8, {"micro_batch": 4}))
    assert float(result.components["launch"][0]) < 1e-3 * float(result.seconds[0])
