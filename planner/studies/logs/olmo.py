"""OLMo before OLMo-core: `log_metrics_to_console` of olmo/train.py (allenai/OLMo@59a53e3f)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import NUMBER, WHOLE, Reader, Step, positive

_STEP = re.compile(rf"\[step=({WHOLE})/")
_RATE = re.compile(rf"\bthroughput/device/(tokens|batches)_per_second=({NUMBER})")


class Olmo(Reader):
    """`[step=10/739328,epoch=0]`, then a line for each metric, such as
    `throughput/device/batches_per_second=0.3012`: steps of a second, a mean of the last ones."""

    TITLE = "OLMo"
    MARKS: ClassVar = (b"[step=", b"throughput/device/", b"Saving checkpoint")

    def __init__(self) -> None:
        super().__init__()
        self.log.smoothed = True
        self._number: int | None = None
        self._tokens: float | None = None

    def line(self, text: str) -> None:
        if step := _STEP.search(text):
            self._number, self._tokens = int(step[1]), None
        elif "Saving checkpoint" in text:
            self.event("checkpoint")
        for kind, printed in _RATE.findall(text):
            rate = positive(printed.replace(",", ""))
            if kind == "tokens":
                self._tokens = rate
            elif rate is not None:
                step_s = 1 / rate
                self.log.steps.append(Step(self._number, step_s, tokens_per_gpu=self._tokens))
