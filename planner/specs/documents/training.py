"""What a report says of the training: its specification, and settings of mechanisms by the keys
that they had there before they got keys of their own, which version 1 of documents keeps."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from planner.specs.names import TensorOverlap
from planner.specs.options import Options
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


_OPTIONS = ("hpz", "optimizer_in_backward", "cpu_update", "paged_stash")  # alike in both


def training_document(spec: TrainingSpec, options: Options) -> Training:
    """The training of a request with these options."""
    values = vars(options)
    coded: str = values["zeropp"] or "none"
    quantised: Any = () if coded == "none" else tuple(coded.split("+"))
    return Training.model_construct(
        **dict(spec),
        **{name: values[name] for name in _OPTIONS},
        tensor_overlap=values["tp_overlap"],
        zeropp=quantised,
    )
