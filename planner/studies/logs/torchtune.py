"""torchtune: lines of its metric loggers (torchtune/training/metric_logging.py)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import GIB, NUMBER, WHOLE, MemoryKind, Reader, Step, positive

_NUMBER = re.compile(rf"Step ({WHOLE}) \|")
_RATE = re.compile(rf"\btokens_per_second_per_gpu:({NUMBER})")
_PEAK = re.compile(rf"\bpeak_memory_(alloc|reserved):({NUMBER})")
_KINDS: dict[str, MemoryKind] = {"alloc": "allocated", "reserved": "reserved"}


class Torchtune(Reader):
    """`Step 10 | loss:1.23 lr:2e-05 tokens_per_second_per_gpu:2613.5 peak_memory_active:28.2
    peak_memory_alloc:27.9 peak_memory_reserved:44.7`, GiB; tokens are counted where the loss is."""

    TITLE = "torchtune"
    MARKS: ClassVar = (b" tokens_per_second_per_gpu:",)

    def line(self, text: str) -> None:
        step, rate = _NUMBER.search(text), _RATE.search(text)
        if step is None or rate is None:
            return
        for kind, amount in _PEAK.findall(text):
            self.log.keep_peak(_KINDS[kind], (positive(amount) or 0.0) * GIB)
        self.log.steps.append(Step(number=int(step[1]), tokens_per_gpu=positive(rate[1])))
