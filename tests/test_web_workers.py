"""The dashboard's worker processes: limits, waiters that leave and come back, answers that are
kept, starts that fail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest
from fastapi.testclient import TestClient

from planner.specs.base import PlanError
from web import limits
from web.app import app
from web.work import Busy, Gone, Unstarted, Workers

PAIRS = [("model", "gpt2"), ("gpu", "a100-sxm4-80gb"), ("gpus", "4")]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as made:
        yield made


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(1, 2.0)
    yield made
    made.stop()


def test_work_that_takes_too_long_ends_with_its_process(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = workers.submit("what_if", (PAIRS,)).future.result(60)
    assert b"GPT-2" in first
    workers.limit_s = 0.2
    before = set(workers._processes)
    with pytest.raises(PlanError, match="takes longer than"):
        workers.submit("panel", (PAIRS, "scaling")).future.result(60)
    workers.limit_s = 60.0
    assert workers.submit("what_if", (PAIRS,)).future.result(60) == first
    assert not before & set(workers._processes)
    assert not any(process.is_alive() for process in before)


def test_work_that_nobody_waits_for_ends(workers: Workers) -> None:
    workers.limit_s = 60.0
    workers.submit("what_if", (PAIRS,)).future.result(60)
    job = workers.submit("panel", (PAIRS, "scaling"), "key")
    same = workers.submit("panel", (PAIRS, "scaling"), "key")
    assert same is job
    workers.leave(job)
    assert not job.dropped  # one still waits
    while job.process is None and not job.future.done():
        time.sleep(0.001)
    process = job.process
    workers.leave(same)
    with pytest.raises((CancelledError, Gone)):
        job.future.result(60)
    assert workers.submit("what_if", (PAIRS,)).future.result(60)
    assert process is None or not process.is_alive()


def test_who_comes_back_at_once_is_answered(workers: Workers) -> None:
    """The last waiter leaves, and the same state is asked for again while its process still
    dies."""
    workers.limit_s = 60.0
    workers.submit("what_if", (PAIRS,)).future.result(60)
    job = workers.submit("panel", (PAIRS, "scaling"), "key")
    while job.process is None and not job.future.done():
        time.sleep(0.001)
    workers.leave(job)
    again = workers.submit("panel", (PAIRS, "scaling"), "key")
    assert again is not job or job.future.done()
    assert again.future.result(60)
    assert workers.submit("panel", (PAIRS, "scaling"), "key").future.done()  # kept


def test_answers_are_kept_and_shared(workers: Workers) -> None:
    workers.limit_s = 60.0
    first = workers.submit("what_if", (PAIRS,), "key").future.result(60)
    again = workers.submit("what_if", (PAIRS,), "key")
    assert again.future.done()
    assert again.future.result() is first


def test_too_many_waiting_are_told_so(
    workers: Workers, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.limit_s = 60.0
    jobs = [("panel", (PAIRS, "scaling"))] * (limits.MOST_WAITING + 3)
    with pytest.raises(Busy):
        _ = [workers.submit(name, arguments) for name, arguments in jobs]

    def refuse(*_: object, **__: object) -> None:
        raise Busy

    monkeypatch.setattr("web.run.HEAVY.submit", refuse)
    answer = client.get("/api/search", params=dict(PAIRS))
    assert answer.status_code == 429
    assert "busy" in answer.json()["message"]


def test_a_worker_that_does_not_start_is_said_at_once(
    workers: Workers, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Workers._new
    monkeypatch.setattr(Workers, "_new", lambda self: None)
    job = workers.submit("what_if", (PAIRS,))
    with pytest.raises(Unstarted):
        job.future.result(10)
    monkeypatch.setattr(Workers, "_new", started)  # the next request tries again
    workers.limit_s = 60.0
    assert b"GPT-2" in workers.submit("what_if", (PAIRS,)).future.result(60)

    def refuse(*_: object, **__: object) -> None:
        raise Unstarted

    monkeypatch.setattr("web.run.HEAVY.submit", refuse)
    answer = client.get("/api/search", params=dict(PAIRS))
    assert answer.status_code == 503
    assert "worker" in answer.json()["message"]


def test_a_process_that_ends_before_it_is_ready_is_no_worker(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.work._work", print)  # takes what a worker takes, and ends
    assert workers._new() is None
