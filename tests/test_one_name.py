"""One name, one number: wherever a document or its text names a figure of a layout, the number is
the same; parts of an answer do not contradict its verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from command import dpplan

Words = tuple[object, ...]
PIPELINE: Words = (
    "--model",
    "llama-2-13b",
    "--gpu",
    "a100",
    "--gpus",
    32,
    "--stack",
    "megatron-core",
)
PIPELINE += ("--tp", 2, "--pp", 4, "--zero", 1, "--micro-batch", 1, "--recompute", "full")
PIPELINE += ("--stack-defaults",)
EXPERTS: Words = (
    "--model",
    "mixtral-8x7b",
    "--gpu",
    "h100",
    "--gpus",
    64,
    "--stack",
    "megatron-core",
)
EXPERTS += ("--pp", 4, "--ep", 8, "--tp", 1, "--recompute", "full", "--micro-batch", 1)
EXPERTS += ("--stack-defaults",)
PLAIN = ("--stack", "pytorch-fsdp", "--stack-defaults")
FREE = ("--model", "gpt2", "--gpu", "h100", "--gpus", 8)
SMALL = (*FREE, *PLAIN)
CARD: Words = ("--model", "llama-3.1-8b", "--gpu", "rtx4090", "--gpus", 2)
CARD += ("--stack", "megatron-core", "--stack-defaults")
NODE: Words = (
    "--model",
    "llama-2-7b",
    "--gpu",
    "rtx6000-ada",
    "--gpus",
    8,
    "--stack",
    "megatron-core",
)
NODE += ("--pp", 4, "--tp", 1, "--stack-defaults")
BATCH, RUN = ("--global-batch", 64), ("--global-batch", 64, "--tokens", "10B")
COMMANDS: dict[str, Words] = {
    "estimate": ("estimate", *PIPELINE, *RUN),
    "estimate, experts": ("estimate", *EXPERTS, *RUN),
    "estimate, free": ("estimate", *FREE, *RUN),
    "estimate, spot": ("estimate", *PIPELINE, *RUN, "--market", "spot"),
    "estimate, project": ("estimate", *PIPELINE, *RUN, "--as", "project"),
    "search": ("search", *SMALL, *RUN, "--top", 3),
    "search, pipeline": ("search", *PIPELINE, *RUN, "--top", 2),
    "schedule": ("schedule", *PIPELINE, *BATCH),
    "schedule, experts": ("schedule", *EXPERTS, *BATCH),
    "offload": ("recommend", "offload", *SMALL, *BATCH),
    "offload, nothing fits": ("recommend", "offload", *CARD, *BATCH),
    "offload, refused": ("recommend", "offload", *NODE, *BATCH),
    "bandwidth": ("recommend", "bandwidth", *PIPELINE, *BATCH, "--jobs", 1),
    "batch": ("recommend", "batch", *SMALL, "--jobs", 1),
    "cluster": ("recommend", "cluster", *FREE[:4], *PLAIN, *RUN, "--max-gpus", 32, "--jobs", 1),
    "compare": ("compare", *SMALL, "--tokens", "10B", "--vary", "global_batch=64,128", "--jobs", 1),
    "time to target": ("batch", *FREE[:4], *PLAIN, *RUN, "--sweep", "gpus=8..16"),
}
# numbers of a layout and of a run with it, which have no other meaning under this name
NAMES = {
    *("step_seconds", "device_bytes", "headroom_bytes", "fit_chance", "mfu", "hfu", "goodput"),
    *("tokens_per_s", "tokens_per_s_per_gpu", "days", "cost_usd", "gpu_hours", "energy_kwh"),
    *("days_low", "days_high", "cost_usd_low", "cost_usd_high", "bubble_frac", "mtbf_s"),
}
# what is printed once of the layout taken: a word, and its share
SHARES = ("goodput", "causal MFU", "HFU", "bubble", "idle", "chance to fit")


@cache
def document(name: str) -> Any:
    return dpplan(*COMMANDS[name], "--json").json()


@cache
def printed(name: str) -> str:
    command = COMMANDS[name]
    return dpplan(*command, *(["--full"] if command[0] == "estimate" else [])).stdout


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from objects(part)


def numbers(value: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Names and numbers of an object and of nested objects, except for other layouts."""
    for name, part in value.items():
        if isinstance(part, dict) and "pick" not in part:
            yield from numbers(part)
        elif isinstance(part, int | float) and name in NAMES:
            yield name, part


@pytest.mark.parametrize("name", COMMANDS)
def test_parts_of_a_document_agree_on_a_layout(name: str) -> None:
    """Objects that name the same pick have one number under one name."""
    known: dict[tuple[str, str], float] = {}
    for entry in objects(document(name)):
        if isinstance(entry.get("pick"), str):
            for number, value in numbers(entry):
                first = known.setdefault((entry["pick"], number), value)
                assert value == pytest.approx(first, rel=1e-9), (number, entry["pick"])


@pytest.mark.parametrize("name", [n for n in COMMANDS if n.startswith(("estimate", "schedule"))])
def test_what_is_printed_of_a_layout_has_one_number_under_one_name(name: str) -> None:
    for word in SHARES:
        names = set(re.findall(rf"\b{word} ([\d.]+) ?%", printed(name)))
        names |= set(re.findall(rf"([\d.]+) % (?:of (?:it|that) )?{word}\b", printed(name)))
        assert len(names) <= 1, (word, names)


@pytest.mark.parametrize("name", ["schedule", "schedule, experts"])
def test_a_schedule_is_that_of_its_estimate(name: str) -> None:
    """Idle time in a drawing is called idle, and the bubble is the component of the estimate."""
    result = document(name)
    assert "bubble" not in printed(name)
    step = result["estimate"]["step"]["seconds"]
    around = sum(result["estimate"]["around"].values())
    assert result["step_s"] + around + result["estimate"]["transfers_s"] == pytest.approx(step)


@pytest.mark.parametrize("name", [n for n in COMMANDS if n.startswith("offload")])
def test_a_swap_is_the_verdict_only_where_it_fits_and_is_faster(name: str) -> None:
    """Whole steps are compared; a single layer may be cheaper to swap, and the answer says so."""
    result = document(name)
    choices = {"swap" if choice["link"] else "recompute": choice for choice in result["choices"]}
    fitting = {name: choice["step_seconds"] for name, choice in choices.items() if choice["fits"]}
    assert result["verdict"] == min(fitting, key=fitting.__getitem__, default=None)
    assert ("neither fits" in printed(name)) == (not fitting)
    link = next(link for link in result["links"] if link["id"] == result["host_link"])
    if fitting and link["cheaper"] != result["verdict"]:
        assert ("no swap" if result["refused"] else "a layer by itself") in printed(name)


def test_what_answers_is_among_what_was_tried() -> None:
    """The cheapest cluster is the cheapest of those within the limits, the fastest the fastest; the
    count below its smallest does not answer, and no other costs less."""
    result = document("cluster")
    tried = [entry for kind in result["types"] for entry in kind["tried"] if entry["within"]]
    best = result["answers"]
    assert best["cheapest"]["cost_usd"] == pytest.approx(min(entry["cost_usd"] for entry in tried))
    assert best["fastest"]["days"] == pytest.approx(min(entry["days"] for entry in tried))
    assert best["smallest"]["gpus"] == min(entry["gpus"] for entry in tried)
    for kind in result["types"]:
        if kind["below"] is not None:
            below = next(o for o in kind["tried"] if o["gpus"] == kind["below"]["gpus"])
            assert not below["within"]
