"""Pipelines: closed forms against the literature and against a simulation that plays the schedules
action by action."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import schedules
from planner.formulas.pipeline import pipeline_s, weight_gradient_s
from planner.schedules.base import Work
from planner.specs.layout import SCHEDULES

Action = tuple[str, int, int]  # direction, chunk on this rank, micro-batch


# ------------------------------------------------------------------------------------------- an ind


def gpipe(rank: int, p: int, v: int, m: int) -> list[Action]:
    return [("F", 0, i) for i in range(m)] + [("B", 0, i) for i in range(m)]


def one_f_one_b(rank: int, p: int, v: int, m: int) -> list[Action]:
    return _warm(
        min(m, p - rank - 1), [("F", 0, i) for i in range(m)], [("B", 0, i) for i in range(m)]
    )


def interleaved(rank: int, p: int, v: int, m: int) -> list[Action]:
    """Micro-batches in groups of p, each group through all chunks (Narayanan et al. 2021, figure
    4)."""
    forward = [("F", k // p % v, k // (p * v) * p + k % p) for k in range(m * v)]
    backward = [("B", v - 1 - chunk, i) for _, chunk, i in forward]
    return _warm(min(m * v, 2 * (p - rank - 1) + (v - 1) * p), forward, backward)


def _warm(count: int, forward: list[Action], backward: list[Action]) -> list[Action]:
    """Some forwards first, then one forward and one backward in turn, then the backwards left."""
    steady = itertools.chain.from_iterable(itertools.zip_longest(forward[count:], backward))
    return forward[:count] + [action for action in steady if action is not None]


PLAYED = {"gpipe": gpipe, "1f1b": one_f_one_b, "interleaved": interleaved}


@functools.cache
def play(
    name: str, p: int, v: int, m: int, forward: float = 1.0, backward: float = 2.0
) -> tuple[float, tuple[int, ...]]:
    """Makespan with the given seconds per rank and micro-batch, and the most forward chunks each
    rank has alive."""
    todo = {rank: PLAYED[name](rank, p, v, m) for rank in range(p)}
    seconds = {"F": forward / v, "B": backward / v}
    ends: dict[tuple[str, int, int], float] = {}  # direction, stage of the whole model, micro-batch
    clock, live, peak = [0.0] * p, [0] * p, [0] * p
    while any(todo.values()):
        moved = False
        for rank, actions in todo.items():
            while actions:
                subject, chunk, i = actions[0]
                stage = chunk * p + rank
                if subject == "F":
                    before = ends.get(("F", stage - 1, i), None if stage else 0.0)
                else:
                    last = stage == p * v - 1
                    before = ends.get(("F", stage, i) if last else ("B", stage + 1, i))
                if before is None:
                    break
                clock[rank] = max(clock[rank], before) + seconds[subject]
                ends[subject, stage, i] = clock[rank]
                live[rank] += 1 if subject == "F" else -1
                peak[rank] = max(peak[rank], live[rank])
                actions.pop(0)
                moved = True
        assert moved, "the schedule waits for itself"
    return max(clock), tuple(peak)


SHAPES = [("gpipe", p, 1, m) for p in (1, 2, 4, 7) for m in (1, 3, 8)]
SHAPES += [("1f1b", p, 1, m) for p in (1, 2, 4, 7) for m in (1, 3, 8, 20)]
SHAPES += [("interleaved", p, v, p * k) for p in (2, 3, 4) for v in (2, 3) for k in (2, 3, 4)]


@pytest.mark.parametrize(("name", "p", "v", "m"), SHAPES)
def test_time_equals_the_schedule_played(name: str, p: int, v: int, m: int) -> None:
    makespan, _ = play(name, p, v, m)
    fill = Work(p - 1.0, p - 1.0, p - 1.0)
    code = np.array([float(SCHEDULES.index(name))])
    idle = schedules.idle_s(code, fill, Work(1.0, 1.0, 1.0), float(p), float(m), float(v))
    assert pipeline_s(3.0, m, idle).tolist() == pytest.approx([makespan])


@pytest.mark.parametrize(("name", "p", "v", "m"), SHAPES)
def test_live_chunks_equal_the_schedule_played(name: str, p: int, v: int, m: int) -> None:
    _, peak = play(name, p, v, m)
    code = np.full(p, float(SCHEDULES.index(name)))
    live = schedules.live_chunks(
        code, np.arange(p, dtype=float), code * 0 + p, code * 0 + v, code * 0 + m
    )
    assert live.tolist() == list(peak)


@given(p=st.integers(2, 64), m=st.integers(1, 512), v=st.integers(1, 12))
def test_bubble_over_ideal_time(p: int, m: int, v: int) -> None:
    # (p - 1) / m for GPipe and 1F1B, divided by v when interleaved: Narayanan et al. 2021 (arXiv
    # 2104.04473), section 2.2
    names = np.array(
        [SCHEDULES.index(name) for name in ("gpipe", "1f1b", "interleaved")], dtype=float
    )
    vpp = np.array([1.0, 1.0, float(v)])
    ideal, third = m * 1.0, (p - 1) / 3
    bubble = schedules.idle_s(
        names, Work(third, third, third), Work(1 / 3, 1 / 3, 1 / 3), float(p), float(m), vpp
    )
    assert (bubble / ideal).tolist() == pytest.approx(
        [(p - 1) / m, (p - 1) / m, (p - 1) / m / v], abs=1e-12
    )


@given(p=st.integers(2, 64), v=st.integers(1, 12))
def test_interleaving_keeps_more_activations(p: int, v: int) -> None:
    # the first stage keeps L (1 + (p-1)/(p v)) layers: Korthikanti et al. 2022 (arXiv 2205.05198),
    # equation 5 and section 4.2.3
    chunks = schedules.BY_NAME["interleaved"].live_chunks(0.0, float(p), float(v), 1e6)
    assert float(chunks) / (p * v) == pytest.approx(1 + (p - 1) / (p * v))


@pytest.mark.parametrize(
    ("name", "stage", "live"),
    [
        ("1f1b", 0, 8),
        ("1f1b", 7, 1),
        ("1f1b", 5, 3),
        ("gpipe", 0, 100),
        ("gpipe", 7, 100),
        ("zb-1p", 7, 8),
        ("zb-2p", 7, 15),
        ("dualpipe", 3, 9),
    ],
)
def test_live_microbatches_of_eight_stages(name: str, stage: int, live: int) -> None:
    # p - i for 1F1B; p and 2p - 1 for zero bubble (arXiv 2401.10241, table 1); p + 1 for DualPipe
    # (arXiv 2412.19437, table 2)
    assert float(schedules.BY_NAME[name].live_chunks(float(stage), 8.0, 1.0, 100.0)) == live
    assert (
        float(schedules.BY_NAME[name].live_chunks(float(stage), 8.0, 1.0, 1.0)) == 1
    )  # never more than there are


def test_zero_bubble() -> None:
    # with forward, input and weight gradient of one second each (arXiv 2401.10241, table 1): 1F1B
    # idles (p-1) * 3, ZB-H1 (p-1)(1 + 1 - 1), ZB-H2 (p-1)(1 + 1 - 2)
    fill = Work(7.0, 7.0, 7.0)
    names = ("1f1b", "zb-h1", "zb-1p", "zb-h2", "zb-2p")
    assert [
        float(schedules.BY_NAME[n].idle_s(fill, Work(1.0, 1.0, 1.0), 8.0, 16.0, 1.0)) for n in names
    ] == pytest.approx([21, 7, 7, 0, 0])


def test_weight_gradients_are_half_of_the_products() -> None:
    # forward 1, backward 2 of a product: one second of each gradient, as in table 1 of arXiv
    # 2401.10241
    assert float(weight_gradient_s(2.0)) == 1.0


def test_dualpipe() -> None:
    # arXiv 2412.19437, table 2: (p/2 - 1)(F&B + B - 3W), with B = I + W and F&B = F + B
    for p in (2, 4, 8, 16, 64):
        fill = Work(p - 1.0, p - 1.0, 0.7 * (p - 1))
        assert float(
            schedules.BY_NAME["dualpipe"].idle_s(fill, Work(1.0, 1.0, 0.7), float(p), 4.0 * p, 1.0)
        ) == pytest.approx((p / 2 - 1) * (2.7 + 1.7 - 2.1))


def test_every_schedule_has_both_closed_forms() -> None:
    codes = np.arange(len(SCHEDULES), dtype=float)
    vpp = np.array([float(schedules.default_chunks(name)) for name in SCHEDULES])
    fill, slow = Work(1.0, 1.2, 0.7), Work(0.4, 0.4, 0.3)
    bubbles = schedules.idle_s(codes, fill, slow, 4.0, 8.0, vpp)
    assert ((bubbles >= 0) & (bubbles <= 8 * 2.9001)).all()
    live = schedules.live_chunks(codes, codes * 0, codes * 0 + 4, vpp, codes * 0 + 8)
    # a table of all schedules gives each row the value of its own table
    for row, name in enumerate(SCHEDULES):
        assert bubbles[row] == schedules.BY_NAME[name].idle_s(fill, slow, 4.0, 8.0, vpp[row])
        assert live[row] == schedules.BY_NAME[name].live_chunks(0.0, 4.0, vpp[row], 8.0)


def test_a_slow_stage_sets_the_pace() -> None:
    # stages of 2, 2, 3 s and 10 micro-batches: 10 * 3 + (7 - 3) = 34 s
    assert float(pipeline_s(3.0, 10.0, 4.0)) == 34.0
