"""From a step to a run: throughput, utilisation, failures and checkpoints, energy, money."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from command import dpplan, refused
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.estimate.run import spares_for
from planner.formulas import run_level
from planner.formulas.run_level import (
    checkpoint_bytes,
    checkpoint_interval_s,
    checkpoint_stop_s,
    drawn_frac,
    energy_j,
    goodput,
    goodput_of_replicas,
    job_mtbf_s,
    owned_usd,
    run_s,
    spares_suffice_frac,
    tokens_per_s,
    utilisation,
)
from planner.inputs.run import storages
from planner.specs.documents.run import Run
from planner.specs.hardware import StorageSpec

LLAMA_3 = 16384  # GPUs
YEAR_S = 365.25 * 86400


def test_throughput_and_utilisation() -> None:
    # 1024 sequences of 4096 tokens in 8 s; 8 GPUs of 312 TFLOP/s doing 1.248e15 FLOP in a second
    # are half busy
    assert tokens_per_s(1024.0, 4096.0, 8.0) == 524_288
    assert utilisation(1.248e15, 8.0, 312e12, 1.0) == pytest.approx(0.5)


def test_checkpoint_interval() -> None:
    # Young 1974: sqrt(2 * 60 s * 30000 s) = 1897 s
    assert float(checkpoint_interval_s(60.0, 30000.0)) == pytest.approx(1897.37, abs=0.01)


@given(cost=st.floats(1, 60), mtbf=st.floats(1e5, 1e8))
def test_no_other_interval_loses_less(cost: float, mtbf: float) -> None:
    """Young's interval is the first-order best: where failures are rare, others are worse by the
    complete formula too."""
    best = float(checkpoint_interval_s(cost, mtbf))
    here, shorter, longer = (
        float(goodput(factor * best, cost, 0.0, mtbf)) for factor in (1.0, 0.7, 1.5)
    )
    assert here > max(shorter, longer)


def test_goodput_by_hand() -> None:
    # failures every 50000 s, checkpoints of 100 s every 3162 s, restarts of 600 s. First order:
    # 100/3162 + (1581 + 600)/50000 = 0.0316 + 0.0436 lost. Complete: 3162.28 / (50000 e^0.012
    # (e^0.0652456 - 1)) = 0.92688
    assert float(goodput(3162.2777, 100.0, 600.0, 50000.0)) == pytest.approx(0.92688, abs=1e-5)
    assert float(goodput(3162.2777, 100.0, 600.0, 50000.0)) == pytest.approx(
        1 - 0.0316 - 0.0436, abs=3e-3
    )


def test_goodput_is_what_a_run_with_random_failures_reaches() -> None:
    """Exponential failures at any time, in work, checkpoints and restarts alike."""
    draw = random.Random(7)
    work, stop, restart, mtbf = 900.0, 60.0, 300.0, 5000.0
    clock, done = 0.0, 0
    failure = draw.expovariate(1 / mtbf)
    while done < 40_000:
        if clock + work + stop <= failure:
            clock, done = clock + work + stop, done + 1
            continue
        clock = failure
        failure = clock + draw.expovariate(1 / mtbf)
        while clock + restart > failure:  # fails again while it restarts
            clock = failure
            failure = clock + draw.expovariate(1 / mtbf)
        clock += restart
    assert done * work / clock == pytest.approx(float(goodput(work, stop, restart, mtbf)), rel=0.01)


@given(gpus=st.integers(1, 10**6), cost=st.floats(0.1, 3600), restart=st.floats(0, 1e5))
def test_goodput_is_a_share_and_falls_with_the_number_of_gpus(
    gpus: int, cost: float, restart: float
) -> None:
    def at(count: float, mtbf_gpu: float) -> float:
        mtbf = float(job_mtbf_s(mtbf_gpu, count))
        return float(goodput(checkpoint_interval_s(cost, mtbf), cost, restart, mtbf))

    here = at(gpus, run_level.MTBF_GPU_S)
    assert 0 <= here <= 1
    assert at(2 * gpus, run_level.MTBF_GPU_S) <= here
    assert at(gpus, 1e30) == pytest.approx(1.0)


def test_llama_3_failed_every_three_hours() -> None:
    # arXiv 2407.21783, section 3.3.4: 419 unexpected interruptions in 54 days on 16,384 GPUs
    assert float(job_mtbf_s(run_level.MTBF_GPU_S, LLAMA_3)) / 3600 == pytest.approx(3.1, abs=0.05)


@pytest.mark.parametrize(("gpus", "hours"), [(16384, 1.8), (131072, 0.23)])
def test_time_between_failures_of_rsc(gpus: int, hours: float) -> None:
    """arXiv 2410.21680, section III: 6.50 failures per 1000 days of an 8-GPU node project to
    these."""
    of_a_gpu = 1000 / 6.50 * 86400 * 8
    assert float(job_mtbf_s(of_a_gpu, gpus)) / 3600 == pytest.approx(hours, abs=0.05 * hours)


def test_a_checkpoint_by_hand() -> None:
    # 405e9 parameters of 2 B and 12 B of states: 5.67 TB; a 2048th of 10.24 GB/s each takes 5 s
    # more than the pause of 1 s
    assert float(checkpoint_bytes(405e9, 14.0)) == pytest.approx(5.67e12)
    assert float(checkpoint_stop_s(1.0, 5e9, 1e9)) == 6.0


def test_spares_by_hand() -> None:
    # two nodes in repair on average: none with e^-2, at most one with 3 e^-2, at most two with 5
    # e^-2
    assert float(spares_suffice_frac(2.0, 0.0)) == pytest.approx(math.exp(-2))
    assert float(spares_suffice_frac(2.0, 2.0)) == pytest.approx(5 * math.exp(-2))
    assert spares_for(2.0) == 6  # 0.9955; five suffice 0.9834
    assert spares_for(0.0) == 0


@given(mean=st.floats(0, 500))
def test_proposed_spares_suffice_and_one_less_does_not(mean: float) -> None:
    spares = spares_for(mean)
    assert float(spares_suffice_frac(mean, float(spares))) >= run_level.ENOUGH_SPARES
    assert spares == 0 or float(spares_suffice_frac(mean, spares - 1.0)) < run_level.ENOUGH_SPARES


def test_spares_of_many_nodes_by_closed_form() -> None:
    most = run_level._MOST_TERMS
    for mean in most + most**0.5 * np.linspace(-4, 4, 9):
        summed = float(spares_suffice_frac(mean, most))
        closed = float(run_level._wilson_hilferty(mean, most + 1.0))
        assert closed == pytest.approx(summed, abs=2e-6)
    # the 99 % quantile of a normal count: mean + 2.326 standard deviations
    assert spares_for(1e10) == pytest.approx(1e10 + 2.326 * 1e5, abs=100)


def test_run_and_energy() -> None:
    # 2e12 tokens at 1e6 a second, 80 % of the time: 2.5e6 s
    assert run_s(2e12, 1e6, 0.8) == pytest.approx(2.5e6)
    # Llama 2 70B took 1,720,320 GPU-hours of 400 W (arXiv 2307.09288, table 2): 688 MWh at the
    # board if always at the limit
    assert energy_j(1.0, 400.0, 1.0, 1.0, 1_720_320 * 3600) / 3.6e9 == pytest.approx(688.1, abs=0.1)
    # 1000 GPUs at 85 % of 700 W and 40 % more around them for an hour: 833 kWh
    assert energy_j(1000.0, 700.0, 0.85, 1.4, 3600.0) / 3.6e6 == pytest.approx(833)
    # LLaMA 65B took 1,022,362 GPU-hours of 400 W at a PUE of 1.1: 449 MWh (arXiv 2302.13971, table
    # 15)
    assert energy_j(1.0, 400.0, 1.0, 1.1, 1_022_362 * 3600) / 3.6e9 == pytest.approx(449, abs=1)
    # BLOOM took 1,082,990 GPU-hours of 400 W: 433 MWh (arXiv 2211.02001)
    assert energy_j(1.0, 400.0, 1.0, 1.0, 1_082_990 * 3600) / 3.6e9 == pytest.approx(433.2, abs=0.1)


def test_drawn_power_and_owned_hardware_by_hand() -> None:
    assert drawn_frac(0.6, 0.9, 0.4) == pytest.approx(0.7)
    # 40,000 dollars over 4 years of which 80 % earn: 1.43 dollars per GPU-hour
    assert owned_usd(3600.0, 40_000.0, 4 * YEAR_S, 0.8) == pytest.approx(1.426, abs=1e-3)


WORDS = (
    "--model llama-2-7b --gpu h100 --gpus 256 --tp 1 --pp 1 --zero 1 --micro-batch 2 --recompute"
    " none --stack megatron-core --stack-defaults"
)


@cache
def run_of(words: str = "", tokens: str = "2T") -> Any:
    return dpplan(
        "estimate", *WORDS.split(), *words.split(), "--tokens", tokens, "--advice", 0, "--json"
    ).json()["run"]


def test_llama_3_goodput_of_the_whole_model() -> None:
    """arXiv 2407.21783, section 3.3.4: more than 90 % effective training time on 16,384 GPUs."""
    words = (
        "--model llama-3.1-405b --gpu h100 --gpus 16384 --tp 8 --pp 16 --zero 1 --micro-batch 1"
        " --stack megatron-core --advice 0 --tokens 15.6T --json"
    )
    run = dpplan("estimate", *words.split(), "--stack-defaults").json()["run"]
    assert 0.9 < run["goodput"] < 0.95
    assert run["reliability"]["mtbf_s"] / 3600 == pytest.approx(3.1, abs=0.05)
    # 14 B per parameter: the 16-bit copy, the fp32 one and two moments
    assert run["reliability"]["checkpoint_bytes"] == pytest.approx(14 * 405.9e9, rel=0.01)
    # of the fp32 copy what the 16-bit one lacks, which a search takes where the stack has it
    less = dpplan("estimate", *words.split(), "--master-precision", "remainder").json()["run"]
    assert less["reliability"]["checkpoint_bytes"] == pytest.approx(12 * 405.9e9, rel=0.01)


def test_figures_of_a_run_follow_from_each_other() -> None:
    run = run_of()
    assert run["failures"] == pytest.approx(run["days"] * 86400 / run["reliability"]["mtbf_s"])
    assert run["co2_kg"] == pytest.approx(run["energy_kwh"] * 0.436)
    facility = run_level.FACILITY_FACTOR
    assert run["energy_kwh"] == pytest.approx(
        run["gpu_hours"] * run["gpu_power_w"] / 1e3 * facility
    )
    assert run["energy_kwh"] == pytest.approx(run["power_w"] / 1e3 * run["days"] * 24)
    assert run["co2_kg_per_h"] == pytest.approx(run["power_w"] / 1e3 * 0.436)
    assert run["cost_usd"] == run["hardware_usd"]
    assert run["electricity_usd"] == 0
    assert run["reliability"]["interval_s"] == pytest.approx(
        math.sqrt(2 * run["reliability"]["checkpoint_stop_s"] * run["reliability"]["mtbf_s"])
    )


def test_options_of_a_run_move_what_they_should() -> None:
    base = run_of()
    assert run_of("--mtbf 5000GPU-h")["goodput"] < base["goodput"]
    assert base["goodput"] < run_of("--mtbf 500000GPU-h")["goodput"]
    assert run_of("--restart 60min")["goodput"] < base["goodput"]
    slow = run_of("--storage 10MB/s")
    assert slow["reliability"]["interval_s"] == pytest.approx(
        slow["reliability"]["checkpoint_write_s"]
    )  # no sooner than written
    assert (
        run_of("--checkpoint sync --storage 10MB/s")["goodput"] < slow["goodput"] < base["goodput"]
    )
    assert run_of("--checkpoint-interval 10h")["goodput"] < base["goodput"]
    assert run_of("--pue 1.6")["energy_kwh"] == pytest.approx(
        base["energy_kwh"] * 1.6 / run_level.PUE
    )
    assert run_of("--grid 57")["co2_kg"] == pytest.approx(0.057 * base["energy_kwh"])
    assert run_of("--grid 0")["co2_kg"] == 0


def test_spare_nodes_are_paid_for_and_keep_the_run_going() -> None:
    none, some, many = (run_of(f"--spare-nodes {n}") for n in (0, 1, 8))
    assert none["goodput"] < some["goodput"] < many["goodput"] <= run_of()["goodput"]
    assert many["cost_usd"] == pytest.approx(
        many["gpu_hours"] / 256 * (256 + 8 * 8) * run_of()["cost_usd"] / run_of()["gpu_hours"]
    )


def test_own_hardware_costs_depreciation_and_electricity() -> None:
    run = run_of("--capex 40000 --lifetime 4 --use 80% --electricity 0.08")
    assert run["hardware_usd"] == pytest.approx(
        run["gpu_hours"] * 40_000 / (4 * YEAR_S / 3600 * 0.8)
    )
    assert run["electricity_usd"] == pytest.approx(0.08 * run["energy_kwh"])
    assert run["cost_usd"] == pytest.approx(run["hardware_usd"] + run["electricity_usd"])


def test_spot_prices_are_listed_ones() -> None:
    words = "--model gpt2 --gpu h100 --gpus 1 --advice 0 --json --stack pytorch-ddp --market"
    spot, demand = (
        dpplan("estimate", *words.split(), m).json()["cluster"] for m in ("spot", "on-demand")
    )
    assert spot["usd_per_gpu_hour"] < demand["usd_per_gpu_hour"]
    assert "spot" in spot["price_source"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--storage 20", "unit"),
        ("--storage 0GB/s", "positive"),
        ("--mtbf -3", "--mtbf"),
        ("--mtbf 3GB", "--mtbf"),
        ("--pue 0.5", "--pue"),
        ("--grid -1", "--grid"),
        ("--use 0.5", "--capex"),
        ("--capex 4e4 --use 3", "share"),
        ("--capex 4e4 --price 2", "--price"),
        ("--market moon", "--market"),
        ("--checkpoint never", "--checkpoint"),
        ("--checkpoint-interval 0", "positive"),
        ("--spare-nodes -1", "--spare-nodes"),
        ("--capex nan", "--capex"),
    ],
)
def test_a_wrong_option_of_the_run_is_refused(words: str, text: str) -> None:
    refused(
        dpplan("estimate", "--model", "gpt2", "--gpu", "a100", "--gpus", 8, *words.split()), text
    )


def test_storages_differ_in_writing_and_the_asked_one_counts() -> None:
    by_id = {storage["id"]: storage for storage in run_of()["reliability"]["storages"]}
    assert set(by_id) == {storage.id for storage in storages()}
    for name, value in by_id.items():
        request = run_of(f"--storage {name}")
        assert request["reliability"]["checkpoint_write_s"] == pytest.approx(value["write_s"])
        assert request["goodput"] == pytest.approx(value["goodput"])
        assert value["write_s"] == pytest.approx(
            run_of()["reliability"]["checkpoint_bytes"] / value["bytes_per_s"]
        )
    order = sorted(by_id.values(), key=lambda entry: entry["write_s"])
    assert [entry["goodput"] for entry in order] == sorted(
        (entry["goodput"] for entry in order), reverse=True
    )
    assert run_of()["goodput"] == by_id["parallel-fs"]["goodput"]


def test_a_storage_has_one_speed() -> None:
    speed: Any = {"value": "1 GB/s", "source": "here"}
    assert StorageSpec(id="a", title="a", per_node=speed).bytes_per_s(4) == 4e9
    assert StorageSpec(id="a", title="a", whole=speed).bytes_per_s(4) == 1e9
    for entry in (None, speed):
        with pytest.raises(ValueError, match="not both"):
            StorageSpec(id="a", title="a", per_node=entry, whole=entry)


def test_replicas_that_train_on_by_hand() -> None:
    """Failures are 10,000 s apart: each costs every replica 180 s, and a quarter of them 600 s;
    a checkpoint takes 10 s after every 990."""
    result = goodput_of_replicas(990.0, 10.0, 180.0, 600.0, 0.25, 10_000.0)
    assert float(result) == pytest.approx(0.99 * (1 - 0.033))


@pytest.mark.parametrize(
    ("layout", "stopped"),
    [
        ({"stack": "megatron-core", "tp": 4, "zero": 0}, 8),  # a host has two replicas
        ({"stack": "megatron-core", "tp": 8, "pp": 2, "zero": 0, "schedule": "1f1b"}, 16),
        ({"stack": "megatron-core", "tp": 4, "zero": 1}, 64),  # shards over all replicas
        ({"stack": "pytorch-fsdp", "tp": 1, "zero": 3, "shard_group": 32}, 32),
        ({"stack": "pytorch-fsdp", "tp": 1, "zero": 3, "shard_group": 64}, 64),
    ],
)
def test_a_failed_host_stops_what_has_no_copy_of_its_states(
    layout: dict[str, Any], stopped: int
) -> None:
    request = {"model": "llama-2-7b", "gpu": "h100", "gpus": 64, "micro_batch": 1, "pp": 1}
    request |= {"recompute": "full", "global_batch": 256, "market": "spot", **layout}

    def goodput_with(unit: str) -> Run:
        options = api.read_options({**request, "failure_stops": unit})
        return api.estimate(options, brief=True).run

    job, replica = goodput_with("job"), goodput_with("replica")
    assert job.reliability.stopped_gpus == 64
    assert replica.reliability.stopped_gpus == stopped
    assert (replica.goodput > job.goodput) == (stopped < 64)
