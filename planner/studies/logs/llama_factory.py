"""LLaMA-Factory: trainer_log.jsonl of its LogCallback (src/llamafactory/train/callbacks.py)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import WHOLE, Reader

_AT = re.compile(rf'"current_steps": ({WHOLE})')
_CLOCK = re.compile(r'"elapsed_time": "(?:(\d{1,5}) days?, )?(\d{1,5}):(\d\d):(\d\d)"')
_OF = (86_400.0, 3_600.0, 60.0, 1.0)  # seconds of its places


class LlamaFactory(Reader):
    """`{"current_steps": 10, "total_steps": 93, "loss": 4.169, "lr": 2.25e-06, "epoch": 0.33,
    "percentage": 10.75, "elapsed_time": "0:04:02", "remaining_time": "0:33:29"}`"""

    TITLE = "LLaMA-Factory"
    MARKS: ClassVar = (b'"current_steps":',)

    def __init__(self) -> None:
        super().__init__()
        self.log.notes.append("its clock has whole seconds: steps are means between two lines")

    def line(self, text: str) -> None:
        at, clock = _AT.search(text), _CLOCK.search(text)
        if '"eval_loss"' in text:
            self.event("evaluation")
        elif at and clock:
            parts = zip(clock.groups(), _OF, strict=True)
            self.clocked(int(at[1]), sum(int(part or 0) * unit for part, unit in parts))
