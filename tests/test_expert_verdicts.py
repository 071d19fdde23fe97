"""Questions on methods, evidence, money, failures and nonsense, each with its truth."""

from __future__ import annotations

import pytest
from expert_questions import (
    EXPERTS,
    FSDP,
    LARGE,
    LORA,
    OWN,
    Question,
    check,
    days,
    doubted,
    memory,
    near,
    part,
    step,
    usd,
    width,
)
from test_expert_questions import QUESTIONS as STEPS

from planner.formulas.run_level import MTBF_CONSUMER_S, PROJECT_FRAC

QUESTIONS: list[Question] = [
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
    # failures and markets
    (
        "consumer cards fail as often as the worst published job",
        {"gpu": "rtx4090", "tp": 8, "recompute": "full"},
        {},
        lambda a, _: near(a.run.reliability.mtbf_gpu_s, MTBF_CONSUMER_S),
    ),
    (
        "a notice that suffices for a checkpoint saves work",
        {"price": None, "market": "spot"},
        {"price": None, "market": "spot", "storage": "nfs"},
        lambda a, b: a.run.goodput > b.run.goodput,
    ),
    (
        "spot is cheaper by the hour",
        {"price": None, "market": "spot"},
        {"price": None},
        lambda a, b: (a.cluster.usd_per_gpu_hour or 0) < (b.cluster.usd_per_gpu_hour or 0),
    ),
    (
        "replicas that go on lose less than the job",
        {"price": None, "market": "spot", "tp": 4, "zero": 0, "failure_stops": "replica"},
        {"price": None, "market": "spot", "tp": 4, "zero": 0, "recompute": "none"},
        lambda a, b: a.run.goodput > b.run.goodput,
    ),
    (
        "shards of ZeRO-1 stop with the job",
        {"price": None, "market": "spot", "failure_stops": "replica"},
        {"price": None, "market": "spot"},
        lambda a, b: near(a.run.goodput, b.run.goodput),
    ),
    (
        "a slow storage keeps a job longer from training",
        {"storage": "nfs"},
        {},
        lambda a, b: a.run.goodput < b.run.goodput,
    ),
    ("longer restarts cost days", {"restart": "60 min"}, {}, lambda a, b: days(a) > days(b)),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=[row[0] for row in QUESTIONS])
def test_a_truth_of_verdicts_holds(question: Question) -> None:
    check(question)


def test_there_are_a_hundred() -> None:
    every = [question for question, *_ in (*STEPS, *QUESTIONS)]
    assert len(every) >= 100
    assert len(set(every)) == len(every)
