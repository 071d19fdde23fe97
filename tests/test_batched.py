"""Many requests together: the same answers as one by one, whatever they share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.inputs.scenario import resolve
from planner.ledger import total
from planner.search import alike, allowed_layouts, batched, layouts, search
from planner.search.answer import answer_of
from planner.search.choose import choice
from planner.specs.base import PlanError
from planner.specs.document import plain
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.verbs import requests as points

SMALL = {"model": "gpt2", "gpu": "a100", "seq_len": 512}
PLAIN = {"stack_defaults": True}  # kernels are not searched, which takes most of the time


def options(**chosen: object) -> Options:
    return api.read_options({**SMALL, **chosen})


def one_by_one(options: Options) -> tuple[bool, float, object, str] | None:
    answer = answer_of(resolve(options))
    if answer is None:
        return None
    e = answer.chosen
    return (
        answer.fits,
        float(e.time.seconds[answer.row]),
        e.table.layout(answer.row),
        e.plan.stack.id,
    )


REQUESTS = (
    {"gpus": 4, "global_batch": 32, "stack": "megatron-core"},
    {"gpus": 8, "global_batch": 32, "stack": "megatron-core"},
    {"gpus": 8, "global_batch": 96, "stack": "megatron-core", **PLAIN},
    {"gpus": 16, "global_batch": 64, "stack": "pytorch-fsdp"},
    {"gpus": 16, "global_batch": 64, "tp": 2, "zero": 1, **PLAIN},
    {"gpus": 8, "gpu": "rtx4090", "global_batch": 32, "price": 3.0, **PLAIN},
    {"gpus": 8, "gpu": "rtx4090", "global_batch": 32},
    {
        "gpus": 1,
        "model": "llama-2-7b",
        "global_batch": 4,
        "gpu": "rtx4090",
        **PLAIN,
    },  # does not fit
    {
        "gpus": 3,
        "global_batch": 32,
        "gpus_per_node": 3,
        "stack": "pytorch-ddp",
    },  # no layout: 3 does not divide 32
    {"gpus": 8, "model": "deepseek-v2-lite", "global_batch": 16, "stack": "megatron-core", **PLAIN},
    {"gpus": 16, "global_batch": 64, "jitter": "0.5%", "slow_hosts": "1%", **PLAIN},
    {"gpus": 8, "global_batch": 64, "jitter": "0.5%", "slow_hosts": "1%", **PLAIN},
    {"gpus": 16, "global_batch": 64, "length_mean": 200, "packing": "packed", **PLAIN},
    {
        "gpus": 16,
        "global_batch": 64,
        "other_gpu": "v100",
        "other_share": "50%",
        "precision": "fp16",
        "split": "proportional",
        **PLAIN,
    },
    {"gpus": 8, "global_batch": 64, "data_storage": "nfs", **PLAIN},
    {"gpus": 8, "global_batch": 32, "gpu": "h100", "offload": "optimizer-nvme", "zero": 3, **PLAIN},
)


def test_together_as_one_by_one() -> None:
    items = [options(**request) for request in REQUESTS]
    together = batched.choose([resolve(entry).plans for entry in items])
    for request, value in zip(items, together, strict=True):
        alone = one_by_one(request)
        assert not isinstance(value, PlanError)
        if alone is None:
            assert value is None, request
            continue
        assert value is not None, request
        e = value.estimates
        assert (value.fits, e.table.layout(0), e.plan.stack.id) == (alone[0], alone[2], alone[3]), (
            request
        )
        assert float(e.time.seconds[0]) == pytest.approx(alone[1], rel=1e-12)
        assert bool(e.fits[0]) == value.fits


@settings(max_examples=4, deadline=None)
@given(order=st.permutations(range(len(REQUESTS))))
def test_answers_do_not_depend_on_the_others(order: list[int]) -> None:
    items = [options(**REQUESTS[i]) for i in order[:4]]
    together = points.answer(items, reasons=False)
    alone = [points.answer([entry], reasons=False)[0] for entry in items]
    for a, b in zip(together, alone, strict=True):
        assert a.refused == b.refused
        if a.report is not None and b.report is not None:
            assert a.report.layout == b.report.layout
            assert a.report.step.seconds == pytest.approx(b.report.step.seconds, rel=1e-12)
            assert a.report.cluster == b.report.cluster


# ------------------------------------------------------------------- layouts of several plans


def plan_of(**value: Any) -> Plan:
    return resolve(api.read_options({"gpu": "a100", "stack": "megatron-core", **value})).plans[0]


PLANS = st.builds(
    plan_of,
    model=st.sampled_from(("gpt2", "gpt3-2.7b", "llama-2-7b", "deepseek-v2-lite")),
    gpus=st.sampled_from((2, 8, 24, 64)),
    stack=st.sampled_from(("megatron-core", "pytorch-fsdp", "torchtitan", "pytorch-ddp")),
    gpu=st.sampled_from(("a100", "rtx4090")),
    seq_len=st.sampled_from((512, 1024)),
    uneven_stages=st.booleans(),
)


def with_batch(plan: Plan, batch: int) -> Plan:
    training = plan.training.model_copy(update={"global_batch": batch})
    return plan.model_copy(update={"training": training})


@settings(max_examples=15, deadline=None)
@given(
    plan=PLANS,
    batches=st.lists(
        st.sampled_from((7, 8, 24, 48, 96, 100, 384)), min_size=1, max_size=4, unique=True
    ),
)
def test_layouts_of_several_batches_are_those_of_each(plan: Plan, batches: list[int]) -> None:
    """Also in the same order, which decides ties."""
    plans = {
        key: with_batch(plan, key.batch)
        for key in (alike.Key("", "", batch) for batch in sorted(batches))
    }
    result = alike.enumerated(plans)
    some = [entry for entry in result.values() if isinstance(entry, alike.Allowed) and entry.count]
    assert len(some) == sum(allowed_layouts(plan).count > 0 for plan in plans.values())
    if not some:
        return
    space, owner = alike.one_space(some)
    table = space.flat().named()
    of_layout = owner[space.row]
    for number, item in enumerate(some):
        alone = allowed_layouts(item.plan).flat().named()
        mine = {name: column[of_layout == number] for name, column in table.items()}
        assert (mine.pop("global_batch") == item.plan.training.global_batch).all()
        assert mine.keys() == alone.keys()
        assert all(np.array_equal(mine[name], alone[name]) for name in alone)


_LARGE, _ALONE = {"planner.estimate._SMALL": 0}, {"BLOCK": 1}  # ways of the estimate and of a batch


@pytest.mark.parametrize(
    ("given_options", "changed"),
    [
        ({"model": "gpt2"}, {}),
        ({"model": "llama-2-7b", "gpu": "rtx4090"}, _LARGE),
        ({"model": "gpt3-2.7b", "where": ["recompute != none"]}, _ALONE),
        ({"model": "gpt3-2.7b", "where": ["recompute != none"]}, {}),
        (
            {"model": "gpt3-2.7b", "gpu": "rtx4090", "search_offload": True, "stack": "deepspeed"},
            _LARGE | _ALONE,
        ),
    ],
)
def test_the_layout_is_that_of_a_search(
    given_options: dict[str, Any], changed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changed.items():
        monkeypatch.setattr(name if "." in name else f"planner.search.alike.{name}", value)
    plans = [
        plan_of(seq_len=1024, gpus=gpus, global_batch=batch, stack_defaults=True, **given_options)
        for gpus in (2, 16)
        for batch in (16, 48, 64)
    ]
    for plan, match in zip(plans, batched.choose([[plan] for plan in plans]), strict=True):
        alone = search(plan).estimates
        assert alone is not None
        assert isinstance(match, batched.Chosen)
        taken = choice(alone)
        assert (match.fits, match.layouts) == (taken.fits, allowed_layouts(plan).count)
        assert match.estimates.table.layout(0) == alone.rows(np.array([taken.row])).layout(0)
        assert match.estimates.plan.training.global_batch == plan.training.global_batch


def test_what_is_too_much_for_one_batch_is_said_of_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = [plan_of(model="gpt2", gpus=8, global_batch=batch) for batch in (8, 384)]
    few, lots = (len(layouts(plan)) for plan in plans)
    monkeypatch.setattr("planner.search.MOST_LAYOUTS", (few + lots) // 2 - 1)
    first, other = batched.choose([[plan] for plan in plans])
    assert isinstance(first, batched.Chosen)
    assert isinstance(other, PlanError)
    assert "are possible" in str(other)


# -------------------------------------------------------------------------------------- requests


def near(a: Any, b: Any) -> bool:
    """Equal up to rounding, part by part; a component without seconds may be left out."""
    if isinstance(a, dict):
        return all(near(a.get(key, 0.0), b.get(key, 0.0)) for key in {**a, **b})
    if isinstance(a, list):
        return len(a) == len(b) and all(map(near, a, b))
    return (
        bool(a == pytest.approx(b, rel=1e-9, abs=1e-15)) if isinstance(a, float) else bool(a == b)
    )


def test_a_point_is_the_estimate() -> None:
    request = options(gpus=8, global_batch=64, tokens="10B")
    point, full = points.answer([request])[0], api.estimate(request)
    assert point.command == full.command
    figures, whole = plain(point.report), plain(full)
    del figures["step"]["exposed"]  # a report has the calls that make it up
    for part in ("step", "run", "cluster", "throughput", "layout", "memory"):
        for key, value in figures[part].items():
            assert near(value, whole[part][key]), (part, key)


def test_wrong_requests_leave_the_others_answered() -> None:
    document = points.answer(
        [
            options(gpus=8, global_batch=8, tp=5),
            options(gpus=8, global_batch=8),
            options(gpus=8, gpu="nothing"),
        ]
    )
    assert [p.report is None for p in document] == [True, False, True]
    assert "--tp" in (document[0].refused or "")
    assert "nothing" in (document[2].refused or "")


def test_processes_give_the_same_answers_in_the_same_order() -> None:
    items = [
        options(gpus=8, global_batch=64, stack="pytorch-ddp", precision=p, **PLAIN)
        for p in ("bf16", "fp16", "tf32", "fp32")
    ]
    items = [
        entry.changed(seq_len=s) for s in (128, 256, 512) for entry in items for _ in range(3)
    ]  # more than a unit
    seen: list[int] = []
    two = points.answer(items, jobs=2, progress=lambda done, whole: seen.append(done))
    assert two == points.answer(items)
    assert seen == sorted(seen)
    assert seen[-1] == len(items)


def test_exposed_seconds_are_the_components_that_are_communication() -> None:
    from planner.report.bottleneck import exposed_s

    point = batched.choose(
        [resolve(options(gpus=16, global_batch=64, tp=2, pp=2, micro_batch=1, zero=1)).plans]
    )[0]
    assert isinstance(point, batched.Chosen)
    time = point.estimates.time
    exposed = exposed_s(time)
    parts = ("tensor_parallel", "data_parallel", "pipeline_transfer")
    assert float(total(exposed)[0]) == pytest.approx(
        float(sum(time.components[name][0] for name in parts))
    )
    assert float(exposed["network"][0]) > 0
    assert float(exposed["intra-node link"][0]) > 0
