"""The search against an enumeration written independently of it, and the choices made from what it
finds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import plans
import pytest
from brute_force import brute_force
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.estimate import evaluate
from planner.estimate.ties import TIE
from planner.formulas.divisors import divisors
from planner.formulas.rules import check
from planner.formulas.stages import largest_chunk
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.search import best, family_rows, layouts, pareto, ranked, search, smallest
from planner.search.answer import answer_of
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.layout import Layout, LayoutRequest, recompute_in
from planner.specs.plan import Plan


def table_layouts(table: Columns) -> list[Layout]:
    return [table.layout(row) for row in range(len(table))]


FIXABLE: dict[str, list[Any]] = {
    "tp": [1, 2, 4],
    "pp": [1, 2, 3],
    "dp": [1, 2, 4],
    "cp": [1, 2],
    "ep": [1, 2],
    "zero": [0, 1, 2, 3],
    "micro_batch": [1, 2, 3],
    "vpp": [1, 2],
    "sequence_parallel": [True, False],
    "recompute": ["none", "full", "block:2", "group:3"],
    "shard_group": [1, 2, 4],
    "schedule": ["1f1b", "gpipe", "interleaved", "zb-1p"],
    "offload": ["none", "optimizer", "params", "activations"],
    "placement": ["tp-cp-dp-pp", "tp-cp-pp-dp"],
}


SOFTWARE = (
    "megatron-core",
    "torchtitan",
    "megatron-deepspeed",
    "pytorch-fsdp",
    "hai-llm",
    "deepspeed",
)


def random_plan(seed: int) -> Plan:
    """A small space: 4 to 8 GPUs, 2 to 6 layers, sometimes experts, sometimes a few values
    fixed, of eight GPUs always."""
    draw = random.Random(seed)
    gpus = draw.choice([4, 6, 6, 8])
    heads = draw.choice([2, 4, 6, 8, 12])
    shape = draw.choice([plans.model, plans.expert_model])(
        layers=draw.choice([2, 3, 4, 6]),
        heads=heads,
        kv_heads=draw.choice([k for k in (1, 2, 3, heads) if heads % k == 0]),
        hidden=draw.choice([192, 384, 500]),
        ffn_hidden=draw.choice([600, 768]),
    )
    fixed = {
        name: draw.choice(FIXABLE[name])
        for name in draw.sample(sorted(FIXABLE), draw.choice([0, 0, 0, 0, 1, 2]))
    }
    if gpus == 8 and not fixed:  # all tuples of factors of eight take half a minute
        fixed = {(name := draw.choice(["tp", "pp", "dp"])): draw.choice(FIXABLE[name])}
    if seed % 11 == 3 and "offload" not in fixed:
        fixed["search_offload"] = True
    return plans.plan(
        shape,
        gpus=gpus,
        gpus_per_node=draw.choice([n for n in (2, 4, gpus) if gpus % n == 0]),
        software=SOFTWARE[seed % len(SOFTWARE)],
        seq_len=draw.choice([96, 512, 16384, 16386, 32768]),
        global_batch=draw.choice([4, 6]),
        request=LayoutRequest(**fixed),
    )


@pytest.mark.parametrize("seed", range(14))
def test_search_equals_brute_force(seed: int) -> None:
    p = random_plan(seed)
    expected, searched = brute_force(p), search(p)
    if searched.estimates is None:
        assert not expected
        return
    got = table_layouts(searched.estimates.table)
    assert len(set(got)) == len(got), "no layout is evaluated twice"
    assert set(got) == expected
    assert searched.enumerated == len(got) + sum(searched.rejected.values())
    # and the best of both is the same
    other = evaluate(p, Columns.of(sorted(expected, key=repr)))
    fitting = [
        seconds for seconds, fits in zip(other.time.seconds, other.fits, strict=True) if fits
    ]
    row = best(searched.estimates)
    assert (row is None) == (not fitting)
    if row is not None:
        assert searched.estimates.time.seconds[row] == pytest.approx(min(fitting), rel=1e-12)


def test_the_random_plans_are_not_all_alike() -> None:
    sizes = [search(random_plan(seed)).estimates for seed in range(36)]
    assert sum(size is None for size in sizes) < 18
    assert sum(size is not None and len(size.table) > 100 for size in sizes) > 5


@pytest.mark.parametrize("seed", range(36, 76))
def test_every_layout_found_obeys_every_rule_and_the_request(seed: int) -> None:
    p = random_plan(seed)
    searched = search(p)
    if searched.estimates is None:
        return
    for name, holds in check(p, searched.estimates.table).items():
        assert np.all(holds), name
    fixed = p.request.model_dump(
        exclude_none=True, exclude={"uneven_stages", "search_offload", "where", "acting"}
    )
    request = fixed.pop("recompute", None)
    for x in table_layouts(searched.estimates.table):
        assert {name: getattr(x, name) for name in fixed} == fixed
        layers = largest_chunk(p, x.pp, x.vpp)
        assert request is None or x.recompute == recompute_in(request, layers)


SMALL = {"model": "llama-2-7b", "gpu": "rtx4090", "gpus": 8, "recompute": "full", "micro_batch": 1}


@pytest.mark.parametrize(
    ("given_options", "acts"),
    [
        ({"zero": 3}, lambda x: x.dp * x.cp > 1),
        ({"zero": 1, "stack": "megatron-core"}, lambda x: x.dp * x.cp > 1),
        ({"schedule": "1f1b", "stack": "megatron-core"}, lambda x: x.pp > 1),
        ({"shard_group": 8}, lambda x: x.zero >= 1),
        # nothing else is possible: an answer, which says that nothing is sharded
        ({"zero": 3, "tp": 8}, lambda x: x.shard_group == 1),
        ({"zero": 1, "dp": 1, "stack": "megatron-core"}, lambda x: x.shard_group == x.cp),
    ],
)
def test_what_is_asked_for_acts(
    given_options: dict[str, Any], acts: Callable[[Layout], bool]
) -> None:
    for plan in resolve(read_options({**SMALL, **given_options})).plans:
        estimates = search(plan).estimates
        assert estimates is None or all(map(acts, table_layouts(estimates.table)))
    answer = answer_of(resolve(read_options({**SMALL, **given_options})))
    assert answer is not None
    assert acts(answer.chosen.table.layout(answer.row))


def test_a_schedule_that_no_usual_stack_runs_is_refused_and_not_ignored() -> None:
    with pytest.raises(PlanError, match="Megatron-Core does not have --schedule zb-h1"):
        resolve(read_options({**SMALL, "schedule": "zb-h1"}))


def test_a_value_the_search_would_not_try_is_kept_when_asked_for() -> None:
    request = LayoutRequest(tp=2, schedule="gpipe", recompute="block:3", sequence_parallel=False)
    plan = plans.plan(request=request)
    supports = plan.stack.supports.model_copy(update={"schedules": ("1f1b", "gpipe")})
    stack = plan.stack.model_copy(update={"supports": supports})
    searched = search(plan.model_copy(update={"stack": stack}))
    assert searched.estimates is not None
    assert {
        (x.tp, x.schedule, x.recompute, x.sequence_parallel)
        for x in table_layouts(searched.estimates.table)
    } == {(2, "gpipe", "block:3", False), (2, "gpipe", "full", False)}  # full: stages of two layers


def test_an_impossible_request_finds_nothing_and_says_why() -> None:
    # three stages of eight layers, none of which may differ
    request = LayoutRequest(pp=3, uneven_stages=False)
    searched = search(plans.plan(gpus=6, global_batch=60, request=request))
    assert searched.estimates is None
    assert set(searched.rejected) == {"layers fill the stages"}
    assert searched.enumerated == sum(searched.rejected.values()) > 0
    assert (
        search(plans.plan(request=LayoutRequest(tp=3))).estimates is None
    )  # no third of eight GPUs


@given(st.integers(1, 100_000))
def test_divisors(number: int) -> None:
    assert divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_pareto_front_by_definition(points: list[tuple[int, int]]) -> None:
    seconds, peak = (np.array([p[i] for p in points], dtype=float) for i in (0, 1))
    front = [points[row] for row in pareto(seconds, peak)]
    beaten = {
        a for a, b in itertools.product(points, points) if b != a and b[0] <= a[0] and b[1] <= a[1]
    }  # another is at least as good in both, better in one
    assert front == sorted(set(points) - beaten)  # fastest first, equals once


def test_best_ranked_and_smallest() -> None:
    # a model of about 10e9 parameters: some layouts fit eight GPUs, some do not; whatever room they
    # leave (tests/test_fit_chance.py has the rest)
    p = plans.plan(
        plans.model(layers=32, hidden=5120, heads=40, kv_heads=40, head_dim=128, ffn_hidden=13824),
        seq_len=4096,
    )
    p = p.model_copy(update={"request": LayoutRequest(headroom=0.0)})
    estimates = search(p).estimates
    assert estimates is not None
    seconds, needed, usable = (
        estimates.time.seconds,
        estimates.memory.device,
        float(p.cluster.gpu.usable_memory),
    )
    assert estimates.fits.tolist() == (needed <= usable).tolist()
    assert 0 < estimates.fits.sum() < len(estimates.table)
    order = sorted((float(s), row) for row, s in enumerate(seconds) if estimates.fits[row])
    repeated = estimates.time.components["recompute"]
    tied = [(float(repeated[row]), s, row) for s, row in order if s <= order[0][0] * (1 + TIE)]
    assert best(estimates) == min(tied)[2]
    assert ranked(estimates, 10)[0] == best(estimates)
    assert needed[smallest(estimates)] == needed.min()
    piped = estimates.table.pp > 1
    row = best(estimates, piped)
    assert row is not None
    assert seconds[row] <= (1 + TIE) * min(
        s for s, marked, fits in zip(seconds, piped, estimates.fits, strict=True) if marked and fits
    )
    assert best(estimates, np.zeros(len(estimates.table), dtype=bool)) is None
    assert needed[smallest(estimates, piped)] == needed[piped].min()


@pytest.mark.parametrize("software", ["megatron-core", "torchtitan", "deepspeed", "pytorch-fsdp"])
def test_families_are_disjoint(software: str) -> None:
    table = layouts(plans.plan(plans.expert_model(), gpus=16, software=software, seq_len=32768))
    families = family_rows(table)
    assert tuple(families) == (
        "DDP",
        "ZeRO-1",
        "ZeRO-2",
        "ZeRO-3 / FSDP",
        "hybrid shard",
        "TP x PP x DP, ZeRO-1",
    )
    assert sum(column.astype(int) for column in families.values()).max() == 1
    alone = (table.tp * table.pp * table.cp * table.ep) == 1
    covered = np.any(list(families.values()), axis=0)
    assert covered[alone].all()  # whatever is only data parallel has a family


@pytest.mark.parametrize(
    ("chosen", "family"),
    [
        ({}, "DDP"),
        ({"zero": 1}, "ZeRO-1"),
        ({"zero": 2}, "ZeRO-2"),
        ({"zero": 3}, "ZeRO-3 / FSDP"),
        ({"zero": 3, "shard_group": 4}, "hybrid shard"),
        ({"tp": 2, "zero": 1}, "TP x PP x DP, ZeRO-1"),
        ({"pp": 2}, "TP x PP x DP, ZeRO-1"),
        ({"tp": 2, "zero": 3}, None),
    ],
)
def test_family_of_a_layout(chosen: dict[str, Any], family: str | None) -> None:
    families = family_rows(plans.rows(8, chosen))
    assert [name for name, rows in families.items() if rows[0]] == ([family] if family else [])


def test_short_sequences_are_shared_out_within_a_node() -> None:
    """264 sequences of 512 tokens leave 4 of 96 GPUs each: as ranks of context parallelism they
    send less than as tensor-parallel ranks, and a micro-batch keeps their kernels long."""
    given = {"model": "bert-large", "gpu": "a100", "gpus": 96, "stack": "megatron-core"}
    free, tensor = (
        api.estimate(api.read_options({**given, **more}), brief=True) for more in ({}, {"cp": 1})
    )
    assert free.layout.cp > 1
    assert free.step.seconds < tensor.step.seconds
    assert any("more than 8 ranks (--cp)" in text for text in free.search.not_searched)
