"""Conditions on layouts, the order of a list, placement: hand-worked cases and definitions."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.estimate import communicate, evaluate
from planner.estimate.ties import TIE
from planner.formulas import run_level
from planner.inputs.scenario import resolve
from planner.report import search as search_report
from planner.search import Candidates, Found, Wanted, best, layouts, order, search
from planner.search.choose import choice
from planner.specs.base import PlanError
from planner.specs.cluster import Tiers
from planner.specs.layout import Layout, LayoutRequest
from planner.specs.plan import Plan
from planner.specs.where import constraint


def satisfied(text: str, x: Layout, batch: int) -> bool:
    """Whether a layout satisfies a condition, by Python's own comparison of its fields."""
    name, operator, value = text.split(" ", 2)
    have: Any = batch // (x.dp * x.micro_batch) if name == "grad_accum" else getattr(x, name)
    if name in ("recompute", "schedule", "offload", "placement", "sequence_parallel"):
        words = value.split(",")
        if name == "sequence_parallel":
            have = "yes" if have else "no"
        same = have in words or (name == "recompute" and have.partition(":")[0] in words)
        return same if operator == "=" else not same
    numbers = [int(part) for part in value.split(",")]
    if operator in ("=", "!="):
        return (have in numbers) == (operator == "=")
    return bool(
        {
            "<": have < numbers[0],
            "<=": have <= numbers[0],
            ">": have > numbers[0],
            ">=": have >= numbers[0],
        }[operator]
    )


CONDITIONS = (
    "tp <= 2",
    "tp != 4",
    "pp > 1",
    "pp = 1,4",
    "dp >= 2",
    "vpp < 2",
    "cp = 1",
    "zero = 1",
    "micro_batch <= 2",
    "grad_accum > 4",
    "recompute = none",
    "recompute != full,group",
    "recompute = block,none",
    "recompute = block:2",
    "schedule != 1f1b",
    "sequence_parallel = yes",
    "sequence_parallel != yes",
    "placement = tp-cp-pp-dp",
    "shard_group >= 4",
    "ep < 2",
    "offload = none",
)


EVERYTHING = plans.plan(gpus=16, gpus_per_node=4, global_batch=32)


def conditioned(text: str) -> Plan:
    return EVERYTHING.model_copy(update={"request": LayoutRequest(where=(text,))})


@cache
def searched(text: str) -> tuple[Found, frozenset[Layout]]:
    """A search of all layouts with a condition, and these."""
    best = search(conditioned(text), wanted=Wanted(whole=True))
    if best.estimates is None:
        return best, frozenset()
    table = best.estimates.space.flat()
    return best, frozenset(table.layout(row) for row in range(len(table)))


EACH = "tp >= 1"  # which all layouts satisfy


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_leaves_what_satisfies_it(text: str) -> None:
    """Compared with a condition that all layouts satisfy: without any, a layout is left out where
    one that is never slower may not satisfy the condition."""
    batch = EVERYTHING.training.global_batch
    (whole, among), (result, got) = searched(EACH), searched(text)
    assert got == {x for x in among if satisfied(text, x, batch)}
    assert result.enumerated == whole.enumerated
    assert (
        result.rejected.get(f"where {text}", 0)
        + len(got)
        + sum(count for name, count in result.rejected.items() if not name.startswith("where"))
        == whole.enumerated
    )


def test_conditions_add_up_and_bind_what_estimate_picks() -> None:
    options = api.read_options(
        {
            "model": "llama-2-7b",
            "gpu": "a100",
            "gpus": 16,
            "where": ["tp >= 2", "tp<=4", "recompute = none", "pp in 1,2"],
        }
    )
    assert options.where == ("tp >= 2", "tp <= 4", "recompute = none", "pp = 1,2")
    layout = api.estimate(options).layout
    assert layout.tp in (2, 4)
    assert layout.pp in (1, 2)
    assert layout.recompute == "none"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tp", "must read NAME OPERATOR VALUE"),
        ("tpp = 2", "did you mean tp or pp"),
        ("tp = two", "compared with whole numbers"),
        ("tp < 2,4", "takes one value"),
        ("recompute < full", "compare it with = or !="),
        ("recompute = some", "none, selective, full, block, group, keep, modules, not some"),
        ("schedule = ", "not nothing"),
        ("tp = 2 or", "compared with whole numbers"),
        ("tp = 2 or headroom > 5%", "a condition by itself"),
        ("sequence_parallel = maybe", "is one of no, yes"),
    ],
)
def test_a_wrong_condition_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        constraint(text)
    with pytest.raises(PlanError, match="--where"):
        api.read_options({"model": "gpt2", "where": [text]})


def test_spellings_of_a_condition() -> None:
    assert constraint(" TP==8 ").text == "tp = 8"
    assert constraint("micro-batch in 1, 2").text == "micro_batch = 1,2"
    assert constraint("sequence-parallel = true").text == "sequence_parallel = yes"
    assert constraint("cp==1  or zero in 2,3").text == "cp = 1 or zero = 2,3"


def test_one_of_two_conditions_suffices() -> None:
    text = "tp = 4 or zero = 1"
    _, result = searched(text)
    assert result == {x for x in searched(EACH)[1] if x.tp == 4 or x.zero == 1}
    assert {x.tp == 4 for x in result} == {x.zero == 1 for x in result} == {True, False}
    values = {"model": "llama-2-7b", "gpu": "a100", "gpus": 16, "stack": "torchtitan"}
    values |= {"stack_defaults": True, "top": 9}
    listed = api.search_layouts(api.read_options({**values, "where": ["tp = 4 or zero = 3"]})).top
    assert listed
    assert all(entry.layout.tp == 4 or entry.layout.zero == 3 for entry in listed)


@pytest.mark.parametrize(
    "given",
    [
        {"model": "llama-3-8b", "gpu": "h100", "gpus": 32},
        {"model": "llama-3-8b", "gpu": "h100", "gpus": 16, "seq_len": 32768},
        {"model": "llama-2-7b", "gpu": "a100", "gpus": 16, "gpus_per_node": 4},
        {"model": "llama-2-13b", "gpu": "rtx4090", "gpus": 24},
    ],
    ids=str,
)
@pytest.mark.parametrize("stack", ["torchtitan", "megatron-core"])
def test_no_context_ranks_with_a_divisor_of_the_micro_batch_are_needed(
    given: dict[str, Any], stack: str
) -> None:
    """A search leaves out layouts whose cp and micro-batch have a common factor, as long as no
    condition needs them: the best of all is among the others."""
    options = api.read_options({**given, "stack": stack, "stack_defaults": True})
    (plan,) = resolve(options).plans
    request = plan.request.model_copy(update={"where": (EACH,)})
    fewer, every = search(plan), search(plan.model_copy(update={"request": request}))
    assert fewer.enumerated < every.enumerated
    assert fewer.estimates is not None
    assert every.estimates is not None
    best_of_fewer, best_of_all = choice(fewer.estimates).rank, choice(every.estimates).rank
    assert best_of_fewer[0] == best_of_all[0]
    assert best_of_fewer[1] <= best_of_all[1] * (1 + 1e-9)


values = st.lists(
    st.tuples(st.integers(100, 110), st.integers(0, 3), st.integers(1, 5), st.integers(0, 6)),
    max_size=25,
)


@given(values, st.integers(1, 8))
def test_every_place_is_the_first_of_what_is_left(
    rows: list[tuple[int, int, int, int]], count: int
) -> None:
    seconds, repeated, device, same = (
        np.array([row[i] for row in rows], dtype=float) for i in range(4)
    )
    got = order(
        Candidates(seconds, repeated, device, same, np.zeros(len(same))), count, "time"
    ).tolist()
    left = list(range(len(rows)))
    for place in got:
        fastest = min(rows[i][0] for i in left)
        tied = [i for i in left if rows[i][0] <= fastest * (1 + TIE)]
        least = min(rows[i][1] for i in tied)
        best = min((rows[i][0], rows[i][2]) for i in tied if rows[i][1] == least)
        assert (rows[place][1], rows[place][0], rows[place][2]) == (least, *best)
        left = [i for i in left if rows[i][3] != rows[place][3]]
    assert len(got) == count or not left


@given(values)
def test_by_memory_the_list_grows(rows: list[tuple[int, int, int, int]]) -> None:
    seconds, repeated, device, same = (
        np.array([row[i] for row in rows], dtype=float) for i in range(4)
    )
    got = order(
        Candidates(seconds, repeated, device, same, np.zeros(len(same))), 100, "memory"
    ).tolist()
    assert [rows[i][2] for i in got] == sorted(rows[i][2] for i in got)
    assert sorted(rows[i][3] for i in got) == sorted({row[3] for row in rows})
    assert all(rows[i][2] == min(row[2] for row in rows if row[3] == rows[i][3]) for i in got)


def numbered(p: int, tp: int, cp: int, dp: int, order_: str) -> dict[str, list[list[int]]]:
    """Ranks of every data-parallel and pipeline group, numbered by the order, innermost first."""
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": p}
    names = order_.split("-")
    values: dict[str, dict[tuple[int, ...], list[int]]] = {"data": {}, "pipeline": {}}
    for rank, at in enumerate(itertools.product(*(range(sizes[name]) for name in reversed(names)))):
        place = dict(zip(reversed(names), at, strict=True))
        values["data"].setdefault((place["tp"], place["pp"]), []).append(rank)
        values["pipeline"].setdefault((place["tp"], place["cp"], place["dp"]), []).append(rank)
    return {name: list(members.values()) for name, members in values.items()}


@pytest.mark.parametrize(
    ("p", "tp", "cp", "dp"),
    [(2, 2, 1, 8), (4, 2, 2, 4), (2, 4, 2, 2), (8, 1, 1, 4), (2, 1, 4, 8), (4, 8, 1, 2)],
)
@pytest.mark.parametrize("name", ["tp-cp-dp-pp", "tp-cp-pp-dp"])
def test_ranks_of_a_group_per_node_are_those_that_numbering_puts_there(
    p: int, tp: int, cp: int, dp: int, name: str
) -> None:
    domain = 8
    members = numbered(p, tp, cp, dp, name)["data"][0]
    per_node = max(
        sum(rank // domain == node for rank in members)
        for node in {rank // domain for rank in members}
    )
    tiers = Tiers(domain, np.inf)
    if name == "tp-cp-dp-pp":
        group = communicate.place(np.array([float(dp * cp)]), np.array([float(tp)]), tiers)
    else:
        inner, near, outer, far = (np.array([float(n)]) for n in (cp, tp, dp, tp * cp * p))
        group = communicate.place_twice(inner, near, outer, far, tiers)
    assert group.ranks[0] == len(members)
    assert group.ranks_per_node[0] == per_node


def test_stages_inside_a_node_send_faster_and_reduce_slower() -> None:
    p = plans.plan(gpus=32, gpus_per_node=8, global_batch=64)
    chosen: dict[str, Any] = {"tp": 2, "pp": 4, "zero": 1, "schedule": "1f1b"}
    near = evaluate(p, plans.rows(32, {**chosen, "placement": "tp-cp-pp-dp"}))
    far = evaluate(p, plans.rows(32, {**chosen, "placement": "tp-cp-dp-pp"}))
    assert (
        near.time.components["pipeline_transfer"][0] < far.time.components["pipeline_transfer"][0]
    )
    assert near.time.components["data_parallel"][0] > far.time.components["data_parallel"][0]
    assert near.memory.device[0] == far.memory.device[0]


def test_orders_are_searched_where_they_differ() -> None:
    table = layouts(plans.plan(gpus=16, gpus_per_node=4, global_batch=32))
    several = table.placement == 1
    assert several.any()
    assert (table.pp[several] > 1).all()
    assert (table.dp[several] > 1).all()
    assert not (layouts(plans.plan(gpus=4, gpus_per_node=4)).placement == 1).any()
    assert not (
        layouts(plans.plan(gpus=16, gpus_per_node=4, software="torchtitan")).placement == 1
    ).any()


def test_energy_is_an_order_of_its_own() -> None:
    """Idle GPUs draw less power: joules of a step lie between waiting and computing all the time,
    and decide the order."""
    plan = plans.plan(gpus=16, gpus_per_node=8)
    estimates = search(plan).estimates
    assert estimates is not None
    joules, seconds = estimates.joules, estimates.time.seconds
    limit = float(plan.cluster.gpu.power) * 16 * run_level.HOST_FACTOR * run_level.PUE
    assert (joules <= limit * run_level.POWER_FRAC * seconds * (1 + 1e-9)).all()
    assert (joules >= limit * run_level.WAIT_FRAC * seconds * (1 - 1e-9)).all()
    first = best(estimates, objective="energy")
    assert first is not None
    assert joules[first] <= joules[estimates.fits].min() * (1 + TIE)
    cost = search_report.per_token(*estimates.some([first])[0])
    assert cost.kwh_per_million_tokens == pytest.approx(
        1e6 * joules[first] / 3.6e6 / (plan.training.global_batch * plan.training.seq_len)
    )
