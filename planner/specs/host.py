"""The host of a node: processors and memory, which update an optimizer that is offloaded, and how
software uses them."""

from dataclasses import dataclass

from pydantic import Field

from planner.specs.base import BytesPerSecond, Names, Spec
from planner.specs.hardware import Efficiency, Id
from planner.specs.names import CpuOptimizerName


class HostSpec(Spec):
    """Processors and memory of one server, all sockets together."""

    id: Id
    title: str
    aliases: Names = ()
    source: str
    sockets: int = Field(ge=1, le=64)
    cores: int = Field(ge=1, le=100_000)  # physical, or as many as a job gets
    memory_bandwidth: BytesPerSecond  # of all memory channels of all sockets
    stream_frac: Efficiency  # share of it that a stream over all cores moves
    core_bandwidth: BytesPerSecond  # what a single core moves
    # share of the stream that an update over all cores reaches, where it was measured here
    update_frac: Efficiency | None = None
    # one GPU's copies, one direction, while all GPUs of the host copy: page-locked, and from
    # pageable memory to the GPU; where they were measured here
    copy_bandwidth: BytesPerSecond | None = None
    staged_bandwidth: BytesPerSecond | None = None


@dataclass(frozen=True)
class CpuOptimizer:
    """How often one implementation of Adam passes over each state in host memory, counted in its
    source; a pass reads or writes an element once, and a write to memory that was not read counts
    twice, since the line is fetched first.

    master, moments, gradient: passes over these. copy: over the 16-bit parameters that are made for
    the GPU. other_bytes: of temporaries, per parameter.
    """

    title: str
    master: float
    moments: float
    gradient: float
    copy: float
    other_bytes: float
    staged: bool = False  # the copy is made in pageable memory, from which one core takes it


CPU_OPTIMIZERS: dict[CpuOptimizerName, CpuOptimizer] = {
    # csrc/includes/cpu_adam.h reads and writes parameter and both moments and reads the gradient;
    # before it unscale_and_clip_grads scales the gradient in place, after it the parameter is cast
    # to 16 bit on the host (runtime/zero/stage3.py, _reassign_or_swap_out_partitioned_parameters),
    # into memory that is not page-locked (ATen/native/cuda/Copy.cu, copy_requires_temporaries)
    "deepspeed": CpuOptimizer("DeepSpeedCPUAdam", 3.0, 2.0, 3.0, 2.0, 0.0, staged=True),
    # ATen/native/cpu/FusedAdamKernel.cpp: the same in one pass; clipping reads the gradient for its
    # norm and scales it; fp32 parameters leave as they are
    "torch-fused": CpuOptimizer("torch AdamW (fused)", 2.0, 2.0, 4.0, 0.0, 0.0),
    # torch/optim/adam.py, _single_tensor_adam: mul_ and addcdiv_ of the parameter, lerp_ of the
    # first moment, mul_, addcmul_ and sqrt of the second, and a temporary that sqrt writes, bias
    # and eps pass over and addcdiv_ reads; clipping as above
    "torch-eager": CpuOptimizer("torch AdamW (a loop of operators)", 4.0, 4.0, 5.0, 0.0, 28.0),
}
