"""NeMo on Lightning: its progress line, and the bar of older releases."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import NUMBER, WHOLE, MemoryKind, Reader, Step, positive

_SECONDS = re.compile(rf"train_step_timing in s[:=]\s*({NUMBER})")
_STEP = re.compile(rf"global_step[:=]\s*({WHOLE})")
_BATCH = re.compile(rf"global_batch_size[:=]\s*({WHOLE})")
_MEMORY = re.compile(rf"max_memory_(allocated|reserved)[:=]\s*({WHOLE})")
_KINDS: dict[str, MemoryKind] = {"allocated": "allocated", "reserved": "reserved"}
_TFLOPS = re.compile(rf"(?i)tflops_per_(?:sec_per_)?gpu[:=]\s*({NUMBER})")


class Nemo(Reader):
    """`Training epoch 0, iteration 5/99 | lr: 6e-06 | global_batch_size: 512 | global_step: 5 |
    max_memory_reserved: 57466159104 | reduced_train_loss: 11.03 | train_step_timing in s: 7.126 |
    consumed_samples: 3072`"""

    TITLE = "NeMo"
    MARKS: ClassVar = (b"train_step_timing in s", b"Validation: iteration", b"Saving checkpoint")

    def __init__(self) -> None:
        super().__init__()
        self.log.flops = "the whole score matrix, as NeMo counts"

    def line(self, text: str) -> None:
        seconds = _SECONDS.search(text)
        if seconds is None:
            self.event("evaluation" if "Validation" in text else "checkpoint")
            return
        value = positive(seconds[1])
        if value is None:
            return
        step, batch, tflops = _STEP.search(text), _BATCH.search(text), _TFLOPS.search(text)
        if batch:
            self.state("global_batch", positive(batch[1]))
        for kind, amount in _MEMORY.findall(text):
            self.log.keep_peak(_KINDS[kind], float(amount))
        at = int(step[1]) if step else None
        if at is not None and self.log.steps and self.log.steps[-1].number == at:
            self.log.steps.pop()  # a bar is drawn again
        self.log.steps.append(
            Step(number=at, seconds=value, tflops=positive(tflops[1]) if tflops else None)
        )
