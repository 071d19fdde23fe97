"""Every command that an answer prints beside a number gives that number again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import dpplan

from benchmarks.published_hours import hours
from planner import api
from planner.inputs import catalog
from planner.specs.documents.estimate import Estimate
from planner.specs.model import ModelSpec
from planner.specs.options import Options, options_of_command

DENSE = "--model llama-3.1-8b --gpu h100 --gpus 16 --global-batch 128"
MIXED = "--model mixtral-8x7b --gpu h100 --gpus 32 --global-batch 256"
MOST = 5  # commands of an answer that are run
ANSWERS = (
    f"estimate {DENSE} --top 4 --advice 9 --require fits",
    f"estimate {MIXED} --where 'ep >= 2' --headroom 10%",
    f"search {DENSE} --objective memory --top 4",
    f"search {MIXED} --search-offload --top 3 --where 'tp <= 2'",
    "search --model llama-2-13b --gpu rtx4090 --gpus 2 --global-batch 8",
    f"compare {DENSE} --vary stack=torchtitan,deepspeed --vary zero=2,3",
    # without the search of kernels and of collectives, which the commands above name
    *(
        f"{words} --stack-defaults"
        for words in (
            "estimate --model llama-3.1-70b --gpu a100 --gpus 256 --uneven-stages",
            "estimate --model llama-2-13b --gpu rtx4090 --gpus 4 --global-batch 16 --advice 12",
            "estimate --model qwen3-0.6b --gpu a100 --gpus 2 --grad-accum 2 --compile",
            "estimate --model qwen3-8b --gpu a100 --gpus 8 --lora 16 --length-mean 700"
            " --packing packed",
            "estimate --model falcon-h1-7b --gpu h100 --gpus 8 --precision fp8"
            " --cuda-graphs none --fused-kernels",
            f"compare {MIXED} --vary tp=1,2,4",
            "recommend batch --model llama-3.1-8b --gpu h100 --gpus 16 --seq-len 4096",
            "recommend cluster --model gpt2-xl --tokens 10B --days 30 --gpu l40s --max-gpus 16",
            f"recommend bandwidth {DENSE}",
            "recommend model --gpu h100 --gpus 8 --tokens 100B --days 20 --stack pytorch-fsdp",
            "tune --model qwen2.5-0.5b --gpu rtx4090 --seq-len 1024 --method lora --largest",
            "rl --model qwen2.5-7b --gpu h100 --gpus 8",
        )
    ),
)


def commands_in(entry: Any) -> Iterator[tuple[str, float, float | None]]:
    """(command, step seconds, device bytes if given) of a document and its nested entries."""
    if isinstance(entry, list):
        for item in entry:
            yield from commands_in(item)
    if not isinstance(entry, dict):
        return
    step, memory = entry.get("step") or {}, entry.get("memory") or {}
    seconds = entry.get("step_seconds") or step.get("seconds") or entry.get("step_s")
    size = entry.get("device_bytes") or memory.get("device_bytes")
    for name in ("command", "pick"):
        if str(entry.get(name)).startswith("dpplan estimate") and seconds and "phases" not in entry:
            yield entry[name], seconds, size
    for item in entry.values():
        yield from commands_in(item)


def estimate_of(command: str) -> Estimate:
    given = options_of_command(command, Options, "estimate")
    return api.estimate(api.read_options(given), brief=True)


@pytest.mark.parametrize("words", ANSWERS)
def test_a_printed_command_gives_its_number(words: str) -> None:
    answer = dpplan(*shlex.split(words), "--json")
    assert answer.status in (0, 3), answer.stderr
    document = list(dict.fromkeys(commands_in(answer.json())))
    assert document
    for command, seconds, size in document[:: -(-len(document) // MOST)]:
        again = estimate_of(command)
        assert again.step.seconds == pytest.approx(seconds, rel=1e-6), command
        if size is not None:
            assert again.memory.device_bytes == pytest.approx(size, rel=1e-6), command


ROOT = Path(__file__).parents[1]
HOURS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "log" / "search.md").read_text().splitlines()
    if line.count("|") == 9 and line.split("|")[1].strip() in catalog.ids("models")
]


def test_published_hours_are_those_of_the_models() -> None:
    assert {"deepseek-v3", "llama-3.1-405b", "llama-4-scout", "gpt-oss-120b"} <= {
        row[0] for row in HOURS
    }
    runs = {model.name: model.published.run for model in catalog.load_all("models", ModelSpec)}
    for name, gpus, _, published, *_ in HOURS:
        run, (count, gpu) = runs[name], gpus.split(" ")
        assert run is not None
        assert run.gpu_hours == pytest.approx(float(published.split()[0]) * 1e6, rel=0.01), name
        assert run.gpus in (None, int(count.replace(",", ""))), name
        assert str(run.gpu).startswith(gpu), name


@pytest.mark.parametrize("name", ["llama-7b", "llama-3.1-405b"])
def test_hours_of_picks_are_those_of_the_table(name: str) -> None:
    (row,) = (row for row in HOURS if row[0] == name)
    model = next(each for each in catalog.load_all("models", ModelSpec) if each.name == name)
    taken = hours(model, int(row[1].split()[0].replace(",", "")), float(row[2]) * 1e12)
    assert taken == pytest.approx(float(row[4].split()[0]) * 1e6, rel=0.01)
