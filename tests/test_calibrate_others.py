"""CPU use of other programs, and handling of samples taken meanwhile."""

from __future__ import annotations

import pytest

from planner.calibrate import others, quiet, record
from planner.calibrate.others import MOST_OTHERS, Crowd
from planner.calibrate.quiet import Probe, Sample

# user, nice, system, idle, waiting for a disk, interrupts (2), stolen, guests (in user already)
STAT = """cpu  900 0 0 0 0 0 0 0 0 0
cpu0 100 20 30 1000 500 5 5 40 60 0
cpu1 10 0 0 9000 0 0 0 0 0 0
cpu10 7 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_time_of_the_own_cores_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others.os, "sysconf", lambda name: 100)
    assert others.busy_s(STAT, [0]) == pytest.approx(2.0)
    assert others.busy_s(STAT, [0, 1]) == pytest.approx(2.1)
    assert others.busy_s("nothing", [0]) == 0.0


class Clock:
    """A machine whose times are set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
        self.now = self.busy = self.own = 0.0
        monkeypatch.setattr(others.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(others, "_busy_s", lambda: self.busy)
        monkeypatch.setattr(others, "_own_s", lambda: self.own)
        monkeypatch.setattr(others, "cores", lambda: list(range(cores)))

    def passes(self, seconds: float, ours: float, theirs: float) -> None:
        """So many cores are busy with either."""
        self.now += seconds
        self.own += seconds * ours
        self.busy += seconds * (ours + theirs)


def test_others_crowd_where_no_core_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, cores=4)
    both = {"agree": lambda number: number, "of_node": lambda number: number}
    first, every, card = Crowd(1, 1, **both), Crowd(2, 2, **both), Crowd(0, 1, **both)
    clock.passes(1.0, ours=1.0, theirs=2.5)
    assert first.share() == 0.0  # three cores were left to them
    assert every.share() == pytest.approx(2.5 / 4)
    assert card.share() == 0.0
    clock.passes(0.1, ours=1.0, theirs=0.0)
    assert every.share() == pytest.approx(2.5 / 4)  # too short to say anything new
    clock.passes(1.0, ours=4.0, theirs=0.0)
    assert every.share() == 0.0


def test_ranks_of_a_machine_are_no_strangers_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, cores=2)
    crowd = Crowd(2, 1, lambda number: number, lambda number: 2 * number)  # the other does as much
    clock.now, clock.own, clock.busy = 1.0, 0.9, 1.8
    assert crowd.share() == 0.0


def test_a_step_beside_other_programs_is_no_measurement() -> None:
    """Repeats agree and probes are usual, and yet every step waited for others' time slices."""
    slow = [Sample(1.2, 0.01, 0.01, 4 * MOST_OTHERS) for _ in range(4)]
    items = [Sample(1.0, 0.01, 0.01, MOST_OTHERS / 2) for _ in range(3)]
    value = quiet.value_of(slow, 0.01)
    assert not value.quiet
    assert value.why == "other programs had 20.0 % of the cores"
    assert quiet.agreed(slow, 0.01) == 0
    both = quiet.value_of([*slow, *items], 0.01)
    assert (both.quiet, both.seconds, both.kept) == (True, 1.0, 3)


@pytest.mark.parametrize(("one_thread", "kept"), [(True, 0.0), (False, 0.3)])
def test_cpu_time_of_one_thread_is_nobody_elses(one_thread: bool, kept: float) -> None:
    """Work that never waits is timed by CPU seconds, which other processes do not spoil; other
    samples are marked in the records."""

    class Crowded(Crowd):
        def share(self) -> float:
            return 0.3

    probe = Probe(lambda: sum(range(9000)), one_thread=one_thread, crowd=Crowded(1, 1))
    samples = probe.samples(lambda: 1.0, want=1, wait_s=0.0, most_s=0.0, busy=True)
    assert {sample.others for sample in samples} == {kept}
    assert record.samples_of(record.visit(samples)) == samples
