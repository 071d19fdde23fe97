"""DeepSpeed: its ThroughputTimer (deepspeed/utils/timer.py) and its pipeline engine
(deepspeed/runtime/pipe/engine.py)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import GIB, NUMBER, WHOLE, Reader, Step, positive

_STEP = re.compile(rf"global_step=({WHOLE})")
_RATE = re.compile(rf"CurrSamplesPerSec=({NUMBER})")
# of releases before 2022: a mean since the second step
_OLD = re.compile(rf"/({WHOLE}), SamplesPerSec=({NUMBER})")
_PEAK = re.compile(rf"MaxMemAllocated=({NUMBER})GB")
_PIPE = re.compile(
    rf"steps: ({WHOLE}) loss: \S+ iter time \(s\): ({NUMBER}) samples/sec: ({NUMBER})"
)


class DeepSpeed(Reader):
    """`epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.02,
    CurrSamplesPerSec=25.70, MemAllocated=4.32GB, MaxMemAllocated=38.49GB`: samples of all ranks,
    GB of 2^30 bytes."""

    TITLE = "DeepSpeed"
    MARKS: ClassVar = (b"SamplesPerSec=", b" iter time (s): ", b"Saving model checkpoint")

    def line(self, text: str) -> None:
        if match := _PIPE.search(text):
            self.log.steps.append(
                Step(int(match[1]), positive(match[2]), samples_per_s=positive(match[3]))
            )
            return
        if old := _OLD.search(text):
            self.log.smoothed = True
            self.log.steps.append(Step(int(old[1]), samples_per_s=positive(old[2])))
            return
        rate = _RATE.search(text)
        if rate is None:
            self.event("checkpoint")
            return
        if peak := _PEAK.search(text):
            self.log.keep_peak("allocated", (positive(peak[1]) or 0.0) * GIB)
        step = _STEP.search(text)
        self.log.steps.append(
            Step(number=int(step[1]) if step else None, samples_per_s=positive(rate[1]))
        )
