"""One small request of every verb is answered."""

from __future__ import annotations

import pytest
from command import dpplan

from planner.cli.group import COMMANDS

ONE = "--model gpt2 --gpu a100 --gpus 8 --seq-len 512"
LAYOUT = "--global-batch 64 --micro-batch 1 --recompute none --tp 1 --pp 1 --stack megatron-core"
REQUESTS = {
    "estimate": f"{ONE} {LAYOUT}",
    "search": f"{ONE} {LAYOUT}",
    "recommend": f"bandwidth {ONE} {LAYOUT} --jobs 1",
    "export": f"{ONE} {LAYOUT} --to megatron",
    "compare": f"{ONE} {LAYOUT} --vary precision=bf16,fp16 --jobs 1",
    "batch": f"--model gpt2 --gpu a100 {LAYOUT} --tokens 1B --sweep gpus=1,2 --jobs 1",
    "tune": f"{ONE} --micro-batch 1 --recompute none --method full-sgd --jobs 1",
    "read": "tests/data/recipes/megatron.sh --gpu a100 --gpus 8",
    "rl": "--model gpt2 --gpu a100 --gpus 8 --micro-batch 1 --prompts 8 --response-length 200",
    "schedule": "--schedule 1f1b --pp 4 --microbatches 8",
    "strategies": f"{ONE} --strategy ddp --micro-batch 1",
    "allreduce": "--gpu a100 --gpus 16 --bytes 1MB",
    "batchnorm": "--gpu a100 --gpus 16",
    "input": "--samples-per-s 1000 --sample-bytes 100kB --gpus 8",
    "list": "gpus",
    "prices": "h100",
    "preflight": f"{ONE} --micro-batch 1",
    "validate": "docs/examples/recipes --jobs 1",
    "check": "tests/data/train.log",
    "learn": "memory",
    "schema": "",
}
# a node, until they are ended, and a model in a process of its own
MEASURING = {"calibrate", "serve", "mcp", "trace"}


def test_no_verb_is_left_out() -> None:
    assert REQUESTS.keys() | MEASURING == set(COMMANDS)


@pytest.mark.parametrize("verb", REQUESTS)
def test_a_verb_answers(verb: str) -> None:
    json = [] if verb == "schema" else ["--json"]
    answer = dpplan(verb, *REQUESTS[verb].split(), *json)
    assert answer.status in (0, 3), answer.stderr
    assert answer.json()
