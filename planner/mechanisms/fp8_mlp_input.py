"""Inputs of SwiGLU that are kept for backward in FP8: a copy of gate and up in e4m3, without
scales, which backward casts back. Their GEMMs stay in the precision of the run."""

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

_FP8_BYTES = 1.0


@dataclass(frozen=True, kw_only=True)
class Fp8MlpInputOptions(Record):
    GROUP: ClassVar = SearchOptions.GROUP
    VERBS: ClassVar = SearchOptions.VERBS - METHODS
    WHY_NOT: ClassVar = OF_METHODS

    fp8_mlp_input: Annotated[
        bool,
        option(
            "Keep the inputs of SwiGLU (gate and up) for the backward pass in FP8, whatever GEMMs"
            " run in (Megatron's activation_func_fp8_input_store)",
            label="FP8 inputs of SwiGLU",
            form="folded",
        ),
    ] = False


@dataclass(frozen=True)
class Fp8MlpInput(Mechanism):
    NAME = "fp8-mlp-input"
    OFF = "inputs of SwiGLU are kept as they are"
    SOURCE = (
        "activation_func_fp8_input_store of Megatron-LM, transformer_config.py and"
        " fusions/fused_bias_swiglu.py: input.to(torch.float8_e4m3fn)"
    )
    OPTIONS = Fp8MlpInputOptions
    EXAMPLE: ClassVar = {"model": "qwen3-0.6b", "stack": "megatron-core"}
    NEEDS = (
        Needed(
            "fp8_mlp_input",
            "inputs of SwiGLU that are kept in FP8",
            stacks={"megatron-core": "NVIDIA/Megatron-LM@d98e8a64, transformer_config.py"},
        ),
    )
    ARGUMENTS: ClassVar = {"megatron-bridge": {"activation-func-fp8-input-store": "fp8_mlp_input"}}

    @classmethod
    def of(cls, options: Fp8MlpInputOptions) -> Fp8MlpInput | None:
        return cls() if options.fp8_mlp_input else None

    def check(self, plan: Plan) -> None:
        from planner.specs.layers import parts_of
        from planner.specs.parts import Mlp, Moe

        parts = [part for part, _ in parts_of(plan.model) if isinstance(part, Mlp | Moe)]
        if not parts or any(not part.gated or part.activation != "silu" for part in parts):
            name = plan.model.name
            remedy = f"applies to SwiGLU, which not all MLPs of {name} have; leave it out"
            raise PlanError("--fp8-mlp-input", None, remedy)

    def activated_bytes(self) -> float:
        return _FP8_BYTES


MECHANISM = Fp8MlpInput
