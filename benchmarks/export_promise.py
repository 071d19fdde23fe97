"""Whether a file that `dpplan export` writes plans what was picked, and what its head promises: 40
requests for every target, each written, read back and estimated again.

    python benchmarks/export_promise.py              # a line per pair, then counts; ten minutes
    python benchmarks/export_promise.py --only megatron trl

A pair is equal where seconds of a step and bytes of a GPU agree within `SAME`. Else its outcome is
"said" where the head has the numbers of both the file and the pick, and "differs" where it
has not; "no model" where the target has no word for the model, so that its file states none.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner import api
from planner.formats import recipe as formats
from planner.formats.documents.export import Export
from planner.formats.launch import LAUNCHERS, RUN
from planner.formats.options import ExportOptions
from planner.formats.plan import planned
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Figures

SAME = 0.005  # of a number: what numbers of files are rounded to
GIB = 2**30
REQUESTS = """
qwen2.5-0.5b rtx4090 1
gpt2 rtx3090 1
llama-3.2-1b rtx4090 2
qwen3-4b rtx5090 4
smollm2-1.7b a10g 8
phi-3-mini rtx6000-ada 4
llama-3.1-8b rtx4090 8
mistral-7b l40s 8
gemma-2-9b a100 8
qwen2.5-7b a100-40gb 8
llama-2-13b a100 16
qwen3-14b h100 8
llama-3.1-8b h100 16
llama-3.1-8b mi300x 8
phi-4 h200 8
olmo-2-13b h100 64
mistral-small-24b h100 32
gemma-3-27b h100 32
qwen2.5-32b b200 16
yi-34b a100 64
falcon-40b a100 128
mixtral-8x7b h100 64
mixtral-8x7b mi300x 32
qwen3-30b-a3b h100 32
deepseek-v2-lite a100 16
gpt-oss-20b h100 16
moonlight-16b-a3b h800 64
falcon-h1-7b h100 16
nemotron-h-56b h100 256
qwen3-next-80b-a3b h200 64
llama-3.1-70b a100 2048
llama-3.1-70b h100 512
qwen2.5-72b b200 64
llama-2-70b mi300x 128
qwen3-235b-a22b h100 512
deepseek-v3 h800 2048
kimi-k2 h200 1024
gpt3-175b a100 1024
llama-3.1-405b h100 16384
nemotron-4-340b h100 4096
"""


@dataclass(frozen=True)
class Pair:
    """A request for a target: what the head of its files promises, and what the files plan. why: of
    a pair that is not written or not read."""

    request: str
    target: str
    promised: tuple[float, float] | None = None
    file: tuple[float, float] | None = None
    says: str = ""
    why: str = ""
    head_is_file: bool = False

    @property
    def ratios(self) -> tuple[float, float] | None:
        if self.promised is None or self.file is None:
            return None
        return self.file[0] / self.promised[0], self.file[1] / self.promised[1]

    @property
    def outcome(self) -> str:
        if self.ratios is None:
            return self.why.partition(":")[0]
        if close(*self.ratios):
            return "equal"
        return "said" if self.head_is_file else "differs"

    @property
    def line(self) -> str:
        numbers = ""
        if self.promised and self.file and self.ratios:
            both = (*self.promised, *self.file)
            numbers = " {:9.4g} s {:7.2f} GiB {:9.4g} s {:7.2f} GiB".format(*both)
            numbers += " {:6.3f} {:6.3f}".format(*self.ratios)
        return (
            f"{self.request:30} {self.target:13} {self.outcome:15}{numbers} {self.says}{self.why}"
        )


def close(*ratios: float) -> bool:
    return all(abs(ratio - 1) <= SAME for ratio in ratios)


def requests() -> list[dict[str, Any]]:
    named = [line.split() for line in REQUESTS.split("\n") if line]
    return [{"model": model, "gpu": gpu, "gpus": int(gpus)} for model, gpu, gpus in named]


def written(exported: Export, per_node: bool) -> dict[str, str]:
    """The files of a recipe that say a plan: those that only start it apart."""
    starts = {*LAUNCHERS, *([RUN] if per_node else [])}
    return {file.name: file.text for file in exported.files if file.name not in starts}


def read_back(files: dict[str, str], given: dict[str, Any]) -> tuple[tuple[float, float], str]:
    """Step and memory that files plan on the hardware of a request, and their layout."""
    plan = planned(files, {name: given[name] for name in ("gpu",)})
    if plan.missing or plan.refused:
        raise ValueError(plan.refused or f"no {' and '.join(plan.missing)}")
    report = api.estimate(api.read_options(plan.options), brief=True)
    layout = " ".join(f"{n} {getattr(report.layout, n)}" for n in _SHOWN)
    return (report.step.seconds, report.memory.device_bytes / GIB), layout


_SHOWN = ("tp", "pp", "vpp", "cp", "ep", "zero", "schedule", "recompute", "micro_batch")


def pair(given: dict[str, Any], target: formats.Target) -> Pair:
    request = " ".join(map(str, given.values()))
    try:
        exported = api.export(api.read_options(given), ExportOptions(to=target.kind))
    except PlanError as error:
        named = "no model" if error.field == "--model" else "refused"
        return Pair(request, target.kind, why=f"{named}: {error}")
    lost = {lost_option.option: lost_option.written for lost_option in exported.not_expressible}
    if "model" in lost:
        return Pair(request, target.kind, why="no model")
    promised = numbers_of(exported.picked or exported.predicted)
    try:
        file, layout = read_back(written(exported, target.per_node), given)
    except (PlanError, ValueError) as error:
        return Pair(request, target.kind, promised, why=f"not read: {error}")
    differs = [lost_option.option for lost_option in exported.not_expressible]
    head = numbers_of(exported.predicted)
    is_close = close(head[0] / file[0], head[1] / file[1])
    shown = f"{layout} lost: {' '.join(differs)}"
    return Pair(request, target.kind, promised, file, shown, head_is_file=is_close)


def numbers_of(figures: Figures) -> tuple[float, float]:
    return figures.step.seconds, figures.memory.device_bytes / GIB


def pairs(only: list[str]) -> Iterator[Pair]:
    for given in requests():
        for target in formats.targets():
            if not only or target.kind in only:
                yield pair(given, target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="targets, all by default")
    counts: dict[str, Counter[str]] = {}
    for result in pairs(parser.parse_args().only):
        print(result.line, flush=True)
        counts.setdefault(result.target, Counter())[result.outcome] += 1
    names = sorted({outcome for count in counts.values() for outcome in count})
    print("\n| target |", " | ".join(names), "|")
    for target, count in counts.items():
        print(f"| {target} |", " | ".join(str(count[name]) for name in names), "|")
    whole = sum(counts.values(), Counter())
    print("| all |", " | ".join(str(whole[name]) for name in names), "|")
    return 1 if whole["differs"] or whole["not read"] else 0


if __name__ == "__main__":
    sys.exit(main())
