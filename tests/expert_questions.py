"""Questions of people who buy and run clusters, each with its truth: requests and what holds of
their answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from planner import api
from planner.specs.documents.estimate import Estimate

LAYOUT = {"tp": 2, "pp": 1, "zero": 1, "micro_batch": 1, "recompute": "none"}
BASE = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64, "stack": "megatron-core", **LAYOUT}
BASE |= {"tokens": "1T", "global_batch": 512, "seq_len": 8192, "price": 2.0}
FSDP = {"stack": "pytorch-fsdp", "zero": 3, "tp": None, "recompute": "full"}
LARGE = {"model": "llama-3.1-70b", "gpus": 256, "tp": 8, "pp": 4}
EXPERTS = {"model": "mixtral-8x7b", "tp": 1, "pp": 4, "ep": 8, "recompute": "full"}
LORA = {"stack": "hf-trainer", "gpus": 1, "tp": None, "pp": None, "zero": None, "lora": 16}
LORA |= {"global_batch": 8, "seq_len": 2048, "tokens": None, "price": None, "recompute": "full"}
OWN = {"price": None, "capex": 30_000}

Pair = Callable[[Estimate, Estimate], bool]


@cache
def _answered(items: tuple[tuple[str, Any], ...]) -> Estimate:
    return api.estimate(api.read_options(dict(items)), brief=True)


def answer(changes: dict[str, Any]) -> Estimate:
    """The base request with some options changed; None leaves one out."""
    given = {name: value for name, value in {**BASE, **changes}.items() if value is not None}
    return _answered(tuple(sorted(given.items())))


def near(value: float | None, other: float | None, rel: float = 1e-6) -> bool:
    assert value is not None
    assert other is not None
    return value == pytest.approx(other, rel=rel)


def step(e: Estimate) -> float:
    return e.step.seconds


def days(e: Estimate) -> float:
    assert e.run.days is not None
    return e.run.days


def usd(e: Estimate) -> float:
    assert e.run.cost_usd is not None
    return e.run.cost_usd


def width(e: Estimate) -> float:
    """Width of the band: the logarithm of the ratio of its ends."""
    return math.log(e.step.high / e.step.low)


def memory(e: Estimate) -> float:
    return e.memory.device_bytes


def part(e: Estimate, name: str) -> float:
    return e.memory.components.get(name, 0.0)


def ledger(e: Estimate, name: str) -> float:
    """Bytes per parameter of a state, as the stack keeps it."""
    return e.stack.bytes_per_parameter[name]


def doubted(word: str) -> Pair:
    return lambda a, _: any(word in doubt for doubt in a.doubts)


# question, options of one request, of another ({} is the base), what holds
Question = tuple[str, dict[str, Any], dict[str, Any], Pair]


def check(question: Question) -> None:
    """Ask both requests, and hold the answers to the truth."""
    _, first, other, holds = question
    a, b = answer(first), answer(other)
    assert math.isfinite(a.step.seconds)
    assert holds(a, b)
