"""Kernels of experts beside their GEMMs: what torch moves, and what an estimate charges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import plans
import pytest

from planner import api
from planner.estimate import evaluate
from planner.estimate.layer import operators
from planner.estimate.memory.activations import layer_activations
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

GPUS = 8


def model(**experts: Any) -> ModelSpec:
    part = {"type": "moe", "name": "moe", "experts": 16, "experts_per_token": 4, "ffn_hidden": 512}
    shape = {"hidden": 512, "heads": 8, "kv_heads": 8, "head_dim": 64, "vocab": 1024}
    layers = {"parts": [part | experts], "stack": [{"layers": ["attention + moe"]}]}
    return ModelSpec.model_validate(
        {"name": "small", "layers": 4, "max_positions": 2048} | shape | layers
    )


def plan(stack: str = "megatron-core", experts: dict[str, Any] | None = None, **ask: Any) -> Plan:
    job = model(**(experts or {}))
    return plans.plan(job, gpus=GPUS, gpu="h100-sxm5-80gb", software=stack, seq_len=2048, **ask)


def memory_bound(plan: Plan, **layout: Any) -> float:
    rows = plans.rows(GPUS, {"ep": GPUS, "dp": GPUS, **layout})
    return float(np.ravel(evaluate(plan, rows).time.components["memory_bound"])[0])


@contextmanager
def moved() -> Iterator[list[int]]:
    """Bytes that every operator reads and writes, views left out; a row or column that is read for
    every element of its matrix is read once."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    items: list[int] = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if not func.is_view and "view" not in func.name():
                tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
                read = sum(
                    x.untyped_storage().nbytes() if 0 in x.stride() else x.nbytes for x in tensors
                )
                written = sum(x.nbytes for x in tree_leaves(out) if isinstance(x, torch.Tensor))
                items.append(read + written)
            return out

    with Count():
        yield items


def both_ways(run: Any, shape: tuple[int, int]) -> tuple[float, float]:
    """Bytes forward and backward per element of the result."""
    torch = pytest.importorskip("torch")
    gradient = torch.ones(shape, dtype=torch.bfloat16)
    with moved() as forward:
        result = run()
    with moved() as backward:
        result.backward(gradient)
    return sum(forward) / result.numel(), sum(backward) / result.numel()


def _added(x: Any, biases: list[Any], counts: list[int], weights: Any) -> Any:
    torch = pytest.importorskip("torch")
    parts = zip(x.split(counts), biases, weights.split(counts), strict=True)
    return torch.cat([t + b * p for t, b, p in parts]).to(x.dtype)


def test_bias_and_clamp_of_experts_move_what_torch_moves() -> None:
    """The chains of TEGroupedMLP._apply_bias and weighted_bias_quick_geglu_impl of Megatron-LM, on
    four experts of 512 tokens."""
    torch = pytest.importorskip("torch")
    experts, each, width = 4, 512, 512
    counts, kind = [each] * experts, torch.bfloat16
    for weights, counted in (
        (torch.bfloat16, operators._EXPERT_BIAS),
        (torch.float32, operators._EXPERT_BIAS_FP32),
    ):
        x = torch.ones(experts * each, width, dtype=kind, requires_grad=True)
        biases = [torch.ones(width, dtype=kind, requires_grad=True) for _ in counts]
        probabilities = torch.ones(experts * each, 1, dtype=weights, requires_grad=True)

        forward, backward = both_ways(
            partial(_added, x, biases, counts, probabilities), (experts * each, width)
        )
        assert forward == pytest.approx(counted.forward, rel=0.01)
        assert backward == pytest.approx(counted.backward, rel=0.01)
    x = torch.ones(experts * each, 2 * width, dtype=kind, requires_grad=True)

    def clamp() -> Any:
        up, gate = x.chunk(2, -1)
        return torch.cat((up.clamp(max=7.0), gate.clamp(min=-7.0, max=7.0)), -1)

    forward, backward = both_ways(clamp, (experts * each, 2 * width))
    assert 2 * forward == pytest.approx(operators._CLAMPED.forward, rel=0.01)
    assert 2 * backward == pytest.approx(operators._CLAMPED.backward, rel=0.01)


def test_biases_and_clamps_take_time_where_they_are_operators_of_their_own() -> None:
    biased, clamped = ({"bias": True}, {"clamped": True})
    asks: tuple[dict[str, Any], ...] = ({}, {"dispatcher": "hybridep"})
    for ask in asks:
        assert memory_bound(plan(experts=biased, **ask)) > 1.2 * memory_bound(plan(**ask))
        assert memory_bound(plan(experts=clamped, **ask)) > 1.2 * memory_bound(plan(**ask))
    # weights of tokens in fp32 make the sums fp32
    costs = [
        memory_bound(plan(experts=biased, dispatcher=name)) - memory_bound(plan(dispatcher=name))
        for name in ("alltoall", "hybridep")
    ]
    assert costs[1] > 2 * costs[0]
    assert memory_bound(plan(experts=clamped, compile=True)) == memory_bound(plan(compile=True))


def test_what_is_clamped_is_kept_beside_what_the_activation_reads() -> None:
    rows = plans.rows(GPUS, {"ep": GPUS, "dp": GPUS, "micro_batch": 1})
    kept = [
        float(np.ravel(layer_activations(plan(experts=entry), rows)["moe/hidden"])[0])
        for entry in ({}, {"clamped": True})
    ]
    # 2048 tokens, four experts each, up and gate of 512 in 16 bit
    assert kept[1] - kept[0] == pytest.approx(2048 * 4 * 2 * 512 * 2)


def test_a_loop_over_experts_is_slower_than_grouped_gemms_and_a_fused_one_faster() -> None:
    def seconds(kernels: str) -> float:
        plan = model(experts=128, experts_per_token=8)
        given: dict[str, Any] = {
            "gpu": "b200-sxm-180gb",
            "software": "nemo",
            "seq_len": 2048,
            "precision": "fp8",
        }
        of_plan = plans.plan(plan, gpus=GPUS, expert_kernels=kernels, **given)
        return float(evaluate(of_plan, plans.rows(GPUS, {"ep": 4, "dp": GPUS})).time.seconds[0])

    assert seconds("fused") < seconds("grouped") < 0.8 * seconds("loop")


def test_fused_experts_are_refused_where_there_is_no_kernel() -> None:
    given = {"model": "deepseek-v2-lite", "gpu": "h100", "gpus": 8, "expert_kernels": "fused"}
    with pytest.raises(PlanError, match="is another architecture; take grouped"):
        api.estimate(api.read_options(given))
    dense = {"model": "llama-3-8b", "gpu": "h100", "gpus": 8, "expert_load": 1.5}
    with pytest.raises(PlanError, match="applies to a mixture of experts, and llama-3-8b is dense"):
        api.estimate(api.read_options(dense))
