"""States and activations outside the GPU: NVMe drives, updates of the optimizer in tiles, and the
link at which copies are free.

The bounds of ZeRO-Infinity (Rajbhandari et al. 2021, arXiv 2104.07857, section 4) are here as
equations: FLOP done per byte moved, and the share of the peak rate that a bandwidth then allows.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="s",
    equation="bytes / (drives / GPUs)",
    source=(
        "definition; drives of a node are one volume, which all of its GPUs read and write at the"
        " same time"
    ),
)
def drive_s(moved_bytes: Array, drive_bytes_per_s: Array) -> Array:
    """Time to read or write one GPU's bytes at its share of the bandwidth of the node's drives."""
    return moved_bytes / drive_bytes_per_s


@formula(
    unit="s",
    equation="(r + w + u) / k + (1 - 1/k) max(r + w, u)",
    source=(
        "overlap-centric design of ZeRO-Infinity (arXiv 2104.07857); pipeline_read and"
        " pipeline_write of DeepSpeed's runtime/swap_tensor/pipelined_optimizer_swapper.py; own"
        " derivation, drives serving reads and writes in turn"
    ),
)
def tiled_update_s(read_s: Array, update_s: Array, write_s: Array, tiles: Array) -> Array:
    """Time to read optimizer states from drives, update them and write them back, in k tiles.

    The update of a tile runs beside the writing of the one before and the reading of the next; with
    one tile nothing overlaps.
    """
    drives_s = read_s + write_s
    return (drives_s + update_s) / tiles + (1 - 1 / tiles) * np.maximum(drives_s, update_s)


@formula(
    unit="B/s",
    equation="min(f s B, n b)",
    source=(
        "bandwidth bound of an update without reuse; f = 0.62 of the stream of all cores: 4e9"
        " parameters/s of DeepSpeed's CPU-Adam on the two Xeon 8168 of a DGX-2 (ZeRO-Offload,"
        " arXiv 2101.06840 table 4, recalled), 10e9 on a Grace (SuperOffload, arXiv 2509.21271,"
        " recalled); n b: torch's fused AdamW moves 30 GB/s on one core that scales a vector in"
        " place at 28, and 40 on two that do at 41 (measured, EPYC 7003)"
    ),
)
def update_bandwidth_bytes_per_s(
    threads: Array, core_bytes_per_s: Array, stream_bytes_per_s: Array, update_frac: Array
) -> Array:
    """Host memory bandwidth of the CPU optimizer: a share of the stream bandwidth of all cores, or
    the bandwidth of the threads in use if they are few."""
    return np.minimum(update_frac * stream_bytes_per_s, threads * core_bytes_per_s)


@formula(
    unit="B",
    equation="a M + b S + c G + d W + t",
    source="passes of the implementation over each state, counted in its source (specs.host)",
)
def update_bytes(
    master_bytes: Array,
    moment_bytes: Array,
    gradient_bytes: Array,
    copy_bytes: Array,
    passes: tuple[float, float, float, float],
    other_bytes: Array,
) -> Array:
    """Bytes of host memory that the update of one parameter moves."""
    a, b, c, d = passes
    states = a * master_bytes + b * moment_bytes
    return states + c * gradient_bytes + d * copy_bytes + other_bytes


@formula(
    unit="s",
    equation="(m - 1) max(2 G/L - T, 0) + max((G + F)/L - T, 0); m = 1: only the last",
    source=(
        "deepspeed/runtime/zero/stage3.py, partition_grads: gradients of a micro-batch are added on"
        " the GPU to those before, which come up and go back; with the last they leave in fp32, all"
        " beside the backward pass"
    ),
)
def gradients_exposed_s(
    gradient_bytes: Array,
    wide_bytes: Array,
    link_bytes_per_s: Array,
    backward_s: Array,
    microbatches: Array,
) -> Array:
    """Time that gradients on their way to host memory add to the backward passes of a step.

    gradient_bytes: a rank's share in the accumulation type; wide_bytes: the same in the type of the
    update; backward_s: T of one micro-batch.
    """
    each = np.maximum(2 * gradient_bytes / link_bytes_per_s - backward_s, 0.0)
    last = np.maximum((gradient_bytes + wide_bytes) / link_bytes_per_s - backward_s, 0.0)
    return (microbatches - 1) * each + last


@formula(
    unit="s",
    equation="W / min(L, S); W / L from page-locked memory",
    source=(
        "CUDA C++ Best Practices Guide, 10.1.1: a copy from pageable memory passes a page-locked"
        " buffer of the driver, into which one core reads and writes it"
    ),
)
def parameters_back_s(
    parameter_bytes: Array, link_bytes_per_s: Array, staged_bytes_per_s: Array, staged: bool
) -> Array:
    """Time of updated parameters on their way from host memory to the GPU; S: what copies from
    pageable memory reach."""
    rate = np.minimum(link_bytes_per_s, staged_bytes_per_s) if staged else link_bytes_per_s
    return parameter_bytes / rate


@formula(
    unit="s",
    equation="max(U - R, 0)",
    source=(
        "ZeRO-Offload, Ren et al. 2021 (arXiv 2101.06840), delayed parameter update: beside the"
        " next step, one step late"
    ),
)
def delayed_update_exposed_s(update_s: Array, rest_s: Array) -> Array:
    """Time that a delayed parameter update adds to the rest of the step, beside which the CPU
    computes it and copies run."""
    return np.maximum(update_s - rest_s, 0.0)


@formula(
    unit="FLOP/B",
    equation="8 T / bytes",
    source=(
        "ZeRO-Infinity, arXiv 2104.07857 section 4: forward, backward and recompute do 8 FLOP per"
        " parameter and token; parameters and gradients move 8 B (T = bsz seq), optimizer states 32"
        " B (bsz seq / 4)"
    ),
)
def state_intensity(tokens: Array, bytes_per_parameter: Array) -> Array:
    """FLOP per byte of states moved in a step of T tokens per GPU."""
    return 8.0 * tokens / bytes_per_parameter


@formula(
    unit="FLOP/B",
    equation="24 h c",
    source=(
        "ZeRO-Infinity, arXiv 2104.07857 section 4: 8 x 12 h^2 FLOP per token and layer; a"
        " checkpoint of 2 h B per token goes out and comes back"
    ),
)
def checkpoint_intensity(hidden: Array, layers_between: Array) -> Array:
    """FLOP per byte of activation checkpoints (16-bit inputs of every c-th layer of width h) that
    go out and come back."""
    return 24.0 * hidden * layers_between


@formula(
    unit="1",
    equation="a B / (a B + peak)",
    source=(
        "ZeRO-Infinity, arXiv 2104.07857 section 4: computation over computation and movement,"
        " nothing overlapping"
    ),
)
def bandwidth_efficiency(
    intensity_flop_per_byte: Array, bytes_per_s: Array, peak_flop_per_s: Array
) -> Array:
    """Share of the peak rate that is left when a FLOP per byte are done for what moves at this
    bandwidth per GPU."""
    fed = intensity_flop_per_byte * bytes_per_s
    return fed / (fed + peak_flop_per_s)


@formula(
    unit="B/s",
    equation="peak e / ((1 - e) a)",
    source=(
        "arXiv 2104.07857 section 4, solved for the bandwidth; at e = 1/2 movement takes as long as"
        " computation"
    ),
)
def bandwidth_for_efficiency(
    intensity_flop_per_byte: Array, peak_flop_per_s: Array, efficiency_frac: Array
) -> Array:
    """Bandwidth per GPU that leaves a share e of the peak rate."""
    return peak_flop_per_s * efficiency_frac / ((1 - efficiency_frac) * intensity_flop_per_byte)


@formula(
    unit="s",
    equation="max(X - F, 0) + max(X - B, 0) = R, solved for X",
    source=(
        "own derivation: each way a layer takes the longer of its computation and its copy (vDNN,"
        " Rhu et al. 2016)"
    ),
)
def break_even_copy_s(forward_s: Array, backward_s: Array, recompute_s: Array) -> Array:
    """Longest one-way copy of a layer's activations that costs no more than computing them again.

    R: recompute; copies out run beside the layer's forward (F), copies back beside its backward
    (B).
    """
    short, long = np.minimum(forward_s, backward_s), np.maximum(forward_s, backward_s)
    return np.where(
        short + recompute_s <= long, short + recompute_s, (short + long + recompute_s) / 2
    )
