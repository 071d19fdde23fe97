"""From one step to a whole run: days, money, energy, and the cost of failures."""

from __future__ import annotations

import math

import numpy as np

from planner.ledger import Array, formula

_MOST = 300.0  # exponents whose product still is a number; what is longer never ends
_SMALL = 1e-300
_MOST_TERMS = 4096  # of a sum; beyond, the closed form is within 2e-6 of it

# 419 unexpected interruptions in 54 days on 16,384 H100: Llama 3 (arXiv 2407.21783) table 5
MTBF_GPU_S = 16384 * 54 * 86400 / 419
# assumed, since no job of consumer cards is published: the worst published one of other cards,
# OPT-175B (arXiv 2205.01068), which restarted more than 100 times in 2 months on 992 A100. Consumer
# cards have no ECC by default: of those on 20,000 hosts of Folding@home two thirds showed memory
# errors, of those in controlled environments none (arXiv 0910.0505)
MTBF_CONSUMER_S = 14_000 * 3600.0
# of these, confirmed or suspected hardware: the node has to be replaced (Llama 3, section 3.3.4)
HARDWARE_FRAC = 0.78
REPAIR_S = 86400.0  # until a replaced node is back; assumed
ENOUGH_SPARES = 0.99  # share of the time for which the proposed number of spare nodes suffices

# what a 7B model's asynchronous writer was measured to stop training
# (pytorch.org/blog/reducing-checkpointing-times); the copy to host memory comes on top. 60 s would
# contradict Llama 3's > 90 %
PAUSE_S = 6.3
# for which replicas stop that go on without another: failure recovery of FT-HSDP takes 3 minutes
# in place of 10 (arXiv 2602.00277, abstract)
REGROUP_S = 180.0
RESTART_S = 600.0  # detect, replace, start, warm up, without loading; assumed
READ_OVER_WRITE = 2.0  # storage of a DGX SuperPOD reads twice as fast as it writes; recalled

POWER_FRAC = 0.85  # board power over its limit while the GPU computes; assumed
# while it waits for messages; assumed, troughs of training lie between 0.2 and 0.75 (arXiv
# 2308.12908, recalled)
WAIT_FRAC = 0.5
HOST_FACTOR = 1.25  # host and network per GPU watt; assumed
PUE = 1.12  # building over computers, large new ones; assumed. Means of surveys are near 1.56
FACILITY_FACTOR = HOST_FACTOR * PUE  # all of it per GPU watt
GRID_G_PER_KWH = 436.0  # world mean of 2022: Ember, Global Electricity Review 2023

# GPU-hours of published projects over GPU-hours of the best plan for the same tokens on the same
# machines: the 10, 50 and 90 % quantiles of planner/data/project_ratios.csv, which a test compares
PROJECT_FRAC = (1.17, 1.59, 2.42)

LIFETIME_YEARS = 4.0  # of owned hardware; assumed
USE_FRAC = 0.8  # share of it in which it earns; assumed
ELECTRICITY_USD_PER_KWH = 0.10  # assumed


@formula(unit="tokens/s", equation="batch s / step", source="definition")
def tokens_per_s(global_batch: Array, seq_tokens: Array, step_s: Array) -> Array:
    """Training throughput of the whole cluster."""
    return global_batch * seq_tokens / step_s


@formula(unit="1", equation="flop / (GPUs rate step)", source="PaLM, arXiv 2204.02311 appendix B")
def utilisation(flop: Array, gpus: Array, rate_flop_per_s: Array, step_s: Array) -> Array:
    """MFU from model FLOP, HFU from hardware FLOP, over the dense vendor rate of the training
    precision."""
    return flop / (gpus * rate_flop_per_s * step_s)


@formula(
    unit="s",
    equation="MTBF of a GPU / GPUs",
    source="failures of GPUs are independent; RSC, arXiv 2410.21680 section III",
)
def job_mtbf_s(mtbf_gpu_s: Array, gpus: Array) -> Array:
    """Mean time between failures of a job: any GPU stops it."""
    return mtbf_gpu_s / gpus


@formula(
    unit="s",
    equation="1 / (1 / first + 1 / second)",
    source="rates of independent Poisson processes add up",
)
def either_s(first_s: Array, second_s: Array) -> Array:
    """Mean time until the first of two independent events."""
    return 1 / (1 / first_s + 1 / second_s)


@formula(unit="1", equation="1 - stop / time between stops", source="definition; at least 0")
def kept_frac(stop_s: Array, between_s: Array) -> Array:
    """Share of wall time that is left beside stops which lose no work."""
    return np.maximum(1 - stop_s / between_s, 0.0)


@formula(
    unit="B",
    equation="parameters (parameter + optimizer bytes)",
    source="gradients are not saved; each state once",
)
def checkpoint_bytes(parameters: Array, bytes_per_parameter: Array) -> Array:
    """Size of a checkpoint that training can go on from."""
    return parameters * bytes_per_parameter


@formula(
    unit="s",
    equation="pause + bytes / rate",
    source="definition; asynchronous: a GPU's share over its host link, else the file",
)
def checkpoint_stop_s(pause_s: Array, stored_bytes: Array, bytes_per_s: Array) -> Array:
    """Time for which a checkpoint stops training."""
    return pause_s + stored_bytes / bytes_per_s


@formula(unit="s", equation="sqrt(2 C MTBF)", source="Young 1974, Daly 2006")
def checkpoint_interval_s(checkpoint_s: Array, mtbf_s: Array) -> Array:
    """Interval between checkpoints that loses least time."""
    return np.sqrt(2 * checkpoint_s * mtbf_s)


@formula(
    unit="1",
    equation="tau / (M exp(R/M) (exp((tau + C)/M) - 1))",
    source=(
        "Daly 2006, equation 20: complete, with failures at any time; M mean time between failures,"
        " R with the unwritten part"
    ),
)
def goodput(interval_s: Array, checkpoint_s: Array, restart_s: Array, mtbf_s: Array) -> Array:
    """Share of wall time that advances training, with a checkpoint of C after every tau of work."""
    lost = np.exp(np.minimum(restart_s / mtbf_s, _MOST)) * np.expm1(
        np.minimum((interval_s + checkpoint_s) / mtbf_s, _MOST)
    )
    return interval_s / (mtbf_s * lost)


@formula(
    unit="1",
    equation="tau / (tau + C) (1 - (regroup + R stopped share) / M)",
    source=(
        "definition; replicas that go on lose no work, so that checkpoints of C after every tau are"
        " for what stops all of them; M mean time between failures, R until a replica is back"
    ),
)
def goodput_of_replicas(
    interval_s: Array,
    checkpoint_s: Array,
    regroup_s: Array,
    restart_s: Array,
    stopped_frac: Array,
    mtbf_s: Array,
) -> Array:
    """Share of wall time that advances training where a failure stops some of the replicas."""
    saved = interval_s / (interval_s + checkpoint_s)
    return saved * np.maximum(1 - (regroup_s + restart_s * stopped_frac) / mtbf_s, 0.0)


@formula(
    unit="1",
    equation="sum of Poisson(nodes in repair) up to the spares",
    source=(
        "M/D/inf queue: Poisson in the steady state; above 4,096 spares the closed form of Wilson"
        " and Hilferty 1931, PNAS 17"
    ),
)
def spares_suffice_frac(nodes_in_repair: Array, spares: float) -> Array:
    """Share of the time in which no more nodes are in repair than there are spares."""
    mean = np.asarray(nodes_in_repair, dtype=float)
    if spares > _MOST_TERMS:
        return _wilson_hilferty(mean, spares + 1.0)
    counts = np.arange(spares + 1.0)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(counts[1:], 1.0)))])
    mean = mean[..., None]
    terms = counts * np.log(np.maximum(mean, _SMALL)) - mean - factorials
    return np.minimum(np.exp(terms).sum(axis=-1), 1.0)


def _wilson_hilferty(mean: Array, above: float) -> Array:
    """Chance that a Poisson count stays below `above`: the chance that a chi-square variable of 2
    `above` degrees of freedom exceeds 2 `mean`, whose cube root is nearly normal."""
    score = 3 * np.sqrt(above) * (1 - 1 / (9 * above) - np.cbrt(mean / above))
    return np.vectorize(math.erfc, otypes=[float])(-score / math.sqrt(2)) / 2


@formula(unit="s", equation="tokens / (tokens/s goodput)", source="definition")
def run_s(tokens: Array, rate_tokens_per_s: Array, goodput_frac: Array) -> Array:
    """Wall time of the whole run."""
    return tokens / (rate_tokens_per_s * goodput_frac)


@formula(
    unit="1",
    equation="busy load + (1 - busy) wait",
    source="definition; both shares of the board's limit assumed",
)
def drawn_frac(busy_frac: Array, load_frac: Array, wait_frac: Array) -> Array:
    """Mean board power over its limit; busy_frac: share of the step in which the GPU computes."""
    return busy_frac * load_frac + (1 - busy_frac) * wait_frac


@formula(
    unit="USD",
    equation="GPU-seconds capex / (lifetime use)",
    source="straight-line depreciation over the hours that earn",
)
def owned_usd(gpu_s: Array, capex_usd: Array, lifetime_s: Array, use_frac: Array) -> Array:
    """Share of the purchase that a run uses up."""
    return gpu_s * capex_usd / (lifetime_s * use_frac)


@formula(unit="USD", equation="GPU-seconds price", source="definition")
def machines_usd(gpu_s: Array, usd_per_gpu_s: Array) -> Array:
    """Cost of machines for a run: rent, or depreciation of owned ones."""
    return gpu_s * usd_per_gpu_s


@formula(
    unit="J",
    equation="GPUs power frac factor time",
    source="board power limit; load share and facility factor assumed",
)
def energy_j(
    gpus: Array, power_w: Array, power_frac: Array, facility_factor: Array, time_s: Array
) -> Array:
    """Energy of the run at the wall plug."""
    return gpus * power_w * power_frac * facility_factor * time_s


@formula(
    unit="1",
    equation="repair / (MTBF + repair)",
    source="steady state of an alternating renewal process",
)
def node_down_frac(mtbf_node_s: Array, repair_s: Array) -> Array:
    """Share of the time for which a node is broken."""
    return repair_s / (mtbf_node_s + repair_s)


@formula(
    unit="1",
    equation="(1 - p)^g",
    source="own derivation: all g nodes work at once, each without regard to the others",
)
def nodes_up_frac(down_frac: Array, nodes: Array) -> Array:
    """Share of the time for which this many nodes all work: the nodes of one replica for a job that
    continues without broken replicas, of the whole job otherwise."""
    return (1 - down_frac) ** nodes
