"""Work that a Dask cluster shares: same answers, same order, and nothing lost with a worker."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from command import dpplan
from dask_cluster import Cluster

from planner import api
from planner.specs.base import PlanError
from planner.specs.options import Options
from planner.verbs import workers
from planner.verbs.requests import answer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    result = Cluster(tmp_path_factory.mktemp("cluster"))
    yield result
    result.end()


def _requests() -> list[Options]:
    """200 requests with one layout each, and one that is refused."""
    words = {"model": "gpt2", "gpu": "h100", "gpus": 8, "tp": 1, "pp": 1, "zero": 1}
    words |= {"micro_batch": 1, "recompute": "none", "stack": "megatron-core"}
    return [
        api.read_options({**words, "seq_len": 1024 - (i % 20), "global_batch": 8 * (i // 20 + 1)})
        for i in range(200)
    ] + [api.read_options({**words, "tp": 5})]


def test_a_killed_worker_loses_nothing(cluster: Cluster) -> None:
    request, seen = _requests(), []

    def kill(done: int, plan: int) -> None:
        seen.append((done, plan))
        if len(seen) == 2:
            cluster.workers[0].send_signal(signal.SIGKILL)

    here = answer(request)
    with workers.workers(None, cluster.address):
        assert workers.processes(None) == 2
        document = answer(request, jobs=workers.processes(None), progress=kill)
    assert [entry.report for entry in document] == [entry.report for entry in here]
    assert [entry.refused for entry in document] == [entry.refused for entry in here]
    assert here[-1].refused
    assert seen[-1] == (len(request), len(request))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert cluster.workers[0].wait(30) == -signal.SIGKILL


def test_a_sweep_of_the_command_line_is_the_same(cluster: Cluster) -> None:
    words = "compare --model gpt2 --gpu h100 --gpus 8 --sweep seq-len=256..1024 --zero 1 --json"
    shared = dpplan(*words.split(), "--dask", cluster.address)
    assert shared.status == 0
    assert shared.json() == dpplan(*words.split()).json()


def test_validation_is_the_same(cluster: Cluster) -> None:
    with workers.workers(None, cluster.address):
        document = api.validate([], None, ["small-runs"], jobs=workers.processes(None))
    assert document == api.validate([], None, ["small-runs"])


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nowhere", "tcp://"])
def test_no_scheduler_is_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_ANSWERS_S", 0.5)
    with (
        pytest.raises(PlanError, match="at which a scheduler answers") as error,
        workers.workers(None, address),
    ):
        raise AssertionError
    assert error.value.field == "--dask"


def test_workers_with_another_edition_are_refused() -> None:
    with pytest.raises(PlanError, match=r"tcp://a has another dpplan \(0\.1; here"):
        workers._check_alike("tcp://s", {"tcp://a": "0.1"})
    with pytest.raises(PlanError, match="without workers"):
        workers._check_alike("tcp://s", {})


def test_processes_and_a_scheduler_are_one_too_many() -> None:
    with pytest.raises(PlanError, match="--jobs"), workers.workers(2, "tcp://127.0.0.1:9"):
        raise AssertionError
