"""The section of docs/accuracy on fine-tuning: errors by method and by model, and of the numbers
that were read off such runs, fitted again without a model or a method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.studies.waits import NUMBERS, Waiting, fitted, left_out, waiting
from pages.text import percent, table
from planner.ledger import Array
from planner.studies.documents.validate import Run
from planner.studies.validate.errors import errors
from planner.studies.validate.files import read_all

_UNITS = (1e3, 1e3, 1e6)  # of NUMBERS in the table: ms, ms, us
_HEADER = [
    ">models",
    ">timed",
    ">mean",
    ">median",
    ">bias",
    ">peaks",
    ">mean",
    ">median",
    ">out of memory, said",
    ">ran, said to fit",
]


def parts(rows: Sequence[Run]) -> list[str]:
    """Markdown of the section. rows: all shipped runs with a complete recipe."""
    tuned = [row for row in rows if row.task not in ("pre-training", "reinforcement learning")]
    runs = waiting(read_all([]))
    return [
        "## Fine-tuning\n",
        (
            f"{len(tuned)} runs of fine-tuning whose recipe is known, by what they train. Mean and"
            " median of absolute errors are given for step time and of peaks as they were measured"
            " (allocated, reserved, nvidia-smi); the last columns are runs that ran out of memory"
            " and are predicted not to fit, and runs that ran and are predicted to fit.\n"
        ),
        table(["what is trained", *_HEADER], _lines(tuned, lambda row: row.task)),
        "By model, of two runs or more:\n",
        table(["model", *_HEADER], _lines(tuned, lambda row: row.model, least=2)),
        "### Numbers from runs of fine-tuning\n",
        (
            "Of all times three were read off such runs, only those of prime-rl: how long its"
            " trainers make the GPU wait per layer and pass (`layer_idle`), per resident adapter"
            " and matrix (`adapter_idle`) and per token (`token_idle`). No time was fitted to"
            " fms-acceleration, torchtune, Megatron-Bridge or NVIDIA's runs, so that every time of"
            " theirs is a prediction; of peaks one number was read off slopes of fms-acceleration's"
            " LoRA on one, two and four GPUs: two layers are alive in backward where FSDP 1 shards"
            " frozen weights (`frozen_layers` of its stacks). Here the three are fitted again to"
            f" {len(runs)} runs, by"
            " least absolute relative error, without those of a model or of a method, which are"
            " then predicted; a number that nothing else holds is 0 there.\n"
        ),
        table(
            ["left out", *_names(), ">runs", ">mean", ">median", ">worst"],
            [
                ["nothing: as they ship", *_of_all(_shipped(runs), runs)],
                ["nothing: fitted to all", *_of_all(fitted(runs), runs)],
                *_without(runs, lambda run: run.model),
                *_without(runs, lambda run: run.method),
            ],
        ),
        (
            "Mixtures of experts are the two runs of Qwen3-30B-A3B: their adapters loop over"
            " experts, which no number here has.\n"
        ),
    ]


def _lines(rows: Sequence[Run], key: Callable[[Run], str], least: int = 1) -> list[list[object]]:
    groups: dict[str, list[Run]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [
        [name, *_cells(members)]
        for name, members in sorted(groups.items())
        if len(members) >= least
    ]


def _cells(rows: Sequence[Run]) -> list[object]:
    time = errors([row.time_error for row in rows if row.time_error is not None])
    peak = errors([row.memory_error for row in rows if row.memory_error is not None])
    out = [row for row in rows if row.outcome == "oom"]
    ran = [row for row in rows if row.outcome != "oom"]
    return [
        len({row.model for row in rows}),
        time.n,
        *(percent(value) for value in (time.mape, time.median_ape, time.bias)),
        peak.n,
        *(percent(value) for value in (peak.mape, peak.median_ape)),
        f"{sum(not row.predicted_fits for row in out)} of {len(out)}",
        f"{sum(row.predicted_fits for row in ran)} of {len(ran)}",
    ]


def _names() -> list[str]:
    units = ("ms", "ms", "us")
    return [f">`{name}` ({unit})" for name, unit in zip(NUMBERS, units, strict=True)]


def _of_all(numbers: Array, runs: Sequence[Waiting]) -> list[object]:
    return _line(numbers, [run.error(numbers) for run in runs])


def _without(runs: Sequence[Waiting], key: Callable[[Waiting], str]) -> list[list[object]]:
    return [[name, *_line(*fit)] for name, fit in left_out(runs, key).items()]


def _shipped(runs: Sequence[Waiting]) -> Array:
    """The numbers of the stacks, which differ in those that they have."""
    return np.max([run.shipped for run in runs], axis=0)


def _line(numbers: Array, deviations: list[float]) -> list[object]:
    e = errors(deviations)
    return [
        *(f"{each * unit:.3g}" for each, unit in zip(numbers, _UNITS, strict=True)),
        e.n,
        *(percent(value) for value in (e.mape, e.median_ape, e.worst)),
    ]
