"""Training in a report: its specification, and settings of mechanisms by the keys that they had
there before they got keys of their own, which version 1 of documents keeps."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from planner.specs.names import (
    GRAPH_SCOPES,
    BaseName,
    DivergenceName,
    GraphScope,
    LisaStates,
    OffloadModule,
    TensorOverlap,
)
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.specs.training import TrainingSpec


class Training(TrainingSpec):
    """The specification with options of mechanisms; what they do stands under `mechanisms`."""

    tensor_overlap: TensorOverlap | None = None  # of tensor-parallel collectives with GEMMs
    hpz: int | None = None  # GPUs that share a secondary copy of the weights
    # collectives that ZeRO++ quantises
    zeropp: tuple[Literal["qwz", "qgz"], ...] = Field(default=(), strict=False)
    optimizer_in_backward: bool = False
    cpu_update: Literal["after", "overlapped", "delayed"] = "after"  # when the host updates
    paged_stash: float | None = None  # load that pages of experts' activations hold, in means
    # captured as CUDA graphs; empty: as the stack does
    cuda_graphs: tuple[GraphScope, ...] = Field(default=(), strict=False)
    trainable_layers: int | None = None  # the last ones, with final norm and head
    active_layers: int | None = None  # random ones, trained at a time by LISA
    lisa_states: LisaStates = "active"
    ep_overlap: bool | None = None  # dispatch of experts beside another micro-batch
    dispatcher_sms: int | None = None  # of the GPU that dispatch works on
    shared_expert_overlap: bool | None = None  # dispatch beside shared experts
    divergence: DivergenceName = "forward"
    teacher_top_k: int | None = None  # words per token that come from the teacher
    teacher_gpus: int | None = None  # GPUs of the teacher; None: the student's
    teacher_precision: BaseName | None = None  # of the matrices of its layers
    # whose activations go to host memory with --offload activations; empty: all that are kept
    offload_modules: tuple[OffloadModule, ...] = Field(default=(), strict=False)
    fp8_mlp_input: bool = False  # inputs of SwiGLU are kept for backward in FP8
    transpose_weights: bool = False  # every backward pass transposes 8-bit weights


# alike in both
_OPTIONS = (
    *("hpz", "optimizer_in_backward", "cpu_update", "paged_stash", "trainable_layers"),
    *("ep_overlap", "dispatcher_sms", "shared_expert_overlap", "fp8_mlp_input"),
    "transpose_weights",
    *("teacher_top_k", "teacher_gpus", "teacher_precision"),
)


def training_document(plan: Plan, options: Options) -> Training:
    """The training of a request with these options, and with those that a search chose."""
    values = vars(options) | {choice.option: choice.value for choice in plan.chosen}
    coded: str = values["zeropp"] or "none"
    quantised: Any = () if coded == "none" else tuple(coded.split("+"))
    offloaded: Any = tuple(filter(None, (values["offload_modules"] or "").split("+")))
    captured = [name.strip() for name in (values["cuda_graphs"] or "").split("+")]
    return Training.model_construct(
        **dict(plan.training),
        **{name: values[name] for name in _OPTIONS},
        zeropp=quantised,
        cuda_graphs=tuple(scope for scope in GRAPH_SCOPES if scope in captured),
        tensor_overlap=values["tp_overlap"],
        offload_modules=offloaded,
        active_layers=values["lisa"],
        lisa_states=values["lisa_states"] or "active",
        divergence=values["divergence"] or "forward",
    )
