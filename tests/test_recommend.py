"""`dpplan recommend`: what it names is within the limits, the next smaller is not, and looser
limits never give worse answers."""

from __future__ import annotations

from typing import Any

import pytest
from clusters_found import GIVEN, recommended, rerun
from command import argv, dpplan, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from not_none import not_none

from planner import api
from planner.inputs import catalog
from planner.inputs.scenario import resolve
from planner.search import layouts
from planner.specs.base import PlanError
from planner.specs.hardware import GpuSpec
from planner.specs.options.recommend import GOALS, Limits
from planner.verbs.counts import layout_counts
from planner.verbs.recommend.clusters import cluster
from planner.verbs.recommend.limits import checked
from planner.views.recommend import view


def tried(document: Any, machine: str) -> list[Any]:
    rows: list[Any] = next(kind for kind in document.types if kind.machine == machine).tried
    return rows


def test_the_size_below_is_said_of_the_smallest_and_not_of_the_best() -> None:
    """Where the best is not the smallest, both stand there: fewer GPUs that are within the
    limits are never passed over."""
    document = recommended(5.0, goal="fastest")
    lines = [line for block in view(document).blocks for line in block.below]
    passed = 0
    for kind in document.types:
        if kind.answer is None:
            continue
        (line,) = [entry for entry in lines if entry.startswith(f"{kind.machine}: ")]
        smallest = f"smallest within the limits: {kind.smallest_gpus:,} GPUs"
        assert (smallest in line) == (kind.smallest_gpus < kind.answer.gpus)
        passed += smallest in line
        if kind.below:
            assert f"one size smaller: {kind.below.gpus:,} GPUs" in line
            assert kind.below.gpus < kind.smallest_gpus
    assert passed


def test_an_answer_meets_the_limit_on_its_own_and_the_next_smaller_does_not() -> None:
    days = 5.0
    for kind in recommended(days).types:
        rows = kind.tried
        smallest = kind.smallest_gpus
        if smallest is None:
            assert kind.reason
            continue
        below = [row for row in rows if row.gpus < smallest]
        assert not any(row.within for row in below)
        assert all(not row.fits or row.days > days for row in below)
        if below:
            assert kind.below.gpus == below[-1].gpus
            assert kind.below.why
    for aim in GOALS:
        answer = recommended(days).answers.by_goal[aim]
        full = rerun(answer.command)
        assert full.memory.fits
        assert not_none(full.run.days) <= days
        assert full.run.days == pytest.approx(answer.days, rel=1e-9)
        assert full.run.cost_usd == pytest.approx(answer.cost_usd) if answer.cost_usd else True
        assert full.cluster.gpus == answer.gpus
        ends = (answer.days_low / answer.days, answer.days_high / answer.days)
        assert (full.run.low, full.run.high) == pytest.approx(ends)
        assert ends[1] > full.step.high / full.step.seconds
        assert answer.chance >= 0.5


def test_the_answers_are_the_best_of_all_that_is_tried() -> None:
    out = recommended(5.0)
    rows = [(kind.machine, row) for kind in out.types for row in kind.tried if row.within]
    assert out.answers.smallest.gpus == min(row.gpus for _, row in rows)
    assert out.answers.fastest.days == min(row.days for _, row in rows)
    assert out.answers.cheapest.cost_usd == min(
        row.cost_usd for _, row in rows if row.cost_usd is not None
    )
    assert out.tried == sum(len(kind.tried) for kind in out.types)


LIMITS = st.sampled_from((1.0, 2.0, 5.0, 20.0))


@settings(max_examples=12, deadline=None)
@given(value=LIMITS, other=LIMITS, aim=st.sampled_from(GOALS))
def test_more_time_never_gives_a_worse_answer(value: float, other: float, aim: str) -> None:
    less, more = (recommended(days).answers.by_goal[aim] for days in sorted((value, other)))
    key = {"cheapest": "cost_usd", "smallest": "gpus", "fastest": "days"}[aim]
    if less is not None:
        assert more is not None
        assert getattr(more, key) <= getattr(less, key)


@pytest.mark.parametrize(("less", "more"), [(200.0, 400.0), (400.0, 3000.0)])
def test_more_money_never_gives_a_slower_answer(less: float, more: float) -> None:
    slow, fast = (recommended(None, budget).answers.fastest for budget in (less, more))
    assert fast is not None
    assert fast.cost_usd <= more
    if slow is not None:
        assert fast.days <= slow.days
        assert slow.cost_usd <= less


def test_sure_holds_at_the_slow_end() -> None:
    days = (
        recommended(None).answers.fastest.days_high * 0.99
    )  # the fastest is likely, not sure, within these
    assert recommended(days).answers.fastest.verdict == "likely"
    kept = recommended(days, sure=True)
    for row in (row for row in kept.answers.by_goal.values() if row):
        assert row.days_high <= days
        assert row.verdict == "very likely"
    assert (
        kept.answers.fastest is None
        or kept.answers.fastest.days >= recommended(days).answers.fastest.days
    )


def test_kinds_without_a_price_are_no_cheapest_and_meet_no_budget() -> None:
    out = recommended(5.0, kinds=("gb300-279gb", "a100"))
    assert out.answers.cheapest.machine == "a100"
    assert next(kind for kind in out.types if kind.machine == "gb300-279gb").answer.cost_usd is None
    priced = recommended(None, 1e6)
    reason = next(kind.reason for kind in priced.types if kind.machine == "gb300-279gb")
    assert "no price" in reason


def test_power_is_that_of_the_energy() -> None:
    kw = 20.0
    out = recommended(power_kw=kw)
    for row in (row for row in out.answers.by_goal.values() if row):
        full = rerun(row.command).run
        assert not_none(full.energy_kwh) / (not_none(full.days) * 24) <= kw
    more = [row.gpus for row in tried(recommended(), "a100")]
    less = [row.gpus for row in tried(out, "a100")]
    assert less == [n for n in more if n <= max(less)]
    assert len(less) < len(more)


def test_without_limits_it_is_the_smallest_that_fits() -> None:
    out = cluster(
        Limits(max_gpus=64),
        {"model": "llama-2-7b", "global_batch": 64, "stack": "megatron-core", "micro_batch": 1},
        ["a100", "rtx4090"],
    )
    first = next(kind for kind in out.types if kind.machine == "rtx4090")
    assert [row.fits for row in first.tried] == sorted(row.fits for row in first.tried)
    assert first.smallest_gpus == next(row.gpus for row in first.tried if row.fits)
    assert not_none(first.answer).days is None


@pytest.mark.parametrize("model_name", ["gpt2-xl", "llama-2-13b"])
@pytest.mark.parametrize(("batch_size", "every"), [(48, True), (64, False)])
def test_no_count_with_a_layout_is_left_out(model_name: str, batch_size: int, every: bool) -> None:
    base = api.read_options(
        {
            "model": model_name,
            "gpu": "a100",
            "global_batch": batch_size,
            "seq_len": 1024,
            "uneven_stages": None if every else False,
        }
    )
    kept = {n for n in layout_counts(base, 256, every=every) if n % 8 == 0}
    for nodes in range(1, 33):
        options = base.changed(gpus=8 * nodes, stack="megatron-core")
        if len(layouts(resolve(options).plans[0]).tp):
            assert 8 * nodes in kept
    assert all(n % 8 == 0 for n in kept)


def test_counts_left_out_could_not_have_been_within() -> None:
    """Counts ruled out by the peak rate or the bare states miss the limits if evaluated."""
    days = 1.0
    out = recommended(days, kinds=("a100",))
    first = tried(out, "a100")[0].gpus
    for row in tried(recommended(kinds=("a100",)), "a100"):
        if row.gpus < first:
            assert not row.fits or row.days > days


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--days", "10"], "--tokens"),
        (["--budget", "10"], "--tokens"),
        (["--tokens", "1T", "--days", "-1"], "--days"),
        (["--tokens", "1T", "--budget", "nan"], "--budget"),
        (["--max-gpus", "0"], "--max-gpus"),
        (["--max-gpus", "2000000"], "--max-gpus"),
        (["--power-kw", "0"], "--power-kw"),
        (["--sure"], "--sure"),
        (["--goal", "best"], "--goal"),
        (["--gpus", "8"], "--gpus"),
        (["--tokens", "many"], "--tokens"),
        (["--gpu", "a100", "--gpu", "a100"], "--gpu"),
        (["--gpu", "a100,"], "--gpu"),
        (["--gpu", "nothing"], "nothing"),
        (["everything"], "must be 'cluster', 'bandwidth'"),
        (["batch", "--days", "3"], "--days"),
        (["bandwidth", "--goal", "fastest"], "--goal"),
        (["cluster", "--model-out", "x.toml"], "--model-out"),
        (["batch", "--gpu", "a100", "--gpu", "h100"], "--gpu"),
        (["batch", "--gpu", "a100", "--global-batch", "8"], "--global-batch"),
        (["bandwidth", "--gpu", "a100"], "--gpus"),
        (["--jobs", "0"], "--jobs"),
        (["--lora", "16"], "dpplan tune --model gpt2"),
    ],
)
def test_wrong_questions_are_refused(words: list[str], text: str) -> None:
    refused(dpplan("recommend", *words, "--model", "gpt2"), text)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            ["--examples", "52k", "--lora", "32", "--gpu", "rtx4090", "--gpu", "l40s"],
            "dpplan tune --model gpt2 --gpu rtx4090 --gpu l40s --max-gpus 8 --method lora --rank 32"
            " --examples 52000",
        ),
        (
            ["--lora", "16", "--base-precision", "nf4", "--days", "2", "--seq-len", "512"],
            "dpplan tune --model gpt2 --seq-len 512 --gpu any --max-gpus 8 --method qlora --days 2"
            " --examples N",
        ),
        (  # no method has such a base: all are compared
            ["--lora", "16", "--base-precision", "gptq"],
            "dpplan tune --model gpt2 --gpu any --max-gpus 8 --examples N",
        ),
    ],
)
def test_questions_of_fine_tuning_name_their_command(words: list[str], command: str) -> None:
    refused(dpplan("recommend", *words, "--model", "gpt2"), f"`{command}`")


def test_adapters_are_answered_within_a_limit_on_gpus() -> None:
    request: dict[str, Any] = {"model": "qwen2.5-0.5b", "tokens": 5e7, "lora": 16}
    request |= {"stack": "hf-trainer", "global_batch": 8, "stack_defaults": True}
    most = 8
    fastest = cluster(Limits(max_gpus=most), request, ["rtx4090"]).answers.fastest
    assert fastest is not None
    assert fastest.gpus <= most


def test_nothing_within_the_limits_is_status_3_and_says_why() -> None:
    words = argv(
        "--model llama-2-70b --tokens 1T --days 1 --max-gpus 32 --gpu a100 --gpu v100-pcie-32gb"
    )
    answer = dpplan("recommend", *words)
    assert answer.status == 3
    assert "Why the others fell" in answer.stdout
    assert "more than 32 GPUs: even its GEMMs take more than 1 days" in answer.stdout
    assert dpplan("recommend", *words, "--json").json()["answers"] == dict.fromkeys(GOALS)


def test_every_kind_is_tried_when_none_is_named() -> None:
    out = cluster(Limits(days=1000, max_gpus=8), {**GIVEN, "model": "gpt2"})
    names = [kind.machine for kind in out.types]
    every = catalog.load_all("gpus", GpuSpec)
    tried = [gpu for gpu in every if gpu.node.gpus_per_node > 1 and gpu.accelerator == "gpu"]
    assert sorted(names) == [gpu.id for gpu in tried]
    assert "rtx5060ti-16gb" not in names  # of a desktop computer
    costs = [kind.answer for kind in out.types if kind.answer and kind.answer.cost_usd]
    assert {not_none(row.price_source).split(",")[0] for row in costs} == {"on-demand"}
    assert all(kind.reason or kind.answer for kind in out.types)
    text = "\n".join("\n".join(block.text) for block in view(out).blocks)
    assert "cheapest" in text


def test_limits_are_one_record() -> None:
    with pytest.raises(PlanError, match="--tokens"):
        checked(Limits(days=1), None)
    assert checked(Limits(days=1), "1T") == Limits(days=1)


# ------------------------------------------------------------------------------ without a default

SMALL = {"model": "gpt2-xl", "tokens": "100B"}


def test_none_says_what_would_hold_without_each_default() -> None:
    """512 sequences, as GPT-2 was trained with, leave one per GPU pair: no count up to 64 is in
    time; each replaced default that is says so with a command that holds."""
    days = 0.49
    given = {**SMALL, "stack_defaults": True}
    out = cluster(Limits(days=days, max_gpus=64), given, ["h100"])
    assert out.answers.smallest is None
    by_default = {entry.default: entry for entry in out.without}
    assert {"global batch", "precision"} <= set(by_default)
    assert "most GPUs" not in by_default, "--max-gpus was given"
    items = [entry.answer for entry in out.without if entry.answer is not None]
    assert items
    for row in items:
        full = rerun(row.command)
        assert full.run.days is not None
        assert full.run.days == pytest.approx(row.days)
        assert full.run.days <= days
    batch = by_default["global batch"]
    assert batch.tokens_factor is not None
    assert 1 < batch.tokens_factor < 2  # twice the batch never needs twice the tokens
    text = "\n".join(out.notes)
    for word in ("sequence length 1,024", "global batch 512", "precision bf16", "goodput"):
        assert word in text


def test_without_failures_the_budget_still_holds() -> None:
    """A run that is late only because of failures is reported as in time without them, unless it
    costs more than the budget even then."""
    given = {**SMALL, "global_batch": 64, "precision": "bf16"}
    row = cluster(Limits(max_gpus=8), given, ["h100"]).answers.fastest
    assert row is not None
    assert row.days is not None
    assert row.cost_usd is not None
    days = row.days * (1 + row.goodput) / 2
    for share, expected in ((1.0, True), (0.5, False)):
        limits = Limits(days=days, budget=share * row.cost_usd, max_gpus=8)
        out = cluster(limits, given, ["h100"])
        assert out.answers.smallest is None
        assert any(entry.default == "failures" for entry in out.without) == expected


def test_what_was_asked_is_no_default() -> None:
    out = cluster(
        Limits(days=0.1, max_gpus=8), {**SMALL, "global_batch": 64, "precision": "bf16"}, ["h100"]
    )
    assert out.answers.smallest is None
    assert [entry for entry in out.without if entry.default != "failures"] == []


def test_without_limits_nothing_is_replaced() -> None:
    out = cluster(Limits(max_gpus=8), SMALL, ["h100"])
    assert out.without == []


def test_the_published_run_is_found() -> None:
    """Llama 3.1 405B in the 78.4 days that its GPU-hours are on 16,384 H100s: within the band. It
    recomputed nothing, and one sequence at a time went through its 16 stages. What it ran is not
    what a search of kernels and overlap would have run."""
    given = {"model": "llama-3.1-405b", "tokens": "15.6T", "pp": 16}
    given |= {"recompute": "none", "micro_batch": 1, "stack": "megatron-core"}
    given["stack_defaults"] = True
    out = cluster(Limits(days=60), given, ["h100"])
    best = out.types[0].tried[-1]
    assert best.gpus == 16384
    assert best.days == pytest.approx(78.4, rel=0.1)
    assert out.answers.smallest is None
    assert any("30.8 M GPU-hours, 78.4 days" in note for note in out.notes)
    larger = next(entry for entry in out.without if entry.default == "most GPUs")
    assert "131,072 GPUs" in larger.sentence
