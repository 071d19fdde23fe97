"""NeMo AutoModel: `log_train_metrics` of nemo_automodel/recipes/llm/train_ft.py and
vlm/finetune.py, the JSON lines of components/loggers/metric_logger.py beside it, and
recipes/llm/benchmark.py (36044ad, 2026-08)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import GIB, NUMBER, WHOLE, Reader, Step, plain, positive

_LINE = re.compile(rf"\bstep ({WHOLE}) \| epoch ")
_HELD = re.compile(rf"\| mem ({NUMBER}) GiB")
_RATE = re.compile(rf"\| tps ({NUMBER})\(")
_TOKENS = re.compile(rf'"num_tokens_per_step": ({NUMBER})')
_JSON_RATE = re.compile(rf'"tps": ({NUMBER})')
_JSON_AT = re.compile(rf'"step": ({WHOLE})')
_JSON_HELD = re.compile(rf'"mem": ({NUMBER})')
_ITERATION = re.compile(rf"Iteration ({WHOLE}) \|")
_MOST_HELD = re.compile(rf"Max Memory Allocated: ({NUMBER}) GB")
_SECONDS = re.compile(rf"Max iter time: ({NUMBER}) seconds")


class NemoAutomodel(Reader):
    """`step 10 | epoch 0 | loss 1.2 | grad_norm 0.9 | lr 1.00e-05 | mem 41.20 GiB | tps
    81234.50(10154.31/gpu) | num_label_tokens 40960`: tokens of the job, padding at the end of a row
    left out, and the highest bytes allocated. Its training.jsonl has the tokens of the step, too:
    `{"step": 10, "mem": 41.2, "tps": 81234.5, "num_tokens_per_step": 131072}`."""

    TITLE = "NeMo AutoModel"
    MARKS: ClassVar = (
        *(b"/gpu) | num_label_tokens", b'"num_tokens_per_step":', b"Max iter time: "),
        *(b"Max Memory Allocated: ", b"[val] name "),
    )

    def __init__(self) -> None:
        super().__init__()
        self._at: int | None = None

    def line(self, text: str) -> None:
        text = plain(text)
        if tokens := _TOKENS.search(text):
            self._json(text, positive(tokens[1]))
        elif at := _LINE.search(text):
            memory, rate = _HELD.search(text), _RATE.search(text)
            self._memory(memory)
            self.log.steps.append(
                Step(number=int(at[1]), tokens_per_s=positive(rate[1]) if rate else None)
            )
        elif match := _ITERATION.search(text):
            self._at = int(match[1])
            self._memory(_MOST_HELD.search(text))
        elif seconds := _SECONDS.search(text):
            self.log.steps.append(Step(number=self._at, seconds=positive(seconds[1])))
        elif "[val] name" in text:
            self.event("evaluation")

    def _json(self, text: str, tokens: float | None) -> None:
        at, rate = _JSON_AT.search(text), _JSON_RATE.search(text)
        self._memory(_JSON_HELD.search(text))
        speed = positive(rate[1]) if rate else None
        seconds = tokens / speed if tokens and speed else None
        number = int(at[1]) if at else None
        self.log.steps.append(Step(number=number, seconds=seconds, tokens_per_s=speed))

    def _memory(self, match: re.Match[str] | None) -> None:
        if match:
            self.log.keep_peak("allocated", (positive(match[1]) or 0.0) * GIB)
