"""nanotron: `train_step_logs` of src/nanotron/trainer.py."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import (
    MIB,
    MS,
    NUMBER,
    WHOLE,
    MemoryKind,
    Reader,
    Step,
    fields,
    positive,
)

_NUMBER = re.compile(rf"iteration:\s*({WHOLE})")
_PEAK = re.compile(rf"[Pp]eak (allocated|reserved):?\s*({NUMBER})\s*MiB")
_KINDS: dict[str, MemoryKind] = {"allocated": "allocated", "reserved": "reserved"}


class Nanotron(Reader):
    """`iteration: 10 / 100 | consumed_tokens: 5.24M | elapsed_time_per_iteration_ms: 1.2K |
    tokens_per_sec: 436K | tokens_per_sec_per_gpu: 54.5K | global_batch_size: 256 | lm_loss: 7.1 |
    model_tflops_per_gpu: 402`: large numbers are printed in short, with three digits."""

    TITLE = "nanotron"
    MARKS: ClassVar = (b"elapsed_time_per_iteration_ms:", b"eak allocated", b"Saving checkpoint at")

    def __init__(self) -> None:
        super().__init__()
        self.log.flops = "the whole score matrix, as nanotron's model_tflops"
        self.log.notes.append(
            "times and rates are printed with three digits: a step is known to half a per cent"
        )

    def line(self, text: str) -> None:
        if "eak allocated" in text:
            for kind, value in _PEAK.findall(text):
                self.log.keep_peak(_KINDS[kind], (positive(value) or 0.0) * MIB)
        elif "Saving checkpoint" in text:
            self.event("checkpoint")
        else:
            self._step(text)

    def _step(self, text: str) -> None:
        printed = dict(fields(text))
        seconds = positive(printed.get("elapsed_time_per_iteration_ms", ""))
        if seconds is None:
            return
        at = _NUMBER.search(text)
        self.state("global_batch", positive(printed.get("global_batch_size", "")))
        self.log.steps.append(
            Step(
                number=int(at[1]) if at else None,
                seconds=seconds * MS,
                tokens_per_s=positive(printed.get("tokens_per_sec", "")),
                tokens_per_gpu=positive(printed.get("tokens_per_sec_per_gpu", "")),
                tflops=positive(printed.get("model_tflops_per_gpu", "")),
            )
        )
