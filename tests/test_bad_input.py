"""Wrong options: exit status 2, one clear sentence, no traceback, nothing written, within
seconds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bad_requests import estimate
from command import dpplan, refused

from planner import api
from planner.formulas.divisors import divisors
from planner.search.space import micro_batches
from planner.specs.cluster import MAX_GPUS
from planner.specs.options.recommend import Limits
from planner.verbs.recommend.clusters import cluster

pytestmark = pytest.mark.usefixtures("within_seconds_and_nothing_written")


@pytest.mark.parametrize(
    ("option", "value", "near"),
    [
        ("model", "lama-2-70b", "llama-2-70b"),
        ("model", "mixtral-8x7", "mixtral-8x7b"),
        ("model", "qwen3-236b-a22b", "qwen3-235b-a22b"),
        ("gpu", "rtx409", "rtx4090"),
        ("gpu", "a100-sxm4-80", "a100-sxm4-80gb"),
        ("gpu", "h100-sxm5-80g", "h100-sxm5-80gb"),
        ("cluster", "dgx-a10", "dgx-a100"),
        ("stack", "megatron-cor", "megatron-core"),
        ("stack", "deepsped", "deepspeed"),
        ("intra_node", "nvlink-4", "nvlink4"),
        ("inter_node", "ib-hd", "ib-hdr"),
        ("recompute", "blck:2", "did you mean block:2? must be"),
        ("recompute", "core_atn+mlp", "did you mean core_attn+mlp? must be"),
        ("zeropp", "qwzz", "did you mean qwz? takes"),
    ],
)
def test_an_unknown_id_answers_with_near_matches(option: str, value: str, near: str) -> None:
    changes = {"gpu": None} if option == "cluster" else {}
    flag = "--" + option.replace("_", "-")
    refused(estimate(**{**changes, option: value}), f"{flag}: '{value}'", "did you mean", near)


@pytest.mark.parametrize(
    ("option", "value"),
    [("schedule", "1f2b"), ("precision", "fp12"), ("optimizer", "adamsky"), ("offload", "disk")],
)
def test_an_unknown_word_answers_with_the_known_ones(option: str, value: str) -> None:
    sentence = refused(estimate(**{option: value}), f"--{option}: '{value}'")
    assert len(re.findall(r"'[a-z0-9-]+'", sentence)) >= 3


def test_a_name_that_is_like_nothing_says_where_to_look() -> None:
    for option, kind in (
        ("model", "models"),
        ("gpu", "gpus"),
        ("stack", "stacks"),
        ("intra_node", "networks"),
    ):
        refused(estimate(**{option: "xyzzy"}), f"dpplan list {kind}")
    refused(estimate(gpu=None, cluster="xyzzy"), "dpplan list clusters")
    refused(dpplan("list", "xyzzy"), "xyzzy", "gpus", "models")


def test_gpu_and_cluster_must_agree() -> None:
    refused(estimate(cluster="dgx-a100", gpu="h100"), "--gpu: 'h100'", "dgx-a100")
    refused(estimate(gpu=None), "--gpu", "--cluster")
    refused(estimate(intra_node="ib-ndr"), "--intra-node: 'ib-ndr'")
    refused(estimate(inter_node="nvlink4"), "--inter-node: 'nvlink4'")
    refused(estimate(gpus=12), "--gpus: 12", "8", "16")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tp": 3}, ["3", "16 GPUs"]),
        ({"tp": 4, "pp": 8}, ["32", "16 GPUs"]),
        ({"tp": 2, "pp": 2, "dp": 2, "cp": 1}, ["= 8", "16 GPUs"]),
        ({"tp": 2, "pp": 2, "dp": 3}, ["12", "16 GPUs"]),
        ({"dp": 32}, ["32", "16 GPUs"]),
        ({"tp": 24, "gpus": 24}, ["--tp", "32 heads"]),
        ({"pp": 64, "gpus": 64}, ["--pp", "32 layers"]),
        ({"pp": 4, "vpp": 16, "schedule": "interleaved"}, ["--pp/--vpp", "32 layers", "64"]),
        ({"global_batch": 17, "dp": 16}, ["--global-batch", "17"]),
        ({"global_batch": 16, "micro_batch": 3, "dp": 4, "tp": 4}, ["16", "micro-batch 3"]),
        ({"global_batch": 64, "micro_batch": 64, "dp": 2, "tp": 8}, ["micro-batch 64", "= 128"]),
        ({"ep": 4}, ["--ep", "experts"]),
        ({"model": "mixtral-8x7b", "ep": 3}, ["--ep", "8 experts"]),
        ({"zero": 3, "stack": "pytorch-ddp"}, ["--zero", "DistributedDataParallel"]),
        ({"tp": 2, "stack": "pytorch-ddp"}, ["--stack"]),
        ({"pp": 2, "stack": "pytorch-fsdp"}, ["--stack"]),
        ({"shard_group": 3, "zero": 3}, ["--shard-group", "3"]),
        ({"schedule": "interleaved", "pp": 4, "vpp": 1}, ["interleaved"]),
        ({"schedule": "1f1b", "pp": 4, "vpp": 2}, ["1f1b"]),
        ({"recompute": "block:0"}, ["--recompute: 'block:0'", "block:N"]),
        ({"recompute": "often"}, ["--recompute: 'often'", "selective"]),
        ({"precision": "fp8"}, ["--precision: 'fp8'", "A100", "bf16"]),
        ({"precision": "bf16", "gpu": "v100-sxm2-32gb"}, ["--precision: 'bf16'", "V100", "fp16"]),
        ({"model": "gpt2", "seq_len": 2048}, ["--seq-len: 2048", "1024"]),
        ({"cp": 3, "gpus": 24}, ["--seq-len", "cp 3"]),
    ],
)
def test_an_impossible_layout_names_the_rule_it_breaks(
    changes: dict[str, Any], words: list[str]
) -> None:
    refused(estimate(**changes), *words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": 0}, ["--gpus: 0", "1"]),
        ({"gpus": -8}, ["--gpus: -8"]),
        ({"gpus": 10**18}, ["--gpus: 1000000000000000000", "1000000"]),
        ({"gpus": 10**400}, ["--gpus"]),
        ({"gpus": "8.5"}, ["--gpus", "8.5"]),
        ({"gpus": "NaN"}, ["--gpus", "NaN"]),
        ({"gpus": ""}, ["--gpus"]),
        ({"gpus_per_node": 10**9}, ["--gpus-per-node: 1000000000"]),
        ({"nics_per_node": 0}, ["--nics-per-node: 0"]),
        ({"seq_len": 10**12}, ["--seq-len: 1000000000000"]),
        ({"seq_len": 0}, ["--seq-len: 0"]),
        ({"global_batch": 10**12}, ["--global-batch: 1000000000000"]),
        ({"tp": 10**9}, ["--tp: 1000000000"]),
        ({"tp": -1}, ["--tp: -1"]),
        ({"zero": 4}, ["--zero: 4", "3"]),
        ({"micro_batch": 0}, ["--micro-batch: 0"]),
        ({"top": 0}, ["--top: 0"]),
        ({"top": 10**6}, ["--top: 1000000"]),
        ({"tokens": "many"}, ["--tokens: 'many'", "15T"]),
        ({"tokens": "nan"}, ["--tokens: 'nan'"]),
        ({"tokens": "1e400"}, ["--tokens: '1e400'", "finite"]),
        ({"tokens": "-5B"}, ["--tokens: '-5B'", "between 1"]),
        ({"tokens": "0"}, ["--tokens: '0'", "between 1"]),
        ({"tokens": "15X"}, ["--tokens: '15X'"]),
        ({"price": "free"}, ["--price: 'free'"]),
        ({"price": "-1"}, ["--price: '-1'", "negative"]),
        ({"price": "inf"}, ["--price: 'inf'"]),
        ({"price": "1e999"}, ["--price: '1e999'"]),
        ({"nic_bandwidth": "fast"}, ["--nic-bandwidth: 'fast'", "200 Gbit/s"]),
        ({"nic_bandwidth": "0 Gbit/s"}, ["--nic-bandwidth: '0 Gbit/s'", "positive"]),
        ({"nic_bandwidth": "-1 GB/s"}, ["--nic-bandwidth: '-1 GB/s'"]),
        ({"nic_bandwidth": "10 GB"}, ["--nic-bandwidth: '10 GB'"]),
        ({"nic_bandwidth": "1e400 GB/s"}, ["--nic-bandwidth: '1e400 GB/s'"]),
        ({"model": ""}, ["--model: ''"]),
        ({"model": "x" * 5000}, ["--model", "4096"]),
        ({"model": "llama\n\x1b[31m-2-7b"}, ["--model"]),
        ({"model": "\ud800"}, ["--model"]),
        ({"model": None}, ["--model", "dpplan list models"]),
        ({"model": "hf:"}, ["--model: 'hf:'"]),
    ],
)
def test_a_value_out_of_range_is_named_with_its_limits(
    changes: dict[str, Any], words: list[str]
) -> None:
    sentence = refused(estimate(**changes), *words)
    assert sentence.isprintable()


def test_the_most_that_is_allowed_is_answered() -> None:
    for changes in (
        {"gpus": 1_000_000},
        {"gpus": 983_040},
        {"seq_len": 100_000_000},
        {"global_batch": 1_000_000_000, "dp": 16},
        {"tokens": "1e18", "price": 1e9},
        {"nic_bandwidth": "1 B/s"},
        {"nic_bandwidth": "1e300 B/s"},
        {"top": 1000},
    ):
        answer = estimate(**changes, stack="megatron-core", advice=0)
        assert answer.status in (0, 2, 3), changes
        if answer.status == 2:
            refused(answer)


def test_endless_searches_are_refused(tmp_path: Path) -> None:
    """A model and a cluster with as many divisors as can be: millions of layouts."""
    file = tmp_path / "model.toml"
    file.write_text(
        'name = "round"\nlayers = 720\nhidden = 10080\nheads = 720\nkv_heads = 720\nhead_dim = 14\n'
        "ffn_hidden = 10080\nvocab = 10080\n"
        "[moe]\nexperts = 5040\nexperts_per_token = 4\nffn_hidden = 5040\n"
    )
    refused(
        estimate(model=file, gpus=5040, gpu="h100", global_batch=5040 * 16, seq_len=65536),
        "layout",
        "--tp",
    )


def test_pipelines_too_long_to_simulate_are_left_out(tmp_path: Path) -> None:
    """The answer of a very deep model says which schedules are not tried, and by which option they
    are; the largest clusters are searched as quickly as small ones."""
    file = tmp_path / "deep.toml"
    shape = (
        "hidden = 512\nheads = 8\nkv_heads = 8\nhead_dim = 64\nffn_hidden = 2048\nvocab = 32000\n"
    )
    file.write_text(f'name = "deep"\nlayers = 1920\n{shape}')
    given = {"model": str(file), "gpu": "h100", "gpus": 983_040, "stack": "torchtitan"}
    answer = api.estimate(api.read_options(given), brief=True)
    left = [text for text in answer.search.not_searched if "(--schedule)" in text]
    assert left
    assert "zb-v" in left[0]
    file.write_text(f'name = "deep"\nlayers = 100_000\n{shape}')
    refused(estimate(model=file, gpus=8, gpu="h100"), "layers", "2000")


@pytest.mark.parametrize("per_node", [1, 2, 3])
def test_nodes_of_few_gpus_are_searched(per_node: int) -> None:
    given = {"model": "llama-3.2-1b", "gpu": "h100", "gpus": 12, "gpus_per_node": per_node}
    given |= {"stack_defaults": True}
    answer = api.estimate(api.read_options(given | {"global_batch": 48}), brief=True)
    assert answer.cluster.gpus_per_node == per_node
    assert answer.memory.fits


def test_the_largest_cluster_is_doubted_by_its_option() -> None:
    given = {"model": "gpt2", "gpu": "h100", "gpus": MAX_GPUS, "stack": "pytorch-ddp"}
    answer = api.estimate(api.read_options(given), brief=True)
    assert any("--gpus" in doubt for doubt in answer.doubts)
    refused(estimate(gpus=MAX_GPUS + 1), "--gpus", f"{MAX_GPUS:,}")


def test_of_a_batch_with_many_divisors_some_micro_batches_are_tried() -> None:
    """The answer lists them and doubts such a batch."""
    given = {"model": "llama-3-8b", "gpu": "h100", "gpus": 32, "global_batch": 7_207_200}
    answer = api.estimate(api.read_options(given | {"stack": "pytorch-fsdp"}), brief=True)
    assert any("--micro-batch" in text for text in answer.search.not_searched)
    assert any("--global-batch" in doubt for doubt in answer.doubts)
    tried = micro_batches(7_207_200)
    assert tried[0] == 1
    assert len(tried) < len(divisors(7_207_200)) / 3
    assert all(7_207_200 % size == 0 for size in tried)
    assert micro_batches(1024) == divisors(1024)
    refused(estimate(gpus=64, stack="pytorch-ddp", global_batch=7_207_200), "7207168 or 7207232")


def test_a_limit_of_decades_is_doubted() -> None:
    given = {"model": "gpt2", "tokens": "10B", "stack": "pytorch-ddp"}
    long, short = (
        cluster(Limits(days=days, max_gpus=8), given, ["h100"]).doubts for days in (30_000, 30)
    )
    assert any("--days 30,000" in doubt for doubt in long)
    assert not any("--days" in doubt for doubt in short)
