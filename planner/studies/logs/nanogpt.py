"""nanoGPT: lines of train.py (karpathy/nanoGPT@3adf61e1)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import MS, NUMBER, WHOLE, Reader, Step, positive

_STEP = re.compile(rf"\biter ({WHOLE}): loss \S+, time ({NUMBER})ms")


class NanoGpt(Reader):
    """`iter 10: loss 4.1234, time 135.20ms, mfu 38.10%`: the time covers one whole step."""

    TITLE = "nanoGPT"
    MARKS: ClassVar = (b"ms, mfu ", b": train loss ", b"saving checkpoint to")

    def line(self, text: str) -> None:
        if match := _STEP.search(text):
            seconds = positive(match[2])
            self.log.steps.append(Step(int(match[1]), None if seconds is None else seconds * MS))
        elif "saving checkpoint" in text:
            self.event("checkpoint")
        elif ": train loss " in text and ", val loss " in text:
            self.event("evaluation")
