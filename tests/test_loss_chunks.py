"""Logits and loss in chunks of the tokens: what is alive, and what the smaller products cost."""

from __future__ import annotations

import plans
import pytest
from command import argv, dpplan, refused

from planner.estimate import Estimates, evaluate
from planner.formulas import memory


def chunked(chunks: int, software: str = "pytorch-fsdp", **chosen: int) -> Estimates:
    plan = plans.plan(plans.model(vocab=128_000), software=software, loss_chunks=chunks)
    return evaluate(
        plan, plans.rows(8, {"zero": plan.stack.supports.zero[0], "micro_batch": 4, **chosen})
    )


def test_bytes_by_hand() -> None:
    # 4,096 tokens, 128,000 words of 14 bytes in 8 chunks; gradients of 4,096 x 512 and of 128,000 x
    # 512 in 16 bit
    whole = 4096 * 128_000 * 14.0
    assert memory.chunked_loss_bytes(whole, 1.0, 4096.0, 512.0, 128e3, 2.0, 1.0) == whole
    by_hand = whole / 8 + 4096 * 512 * 2 + 128_000 * 512 * 2
    assert memory.chunked_loss_bytes(whole, 8.0, 4096.0, 512.0, 128e3, 2.0, 1.0) == by_hand
    assert chunked(1).memory.timeline[0][2]["logits"][0] == whole
    assert chunked(8).memory.timeline[0][2]["logits"][0] == by_hand


def test_no_more_chunks_than_tokens() -> None:
    many, most = chunked(1_000_000), chunked(4096)
    assert many.memory.peak[0] == most.memory.peak[0]
    assert many.time.seconds[0] == most.time.seconds[0]


def test_more_chunks_take_less_memory_and_more_time() -> None:
    items = [chunked(k) for k in (1, 4, 16, 64)]
    peaks, seconds = (
        [float(x[0]) for x in column]
        for column in zip(*((e.memory.peak, e.time.seconds) for e in items), strict=True)
    )
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > peaks[-1]
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1]


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_tensor_parallel_ranks_share_the_words(tp: int) -> None:
    first, many = (
        chunked(8, "megatron-core", tp=n).memory.timeline[0][2]["logits"][0] for n in (1, tp)
    )
    input_gradient = 4096 * 512 * 2
    assert many - input_gradient == pytest.approx((first - input_gradient) / tp)


def test_only_the_loss_changes() -> None:
    """Final norm and head stay in backward of the layers."""
    without, with_ = chunked(1).memory.timeline[0], chunked(8).memory.timeline[0]
    changed = {2: {"logits"}, 3: {"activations"}}
    for i, (a, b) in enumerate(zip(without, with_, strict=True)):
        assert {name for name in a if a[name][0] != b[name][0]} == changed.get(i, set())


def test_the_option() -> None:
    request = argv("--model llama-3-8b --gpu h100-sxm --gpus 8 --stack pytorch-fsdp --zero 3")
    request += ("--stack-defaults", "--advice", "0")
    plain, parts = (
        dpplan("estimate", *request, *more, "--json").json()
        for more in ((), ("--loss-chunks", "8"))
    )
    assert (plain["training"]["loss_chunks"], parts["training"]["loss_chunks"]) == (1, 8)
    loss = [
        r["memory"]["per_stage"][0]["phases"][2]["components"]["logits"]
        / r["layout"]["micro_batch"]
        for r in (plain, parts)
    ]
    assert loss[1] < loss[0]
    assert "--loss-chunks 8" in parts["command"]
    refused(dpplan("estimate", *request, "--loss-chunks", "0"), "--loss-chunks")
