"""How replicas are kept in step: what runs beside compute, buckets, and what ZeRO++ quantises."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest

from planner.estimate import evaluate
from planner.formats import recipe as formats
from planner.formats.plan import planned
from planner.formulas.params import parameter_count
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.mechanisms.hpz import Hpz
from planner.mechanisms.zeropp import Zeropp
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.verbs.estimate import estimate

NODES: dict[str, Any] = {
    "gpus": 32,
    "gpus_per_node": 8,
    "gpu": "h100-sxm5-80gb",
    "global_batch": 128,
}


def _rows(zero: int) -> Columns:
    return plans.rows(32, {"zero": zero, "micro_batch": 2})


def _traffic(zero: int, **training: Any) -> dict[str, Any]:
    time = evaluate(plans.plan(software="deepspeed", **NODES, **training), _rows(zero)).time
    return {entry.what: entry for entry in time.traffic if entry.group == "data"}


def test_each_part_that_is_off_is_waited_for() -> None:
    """Hidden time only falls as parts are switched off, with all parts the time is the stack's, and
    without any no time of replicas is hidden."""
    orders = [("reduce", "forward", "backward"), ("reduce", "forward"), ("reduce",), ()]
    for stack, zero in (("megatron-core", 0), ("megatron-core", 1), ("torchtitan", 3)):

        def step(software: str, stage: int, parts: tuple[str, ...] | None) -> tuple[float, float]:
            plan = plans.plan(software=software, data_overlap=parts, **NODES)
            time = evaluate(plan, _rows(stage)).time
            data = [entry for entry in time.traffic if entry.group == "data"]
            return float(time.seconds[0]), sum(float(x.seconds[0] - x.exposed[0]) for x in data)

        times = [step(stack, zero, parts) for parts in orders]
        assert times[0] == step(stack, zero, None)
        seconds, hidden = zip(*times, strict=True)
        assert list(seconds) == sorted(seconds), stack
        assert hidden[0] > 0
        assert list(hidden) == sorted(hidden, reverse=True)
        assert hidden[-1] == pytest.approx(0.0, abs=1e-12), stack


def test_zero_pp_moves_what_the_paper_says() -> None:
    """arXiv 2306.10209 table 1: weights in half the bytes of 16 bit, gradients in a quarter, and no
    second gather between nodes; a second copy of the weights on every node."""
    codes = ("qwz", "qgz")
    whole, quantised = _traffic(3), _traffic(3, mechanisms=(Zeropp(codes), Hpz(8)))
    of_layer = "parameters of a layer"
    assert quantised[of_layer].bytes == pytest.approx(whole[of_layer].bytes / 2)
    assert quantised[of_layer].count == pytest.approx(whole[of_layer].count / 2)
    again = quantised["second copy of a layer"]
    assert again.count == quantised[of_layer].count
    assert again.bytes == pytest.approx(whole[of_layer].bytes)
    assert again.across_nodes[0] == 0
    reduced = "gradients of a layer"
    assert quantised[reduced].bytes == pytest.approx(whole[reduced].bytes / 4)

    def peak(**training: Any) -> float:
        plan = plans.plan(software="deepspeed", **NODES, **training)
        return float(evaluate(plan, _rows(3)).memory.peak[0])

    count = parameter_count(plans.model())
    copied = peak(mechanisms=(Hpz(8),)) - peak()
    assert copied == pytest.approx(2 * count / 8, rel=0.35)  # and fragmentation
    assert peak(mechanisms=(Zeropp(codes),)) == peak()


def test_buckets_of_deepspeed_by_their_size() -> None:
    """Two buffers of the requested size, one where nothing is reduced beside compute or parameters
    are sharded: their default is 5e8 elements of 2 bytes."""

    def buckets(zero: int, **training: Any) -> float:
        plan = plans.plan(software="deepspeed", **NODES, **training)
        components = evaluate(plan, _rows(zero)).memory.components
        return float(np.max(components["communication_buckets"]))

    for zero, count in ((2, 2), (3, 1)):
        assert buckets(zero) == count * 1e9
        assert buckets(zero, data_bucket=4e7) == count * 4e7
        assert buckets(zero, data_bucket=4e7, data_overlap=()) == 4e7


def test_deepspeed_says_how_replicas_are_kept_in_step() -> None:
    zero = """{"zero_optimization": {"stage": %d, "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
        "overlap_comm": %s, "zero_quantized_weights": true, "zero_hpz_partition_size": 8}}"""
    trainer = "per_device_train_batch_size: 1\nmodel_name_or_path: Qwen/Qwen3-8B\nbf16: true\n"

    def options(stage: int, overlap: str) -> dict[str, Any]:
        files = {"ds.json": zero % (stage, overlap), "train.yaml": trainer}
        plan = planned(files, {"gpu": "h100", "gpus": 16})
        unread = [
            n for n, argument in plan.recipe.arguments.items() if argument.use == "not understood"
        ]
        assert unread == []
        return dict(plan.options)

    third = options(3, "true")
    assert third["dp_bucket"] == 2 * 4096**2  # as transformers resolves auto: hidden x hidden
    assert (third["zeropp"], third["hpz"]) == ("qwz", 8)
    assert "dp_overlap" not in third
    assert options(3, "false")["dp_overlap"] == "none"
    plain = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
    assert formats.read({"ds.json": plain}).options["dp_overlap"] == "none"  # its default


def test_deepspeed_says_how_much_is_updated_at_a_time() -> None:
    """sub_group_size is an option of ZeRO-3: what the fp32 gradients of an update take, and the
    tiles that pass drives, of which many hide reading behind updating."""
    trainer = "per_device_train_batch_size: 1\nmodel_name_or_path: Qwen/Qwen3-8B\nbf16: true\n"

    def options(more: str) -> tuple[float | None, str]:
        files = {"ds.json": f'{{"zero_optimization": {{{more}}}}}', "train.yaml": trainer}
        plan = planned(files, {"gpu": "h100", "gpus": 2})
        response = plan.recipe.arguments.get("zero_optimization.sub_group_size")
        return plan.options.get("sub_group_size"), response.use if response else ""

    assert options('"stage": 3, "sub_group_size": 1e8') == (1e8, "read")
    assert options('"stage": 3, "sub_group_size": 1e9') == (None, "implied")
    assert options('"stage": 3, "sub_group_size": "auto"') == (None, "read")
    assert options('"stage": 2, "sub_group_size": 1e8') == (None, "irrelevant")
    drives = '"stage": 3, "offload_optimizer": {"device": "nvme"}'
    assert options(drives) == (1e9, "")  # DeepSpeed's default, ours is smaller
    request = {"model": "gpt2", "gpu": "h100", "gpus": 8, "stack": "deepspeed", "zero": 3, "pp": 1}
    request |= {"micro_batch": 1, "recompute": "none", "global_batch": 8, "seq_len": 128}

    def document(**more: Any) -> Any:
        return estimate(read_options({**request, **more}), brief=True)

    nvme = {"offload": "optimizer-nvme", "nvme_read": "10 GB/s", "nvme_write": "10 GB/s"}
    whole, tiled = (document(**nvme, sub_group_size=size) for size in (1e9, 1e5))
    owned = parameter_count(model_spec("gpt2")[0]) / 8
    assert whole.memory.host_bytes - tiled.memory.host_bytes == pytest.approx(48 * (owned - 1e5))
    assert tiled.step.seconds < whole.step.seconds
    with pytest.raises(PlanError, match="does not have --sub-group-size"):
        document(stack="pytorch-fsdp", sub_group_size=1e8)


def test_megatron_says_what_runs_beside_compute() -> None:
    base = "torchrun pretrain_gpt.py --tensor-model-parallel-size 1 --use-distributed-optimizer"
    values = {
        "": "none",
        " --overlap-grad-reduce": "reduce",
        " --overlap-grad-reduce --overlap-param-gather": None,
    }
    for more, parts in values.items():
        assert formats.read({"a.sh": base + more}).options.get("dp_overlap") == parts, more
