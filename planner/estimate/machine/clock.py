"""The clock that tensor cores sustain under load, by power."""

from __future__ import annotations

from planner.formulas import kernels
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.hardware import GpuSpec
from planner.specs.plan import Plan

# energy of an fp8 operation over that of a 16-bit one: multipliers grow with the square of the
# mantissa (4 against 8 or 11 bits), registers and data paths with its width. Over validated runs:
# fp8 and 16-bit clocks differ by 1.13 on Hopper; on Blackwell, whose 16-bit GEMMs are far more
# limited, fp8 runs at 0.91 to 1 of the clock of its tables, which show next to no limit either
_FP8_ENERGY = {"hopper": 0.35, "blackwell": 0.2}
_FP8_ENERGY_ELSEWHERE = 0.35
_FP8_OPERATIONS = 2.0  # that run at a time for each 16-bit one
# share of the fp8 matrix rate that a scaling recipe leaves: rowwise scales break the epilogue,
# refit of torchtitan's runs; block scales feed the tensor cores with scales beside each operand:
# pairs of NeMo's runs alike but for the recipe take 4 % (Llama 3 8B) to 10 % (405B) longer, 0.86 to
# 0.91 of the rate by the share of time in fp8 GEMMs
_FP8_RECIPE = {"rowwise": 0.55, "mxfp8": 0.89}


def law_of(gpu: GpuSpec, power_w: float | None = None) -> float | None:
    """Tensor clock that the power law gives a GPU at this power (its board's by default), as a
    share of the full clock.

    None for an architecture whose energy per FLOP is not known.
    """
    energy, rate = kernels.ENERGY_PER_FLOP.get(gpu.architecture), gpu.dense.bf16 or gpu.dense.fp16
    if energy is None or rate is None:
        return None
    power = float(gpu.power) if power_w is None else power_w
    return float(kernels.power_limited_clock_frac(power, float(rate), float(energy)))


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


def fp8_frac(plan: Plan) -> Sourced:
    """Share of the fp8 rate under the 16-bit clock: what the recipe leaves, times the clock that
    the power saved allows."""
    clock, curve = float(sustained_clock(plan)), plan.cluster.gpu.kernels
    energy = _FP8_ENERGY.get(plan.cluster.gpu.architecture, _FP8_ENERGY_ELSEWHERE)
    faster = min((1 / _FP8_OPERATIONS / energy) ** (1 / 3), max(1.0 / clock, 1.0))
    recipe = _FP8_RECIPE.get(plan.training.fp8_recipe or "", 1.0)
    measured = float(curve.fp8_efficiency or curve.gemm_efficiency) / float(curve.gemm_efficiency)
    return Sourced(
        recipe * measured * faster,
        "1",
        "assumed",
        f"cubic law of power and clock: an fp8 operation takes {energy:g} of the energy "
        "of a 16-bit one, twice as many run at a time; casts are counted apart",
    )
