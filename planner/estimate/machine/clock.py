"""The clock that tensor cores sustain under load, by power."""

from __future__ import annotations

import math

from planner.formulas import kernels
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.hardware import GpuSpec
from planner.specs.plan import Plan

# energy of an fp8 operation over a 16-bit one: multipliers grow with the square of the
# mantissa (4 against 8 or 11 bits), registers and data paths with its width. Over validated runs:
# fp8 and 16-bit clocks differ by 1.13 on Hopper; on Blackwell, whose 16-bit GEMMs are far more
# limited, fp8 runs at 0.91 to 1 of the clock of its tables, which show next to no limit either
_FP8_ENERGY = {"hopper": 0.35, "blackwell": 0.2}
_FP8_ENERGY_ELSEWHERE = 0.35
_OF_BYTE = {"nvfp4": 0.5}  # energy of an operation by the width of its operands, relative to fp8
# share of the matrix rate of its format that a recipe leaves: rowwise scales break the epilogue,
# refit of torchtitan's runs; block scales are fetched beside the operands, or on Hopper multiplied
# in by software: long GEMMs with block scales against those with one scale in the tables of
# aiconfigurator are at 0.90 and 0.88 (H100, H200), 0.91, 0.93, 0.98 and 0.89 (B200, GB200, B300,
# GB300), 0.95 on B300 in Transformer Engine's docs/examples/gemm_profiling; pairs of NeMo's runs
# alike except for the recipe 0.86 to 0.91
_OF_RATE = {"fp8-rowwise": 0.55, "fp8-blockwise": 0.89, "mxfp8": 0.89}


def law_of(gpu: GpuSpec, power_w: float | None = None) -> float | None:
    """Tensor clock that the power law gives a GPU at this power (its board's by default), as a
    share of the full clock.

    None for an architecture whose energy per FLOP is not known.
    """
    if (known := _rate_and_energy(gpu)) is None:
        return None
    power = float(gpu.power) if power_w is None else power_w
    return float(kernels.power_limited_clock_frac(power, *known))


def _rate_and_energy(gpu: GpuSpec) -> tuple[float, float] | None:
    """FLOP/s of 16-bit GEMMs at the full clock, and joules of one FLOP."""
    energy, rate = kernels.ENERGY_PER_FLOP.get(gpu.architecture), gpu.dense.bf16 or gpu.dense.fp16
    return None if energy is None or rate is None else (float(rate), float(energy))


def power_of(gpu: GpuSpec, share: float) -> float | None:
    """Power limit (W) under which a GPU keeps this share of the tensor clock that its board's
    power sustains: `law_of` the other way round.

    None for an architecture whose energy per FLOP is not known.
    """
    known, board = _rate_and_energy(gpu), law_of(gpu)
    return None if known is None or board is None else (share * board) ** 3 * math.prod(known)


def sustained_clock(plan: Plan) -> Sourced:
    """Tensor clock under load: the cluster's own where it is known, else the profile's, lowered by
    a power limit."""
    cluster, gpu = plan.cluster, plan.cluster.gpu
    usual = gpu.kernels.sustained_clock
    if cluster.clock is not None:
        return cluster.clock
    if cluster.power_limit is None:
        return usual
    under, board = law_of(gpu, float(cluster.power_limit)), law_of(gpu)
    if under is None or board is None:
        raise PlanError(
            "--power-limit",
            float(cluster.power_limit),
            f"no energy per FLOP is known for {gpu.title}; measure "
            "the clock under this limit and give it with --clock",
        )
    return Sourced(
        float(usual) * (under / board),
        "1",
        "assumed",
        f"cubic law of power and clock, from the profile's clock at {float(gpu.power):.0f} W",
    )


def recipe_frac(plan: Plan, rate: float, wide_rate: float) -> Sourced:
    """Share of the rate of an 8- or 4-bit format under the 16-bit clock: what the recipe leaves,
    times the clock that the power saved allows. rate, wide_rate: FLOP/s of both formats."""
    clock, gpu, name = float(sustained_clock(plan)), plan.cluster.gpu, plan.precision
    curve = gpu.kernels
    energy = _FP8_ENERGY.get(gpu.architecture, _FP8_ENERGY_ELSEWHERE) * _OF_BYTE.get(name, 1.0)
    faster = min((wide_rate / rate / energy) ** (1 / 3), max(1.0 / clock, 1.0))
    reached = curve.nvfp4_efficiency if name == "nvfp4" else curve.fp8_efficiency
    measured = float(reached or curve.gemm_efficiency) / float(curve.gemm_efficiency)
    return Sourced(
        _OF_RATE.get(name, 1.0) * measured * faster,
        "1",
        "assumed",
        f"cubic law of power and clock: a {name} operation takes {energy:g} of the energy of a"
        f" 16-bit one, {rate / wide_rate:g} run at a time; casts are counted apart",
    )
