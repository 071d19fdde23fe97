"""ms-swift: logging.jsonl, and the same as a dictionary on the terminal
(swift/trainers/callback.py)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import GIB, NUMBER, WHOLE, Reader, positive

_QUOTED = r"""["']: ["']?"""
_SPEED = re.compile(rf"train_speed\((s/it|iter/s)\){_QUOTED}({NUMBER})")
_AT = re.compile(rf"(?:max_steps\]?|iteration){_QUOTED}({WHOLE})/")
_MEMORY = re.compile(rf"memory\(GiB\){_QUOTED}({NUMBER})")


class MsSwift(Reader):
    """`{"loss": 1.85, "memory(GiB)": 15.83, "train_speed(iter/s)": 0.218112, "epoch": 0.97,
    "global_step/max_steps": "60/61", "elapsed_time": "4m 34s"}`: highest bytes reserved, and the
    mean speed since the start, of which two lines tell the steps between them."""

    TITLE = "ms-swift"
    MARKS: ClassVar = (b"train_speed(", b"eval_runtime")

    def line(self, text: str) -> None:
        speed, at, memory = _SPEED.search(text), _AT.search(text), _MEMORY.search(text)
        if "eval_runtime" in text:
            self.event("evaluation")
        elif speed and at and (value := positive(speed[2])):
            if memory:
                self.log.keep_peak("reserved", (positive(memory[1]) or 0.0) * GIB)
            mean = value if speed[1] == "s/it" else 1 / value
            self.clocked(int(at[1]), mean * int(at[1]))
