"""Commands that any verb prints: each reproduces the numbers that stand beside it, and keeps all
options except those that its change names."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused

from planner import api
from planner.inputs.options import read_options
from planner.specs.document import plain
from planner.specs.options import (
    LAYOUT,
    Options,
    command_line,
    options_of_command,
    pairs_of_command,
    rows,
)
from planner.verbs import recommend

SMALL = "--model gpt2-xl --gpu a100 --stack pytorch-fsdp --stack-defaults"
DENSE = "--model llama-3.1-8b --gpu h100 --gpus 16 --global-batch 128"
MIXED = "--model mixtral-8x7b --gpu h100 --gpus 32 --global-batch 256"
PLAIN = "--stack-defaults"  # without the search of kernels, which other requests have
# verb by verb; what they print must not depend on what a default would be for another request
REQUESTS = {
    "does not fit": (
        "estimate --model llama-2-7b --gpu rtx4090 --gpus 2 --tp 2 --stack megatron-core"
        f" --no-flash-attention --seq-len 2048 --global-batch 16 {PLAIN}"
    ),
    "default batch": "estimate --model llama-2-7b --gpu a100 --gpus 2 --zero 3 --advice 40"
    f" {PLAIN}",
    "layout fixed": (
        "estimate --model gpt2-xl --gpu a100 --gpus 8 --tp 1 --pp 2 --dp 4 --zero 1 --advice 40"
        f" --where 'recompute != full' --stack megatron-core {PLAIN}"
    ),
    "offload or recompute": f"estimate {SMALL} --gpus 2 --tokens 10B --explain",
    "search": "search --model llama-2-13b --gpus 8 --gpu rtx4090 --zero 1 --global-batch 64"
    f" {PLAIN}",
    "search by memory": f"search {SMALL} --gpus 4 --objective memory --top 1",
    "side by side": (
        "compare --model gpt2-xl --gpus 16 --vary gpu=a100,rtx4090 --tokens 10B"
        f" --stack pytorch-fsdp {PLAIN}"
    ),
    "sweep": f"compare {SMALL} --sweep gpus=4..16 --jobs 1",
    "equal cost": (
        "compare --model gpt2-xl --gpus 8 --vary gpu=rtx4090,a100 --at cost --stack pytorch-fsdp"
        f" {PLAIN}"
    ),
    "cluster": (
        "recommend cluster --model gpt2-xl --gpu a100 --gpu h100 --tokens 10B --days 30"
        f" --max-gpus 16 --jobs 1 --stack pytorch-fsdp {PLAIN}"
    ),
    "bandwidth": f"recommend bandwidth {SMALL} --gpus 16 --jobs 1",
    "how large a batch": f"recommend batch {SMALL} --gpus 4 --jobs 1",
    "how large a model": (
        "recommend model --gpu rtx4090 --model gpt2-xl --seq-len 512 --global-batch 16"
        f" --stack pytorch-ddp --micro-batch 1 --recompute none --jobs 1 {PLAIN}"
    ),
    "time to target": f"batch {SMALL} --sweep gpus=4..8 --global-batch 64 --tokens 10B --jobs 1",
    "stack and kernels searched": f"estimate {DENSE} --top 4 --advice 9 --require fits",
    "experts": f"estimate {MIXED} --where 'ep >= 2' --headroom 10% --stack megatron-core",
    "offloads searched": f"search {MIXED} --search-offload --top 3 --where 'tp <= 2'"
    f" --stack deepspeed {PLAIN}",
    "stacks": f"compare {DENSE} --vary stack=torchtitan,deepspeed --vary zero=2,3",
    "uneven stages": "estimate --model llama-3.1-70b --gpu a100 --gpus 256 --uneven-stages"
    f" --stack megatron-core {PLAIN}",
    "default precision": "estimate --model llama-2-13b --gpu rtx4090 --gpus 4 --global-batch 16"
    f" --advice 12 {PLAIN}",
    "compiled": "estimate --model qwen3-0.6b --gpu a100 --gpus 2 --grad-accum 2 --compile"
    f" --stack torchtitan {PLAIN}",
    "adapters": "estimate --model qwen3-8b --gpu a100 --gpus 8 --lora 16 --length-mean 700"
    f" --packing packed {PLAIN}",
    "hybrid in fp8": "estimate --model falcon-h1-7b --gpu h100 --gpus 8 --precision fp8"
    f" --cuda-graphs none --fused-kernels {PLAIN}",
    "fine-tuning": "tune --model qwen2.5-0.5b --gpu rtx4090 --seq-len 1024 --method lora --largest"
    f" {PLAIN}",
    "reinforcement learning": f"rl --model qwen2.5-7b --gpu h100 --gpus 8 {PLAIN}",
}
_MOST = 4  # commands of a request that are run


def commands_in(node: Any) -> Iterator[tuple[str, dict[str, float]]]:
    """Commands of a document, each with the numbers beside it."""
    if isinstance(node, dict):
        for key in ("command", "pick"):
            if isinstance(node.get(key), str) and "phases" not in node:  # of a whole step of RL
                yield node[key], numbers(node)
        node = list(node.values())
    if isinstance(node, list):
        for entry in node:
            yield from commands_in(entry)


_PLACES = {  # of a number in an estimate, and what an entry of a list calls it
    ("step", "seconds"): "step_seconds",
    ("memory", "device_bytes"): "device_bytes",
    ("run", "days"): "days",
    ("run", "cost_usd"): "cost_usd",
}


def numbers(entry: dict[str, Any]) -> dict[str, float]:
    """Numbers of an entry or of a whole estimate."""
    values = {
        place: entry.get(place, (entry.get(part) or {}).get(name))
        for (part, name), place in _PLACES.items()
    }
    values["step_seconds"] = values["step_seconds"] or entry.get("step_s")
    return {name: value for name, value in values.items() if value is not None}


def answered(command: str) -> dict[str, float]:
    """The numbers of a printed command's answer."""
    words = shlex.split(command)
    assert words[0] == "dpplan"
    assert "\n" not in command
    if words[1] == "estimate":
        given = options_of_command(command, Options, "estimate")
        return numbers(plain(api.estimate(read_options(given), brief=True)))
    answer = dpplan(*words[1:], "--json").json()
    return numbers(answer["top"][0] if words[1] == "search" and answer["top"] else answer)


@cache
def answer_of(name: str) -> Any:
    return dpplan(*shlex.split(REQUESTS[name]), "--json").json()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_printed_command_reproduces_its_numbers(name: str, tmp_path: Path) -> None:
    document = answer_of(name)
    listed = list(commands_in(document))
    assert any(promised for _, promised in listed)
    with contextlib.chdir(tmp_path):
        if shape := (document.get("family") or {}).get("shape"):  # as --model-out writes it
            Path(f"{shape['name']}.toml").write_text(recommend.model_toml(shape), "utf-8")
        for command, promised in listed[:: -(-len(listed) // _MOST)]:
            values = answered(command)
            assert {name: values[name] for name in promised} == pytest.approx(promised, rel=1e-6)


@pytest.mark.parametrize(
    "name", ["does not fit", "default batch", "layout fixed", "offload or recompute"]
)
def test_advice_keeps_what_was_asked(name: str) -> None:
    """Every change keeps the stated options, except those that it names."""
    document = answer_of(name)
    request = options(document["command"])
    for entry in document["advice"]:
        stated, layout, change = options(entry["command"]), entry["layout"], entry["change"]
        for option, value in request.given().items():
            if option in {*entry["changes"], "advice"}:
                continue
            if option in LAYOUT:
                assert value == layout[option] or f"{option} {layout[option]}" in change, change
            elif option == "where" and entry["kind"] == "keep":  # one layout satisfies it
                assert layout["recompute"] != "full"
            else:
                assert getattr(stated, option) == value, (option, change)
        batch = document["layout"]["global_batch"]
        assert layout["global_batch"] == entry["changes"].get("global_batch", batch), change


def options(command: str) -> Options:
    """The request of a printed command."""
    words = shlex.split(command)[2:]
    given: dict[str, Any] = {}
    table = rows(Options)
    while words:
        word = words.pop(0)
        name = word.removeprefix("--").replace("-", "_")
        if name.removeprefix("no_") in table and table[name.removeprefix("no_")].is_switch:
            given[name.removeprefix("no_")] = not name.startswith("no_")
        elif table[name].is_several:
            given.setdefault(name, []).append(words.pop(0))
        else:
            text = words.pop(0)
            given[name] = int(text) if text.isdigit() and int in table[name].types else text
    return read_options(given)


def test_a_command_is_quoted_for_a_shell_on_one_line() -> None:
    request = read_options(
        {
            "model": "my models/a b.toml",
            "gpu": "h100",
            "where": ["tp <= 8", "recompute = none"],
            "price": "2.5 USD/h",
            "flash_attention": False,
        }
    )
    line = command_line(request)
    assert "\n" not in line
    assert options(line) == request
    pairs = pairs_of_command(line, Options, "estimate")
    assert ("flash_attention", "false") in pairs
    assert [text for name, text in pairs if name == "where"] == ["tp <= 8", "recompute = none"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("dpplan search --model gpt2", "is not a command of dpplan estimate"),
        ("rm -rf /", "is not a command of dpplan estimate"),
        ("dpplan estimate --model gpt2 --nothing 1", "'--nothing', which is not an option"),
        ("dpplan estimate 'gpt2", "No closing quotation"),
    ],
)
def test_a_command_of_another_kind_is_not_read_back(line: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        pairs_of_command(line, Options, "estimate")


@pytest.mark.parametrize("words", ["--tp 2 --tp 4", "--search-offload --no-search-offload"])
def test_an_option_that_is_given_twice_is_refused(words: str) -> None:
    refused(dpplan("estimate", *words.split()), words.split()[0], "given twice")


def test_a_switch_may_say_the_same_again() -> None:
    assert (
        dpplan("list", "stacks", "--json", "--json").json()
        == dpplan("list", "stacks", "--json").json()
    )
