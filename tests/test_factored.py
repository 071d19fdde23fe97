"""Factored columns against plain ones: every operation on distinct combinations must be the
operation on every layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st
from part_models import model_of

from planner import schedules
from planner.estimate import outline
from planner.estimate.factored import Space, column, evaluate
from planner.estimate.memory import needed
from planner.estimate.step import step_time
from planner.formulas.optimizers import OPTIMIZERS
from planner.ledger import rowwise
from planner.schedules.base import Work
from planner.search import allowed_layouts, search
from planner.specs.columns import COLUMNS, Columns
from planner.specs.layout import LayoutRequest
from planner.specs.plan import Plan


def space(rows: list[tuple[int, int, int]], options: list[int], seed: int) -> Space:
    """Rows of tp, pp, dp and options of the size of recompute; which go together is drawn."""
    draw = np.random.default_rng(seed)
    outer = {name: np.ones(len(rows)) for name in COLUMNS if name != "recompute_size"}
    outer |= dict(zip(("tp", "pp", "dp"), np.array(rows, dtype=float).T, strict=True))
    inner = {"recompute_size": np.array(options, dtype=float)}
    patterns = draw.random((3, len(options))) < 0.6
    return Space.of(outer, inner, patterns, draw.integers(0, 3, len(rows)))


def compute(c: Columns) -> Any:
    """A bit of everything that formulas do."""
    first = np.where(c.tp > 1, c.tp * c.pp, c.pp - 0.5)
    mask = (c.recompute_size > 2) & ((c.pp == 2) | (c.dp < 2))
    chosen = np.select(
        [c.recompute_size == 1, c.recompute_size == 2],
        [first, c.dp + 1.0],
        0.0 * c.tp + c.recompute_size,
    )
    second = np.maximum(np.minimum(first, c.dp), chosen) + np.clip(
        c.recompute_size - c.dp, 0.0, 2.0
    )
    again = np.where(mask, second / (1.0 + c.tp), np.sqrt(first + chosen + 1.0)) * (mask + 1.0)
    loop = rowwise(
        lambda a, x: np.array([p * 10 + q for p, q in zip(a, x, strict=True)]),
        c.tp,
        c.recompute_size,
    )
    return (
        again
        + loop
        + np.isin(c.pp, [1, 3])
        + np.mod(c.dp, 2) * np.zeros_like(c.tp)
        + np.full_like(c.pp, 2.5)
    )


rows = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)),
    min_size=1,
    max_size=40,
    unique=True,
)


@given(
    rows,
    st.lists(st.integers(0, 4), min_size=1, max_size=6, unique=True),
    st.integers(0, 99),
    st.sampled_from([0, 5, 32768]),
)
def test_any_operation_equals_the_plain_one(
    rows: list[tuple[int, int, int]], options: list[int], seed: int, eager: int
) -> None:
    whole = space(rows, options, seed)
    if not whole.count:
        return
    usual = column.EAGER, evaluate.BLOCK
    try:  # whatever is computed at once and whatever is deferred
        column.EAGER, evaluate.BLOCK = eager, 7
        (only,) = whole.values(compute(whole.columns()))
    finally:
        column.EAGER, evaluate.BLOCK = usual
    flat = whole.flat()
    assert only.tolist() == pytest.approx(
        np.broadcast_to(compute(flat), whole.count).tolist(), rel=1e-14
    )


@given(rows, st.lists(st.integers(0, 4), min_size=1, max_size=6, unique=True), st.integers(0, 99))
def test_restriction_leaves_what_holds(
    rows: list[tuple[int, int, int]], options: list[int], seed: int
) -> None:
    whole = space(rows, options, seed)
    if not whole.count:
        return

    def rule(c: Columns) -> Any:
        return (c.recompute_size <= c.tp) | (c.pp == 2)

    left = whole.restricted(rule(whole.columns()))
    flat = whole.flat()
    kept = rule(flat)
    assert left.count == int(kept.sum())

    def set_of(table: Columns, among: Any) -> set[tuple[float, ...]]:
        columns = (table.tp, table.pp, table.dp, table.recompute_size)
        return set(zip(*(column[among].tolist() for column in columns), strict=True))

    assert set_of(left.flat(), np.ones(left.count, dtype=bool)) == set_of(flat, kept)


def test_a_column_is_no_array() -> None:
    columns = space([(1, 1, 1), (2, 1, 1)], [0, 1], 5).columns()
    with pytest.raises(TypeError, match="not an array"):
        np.asarray(columns.tp)
    with pytest.raises(TypeError, match="truth"):
        bool(columns.tp > 1)


def test_the_example_of_the_readme() -> None:
    """Twelve layouts: each intermediate column holds a value per distinct combination only."""
    outer = {name: np.ones(6) for name in COLUMNS if name != "recompute"}
    outer |= {"tp": np.repeat([1.0, 2.0], 3), "pp": np.tile([1.0, 2.0, 4.0], 2)}
    inner = {"recompute": np.array([0.0, 1.0])}
    twelve = Space.of(outer, inner, np.ones((1, 2), dtype=bool), np.zeros(6, dtype=int))

    def parts(c: Columns) -> list[Any]:
        matmul, layers, passes = 60 / c.tp, 8 / c.pp, np.where(c.recompute > 0, 4.0, 3.0)
        forward = matmul * layers
        return [matmul, layers, passes, forward, forward * passes]

    columns = parts(twelve.columns())
    assert [np.size(x) for x in columns] == [2, 3, 2, 6, 12]
    *_, step = twelve.values(*columns)
    assert step.tolist() == [1440, 1920, 720, 960, 360, 480, 720, 960, 360, 480, 180, 240]
    assert step.tolist() == parts(twelve.flat())[-1].tolist()


PLANS = {
    "dense": lambda: plans.plan(
        gpus=16, global_batch=48, request=LayoutRequest(uneven_stages=True)
    ),
    "experts": lambda: plans.plan(plans.expert_model(), gpus=16, seq_len=32768, global_batch=32),
    "simulated schedules": lambda: plans.plan(gpus=8, software="torchtitan", global_batch=32),
    "bidirectional": lambda: plans.plan(
        plans.expert_model(), gpus=8, software="hai-llm", global_batch=32
    ),
    "offload": lambda: plans.plan(
        gpus=8, software="pytorch-fsdp", request=LayoutRequest(search_offload=True)
    ),
    "kinds of layers": lambda: plans.plan(
        model_of("jamba"), gpus=8, software="torchtitan", global_batch=16
    ),
    "further tokens": lambda: plans.plan(
        model_of("nemotron_h").model_copy(update={"mtp": 1}),
        gpus=8,
        global_batch=16,
        request=LayoutRequest(uneven_stages=True),
    ),
    "placement": lambda: plans.plan(gpus=32, gpus_per_node=4, global_batch=64),
    "matrices": lambda: plans.plan(
        plans.expert_model(), gpus=8, software="torchtitan", global_batch=16, optimizer="muon"
    ),
    "pages": lambda: plans.plan(gpus=8, global_batch=16, optimizer="paged-adam8bit"),
    "islands": lambda: plans.in_islands(
        plans.plan(plans.expert_model(), gpus=32, gpus_per_node=4, global_batch=64), 2, 3.0
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_an_outline_equals_the_full_estimate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds, recompute, bytes of device and host of every layout: on distinct combinations as on
    plain columns, to 1e-12."""
    plan: Plan = PLANS[name]()
    monkeypatch.setattr("planner.estimate._SMALL", 0)
    estimates = search(plan).estimates
    assert estimates is not None
    fast = outline(plan, estimates.space)
    full = fast.full(np.arange(estimates.space.count))
    for first, other in (
        (fast.time.seconds, full.time.seconds),
        (fast.time.components["recompute"], full.time.components["recompute"]),
        (fast.memory.device, full.memory.device),
        (fast.memory.host, full.memory.host),
    ):
        np.testing.assert_allclose(first, other, rtol=1e-12)
    assert fast.fits.tolist() == full.fits.tolist()
    seconds = sum(
        np.broadcast_to(leaf, estimates.space.count) for leaf in full.time.components.values()
    )
    np.testing.assert_allclose(fast.time.seconds, seconds, rtol=1e-12)


def test_plug_ins_get_plain_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules and optimizers of one's own may loop over what they get, and branch on it."""
    called = set()

    def plain(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            arrays = [x for entry in given for x in (entry if isinstance(entry, Work) else [entry])]
            assert {type(x) for x in arrays} == {np.ndarray}
            assert {x.shape for x in arrays} == {(len(arrays[0]),)}
            called.add(name)
            return function(*given)

        return watched

    plan = plans.plan(gpus=8, software="torchtitan", global_batch=32, optimizer="shampoo")
    for name in ("1f1b", "interleaved", "zb-v"):
        module = schedules.BY_NAME[name]
        for key in ("allows", "idle_s", "live_chunks"):
            monkeypatch.setattr(module, key, plain(f"{name} {key}", getattr(module, key)))
    shampoo = OPTIMIZERS["shampoo"]
    assert shampoo.kept is not None
    assert shampoo.work is not None
    watched = replace(shampoo, kept=plain("kept", shampoo.kept), work=plain("work", shampoo.work))
    monkeypatch.setitem(OPTIMIZERS, "shampoo", watched)
    columns = allowed_layouts(plan).columns()
    step_time(plan, columns)
    needed(plan, columns)
    assert len(called) == 3 * 3 + 2
