"""Hugging Face's Trainer: trainer_state.json, the dictionaries that it prints, and its progress bar
(transformers/trainer.py, trainer_utils.speed_metrics, tqdm)."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from planner.specs.base import PlanError
from planner.studies.logs.contents import (
    GIB,
    MIB,
    NUMBER,
    WHOLE,
    Event,
    Log,
    MemoryKind,
    Reader,
    Step,
    positive,
)
from planner.studies.logs.objects import objects
from planner.studies.logs.stream import Pieces

_DICT = re.compile(r"\{'[^{}]{1,2000}\}")
_BAR = re.compile(rf"\|\s*({WHOLE})/({WHOLE}) \[(?:\d+:)?\d+:\d+<[^,\]]*,\s*({NUMBER})(s/it|it/s)")
_RATE = "train_steps_per_second"
_FLOPS = "6 FLOP per parameter and token, as Hugging Face's total_flos"
# of Axolotl (today's names and older ones) and of Liger's callback
_HELD: dict[str, tuple[MemoryKind, float]] = {
    "memory/max_allocated (GiB)": ("allocated", GIB),
    "memory/device_reserved (GiB)": ("reserved", GIB),
    "memory/max_mem_allocated(gib)": ("allocated", GIB),
    "memory/device_mem_reserved(gib)": ("reserved", GIB),
    "total_peak_memory_allocated_MB": ("allocated", MIB),
    "total_peak_memory_reserved_MB": ("reserved", MIB),
}
_MEAN = "its step time is a mean over the whole run, start and checkpoints included"


class HuggingFace(Reader):
    """`{'loss': 1.2, 'grad_norm': 0.9, 'learning_rate': 2e-05, 'epoch': 0.1}` has no time: steps
    are read from the progress bar, ` 10%|#  | 10/100 [00:35<05:12, 3.47s/it]`, else of the last
    dictionary, `{'train_runtime': 100.0, 'train_steps_per_second': 1.0}`."""

    TITLE = "Hugging Face Trainer"
    MARKS: ClassVar = (
        *(b"'train_runtime'", b"'eval_runtime'", b"'memory/", b"'total_peak_memory"),
        *(b"s/it", b"it/s", b"checkpoint-"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._totals: list[int] = []
        self._last: dict[str, float] = {}
        self._evaluated = 0.0
        self._found: dict[int, list[Step]] = {}

    def line(self, text: str) -> None:
        if "{'" in text:
            self._read_dict(text)
        if bar := _BAR.search(text):
            self._bar(int(bar[1]), int(bar[2]), positive(bar[3]), bar[4])
        elif "Saving model checkpoint" in text:
            self.event("checkpoint")

    def _read_dict(self, text: str) -> None:
        match = _DICT.search(text)
        try:
            with warnings.catch_warnings():  # of Python, about letters behind digits
                warnings.simplefilter("ignore")
                printed = ast.literal_eval(match[0]) if match else {}
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return
        numbers = _numbers(printed)
        _hold(self.log, numbers)
        if "eval_runtime" in numbers:
            self._evaluated += numbers["eval_runtime"]
            self.event("evaluation", numbers["eval_runtime"])
        elif _RATE in numbers and "train_runtime" in numbers:
            self._last = numbers

    def _bar(self, at: int, total: int, value: float | None, unit: str) -> None:
        """A bar of the training loop is the one with most steps: others show evaluation or
        loading."""
        if value is None or not at:
            return
        steps = self._found.setdefault(total, [])
        seconds = value if unit == "s/it" else 1 / value
        if steps and steps[-1].number == at:
            steps.pop()
        steps.append(Step(number=at, seconds=seconds))

    def finish(self) -> None:
        bars = max(self._found.values(), key=len, default=[])
        if bars:
            self.log.steps, self.log.smoothed = bars, True
            self.log.notes.append("its step times are those of a progress bar: running means")
        elif self._last:
            self.log.steps = [_mean(self._last, self._evaluated)]
            self.log.notes.append(_MEAN)


def _hold(log: Log, numbers: Mapping[str, float]) -> None:
    """Memory that an entry names."""
    for name, (kind, unit) in _HELD.items():
        if name in numbers:
            log.keep_peak(kind, numbers[name] * unit)


def _numbers(printed: Any) -> dict[str, float]:
    """The numbers of a dictionary; some releases print them as text."""
    if not isinstance(printed, Mapping):
        return {}
    numbers = {str(name): positive(str(value)) for name, value in printed.items()}
    return {name: value for name, value in numbers.items() if value is not None}


def _mean(printed: Mapping[str, float], evaluated_s: float) -> Step:
    """The mean step of a run, evaluation left out: `train_runtime` holds it."""
    steps = printed["train_runtime"] * printed[_RATE]
    seconds = max(printed["train_runtime"] - evaluated_s, 0.0) / steps
    rate = printed.get("train_tokens_per_second")
    return Step(seconds=seconds or None, tokens_per_s=rate)


def trainer_state(source: Pieces, path: Path, field: str) -> Log:
    """A trainer_state.json. Raises PlanError with line and column where it is broken."""
    log = Log(title="Hugging Face Trainer", flops=_FLOPS)
    evaluated, last = 0.0, {}
    for entry in objects(source, path, field, "trainer_state.json", _HISTORY):
        if "eval_runtime" not in entry and "train_runtime" not in entry:
            continue  # of its millions most have no time
        numbers = _numbers(entry)
        _hold(log, numbers)
        if "eval_runtime" in numbers:
            evaluated += numbers["eval_runtime"]
            log.events.append(Event(0, "evaluation", numbers["eval_runtime"]))
        if "train_runtime" in numbers:
            last = numbers
    steps = last.get("step")
    if not steps:
        where = f"has in {source.partly}" if source.partly else "has"
        remedy = (
            f"{where} no `train_runtime`: the Trainer writes it when the run ends, behind all else;"
            " give the log that it prints, whose bar has step times"
        )
        raise PlanError(field, str(path), remedy)
    last.setdefault(_RATE, steps / last["train_runtime"])
    mean = _mean(last, evaluated)
    log.steps.append(mean._replace(number=int(steps)))
    log.notes.append(_MEAN)
    log.partly = source.partly
    return log


_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
