"""Questions of owners of a few GPUs, each answered by a command."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from typing import Any

from pages.text import ROOT, percent, run, table
from planner.units import show, span

_DAY_S = 86400.0
# docs/data/peers_tuning.csv: calculators as their sources run, and tables as they are published;
# GB of a table are converted to GiB
_PEERS = {
    "zhebrak": "zhebrak/llm-cluster-simulator (1db1341)",
    "gpu_poor": "RahulSChand/gpu_poor (ad2fc0e)",
    "transformer_math": "EleutherAI/cookbook, calc_transformer_mem (827ee3b)",
    "unsloth": "Unsloth's table of requirements",
    "llama_factory": "LLaMA-Factory's table of hardware (ff6d4d12e)",
}
_8B, _CARD = "--model llama-3.1-8b", "--gpu rtx4090"
_DATA = "--examples 10k --length-mean 500 --seq-len 2048"
# of one method each, or of reinforcement learning
_QUESTIONS = (
    ("QLoRA of 8B on a 4090", f"tune {_8B} {_CARD} --method qlora {_DATA}"),
    (
        "QLoRA of 70B on 48 GB, 1,024 tokens",
        "tune --model llama-3.1-70b --gpu l40s --method qlora"
        " --examples 10k --length-mean 500 --seq-len 1024",
    ),
    ("LoRA of 8B on a 4090", f"tune {_8B} {_CARD} --method lora {_DATA}"),
    ("all weights of 8B on 24 GB", f"tune {_8B} {_CARD} --method full-paged {_DATA}"),
    ("all weights of 8B on one 80 GB card", f"tune {_8B} --gpu h100 --method full-8bit {_DATA}"),
    (
        "LoRA of 70B on four 80 GB cards",
        f"tune --model llama-3.1-70b --gpu h100 --gpus 4 --method lora {_DATA}",
    ),
    (
        "the largest model whose weights are all tuned on eight of them",
        f"tune {_8B} --gpu h100 --gpus 8 --method full-8bit --largest {_DATA}",
    ),
    (
        "DPO of 8B with LoRA on one 80 GB card",
        f"tune {_8B} --gpu h100 --method lora --task dpo {_DATA}",
    ),
    (
        "the same LoRA of 8B, each batch padded to its longest example",
        f"tune {_8B} {_CARD} --method lora --packing longest {_DATA}",
    ),
    ("GRPO of 7B on eight H100", "rl --model qwen2.5-7b --gpu h100 --gpus 8"),
)


def ten() -> str:
    """A line per question: the answer, and the command that gives it."""
    rows = []
    for question, command in _QUESTIONS:
        status, out, _ = run(f"dpplan {command} --json")
        document = json.loads(out)
        answer = _of_method(document) if command.startswith("tune") else _of_step(document)
        rows.append([question, answer if status in (0, 3) else "refused", f"`dpplan {command}`"])
    return table(["question", "answer", "command"], rows)


def peers() -> str:
    """Answers of other calculators to the same questions; blank where one has none."""
    answers: dict[str, dict[str, str]] = defaultdict(dict)
    with (ROOT / "docs" / "data" / "peers_tuning.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            took = line["run_s"] and f", {show(float(line['run_s']) / _DAY_S, 'days')}"
            answers[line["question"]][line["tool"]] = f"{line['memory_gib']} GiB{took}"
    rows = [
        [question, *(answers[question].get(tool, "") for tool in _PEERS)]
        for question, _ in _QUESTIONS
    ]
    return table(["question", *_PEERS.values()], rows)


def _of_method(document: dict[str, Any]) -> str:
    """Whether the one method fits, how far it goes, and what the run takes."""
    row = document["methods"][0]
    memory, model = row["memory"], row["largest_model"]
    if memory is None:
        return f"no: {row['why']}"
    chance = f"chance {percent(memory['fit_chance'], 0)}"
    cells = [f"{memory['verdict']} ({chance}), {show(memory['device_bytes'], 'B')}"]
    if model is not None:
        return f"{model['title']}, of the catalogue"
    if row["longest_context"]:
        cells.append(f"up to {row['longest_context']:,} tokens")
    if row["fits"]:
        low, high = row["run_low_s"] / _DAY_S, row["run_high_s"] / _DAY_S
        time = f"{show(row['run_s'] / _DAY_S, 'days')} ({span(low, high, 'days')})"
        cells.append(f"{time}, {show(row['cost_usd'], 'USD')}")
    return "; ".join(cells)


def _of_step(document: dict[str, Any]) -> str:
    """Whether a step of reinforcement learning fits, and its time."""
    fits = "fits" if document["fits"] else "does not fit"
    ends = span(document["step_low_s"], document["step_high_s"], "s")
    return f"{fits}; {show(document['step_s'], 's')} a step ({ends})"
