"""Weights, gradients and moments in bf16 with no fp32 copy: bytes by hand, and measured peaks."""

from __future__ import annotations

import plans
import pytest
from command import dpplan, refused

from planner.estimate import Estimates, evaluate
from planner.estimate.memory import state_ledger
from planner.estimate.state_types import bf16_states, state_of


def estimates_of(software: str, states: str | None, **layout: int) -> Estimates:
    plan = plans.plan(software=software, state_precision=states)
    return evaluate(plan, plans.rows(8, {"zero": plan.stack.supports.zero[-1], **layout}))


@pytest.mark.parametrize(
    ("software", "wide"),
    [("pytorch-fsdp", 16.0), ("megatron-core", 18.0), ("deepspeed", 16.0), ("nanogpt", 16.0)],
)
def test_eight_bytes_per_parameter(software: str, wide: float) -> None:
    ledgers = [
        state_ledger(plans.plan(software=software, state_precision=s)) for s in (None, "bf16")
    ]
    assert [sum(ledger.values()) for ledger in ledgers] == [wide, 8.0]
    assert ledgers[1] == {"parameters": 2.0, "gradients": 2.0, "optimizer": 4.0}


def test_a_stack_that_keeps_bf16_states_is_left_alone() -> None:
    state = plans.stack("llmq").state
    assert bf16_states(state) is state


def test_temporaries_of_the_optimizer_are_in_the_type_of_the_weights() -> None:
    """torch's foreach Adam makes one copy of the parameters: 4 bytes in fp32, 2 in bf16."""
    kept = [
        state_of(plans.plan(software="pytorch-fsdp", state_precision=s)) for s in (None, "bf16")
    ]
    assert [entry.optimizer_temporary for entry in kept] == [4.0, 2.0]


@pytest.mark.parametrize(
    ("optimizer", "bytes_each"), [("adam", 4.0), ("sgd-momentum", 2.0), ("adam8bit", 2.03)]
)
def test_moments_follow_the_weights_unless_they_have_a_type_of_their_own(
    optimizer: str, bytes_each: float
) -> None:
    plan = plans.plan(state_precision="bf16", optimizer=optimizer)
    assert state_ledger(plan)["optimizer"] == pytest.approx(bytes_each, rel=0.01)


def test_half_the_states_and_less_to_move() -> None:
    wide, narrow = estimates_of("pytorch-fsdp", None), estimates_of("pytorch-fsdp", "bf16")
    for leaf in ("parameters", "optimizer"):
        both = [float(entry.memory.components[leaf][0]) for entry in (wide, narrow)]
        assert both[1] == both[0] / 2
    assert narrow.memory.reserved[0] < wide.memory.reserved[0]
    assert narrow.time.seconds[0] < wide.time.seconds[0]


def test_on_the_command_line() -> None:
    request = ("--model", "qwen2.5-0.5b", "--gpu", "h100", "--gpus", "1", "--stack", "pytorch-ddp")
    done = dpplan("estimate", *request, "--state-precision", "bf16", "--json").json()
    assert done["training"]["state_precision"] == "bf16"
    assert "--state-precision bf16" in done["command"]
    refused(
        dpplan("estimate", *request, "--state-precision", "bf16", "--precision", "fp16"),
        "--state-precision",
    )


@pytest.mark.parametrize(
    ("gpus", "zero", "seq", "batch", "measured_gib"),
    [
        # Mistral-7B, all parameters in bf16, Hugging Face Trainer on A100 80 GB: the optimizer's
        # step is the peak (fms-acceleration, scripts/benchmarks/refs, torch's allocated)
        (1, 0, 4096, 4, 67.4602),
        (2, 3, 4096, 4, 33.738),
    ],
)
def test_published_peaks(gpus: int, zero: int, seq: int, batch: int, measured_gib: float) -> None:
    document = dpplan(
        *("estimate", "--model", "mistral-7b", "--gpu", "a100-sxm4-80gb", "--gpus", str(gpus)),
        *("--stack", "pytorch-fsdp", "--zero", str(zero), "--recompute", "full", "--micro-batch"),
        *(str(batch // gpus), "--global-batch", str(batch), "--seq-len", str(seq)),
        *("--state-precision", "bf16", "--json"),
    ).json()
    assert document["memory"]["peak_bytes"] / 2**30 == pytest.approx(measured_gib, rel=0.005)
