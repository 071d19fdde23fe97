"""The clock that the power law gives a GPU, to stand beside fitted ones."""

from __future__ import annotations

from planner.formulas.kernels import ENERGY_PER_FLOP, power_limited_clock_frac
from planner.specs.hardware import GpuSpec


def law_of(gpu: GpuSpec) -> float | None:
    """Sustained tensor clock by board power, as a share; None for an architecture whose energy per FLOP is not known."""
    energy, rate = ENERGY_PER_FLOP.get(gpu.architecture), gpu.dense.bf16 or gpu.dense.fp16
    if energy is None or rate is None:
        return None
    return float(power_limited_clock_frac(float(gpu.power), float(rate), float(energy)))
