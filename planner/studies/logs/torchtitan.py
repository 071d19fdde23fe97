"""torchtitan: `MetricsProcessor.log` of torchtitan/components/metrics.py."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import GIB, NUMBER, WHOLE, Reader, Step, plain, positive

_STEP = re.compile(rf"step:\s*({WHOLE})\b")
_RATE = re.compile(rf"\b(?:tps|wps):\s*({NUMBER})")
_TFLOPS = re.compile(rf"\btflops:\s*({NUMBER})")
_MEMORY = re.compile(rf"\bmemory:\s*({NUMBER})GiB")


class Torchtitan(Reader):
    """`step: 10  loss:  7.06  grad_norm: 2.3  memory: 47.31GiB(49.80%)  tps: 7,014  tflops: 406.21
    mfu: 41.07%`: tokens per second of one GPU, and the highest bytes reserved."""

    TITLE = "torchtitan"
    MARKS: ClassVar = (b"tps: ", b"wps: ", b"Saving the checkpoint", b"Saving a full checkpoint")

    def __init__(self) -> None:
        super().__init__()
        self.log.flops = "the whole score matrix, as PaLM and torchtitan count"

    def line(self, text: str) -> None:
        text = plain(text)
        if "Saving" in text:
            self.event("checkpoint")
            return
        step, rate = _STEP.search(text), _RATE.search(text)
        if step is None or rate is None:
            return
        if "validate step" in text:  # Validator prints tokens per second, too
            self.event("evaluation")
            return
        tflops, memory = _TFLOPS.search(text), _MEMORY.search(text)
        if memory:
            self.log.keep_peak("reserved", (positive(memory[1]) or 0.0) * GIB)
        self.log.steps.append(
            Step(
                number=int(step[1]),
                tokens_per_gpu=positive(rate[1]),
                tflops=positive(tflops[1]) if tflops else None,
            )
        )
