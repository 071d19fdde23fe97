"""A verb that deals its work out answers from two processes as from this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from command import dpplan

from planner.verbs import workers
from planner.verbs.workers import Workers

AS_IT_COMES = "--stack pytorch-fsdp --stack-defaults"
ONE = f"--model gpt2 --gpu a100 --seq-len 512 --global-batch 64 --tokens 1B {AS_IT_COMES}"
REQUESTS = (
    f"compare {ONE} --sweep gpus=1..16",
    f"batch {ONE} --sweep gpus=1..8",
    f"recommend bandwidth {ONE} --gpus 16",
    f"recommend cluster {ONE} --gpu h100 --max-gpus 16",
    f"recommend batch --model gpt2 --gpu a100 --gpus 4 --seq-len 512 {AS_IT_COMES}",
    f"recommend model --gpu a100 --gpus 1 --seq-len 512 {AS_IT_COMES}",
    "tune --model qwen2.5-0.5b --gpu rtx4090 --seq-len 512 --micro-batch 1 --method lora+full-8bit"
    f" {AS_IT_COMES}",
)


@pytest.fixture(scope="module")
def pool() -> Iterator[Workers]:
    with workers.workers(2):
        result = workers.shared()
        assert result is not None
        yield result


def _answer(words: str, jobs: int) -> dict[str, Any]:
    answer = dpplan(*words.split(), "--jobs", jobs, "--json")
    assert answer.status == 0, answer.stderr
    return {name: value for name, value in answer.json().items() if name != "command"}


@pytest.mark.parametrize("words", REQUESTS)
def test_two_processes_answer_as_one(
    words: str, pool: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.are_up = True  # or few requests would not be worth the start of processes
    dealt: list[Any] = []
    deal = pool.pool.map

    def watched(*work: Any) -> Iterator[Any]:
        dealt.append(work)
        return deal(*work)

    monkeypatch.setattr(pool.pool, "map", watched)
    shared = _answer(words, 2)
    assert dealt
    assert shared == _answer(words, 1)
