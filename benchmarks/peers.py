"""Facts of fine-tuning (benchmarks.facts) put to other tools: Unsloth's and LLaMA-Factory's tables
of hardware (docs/data/peers_tables.csv) and fitcheck-llm, beside dpplan on the same facts.

    python -m benchmarks.peers                      # errors by class, from the record
    python -m benchmarks.peers --rows               # every fact
    python -m benchmarks.peers --fitcheck PYTHON    # ask fitcheck-llm again: a Python that has it

A table is read between the sizes that it lists, and shared by the GPUs of a fact. fitcheck-llm is
for one GPU and AdamW; its answers are kept in docs/data/peers_facts.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import facts
from benchmarks.facts import GIB, Answered
from planner.estimate import Estimates
from planner.formulas.params import parameter_count
from planner.specs.model import stated
from planner.specs.options import Options
from planner.views.text import show_blocks
from planner.views.view import Block

DATA = Path(__file__).resolve().parents[1] / "docs" / "data"
TABLES, RECORD = DATA / "peers_tables.csv", DATA / "peers_facts.csv"
ADAPTER = Path(__file__).parent / "planners" / "fitcheck_llm.py"
FITCHECK, DPPLAN = "fitcheck-llm 0.3.1", "dpplan"
TITLES = {"unsloth": "Unsloth's table", "llama_factory": "LLaMA-Factory's table"}
FULL, FULL_16, LORA, QLORA = "full", "full in 16 bit", "lora", "qlora"
_CLASSES = {FULL: FULL, FULL_16: FULL, LORA: LORA, QLORA: QLORA}
_FIELDS = {
    "hidden": "hidden_size",
    "layers": "num_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_kv_heads",
    "ffn_hidden": "intermediate_size",
    "head_dim": "head_dim",
}
_SHAPE = frozenset(_FIELDS)
_MODULES = {"all-linear": "q k v o gate up down", "qkv": "q k v"}


@dataclass(frozen=True)
class Asked:
    """A fact with its request and dpplan's answer."""

    answered: Answered
    options: Options

    @property
    def id(self) -> str:
        return self.answered.fact.id

    @property
    def estimates(self) -> Estimates:
        return self.answered.estimates

    @property
    def method(self) -> str:
        """Method of training, by its name in the tables."""
        if self.options.lora is None:
            return FULL_16 if self.options.state_precision == "bf16" else FULL
        return LORA if self.options.base_precision in (None, "as-trained") else QLORA

    @property
    def capacity_gib(self) -> float:
        return float(self.estimates.plan.cluster.gpu.usable_memory) / GIB


def requests() -> list[Asked]:
    """The facts that have a command of `dpplan estimate`."""
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for each in facts.answers(facts.read()):
            if isinstance(each, Answered):
                out.append(Asked(each, each.fact.options(Path(folder))))
    return out


def of_tables(each: Asked) -> dict[str, float]:
    """GiB on a GPU by table; tables without the method are left out."""
    listed: dict[str, list[tuple[float, float]]] = {}
    with TABLES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["method"] == each.method:
                size = (float(row["parameters_b"]), float(row["memory_gb"]))
                listed.setdefault(row["tool"], []).append(size)
    billions = parameter_count(each.estimates.plan.model) / 1e9
    out = {}
    for tool, sizes in listed.items():
        x, y = np.array([(0.0, 0.0), *sizes]).T
        gb = float(np.interp(billions, x, y))
        out[TITLES[tool]] = gb * 1e9 / GIB / each.options.gpus
    return out


def request(each: Asked) -> dict[str, Any] | None:
    """A fact as fitcheck-llm takes it; None where it cannot: several GPUs, another optimizer or
    loss, mixtures of experts."""
    options, plan = each.options, each.estimates.plan
    other = (options.optimizer != "adam", options.task not in (None, "sft"), plan.model.routed)
    shape = stated(plan.model)
    if not shape.keys() >= _SHAPE:
        return None
    if options.gpus != 1 or any(other) or not options.micro_batch:
        return None
    quantised = each.method == QLORA
    if quantised and not str(options.base_precision).startswith(("nf4", "gptq")):
        return None
    model = plan.model
    return {
        "model": {
            "name": model.name,
            "num_params": int(parameter_count(model)),
            "tie_word_embeddings": model.tied_embeddings,
            "vocab_size": model.vocab,
            **{theirs: int(shape[ours]) for ours, theirs in _FIELDS.items()},
        },
        "training": {
            "quantization": "nf4" if quantised else "none",
            "optimizer_dtype": "bf16" if each.method == FULL_16 else "fp32",
            "batch_size": options.micro_batch,
            "seq_len": plan.training.seq_len,
            "lora_rank": options.lora,
            "lora_targets": _modules(str(options.lora_targets)),
            "grad_checkpoint": options.recompute != "none",
            "flash_attn": True,
        },
        "vram_mib": int(each.capacity_gib * 1024),
    }


def _modules(targets: str) -> list[str]:
    """Names of the projections that have adapters."""
    names = targets.split("+") if "_proj" in targets else []
    short = " ".join(names).replace("_proj", "") or _MODULES.get(targets, "q k v o")
    return [f"{name}_proj" for name in short.split()]


def ask_fitcheck(python: str, requested: Sequence[Asked]) -> None:
    """Write the record of fitcheck-llm's answers."""
    able = [(each, r) for each in requested if (r := request(each)) is not None]
    text = json.dumps([r for _, r in able])
    ran = subprocess.run([python, ADAPTER], input=text, capture_output=True, text=True, check=True)
    with RECORD.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["fact", "tool", "memory_gib", "settings"])
        for (each, r), mib in zip(able, json.loads(ran.stdout), strict=True):
            if mib is not None:
                settings = json.dumps(r["training"] | {"lora_targets": len(_targets(r))})
                lines.writerow([each.id, FITCHECK, f"{mib / 1024:.2f}", settings])


def _targets(requested: dict[str, Any]) -> list[str]:
    targets: list[str] = requested["training"]["lora_targets"]
    return targets


def recorded() -> dict[str, float]:
    """GiB of fitcheck-llm by fact."""
    with RECORD.open(encoding="utf-8", newline="") as file:
        return {row["fact"]: float(row["memory_gib"]) for row in csv.DictReader(file)}


def figures(each: Asked, kept: dict[str, float]) -> dict[str, float]:
    """GiB on a GPU by tool."""
    out = of_tables(each)
    if each.id in kept:
        out[FITCHECK] = kept[each.id]
    return out


def errors(requested: Sequence[Asked], kept: dict[str, float]) -> Block:
    """Errors of peaks by class and tool, and dpplan's on the facts that the tool answers; of the
    verdicts, how many are right."""
    rows = []
    for name in (LORA, QLORA, FULL):
        members = [each for each in requested if _CLASSES[each.method] == name]
        for tool in (*TITLES.values(), FITCHECK):
            answered = [(each, f[tool]) for each in members if tool in (f := figures(each, kept))]
            measured = [(e, gib) for e, gib in answered if e.answered.error is not None]
            if not measured:
                continue
            theirs = [gib / (e.answered.fact.memory_gib or gib) - 1 for e, gib in measured]
            ours = [e.answered.error or 0.0 for e, _ in measured]
            right = sum((gib <= e.capacity_gib) == _ran(e) for e, gib in answered)
            rows.append(
                [
                    name,
                    tool,
                    f"{len(measured)}",
                    *(f"{100 * f(map(abs, theirs)):.1f}" for f in (statistics.median, _mean)),
                    *(f"{100 * f(map(abs, ours)):.1f}" for f in (statistics.median, _mean)),
                    f"{right} of {len(answered)}",
                    f"{sum(e.answered.right for e, _ in answered)}",
                ]
            )
    header = ["trained", "tool", ">peaks", ">median %", ">mean %", ">dpplan's", ">mean %"]
    return Block(
        "Peaks of facts: other tools, and dpplan on the same ones",
        header=[*header, ">verdicts right", ">dpplan's"],
        rows=rows,
    )


def _mean(values: Any) -> float:
    return statistics.mean(list(values))


def _ran(each: Asked) -> bool:
    return each.answered.fact.verdict != "oom"


def listed(requested: Sequence[Asked], kept: dict[str, float]) -> Block:
    """Every fact with what each tool says of it, GiB."""
    tools = (*TITLES.values(), FITCHECK)
    rows = []
    for each in requested:
        gib = figures(each, kept)
        fact, ours = each.answered.fact, each.answered.peak_gib
        rows.append(
            [
                each.id,
                each.method,
                "-" if fact.memory_gib is None else f"{fact.memory_gib:g}",
                "-" if ours is None else f"{ours:.1f}",
                *(f"{gib[tool]:.1f}" if tool in gib else "-" for tool in tools),
            ]
        )
    header = ["fact", "trained", ">GiB", f">{DPPLAN}", *(f">{tool}" for tool in tools)]
    return Block("Every fact", header=header, rows=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--fitcheck", metavar="PYTHON")
    given = parser.parse_args()
    requested = requests()
    if given.fitcheck:
        ask_fitcheck(given.fitcheck, requested)
    kept = recorded()
    blocks = [errors(requested, kept)]
    blocks += [listed(requested, kept)] if given.rows else []
    show_blocks(blocks, plain=True)


if __name__ == "__main__":
    main()
