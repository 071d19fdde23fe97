"""8-bit weights without the transposed copies that gradients of inputs read on GPUs whose 8-bit
units multiply one layout: the backward pass of every micro-batch makes them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from planner.error import PlanError
from planner.specs.mechanism import Mechanism, Needed
from planner.specs.options.layout import SearchOptions
from planner.specs.options.record import Record
from planner.specs.options.row import option
from planner.specs.options.verbs import METHODS, OF_METHODS

if TYPE_CHECKING:
    from planner.specs.plan import Plan


@dataclass(frozen=True, kw_only=True)
class TransposeWeightsOptions(Record):
    GROUP: ClassVar = SearchOptions.GROUP
    VERBS: ClassVar = SearchOptions.VERBS - METHODS
    WHY_NOT: ClassVar = OF_METHODS

    transpose_weights: Annotated[
        bool,
        option(
            "Keep 8-bit weights in one layout and transpose them in every backward pass, on GPUs"
            " whose units multiply one layout, Hopper and Ada (Megatron's"
            " disable_parameter_transpose_cache)",
            label="Transpose 8-bit weights",
            form="folded",
        ),
    ] = False


@dataclass(frozen=True)
class TransposeWeights(Mechanism):
    NAME = "transpose-weights"
    OFF = "8-bit weights are also kept transposed"
    SOURCE = (
        "disable_parameter_transpose_cache of Megatron-LM, transformer_config.py; without a cache"
        " Transformer Engine's Float8Tensor.transpose_2d transposes in every dgrad"
    )
    OPTIONS = TransposeWeightsOptions
    EXAMPLE: ClassVar = {
        "model": "qwen3-0.6b",
        "stack": "megatron-core",
        "precision": "fp8-delayed",
        "low_precision": "weights",
    }
    NEEDS = (
        Needed(
            "transpose_weights",
            "8-bit weights that backward transposes",
            stacks={"megatron-core": "NVIDIA/Megatron-LM@d98e8a64, transformer_config.py"},
        ),
    )
    ARGUMENTS: ClassVar = {
        "megatron-bridge": {"disable-parameter-transpose-cache": "transpose_weights"}
    }

    @classmethod
    def of(cls, options: TransposeWeightsOptions) -> TransposeWeights | None:
        return cls() if options.transpose_weights else None

    def check(self, plan: Plan) -> None:
        recipe, gpu = plan.recipe, plan.cluster.gpu
        if recipe is None or not recipe.transposes(gpu.architecture):
            remedy = (
                "needs 8-bit weights with one scale per tensor on Hopper or Ada (--precision"
                f" fp8-delayed, fp8-tensorwise); {plan.precision} on {gpu.title} keeps no"
                " transposed copies of them; leave it out"
            )
            raise PlanError("--transpose-weights", None, remedy)

    def transposes_again(self) -> bool:
        return True


MECHANISM = TransposeWeights
