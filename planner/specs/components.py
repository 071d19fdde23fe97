"""Components of step time and memory: names, bottlenecks and descriptions, declared once."""

from __future__ import annotations

from typing import NamedTuple

from planner.specs.options import MECHANISMS

__all__ = [
    "AROUND",
    "BOTTLENECKS",
    "COMMUNICATION",
    "MEMORY",
    "STEP",
    "WAITING",
    "WIRES",
    "class_of",
]

COMMUNICATION = "communication"  # its seconds go to the wires that carry them


class Component(NamedTuple):
    """A component of step time. kind: its bottleneck, a name of BOTTLENECKS, or COMMUNICATION;
    says: which seconds it counts."""

    kind: str
    says: str


STEP: dict[str, Component] = {
    "matmul": Component("compute", "GEMMs, forward and backward"),
    "attention": Component("compute", "attention kernels, forward and backward"),
    "memory_bound": Component(
        "memory bandwidth", "norms, activations, loss and other bandwidth-bound operators"
    ),
    "recompute": Component("compute", "forward passes that backward repeats"),
    "reference": Component(
        "compute",
        "forward passes without gradients, of a reference, a teacher or the model; only with"
        " --task",
    ),
    "launch": Component(
        "launch", "waiting for kernel launches where the CPU is slower than the GPU"
    ),
    "tensor_parallel": Component(COMMUNICATION, "exposed communication of tensor parallelism"),
    "context_parallel": Component(
        COMMUNICATION, "exposed communication of context parallelism; only with cp > 1"
    ),
    "expert_parallel": Component(
        COMMUNICATION, "exposed communication of expert parallelism; only with ep > 1"
    ),
    "data_parallel": Component(COMMUNICATION, "exposed communication of data parallelism"),
    "pipeline_transfer": Component(COMMUNICATION, "exposed transfers between pipeline stages"),
    "offload": Component(
        "host link",
        "copies of offloaded activations that nothing hides; only with `--offload activations`",
    ),
    "bubble": Component("pipeline bubble", "idle time of pipeline stages"),
    "optimizer": Component("memory bandwidth", "the optimizer's update"),
    "overhead": Component("overhead", "jitter of equal ranks and the fixed cost of a step"),
    "stragglers": Component(
        "stragglers",
        "waiting for the slowest rank; only where jitter, slow hosts or packing were given, and no"
        " part of overhead then",
    ),
    "input": Component("input", "waiting for data; only with options of loading"),
    **{name: Component(*leaf) for each in MECHANISMS for name, leaf in each.STEP.items()},
}

# that no action of a pipeline schedule holds: what waits for other ranks and for data
AROUND = ("overhead", "stragglers", "input")

WIRES = ("network", "intra-node link")  # between nodes, inside a node

# one sentence per bottleneck; {share} of the step
BOTTLENECKS: dict[str, str] = {
    "compute": ("Compute takes {share} of the step: the GPUs are busy with GEMMs and attention."),
    "memory bandwidth": (
        "Memory bandwidth takes {share} of the step: norms, activations and the optimizer move"
        " bytes, not FLOP."
    ),
    "launch": "Launching kernels takes {share} of the step: the CPU cannot issue them fast enough.",
    "pipeline bubble": (
        "The pipeline's bubble takes {share} of the step: ranks wait for their first or last"
        " micro-batch."
    ),
    "overhead": (
        "Overhead takes {share} of the step: jitter of equal ranks and the fixed cost of a step."
    ),
    "host link": (
        "The link to host memory takes {share} of the step: what is offloaded has to travel."
    ),
    "stragglers": "Waiting for the slowest rank takes {share} of the step.",
    "input": ("Waiting for data takes {share} of the step: loading is slower than computing."),
    "network": (
        "The network between nodes takes {share} of the step: communication that nothing hides."
    ),
    "intra-node link": (
        "The link inside the node takes {share} of the step: communication that nothing hides."
    ),
    **{name: says for each in MECHANISMS for name, says in each.BOTTLENECKS.items()},
}

MEMORY: dict[str, str] = {
    "parameters": "parameters, cut by the ZeRO stage over the shard group",
    "gradients": "gradients, cut likewise",
    "reference_model": (
        "weights of a reference model or a teacher that is held beside the trained one, in 16 bit,"
        " cut likewise"
    ),
    "optimizer": (
        "master copy and moments, cut likewise; where every rank keeps the whole master copy"
        " (`whole_master`, DeepSpeed's BF16_Optimizer of early 2022) only the moments are cut"
    ),
    "activations": (
        "what backward needs, operator by operator, for all micro-batches a stage holds at once"
    ),
    "recompute_working_set": (
        "activations of what is being recomputed: a layer, or a group of K layers"
    ),
    "backward_temporaries": (
        "gradients inside the largest operator of a layer: of the MLP's hidden elements or the"
        " scores, of a weight"
    ),
    "logits": (
        "logits, their fp32 copies and gradients at the loss, last stage only; with `--loss-chunks"
        " K` a K-th of them, and the gradients of the head's input and weight"
    ),
    "gathered_layers": (
        "ZeRO-3: two layers and the embedding or head in 16 bit, gradients of a layer being"
        " reduced; without resharding all layers"
    ),
    "dequantised_weights": (
        "a frozen matrix in 16 bit, made of its codes while a GEMM reads it (`--base-precision`)"
    ),
    "sequence_buffers": (
        "sequence parallelism: the gathered input of one GEMM and its output before the scatter"
    ),
    "communication_buckets": "DDP copies, fixed buckets, tokens of experts as they arrive",
    "gradient_copies": (
        "gradients that autograd hands over beside those that accumulate: placeholders by shape,"
        " the embedding's, or a whole set"
    ),
    "cast_copies": "16-bit copies that autocast keeps of fp32 weights",
    "low_precision_copies": (
        "8- and 4-bit copies of weights beside those of 16 bit; none where the model keeps its"
        " weights so"
    ),
    "optimizer_temporaries": "buffers of the optimizer step",
    "workspaces": "what cuBLAS and Transformer Engine keep for their GEMMs",
    **{leaf: says for each in MECHANISMS for leaf, says in each.MEMORY.items()},
}

# reasons to wait for another rank
WAITING: dict[str, str] = {
    "jitter": "jitter of equal ranks",
    "slow_hosts": "slow hosts; beyond jitter, expected over jobs",
    "lengths": "replicas with documents of different lengths",
}


def class_of(component: str) -> str:
    """Class of a component of the step: a name of BOTTLENECKS, or communication."""
    return STEP[component].kind
