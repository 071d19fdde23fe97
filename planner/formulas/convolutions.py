"""Time of convolutions beside the GEMMs that they are.

All inputs are float64 scalars or arrays of one value per layout; all times are seconds.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, Sourced, formula

LANE_BYTES = 16.0  # of channels: what a thread loads, to which channels are padded
GROUP_CHANNELS = 16.0  # inner width of a matrix instruction, to which groups are padded

DEPTHWISE = Sourced(
    0.055,
    "B/FLOP",
    "assumed",
    "bytes of windows that a unit's caches hand out while it could do one fp32 operation: one"
    " number for V100, A100 and RTX 3090, from runs of EfficientNet, MobileNet and ConvNeXt"
    " between .045 and .075, docs/log/images.md",
    "2026-11",
)
WINOGRAD = Sourced(
    2.25,
    "1",
    "vendor",
    "fewer multiplications of F(2x2, 3x3): 36 for 16, Lavin and Gray 2015 (arXiv 1509.09308),"
    " which cuDNN takes in fp32",
    "2026-11",
)


def padded(channels: Array, multiple: Array) -> Array:
    """Channels up to the next multiple."""
    return np.ceil(np.asarray(channels, float) / multiple) * multiple


@formula(
    unit="s",
    equation="( (windows / (rate cached))^4 + (bytes / bandwidth)^4 )^(1/4)",
    source="roofline with the smooth maximum of gemm_s; cached fitted, docs/log/images.md",
)
def depthwise_s(
    window_bytes: Array,
    moved_bytes: Array,
    *,
    vector_flop_per_s: Array,
    cached_bytes_per_flop: Array,
    memory_bytes_per_s: Array,
) -> Array:
    """Time of one pass of a convolution whose channels do not mix: no matrix unit has work, and
    kernels of 3 to 7 pixels a side read their windows from caches. window_bytes: of a
    window for each pixel of the output."""
    compute = np.asarray(window_bytes / (vector_flop_per_s * cached_bytes_per_flop), float)
    memory = np.asarray(moved_bytes / memory_bytes_per_s, float)
    return np.sqrt(np.sqrt(np.square(np.square(compute)) + np.square(np.square(memory))))


@formula(
    unit="B",
    equation="2 w (read + written)",
    source=(
        "nchwToNhwc and nhwcToNchw kernels of cuDNN around its kernels for matrix units: NVIDIA"
        " Deep Learning Performance, Convolutional Layers, tensor layouts"
    ),
)
def conversion_bytes(read: Array, written: Array, element_bytes: Array) -> Array:
    """Bytes moved to convert the tensors of a pass between channels first and channels last: each
    element is read and written once more."""
    return 2 * element_bytes * (read + written)
