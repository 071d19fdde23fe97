"""A step of reinforcement learning: limits, hand-worked rooflines, and what moves which way."""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest

from benchmarks import rl_steps
from planner.estimate import Estimates
from planner.estimate.generation import Engine, pass_s, step_s
from planner.estimate.machine import Machine, machine
from planner.formulas import generation as formulas
from planner.inputs.model import model_spec
from planner.ledger import first
from planner.rl.options import RlOptions
from planner.rl.rows import training_requests
from planner.rl.specs import Job, Scorer
from planner.rl.step import (
    Keeps,
    Loop,
    Pools,
    RlStep,
    forward_s,
    generate,
    median_length,
    refit_s,
    rl_step,
)
from planner.rl.verb import answer, rl
from planner.specs.base import PlanError
from planner.specs.options import Options
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.reinforcement import phased
from planner.verbs.estimate import chosen
from planner.views.explain import nested

ENGINE = Engine(1, 2.0, 0.6, 256, 1e-3, 1e-5)
JOB = Job(
    sequences=1024.0,
    kept_frac=1.0,
    batch=256.0,
    epochs=1.0,
    prompts=128.0,
    prompt=200.0,
    response=800.0,
    sigma=0.8,
    longest=3896.0,
    old_logprobs=True,
    critic=False,
    reward_s=0.0,
    ahead=0,
    scorers=(Scorer("reference log-probabilities", 1.0, 0, "old log-probabilities"),),
)
HERE, APART = Pools(8, 8, colocated=True), Pools(8, 8, colocated=False)
KEEPS = Keeps(sleeps=True, moves=())


@functools.cache
def trained() -> Estimates:
    return chosen(
        Options(
            model="qwen2.5-7b",
            gpu="h100",
            gpus=8,
            seq_len=4096,
            global_batch=64,
            stack="pytorch-fsdp",
            length_mean=1024.0,
        )
    )


def step(job: Job = JOB, pools: Pools = HERE, keeps: Keeps = KEEPS, **engine: Any) -> RlStep:
    return rl_step(trained(), dataclasses.replace(ENGINE, **engine), job, pools, keeps)


def seconds(step: RlStep) -> dict[str, float]:
    return {phase.name: phase.seconds for phase in step.phases}


def changed(**update: Any) -> Job:
    return dataclasses.replace(JOB, **update)


def fast(m: Machine, **update: Any) -> Machine:
    return dataclasses.replace(m, **update)


def test_one_token_of_one_sequence_reads_all_weights_once() -> None:
    """By hand: 7.6e9 16-bit weights over the share of 3.35 TB/s that GEMMs reach, no launches."""
    plan = trained().plan
    m = fast(machine(plan), gemm_launch=0.0, kernel_gap=0.0, gemm_tile_overhead=0.0)
    parameters = 7_615_616_512 - 152_064 * 3_584  # of the embedding only a row is read
    expected = 2.0 * parameters / (float(m.memory_bandwidth) * float(m.gemm_memory_frac))
    assert float(pass_s(plan, m, ENGINE, 1.0, 1.0)) == pytest.approx(expected, rel=0.03)


def test_the_cache_is_read_once_per_token() -> None:
    """28 layers x 2 x 4 heads x 128 elements x 2 B of every token of context."""
    plan = trained().plan
    m = machine(plan)
    first, two = (float(pass_s(plan, m, ENGINE, 64.0, 64.0 * n)) for n in (1024.0, 3072.0))
    moved = 64 * 2048 * 28 * 2 * 4 * 128 * 2.0
    rate = 1 / (float(m.memory_bandwidth) * float(m.gemm_memory_frac))
    assert two - first == pytest.approx(moved * rate, rel=1e-6)


def test_without_responses_only_prompts_are_left() -> None:
    generation = generate(
        trained().plan, machine(trained().plan), ENGINE, changed(response=1e-6, sigma=0.0), HERE
    )
    assert generation.drain_s + generation.full_s < 1e-3 * generation.prompts_s
    assert generation.seconds == pytest.approx(generation.prompts_s, rel=1e-2)


def test_an_endless_link_makes_refit_nothing() -> None:
    m = machine(trained().plan)
    endless = fast(m, intra_bandwidth=1e30, intra_latency=0.0, intra_base=0.0, intra_ramp=0.0)
    assert refit_s(trained(), endless, HERE) < 1e-4 < refit_s(trained(), m, HERE)
    # 7.6e9 weights in 16 bit, 7 of 8 parts of which come over a link of 450 GB/s at most
    assert refit_s(trained(), m, HERE) > 2.0 * 7.6e9 * 7 / 8 / 450e9


def test_equal_lengths_take_length_times_a_token() -> None:
    job = changed(sigma=0.0)
    plan, m = trained().plan, machine(trained().plan)
    generation = generate(plan, m, ENGINE, job, HERE)
    lengths = np.linspace(0.5, 799.5, 800)
    each = step_s(plan, m, ENGINE, 128.0, job.prompt + lengths)
    assert generation.drain_s == pytest.approx(float(each.sum()), rel=1e-3)
    assert generation.longest == pytest.approx(800.0, rel=1e-9)


def test_the_mean_length_is_that_of_the_cut_distribution() -> None:
    rng = np.random.default_rng(1)
    for response, sigma, longest in (
        (800.0, 0.8, 3896.0),
        (5500.0, 0.5, 8000.0),
        (300.0, 1.5, 1e4),
    ):
        job = changed(response=response, sigma=sigma, longest=longest)
        drawn = np.exp(rng.normal(math.log(median_length(job)), sigma, 400_000))
        assert np.minimum(drawn, longest).mean() == pytest.approx(response, rel=0.01)


def test_the_longest_of_a_batch_is_that_of_drawn_batches() -> None:
    rng = np.random.default_rng(2)
    job = changed(longest=1e5, response=500.0)
    generation = generate(trained().plan, machine(trained().plan), ENGINE, job, HERE)
    drawn = np.exp(rng.normal(math.log(median_length(job)), job.sigma, (4000, 1024))).max(axis=1)
    assert generation.longest == pytest.approx(drawn.mean(), rel=0.02)


def test_experts_touched_by_drawn_tokens() -> None:
    rng = np.random.default_rng(3)
    for tokens in (1, 16, 200):
        drawn = [
            len({e for _ in range(tokens) for e in rng.choice(128, 8, replace=False)})
            for _ in range(60)
        ]
        number = float(formulas.touched_experts(float(tokens), 128.0, 8.0))
        assert number == pytest.approx(np.mean(drawn), rel=0.03)


def test_forward_alone_is_part_of_the_training_step() -> None:
    e = trained()
    assert 0.15 < forward_s(e) / first(e.time.seconds) < 0.45


def test_phases_add_up_where_they_wait_for_each_other() -> None:
    for pools in (HERE, APART):
        result = step(pools=pools)
        assert result.seconds == pytest.approx(sum(seconds(result).values()), rel=1e-12)


def test_separate_pools_off_policy_take_the_slower() -> None:
    result = step(changed(ahead=1), APART)
    parts = seconds(result)
    training = sum(s for n, s in parts.items() if n not in ("generation", "refit"))
    slower = max(parts["generation"], training) + parts["refit"]
    assert result.seconds == pytest.approx(slower, rel=1e-12)
    # the tail of long responses is filled by the next steps' prompts, more so the further ahead
    ahead = [seconds(step(changed(ahead=k), APART))["generation"] for k in (0, 1, 2, 8, 64)]
    assert ahead == sorted(ahead, reverse=True)


def test_ahead_of_training_the_prompts_of_all_steps_are_under_way() -> None:
    """Eight steps ahead engines run eight times the sequences, as far as an engine takes them: a
    pass takes longer, and each step's share of it is less."""
    few, many = (
        seconds(step(changed(ahead=8), APART, most_sequences=n))["generation"] for n in (128, 1024)
    )
    assert many < 0.8 * few
    items = [
        seconds(step(changed(ahead=1), APART, most_sequences=n))["generation"] for n in (128, 1024)
    ]
    assert items[0] == items[1]


def test_the_one_shot_sum_stays_inside_a_host() -> None:
    """Ranks on two hosts of one NVLink domain sum with the library, two sums of 8 layers."""
    first, two = (plans.plan(gpu="gb200-186gb", gpus=16, gpus_per_node=n) for n in (8, 4))
    assert two.cluster.tiers.domain >= 8
    for tp, more in ((4, 0.0), (8, 10e-6)):
        engine = dataclasses.replace(ENGINE, tp=tp)
        took = [
            float(pass_s(subject, machine(subject), engine, 1.0, 1.0)) for subject in (first, two)
        ]
        assert (took[1] - took[0]) / 16 >= more
        assert took[1] == pytest.approx(took[0]) or more


def test_what_costs_more() -> None:
    """Each of these takes longer than the one before."""
    base = step().seconds
    assert step(changed(response=900.0)).seconds > base
    assert step(changed(scorers=())).seconds < base
    assert step(changed(critic=True)).seconds > base
    assert step(changed(reward_s=5.0)).seconds == pytest.approx(base + 5.0)
    assert step(changed(sequences=2048.0)).seconds > base
    assert step(changed(kept_frac=0.5)).seconds < base
    assert step(keeps=Keeps(sleeps=True, moves=("optimizer",))).seconds > base
    assert step(most_sequences=32).seconds > base
    tails = [step(changed(sigma=sigma)).generation.longest for sigma in (0.0, 0.3, 0.6)]
    assert tails == sorted(tails)


def test_memory_of_phases() -> None:
    """The engine's share, what sleeps and what moves."""
    bytes_of = {p.name: p.device_bytes for p in step().phases}
    assert bytes_of["training"] >= bytes_of["old log-probabilities"]
    asleep, awake = step(), step(keeps=Keeps(sleeps=False, moves=()))
    added = {p.name: p.device_bytes for p in awake.phases}["training"] - bytes_of["training"]
    # an engine that is awake keeps its whole share: 60 % of 79.1 GiB
    assert added == pytest.approx(asleep.generation.device_bytes)
    assert added == pytest.approx(0.6 * 79.11 * 2**30, rel=1e-4)
    moved = step(keeps=Keeps(sleeps=True, moves=("parameters", "gradients", "optimizer")))
    assert {p.name: p.device_bytes for p in moved.phases}["generation"] < bytes_of["generation"]
    assert not step(budget_frac=0.1).fits  # weights of 15 GB in 8 GB


# ------------------------------------------------------------------------------ the verb

ASKED: dict[str, Any] = {
    "model": "qwen2.5-0.5b",
    "gpu": "h100",
    "gpus": 8,
    "stack": "pytorch-fsdp",
    "recompute": "none",
}


def test_the_answer_is_of_the_split_that_is_asked_for() -> None:
    options = rl(RlOptions(generation_gpus=6, ahead=1), ASKED)
    (split,) = options.splits
    assert (split.generation_gpus, split.training_gpus, split.taken) == (6, 2, True)
    assert options.training.gpus == 2
    ends = [options.step_low_s or 0.0, options.step_s or 0.0, options.step_high_s or 0.0]
    assert 0 < ends[0] < ends[1] < ends[2]
    assert options.generation.engines * options.generation.tp == 6


def test_the_split_that_is_taken_is_the_fastest_that_fits() -> None:
    """Off policy on GPUs of its own, and shared by default where the framework does so."""
    options = rl(RlOptions(ahead=1), ASKED)
    fitting = [split.step_s for split in options.splits if split.fits and split.step_s]
    assert options.step_s == min(fitting)
    assert not any(split.shared for split in options.splits)
    shared = rl(RlOptions(), ASKED)
    assert [split.shared for split in shared.splits if split.taken] == [True]


def test_the_formulas_of_a_step_are_recorded() -> None:
    document, tree = answer(RlOptions(generation_gpus=4, explain=True), ASKED)
    assert tree is not None
    assert document.explain == nested(tree)
    seen, left = set(), [tree]
    while left:
        call = left.pop()
        seen.add(call.formula.name)
        left += call.calls
    assert {"gemm_s", "running_frac", "forward_only_s", "reinforcement_step_s"} <= seen


def test_a_stack_without_what_is_asked_for_leaves_the_others_of_the_framework() -> None:
    """verl trains on FSDP, which has no tensor parallelism, and on Megatron-Core, which has."""
    given = {"model": "gpt2", "gpu": "a100", "gpus": 2, "tp": 2}
    options = rl(RlOptions(prompts=16, response_length=256), given)
    assert (options.training.stack, options.training.layout.tp) == ("megatron-core", 2)
    assert options.fits


def test_cost_and_work() -> None:
    options = rl(RlOptions(updates=2, update_batch=256, kept="50%"), {**ASKED, "price": 2.0})
    assert options.work.sequences == 1024
    assert options.work.trained == 512
    assert options.work.optimizer_steps == 4
    assert options.step_s is not None
    assert options.usd_per_1000_steps == pytest.approx(1000 * options.step_s * 8 * 2.0 / 3600)


def test_algorithms_and_frameworks_set_phases() -> None:
    def phases(**value: Any) -> set[str]:
        return {p.name for p in rl(RlOptions(generation_gpus=4, **value), ASKED).phases}

    assert "training of the critic" in phases(algorithm="ppo") - phases()
    assert "reference log-probabilities" in phases(framework="nemo-rl")
    assert "reference log-probabilities" not in phases(framework="nemo-rl", algorithm="dapo")
    assert "old log-probabilities" not in phases(framework="trl")
    assert "old log-probabilities" in phases(framework="trl", updates=2)


@pytest.mark.parametrize(
    ("value", "given", "field"),
    [
        ({"framework": "verlm"}, {}, "--framework"),
        ({"generation_gpus": 8}, {}, "--generation-gpus"),
        ({"generation_gpus": 4, "generation_tp": 3}, {}, "--generation-tp"),
        ({"response_max": 100, "response_length": 200}, {}, "--response-max"),
        ({"ahead": 1}, {"gpus": 1}, "--ahead"),
        ({"response_length": 2000}, {"model": "gpt2"}, "--response-length"),
        ({}, {"seq_len": 512}, "--seq-len"),
        ({}, {"model": "dit-xl-2"}, "--model"),
    ],
)
def test_a_wrong_request_names_field_and_remedy(value: Any, given: Any, field: str) -> None:
    with pytest.raises(PlanError, match=field):
        rl(RlOptions(**value), {**ASKED, **given})


# ------------------------------------------------------------------------------ measured rows

TABLE = Path(__file__).parent / "data/reinforcement.csv"
ROW = next(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


def test_a_row_of_reinforcement_learning_is_predicted_by_phases() -> None:
    (run,) = validate_rows([ROW]).rows
    assert run.not_expressed == ""
    assert run.predicted_step_s == pytest.approx(sum(run.phases.values()))
    assert {"generation", "old log-probabilities", "training", "refit"} <= run.phases.keys()
    # four updates of 512 sequences of 1,000 tokens in rows of 4,096, which 8 replicas share
    assert "--update-batch 512" in run.command
    assert phased(ROW).train.estimates.plan.training.global_batch == 128
    apart = {**ROW, "training_gpus": "8", "generation_gpus": "8", "colocated": "0", "dp": "4"}
    (off,) = validate_rows([{**apart, "policy_lag": "1"}]).rows
    assert off.predicted_step_s < sum(off.phases.values())


def test_a_row_that_does_not_say_what_it_generates_is_set_apart() -> None:
    missing = {**ROW, "seq_len": "4096", "global_batch": "128", "generation_tp": ""}
    (run,) = validate_rows([missing]).rows
    assert "algorithm" in run.not_expressed
    assert not run.phases
    others = ({"mean_seq_len": "9000"}, {"generation_tp": "3"}, {"algorithm": "swe"})
    wrong = validate_rows([{**ROW, **entry} for entry in (*others, {"prompts_per_step": ""})])
    named = ("mean_seq_len is", "--generation-tp: 3", "algorithm is", "prompts_per_step is")
    assert all(name in entry.reason for name, entry in zip(named, wrong.skipped, strict=True))


# ------------------------------------------------------------------------------ rows by tokens


def shapes(gpus: int, job: Job = JOB, *, pads: bool = False, **given: Any) -> list[Options]:
    options = Options(model="qwen2.5-7b", gpu="h100", gpus=gpus, **given)
    model, _ = model_spec("qwen2.5-7b")
    return training_requests(options, model, job, gpus, pads=pads)


def test_replicas_share_the_tokens_of_a_step_evenly() -> None:
    """256 sequences of 1,000 tokens on average, 4,096 at most: 62.5 full rows."""
    tokens = JOB.batch * (JOB.prompt + JOB.response)
    for gpus in (1, 3, 8, 24, 32, 48, 64):
        for options in shapes(gpus):
            assert options.global_batch is not None
            assert options.seq_len is not None
            assert options.seq_len <= 4096
            assert tokens <= options.global_batch * options.seq_len <= 2.1 * tokens
        assert (shapes(gpus)[0].global_batch or 0) % gpus == 0
    stated = shapes(32, tp=2, pp=1, cp=1, micro_batch=2)
    assert [options.global_batch for options in stated] == [64]


def test_more_replicas_than_full_rows_get_shorter_ones_but_for_the_longest_response() -> None:
    long = changed(longest=28_000.0, batch=64.0)
    (few, *_), (many, *_) = shapes(1, long), shapes(16, long, dp=16)
    assert (few.seq_len or 0) > (many.seq_len or 0)
    # the rank with the longest of 1,024 responses has at least that one
    assert (many.seq_len or 0) >= 4000


def test_a_prime_number_of_rows_is_rounded_up_for_its_micro_batches() -> None:
    """29 rows of a replica have micro-batches of 1 or 29; 32 have those between."""
    model, _ = model_spec("qwen2.5-0.5b")
    options = Options(model="qwen2.5-0.5b", gpu="h100", gpus=1, tp=1, pp=1, cp=1)
    job = changed(sequences=72.0, batch=72.0, prompt=256.0, response=256.0, longest=1024.0)
    rows = [each.global_batch for each in training_requests(options, model, job, 1)]
    assert rows == [29, 32]


def test_long_sequences_of_a_padded_pipeline_have_rows_of_their_own() -> None:
    long = changed(response=3000.0)
    (own_rows,) = shapes(8, long, pads=True, tp=1, cp=1, pp=1)
    assert (own_rows.global_batch, own_rows.packing) == (256, "longest")
    (padded,) = shapes(8, long, pads=True, tp=1, cp=1, pp=2)
    assert (padded.global_batch, padded.packing) == (256, "padded")
    assert shapes(8, long)[0].packing == "packed"


def test_pools_may_share_nodes_unevenly() -> None:
    """Two GPUs of each of two nodes generate, six train."""
    document = rl(
        RlOptions(generation_gpus=4, ahead=1), {**ASKED, "gpus": 16, "stack": "megatron-core"}
    )
    assert document.training.gpus == 12
    assert "--gpus-per-node 6" in document.training.command


def test_a_loop_takes_more_than_its_parts() -> None:
    e, m = trained(), machine(trained().plan)
    job = changed(reward_s=None)
    parts, whole = step(), rl_step(e, ENGINE, job, HERE, KEEPS, Loop(2e-3, 3.0, 1e9, 1e-3))
    before, after = seconds(parts), seconds(whole)
    slower = after["generation"] - before["generation"]
    assert slower == pytest.approx(2e-3 * parts.generation.longest, rel=0.1)
    assert after["training"] == pytest.approx(3 * before["training"])
    assert after["reward"] == pytest.approx(1e-3 * JOB.sequences)
    assert after["refit"] == pytest.approx(2.0 * 7_615_616_512 / 1e9)
    assert refit_s(e, m, HERE, Loop(refit_rate=1e30)) == refit_s(e, m, HERE)


def test_log_probabilities_may_come_from_the_engine() -> None:
    names = {p.name for p in rl(RlOptions(generation_gpus=4, old_logprobs="no"), ASKED).phases}
    assert "old log-probabilities" not in names
    names = {
        p.name
        for p in rl(RlOptions(generation_gpus=4, framework="trl", old_logprobs="yes"), ASKED).phases
    }
    assert "old log-probabilities" in names


def test_drawn_tokens_take_longer_than_the_likeliest() -> None:
    plan = trained().plan
    m = machine(plan)
    greedy, drawn = (
        float(pass_s(plan, m, dataclasses.replace(ENGINE, sample_bytes=n), 256.0, 256.0))
        for n in (16.0, 62.0)
    )
    moved = 256 * 46.0 * plan.model.padded_vocab
    rate = float(m.memory_bandwidth) * float(m.gemm_memory_frac)
    assert drawn - greedy == pytest.approx(moved / rate, rel=1e-6)


# ------------------------------------------------------------------------------ published steps


def test_published_steps_say_where_they_are_from() -> None:
    table = rl_steps.read()
    assert len({each.id for each in table}) == len(table)
    for each in table:
        assert each.source
        assert each.quoted
        assert each.tier in ("A", "B")
        assert each.measured["step"] > 0
        assert each.command or each.assumed  # a reason
        if each.command:
            settings, options = each.request()
            assert options.stack
            assert options.gpus > (settings.generation_gpus or 0)
    assert sum(len(each.measured) > 1 for each in table) >= 30  # with phases


def test_a_published_step_is_met() -> None:
    (each,) = rl_steps.answers([each for each in rl_steps.read() if each.id == "n8m"])
    assert isinstance(each, rl_steps.Answered)
    error = each.error("step")
    assert error is not None
    assert abs(error) < 0.2
