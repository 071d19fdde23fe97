"""Implausible answers say so and name the option; a run that never ends has no days."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from command import dpplan

from planner import api
from planner.evidence.utilisation import highest
from planner.report.doubts import answered_of
from planner.report.doubts import doubts as answered_doubts
from planner.specs.base import PlanError
from planner.specs.options.own import CompareOptions
from planner.verbs import compare

REQUEST = {
    "model": "gpt2",
    "gpu": "h100",
    "gpus": 16,
    "tokens": "100B",
    "tp": 1,
    "pp": 1,
    "zero": 1,
}
REQUEST |= {"stack": "megatron-core", "cp": 1, "micro_batch": 1, "recompute": "none"}


def doubts(**changes: Any) -> list[str]:
    given = {**REQUEST, **changes}
    return api.estimate(api.read_options({k: v for k, v in given.items() if v}), brief=True).doubts


def test_an_ordinary_answer_is_not_doubted() -> None:
    assert doubts() == doubts(tokens=None) == doubts(mtbf="5000 GPU-hours") == []


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"nic_bandwidth": "100 kB/s", "global_batch": 1_000_000_000}, "--global-batch"),
        ({"tokens": "1e16"}, "--tokens"),
        ({"tokens": "1e18", "price": 10_000}, "--price"),
        ({"tokens": "15"}, "--tokens"),
        ({"mtbf": "1 GPU-hours"}, "--mtbf"),
        ({"gpus": 983_040, "global_batch": 983_040, "tokens": None}, "--gpus"),
    ],
)
def test_what_nobody_would_believe_names_the_option(changes: dict[str, Any], option: str) -> None:
    sentences = doubts(**changes)
    assert any(option in entry for entry in sentences), sentences


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"mtbf": "0.1 GPU-hours"}, "--mtbf"),
        ({"mtbf": "1 min"}, "--mtbf"),
        ({"storage": "1 kB/s", "model": "llama-3.1-8b"}, "--storage"),
        ({"restart": "60000 min", "gpus": 4096, "global_batch": 4096}, "--restart"),
        ({"spare_nodes": 1, "gpus": 4096, "global_batch": 4096, "mtbf": "3000 GPU-h"}, "--spare"),
    ],
)
def test_a_run_that_never_ends_is_refused_with_its_cause(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(PlanError, match="never") as error:
        doubts(**changes)
    assert error.value.field.startswith(field)
    assert doubts(**changes, tokens=None) != []  # no run is requested, and the goodput is printed


def test_the_time_between_failures_of_a_job_is_that_of_its_gpus() -> None:
    job, each = (
        api.estimate(api.read_options({**REQUEST, "mtbf": text}), brief=True).run
        for text in ("10 h", "160 GPU-hours")
    )
    assert job.goodput == pytest.approx(each.goodput)
    assert job.reliability.mtbf_gpu_s == pytest.approx(160 * 3600)
    with pytest.raises(PlanError, match="'10 GPU-hours' or '10 h'"):
        api.read_options({**REQUEST, "mtbf": 10})


def test_a_comparison_doubts_the_request_that_is_beyond_belief() -> None:
    options = CompareOptions(vary=("tokens=10B,1e17",))
    fixed = {name: value for name, value in REQUEST.items() if name != "tokens"}
    doubts = compare.compare(options, fixed).doubts
    assert doubts
    assert all(doubt.startswith("tokens 1e17: ") for doubt in doubts)


LLAMA = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64, "tokens": "1T"}
LLAMA |= {"tp": 2, "pp": 1, "zero": 1, "stack": "megatron-core", "recompute": "none"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"global_batch": 4_194_304}, "were 4,194,304 tokens meant? --global-batch 512"),
        ({"mtbf": "50000 h"}, "was the time of one GPU meant? --mtbf '50000 GPU-hours'"),
        ({"mtbf": "20 GPU-hours"}, "--mtbf 20 GPU-hours is one failure per 20 GPU-hours"),
        ({"price": 0.01}, "or --price 1.99"),
        ({"price": 24}, ""),
        ({"price": 60}, "was it a node of 8? --price 7.5"),
        ({"capex": 300}, "were it thousands for a node of 8? --capex 37500"),
        ({"capex": 30}, "were thousands meant? --capex 30000"),
        ({"seq_len": 12}, "were 12k meant? --seq-len 12k"),
        ({"nic_bandwidth": "400 Mbit/s"}, "were Gbit/s meant? --nic-bandwidth '400 Gbit/s'"),
        ({"nic_bandwidth": "400 GB/s"}, "were bits meant? --nic-bandwidth '400 Gbit/s'"),
        ({"nic_bandwidth": "3200 Gbit/s"}, "--nic-bandwidth '400 Gbit/s'"),
        ({"tokens": "1e16"}, "look at --tokens"),
        ({"tokens": "15"}, "were 15 T meant? --tokens 15T"),
        ({"global_batch": 32}, ""),
        ({"global_batch": 1, "gpus": 8, "tp": 8}, "4.75 M (SmolLM3 3B); without --global-batch"),
        ({"gpus_per_node": 1024}, "were GPUs of the job meant? --gpus 1024 --gpus-per-node 8"),
        ({"gpus_per_node": 4}, ""),
        ({"spare_nodes": 10_000}, "are paid for and idle beside 8 nodes that train"),
        ({"spare_nodes": 32}, "were 32 GPUs meant? --spare-nodes 4"),
        ({"spare_nodes": 2}, ""),
        ({"storage": "100 TB/s"}, "look at its unit"),
        ({"storage": "1 MB/s"}, "a checkpoint takes 26.8 h to be written: look at --storage"),
        ({"storage": "20 GB/s"}, ""),
        ({"restart": "1200 min"}, "--restart 1200 min is 20 h from each failure"),
        ({"restart": "60 min"}, ""),
        ({"checkpoint_interval": "1 s"}, "look at --checkpoint-interval and --storage"),
        ({"checkpoint_interval": "10 min"}, ""),
    ],
)
def test_a_doubt_names_the_likely_intention(changes: dict[str, Any], text: str) -> None:
    estimate = api.estimate(api.read_options({**LLAMA, **changes}), brief=True).doubts
    assert any(text in entry for entry in estimate) if text else estimate == []


@pytest.mark.parametrize(
    "changes",
    [
        {"global_batch": 2048},
        {"mtbf": "50000 GPU-hours"},
        {"mtbf": "780 h"},
        {"price": 1.2},
        {"price": 12},
        {"capex": 28_000},
        {"seq_len": 128},
        {"seq_len": "128k", "recompute": "full", "tp": 8},
        {"nic_bandwidth": "100 Gbit/s"},
        {"tokens": "15T"},
    ],
)
def test_what_people_do_is_not_doubted(changes: dict[str, Any]) -> None:
    estimate = api.estimate(api.read_options({**LLAMA, **changes}), brief=True).doubts
    assert estimate == []


SHORT = ("--model", "gpt2", "--seq-len", "12", "--global-batch", "512")
HERE = ("--gpu", "h100", "--gpus", "8")
LORA = ("--model", "qwen2.5-0.5b", "--method", "lora", "--micro-batch", "8")
CARD = ("--gpu", "rtx4090", "--gpus", "1", "--price", "0.001")
SLOW = ("--nic-bandwidth", "400 Mbit/s", "--gpu", "h100")
# kernels and stacks are not searched, which takes most of the time
PLAIN = ("--stack-defaults", "--stack", "pytorch-ddp")
TRAINER = ("--stack-defaults", "--stack", "hf-trainer")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("search", *SHORT, *HERE, "--tp", "1", "--pp", "1", *PLAIN), "--seq-len 12k"),
        (("compare", *SHORT, "--gpu", "h100", "--vary", "gpus=8,16", *PLAIN), "12k"),
        (
            ("batch", *SHORT, "--gpu", "h100", "--sweep", "gpus=8,16", "--tokens", "1B", *PLAIN),
            "12k",
        ),
        (("schedule", *SHORT, *HERE, "--tp", "1", "--stack", "megatron-core"), "--seq-len 12k"),
        (("strategies", *SHORT, *HERE, "--strategy", "ddp"), "--seq-len 12k"),
        (("tune", *LORA, "--seq-len", "12", "--gpu", "h100", *TRAINER), "--seq-len 12k"),
        (("recommend", "cluster", *SHORT, "--gpu", "h100", "--max-gpus", "8", *PLAIN), "12k"),
        (
            ("recommend", "bandwidth", "--model", "gpt2", *SLOW, "--gpus", "16", *PLAIN),
            "400 Gbit/s",
        ),
        (
            ("recommend", "batch", "--model", "gpt2", *HERE, "--seq-len", "12", *PLAIN),
            "--seq-len 12k",
        ),
        (("recommend", "offload", *SHORT, *HERE, *PLAIN), "--seq-len 12k"),
        (("recommend", "model", *CARD, "--tokens", "1B", *PLAIN), "without --price"),
        (("recommend", "model", "--gpu", "h100", "--gpus", "8", "--tokens", "10", *PLAIN), "10T"),
        (("allreduce", *SLOW, "--gpus", "16"), "400 Gbit/s"),
        (("allreduce", "--gpu", "h100", "--gpus", "16", "--bytes", "1PB"), "80.0 GiB of a GPU"),
        (("batchnorm", *SLOW, "--gpus", "16"), "400 Gbit/s"),
        (
            ("rl", "--model", "qwen2.5-0.5b", "--price", "0.01", "--gpu", "h100", "--gpus", "2"),
            "1.99",
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_every_verb_doubts_the_request_before_it_answers(
    command: tuple[str, ...], text: str
) -> None:
    answer = dpplan(*command)
    assert answer.stdout.splitlines()[2].startswith("DOUBTFUL: ")
    assert answer.stdout.count("DOUBTFUL") == 1
    assert text in answer.stdout
    (doubt,) = dpplan(*command, "--json").json()["doubts"]
    assert text in doubt


def test_a_project_without_a_length_is_refused() -> None:
    """Days and cost of nothing are not silently left out."""
    with pytest.raises(PlanError, match="give --tokens or --samples, too"):
        api.estimate(api.read_options({"model": "gpt2", "gpu": "h100", "run_as": "project"}))


def test_an_mfu_beyond_every_measured_one_is_doubted() -> None:
    """The highest of runs on GPUs of the same architecture bounds what is believed."""
    best = highest("h100-sxm5-80gb")
    assert 0.4 < best.mfu < 0.7
    assert best.runs > 100
    estimate = api.estimate(api.read_options(LLAMA), brief=True)
    fine = answered_of(estimate)
    assert answered_doubts(fine) == []
    beyond = answered_doubts(replace(fine, mfu=1.2 * best.mfu))
    assert len(beyond) == 1
    assert best.run_id in beyond[0]
    unknown = highest("mi210-64gb")
    assert unknown.where == "any GPU"


def test_a_model_of_too_many_layers_is_refused_at_once() -> None:
    shape = {"name": "x", "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336}
    shape |= {"head_dim": 128, "vocab": 128256, "layers": 100_000}
    began = time.process_time()
    with pytest.raises(PlanError, match="2000"):
        api.estimate(api.read_options({"model": json.dumps(shape), "gpu": "h100", "gpus": 64}))
    assert time.process_time() - began < 1
