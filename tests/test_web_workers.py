"""The dashboard's worker processes: limits, waiters that leave and come back, answers that are
kept, starts that fail."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any, NoReturn, cast
from unittest.mock import Mock
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request

from planner.specs.base import PlanError
from web import limits, run
from web.app import app
from web.tasks import TASKS
from web.work import Busy, Ended, Fault, Gone, Job, Unstarted, Workers, outcome

PAIRS = [("model", "gpt2"), ("gpu", "a100-sxm4-80gb"), ("gpus", "4")]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as result:
        yield result


@pytest.fixture
def workers() -> Iterator[Workers]:
    result = Workers(1, 2.0)
    yield result
    result.stop()


def test_work_that_takes_too_long_ends_with_its_process(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.limit_s = 60.0
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
    """The last waiter leaves, and the state is requested again while its process still dies."""
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


def test_a_start_that_takes_long_is_not_too_many_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(1, 0.5)
    start = workers._new

    def slowly() -> Any:
        time.sleep(0.7)
        return start()

    def answered(_: Any, job: Job) -> bool:
        job.future.set_result(b"answer")
        return True

    monkeypatch.setattr(workers, "_new", slowly)
    monkeypatch.setattr(workers, "_answer", answered)
    assert workers.submit("what_if", (PAIRS,)).future.result(60) == b"answer"
    workers.stop()


def test_too_many_waiting_are_told_so(
    workers: Workers, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.limit_s = 60.0
    jobs = [("panel", (PAIRS, "scaling"))] * (limits.MOST_WAITING + 3)
    with pytest.raises(Busy):
        _ = [workers.submit(name, arguments) for name, arguments in jobs]

    monkeypatch.setattr("web.run.HEAVY.submit", raises(Busy))
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

    monkeypatch.setattr("web.run.HEAVY.submit", raises(Unstarted))
    answer = client.get("/api/search", params=dict(PAIRS))
    assert answer.status_code == 503
    assert "worker" in answer.json()["message"]


def test_a_worker_that_is_ended_from_outside_is_not_the_requests_fault(
    workers: Workers, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.limit_s = 60.0
    job = workers.submit("panel", (PAIRS, "scaling"))
    while job.process is None:
        time.sleep(0.001)
    job.process.kill()
    with pytest.raises(Ended):
        job.future.result(60)
    workers.submit("what_if", (PAIRS,)).future.result(60)
    idle = next(iter(workers._processes))
    idle.kill()
    idle.join()
    assert workers.submit("what_if", (PAIRS,)).future.result(60)  # unnoticed
    monkeypatch.setattr("web.run.HEAVY.submit", raises(Ended))
    for path in ("/api/search", "/explain"):
        answer = client.get(path, params=dict(PAIRS))
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        assert "worker process of this request was killed" in answer.text


def raises(error: type[Exception]) -> Callable[..., NoReturn]:
    def submit(*_: object, **__: object) -> NoReturn:
        raise error

    return submit


def test_faults_say_nothing_of_the_inside(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faulty() -> bytes:
        raise RuntimeError("of the inside")

    assert outcome(faulty, ()) == ("fault", None)
    assert "of the inside" in capsys.readouterr().err  # where who runs it can read it
    monkeypatch.setattr("web.run.HEAVY.submit", raises(Fault))
    answer = client.get("/api/search", params=dict(PAIRS))
    assert answer.status_code == 500
    assert set(answer.json()) == {"field", "value", "message"}


def test_too_little_memory_has_its_own_sentence() -> None:
    def hungry() -> bytes:
        raise MemoryError

    kind, (_, _, remedy) = outcome(hungry, ())
    assert kind == "memory"
    assert "GiB of memory" in remedy


class Browser:
    """A request whose browser has gone."""

    async def is_disconnected(self) -> bool:
        return True


def test_work_for_a_browser_that_has_gone_ends(workers: Workers) -> None:
    """At once, or after a while where its script is about to ask again. The worker stands still,
    so that its work never ends by itself, however fast the machine is."""
    workers.limit_s = 60.0

    def left(linger_s: float) -> tuple[float, int]:
        """Seconds until the work was dropped, and how often the limit was looked at."""
        workers.submit("what_if", (PAIRS,)).future.result(60)
        os.kill(next(iter(workers._processes)).pid, signal.SIGSTOP)
        job = workers.submit("panel", (PAIRS, "scaling"))
        linger = Mock(return_value=linger_s)
        started = time.monotonic()
        with pytest.raises((Gone, CancelledError)):
            asyncio.run(run._waited(cast(Request, Browser()), workers, job, linger))
        assert job.dropped
        return time.monotonic() - started, linger.call_count

    assert left(0.4)[0] >= 0.4
    assert left(0.0)[1] == 1


def test_the_server_computes_nothing_itself(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page and document comes from a worker, and so does every refusal: here nothing reads a
    request."""

    def here(*_: object, **__: object) -> NoReturn:
        raise AssertionError

    for name in ("read_options", "estimate", "search_layouts"):
        monkeypatch.setattr(f"planner.api.{name}", here)
    monkeypatch.setattr("web.tasks.TASKS", dict.fromkeys(TASKS, here))
    request = dict(PAIRS)
    for path in ("/", "/page/form", "/export", "/api/estimate"):
        assert client.get(path, params=request).status_code == 200, path
        assert client.get(path, params={**request, "tp": "x"}).status_code == 422, path
    posted = client.post("/api/estimate", json={**request, "gpus": 4})
    assert posted.status_code == 200
    pair = {"a": urlencode(request), "b": urlencode({**request, "gpus": "8"})}
    both = client.get("/api/compare", params={**pair, "b": "model=gpt2&gpu=nothing"}).json()
    assert "nothing" in both["points"][1]["refused"]  # beside the answer of the other
    wrong = client.get("/api/compare", params={**pair, "b": "model=gpt2&tp=x"}).json()
    assert wrong["field"] == "b: --tp"


def test_a_process_that_ends_before_it_is_ready_is_no_worker(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.work._work", print)  # takes what a worker takes, and ends
    assert workers._new() is None
