"""One GEMM on a machine: its shape, and its seconds."""

from __future__ import annotations

from dataclasses import dataclass

from planner.estimate.machine import Machine
from planner.formulas import casts, kernels
from planner.ledger import Array
from planner.specs.plan import Plan
from planner.specs.precision import Recipe

# share of the matrix rate that the GEMMs of a weight keep when a width is not a multiple of 16 B: a
# vocabulary of 50257 in place of 50304 costs nanoGPT's 124M model about a quarter more time
# (Karpathy, 2023-02-03, recalled), the aligned head being a quarter of it; an RTX 3090 loses 4 %
# (RobertRiachi/nanoPALM#6)
UNALIGNED_WEIGHT = 0.5


@dataclass(frozen=True)
class Gemm:
    """One GEMM of a layer forward: (m x k) (k x n), the weight being k x n."""

    name: str
    m: Array  # tokens
    n: Array
    k: Array
    batch: Array = 1.0  # independent ones: local experts
    per_layer: Array = 1.0  # how many a mean layer has, over dense and expert layers
    low: bool = True  # in 8 or 4 bit where the recipe is
    routed: bool = False  # of routed experts
    taps: float = 1.0  # of a convolution, pixels of its kernel
    read: Array | None = None  # elements of its input, where they are not m x k
    input_gradient: bool = True
    weight_gradient: float = 1.0  # share of layers with a backward pass in which there is one


def gemm_s(
    plan: Plan,
    m: Machine,
    rows: Array,
    columns: Array,
    inner: Array,
    batch: Array = 1.0,
    *,
    recipe: Recipe | None = None,
    extra_bytes: Array = 0.0,
    alignment: Array = 1.0,
) -> Array:
    """Seconds of one GEMM on this machine, without the casts of its operands.

    alignment: share of the matrix rate that its widths leave.
    """
    if "alignment" in m.without:
        alignment = 1.0
    rate, width = m.wide_rate, plan.training.element_bytes
    if recipe is not None:
        rate = m.dense_rate * m.recipe_frac
        width = float(casts.operand_bytes(recipe.element, recipe.scale, recipe.block))
    sizes = rows, columns, inner, batch
    return gemm_at_rate_s(m, sizes, rate, width, extra_bytes=extra_bytes, alignment=alignment)


def gemm_at_rate_s(
    m: Machine,
    sizes: tuple[Array, Array, Array, Array],
    rate: Array,
    width: float,
    *,
    extra_bytes: Array = 0.0,
    alignment: Array = 1.0,
) -> Array:
    """Seconds of one GEMM. sizes: rows, columns, inner, batch; rate: FLOP/s at the full clock;
    width: bytes of an operand's element."""
    return kernels.gemm_s(
        *sizes,
        extra_bytes,
        width,
        alignment,
        rate_flop_per_s=rate * m.sustained_clock,
        compute_units=m.compute_units,
        efficiency=m.gemm_efficiency,
        tile_exponent=m.gemm_tile_exponent,
        tile_overhead_s=m.gemm_tile_overhead,
        wave_softness=m.gemm_wave_softness,
        launch_s=m.gemm_launch,
        memory_bytes_per_s=m.memory_bandwidth,
        memory_frac=m.gemm_memory_frac,
    )
