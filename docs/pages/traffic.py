"""Blocks of docs/data-parallelism: memory and bytes of ZeRO, bounds of offloading, fewer
synchronisation, published batches."""

from __future__ import annotations

from pages.text import percent, table
from planner.formulas.data_parallel import (
    backward_volume_bytes,
    forward_volume_bytes,
    optimizer_volume_bytes,
    shard_count,
)
from planner.formulas.memory import state_bytes
from planner.formulas.offload import bandwidth_efficiency, bandwidth_for_efficiency, state_intensity
from planner.formulas.overlap import straggler_factor
from planner.formulas.stragglers import expected_slowest, slow_job_frac
from planner.verbs.batch.critical import PUBLISHED

_PARAMETERS, _RANKS = 7.5e9, 64.0  # Rajbhandari et al. 2020, figure 1
_STATES = {
    "parameters": (3.0, 2.0),
    "gradients": (2.0, 2.0),
    "optimizer": (1.0, 12.0),
}  # sharded from this stage, bytes
_PRINTED = ("120", "31.4", "16.6", "1.9")
_NAMES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
_ACCUMULATION = 8.0
_TOKENS, _V100, _V100_REACHED = (
    2048.0,
    125e12,
    70e12,
)  # of the SC21 slides; V100: on paper, and about what it reaches
_SWAPS = (("rtx4090", 8), ("a100", 8), ("h100", 8), ("b200", 8), ("gh200", 1))


def zero_memory() -> str:
    """GB of states per GPU as the paper prints them, and as the formulas give them."""
    rows = []
    for zero, (name, printed) in enumerate(zip(_NAMES, _PRINTED, strict=True)):
        parts = [
            state_bytes(_PARAMETERS, size, shard_count(float(zero), level, _RANKS))
            for level, size in _STATES.values()
        ]
        rows.append([name, printed, f"{float(sum(parts)) / 1e9:.2f}"])
    return table(["", ">GB, printed", ">GB, dpplan"], rows)


def volumes() -> str:
    """Bytes that a rank sends per step in units of Psi, the bytes of all parameters or gradients,
    for many ranks."""
    rows = []
    for zero, name in enumerate(_NAMES):
        for m in (1.0, _ACCUMULATION):
            each = [
                float(forward_volume_bytes(1.0, zero, 1e12, m)),
                float(backward_volume_bytes(1.0, 1.0, zero, 1e12, m)),
                float(optimizer_volume_bytes(1.0, zero, 1e12)),
            ]
            rows.append([name, f"{m:g}", *(f"{value:.3g}" for value in each), f"{sum(each):.3g}"])
    always = float(backward_volume_bytes(1.0, 1.0, 0.0, 1e12, _ACCUMULATION, _ACCUMULATION))
    rows.append(
        ["DDP without no_sync", f"{_ACCUMULATION:g}", "0", f"{always:.3g}", "0", f"{always:.3g}"]
    )
    return table(["", ">micro-batches", ">forward", ">backward", ">optimizer", ">sum"], rows)


def local_steps() -> str:
    """Bytes per token of a model of 7e9 parameters whose replicas synchronise every H steps of 4 Mi
    tokens."""
    tokens, whole = 4 * 2**20, 4 * 7e9
    rows = []
    for steps in (1, 8, 64, 500):
        sent = float(backward_volume_bytes(0.0, whole, 0.0, 64.0, 1.0)) / steps
        rows.append([f"{steps}", f"{sent / 1e9:.3g}", f"{sent / tokens:,.0f}"])
    return table([">H", ">GB per GPU and step", ">B per GPU and token of the batch"], rows)


def published() -> str:
    """Large batches as their papers state them."""
    rows = [[run.model, run.optimizer, f"{run.batch:,}", run.how, run.source] for run in PUBLISHED]
    return table(["model", "optimizer", ">batch, examples", "how", "source"], rows)


def slowest() -> str:
    """Wait for the slowest rank, as a share of compute, by the number of hosts of eight GPUs."""
    jitter, slow, by = 0.005, 0.005, 0.1
    rows = []
    for hosts in (1, 8, 64, 512, 2048):
        alone = float(expected_slowest(float(hosts), 8.0, jitter))
        both = float(expected_slowest(float(hosts), 8.0, jitter, slow, by))
        bound = float(straggler_factor(8.0 * hosts, jitter)) - 1
        rows.append(
            [
                f"{hosts:,}",
                percent(float(slow_job_frac(float(hosts), slow)), 1),
                percent(bound, 2),
                percent(alone, 2),
                percent(both, 2),
            ]
        )
    return table(
        [
            ">hosts of 8 GPUs",
            ">chance of a slow one",
            ">bound of the jitter",
            ">jitter 0.5 %",
            ">and slow hosts",
        ],
        rows,
    )


def infinity() -> str:
    """Bandwidths per GPU that ZeRO-Infinity's paper prints, beside those by its equations."""
    parameters, states = (state_intensity(_TOKENS, moved) for moved in (8.0, 32.0))
    copy = float(bandwidth_for_efficiency(parameters, _V100, 0.5))
    share = float(bandwidth_efficiency(states, 1500e9, _V100_REACHED))
    return table(
        ["what moves", "overlaps", ">FLOP per byte", ">GB/s, printed", "dpplan"],
        [
            [
                "parameters, gradients",
                "yes",
                f"{float(parameters):,.0f}",
                "60",
                f"{copy / 1e9:.0f} GB/s: copies as long as computation at 125 TFLOP/s",
            ],
            [
                "optimizer states",
                "no",
                f"{float(states):,.0f}",
                "1,500",
                f"{share:.0%} of 70 TFLOP/s are left at 1,500 GB/s",
            ],
        ],
    )


def swaps() -> str:
    """Time added by swapping a layer over each link, and by recompute, on one node of several
    GPUs."""
    from planner.units import show
    from planner.verbs.recommend import offload

    rows = []
    for gpu, gpus in _SWAPS:
        answer = offload(
            {
                "model": "llama-2-7b",
                "gpu": gpu,
                "gpus": gpus,
                "stack": "deepspeed",
                "zero": 3,
                "micro_batch": 1,
                "recompute": "none",
                "seq_len": 4096,
            }
        )
        layer = answer.layer
        each = []
        for link in answer.links:
            text = f"{show(link.out_exposed_s + link.back_exposed_s, 's')}, {link.cheaper}"
            each.append(f"**{text}**" if link.id == answer.host_link else text)
        rows.append(
            [
                f"{gpus} x {gpu}",
                show(layer.kept_bytes, "B"),
                show(layer.recompute_s, "s"),
                show(layer.break_even_bytes_per_s, "B/s"),
                show(layer.hidden_bytes_per_s or 0.0, "B/s"),
                *each,
            ]
        )
    header = [
        "GPUs",
        ">kept",
        ">recompute",
        ">break-even",
        ">free from",
        ">PCIe 3",
        ">PCIe 4",
        ">PCIe 5",
        ">NVLink-C2C",
    ]
    return table(header, rows)
