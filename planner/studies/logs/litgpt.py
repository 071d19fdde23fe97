"""LitGPT: lines of pretrain.py and finetune/ (Lightning-AI/litgpt@26857050)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import MS, NUMBER, WHOLE, Reader, Step, positive

_LINE = re.compile(rf"\biter ({WHOLE}) step ({WHOLE}) \|.* iter time: ({NUMBER}) ms")


class LitGpt(Reader):
    """`Epoch 1 | iter 8 step 2 | loss train: 1.234, val: n/a | iter time: 32.45 ms (step) ...`: an
    iteration is one micro-batch, and a step has as many iterations as micro-batches."""

    TITLE = "LitGPT"
    MARKS: ClassVar = (b" iter time: ", b"Saving checkpoint to")

    def __init__(self) -> None:
        super().__init__()
        self._times: list[float] = []

    def line(self, text: str) -> None:
        match = _LINE.search(text)
        if match is None:
            if "Saving checkpoint to" in text:
                self.event("checkpoint")
            return
        seconds, count = positive(match[3]), int(match[2])
        if seconds is not None:
            self._times.append(seconds * MS)
        if "(step)" in text and count and self._times:
            each = max(1, round(int(match[1]) / count))
            self.log.steps.append(Step(count, each * sum(self._times) / len(self._times)))
            self._times.clear()
