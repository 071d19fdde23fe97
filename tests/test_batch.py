"""`dpplan batch`: every point an estimate of its own, regimes, factors of GPU-time, limits of the
critical batch, refusals."""

from __future__ import annotations

import csv
import math
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command import argv, dpplan, refused
from hypothesis import given
from hypothesis import strategies as st
from not_none import not_none

from planner.specs.base import PlanError
from planner.specs.document import changed, plain, read
from planner.specs.documents.batch import TimeToTarget
from planner.specs.options.own import BatchOptions
from planner.verbs import batch
from planner.verbs.batch.regimes import REGIMES, gpu_time_factors
from planner.verbs.batch.runs import batches_of
from planner.views import batch as shown
from planner.views.chart import Chart

SMALL = {
    "model": "gpt2",
    "gpu": "a100",
    "seq_len": 512,
    "stack": "megatron-core",
    "tokens": "10B",
    "global_batch": 64,
    "stack_defaults": True,
}
REFERENCE = 64 * 512.0  # tokens of a step


@cache
def answer_for(critical: str = "131072", sweep: str = "gpus=8..64", **changes: Any) -> Any:
    return batch.batch(
        BatchOptions(sweep=sweep, critical_batch=critical, learning_rate=1e-3, warmup="100M"),
        {**SMALL, **changes},
    )


def fitting(regime: str, **words: Any) -> list[Any]:
    return [p for p in answer_for(**words).regimes[regime].points if p.fits]


@pytest.mark.parametrize("regime", REGIMES)
def test_every_point_is_an_estimate_of_its_own(regime: str) -> None:
    point = fitting(regime)[2]
    alone = dpplan(*shlex.split(point.command)[1:], "--json").json()
    assert alone["layout"] == plain(point.layout)
    assert alone["step"]["seconds"] == pytest.approx(point.step_seconds, rel=1e-9)
    assert alone["run"]["days"] == pytest.approx(point.days)
    assert alone["run"]["cost_usd"] == pytest.approx(point.cost_usd)
    assert alone["training"]["tokens"] == point.tokens


def test_steps_and_tokens_of_the_points() -> None:
    """64 sequences of 512 tokens are a quarter of the critical batch: E_min is 4/5 of the 10 B,
    S_min that over 131,072."""
    out = answer_for()
    assert out.least.tokens == pytest.approx(8e9)
    assert out.least.steps == pytest.approx(8e9 / 131072)
    for curve in out.regimes.values():
        for p in curve.points:
            size = p.global_batch * 512
            assert p.steps == math.ceil(8e9 / 131072 * (1 + 131072 / size) * (1 - 1e-12))
            assert p.tokens == p.steps * size
            assert p.of_critical == pytest.approx(size / 131072)
            layout = p.layout
            assert layout.micro_batch * layout.grad_accum * layout.dp == p.global_batch
            assert p.smallest_batch == layout.micro_batch * layout.dp
            wall = p.tokens / p.tokens_per_s / p.goodput
            assert p.days == pytest.approx(wall / 86400)


def test_regimes_keep_grow_and_choose() -> None:
    strong, weak, best = (fitting(name) for name in REGIMES)
    assert {p.global_batch for p in strong} == {64}
    assert [p.global_batch for p in weak] == [64, 128, 256, 512]
    for kept, grown, chosen in zip(strong, weak, best, strict=True):
        assert chosen.days <= min(kept.days, grown.days)
        assert kept.global_batch <= chosen.global_batch <= grown.global_batch


@pytest.mark.parametrize("regime", REGIMES)
def test_factors_multiply_to_the_loss_of_efficiency(regime: str) -> None:
    points = fitting(regime)
    first = points[0]
    for p in points:
        gpu_days = p.value * p.days / (first.value * first.days)
        assert math.prod(p.gpu_time_factors.values()) == pytest.approx(gpu_days)
        assert p.efficiency == pytest.approx(1 / gpu_days)
        assert sum(p.gpu_seconds_per_token.values()) == pytest.approx(p.value / p.tokens_per_s)
    assert set(first.gpu_time_factors.values()) == {1.0}


def test_factors_by_hand() -> None:
    """Communication grows from nothing to half of all: ln 2 is all its own; three times the tokens,
    goodput halved."""
    first = changed(
        fitting("strong")[0],
        gpu_seconds_per_token={"compute": 1.0, "communication": 0.0},
        tokens=10.0,
        goodput=1.0,
    )
    here = changed(
        first,
        gpu_seconds_per_token={"compute": 1.0, "communication": 1.0},
        tokens=30.0,
        goodput=0.5,
    )
    assert gpu_time_factors(first, here) == pytest.approx(
        {"tokens": 3, "compute": 1, "communication": 2, "failures": 2}
    )


def test_an_endless_critical_batch_leaves_throughput_alone() -> None:
    points = fitting("weak", critical="1e15")
    first = points[0]
    for p in points:
        assert p.gpu_time_factors["tokens"] == pytest.approx(1, rel=1e-4)  # whole steps
        assert p.speed_up == pytest.approx(
            p.tokens_per_s * p.goodput / first.tokens_per_s / first.goodput, rel=1e-4
        )


def test_far_beyond_the_critical_batch_steps_are_the_least_and_gpus_bring_nothing() -> None:
    out = answer_for(critical="512")
    weak = out.regimes["weak"]
    assert weak.points[-1].steps == pytest.approx(out.least.steps, rel=0.01)
    assert weak.pays_until == 8
    assert weak.why.main == "tokens"
    assert weak.why.factors["tokens"] == pytest.approx(
        2, rel=0.02
    )  # twice the batch, as many steps
    assert all(p.days > weak.floor_days for p in weak.points)
    assert out.regimes["best"].points[-1].global_batch == 64
    assert weak.critical_crossed_at == 8


@given(steps=st.floats(1.0, 1e7), free=st.floats(0.01, 100.0), first=st.floats(0.01, 1e3))
def test_with_a_free_network_growing_the_batch_is_amdahls_law(
    steps: float, free: float, first: float
) -> None:
    """Serial: the fewest steps; parallel: those times critical batch over batch per GPU."""
    from planner.formulas.critical_batch import steps_to_target
    from planner.formulas.scaling import amdahl_s

    for gpus in (1.0, 8.0, 4096.0):
        taken = steps_to_target(steps, first * gpus, 50.0) * free
        assert taken == pytest.approx(amdahl_s(steps * free, steps * free * 50.0 / first, gpus))


def test_the_floor_is_below_every_point_even_where_more_gpus_have_a_faster_layout() -> None:
    """Four GPUs hold the states of this model only with recompute; with more of them less is
    repeated, and steps are shorter."""
    given_ = {
        "model": "llama-2-7b",
        "gpu": "h100",
        "tokens": "1B",
        "global_batch": 8,
        "zero": 1,
        "tp": 1,
        "pp": 1,
    }
    weak = batch.batch(
        BatchOptions(sweep="gpus=4..16", critical_batch="16"), given_ | {"stack": "megatron-core"}
    ).regimes["weak"]
    points = [p for p in weak.points if p.fits]
    assert len(points) > 1
    assert all(p.days > not_none(weak.floor_days) for p in points)
    assert points[0].step_seconds - points[0].exposed_s > min(
        p.step_seconds - p.exposed_s for p in points[1:]
    )


def test_a_slow_network_is_named() -> None:
    """Data parallelism only, so that all points have one layout: the same gradients are sent while
    each GPU computes less. Where pipelines are free, a deeper one may send less."""
    out = answer_for(critical="1e12", nic_bandwidth="2 Gbit/s", tp=1, pp=1)
    why = out.regimes["strong"].why
    assert why.main == "communication"
    assert why.stops
    assert "exposed communication x" in why.sentence
    ratios = [p.communication_ratio for p in out.regimes["strong"].points if p.fits]
    assert len(ratios) == len(out.regimes["strong"].points) > 1
    assert ratios == sorted(ratios)


def test_a_larger_critical_batch_is_never_slower() -> None:
    rows = answer_for().sensitivity
    assert [row.factor for row in rows] == [0.25, 1.0, 4.0]
    for regime in ("weak", "best"):
        days = [getattr(row, regime).days for row in rows]
        assert days == sorted(days, reverse=True)
        assert getattr(rows[1], regime).days == answer_for().regimes[regime].points[-1].days
    alone = answer_for(critical="524288").regimes["weak"].points[-1]
    assert rows[2].weak.days == pytest.approx(alone.days, rel=1e-4)  # steps are whole


def test_the_reference_run_may_have_another_batch() -> None:
    """Tokens are stated for the reference batch, four times the batch of the first GPU count."""
    out = batch.batch(
        BatchOptions(sweep="gpus=8,16", critical_batch="131072", reference_batch=256), SMALL
    )
    assert out.least.tokens == pytest.approx(5e9)
    assert out.regimes["weak"].points[0].tokens == pytest.approx(6.25e9, rel=1e-4)


def test_rates_and_warm_up_of_each_batch() -> None:
    rows = {row.global_batch: row for row in answer_for().batches}
    assert sorted(rows) == [64, 128, 256, 512]
    assert plain(rows[256].rates) == pytest.approx(
        {"linear": 4e-3, "root": 2e-3, "saturating": 1e-3 * 5 / 2}
    )
    assert rows[64].warmup_steps == math.ceil(1e8 / REFERENCE)
    assert rows[128].warmup_frac == pytest.approx(1e8 / rows[128].tokens)
    assert rows[256].least_steps_factor == pytest.approx(2, rel=1e-3)
    assert rows[256].least_tokens_factor == pytest.approx(2, rel=1e-3)
    assert answer_for().learning_rate.rule == "root"
    assert answer_for(optimizer="sgd").learning_rate.rule == "linear"


@pytest.mark.parametrize(
    ("first", "gpus", "expected"),
    [
        (64, 8, [64]),
        (64, 16, [64, 128]),
        (64, 24, [64, 128, 192]),
        (64, 64, [64, 128, 256, 512]),
        (3, 16, [3, 6]),
    ],
)
def test_batches_between_the_kept_and_the_grown(first: int, gpus: int, expected: list[int]) -> None:
    assert batches_of(first, 8, gpus) == expected


def test_a_batch_that_outgrows_its_bound_is_refused_as_it_was_given() -> None:
    with pytest.raises(PlanError, match="600000000 - of 8 GPUs grows to 1,200,000,000 on 16"):
        batches_of(600_000_000, 8, 16)


@given(per=st.integers(1, 1000), first=st.integers(1, 100), times=st.integers(1, 1000))
def test_batches_start_kept_and_end_grown(per: int, first: int, times: int) -> None:
    sizes = batches_of(per * first, first, first * times)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (per * first, per * first * times)
    assert all(after <= 2 * before for before, after in pairwise(sizes))


WORDS = [
    "batch",
    "--model",
    "gpt2",
    "--gpu",
    "a100",
    "--seq-len",
    512,
    "--stack",
    "megatron-core",
    "--tokens",
    "10B",
]


def test_the_command_answers_in_every_form(tmp_path: Path) -> None:
    table, page = tmp_path / "batch.csv", tmp_path / "batch.html"
    more = [
        "--sweep",
        "gpus=8,16",
        "--global-batch",
        64,
        "--critical-batch",
        "131072",
        "--learning-rate",
        1e-3,
        "--warmup",
        "100M",
    ]
    answer = dpplan(*WORDS, *more, "--jobs", 1, "--json", "--csv", table, "--html", page)
    assert answer.status == 0
    document = answer.json()
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [(row["regime"], row["gpus"]) for row in rows] == [
        (name, n) for name in REGIMES for n in ("8", "16")
    ]
    assert float(rows[3]["days"]) == document["regimes"]["weak"]["points"][1]["days"]
    factors = [float(row) for name, row in rows[3].items() if name.startswith("factor_")]
    assert math.prod(factors) == pytest.approx(1 / float(rows[3]["efficiency"]))
    assert "Plotly" in page.read_text(encoding="utf-8")
    text = dpplan(*WORDS, *more, "--jobs", 1)
    assert text.status == 0
    assert text.stdout.isascii()
    for curve in document["regimes"].values():
        assert curve["why"]["sentence"] in text.stdout


def test_without_a_sweep_gpus_double() -> None:
    out = batch.batch(BatchOptions(critical_batch="1M"), {**SMALL, "gpus": 1, "tp": 1, "pp": 1})
    assert [p.value for p in out.regimes["weak"].points] == [1, 2, 4, 8, 16, 32, 64]


def test_nothing_fits_is_an_answer() -> None:
    answer = dpplan(
        *argv("batch --model llama-70b --gpu rtx4090 --sweep gpus=1,2 --tokens 1T --json")
    )
    assert answer.status == 3
    document = read(answer.stdout, TimeToTarget)
    for curve in document.regimes.values():
        assert curve.why is None
        assert all(point.why for point in curve.points)
    view = shown.view(document, {})
    assert view.mark == "no"
    assert any("nothing fits" in block.text for block in view.blocks)
    assert not [part for part in view.parts if isinstance(part, Chart) or part.chart]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--sweep", "tp=1..8"], "must be gpus"),
        (["--sweep", "gpus=8"], "from 2 to 100"),
        (["--sweep", "gpus=1..1000+1"], "from 2 to 100"),
        (["--sweep", "gpus=8..64", "--gpus", "8"], "give one"),
        (["--sweep", "gpus=8,16", "--stop-below", "1"], "--stop-below"),
        (["--sweep", "gpus=8,16", "--jobs", "0"], "--jobs"),
        (["--sweep", "gpus=8,16", "--learning-rate", "-1"], "--learning-rate"),
        (["--sweep", "gpus=8,16", "--learning-rate", "nan"], "--learning-rate"),
        (["--sweep", "gpus=8,16", "--reference-batch", "0"], "--reference-batch"),
        (["--sweep", "gpus=8,16", "--warmup", "long"], "--warmup"),
        (["--sweep", "gpus=8,16", "--critical-batch", "0"], "--critical-batch"),
        (["--sweep", "gpus=8,16", "--target-loss", "2", "--critical-batch", "1M"], "give one"),
        (["--sweep", "gpus=8,16", "--gradient-norm", "8:1"], "two batches"),
        (["--sweep", "gpus=8,12", "--global-batch", "9"], "not a whole batch"),
    ],
)
def test_wrong_requests_are_refused(words: list[str], text: str) -> None:
    refused(dpplan(*WORDS, *words), text)


def test_tokens_are_those_of_a_whole_run() -> None:
    words = [*WORDS, "--sweep", "gpus=8,16", "--global-batch", "64"]
    words[words.index("--tokens") + 1] = "1000"
    refused(dpplan(*words), "whole run")


def test_tokens_are_needed() -> None:
    refused(dpplan("batch", "--model", "gpt2", "--gpu", "a100", "--gpus", 8), "--tokens", "2T")
