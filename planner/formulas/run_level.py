"""From one step to a whole run: days, money, energy, and what failures take away."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula

# 419 unexpected interruptions in 54 days on 16,384 H100: Llama 3 (arXiv 2407.21783) table 5
MTBF_GPU_S = 16384 * 54 * 86400 / 419
CHECKPOINT_S = 10.0  # an asynchronous checkpoint stops training so long; assumed: 60 s would contradict Llama 3's > 90 %
RESTART_S = 600.0  # detect, replace, load, warm up; assumed
POWER_FRAC = 0.85  # board power under training load over its limit; assumed
FACILITY_FACTOR = 1.4  # host, network and cooling per GPU watt; assumed


@formula(unit="tokens/s", equation="batch s / step", source="definition")
def tokens_per_s(global_batch: Array, seq_tokens: Array, step_s: Array) -> Array:
    """Training throughput of the whole cluster."""
    return global_batch * seq_tokens / step_s


@formula(unit="1", equation="flop / (GPUs rate step)", source="PaLM, arXiv 2204.02311 appendix B")
def utilisation(flop: Array, gpus: Array, rate_flop_per_s: Array, step_s: Array) -> Array:
    """MFU from model FLOP, HFU from hardware FLOP, over the dense vendor rate of the training precision."""
    return flop / (gpus * rate_flop_per_s * step_s)


@formula(unit="s", equation="sqrt(2 C MTBF)", source="Young 1974, Daly 2006")
def checkpoint_interval_s(checkpoint_s: Array, mtbf_s: Array) -> Array:
    """Interval between checkpoints that loses least time."""
    return np.sqrt(2 * checkpoint_s * mtbf_s)


@formula(
    unit="1",
    equation="1 - C/tau - (tau/2 + R)/MTBF",
    source="Young 1974, Daly 2006; MTBF: Llama 3, arXiv 2407.21783 table 5",
)
def goodput(gpus: Array, mtbf_gpu_s: Array, checkpoint_s: Array, restart_s: Array) -> Array:
    """Share of wall time that advances training, with checkpoints at the best interval."""
    mtbf = mtbf_gpu_s / gpus
    tau = checkpoint_interval_s(checkpoint_s, mtbf)
    return np.clip(1 - checkpoint_s / tau - (tau / 2 + restart_s) / mtbf, 0.01, 1.0)


@formula(unit="s", equation="tokens / (tokens/s goodput)", source="definition")
def run_s(tokens: Array, rate_tokens_per_s: Array, goodput_frac: Array) -> Array:
    """Wall time of the whole run."""
    return tokens / (rate_tokens_per_s * goodput_frac)


@formula(unit="J", equation="GPUs power frac factor time", source="board power limit; load share and facility factor assumed")
def energy_j(gpus: Array, power_w: Array, power_frac: Array, facility_factor: Array, time_s: Array) -> Array:
    """Energy of the run at the wall plug."""
    return gpus * power_w * power_frac * facility_factor * time_s
