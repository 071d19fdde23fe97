"""Hidden and exposed communication, and the cost of sharing the chip."""

from __future__ import annotations

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate import evaluate
from planner.formulas.overlap import bucketed_exposed_s, prefetched_exposed_s, straggler_factor
from planner.ledger import total
from planner.specs.model import ModelSpec

SECONDS = st.floats(0, 1e4)
SLOWDOWN = st.floats(0, 0.5)


@pytest.mark.parametrize(
    ("communication", "exposed"),
    [
        (0, 0.0),
        (4, 0.8),  # hidden, but compute beside it runs 20 % slower: 0.2 * 4
        (11, 2.0),  # longer than compute, shorter than slowed compute: 10 + 0.2 * 10 - 10
        (15, 5.0),  # 15 - 10
    ],
)
def test_prefetching(communication: float, exposed: float) -> None:
    assert float(prefetched_exposed_s(10.0, communication, 0.2)) == pytest.approx(exposed)


@given(compute=SECONDS, communication=SECONDS, slowdown=SLOWDOWN)
def test_prefetching_lies_between_perfect_overlap_and_none(
    compute: float, communication: float, slowdown: float
) -> None:
    together = compute + float(prefetched_exposed_s(compute, communication, slowdown))
    assert (
        max(compute, communication) * (1 - 1e-12)
        <= together
        <= (compute + communication) * (1 + 1e-12)
    )
    if slowdown == 0:
        assert together == pytest.approx(max(compute, communication))


@pytest.mark.parametrize(
    ("sync", "exposed"),
    [
        (4, 0.5 + 0.7),  # last bucket, and 20 % of the 3.5 s beside compute
        (10, 2.4 + 1.52),  # from 0.4 to 10.4, past the 8 s of backward; 20 % of 7.6 s beside it
        (0, 0.0),
    ],
)
def test_buckets(sync: float, exposed: float) -> None:
    assert float(bucketed_exposed_s(sync, 8.0, 0.4, 0.5, 0.2)) == pytest.approx(exposed)


@given(
    sync=SECONDS, window=SECONDS, first=st.floats(0, 1), bucket=st.floats(0, 1), slowdown=SLOWDOWN
)
def test_a_longer_backward_pass_hides_more(
    sync: float, window: float, first: float, bucket: float, slowdown: float
) -> None:
    exposed = float(bucketed_exposed_s(sync, window, first, bucket, slowdown))
    assert 0 <= exposed <= sync * (1 + 1e-12)  # no second of the network counts twice
    # step time, window included, never falls when the window grows, and no exposed second returns
    longer = window + 1 + float(bucketed_exposed_s(sync, window + 1, first, bucket, slowdown))
    assert longer >= (window + exposed) * (1 - 1e-12)
    assert float(bucketed_exposed_s(sync, 0.0, first, bucket, slowdown)) == pytest.approx(sync)


def test_stragglers() -> None:
    # N = e^8: sqrt(2 * 8) = 4 sigma
    assert float(straggler_factor(np.exp(8.0), 0.01)) == pytest.approx(1.04)
    assert float(straggler_factor(1, 0.01)) == 1.0
    assert float(straggler_factor(2048, 0.0)) == 1.0


def test_the_slowest_of_many_agrees_with_drawing_them() -> None:
    # sqrt(2 ln N) bounds the expected maximum of N normal variables from above, loosely
    drawn = np.random.default_rng(1).normal(size=(400, 2048)).max(axis=1).mean()
    assert 0.8 < drawn / (float(straggler_factor(2048, 1.0)) - 1) <= 1.0


def test_without_prefetching_every_gather_and_reduction_is_waited_for() -> None:
    """A stack that does not prefetch: sharded communication adds its whole time, and the step is
    never shorter for it."""
    plan = plans.plan(software="pytorch-fsdp", gpus=16, global_batch=16)
    waits = plan.model_copy(
        update={
            "stack": plan.stack.model_copy(
                update={"overlap": plan.stack.overlap.model_copy(update={"prefetch": False})}
            )
        }
    )
    table = plans.rows(16, {"zero": 3})
    beside, alone = (evaluate(p, table).time for p in (plan, waits))
    assert alone.seconds[0] >= beside.seconds[0]
    whole = sum(t.seconds[0] for t in alone.traffic if t.group == "data")
    assert alone.components["data_parallel"][0] >= whole * (1 - 1e-9)


@pytest.mark.parametrize(
    ("software", "shape", "layouts"),
    [
        (
            "nemo",
            plans.expert_model(),
            [
                {"tp": 2, "sequence_parallel": True},
                {"cp": 2},
                {"ep": 4},
                {"zero": 1},
                {"pp": 2, "vpp": 2, "schedule": "interleaved"},
            ],
        ),
        ("torchtitan", plans.model(), [{"zero": 3}, {"zero": 2}]),
    ],
)
def test_where_nothing_overlaps_nothing_is_hidden(
    software: str, shape: ModelSpec, layouts: list[dict[str, object]]
) -> None:
    """Every kind of communication: with overlap each hides a part, without none does."""
    rows = plans.rows(8, *layouts)

    def hidden(overlap: bool | None) -> np.ndarray:
        plan = plans.plan(shape, gpu="h100-sxm5-80gb", software=software, overlap=overlap)
        return np.asarray(total(evaluate(plan, rows).time.hidden))

    assert (hidden(None) > 0).all()
    assert hidden(False) == pytest.approx(0.0, abs=1e-12)


def test_tokens_go_to_experts_once_for_all_tensor_parallel_ranks() -> None:
    """Under sequence parallelism each of tp ranks holds 1/tp of the tokens and sends those: over
    the same links the exchange moves 1/tp of what ranks with all tokens send."""
    plan = plans.plan(plans.expert_model(), gpus=8)
    rows = plans.rows(
        8,
        {"tp": 2, "ep": 4, "sequence_parallel": True},
        {"tp": 2, "ep": 4, "sequence_parallel": False},
    )
    traffic = evaluate(plan, rows).time.traffic
    (sent,) = (entry for entry in traffic if entry.operation == "all_to_all")
    assert sent.bytes[0] == pytest.approx(sent.bytes[1] / 2)
