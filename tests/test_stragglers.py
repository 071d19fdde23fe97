"""Ranks that differ: the slowest of many, slow hosts, two kinds of GPUs, lengths of documents,
batch norm over ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plans
import pytest
from command import dpplan, refused
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from planner.estimate import batch_norm, evaluate, uneven
from planner.estimate.machine import machine
from planner.estimate.step import step_time
from planner.formulas import stragglers
from planner.formulas.overlap import straggler_factor
from planner.formulas.stragglers import (
    batch_norm_backward_bytes,
    batch_norm_forward_bytes,
    cut_moment,
    equal_split_s,
    expected_slowest,
    longest_frac,
    packed_attention_frac,
    packed_spread_frac,
    proportional_split_s,
    slow_job_frac,
)
from planner.inputs.model import model_spec
from planner.ledger import total
from planner.specs.data import LengthsSpec
from planner.specs.plan import Plan
from planner.specs.ranks import RanksSpec

SHARE = st.floats(0, 1)


def slowest(ranks: float, jitter: float = 1.0) -> float:
    return float(expected_slowest(ranks, 1.0, jitter))


# ------------------------------------------------------------------------------------------------ t


@pytest.mark.parametrize(
    ("ranks", "value", "digits"),
    [
        (1, 0.0, 1e-12),
        (2, 1 / math.sqrt(math.pi), 1e-12),  # closed form
        (3, 1.5 / math.sqrt(math.pi), 1e-12),  # closed form
        (5, 2.3259289473 / 2, 1e-10),  # half the mean range d2(5): SAS/QC user's guide, function D2
        (10, 1.53875, 5e-6),  # tables of normal order statistics
        (100, 2.50759, 5e-6),
        (1000, 3.24144, 5e-6),
    ],
)
def test_known_maxima_of_normal_variables(ranks: float, value: float, digits: float) -> None:
    assert slowest(ranks) == pytest.approx(value, abs=digits)


@pytest.mark.parametrize("ranks", [7.0, 64.0, 4096.0, 1e6, 1e9])
def test_maximum_as_another_integration_gives_it(ranks: float) -> None:
    def density(z: float) -> float:
        return z * ranks * float(np.exp(stats.norm.logpdf(z) + (ranks - 1) * stats.norm.logcdf(z)))

    top = stats.norm.isf(1 / ranks)
    value, _ = integrate.quad(
        density, -9, 12, points=[top - 1, top, top + 1], limit=400, epsabs=1e-12, epsrel=1e-12
    )
    assert slowest(ranks) == pytest.approx(value, rel=1e-9)


@given(ranks=st.integers(2, 10**6), jitter=st.floats(1e-6, 0.5))
def test_maximum_lies_below_the_usual_bound_and_near_bloms_formula(
    ranks: int, jitter: float
) -> None:
    bound = float(straggler_factor(float(ranks), jitter)) - 1
    blom = jitter * float(stats.norm.ppf((ranks - 0.375) / (ranks + 0.25)))  # Blom 1958
    value = slowest(ranks, jitter)
    assert 0 < value < bound
    assert value == pytest.approx(blom, rel=0.05)
    assert value == pytest.approx(jitter * slowest(ranks), rel=1e-12)
    assert value < slowest(2 * ranks, jitter)


def test_slow_hosts_by_hand() -> None:
    # 64 hosts, each slow with chance 0.5 %: 1 - 0.995^64 = 27.4 % of jobs have a slow one and take
    # 10 % longer
    assert float(slow_job_frac(64.0, 0.005)) == pytest.approx(1 - 0.995**64)
    assert pytest.approx(0.2744, abs=1e-4) == 1 - 0.995**64
    assert float(expected_slowest(64.0, 8.0, 0.0, 0.005, 0.1)) == pytest.approx(
        0.1 * (1 - 0.995**64)
    )
    assert float(slow_job_frac(64.0, 1.0)) == 1.0
    assert float(slow_job_frac(64.0, 0.0)) == 0.0


@pytest.mark.parametrize(
    ("jitter", "slow", "by"),
    [(0.01, 0.02, 0.1), (0.05, 0.3, 0.1), (0.02, 0.01, 0.03), (0.004, 0.005, 0.5)],
)
def test_slow_hosts_and_jitter_as_drawn(jitter: float, slow: float, by: float) -> None:
    hosts, ranks, draws = 16, 4, 40_000
    random = np.random.default_rng(5)
    steps = jitter * random.standard_normal((draws, hosts, ranks)) + by * (
        random.random((draws, hosts, 1)) < slow
    )
    drawn = steps.max(axis=(1, 2))
    error = drawn.std() / math.sqrt(draws)
    assert float(expected_slowest(hosts, ranks, jitter, slow, by)) == pytest.approx(
        drawn.mean(), abs=4 * error
    )


@given(
    hosts=st.integers(1, 100_000),
    ranks=st.sampled_from([1, 4, 8]),
    jitter=st.floats(0, 0.3),
    slow=SHARE,
    by=st.floats(0, 5),
    more=st.floats(0, 1),
)
def test_slow_hosts_only_ever_cost(
    hosts: int, ranks: int, jitter: float, slow: float, by: float, more: float
) -> None:
    value = float(expected_slowest(hosts, ranks, jitter, slow, by))
    usual = float(expected_slowest(hosts, ranks, jitter))
    assert usual - 1e-9 <= value <= usual + by + 1e-9
    assert (
        value >= by * float(slow_job_frac(hosts, slow)) - 1e-9
    )  # Jensen: the mean of the slow hosts alone
    assert float(expected_slowest(hosts, ranks, jitter, slow, by + more)) >= value - 1e-9
    assert (
        float(expected_slowest(hosts, ranks, jitter, slow + (1 - slow) * more, by)) >= value - 1e-9
    )
    assert float(expected_slowest(hosts + 1, ranks, jitter, slow, by)) >= value - 1e-9


def test_all_hosts_slow_is_everyone_slower() -> None:
    assert float(expected_slowest(8.0, 8.0, 0.01, 1.0, 0.1)) == pytest.approx(
        0.1 + slowest(64, 0.01), rel=1e-9
    )


# ------------------------------------------------------------------------------------------------ t


def test_splits_by_hand() -> None:
    assert float(equal_split_s(5.0, 14.0)) == 14.0
    # 4 replicas, one of them half as fast, 7 micro-batches each: 28 in all; in 8 s the fast end 8
    # each, the slow one 4: 28
    assert float(proportional_split_s(7.0, 14.0, 4.0, 1.0, 7.0)) == pytest.approx(8.0)
    # equally fast: nothing to gain; one kind alone: its own time
    assert float(proportional_split_s(7.0, 7.0, 4.0, 1.0, 7.0)) == pytest.approx(7.0)
    assert float(proportional_split_s(7.0, 14.0, 4.0, 0.0, 7.0)) == 7.0
    assert float(proportional_split_s(7.0, 14.0, 4.0, 4.0, 7.0)) == 14.0


@given(
    own=st.floats(0.2, 1),
    other=st.floats(0.2, 1),
    replicas=st.integers(2, 40),
    part=SHARE,
    m=st.integers(1, 60),
)
def test_proportional_split_is_the_best_of_whole_micro_batches(
    own: float, other: float, replicas: int, part: float, m: int
) -> None:
    second = min(max(round(part * replicas), 1), replicas - 1)
    first = replicas - second
    ends = sorted([k * own for k in range(1, 6 * m + 2)] + [k * other for k in range(1, 6 * m + 2)])

    def done(t: float) -> float:
        return first * math.floor(t / own + 1e-9) + second * math.floor(t / other + 1e-9)

    brute = next(t for t in ends if done(t) >= replicas * m)
    value = float(proportional_split_s(own * m, other * m, replicas, second, m))
    assert value == pytest.approx(brute, rel=1e-6)
    ideal = replicas * m / (first / own + second / other)
    assert ideal * (1 - 1e-9) <= value <= float(equal_split_s(own * m, other * m)) * (1 + 1e-9)


# ------------------------------------------------------------------------------------------------ l


@given(mean=st.floats(0.01, 3), sigma=st.floats(0, 2))
def test_moments_of_cut_lengths(mean: float, sigma: float) -> None:
    first, second, third, fourth = (float(cut_moment(mean, sigma, k)) for k in (1.0, 2.0, 3.0, 4.0))
    assert 0 < fourth <= third * (1 + 1e-9) <= second * (1 + 1e-9) ** 2 <= first * (1 + 1e-9) ** 3
    assert first <= min(mean, 1.0) * (1 + 1e-9)
    assert second >= first**2 * (1 - 1e-9)


def test_moments_and_the_longest_as_drawn() -> None:
    random = np.random.default_rng(3)
    mean, sigma = 0.2, 1.0
    lengths = np.minimum(random.lognormal(math.log(mean) - sigma**2 / 2, sigma, 2_000_000), 1.0)
    for order in (1.0, 2.0, 3.0, 4.0):
        assert float(cut_moment(mean, sigma, order)) == pytest.approx(
            (lengths**order).mean(), rel=5e-3
        )
    for documents in (1, 4, 64):
        longest = (
            lengths[: 2_000_000 // documents * documents].reshape(-1, documents).max(axis=1).mean()
        )
        assert float(longest_frac(mean, sigma, documents)) == pytest.approx(longest, rel=1e-2)


@pytest.mark.parametrize(("mean", "sigma"), [(0.2, 1.0), (0.01, 0.5), (2.0, 0.3), (0.5, 0.0)])
def test_the_longest_of_one_is_the_mean_and_of_many_the_sequence(mean: float, sigma: float) -> None:
    assert float(longest_frac(mean, sigma, 1.0)) == pytest.approx(
        float(cut_moment(mean, sigma, 1.0)), rel=1e-6
    )
    if sigma > 0:
        assert float(longest_frac(mean, sigma, 1e9)) >= float(longest_frac(mean, sigma, 10.0))
        assert float(longest_frac(mean, sigma, 1e9)) <= 1 + 1e-9


def test_packed_rows_by_hand() -> None:
    # documents of a quarter row: 4 x (1/4)^2 = 1/4 of the pairs, in every row the same
    moments = [float(cut_moment(0.25, 0.0, float(k))) for k in (1, 2, 3, 4)]
    assert float(packed_attention_frac(*moments[:2])) == pytest.approx(0.25)
    assert float(packed_spread_frac(*moments)) == 0.0
    assert float(packed_attention_frac(1.0, 1.0)) == 1.0


@pytest.mark.parametrize(("mean", "sigma"), [(0.1, 1.0), (0.05, 0.5), (0.2, 1.5)])
def test_attention_of_packed_rows_as_drawn(mean: float, sigma: float) -> None:
    random = np.random.default_rng(11)
    rows, ranks = 200, 4000
    moments = [float(cut_moment(mean, sigma, float(k))) for k in (1, 2, 3, 4)]
    count = int(1.6 * rows / moments[0])
    work = np.empty(ranks)
    for i in range(ranks):
        lengths = np.minimum(random.lognormal(math.log(mean) - sigma**2 / 2, sigma, count), 1.0)
        taken = np.searchsorted(np.cumsum(lengths), rows)
        work[i] = (lengths[:taken] ** 2).sum() / rows
    assert work.mean() == pytest.approx(float(packed_attention_frac(*moments[:2])), rel=0.02)
    assert math.sqrt(rows) * work.std() / work.mean() == pytest.approx(
        float(packed_spread_frac(*moments)), rel=0.06
    )


# ------------------------------------------------------------------------------------------------ e


# wide enough to be limited by its products, not by launching kernels
WIDE = plans.model(hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn_hidden=11008)


def stepped(**changes: Any) -> tuple[Plan, Any, Any]:
    """A plan on 64 GPUs of eight nodes with these specs, a layout of 64 replicas, and its time."""
    plan = plans.plan(WIDE, gpus=64, gpus_per_node=8, global_batch=256).model_copy(update=changes)
    table = plans.rows(64, {"micro_batch": 1})
    return plan, table, step_time(plan, table)


def computing(time: Any) -> float:
    return float(total({name: time.components[name] for name in uneven.COMPUTING})[0])


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
    more = float(expected_slowest(8.0, 8.0, sigma, 0.005, 0.1)) - slowest(64, sigma)
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
        0.01 * slowest(64) * base, rel=1e-12
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
    late = slowest(64) * spread / math.sqrt(4.0)  # four rows per replica and step
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


def test_padding_wastes_tokens_and_no_time() -> None:
    _, _, full = stepped()
    plan, _, padded = stepped(lengths=LengthsSpec(mean_tokens=256, sigma=0.0, packing="padded"))
    assert float(padded.seconds[0]) == float(full.seconds[0])
    assert uneven.useful_frac(plan) == pytest.approx(0.25)


# ------------------------------------------------------------------------------------------------ c

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


def test_search_and_estimate_agree() -> None:
    """Factored columns of a search, and plain ones of an estimate."""
    found = dpplan("search", *REQUEST, *ALL, "--top", 1, "--json").json()
    report = dpplan("estimate", *REQUEST, *ALL, "--json").json()
    assert found["top"][0]["step"]["seconds"] == pytest.approx(report["step"]["seconds"], rel=1e-9)
    assert report["step"]["components"]["stragglers"] == pytest.approx(
        sum(report["stragglers"]["seconds"].values()), rel=1e-9
    )
    assert report["stragglers"]["mixed"]["own_s"] < report["stragglers"]["mixed"]["together_s"]
    assert report["stragglers"]["mixed"]["together_s"] < report["stragglers"]["mixed"]["other_s"]


def test_a_comparison_keeps_requests_apart() -> None:
    document = dpplan(
        "compare",
        "--model",
        "gpt2-xl",
        "--gpu",
        "a100",
        "--gpus",
        16,
        "--vary",
        "jitter=0,0.02,0.04",
        "--json",
    ).json()
    steps = [row["step"]["seconds"] for row in document["points"]]
    assert steps[0] < steps[1] < steps[2]
    alone = dpplan(
        "estimate", "--model", "gpt2-xl", "--gpu", "a100", "--gpus", 16, "--jitter", 0.04, "--json"
    ).json()
    assert steps[2] == pytest.approx(alone["step"]["seconds"], rel=1e-9)
    sizes = dpplan(
        "compare",
        "--model",
        "gpt2-xl",
        "--gpu",
        "a100",
        "--vary",
        "gpus=16,32",
        "--jitter",
        0.04,
        "--json",
    ).json()
    assert sizes["points"][0]["step"]["seconds"] == pytest.approx(
        alone["step"]["seconds"], rel=1e-9
    )


def test_text_names_the_reasons() -> None:
    out = dpplan("estimate", *REQUEST, *ALL, "--tokens", "1T", "--plain").stdout
    for said in (
        "Waiting for the slowest rank",
        "slow hosts",
        "jitter of equal ranks",
        "documents of different lengths",
        "Input pipeline",
        "proportional split",
        "useful tokens/s",
    ):
        assert said in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--jitter", "-1%"), ("--jitter", "negative")),
        (("--jitter", "150%"), ("--jitter", "between 0 and 1")),
        (("--slow-hosts", "2"), ("--slow-hosts", "between 0 and 1")),
        (("--slow-factor", "1.1"), ("--slow-factor", "--slow-hosts")),
        (("--slow-hosts", "1%", "--slow-factor", "0.9"), ("--slow-factor",)),
        (("--other-gpu", "a100"), ("--other-share",)),
        (("--other-share", "25%"), ("--other-gpu",)),
        (("--split", "equal"), ("--other-gpu",)),
        (
            ("--other-gpu", "a100", "--other-share", "10%"),
            ("--other-share", "whole hosts", "1/8 = 0.125"),
        ),
        (("--other-gpu", "a100", "--other-share", "1"), ("--other-share", "less than 1")),
        (("--other-gpu", "a101", "--other-share", "25%"), ("a101",)),
        (
            ("--other-gpu", "a100", "--other-share", "25%", "--precision", "fp8"),
            ("--other-gpu", "fp8"),
        ),
        (("--packing", "padded"), ("--length-mean",)),
        (("--length-mean", "0"), ("--length-mean", "between 1")),
        (("--length-mean", "800", "--packing", "none"), ("--packing",)),
        (("--length-mean", "800", "--length-sigma", "9"), ("--length-sigma",)),
    ],
)
def test_wrong_requests(words: tuple[str, ...], said: tuple[str, ...]) -> None:
    refused(dpplan("estimate", *REQUEST, *words), *said)


def test_packing_beside_windows_is_refused() -> None:
    assert model_spec("gemma-2-9b")[0].attention_window is not None
    refused(
        dpplan(
            "estimate", "--model", "gemma-2-9b", "--gpu", "h100", "--gpus", 8, "--length-mean", 800
        ),
        "--packing",
        "padded",
    )


# ------------------------------------------------------------------------------------------------ b


def test_batch_norm_by_hand() -> None:
    # 64 channels in fp32: mean, 1/std and count are 129 numbers of 4 B; backward two sums, 128
    assert float(batch_norm_forward_bytes(64.0, 4.0)) == 516
    assert float(batch_norm_backward_bytes(64.0, 4.0)) == 512
    assert float(stragglers.batch_norm_forward_bytes(0.0, 4.0)) == 4


def test_batch_norms_of_resnet() -> None:
    widths = batch_norm.resnet50()
    assert (len(widths), sum(widths)) == (53, 26_560)  # 53,120 scales and shifts
    document = dpplan("batchnorm", "--gpu", "a100", "--gpus", 64, "--json").json()
    assert document["forward"]["bytes"] == (2 * 26_560 + 53) * 4
    assert document["backward"]["bytes"] == 2 * 26_560 * 4
    assert document["seconds"] == pytest.approx(
        document["forward"]["seconds"] + document["backward"]["seconds"]
    )
    own = dpplan(
        "batchnorm", "--gpu", "a100", "--gpus", 64, "--channels", "64,256x3", "--json"
    ).json()
    assert (own["layers"], own["channels"]) == (4, 832)
    fewer = dpplan("batchnorm", "--gpu", "a100", "--gpus", 8, "--json").json()
    assert fewer["seconds"] < document["seconds"]
    refused(dpplan("batchnorm", "--gpu", "a100", "--gpus", 8, "--channels", "64,a"), "--channels")
    refused(dpplan("batchnorm", "--gpu", "a100", "--gpus", 8, "--channels", "0"), "--channels")


def test_keys_of_batchnorm_are_documented() -> None:
    from test_strategies import _documented, _keys

    document = dpplan("batchnorm", "--gpu", "h100", "--gpus", 16, "--json").json()
    assert _keys(document, stop=frozenset()) == _documented("`batchnorm --json`", "`input --json`")
