"""A hundred questions of people who buy and run clusters, each with its truth: monotonicity,
invariance, arithmetic, consistency, published numbers and nonsense. One table.

Long: a line per question.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from planner import api
from planner.formulas.run_level import MTBF_GPU_S, PROJECT_FRAC
from planner.specs.documents.estimate import Estimate

LAYOUT = {"tp": 2, "pp": 1, "zero": 1, "micro_batch": 1, "recompute": "none"}
BASE = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64, "stack": "megatron-core", **LAYOUT}
BASE |= {"tokens": "1T", "global_batch": 512, "seq_len": 8192, "price": 2.0}
FSDP = {"stack": "pytorch-fsdp", "zero": 3, "tp": None, "recompute": "full"}
LARGE = {"model": "llama-3.1-70b", "gpus": 256, "tp": 8, "pp": 4}
EXPERTS = {"model": "mixtral-8x7b", "tp": 1, "pp": 4, "ep": 8, "recompute": "full"}
LORA = {"stack": "hf-trainer", "gpus": 1, "tp": None, "pp": None, "zero": None, "lora": 16}
LORA |= {"global_batch": 8, "seq_len": 2048, "tokens": None, "price": None, "recompute": "full"}
OWN = {"price": None, "capex": 30_000}

Pair = Callable[[Estimate, Estimate], bool]


@cache
def _answered(items: tuple[tuple[str, Any], ...]) -> Estimate:
    return api.estimate(api.read_options(dict(items)), brief=True)


def answer(changes: dict[str, Any]) -> Estimate:
    """The base request with some options changed; None leaves one out."""
    given = {name: value for name, value in {**BASE, **changes}.items() if value is not None}
    return _answered(tuple(sorted(given.items())))


def near(one: float | None, other: float | None, rel: float = 1e-6) -> bool:
    assert one is not None
    assert other is not None
    return one == pytest.approx(other, rel=rel)


def step(e: Estimate) -> float:
    return e.step.seconds


def days(e: Estimate) -> float:
    assert e.run.days is not None
    return e.run.days


def usd(e: Estimate) -> float:
    assert e.run.cost_usd is not None
    return e.run.cost_usd


def width(e: Estimate) -> float:
    """Of the band, as the logarithm of the ratio of its ends."""
    return math.log(e.step.high / e.step.low)


def memory(e: Estimate) -> float:
    return e.memory.device_bytes


def part(e: Estimate, name: str) -> float:
    return e.memory.components.get(name, 0.0)


def ledger(e: Estimate, name: str) -> float:
    """Bytes per parameter of a state, as the stack keeps it."""
    return e.stack.bytes_per_parameter[name]


def doubted(word: str) -> Pair:
    return lambda a, _: any(word in one for one in a.doubts)


# question, options of one request, of another ({} is the base), what holds
QUESTIONS: list[tuple[str, dict[str, Any], dict[str, Any], Pair]] = [
    # more work takes longer
    (
        "twice the tokens take twice the days",
        {"tokens": "2T"},
        {},
        lambda a, b: near(days(a), 2 * days(b), 1e-3),
    ),
    (
        "twice the tokens cost twice as much",
        {"tokens": "2T"},
        {},
        lambda a, b: near(usd(a), 2 * usd(b), 1e-3),
    ),
    (
        "the step does not know how long the run is",
        {"tokens": "2T"},
        {},
        lambda a, b: step(a) == step(b),
    ),
    ("twice the batch: a longer step", {"global_batch": 1024}, {}, lambda a, b: step(a) > step(b)),
    (
        "twice the batch: no more than twice the step",
        {"global_batch": 1024},
        {},
        lambda a, b: step(a) <= 2.001 * step(b),
    ),
    (
        "twice the batch: no fewer tokens per second",
        {"global_batch": 1024},
        {},
        lambda a, b: a.throughput.tokens_per_s >= 0.999 * b.throughput.tokens_per_s,
    ),
    (
        "longer sequences cost more per token",
        {"seq_len": 32768, "global_batch": 128, "recompute": "full"},
        {"recompute": "full"},
        lambda a, b: step(a) > step(b),
    ),
    (
        "a larger model is slower",
        {"model": "llama-2-13b"},
        {"model": "llama-2-7b"},
        lambda a, b: step(a) > 1.5 * step(b),
    ),
    (
        "a larger model needs more memory",
        {"model": "llama-2-13b"},
        {"model": "llama-2-7b"},
        lambda a, b: memory(a) > memory(b),
    ),
    (
        "recomputing everything is slower",
        {"recompute": "full"},
        {},
        lambda a, b: step(a) > 1.15 * step(b),
    ),
    (
        "recomputing everything is at most a third slower",
        {"recompute": "full"},
        {},
        lambda a, b: step(a) < 1.36 * step(b),
    ),
    (
        "recomputing everything saves memory",
        {"recompute": "full"},
        {},
        lambda a, b: memory(a) < memory(b),
    ),
    (
        "selective recomputation lies between in time",
        {"recompute": "selective"},
        {"recompute": "full"},
        lambda a, b: step(a) <= step(b),
    ),
    (
        "a longer micro-batch keeps more activations",
        {"micro_batch": 2},
        {},
        lambda a, b: part(a, "activations") > 1.9 * part(b, "activations"),
    ),
    # more machines
    ("twice the GPUs are faster", {"gpus": 128}, {}, lambda a, b: step(a) < step(b)),
    (
        "twice the GPUs are at most twice as fast",
        {"gpus": 128},
        {},
        lambda a, b: step(a) > 0.499 * step(b),
    ),
    ("twice the GPUs cost no less", {"gpus": 128}, {}, lambda a, b: usd(a) > 0.995 * usd(b)),
    (
        "more GPUs fail more often",
        {"gpus": 128},
        {},
        lambda a, b: near(a.run.reliability.mtbf_s, b.run.reliability.mtbf_s / 2),
    ),
    (
        "more GPUs shard the optimizer further",
        {"gpus": 128},
        {},
        lambda a, b: near(part(a, "optimizer"), part(b, "optimizer") / 2, 0.02),
    ),
    ("an H200 is no slower than an H100", {"gpu": "h200"}, {}, lambda a, b: step(a) <= step(b)),
    (
        "an H200 has more memory free",
        {"gpu": "h200"},
        {},
        lambda a, b: a.memory.headroom_bytes > b.memory.headroom_bytes + 40 * 2**30,
    ),
    (
        "an A100 is two to four times slower",
        {"gpu": "a100"},
        {},
        lambda a, b: 2 < step(a) / step(b) < 4,
    ),
    ("a B200 is faster", {"gpu": "b200"}, {}, lambda a, b: step(a) < step(b)),
    (
        "a slower network takes longer",
        {"nic_bandwidth": "50 Gbit/s"},
        {"nic_bandwidth": "400 Gbit/s"},
        lambda a, b: step(a) > step(b),
    ),
    (
        "a slower network changes no memory",
        {"nic_bandwidth": "50 Gbit/s"},
        {"nic_bandwidth": "400 Gbit/s"},
        lambda a, b: memory(a) == memory(b),
    ),
    ("a lower clock is slower", {"clock": 0.7}, {"clock": 0.9}, lambda a, b: step(a) > step(b)),
    (
        "tensor parallelism over nodes hurts",
        {"tp": 16},
        {"tp": 8},
        lambda a, b: step(a) > 1.2 * step(b),
    ),
    (
        "tensor parallelism splits the weights",
        {"tp": 4},
        {},
        lambda a, b: near(part(a, "parameters"), part(b, "parameters") / 2, 0.02),
    ),
    (
        "a pipeline has a bubble",
        {"pp": 4, "tp": 1},
        {},
        lambda a, b: a.step.components["bubble"] > 0 == b.step.components.get("bubble", 0.0),
    ),
    (
        "more micro-batches make the bubble's share smaller",
        {"pp": 4, "global_batch": 1024},
        {"pp": 4, "global_batch": 256},
        lambda a, b: a.step.components["bubble"] / step(a) < b.step.components["bubble"] / step(b),
    ),
    # arithmetic of one answer
    (
        "components add up to the step",
        {},
        {},
        lambda a, _: near(sum(a.step.components.values()), step(a)),
    ),
    (
        "components of memory add up to the peak",
        {},
        {},
        lambda a, _: near(sum(a.memory.components.values()), a.memory.peak_bytes),
    ),
    (
        "tokens per second are batch over step",
        {},
        {},
        lambda a, _: near(a.throughput.tokens_per_s, 512 * 8192 / step(a)),
    ),
    (
        "per GPU is the whole over the GPUs",
        {},
        {},
        lambda a, _: near(a.throughput.tokens_per_s_per_gpu, a.throughput.tokens_per_s / 64),
    ),
    (
        "days are tokens over rate and goodput",
        {},
        {},
        lambda a, _: near(days(a), 1e12 / a.throughput.tokens_per_s / a.run.goodput / 86400),
    ),
    (
        "GPU-hours are days times 24 times GPUs",
        {},
        {},
        lambda a, _: near(a.run.gpu_hours, days(a) * 24 * 64),
    ),
    (
        "cost is GPU-hours times price",
        {},
        {},
        lambda a, _: near(usd(a), 2.0 * (a.run.gpu_hours or 0)),
    ),
    (
        "twice the price costs twice as much",
        {"price": 4.0},
        {},
        lambda a, b: near(usd(a), 2 * usd(b)),
    ),
    ("price changes no day", {"price": 4.0}, {}, lambda a, b: days(a) == days(b)),
    (
        "MFU is 6 N and attention over the peak",
        {},
        {},
        lambda a, _: 0.9 < a.throughput.model_flop_per_step / (6 * 8.03e9 * 512 * 8192) < 1.2,
    ),
    (
        "MFU is below HFU under recomputation",
        {"recompute": "full"},
        {},
        lambda a, _: a.throughput.mfu < a.throughput.hfu,
    ),
    (
        "MFU is HFU without recomputation",
        {},
        {},
        lambda a, _: near(a.throughput.mfu, a.throughput.hfu),
    ),
    ("no run is above the peak", {}, {}, lambda a, _: 0 < a.throughput.hfu < 1),
    ("8.03 B parameters", {}, {}, lambda a, _: near(a.model.parameters, 8_030_261_248)),
    ("70.6 B parameters", LARGE, {}, lambda a, _: near(a.model.parameters, 70_553_706_496)),
    (
        "46.7 B parameters of Mixtral, 12.9 B active",
        EXPERTS,
        {},
        lambda a, _: (
            near(a.model.parameters, 46.7e9, 0.002)
            and near(a.model.active_parameters, 12.9e9, 0.005)
        ),
    ),
    (
        "weights of 8 B over 2 ranks in 16 bit are 7.5 GiB",
        {},
        {},
        lambda a, _: near(part(a, "parameters"), 8.03e9 / 2 * 2, 0.01),
    ),
    (
        "optimizer states by the stack's ledger, over 64 GPUs",
        {},
        {},
        lambda a, _: near(part(a, "optimizer"), ledger(a, "optimizer") * 8.03e9 / 64, 0.02),
    ),
    (
        "a checkpoint holds weights and optimizer states",
        {},
        {},
        lambda a, _: near(
            a.run.reliability.checkpoint_bytes,
            (ledger(a, "parameters") + ledger(a, "optimizer")) * 8.03e9,
            0.01,
        ),
    ),
    (
        "energy is power times time",
        {},
        {},
        lambda a, _: near(a.run.energy_kwh, a.run.power_w * days(a) * 24 / 1e3),
    ),
    ("64 H100s draw 40 to 75 kW", {}, {}, lambda a, _: 40e3 < a.run.power_w < 75e3),
    ("the band contains the step", {}, {}, lambda a, _: a.step.low < step(a) < a.step.high),
    (
        "the run is no surer than the step",
        {},
        {},
        lambda a, _: (
            a.run.low * step(a) <= a.step.low * 1.001
            and a.run.high * step(a) >= a.step.high * 0.999
        ),
    ),
    # what changes nothing
    (
        "cost is of no model: price leaves memory alone",
        {"price": 4.0},
        {},
        lambda a, b: memory(a) == memory(b),
    ),
    (
        "a failure rate changes no step",
        {"mtbf": "20000 GPU-hours"},
        {},
        lambda a, b: step(a) == step(b),
    ),
    (
        "a failure rate changes the days",
        {"mtbf": "20000 GPU-hours"},
        {},
        lambda a, b: days(a) > days(b),
    ),
    ("an alias is its GPU", {"gpu": "h100-sxm5-80gb"}, {}, lambda a, b: step(a) == step(b)),
    ("data parallelism follows from the others", {"dp": 32}, {}, lambda a, b: step(a) == step(b)),
    ("1,000 B tokens are 1 T tokens", {"tokens": "1000B"}, {}, lambda a, b: days(a) == days(b)),
    ("the default is what is typed", {"precision": "bf16"}, {}, lambda a, b: step(a) == step(b)),
    (
        "a job's MTBF is a GPU's over the GPUs",
        {"mtbf": "312.5 h"},
        {"mtbf": "20000 GPU-hours"},
        lambda a, b: near(a.run.goodput, b.run.goodput),
    ),
    (
        "unstated failures are Llama 3's",
        {},
        {},
        lambda a, _: near(a.run.reliability.mtbf_gpu_s, MTBF_GPU_S),
    ),
    # precision, stacks, methods
    ("fp8 is faster on an H100", {"precision": "fp8"}, {}, lambda a, b: step(a) < 0.95 * step(b)),
    (
        "fp8 is at most twice as fast",
        {"precision": "fp8"},
        {},
        lambda a, b: step(a) > 0.5 * step(b),
    ),
    (
        "fp8 halves no optimizer state",
        {"precision": "fp8"},
        {},
        lambda a, b: near(part(a, "optimizer"), part(b, "optimizer"), 0.01),
    ),
    (
        "ZeRO-3 shards the weights",
        FSDP,
        {},
        lambda a, b: part(a, "parameters") < part(b, "parameters"),
    ),
    (
        "ZeRO-2 is no faster than ZeRO-1 in bytes kept",
        {**FSDP, "zero": 2},
        FSDP,
        lambda a, b: memory(a) > memory(b),
    ),
    (
        "experts make a step cheaper than a dense model",
        EXPERTS,
        {"model": "llama-2-13b", "pp": 4, "recompute": "full", "tp": 1},
        lambda a, b: a.throughput.model_flop_per_step < 1.1 * b.throughput.model_flop_per_step,
    ),
    (
        "experts need the memory of all of them",
        EXPERTS,
        {"model": "llama-2-13b", "pp": 4, "recompute": "full", "tp": 1},
        lambda a, b: part(a, "parameters") + part(a, "gradients") > 0,
    ),
    (
        "LoRA needs less than full fine-tuning",
        LORA,
        {**LORA, "lora": None},
        lambda a, b: memory(a) < 0.5 * memory(b),
    ),
    (
        "LoRA is at most a third faster",
        LORA,
        {**LORA, "lora": None},
        lambda a, b: 0.6 < step(a) / step(b) < 1.2,
    ),
    (
        "QLoRA needs less than LoRA",
        {**LORA, "base_precision": "nf4"},
        LORA,
        lambda a, b: memory(a) < memory(b),
    ),
    (
        "8 B with LoRA fits on 24 GB in 4 bit",
        {**LORA, "gpu": "rtx4090", "base_precision": "nf4", "global_batch": 1},
        {},
        lambda a, _: a.memory.fits,
    ),
    (
        "8 B does not train in full on 24 GB",
        {**LORA, "gpu": "rtx4090", "lora": None, "global_batch": 1},
        {},
        lambda a, _: not a.memory.fits,
    ),
    (
        "70 B does not train on 8 H100s without offload",
        {**LARGE, "gpus": 8, "pp": 1, "recompute": "full", "global_batch": 8},
        {},
        lambda a, _: not a.memory.fits,
    ),
    ("70 B trains on 256 H100s", LARGE, {}, lambda a, _: a.memory.fits),
    # published
    (
        "Llama 3.1 8B at 15 T: 0.4 to 1.5 M H100-hours",
        {"tokens": "15T", "gpus": 512},
        {},
        lambda a, _: 0.4e6 < (a.run.gpu_hours or 0) < 1.5e6,
    ),
    (
        "Llama 2 7B at 2 T: 0.1 to 0.19 M A100-hours",
        {
            "model": "llama-2-7b",
            "gpu": "a100",
            "gpus": 256,
            "tp": 1,
            "tokens": "2T",
            "seq_len": 4096,
            "global_batch": 1024,
            "recompute": "selective",
        },
        {},
        lambda a, _: 0.09e6 < (a.run.gpu_hours or 0) < 0.19e6,
    ),
    (
        "Llama 1 65B: 380 tokens/s and A100, within a third",
        {
            "model": "llama-65b",
            "gpu": "a100",
            "gpus": 2048,
            "tp": 8,
            "pp": 4,
            "seq_len": 2048,
            "global_batch": 2048,
            "recompute": "selective",
        },
        {},
        lambda a, _: 250 < a.throughput.tokens_per_s_per_gpu < 510,
    ),
    (
        "dense 70 B on H100s: MFU of 35 to 55 %",
        LARGE,
        {},
        lambda a, _: 0.33 < a.throughput.mfu < 0.56,
    ),
    (
        "PaLM's MFU is above the causal one",
        {},
        {},
        lambda a, _: (
            isinstance(a.throughput.mfu_palm, float) and a.throughput.mfu_palm > a.throughput.mfu
        ),
    ),
    # evidence
    (
        "a card with few runs has a wider band",
        {"gpu": "mi300x"},
        {},
        lambda a, b: width(a) > 1.5 * width(b),
    ),
    ("Blackwell is less sure than Hopper", {"gpu": "b200"}, {}, lambda a, b: width(a) > width(b)),
    (
        "4 bit is less sure than 8 bit",
        {"gpu": "b200", "precision": "nvfp4"},
        {"gpu": "b200", "precision": "fp8"},
        lambda a, b: width(a) > width(b),
    ),
    ("8 bit is less sure than 16 bit", {"precision": "fp8"}, {}, lambda a, b: width(a) > width(b)),
    (
        "a mixture of experts is less sure than a dense model",
        EXPERTS,
        {},
        lambda a, b: width(a) > 1.3 * width(b),
    ),
    ("a loop of one's own is less sure than Megatron", FSDP, {}, lambda a, b: width(a) > width(b)),
    (
        "a known program of torch is surer than a loop of one's own",
        {**FSDP, "stack": "composer-fsdp"},
        FSDP,
        lambda a, b: width(a) < width(b),
    ),
    (
        "the usual project takes half as long again",
        {"run_as": "project"},
        {},
        lambda a, b: near(days(a), PROJECT_FRAC[1] * days(b)),
    ),
    (
        "a project is less sure than a plan",
        {"run_as": "project"},
        {},
        lambda a, b: a.run.high / a.run.low > b.run.high / b.run.low,
    ),
    # money
    (
        "own machines: 30,000 USD over four years at 80 %",
        OWN,
        {},
        lambda a, _: near(
            a.run.hardware_usd, 30_000 / (4 * 8766 * 0.8) * (a.run.gpu_hours or 0), 1e-3
        ),
    ),
    (
        "own machines pay electricity",
        OWN,
        {},
        lambda a, b: (a.run.electricity_usd or 0) > 0 == (b.run.electricity_usd or 0),
    ),
    (
        "spot is interrupted",
        {"price": None, "market": "spot"},
        {},
        lambda a, b: a.run.goodput < 0.95 * b.run.goodput,
    ),
    (
        "spare nodes are paid",
        {"spare_nodes": 2},
        {},
        lambda a, b: near(usd(a), usd(b) * (64 + 16) / 64, 0.02),
    ),
    # nonsense
    (
        "tokens for sequences are doubted",
        {"global_batch": 4_194_304},
        {},
        doubted("--global-batch 512"),
    ),
    ("a GPU's MTBF for the job's is doubted", {"mtbf": "50000 h"}, {}, doubted("GPU-hours")),
    ("a cent per GPU-hour is doubted", {"price": 0.01}, {}, doubted("--price")),
    ("a card for 300 dollars is doubted", {**OWN, "capex": 300}, {}, doubted("--capex")),
    ("sequences of 12 tokens are doubted", {"seq_len": 12}, {}, doubted("--seq-len 12k")),
    ("400 Mbit/s are doubted", {"nic_bandwidth": "400 Mbit/s"}, {}, doubted("400 Gbit/s")),
    ("an ordinary request is not doubted", {}, {}, lambda a, _: a.doubts == []),
]


def test_there_are_a_hundred() -> None:
    assert len(QUESTIONS) >= 100
    assert len({question for question, *_ in QUESTIONS}) == len(QUESTIONS)


@pytest.mark.parametrize(
    ("one", "other", "holds"), [row[1:] for row in QUESTIONS], ids=[row[0] for row in QUESTIONS]
)
def test_a_truth_of_the_field_holds(
    one: dict[str, Any], other: dict[str, Any], holds: Pair
) -> None:
    a, b = answer(one), answer(other)
    assert math.isfinite(a.step.seconds)
    assert holds(a, b)
