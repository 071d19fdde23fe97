"""Megatron-LM and what is made of it: `training_log` of megatron/training/training.py, and Megatron
Bridge's line before it (src/megatron/bridge/training/utils/train_utils.py)."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import MIB, MS, NUMBER, WHOLE, Reader, Step, fields, positive

_PALM = "the whole score matrix, as Megatron-LM counts"
_NUMBER = re.compile(rf"iteration\s+({WHOLE})")
_GB = 1e9
# of Megatron-LM, and of Megatron Bridge
_MEMORY = (
    (re.compile(rf"max (allocated|reserved): ({NUMBER})"), MIB),
    (re.compile(rf"mem-max-(allocated|reserved)-gigabytes: ({NUMBER})"), _GB),
)
_BATCH_GENERATOR = re.compile(rf"batch-generator \.*: \(({NUMBER}), ({NUMBER})\)")
_STEP = re.compile(rf"Step Time : ({NUMBER})s GPU utilization: ({NUMBER}) ?MODEL_TFLOP")
_ARGUMENT = re.compile(rf"^\s*(\w+) \.{{2,}} ({WHOLE})\s*$")
# of its list of arguments, and our options
_STATED = {
    "world_size": "gpus",
    "seq_length": "seq_len",
    "global_batch_size": "global_batch",
    "micro_batch_size": "micro_batch",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
}
_DEEPSPEED = "tokens per gpu per second (tgs)"  # of Megatron-DeepSpeed


class Megatron(Reader):
    """`[2025-12-22 15:18:33] iteration 50/ 50 | consumed samples: 25600 | elapsed time per
    iteration (ms): 9089.0 | throughput per GPU (TFLOP/s/GPU): 412.3 | global batch size: 512 |`"""

    TITLE = "Megatron-LM"
    MARKS: ClassVar = (
        b"elapsed time per iteration (ms):",
        b"memory (MB)",
        b"memory (GB)",
        b"saving checkpoint at iteration",
        b"validation loss at iteration",
        b"batch-generator ..",
        b"MODEL_TFLOP/s/GPU",
        *(f"  {name} ..".encode() for name in _STATED),
    )

    def __init__(self) -> None:
        super().__init__()
        self.log.flops = _PALM
        self._loading: float | None = None
        self._tflops: float | None = None

    def line(self, text: str) -> None:
        if "elapsed time per iteration (ms):" in text:
            self._step(text)
        elif "memory (" in text:
            for pattern, unit in _MEMORY:
                for kind, value in pattern.findall(text):
                    self.log.keep_peak(kind, (positive(value) or 0.0) * unit)
        elif "saving checkpoint" in text:
            self.event("checkpoint")
        elif "validation loss" in text:
            self.event("evaluation")
        elif matched := _STEP.search(text):  # Bridge prints it before the iteration's own line
            self.log.title = "Megatron Bridge"
            self._tflops = positive(matched[2])
        elif matched := _BATCH_GENERATOR.search(text):  # slowest rank, ms of the step before
            self._load((positive(matched[2]) or 0.0) * MS)
        elif matched := _ARGUMENT.match(text):
            self.state(_STATED[matched[1]], positive(matched[2]))

    def _load(self, seconds: float) -> None:
        if self.log.steps:
            self.log.steps[-1] = self.log.steps[-1]._replace(loading_s=seconds)

    def _step(self, text: str) -> None:
        printed = dict(fields(text))
        seconds = positive(printed.get("elapsed time per iteration (ms)", ""))
        if seconds is None:
            return
        at = _NUMBER.search(text)
        batch = positive(printed.get("global batch size", ""))
        if "global_batch" not in self.log.stated:
            self.state("global_batch", batch)
        tflops = positive(
            printed.get("throughput per GPU (TFLOP/s/GPU)", printed.get("TFLOPs", ""))
        )
        self.log.steps.append(
            Step(
                number=int(at[1]) if at else None,
                seconds=seconds * MS,
                tokens_per_gpu=positive(printed.get(_DEEPSPEED, "")),
                samples_per_s=positive(printed.get("samples per second", "")),
                tflops=self._tflops if tflops is None else tflops,
            )
        )
        self._tflops = None
