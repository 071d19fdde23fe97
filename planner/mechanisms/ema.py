"""Exponential moving average of the trained weights, kept beside them and updated in every step.

The copy is in fp32 and cut like the states of the optimizer. On the device a kernel reads average
and weight and writes the average. In host memory the weights are first copied there, which the
training loop waits for since the memory is pageable; a thread of the CPU then updates the average
beside the next step, whose update waits for it. Checkpoints are sized without the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from planner.specs.mechanism import Bytes, Mechanism, Needed, Stage, Step
from planner.specs.options.record import Record
from planner.specs.options.row import Alias, option
from planner.specs.options.training import TrainingOptions
from planner.specs.options.verbs import REQUESTS

if TYPE_CHECKING:
    from planner.ledger import Ledger
    from planner.specs.stack import StackSpec

_FP32_BYTES = 4.0
_LERP_BYTES = 3 * _FP32_BYTES  # average and weight are read, the average is written
_CPU_BYTES = 5 * _FP32_BYTES  # scaled in one pass over the average, added to in another
_PLACES = ("none", "device", "host")


@dataclass(frozen=True, kw_only=True)
class EmaOptions(Record):
    GROUP: ClassVar = TrainingOptions.GROUP
    VERBS: ClassVar = REQUESTS

    ema: Annotated[
        Literal["none", "device", "host"],
        option(
            "Exponential moving average of the weights: none, device (in GPU memory) or host (in"
            " host memory, updated by the CPU)",
            label="Average of weights",
            aliases=(Alias("gpu", "device"), Alias("cpu", "host")),
            example="device",
            form="folded",
        ),
    ] = "none"


def _places(stack: StackSpec) -> tuple[str, ...]:
    return stack.supports.weight_average


@dataclass(frozen=True)
class Ema(Mechanism):
    """place: device or host."""

    place: str

    NAME = "ema"
    OFF = "no average of the weights is kept"
    SOURCE = (
        "get_ema_multi_avg_fn of torch/optim/swa_utils.py (_foreach_lerp_); EMAOptimizer of NeMo,"
        " nemo/collections/common/callbacks/ema.py (cpu_offload); moving_average of DeepSpeed-Chat"
    )
    OPTIONS = EmaOptions
    NEEDS = (Needed("ema", "averages of weights", _places, _PLACES),)
    MEMORY: ClassVar = {"weight_average": "moving average of the weights (`--ema device`)"}
    LASTING = ("weight_average",)
    STEP: ClassVar = {
        "weight_average": (
            "memory bandwidth",
            "the update of the moving average of the weights, or its way to the host; only with"
            " `--ema`",
        )
    }

    @classmethod
    def of(cls, options: EmaOptions) -> Ema | None:
        return None if options.ema == "none" else cls(options.ema)

    def memory(self, stage: Stage) -> Bytes:
        average_bytes = _FP32_BYTES * stage.owned
        if self.place == "device":
            return Bytes({"weight_average": average_bytes})
        return Bytes(host=average_bytes)

    def after_update(self, step: Step) -> Ledger:
        from planner.formulas import data_parallel, offload

        m = step.machine
        if self.place == "device":
            seconds = data_parallel.optimizer_step_s(
                step.owned,
                _LERP_BYTES,
                memory_bytes_per_s=m.memory_bandwidth,
                elementwise_frac=m.stream_frac,
            )
        else:
            weights = _FP32_BYTES * step.owned
            copy = offload.parameters_back_s(weights, m.host_copy_bandwidth, m.host_staged, True)
            on_host = step.owned * step.ranks_per_host
            update = data_parallel.cpu_step_s(on_host, m.host_update / _CPU_BYTES)
            seconds = copy + offload.delayed_update_exposed_s(update, step.seconds)
        return {"weight_average": seconds}


MECHANISM = Ema
