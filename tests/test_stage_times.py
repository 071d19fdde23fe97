"""Seconds of pipeline stages with several kinds of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import schedules
from planner.advise.changes import by_cost
from planner.estimate import Estimates, evaluate
from planner.estimate.pipeline import chunk_seconds
from planner.formulas.stages import Costs, _cheapest, contents
from planner.report.pace import pace
from planner.schedules import timing
from planner.schedules.base import total_s
from planner.specs.layers import timed_kinds
from planner.specs.layout import LayoutRequest
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

GPUS = 8
LIGHT, HEAVY = "attention + mlp", "attention + wide"


def mixed(*layers: str, **changes: Any) -> ModelSpec:
    """A decoder of light layers, and of heavy ones whose MLP is four times as wide."""
    fields = plans.keys(layers=len(layers)) | changes
    wide = {"type": "mlp", "name": "wide", "ffn_hidden": 4 * fields["ffn_hidden"]}
    used = [wide] if HEAVY in layers else []
    stack = [{"layers": list(layers)}]
    return ModelSpec.model_validate({**fields, "parts": used, "stack": stack})


def planned(*layers: str, **changes: Any) -> Plan:
    return plans.plan(mixed(*layers, **changes), gpus=GPUS, software="torchtitan")


def evaluated(plan: Plan, *chosen: dict[str, Any]) -> Estimates:
    """Without the time to issue operators, which layers share."""
    fast = replace(plans.numbers(plan), operator_launch=0.0)
    return evaluate(plan, plans.rows(GPUS, *chosen), numbers=fast)


def stages(plan: Plan, **chosen: Any) -> list[float]:
    """Seconds of the first, a middle and the last stage."""
    return [float(total_s(entry)[0]) for entry in evaluated(plan, chosen).time.ranks.work]


def test_each_stage_takes_what_its_own_layers_take() -> None:
    """Two light layers, then two heavy ones, on two stages: the first takes as long as the light
    model's, the last as the heavy model's."""
    light, heavy = planned(*[LIGHT] * 4), planned(*[HEAVY] * 4)
    first, _, last = stages(planned(LIGHT, LIGHT, HEAVY, HEAVY), pp=2)
    assert first == pytest.approx(stages(light, pp=2)[0], rel=1e-12)
    assert last == pytest.approx(stages(heavy, pp=2)[2], rel=1e-12)
    turned = stages(planned(HEAVY, HEAVY, LIGHT, LIGHT), pp=2)
    assert turned[0] == pytest.approx(stages(heavy, pp=2)[0], rel=1e-12)
    assert turned[2] == pytest.approx(stages(light, pp=2)[2], rel=1e-12)


def test_the_slowest_stage_is_found_wherever_it_is() -> None:
    """Eight layers on four stages: of the inner ones the third has the heavy layers."""
    layers = [LIGHT] * 4 + [HEAVY] * 2 + [LIGHT] * 2
    plan = planned(*layers)
    time = evaluated(plan, {"pp": 4}).time
    assert [float(n[0]) for n in time.ranks.number] == [0, 2, 3]
    middle = total_s(time.ranks.work[1])[0]
    assert time.ranks.slowest_s()[0] == middle > total_s(time.ranks.work[2])[0]
    micro = plan.training.global_batch / 2
    each = 2 * total_s(time.ranks.each.layer[1])[0]
    assert micro * each == pytest.approx(micro * middle, rel=1e-12)
    compute = sum(float(time.components[name][0]) for name in ("matmul", "attention"))
    alike = evaluated(planned(*[HEAVY] * 8), {"pp": 4}).time
    assert compute == pytest.approx(
        sum(float(alike.components[name][0]) for name in ("matmul", "attention"))
        - micro * float(alike.ranks.each.head.weight_gradient[0]) * 3,
        rel=1e-9,
    )


def test_a_dearer_layer_never_makes_a_step_faster() -> None:
    ways = [{"pp": pp, "recompute": kind} for pp in (1, 2, 4) for kind in ("none", "full")]
    before, issued = np.zeros(len(ways)), np.zeros(len(ways))
    for heavy in range(9):  # in an order that no stage is made of
        at = [0, 5, 2, 7, 4, 1, 6, 3][:heavy]
        plan = planned(*[HEAVY if i in at else LIGHT for i in range(8)])
        seconds = evaluated(plan, *ways).time.seconds
        assert np.all(seconds >= before * (1 - 1e-14))
        before = seconds
        # a heavy layer may hide the launches of a stage that does not have it: dealt out over all
        seconds = evaluate(plan, plans.rows(GPUS, *ways)).time.seconds
        assert np.all(seconds >= issued * (1 - 1e-5))
        issued = seconds


def test_the_bubble_of_unlike_stages_is_that_of_the_timed_schedule() -> None:
    plan = planned(*[LIGHT] * 6, *[HEAVY] * 4, *[LIGHT] * 6)
    for row in (
        {"pp": 4, "schedule": "1f1b"},
        {"pp": 4, "schedule": "gpipe"},
        {"pp": 4, "schedule": "zb-h1"},
        {"pp": 4, "vpp": 2, "schedule": "interleaved"},
    ):
        estimates = evaluate(plan, plans.rows(GPUS, row))
        layout, time = estimates.table.layout(0), estimates.time
        m = round(plan.training.global_batch / (layout.dp * layout.micro_batch))
        f, i, w = chunk_seconds(plan, time.ranks.each, layout.pp, layout.vpp)
        name, p, v = layout.schedule, layout.pp, layout.vpp
        lists = schedules.fitted_actions(name, p, m, v, f[:, 0], i[:, 0], w[:, 0], 0.0)
        timed = timing.timed(timing.compiled(lists), timing.Durations(f, i, w))
        taken = float((timed.span if schedules.free_running(name) else timed.makespan)[0])
        text = m * float(time.ranks.slowest_s()[0]) + float(time.components["bubble"][0])
        assert text == pytest.approx(taken, rel=0.03), row


def test_launches_of_all_layers_are_hidden_together() -> None:
    """The CPU runs ahead: a kind that keeps the GPU long hides the launches of another, and no kind
    is faster than its work."""
    plan = planned(*[LIGHT, HEAVY] * 4)
    slow = replace(plans.numbers(plan), operator_launch=3e-5)
    table = plans.rows(GPUS, {})
    time, free = evaluate(plan, table, numbers=slow).time, evaluated(plan, {}).time
    alone = sum(
        evaluate(planned(*[kind] * 8), table, numbers=slow).time.components["launch"][0] / 2
        for kind in (LIGHT, HEAVY)
    )
    assert 0 < time.components["launch"][0] < alone
    for option, least in zip(time.ranks.each.layer, free.ranks.each.layer, strict=True):
        assert total_s(option)[0] >= total_s(least)[0] * (1 - 1e-12)


def test_layers_of_one_kind_have_one_cost_whatever_they_are_called() -> None:
    twice = {"type": "mlp", "name": "other", "ffn_hidden": plans.keys()["ffn_hidden"]}
    fields = plans.keys(layers=4)
    named = ModelSpec.model_validate(
        {
            **fields,
            "parts": [twice],
            "stack": [{"layers": ["attention + mlp", "attention + other"]}],
        }
    )
    assert len(timed_kinds(named).kinds) == 1
    assert timed_kinds(mixed(LIGHT, HEAVY, LIGHT)).counts == (2, 1)
    first, other = (
        evaluate(plans.plan(shape), plans.rows(8, {"pp": 2}, {"tp": 2}, {"recompute": "full"})).time
        for shape in (named, plans.model(layers=4))
    )
    assert first.seconds == pytest.approx(other.seconds, rel=1e-12)


def test_unlike_layers_are_dealt_out_by_what_they_cost() -> None:
    """Eight layers on two stages, the last two four times as wide: with --uneven-stages, or if they
    do not divide, the slowest stage is as fast as possible; else the stack balances layer counts.
    """
    layers = [*[LIGHT] * 6, *[HEAVY] * 2]

    def chunks(pp: int, *layers: str, **request: Any) -> list[float]:
        plan = plans.plan(
            mixed(*layers, vocab=128),
            gpus=GPUS,
            software="megatron-core",
            request=LayoutRequest(**request),
        )
        return contents(plan, pp, 1).layers.reshape(-1).tolist()

    assert chunks(2, *layers) == [4, 4]
    assert chunks(2, *layers, uneven_stages=True) == [6, 2]
    assert chunks(2, LIGHT, *layers) == [6, 3]
    assert chunks(2, *[LIGHT] * 8, uneven_stages=True) == [4, 4]
    assert chunks(2, *[LIGHT] * 9) == [5, 4]


@given(st.lists(st.integers(1, 6), min_size=2, max_size=9), st.integers(2, 5), st.integers(0, 8))
def test_no_other_way_makes_the_dearest_chunk_cheaper(
    costs: list[int], chunks: int, end: int
) -> None:
    """But by what is not worth stating."""
    layers = len(costs)
    if chunks > layers:
        return
    usual = np.array([layers // chunks + (i < layers % chunks) for i in range(chunks)], float)

    def dearest(ends: Sequence[int]) -> float:
        spent = [sum(costs[a:b]) for a, b in pairwise([0, *ends])]
        return spent[-1] + end if len(spent) == 1 else max(*spent[:-1], spent[-1] + end)

    dealt = _cheapest(Costs(tuple(map(float, costs)), float(end)), usual)
    assert sum(dealt) == layers
    assert min(dealt[:-1]) >= 1
    every = combinations(range(1, layers + 1), chunks - 1)
    least = min(dearest([*cuts, layers]) for cuts in every)
    assert dearest([int(n) for n in np.cumsum(dealt)]) <= 1.011 * least


def test_advice_tells_what_dealing_out_by_cost_is_worth() -> None:
    unlike = mixed(*[LIGHT] * 6, *[HEAVY] * 2, vocab=128)
    plan = plans.plan(unlike, gpus=GPUS, software="megatron-core")
    (change,) = by_cost(plan, plans.layout(GPUS, pp=2))
    assert change.update == {"uneven_stages": True}
    assert "Et*6|ttL" in change.text
    assert by_cost(plan, plans.layout(GPUS)) == []
    assert by_cost(plans.plan(mixed(*[LIGHT] * 8), gpus=GPUS), plans.layout(GPUS, pp=2)) == []


def test_a_report_says_which_stage_is_the_slowest_and_why() -> None:
    plan = planned(*[LIGHT] * 4, *[HEAVY] * 2, *[LIGHT] * 2)
    first = evaluated(plan, {"pp": 4})
    result = pace(first)
    assert int(result.seconds.argmax()) == 2
    assert result.above_frac > 0
    assert result.seconds[2] == pytest.approx(first.time.ranks.slowest_s()[0], rel=1e-12)
    assert result.slowest is not None
    assert result.slowest.startswith("stage 2 is the slowest")
    assert "it has 2 layers of attention + wide (" in result.slowest
    assert pace(evaluate(plan, plans.rows(GPUS, {}))).slowest is None
