"""The law of a search: an answer does not get better when one more option is given."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner import api
from planner.estimate.ties import TIE
from planner.inputs.degrees import longest_context
from planner.specs.base import PlanError
from planner.specs.capabilities import CAPABILITIES
from planner.specs.documents.estimate import Estimate, Figures
from planner.specs.options import LAYOUT, Options, rows
from planner.verbs.requests import answer as answers

MODELS = (
    *("gpt2", "llama-3.2-1b", "llama-3-8b", "llama-2-13b", "qwen3-32b", "llama-2-70b"),
    *("llama-3-70b", "llama-3.1-405b", "gpt3-175b", "gemma-3-27b", "mistral-large-2"),
    *("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3", "llama-4-scout"),
    *("qwen3-235b-a22b", "nemotron-h-56b", "qwen3-next-80b-a3b", "resnet-50", "bert-large"),
    *("kimi-k2", "glm-4.5-air", "falcon-40b"),
)
GPUS = ("h100", "h800", "a100", "b200", "gb200", "mi300x", "rtx4090", "h200", "l40s", "v100")
COUNTS = (1, 8, 16, 64, 96, 104, 256, 512, 1000, 1024, 2048, 4096)
# relative gain of a pin that does not count as a violation: what decides within a tie is not time,
# and 0.5 %
TOLERANCE = TIE + 0.005
_CHANCE = 0.95
# values of layout options that are pinned, beyond the words that stacks have
_DEGREES = (1, 2, 4, 8, 16)
PINS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tp", "pp", "cp", "ep", "etp", "micro_batch"), _DEGREES),
    "vpp": (1, 2, 4),
    "zero": (0, 1, 2, 3),
    "shard_group": (8, 16, 64),
    "sequence_parallel": (True, False),
    "recompute": ("none", "selective", "full", "block:1", "group:2", "moe_act"),
    "dp_bucket": ("25 MB", "100 MB", "500 MB"),
    "cuda_graphs": ("none", "attn", "layer", "attn+moe_router+moe_preprocess", "full"),
    "master_precision": ("remainder",),
    "expandable_segments": (True,),
    **dict.fromkeys(("compile", "fused_kernels", "ep_overlap"), (True,)),
    "shared_expert_overlap": (True,),
    "loss_chunks": (4, 8),
    "dp_overlap": ("none", "reduce"),
    "stack": ("megatron-core", "torchtitan", "deepspeed", "pytorch-fsdp"),
}
_WORDS = ("schedule", "placement", "offload", "cp_comm_type", "tp_overlap", "dispatcher")
_LISTED = {entry.option: entry.words for entry in CAPABILITIES if entry.option in _WORDS}
ALL = {**PINS, **_LISTED, "loss_kernel": ("torch", "fused", "fused-linear", "chunked")}


@dataclass(frozen=True)
class Pinned:
    """An answer with one more option."""

    pin: dict[str, Any]
    seconds: float
    gain: float  # share of the step of the answer without the pin
    is_comparable: bool
    is_better: bool


@dataclass(frozen=True)
class Trial:
    """A request with its answer, and with each pin that has one."""

    request: dict[str, Any]
    free: Estimate
    pinned: list[Pinned]

    @property
    def violations(self) -> list[Pinned]:
        return [entry for entry in self.pinned if entry.is_better]

    @property
    def nearest(self) -> Pinned | None:
        """The fastest of the comparable pins."""
        return max(
            (entry for entry in self.pinned if entry.is_comparable),
            key=lambda entry: entry.gain,
            default=None,
        )


def requests(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Requests at random."""
    draw = random.Random(seed)
    for _ in range(count):
        yield {"model": draw.choice(MODELS), "gpu": draw.choice(GPUS), "gpus": draw.choice(COUNTS)}


def pins(count: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    """Options with a value each, at random."""
    every = [(name, value) for name, values in ALL.items() for value in values]
    for name, value in draw.sample(every, min(count, len(every))):
        yield {name: value}


def pins_of(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """The pins of a seed."""
    return pins(count, random.Random(seed))


def readable(given: dict[str, Any]) -> Options | None:
    """The options of a request; None where they contradict each other."""
    try:
        return api.read_options(given)
    except PlanError:
        return None


def sure(figures: Estimate | Figures) -> bool:
    return figures.memory.fits and figures.memory.fit_chance >= _CHANCE


def comparable(free: Estimate, pinned: Figures, pin: dict[str, Any]) -> bool:
    """Whether a pinned answer fits as likely as the free one, whose search covers it."""
    if pinned.stack not in stacks_of(free) or is_said(free, pinned, pin):
        return False  # the answer names a need that only a search with --stack meets
    return sure(pinned) or (
        not sure(free) and pinned.memory.fits and pinned.memory.fit_chance >= free.memory.fit_chance
    )


def gain_of(free: Estimate, pinned: Figures) -> float:
    """Share of the step that a pin saves."""
    return 1 - pinned.step.seconds / free.step.seconds


def better(free: Estimate, pinned: Figures, pin: dict[str, Any]) -> bool:
    """Whether a pinned answer fits as likely as the free one and beats it."""
    surer = sure(pinned) and not sure(free)
    return comparable(free, pinned, pin) and (gain_of(free, pinned) > TOLERANCE or surer)


# options that a search leaves open, by the words with which its answer says so
_SAID_BY = {
    "cp": "ranks (--cp)",
    "etp": "ranks (--etp)",
    "offload": "--search-offload",
    "cuda_graphs": "--cuda-graphs",
    "expandable_segments": "--expandable-segments",
}
_MOST_SPLIT = 8  # ranks that a search tries to split every expert over
_HOLD_EXPERTS = ("mlp", "layer", "full")  # scopes of CUDA graphs


def is_said(free: Estimate, pinned: Figures, pin: dict[str, Any]) -> bool:
    """Whether the answer without the pin says that it does not search this."""
    sentence = " ".join(free.search.not_searched)
    ((name, value),) = pin.items()
    word = str(value).partition(":")[0]
    on_request = any(f"--{name} {text}({pinned.stack})" in sentence for text in (f"{word} ", ""))
    if name == "cuda_graphs" and word not in _HOLD_EXPERTS:
        return False
    if name == "etp" and value <= _MOST_SPLIT:
        return False
    if name == "cp" and pinned.layout.cp <= longest_context(_tokens(pinned)):
        return False
    return on_request or _SAID_BY.get(name, "?") in sentence


def _tokens(figures: Figures) -> int:
    """Tokens of a sequence."""
    return round(figures.tokens_per_step / figures.layout.global_batch)


def stacks_of(estimate: Estimate) -> set[str]:
    """Stacks that were searched for an answer."""
    kept = [text for text in estimate.search.not_searched if text.startswith("stacks other than ")]
    names = kept[0].removeprefix("stacks other than ").split(" (")[0].split(", ")
    return {estimate.stack.id, *names}


def trial(given: dict[str, Any], each: Iterator[dict[str, Any]]) -> Trial | None:
    """The answers of a request without and with these pins; None where it has no answer."""
    try:
        free = api.estimate(api.read_options(given), brief=True)
    except PlanError:
        return None
    batch = {"global_batch": free.layout.global_batch}
    known = [(pin, options) for pin in each if (options := readable({**given, **batch, **pin}))]
    points = answers([options for _, options in known], reasons=False)
    pinned = [
        Pinned(
            pin,
            point.report.step.seconds,
            gain_of(free, point.report),
            comparable(free, point.report, pin),
            better(free, point.report, pin),
        )
        for (pin, _), point in zip(known, points, strict=True)
        if point.report is not None
    ]
    return Trial(given, free, pinned)


assert set(ALL) <= set(rows(Options))
assert set(LAYOUT) - set(ALL) == {"dp"}
