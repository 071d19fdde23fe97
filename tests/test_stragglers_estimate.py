"""Ranks that differ, in whole estimates and on the command line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plans
import pytest
from command import argv, dpplan, refused

from planner import api
from planner.error import PlanError
from planner.estimate import evaluate, uneven
from planner.estimate.machine import machine
from planner.estimate.step import step_time
from planner.formulas.overlap import straggler_factor
from planner.formulas.stragglers import expected_slowest, packed_spread_frac, proportional_split_s
from planner.ledger import total
from planner.specs.data import LengthsSpec
from planner.specs.names import ExcessLength, Packing
from planner.specs.plan import Plan
from planner.specs.ranks import RanksSpec
from planner.views.estimate import title_of

EXCESSES: tuple[ExcessLength, ExcessLength] = ("drop", "truncate")
AS_LONGEST = ("longest", "bucketed")
# wide enough to be limited by its products, not by launching kernels
WIDE = plans.model(hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn_hidden=11008)


def stepped(**changes: Any) -> tuple[Plan, Any, Any]:
    """A plan on 64 GPUs of eight nodes with these specs, a layout of 64 replicas, and its time."""
    plan = plans.plan(WIDE, gpus=64, gpus_per_node=8, global_batch=256).model_copy(update=changes)
    table = plans.rows(64, {"micro_batch": 1})
    return plan, table, step_time(plan, table)


def computing(time: Any) -> float:
    return float(total({n: time.components.get(n, 0.0) for n in uneven.COMPUTING})[0])


def test_nothing_said_changes_nothing() -> None:
    plan, _, time = stepped()
    assert set(time.components) & {"stragglers", "input"} == set()
    base = sum(float(v[0]) for k, v in time.components.items() if k != "overhead")
    m = machine(plan)
    factor = float(straggler_factor(64.0, m.straggler_sigma))
    assert float(time.components["overhead"][0]) == pytest.approx(
        (factor - 1) * base + float(m.step_overhead), rel=1e-12
    )


def test_slow_hosts_lengthen_what_is_computed() -> None:
    _, _, usual = stepped()
    _, _, rare = stepped(ranks=RanksSpec(slow_frac=1e-12, slow_by_frac=0.1))
    plan, _, slow = stepped(ranks=RanksSpec(slow_frac=0.005, slow_by_frac=0.1))
    assert float(rare.seconds[0]) == pytest.approx(float(usual.seconds[0]), rel=1e-9)
    sigma = float(machine(plan).straggler_sigma)
    more = float(expected_slowest(8.0, 8.0, sigma, 0.005, 0.1)) - float(
        expected_slowest(64.0, 1.0, sigma)
    )
    assert float(slow.seconds[0] - usual.seconds[0]) == pytest.approx(
        more * computing(usual), rel=1e-9
    )
    assert more < 0.1 * (
        1 - 0.995**8
    )  # the slowest of eight slow ranks is less late than the slowest of 64


def test_stated_jitter_is_exact() -> None:
    _, _, none = stepped(ranks=RanksSpec(jitter_frac=0.0))
    _, _, some = stepped(ranks=RanksSpec(jitter_frac=0.01))
    base = float(none.seconds[0] - none.components["overhead"][0])
    assert float(none.components["stragglers"][0]) == 0.0
    assert float(some.components["stragglers"][0]) == pytest.approx(
        0.01 * float(expected_slowest(64.0, 1.0, 1.0)) * base, rel=1e-12
    )
    assert sum(float(v[0]) for v in some.components.values()) == pytest.approx(
        float(some.seconds[0]), rel=1e-12
    )


def test_a_second_kind_that_is_the_first_changes_nothing() -> None:
    plan, _, usual = stepped()
    for split in ("equal", "proportional"):
        _, _, mixed = stepped(ranks=RanksSpec(other=plan.cluster.gpu, other_frac=0.25, split=split))
        assert float(mixed.seconds[0]) == pytest.approx(float(usual.seconds[0]), rel=1e-9)


def test_two_kinds_lie_between_both_alone() -> None:
    other = plans.cluster(64, "h100-sxm5-80gb", 8).gpu
    _, _, slow = stepped()
    plan, table, equal = stepped(ranks=RanksSpec(other=other, other_frac=0.25, split="equal"))
    _, _, shared = stepped(ranks=RanksSpec(other=other, other_frac=0.25, split="proportional"))
    fast = step_time(uneven.of_other_gpu(plan), table)
    assert computing(fast) < computing(shared) < computing(slow)
    assert computing(equal) == pytest.approx(computing(slow), rel=1e-12)
    by_formula = float(proportional_split_s(computing(slow), computing(fast), 64.0, 16.0, 4.0))
    assert computing(shared) == pytest.approx(by_formula, rel=1e-12)


def test_a_replica_of_both_kinds_is_slow() -> None:
    """Three quarters of two replicas: one replica has GPUs of both kinds, so both compute as the
    slower kind does."""
    other = plans.cluster(64, "h100-sxm5-80gb", 8).gpu
    plan = plans.plan(WIDE, gpus=16, gpus_per_node=8, global_batch=64)
    table = plans.rows(16, {"tp": 8})
    mixed = plan.model_copy(
        update={"ranks": RanksSpec(other=other, other_frac=0.25, split="proportional")}
    )
    assert computing(step_time(mixed, table)) == pytest.approx(
        computing(step_time(plan, table)), rel=1e-12
    )


def test_memory_is_that_of_the_smaller_gpu() -> None:
    other = plans.cluster(64, "rtx4090", 8).gpu
    plan, table, _ = stepped(ranks=RanksSpec(other=other, other_frac=0.5))
    assert plan.usable_bytes == float(other.usable_memory)
    assert bool(evaluate(plan, table).fits[0]) == (
        float(evaluate(plan, table).memory.device[0]) <= plan.usable_bytes
    )


def test_packed_documents_attend_less_and_differ_between_replicas() -> None:
    _, _, full = stepped()
    plan, table, packed = stepped(lengths=LengthsSpec(mean_tokens=200, sigma=1.0))
    _, _, same = stepped(lengths=LengthsSpec(mean_tokens=256, sigma=0.0))
    assert float(packed.components["attention"][0]) < float(full.components["attention"][0])
    share = uneven.attended_frac(plan)
    mean, square, cube, fourth = uneven.moments(plan)
    assert share == pytest.approx(square / mean)
    spread = float(packed_spread_frac(mean, square, cube, fourth))
    late = (
        float(expected_slowest(64.0, 1.0, 1.0)) * spread / math.sqrt(4.0)
    )  # four rows per replica and step
    assert float(uneven.imbalance_frac(plan, table)[0]) == pytest.approx(min(late, 1 / share - 1))
    parts = uneven.parts(plan, machine(plan), table, packed.components)
    assert float(parts["lengths"][0]) == pytest.approx(
        min(late, 1 / share - 1) * float(packed.components["attention"][0])
    )
    assert (
        float(
            uneven.imbalance_frac(
                stepped(lengths=LengthsSpec(mean_tokens=256, sigma=0.0))[0], table
            )[0]
        )
        == 0.0
    )
    assert float(same.seconds[0]) < float(full.seconds[0])


def test_replicas_in_lockstep_wait_in_every_micro_batch() -> None:
    plan, _, _ = stepped(lengths=LengthsSpec(mean_tokens=100, sigma=0.5))
    apart, together = (
        float(uneven.imbalance_frac(plan, plans.rows(64, {"zero": zero}))[0]) for zero in (1, 3)
    )
    assert together == pytest.approx(
        2 * apart
    )  # four micro-batches: half the spread where they add up


@pytest.mark.parametrize("packing", ["packed", "padded", "longest", "bucketed"])
def test_dropping_the_longer_documents_computes_no_more_than_cutting_them(packing: Packing) -> None:
    """Tokens and attention of rows, of one replica and of the longest of 64; the step too where no
    replica waits for a fuller one: between cut documents, most of them full, there is less to wait
    for."""

    def of(excess: ExcessLength, mean: float, sigma: float) -> list[float]:
        spec = LengthsSpec(mean_tokens=mean, sigma=sigma, packing=packing, excess=excess)
        plan, table, time = stepped(lengths=spec)
        rows = [float(uneven.row_tokens(plan, table)[0])] if packing in AS_LONGEST else []
        rows += [float(uneven.row_length(spec, 1024, np.array([n]), 2.0)[0]) for n in (1.0, 64.0)]
        waits = packing in ("packed", "longest")
        step = [] if waits else [float(time.seconds[0])]
        return [*rows, uneven.attended_frac(plan), uneven.useful_frac(plan), *step]

    for mean in (200, 800, 2000):
        drop, cut = (of(excess, mean, 0.8) for excess in EXCESSES)
        assert all(mine <= theirs for mine, theirs in zip(drop, cut, strict=True))
        assert drop != cut
    for mean, sigma in ((200, 0.0), (1024, 0.0), (60, 0.3)):  # none is longer
        drop, cut = (of(excess, mean, sigma) for excess in EXCESSES)
        assert drop == pytest.approx(cut, rel=1e-9)


def test_padding_wastes_tokens_and_no_time() -> None:
    _, _, full = stepped()
    plan, _, padded = stepped(lengths=LengthsSpec(mean_tokens=256, sigma=0.0, packing="padded"))
    assert float(padded.seconds[0]) == float(full.seconds[0])
    assert uneven.useful_frac(plan) == pytest.approx(0.25)


REQUEST = ("--model", "llama-2-7b", "--gpu", "h100", "--gpus", "64")
ALL = (
    "--jitter",
    "0.5%",
    "--slow-hosts",
    "0.5%",
    "--slow-factor",
    "1.2",
    "--other-gpu",
    "a100",
    "--other-share",
    "25%",
    "--split",
    "proportional",
    "--length-mean",
    "900",
    "--token-bytes",
    "4",
    "--data-storage",
    "nfs",
    "--workers",
    "2",
)


BOX: dict[str, Any] = {"model": "qwen2.5-1.5b", "gpus": 2, "lora": 16, "stack": "hf-trainer"}


def test_two_kinds_in_one_box_keep_to_the_slower_and_the_smaller() -> None:
    def taken(gpu: str, **other: Any) -> Any:
        given = {**BOX, "gpu": gpu, "recompute": "full", "micro_batch": 1, **other}
        return api.estimate(api.read_options({**given, "stack_defaults": True}))

    slow, fast = taken("rtx3060-12gb"), taken("rtx4090")
    both = taken("rtx4090", other_gpu="rtx3060-12gb", other_share="50%")
    assert both.step.seconds == pytest.approx(slow.step.seconds, rel=0.05)
    assert both.step.seconds > 2 * fast.step.seconds
    assert both.memory.capacity_bytes == slow.memory.capacity_bytes
    assert any("all keep the pace of the slower" in each for each in both.assumptions)
    assert title_of(both).endswith("2 x NVIDIA GeForce RTX 4090, 50% of them rtx3060-12gb")
    faster = taken("rtx4090", other_gpu="rtx3060-12gb", other_share="50%", split="proportional")
    assert faster.step.seconds < both.step.seconds
    with pytest.raises(PlanError, match="must be whole GPUs, of 2 here: take 1/2"):
        taken("rtx4090", other_gpu="rtx3060-12gb", other_share="30%")


def test_search_and_estimate_agree() -> None:
    """Factored columns of a search, and plain ones of an estimate."""
    document = dpplan("search", *REQUEST, *ALL, "--top", 1, "--json").json()
    report = dpplan("estimate", *REQUEST, *ALL, "--json").json()
    assert document["top"][0]["step"]["seconds"] == pytest.approx(
        report["step"]["seconds"], rel=1e-9
    )
    assert report["step"]["components"]["stragglers"] == pytest.approx(
        sum(report["stragglers"]["seconds"].values()), rel=1e-9
    )
    assert report["stragglers"]["mixed"]["own_s"] < report["stragglers"]["mixed"]["together_s"]
    assert report["stragglers"]["mixed"]["together_s"] < report["stragglers"]["mixed"]["other_s"]


PLAIN = "--stack megatron-core --stack-defaults"  # kernels are searched in the test above


def test_a_comparison_keeps_requests_apart() -> None:
    document = dpplan(
        *argv(
            f"compare --model gpt2-xl --gpu a100 --gpus 16 --vary jitter=0,0.02,0.04 --json {PLAIN}"
        )
    ).json()
    steps = [row["step"]["seconds"] for row in document["points"]]
    assert steps[0] < steps[1] < steps[2]
    words = f"estimate --model gpt2-xl --gpu a100 --gpus 16 --jitter 0.04 --json {PLAIN}"
    alone = dpplan(*argv(words)).json()
    assert steps[2] == pytest.approx(alone["step"]["seconds"], rel=1e-9)
    sizes = dpplan(
        *argv(f"compare --model gpt2-xl --gpu a100 --vary gpus=16,32 --jitter 0.04 --json {PLAIN}")
    ).json()
    assert sizes["points"][0]["step"]["seconds"] == pytest.approx(
        alone["step"]["seconds"], rel=1e-9
    )


def test_text_names_the_reasons() -> None:
    out = dpplan("estimate", *REQUEST, *ALL, "--tokens", "1T", "--plain").stdout
    for name in (
        "Waiting for the slowest rank",
        "slow hosts",
        "jitter of equal ranks",
        "documents of different lengths",
        "Input pipeline",
        "proportional split",
        "useful tokens/s",
    ):
        assert name in out


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (("--jitter", "-1%"), ("--jitter", "between 0 and 1")),
        (("--jitter", "150%"), ("--jitter", "between 0 and 1")),
        (("--slow-hosts", "2"), ("--slow-hosts", "between 0 and 1")),
        (("--slow-factor", "1.1"), ("--slow-factor", "--slow-hosts")),
        (("--slow-hosts", "1%", "--slow-factor", "0.9"), ("--slow-factor",)),
        (("--other-gpu", "a100"), ("--other-share",)),
        (("--other-share", "25%"), ("--other-gpu",)),
        (("--split", "equal"), ("--other-gpu",)),
        (
            ("--other-gpu", "a100", "--other-share", "10%"),
            ("--other-share", "whole hosts, of 8 here", "1/8 = 0.125"),
        ),
        (("--other-gpu", "a100", "--other-share", "1"), ("--other-share", "less than 1")),
        (("--other-gpu", "a101", "--other-share", "25%"), ("a101",)),
        (
            ("--other-gpu", "a100", "--other-share", "25%", "--precision", "fp8"),
            ("--other-gpu", "fp8"),
        ),
        (("--packing", "padded"), ("--length-mean",)),
        (("--length-mean", "0"), ("--length-mean", "must be between 1 and")),
        (("--length-mean", "800", "--packing", "none"), ("--packing",)),
        (("--length-mean", "800", "--length-sigma", "9"), ("--length-sigma",)),
        (("--excess-length", "drop"), ("--length-mean",)),
        (("--length-mean", "800", "--excess-length", "raise"), ("--excess-length", "truncate")),
        (
            ("--length-mean", "9k", "--length-sigma", "0", "--excess-length", "drop"),
            ("--length-mean", "--excess-length truncate", "--seq-len"),
        ),
    ],
)
def test_wrong_requests(words: tuple[str, ...], texts: tuple[str, ...]) -> None:
    refused(dpplan("estimate", *REQUEST, *words), *texts)


def test_packing_beside_blocks_is_refused_where_it_is_asked_for() -> None:
    """A query of Llama 4 sees its block of the sequence, wherever its document begins."""
    words = f"--model llama-4-scout --gpu h100 --gpus 64 --length-mean 800 {PLAIN}"
    request = argv(words)
    refused(dpplan("estimate", *request, "--packing", "packed"), "--packing", "padded")
    document = dpplan("estimate", *request, "--json").json()
    assert document["stragglers"]["lengths"]["packing"] == "padded"
