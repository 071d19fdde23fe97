"""Schedules are timed as an independent simulation times them, and drawn as they are timed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_shapes import SHAPES, timed

from planner import schedules
from planner.formulas.pipeline import pair_stall_s, ring_stall_s
from planner.schedules import base, checks, timing
from planner.schedules.base import Action, Actions
from planner.schedules.intervals import intervals
from planner.specs.base import PlanError
from planner.specs.layout import SCHEDULES
from planner.views.timeline import timeline


def by_events(
    lists: Actions, work: dict[str, np.ndarray], send: np.ndarray, slowdown: np.ndarray
) -> float:
    """Makespan by discrete events: a process per rank, an event per result, messages that take
    their time."""
    simpy = pytest.importorskip("simpy", reason="simpy is a dev dependency")
    env = simpy.Environment()
    where = base.placement(lists)
    last = max(stage for stage, _ in where)
    done = {(kind, stage, i): env.event() for kind in "FB" for stage, i in where}

    def arrival(kind: str, stage: int, i: int, rank: int, boundary: int) -> Any:
        yield done[kind, stage, i]
        if where[stage, i] != rank:
            yield env.timeout(float(send[boundary]))

    def needs(a: Action, rank: int) -> list[Any]:
        if a.kind == "F":
            return (
                [env.process(arrival("F", a.stage - 1, a.microbatch, rank, a.stage - 1))]
                if a.stage
                else []
            )
        if a.kind == "W":
            return []
        if a.stage == last:
            return []
        return [env.process(arrival("B", a.stage + 1, a.microbatch, rank, a.stage))]

    def run(rank: int, row: list[Action]) -> Any:
        waits = [[event for part in (a.parts or (a,)) for event in needs(part, rank)] for a in row]
        for a, events in zip(row, waits, strict=True):
            yield env.all_of(events)
            parts = a.parts or (a,)
            yield env.timeout(
                float(sum(work[part.kind][part.stage] for part in parts) * slowdown[rank])
            )
            for part in parts:
                if part.kind != "W":
                    done["F" if part.kind == "F" else "B", part.stage, part.microbatch].succeed()

    for rank, row in enumerate(lists):
        env.process(run(rank, row))
    env.run()
    return float(env.now)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_makespan_equals_a_discrete_event_simulation(data: st.DataObject) -> None:
    name, p, m, v = data.draw(st.sampled_from(SHAPES))
    lists = schedules.actions(name, p, m, v)
    program = checks.checked(lists)
    seconds = st.floats(0.0, 4.0)
    f, i, w = (
        np.array(data.draw(st.lists(seconds, min_size=program.stages, max_size=program.stages)))
        for _ in range(3)
    )
    send = np.array(
        data.draw(
            st.lists(
                seconds, min_size=max(program.stages - 1, 1), max_size=max(program.stages - 1, 1)
            )
        )
    )
    slow = np.array(data.draw(st.lists(st.floats(0.5, 3.0), min_size=p, max_size=p)))
    work = {"F": f, "I": i, "W": w, "B": i + w}
    first = timing.timed(program, timing.Durations(f, i, w, send=send, slowdown=slow))
    assert float(first.end.max()) == pytest.approx(
        by_events(lists, work, send, slow), rel=1e-9, abs=1e-9
    )


def test_rows_together_equal_rows_alone() -> None:
    rng = np.random.default_rng(1)
    for name, p, m, v in (
        ("1f1b", 4, 8, 1),
        ("zb-v", 4, 8, 2),
        ("dualpipev", 3, 7, 2),
        ("interleaved", 2, 4, 3),
    ):
        program = schedules.program(name, p, m, v)
        f, i, w = rng.uniform(0.5, 2, (3, program.stages, 1200))
        send = rng.uniform(0, 1, (program.stages - 1, 1200))
        many = timing.timed(
            program, timing.Durations(f, i, w, send, tail=rng.uniform(0, 1, (p, 1200)))
        )
        for row in (0, 511, 512, 1199):
            alone = timing.timed(
                program, timing.Durations(f[:, row], i[:, row], w[:, row], send[:, row]), keep=True
            )
            assert alone.busy[:, 0] == pytest.approx(many.busy[:, row])
            assert alone.start[:, 0] == pytest.approx(many.start[:, row])
            assert (many.end[:, row] >= alone.end[:, 0]).all()


@pytest.mark.parametrize(
    ("p", "m", "v"), [(4, 16, 2), (4, 64, 8), (8, 32, 4), (16, 32, 5), (2, 8, 3)]
)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_hidden_sends_of_chunks_show_in_fill_and_drain(
    p: int, m: int, v: int, share: float
) -> None:
    """Sends shorter than a chunk's work add 2 (v p - 1) of themselves, whatever m is: every
    boundary once each way."""
    send = share / v
    assert timed("interleaved", p, m, v, send=send).makespan[0] - timed(
        "interleaved", p, m, v
    ).makespan[0] == pytest.approx(2 * (v * p - 1) * send)


def _step_s(p: int, m: int, v: int, b: float, send: float, every: int) -> tuple[float, float]:
    """Seconds of a step of interleaved 1F1B with forwards of a second and `every` ranks to a node,
    by the closed form (fill, drain and stall) and by the timed schedule."""
    sends = np.array([send if (i + 1) % every == 0 else 0.0 for i in range(p * v - 1)])
    program = schedules.program("interleaved", p, m, v)
    timed_s, computing_s = (
        float(timing.timed(program, timing.Durations(1.0, b, 0.0, c)).makespan[0])
        for c in (sends, 0.0)
    )
    ring = ring_stall_s(1.0, b, send / every, stages=p, chunks=v, microbatches=m)
    stall = max(float(ring), float(pair_stall_s(1.0, b, send, v * m)))
    return computing_s + 2 * float(sends.sum()) + stall, timed_s


@pytest.mark.parametrize(("p", "v"), [(2, 2), (2, 5), (4, 2), (4, 5), (8, 3)])
@pytest.mark.parametrize("backward", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("send", [0.9, 1.2, 1.5, 2.0, 3.0])
def test_sends_longer_than_a_chunk_stall_its_ring(
    p: int, v: int, backward: float, send: float
) -> None:
    closed_s, timed_s = _step_s(p, 8 * p, v, backward, send, 1)
    near = 1e-9 if send <= 1 else 0.04  # exact where nothing stalls
    assert closed_s == pytest.approx(timed_s, rel=near)


@pytest.mark.parametrize(("p", "every", "v"), [(8, 2, 2), (8, 4, 4), (4, 2, 3)])
@pytest.mark.parametrize("send", [1.0, 1.5, 2.0, 4.0])
def test_one_dear_boundary_stalls_the_ranks_beside_it(
    p: int, every: int, v: int, send: float
) -> None:
    closed_s, timed_s = _step_s(p, 8 * p, v, 2.0, send, every)
    assert closed_s == pytest.approx(timed_s, rel=1e-9 if send <= 1 else 0.05)


def test_blocking_sends_take_the_time_of_their_rank() -> None:
    # 1F1B with a send in every pass: m (F + B + 2c) and a fill and a drain of (p - 1) (F + B + 2c)
    waits = timed("1f1b", 4, 16, 1, send=0.25, blocking=True).makespan[0]
    ends = 2 * 0.25  # the first rank sends no gradients, the last no activations
    assert waits == pytest.approx((16 + 3) * (3 + ends) - ends, abs=2 * ends)


def test_a_straggler_and_an_optimizer() -> None:
    # the last rank twice as slow sets the pace: 8 * 6 s, and the fill and drain of the three others
    assert timed("1f1b", 4, 8, 1, slowdown=np.array([1.0, 1.0, 1.0, 2.0])).makespan[
        0
    ] == pytest.approx(8 * 6 + 3 * 3)
    assert timed("1f1b", 4, 8, 1, tail=np.array([0.0, 0.0, 0.0, 0.5])).makespan[0] == pytest.approx(
        11 * 3
    )
    assert timed("1f1b", 4, 8, 1, tail=np.array([2.0, 0.0, 0.0, 0.0])).makespan[0] == pytest.approx(
        11 * 3 + 2
    )


def test_an_overlapped_pair_may_be_shorter_than_its_halves() -> None:
    whole, half = timed("dualpipev", 4, 16, 2), timed("dualpipev", 4, 16, 2, pair_frac=0.8)
    assert half.makespan[0] < whole.makespan[0]
    assert half.busy.sum() < whole.busy.sum()


@pytest.mark.parametrize(
    ("durations", "field"),
    [
        (timing.Durations(forward=np.ones(3)), "forward"),
        (timing.Durations(send=np.ones(7)), "send"),
        (timing.Durations(forward=-1.0), "forward"),
        (timing.Durations(weight_gradient=math.inf), "weight_gradient"),
        (
            timing.Durations(forward=np.ones((4, 5)), input_gradient=np.ones((4, 6))),
            "input_gradient",
        ),
    ],
)
def test_durations_that_do_not_fit(durations: timing.Durations, field: str) -> None:
    with pytest.raises(PlanError) as caught:
        timing.timed(schedules.program("1f1b", 4, 8, 1), durations)
    assert caught.value.field == field


def test_a_timeline_is_as_wide_as_asked_and_shows_every_rank() -> None:
    program = schedules.program("1f1b", 4, 4, 1)
    first = timing.timed(program, timing.Durations(), keep=True)
    lines = timeline(program, first, 40)
    assert all(len(line) <= 40 for line in lines)
    assert lines[3] == "rank 3 |...0aa1bb2cc3dd......|"
    assert lines[0].startswith("rank 0 |0123......aa")
    narrow = timeline(
        schedules.program("zb-h1", 8, 64, 1),
        timing.timed(schedules.program("zb-h1", 8, 64, 1), timing.Durations(), keep=True),
        60,
    )
    assert {len(line) for line in narrow} == {60}


def test_intervals_neither_overlap_nor_vanish() -> None:
    for name in SCHEDULES:
        v = schedules.default_chunks(name)
        program = schedules.program(name, 4, 8, v)
        listed = list(intervals(program, timing.timed(program, timing.Durations(), keep=True)))
        assert len(listed) == sum(
            len(a.parts or (a,)) for row in schedules.actions(name, 4, 8, v) for a in row
        )
        for rank in range(4):
            mine = sorted((x.start, x.end) for x in listed if x.rank == rank)
            assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(mine))
