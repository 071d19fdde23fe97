"""MaxText: `log_metrics` of src/maxtext/common/metric_logger.py."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import NUMBER, WHOLE, Reader, Step, positive

_NUMBER = re.compile(rf"completed step: ({WHOLE})")
_SECONDS = re.compile(rf"\bseconds: ({NUMBER})")
_TFLOPS = re.compile(rf"\bTFLOP/s(?:/device)?: ({NUMBER})")
_TOKENS = re.compile(rf"\bTokens/s/device: ({NUMBER})")


class MaxText(Reader):
    """`completed step: 9, seconds: 5.667, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758,
    total_weights: 196608, loss: 10.374`"""

    TITLE = "MaxText"
    MARKS: ClassVar = (b"completed step: ", b"ompleted eval after", b"eval metrics after step")

    def __init__(self) -> None:
        super().__init__()
        self.log.flops = "half of the score matrix, causal, as MaxText counts"

    def line(self, text: str) -> None:
        step, seconds = _NUMBER.search(text), _SECONDS.search(text)
        if step is None or seconds is None:
            self.event("evaluation")
            return
        tflops, tokens = _TFLOPS.search(text), _TOKENS.search(text)
        self.log.steps.append(
            Step(
                number=int(step[1]),
                seconds=positive(seconds[1]),
                tokens_per_gpu=positive(tokens[1]) if tokens else None,
                tflops=positive(tflops[1]) if tflops else None,
            )
        )
