"""Questions on time, memory and arithmetic, each with its truth."""

from __future__ import annotations

import pytest
from expert_questions import (
    EXPERTS,
    LARGE,
    Question,
    check,
    days,
    ledger,
    memory,
    near,
    part,
    step,
    usd,
)

from planner.formulas.run_level import MTBF_GPU_S

QUESTIONS: list[Question] = [
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
        "cost reads no model: price leaves memory unchanged",
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
]


@pytest.mark.parametrize("question", QUESTIONS, ids=[row[0] for row in QUESTIONS])
def test_a_truth_of_steps_holds(question: Question) -> None:
    check(question)
