"""Buckets of DDP: the assignment against torch's own, the order of gradients, and the timeline by
hand and in its limits."""

from __future__ import annotations

import numpy as np
import plans
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.estimate import evaluate
from planner.estimate.buckets import of_estimate, ready_s, timeline
from planner.estimate.gradients import (
    BUCKET_CAP_BYTES,
    FIRST_BUCKET_BYTES,
    assign,
    buckets_of,
    first_bytes,
    tensors,
)
from planner.estimate.machine import machine
from planner.formulas.overlap import bucket_ends_s, bucketed_exposed_s
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.inputs.model import model_spec
from planner.ledger import Sourced
from planner.specs.model import ModelSpec
from planner.verbs.strategies.base import with_overlap


def test_buckets_close_when_they_are_full() -> None:
    # first limit 10, then 25: 4 + 7 reaches 11; 20 + 6 reaches 26; one of 100 is a bucket by
    # itself; the rest is the last
    assert assign([4, 7, 20, 6, 100, 1, 2], 10, 25) == [[0, 1], [2, 3], [4], [5, 6]]
    assert assign([], 10, 25) == []


@given(
    sizes=st.lists(st.integers(1, 1000), max_size=60),
    first=st.integers(1, 500),
    cap=st.integers(1, 2000),
)
def test_every_gradient_is_in_one_bucket_and_none_starts_full(
    sizes: list[int], first: int, cap: int
) -> None:
    assigned = assign(sizes, first, cap)
    assert [i for bucket in assigned for i in bucket] == list(range(len(sizes)))
    for k, bucket in enumerate(assigned):
        limit = first if k == 0 else cap
        assert sum(sizes[i] for i in bucket[:-1]) < limit
        if k < len(assigned) - 1:
            assert sum(sizes[i] for i in bucket) >= limit


@given(
    sizes=st.lists(st.integers(1, 400_000), min_size=1, max_size=40),
    cap=st.sampled_from([100_000, 1_000_000]),
)
def test_assignment_equals_that_of_torch(sizes: list[int], cap: int) -> None:
    torch = pytest.importorskip("torch", reason="the oracle is torch, of the dev extra")
    parameters = [torch.empty(n, device="meta") for n in sizes]
    expected, _ = torch.distributed._compute_bucket_assignment_by_size(
        parameters, [FIRST_BUCKET_BYTES, cap]
    )
    assert assign([4 * n for n in sizes], FIRST_BUCKET_BYTES, cap) == [
        list(entry) for entry in expected
    ]


MODELS = (
    "gpt2",
    "llama-2-7b",
    "llama-3-8b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "gemma-2-9b",
    "falcon-180b",
)


@pytest.mark.parametrize("name", MODELS)
def test_tensors_are_all_parameters(name: str) -> None:
    model = model_spec(name)[0]
    listed = tensors(model)
    assert sum(entry.elements for entry in listed) == parameter_count(model)
    for layer in (0, model.layers - 1):
        assert sum(entry.work for entry in listed if entry.layer == layer) == pytest.approx(1)
    joint = tensors(model, True, True)
    assert sum(entry.elements for entry in joint) == parameter_count(model)
    assert len(joint) <= len(listed)


def test_gradients_are_ready_from_the_head_to_the_embedding() -> None:
    model = plans.model(layers=3)
    listed = tensors(model)
    ready = ready_s(listed, 3, 2.0, 1.0)
    assert (np.diff(ready) <= 0).all()
    assert ready[0] == pytest.approx(7.0)  # the embedding: three layers of 2 s after a head of 1 s
    assert ready[-1] == pytest.approx(1.0)
    first = [at for at, entry in zip(ready, listed, strict=True) if entry.layer == 2]
    assert min(first) > 1.0
    assert max(first) == pytest.approx(3.0)
    tied = plans.model(layers=3, tied_embeddings=True)
    assert ready_s(tensors(tied), 3, 2.0, 1.0)[0] == pytest.approx(7.0)


def test_a_timeline_by_hand() -> None:
    # ready at 1, 2, 6 s, 3 s each: 1-4, 4-7, 7-10; backward ends at 6: 4 s left over, 5 s beside it
    # at a tenth: 0.5 s more
    result = timeline(
        np.array([1.0, 2.0, 6.0]), np.array([5.0, 5.0, 5.0]), np.full(3, 3.0), [1, 1, 1], 6.0, 0.1
    )
    assert [(b.start_s, b.end_s) for b in result.buckets] == [(1, 4), (4, 7), (7, 10)]
    assert result.tail_s == pytest.approx(4.0)
    assert result.contention_s == pytest.approx(0.5)
    assert result.exposed_s == pytest.approx(4.5)


@given(
    gaps=st.lists(st.floats(0, 10), min_size=1, max_size=30),
    spent=st.lists(st.floats(1e-3, 10), min_size=30, max_size=30),
)
def test_buckets_follow_one_another_and_never_start_early(
    gaps: list[float], spent: list[float]
) -> None:
    ready, reduce_s = np.cumsum(gaps), np.array(spent[: len(gaps)])
    ends = bucket_ends_s(ready, reduce_s)
    end = 0.0
    for at, seconds, value in zip(ready, reduce_s, ends, strict=True):
        end = max(at, end) + seconds
        assert value == pytest.approx(end)


@given(buckets_=st.integers(1, 400), share=st.floats(0.01, 100.0), slowdown=st.floats(0, 0.5))
@example(buckets_=1, share=2.0, slowdown=0.2)  # nothing hides, and nothing counts twice
@example(buckets_=2, share=50.0, slowdown=0.0)
@example(buckets_=400, share=0.01, slowdown=0.0)
def test_equal_buckets_take_what_the_estimator_says(
    buckets_: int, share: float, slowdown: float
) -> None:
    """Equal buckets, ready at equal times: the closed form is the timeline, for any number of them
    and any network."""
    window, sync = 1.0, share
    ready = np.arange(1, buckets_ + 1) / buckets_ * window
    each = np.full(buckets_, sync / buckets_)
    exact = timeline(ready, each, each, [1] * buckets_, window, slowdown).exposed_s
    closed = bucketed_exposed_s(sync, window, window / buckets_, sync / buckets_, slowdown)
    assert float(closed) == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["gpt2-xl", "llama-2-7b"])  # a tied head, and one of its own
@pytest.mark.parametrize("cap", [25 * 2**20, 2**40])  # DDP's buckets, and one for all gradients
@pytest.mark.parametrize(("gpus", "nic"), [(8, 1.0), (64, 1.0), (64, 0.02)])
def test_the_timeline_of_a_layout_agrees_with_its_estimate(
    gpus: int, nic: float, cap: int, name: str
) -> None:
    """The closed form of estimates is within 3 % of the timeline, whichever is the bottleneck: the
    buckets of a timeline differ in size."""
    plan = with_overlap(
        plans.plan(model_spec(name)[0], gpus=gpus, software="pytorch-ddp", global_batch=gpus),
        bucket=Sourced(cap, "B", "assumed", "test"),
    )
    m = plans.numbers(plan, nic_per_gpu=nic * float(machine(plan).nic_per_gpu))
    table = plans.rows(gpus, {})
    time = evaluate(plan, table, numbers=m).time
    result = of_estimate(plan, m, table, time, cap)
    assert len(result.buckets) == 1 if cap > 1e9 else len(result.buckets) > 100
    assert sum(b.bytes for b in result.buckets) == pytest.approx(4 * parameter_count(plan.model))
    assert result.exposed_s == pytest.approx(float(time.components["data_parallel"][0]), rel=0.03)


def test_larger_buckets_are_fewer_and_end_later_when_the_network_is_fast() -> None:
    plan = plans.plan(model_spec("gpt2")[0], gpus=8, software="pytorch-ddp", global_batch=8)
    m, table = machine(plan), plans.rows(8, {})
    time = evaluate(plan, table).time
    small, large = (of_estimate(plan, m, table, time, cap=mib * 2**20) for mib in (25, 500))
    assert len(small.buckets) > len(large.buckets)
    assert small.tail_s < large.tail_s
    assert small.buckets[0].bytes >= FIRST_BUCKET_BYTES
    assert all(b.bytes >= BUCKET_CAP_BYTES for b in small.buckets[1:-1])


@pytest.mark.parametrize("cap", [1e5, 3e6, BUCKET_CAP_BYTES])
@pytest.mark.parametrize(
    "name", ["gpt2", "llama-2-7b", "mixtral-8x7b", "deepseek-v2-lite", "gemma-2-2b"]
)
def test_counting_buckets_is_assigning_them(name: str, cap: float) -> None:
    shape = catalog.load("models", ModelSpec, name)
    for joint in (False, True):
        sizes = [2.0 * tensor.elements for tensor in reversed(tensors(shape, joint, joint))]
        groups = assign(sizes, first_bytes(cap), cap)
        result = buckets_of(shape, joint, joint, 2.0, cap)
        assert result.count == len(groups)
        assert result.last_bytes == sum(sizes[i] for i in groups[-1])
        work = [
            tensor.work * (tensor.layer is not None)
            for tensor in reversed(tensors(shape, joint, joint))
        ]
        assert result.first_layers == pytest.approx(sum(work[i] for i in groups[0]))
