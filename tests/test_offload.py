"""Activations in host memory: every byte is somewhere, copies take bytes over the link, and a fast
link costs nothing."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import plans
import pytest
from command import dpplan, refused
from not_none import not_none

from planner import api
from planner.estimate import Estimates, evaluate
from planner.estimate.machine import machine
from planner.estimate.memory.activations import one_input
from planner.estimate.ranks import layer_seconds
from planner.formulas import memory, overlap
from planner.formulas.params import parameter_leaves
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.specs.options import flag
from planner.specs.plan import Plan

BESIDE, IN_TURN = ("megatron-core", "nemo"), ("pytorch-fsdp", "pytorch-ddp", "composer-fsdp")
SHAPES = {"dense": plans.model(layers=8), "experts": plans.expert_model(layers=8)}
GPUS = 8
PARAMETERS = 1.5576e9  # of GPT-2 XL


def both(
    plan: Plan, numbers: dict[str, float] | None = None, **chosen: Any
) -> tuple[Estimates, Estimates]:
    """The layout without and with offloaded activations."""
    zero = plan.stack.supports.zero[0]
    tables = (
        plans.rows(GPUS, {"zero": zero, "micro_batch": 2, "offload": where, **chosen})
        for where in ("none", "activations")
    )
    m = plans.numbers(plan, **numbers) if numbers else None
    without, with_ = (evaluate(plan, table, numbers=m) for table in tables)
    return without, with_


def test_formulas_by_hand() -> None:
    # ten layers of 1 GB, two of which stay: 8 GB leave; a copy of 1 GB over 20 GB/s takes 50 ms, 20
    # of them beside a layer's 30
    assert memory.resident_bytes(10e9, 1e9, 2.0) == 2e9
    assert memory.resident_bytes(1e9, 1e9, 2.0) == 1e9  # never more than there is
    assert overlap.host_copy_s(1e9, 20e9) == pytest.approx(0.05)
    assert overlap.offload_exposed_s(0.03, 0.05) == pytest.approx(0.02)
    assert overlap.offload_exposed_s(0.05, 0.03) == 0


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("software", BESIDE)
def test_what_left_the_device_is_on_the_host(software: str, shape: str) -> None:
    without, with_ = both(plans.plan(SHAPES[shape], software=software))
    before, after = (x.memory.timeline[0][1]["activations"][0] for x in (without, with_))
    assert with_.memory.host[0] > 0
    assert without.memory.host[0] == 0
    assert before - after == pytest.approx(with_.memory.host[0])
    layer = float(without.memory.layer_bytes[0])
    if shape == "dense":
        assert with_.memory.host[0] == pytest.approx(6 * layer)  # two of eight layers stay
    assert with_.memory.peak[0] < without.memory.peak[0]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("software", IN_TURN)
def test_hooks_move_everything_that_recompute_keeps(software: str, recompute: str) -> None:
    plan = plans.plan(SHAPES["dense"], software=software)
    without, with_ = both(plan, recompute=recompute)
    host, layer = float(with_.memory.host[0]), float(without.memory.layer_bytes[0])
    # torch packs weights too: a linear layer saves its own for the gradient of its input; a
    # checkpoint saves only its input
    layer_weights = sum(
        leaf.count for leaf in parameter_leaves(plan.model) if leaf.place not in ("first", "last")
    )
    weights = 0.0 if recompute == "full" else 2.0 * 8 * layer_weights
    if recompute == "none":
        assert host == pytest.approx(8 * layer + weights)
    if recompute == "full":
        assert host == pytest.approx(8 * float(one_input(plan, with_.table)[0]))
    gone = (
        without.memory.timeline[0][1]["activations"][0]
        - with_.memory.timeline[0][1]["activations"][0]
    )
    assert gone == pytest.approx(
        (host - weights) * 7 / 8
    )  # a layer's tensors are on the GPU while they leave one by one


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("software", [*BESIDE, *IN_TURN])
def test_copies_carry_what_is_on_the_host_out_and_back(software: str, shape: str) -> None:
    plan = plans.plan(SHAPES[shape], software=software)
    for bandwidth in (1e7, 1e9, 1e11, 1e13):
        _, with_ = both(plan, {"host_copy_bandwidth": bandwidth})
        microbatches = plan.training.global_batch / (float(with_.table.dp[0]) * 2)
        taken = with_.time.components["offload"][0] + with_.time.hidden["offload"][0]
        assert taken == pytest.approx(2 * microbatches * with_.memory.host[0] / bandwidth)
        if software in IN_TURN:
            assert with_.time.hidden["offload"][0] == pytest.approx(0, abs=1e-9 * taken)


@pytest.mark.parametrize("software", [*BESIDE, *IN_TURN])
def test_an_infinitely_fast_link_costs_nothing(software: str) -> None:
    without, with_ = both(
        plans.plan(SHAPES["dense"], software=software), {"host_copy_bandwidth": 1e30}
    )
    assert with_.time.seconds[0] == pytest.approx(without.time.seconds[0], rel=1e-12)
    assert "offload" not in without.time.components


def test_a_layer_takes_the_longer_of_its_work_and_its_copy() -> None:
    plan = plans.plan(SHAPES["dense"], software="megatron-core")
    slow, slower = (both(plan, {"host_copy_bandwidth": rate})[1] for rate in (1e5, 5e4))
    # bound by the link both ways: twice the copy time is twice the time of all layers
    assert slower.time.ranks.slowest_s()[0] == pytest.approx(
        2 * slow.time.ranks.slowest_s()[0], rel=0.01
    )
    seconds = [
        both(plan, {"host_copy_bandwidth": rate})[1].time.seconds[0]
        for rate in np.geomspace(1e6, 1e13, 15)
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_without_overlap_nothing_hides() -> None:
    plan = plans.plan(SHAPES["dense"], software="megatron-core", overlap=False)
    assert both(plan)[1].time.hidden["offload"][0] == 0


def test_gpus_of_a_host_share_its_bridges() -> None:
    rates = []
    for gpus in (1, 2, 8):
        plan = plans.plan(SHAPES["dense"], gpus=gpus, software="megatron-core")
        link = plan.cluster.host_link
        alone, bridges = (
            float(link.bandwidth) * float(link.send_recv_frac),
            float(not_none(link.host_bandwidth)),
        )
        rates.append(float(machine(plan).host_copy_bandwidth))
        assert rates[-1] == pytest.approx(min(alone, bridges / gpus))
    assert rates[0] > rates[2]


def test_one_row_with_and_one_without_do_not_disturb_each_other() -> None:
    plan = plans.plan(SHAPES["dense"], software="pytorch-fsdp")
    table = plans.rows(
        GPUS, {"zero": 3}, {"zero": 3, "offload": "activations"}, {"zero": 3, "offload": "params"}
    )
    together = evaluate(plan, table)
    for row in range(3):
        alone = evaluate(plan, table.pick([row]))
        assert alone.time.seconds[0] == pytest.approx(together.time.seconds[row], rel=1e-12)
        assert alone.memory.host[0] == together.memory.host[row]
    assert together.time.components["offload"][[0, 2]].tolist() == [0, 0]


ASKED = ("--model", "gpt2-xl", "--gpu", "a100", "--gpus", "8", "--offload", "activations")


def test_only_stacks_that_can_offload_activations() -> None:
    refused(
        dpplan("estimate", *ASKED, "--stack", "deepspeed"),
        "DeepSpeed",
        "--offload activations (it has none, optimizer, params",
    )
    refused(
        dpplan("estimate", *ASKED, "--stack", "megatron-core", "--pp", "2"),
        "--offload",
        "only without a pipeline",
        "pp is 2",
    )
    refused(
        dpplan("estimate", *ASKED, "--stack", "nemo", "--recompute", "full"),
        "--offload",
        "only without recompute",
        "recompute full",
    )
    answer = dpplan(
        "estimate", *ASKED, "--stack", "composer-fsdp", "--recompute", "full", "--json"
    ).json()
    assert answer["layout"]["offload"] == "activations"
    assert answer["memory"]["host_bytes"] > 0
    assert answer["step"]["components"]["offload"] > 0


def test_the_search_offloads_only_when_asked() -> None:
    request, unasked = (
        dpplan("estimate", *words, "--stack-defaults", "--json").json()
        for words in (ASKED, ASKED[:-2])
    )
    assert request["layout"]["offload"] == "activations"
    for report in (unasked["layout"], *(x["layout"] for x in unasked["alternatives"])):
        assert report["offload"] == "none"
    assert "offload" not in unasked["step"]["components"]


def test_host_memory_to_read_weights() -> None:
    """A copy in fp32 per rank, as `python -m benchmarks.frameworks reading` measures it of
    transformers (4.0 bytes per parameter, none where the file has the type), or of one rank."""

    request: dict[str, Any] = {
        "model": "gpt2-xl",
        "gpu": "a100-sxm4-80gb",
        "gpus": GPUS,
        "micro_batch": 1,
    }

    def reading(**chosen: Any) -> float:
        options = api.Options(**request, stack="hf-fsdp", zero=3, stack_defaults=True, **chosen)
        memory = api.estimate(options, brief=True).memory
        return memory.host_pretrained_bytes / PARAMETERS

    assert reading() == pytest.approx(4, rel=0.01)
    assert reading(weight_readers="each-host") == pytest.approx(4 / GPUS, rel=0.01)
    assert reading(weight_readers="in-parts") == 0
    assert reading(lora=8) < 0.1
    # loaders that copy what they read keep the frozen weights, too
    assert reading(lora=8, weight_readers="each-rank") == pytest.approx(2, rel=0.05)


def test_a_host_too_small_to_read_weights() -> None:
    words = ["estimate", "--model", "llama-3.1-405b", "--cluster", "aws-p5", "--gpus", "512"]
    words += ["--stack", "hf-fsdp", "--micro-batch", "1", "--seq-len", "2048", "--zero", "3"]
    words += ["--stack-defaults", "--advice", "0"]
    report = dpplan(*words, "--json").json()
    # a default decides nothing, and says what it would decide
    assert report["memory"]["host_fits"]
    sentence = "who reads the weights decides on host memory: every rank, as hf-fsdp does, takes"
    assert any(sentence in each for each in report["both_ways"])
    stated = dpplan(*words, "--weight-readers", "each-rank")
    assert "host memory on a node to read" in " ".join(stated.stdout.split())
    assert "which has 2.00 TiB" in stated.stdout
    assert sentence not in stated.stdout
    for readers, fits in (("each-rank", False), ("each-host", True), ("in-parts", True)):
        memory = dpplan(*words, "--weight-readers", readers, "--json").json()["memory"]
        assert memory["host_fits"] == fits, readers
        assert fits or not memory["fits"]


def test_host_memory_to_load_a_checkpoint() -> None:
    shard, whole = (
        evaluate(plans.plan(SHAPES["dense"], software=name), plans.rows(GPUS, {"zero": 3})).memory
        for name in ("pytorch-fsdp", "composer-fsdp")
    )
    assert shard.host_loading[0] == shard.host_saving[0]
    assert whole.host_loading[0] == pytest.approx(
        GPUS * whole.host_saving[0]
    )  # every rank reads what eight share
    alone = evaluate(
        plans.plan(SHAPES["dense"], software="composer-fsdp", gpus=1), plans.rows(1, {"zero": 3})
    ).memory
    assert alone.host_loading[0] == alone.host_saving[0] == whole.host_loading[0]
    assert (
        "to load one"
        in dpplan(
            "estimate",
            "--model",
            "gpt2",
            "--gpu",
            "a100",
            "--gpus",
            "8",
            "--stack",
            "pytorch-fsdp",
            "--stack-defaults",
            "--explain",
            "memory",
        ).stdout
    )


def test_copies_share_pcie_with_collectives_of_the_layer() -> None:
    """Four-way tensor parallelism through PCIe leaves no room for copies while it runs; NVLink and
    a host behind NVLink-C2C do."""
    layer, copy = 4.0, 3.0
    assert float(overlap.offload_exposed_s(layer, copy)) == 0.0
    assert float(overlap.offload_exposed_s(layer, copy, 2.0)) == pytest.approx(1.0)
    assert float(overlap.offload_exposed_s(layer, copy, 9.0)) == pytest.approx(copy)  # all of it

    def shared(gpu: str, tp: int, **more: str) -> float:
        plan = resolve(
            read_options(
                {"model": "llama-2-7b", "gpu": gpu, "gpus": 8, "stack": "megatron-core", **more}
            )
        ).plans[0]
        return float(np.sum(layer_seconds(plan, plans.rows(8, {"tp": tp, "dp": 8 // tp})).shared))

    assert shared("rtx4090", 4) > shared("rtx4090", 2) > shared("rtx4090", 1) == 0
    assert shared("a100", 4) == 0  # over NVLink
    assert shared("rtx4090", 4, host_link="nvlink-c2c") == 0


@pytest.mark.parametrize(
    "words",
    [
        "--model llama-2-7b --gpu rtx4090 --gpus 8 --tp 4 --pp 1 --stack megatron-core",
        "--model llama-2-7b --gpu rtx4090 --gpus 8 --pp 4 --stack megatron-core",
        "--model llama-2-7b --gpu a100 --gpus 8 --stack deepspeed --zero 3",
    ],
)
def test_recommend_offload_says_what_estimate_says(words: str) -> None:
    given = (*words.split(), "--stack-defaults")
    document = dpplan("recommend", "offload", *given, "--json").json()
    if document["refused"] is None:
        answers = {
            choice["what"]: dpplan(
                *shlex.split(choice["command"])[1:], "--advice", 0, "--json"
            ).json()
            for choice in document["choices"]
        }
        steps = {choice["what"]: choice["step_seconds"] for choice in document["choices"]}
        swapped = answers["offload activations"]
        assert steps == {
            name: pytest.approx(answer["step"]["seconds"]) for name, answer in answers.items()
        }
        wanted = {**document["layout"], "recompute": "none", "offload": "activations"}
        assert swapped["layout"] == wanted
        swap_s = swapped["step"]["seconds"]
        faster = "swap" if swap_s < steps["recompute full"] else "recompute"
        fits = {choice["fits"] for choice in document["choices"]}
        assert document["verdict"] == faster or len(fits) == 2
    else:
        degrees = {
            name: document["layout"][name]
            for name in ("tp", "pp", "vpp", "micro_batch")
            if flag(name) not in words.split()
        }
        layout = [part for name, value in degrees.items() for part in (flag(name), value)]
        away = ("--recompute", "none", "--offload", "activations", *layout)
        assert dpplan("estimate", *words.split(), *away, "--json").status == 2
        assert document["verdict"] != "swap"


def test_a_million_tokens_on_eight_gpus_by_ulysses_with_checkpoints_on_the_host() -> None:
    """Llama 8B under ZeRO-3 with heads shared by Ulysses and the head in tiles: 32 checkpoints of
    131,072 tokens x 4,096 x 2 bytes are 34 GB, which leave the GPU except for a few."""
    million: dict[str, Any] = {
        **{"model": "llama-3.1-8b", "gpu": "h100", "gpus": 8, "seq_len": 2**20},
        **{"global_batch": 1, "micro_batch": 1, "cp": 8, "cp_comm_type": "ulysses", "zero": 3},
        **{"recompute": "full", "loss_kernel": "tiled", "stack": "hf-deepspeed", "advice": 0},
    }
    offloaded, kept = (
        api.estimate(read_options({**million, "offload": where})).memory
        for where in ("activations", "none")
    )
    assert offloaded.fits
    assert not kept.fits
    assert kept.peak_bytes - offloaded.peak_bytes == pytest.approx(34e9, rel=0.15)
