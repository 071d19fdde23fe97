"""Memory after the loss kernel: torch's own loss in three programs, byte by byte."""

from __future__ import annotations

from typing import Any

import plans
import pytest
from command import argv, dpplan, refused

pytest.importorskip("torch", reason="the oracle is torch, of the dev extra")

import torch
from live_bytes import LiveBytes

from planner.estimate import evaluate
from planner.formulas.memory import liger_chunks

TOKENS, VOCAB, HIDDEN, CHUNKS = 256, 4096, 8, 8
cross_entropy = torch.nn.functional.cross_entropy
Tensor = torch.Tensor


def peak(loss: Any) -> float:
    """Bytes per logit alive at the fullest moment of forward and backward."""
    with LiveBytes() as live:
        x = torch.randn(2, TOKENS // 2, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        weight = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        labels = torch.zeros(2, TOKENS // 2, dtype=torch.long)
        loss(x, weight, labels).backward()
    return live.peak / (TOKENS * VOCAB)


def in_the_model_file(x: Tensor, weight: Tensor, labels: Tensor) -> Any:
    """transformers before 4.46: fp32 logits, and a copy moved by a word."""
    logits = (x @ weight.T).float()
    moved = logits[..., :-1, :].contiguous()
    return cross_entropy(moved.view(-1, VOCAB), labels[..., 1:].reshape(-1))


def in_a_function(x: Tensor, weight: Tensor, labels: Tensor) -> Any:
    """transformers since, and torchtitan: a copy in fp32 only for the loss."""
    return cross_entropy((x @ weight.T).float().view(-1, VOCAB), labels.reshape(-1))


def in_chunks(x: Tensor, weight: Tensor, labels: Tensor) -> Any:
    """CEWithChunkedOutputLoss of torchtune."""
    logits = [part @ weight.T for part in x.flatten(0, 1).chunk(CHUNKS)]
    targets = labels.flatten().chunk(CHUNKS)
    parts = [
        cross_entropy(logit.float(), target, reduction="sum")
        for logit, target in zip(logits, targets, strict=True)
    ]
    return sum(parts) / TOKENS


def counted(software: str, **training: Any) -> float:
    plan = plans.plan(plans.model(vocab=128_000), software=software, **training)
    zero = plan.stack.supports.zero[0]
    estimates = evaluate(plan, plans.rows(8, {"zero": zero, "micro_batch": 4}))
    return float(estimates.memory.timeline[0][2]["logits"][0]) / (4096 * 128_000)


@pytest.mark.parametrize(
    ("program", "software", "kernel"),
    [
        (in_the_model_file, "hf-fsdp", None),
        (in_a_function, "torchtune", None),
        (in_chunks, "torchtune", "chunked"),
    ],
)
def test_bytes_of_a_logit_are_those_of_torch(
    program: Any, software: str, kernel: str | None
) -> None:
    # gradients and labels of the small head beside its logits: under 2 %
    assert peak(program) == pytest.approx(counted(software, loss_kernel=kernel), rel=0.02)


def test_one_kernel_writes_gradients_over_logits() -> None:
    for software, each in (("pytorch-fsdp", 2), ("hf-fsdp", 6), ("fms-acceleration", 8)):
        assert counted(software, loss_kernel="fused") == each


def test_compiled_chunks_keep_16_bit_logits_or_their_gradients() -> None:
    """A large head: all gradients of logits, the input gradient, and the weight gradient of the
    first chunk; a sum of others comes where logits of chunks are gone."""
    by_hand = 2 * 4096 * 128_000 + 2 * 4096 * 512 + 2 * 128_000 * 512
    result = counted("torchtune", loss_kernel="chunked", compile=True) * 4096 * 128_000
    assert result == max(by_hand, (2 + 2 / CHUNKS) * 4096 * 128_000)


def test_chunks_of_liger() -> None:
    """16,384 tokens, 128,256 words, hidden 4,096: 32 times as many words, so 512 tokens each."""
    assert liger_chunks(16_384.0, 128_256.0, 4096.0) == 32
    assert liger_chunks(100.0, 128_256.0, 4096.0) == 25  # of four tokens


def test_liger_comes_with_its_other_kernels_where_the_stack_has_them() -> None:
    for software, whole in (("hf-fsdp", True), ("fms-acceleration", False)):
        plan = plans.plan(software=software, loss_kernel="fused-linear")
        assert plan.liger is whole
        assert plan.fused_norm is whole


def test_the_option() -> None:
    request: tuple[str, ...] = argv("--model llama-3-8b --gpu h100-sxm --gpus 8 --stack hf-fsdp")
    request += ("--zero", "3", "--micro-batch", "4", "--recompute", "full", "--advice", "0")
    request += ("--stack-defaults",)
    plain, liger = (
        dpplan("estimate", *request, *more, "--json").json()
        for more in ((), ("--loss-kernel", "liger"))
    )
    assert liger["training"]["loss_kernel"] == "fused-linear"
    assert "--loss-kernel fused-linear" in liger["command"]
    assert liger["memory"]["peak_bytes"] < plain["memory"]["peak_bytes"]
    refused(dpplan("estimate", *request, "--loss-kernel", "none"), "--loss-kernel")


def test_tiles_make_logits_again() -> None:
    """Backward has one more product of hidden states and head: of an 8B model's GEMMs, forward and
    backward, 4,096 x 128,256 of three times 7.5 billion weights."""
    request = argv("--model llama-3-8b --gpu h100-sxm --gpus 8 --stack pytorch-fsdp --tp 1 --pp 1")
    request += argv("--zero 3 --micro-batch 4 --recompute none --stack-defaults --advice 0 --json")
    fused, tiled = (
        dpplan("estimate", *request, "--loss-kernel", kernel).json()["step"]["components"]["matmul"]
        for kernel in ("fused", "tiled")
    )
    assert (tiled - fused) / fused == pytest.approx(4096 * 128_256 / (3 * 7.5e9), rel=0.15)


def test_tiles_have_a_fixed_size() -> None:
    request = argv(
        "--model llama-3-8b --gpu h100-sxm --gpus 8 --stack pytorch-fsdp --loss-kernel tiled"
    )
    refused(dpplan("estimate", *request, "--loss-chunks", "8"), "--loss-chunks", "fixed size")
