"""Plans searched together: what the short cuts rest on, and that none of them changes an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.estimate.step import step_time
from planner.inputs.scenario import resolve
from planner.search import allowed_layouts, layouts, many, search, together
from planner.search.choose import best, smallest
from planner.specs.base import PlanError
from planner.specs.layout import RECOMPUTE_KINDS
from planner.specs.plan import Plan

MODELS = ("gpt2", "gpt3-2.7b", "llama-2-7b", "deepseek-v2-lite")


def plan_of(**asked: Any) -> Plan:
    return resolve(api.read_options({"gpu": "a100", "stack": "megatron-core", **asked})).plans[0]


PLANS = st.builds(
    plan_of,
    model=st.sampled_from(MODELS),
    gpus=st.sampled_from((2, 8, 24, 64)),
    global_batch=st.sampled_from((48, 96, 384)),
    stack=st.sampled_from(
        ("megatron-core", "pytorch-fsdp", "deepspeed", "torchtitan", "pytorch-ddp")
    ),
    gpu=st.sampled_from(("a100", "rtx4090", "h100")),
    seq_len=st.sampled_from((512, 1024)),
    uneven_stages=st.booleans(),
)


@settings(max_examples=25, deadline=None)
@given(plan=PLANS)
def test_repeating_work_hardly_ever_makes_a_step_faster(plan: Plan) -> None:
    """What lets all options of a row wait behind the one without recompute."""
    space = allowed_layouts(plan)
    if not space.count:
        return
    seconds = step_time(plan, space.flat()).seconds
    none = np.full(space.n, np.inf)
    without = space.inner["recompute"][space.option] == RECOMPUTE_KINDS.index("none")
    none[space.row[without]] = seconds[without]
    fastest = np.full(space.n, np.inf)
    np.minimum.at(fastest, space.row, seconds)
    assert (none * (1 - together.GAIN) <= fastest).all()
    assert np.mean(none > fastest * (1 + 1e-12)) < 0.02


def test_a_layout_that_recompute_makes_faster_is_found() -> None:
    """Sends over PCIe between 34 chunks: a chunk that repeats its work hides more of them."""
    plan = plan_of(
        model="gpt3-2.7b",
        gpu="rtx4090",
        gpus=32,
        global_batch=96,
        tp=2,
        pp=2,
        vpp=17,
        micro_batch=6,
        zero=1,
        sequence_parallel=False,
        seq_len=512,
    )
    found = search(plan).estimates
    assert found is not None
    without = found.table.recompute == RECOMPUTE_KINDS.index("none")
    assert found.time.seconds[~without].min() < 0.99 * found.time.seconds[without].min()
    (owner,) = owners_of(plan, (96,))
    row = best(found)
    assert row is not None
    assert together.best_of_each([owner])[0].table.layout(0) == found.table.layout(row)


def owners_of(plan: Plan, batches: tuple[int, ...]) -> list[together.Owner]:
    family = many._Family(plan)
    training = plan.training
    plans = [
        plan.model_copy(update={"training": training.model_copy(update={"global_batch": b})})
        for b in batches
    ]
    family.owners = {b: [together.Owner(p)] for b, p in zip(batches, plans, strict=True)}
    family.enumerate()
    return [family.owners[b][0] for b in batches]


@settings(max_examples=15, deadline=None)
@given(
    plan=PLANS,
    batches=st.lists(
        st.sampled_from((7, 8, 24, 48, 96, 100, 384)), min_size=1, max_size=4, unique=True
    ),
)
def test_layouts_of_several_batches_are_those_of_each(plan: Plan, batches: list[int]) -> None:
    for owner in owners_of(plan, tuple(batches)):
        alone = allowed_layouts(owner.plan)
        assert owner.count == alone.count
        if owner.count:
            ours, theirs = owner.alone().flat().named(), alone.flat().named()
            assert list(ours) == list(theirs)
            assert all(
                np.array_equal(ours[name], theirs[name]) for name in theirs
            )  # in the same order: it decides ties


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"_FACTORED": 3},  # times by factored columns
        {"_FIRST": 1, "_MORE": 2},
        {"_ROUNDS": 1, "_MANY": 1, "_FIRST": 1},  # searched one by one
    ],
)
@pytest.mark.parametrize(
    "asked",
    [
        {"model": "gpt2", "gpus": 8},
        {"model": "llama-2-7b", "gpus": 16, "gpu": "rtx4090"},
        {"model": "llama-2-7b", "gpus": 2, "gpu": "rtx4090"},  # nothing fits
        {"model": "gpt3-2.7b", "gpus": 8, "where": ["recompute != none"]},
        {
            "model": "gpt3-2.7b",
            "gpus": 8,
            "gpu": "rtx4090",
            "search_offload": True,
            "stack": "deepspeed",
        },
    ],
)
def test_the_layout_is_that_of_a_search(
    asked: dict[str, Any], changed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changed.items():
        monkeypatch.setattr(together, name, value)
    owners = [
        owner for owner in owners_of(plan_of(seq_len=1024, **asked), (16, 48, 64)) if owner.count
    ]
    assert owners
    for owner, found in zip(owners, together.best_of_each(owners), strict=True):
        alone = search(owner.plan).estimates
        assert alone is not None
        row = best(alone)
        assert found.fits == (row is not None)
        at = smallest(alone) if row is None else row
        assert found.table.layout(0) == alone.rows(np.array([at])).layout(0)
        assert found.rank == pytest.approx(
            (alone.time.seconds if found.fits else alone.memory.device)[at], rel=1e-12
        )
        assert float(found.table.global_batch[0]) == owner.plan.training.global_batch


def test_what_is_too_much_for_one_batch_is_said_of_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, lots = 7, 384
    count = {b: len(layouts(plan_of(model="gpt2", gpus=8, global_batch=b)).tp) for b in (few, lots)}
    monkeypatch.setattr("planner.search.MOST_LAYOUTS", (count[few] + count[lots]) // 2 - 1)
    one, other = owners_of(plan_of(model="gpt2", gpus=8), (few, lots))
    assert one.error is None
    assert isinstance(other.error, PlanError)
    assert "are possible" in str(other.error)
