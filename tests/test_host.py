"""The update of an offloaded optimizer on the host: bytes, bandwidth, threads, overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest

from planner.advise import host_update
from planner.estimate import Estimates, evaluate
from planner.estimate.machine import machine
from planner.estimate.machine.host import threads, update_bandwidth
from planner.estimate.optimizer import cpu_rate
from planner.evidence.case import FEATURES, features, slowest_host
from planner.formulas import offload
from planner.inputs import catalog
from planner.inputs.cluster import cluster_spec
from planner.mechanisms.cpu_update import CpuUpdate
from planner.specs.cluster import ClusterTemplate
from planner.specs.hardware import GpuSpec
from planner.specs.host import CPU_OPTIMIZERS, HostSpec
from planner.specs.options import Options
from planner.specs.plan import Plan

GPUS = 8


def of_host(name: str, **changes: Any) -> HostSpec:
    return catalog.load("hosts", HostSpec, name).model_copy(update=changes)


def on(
    host: str = "xeon-8168", *, stack: str = "deepspeed", gpus: int = GPUS, **training: Any
) -> Plan:
    """Eight ranks on a host."""
    plan = plans.plan(plans.model(), gpus=gpus, software=stack, **training)
    cluster = plan.cluster.model_copy(update={"host": of_host(host)})
    return plan.model_copy(update={"cluster": cluster})


def with_threads(plan: Plan, each: int) -> Plan:
    cluster = plan.cluster.model_copy(update={"host_threads": each})
    return plan.model_copy(update={"cluster": cluster})


def estimates(
    plan: Plan, where: str = "optimizer", micro_batch: int = 1, **numbers: Any
) -> Estimates:
    table = plans.rows(GPUS, {"zero": 3, "offload": where, "micro_batch": micro_batch})
    return evaluate(plan, table, numbers=plans.numbers(plan, **numbers) if numbers else None)


def update_s(plan: Plan, **numbers: Any) -> float:
    return float(estimates(plan, **numbers).time.components["optimizer"][0])


def test_bytes_of_an_update_by_hand() -> None:
    """In fp32 DeepSpeed's update reads and writes parameter and moments (24) and reads the gradient
    (4); it was scaled (8), and a 16-bit copy is read from the parameter (4) and written (2 + 2)."""

    def moved(name: str, copy: float) -> float:
        how = CPU_OPTIMIZERS[name]  # type: ignore[index]
        passes = (how.master, how.moments, how.gradient, how.copy)
        return float(offload.update_bytes(4.0, 8.0, 4.0, copy, passes, how.other_bytes))

    assert moved("deepspeed", 2.0) == 24 + 4 + 8 + 4 + 4
    assert moved("torch-fused", 0.0) == 24 + 4 + 4 + 8
    # mul_ 8, lerp_ 12, mul_ 8, addcmul_ 12, sqrt 12, div_ 8, add_ 8, addcdiv_ 16; clipping 12
    assert moved("torch-eager", 0.0) == 84 + 12


def test_update_of_one_core_that_was_measured() -> None:
    """One core and two of an EPYC 7003 that scale a vector in place at 27.6 and 41.2 GB/s update
    1.08e9 and 1.43e9 parameters/s with torch's fused AdamW, which moves 28 B of each."""
    for streamed, measured in ((27.6e9, 1.08e9), (41.2e9, 1.43e9)):
        result = offload.update_bandwidth_bytes_per_s(1.0, streamed, 1e12, 0.62) / 28
        assert result == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(
    ("host", "published"),
    [("xeon-8168", 1e10 / 2.57), ("xeon-8168", 1e9 / 0.22), ("grace", 1e9 / 0.098)],
)
def test_published_updates_of_deepspeed(host: str, published: float) -> None:
    """CPU-Adam alone in ZeRO-Offload, table 4, and in SuperOffload: parameters, moments, gradient
    and the 16-bit copy, by one process on all cores."""
    plan = on(host, gpus=1)
    bytes_alone = 24 + 4 + 2 + 2
    assert float(update_bandwidth(plan)) / bytes_alone == pytest.approx(published, rel=0.2)


def test_threads_of_a_launcher() -> None:
    """torchrun leaves several ranks of a host one thread each, and a single rank all cores."""
    assert threads(on(stack="deepspeed")) == 48
    assert threads(on(stack="pytorch-fsdp")) == GPUS
    assert threads(on(stack="pytorch-fsdp", gpus=1)) == 48
    assert threads(with_threads(on(stack="deepspeed"), 2)) == 16
    assert threads(with_threads(on(stack="deepspeed"), 1000)) == 48


def test_more_threads_are_faster_until_the_memory_is_full() -> None:
    rates = [float(update_bandwidth(with_threads(on("epyc-9004"), n))) for n in (1, 2, 4, 8, 16)]
    core = float(of_host("epyc-9004").core_bandwidth)
    assert rates[:2] == pytest.approx([8 * core, 16 * core])
    assert rates == sorted(rates)
    host = of_host("epyc-9004")
    assert rates[-1] == pytest.approx(0.62 * float(host.memory_bandwidth * host.stream_frac))


def test_an_update_takes_its_bytes_over_the_memory() -> None:
    """Twice the memory bandwidth halves the update; moments of half the bytes take 16 B of 44."""
    plan = on()
    slow, fast = (update_s(plan, host_update=rate, host_staged=1e30) for rate in (1e8, 2e8))
    rest = update_s(plan, host_update=1e30, host_staged=1e30)
    assert slow - rest == pytest.approx(2 * (fast - rest), rel=1e-6)
    m = machine(plan)
    half = plan.model_copy(
        update={"training": plan.training.model_copy(update={"moments_precision": "bf16"})}
    )
    assert float(cpu_rate(half, m) / cpu_rate(plan, m)) == pytest.approx(44 / 36)


def test_ranks_of_a_host_share_it() -> None:
    """Under ZeRO-3 eight ranks on one host update as many parameters as one does, at its rate."""
    plan = on()
    each = sum(float(x) for x in [update_s(plan, host_update=1e8, host_staged=1e30)])
    without = update_s(plan, host_update=1e30, host_staged=1e30)
    parameters = (each - without) * float(1e8 / 44)
    table = plans.rows(GPUS, {"zero": 3, "offload": "optimizer"})
    whole = evaluate(plan, table).memory
    assert parameters > 0
    assert whole.host[0] * GPUS == pytest.approx(parameters * (12 + 2), rel=0.02)


def test_gradients_leave_beside_the_backward_pass() -> None:
    """Copies of 2 s each way, and of 3 s with the last, exceed a backward pass of 1.5 s by 0.5 and
    1.5 s."""
    first = offload.gradients_exposed_s(1e9, 2e9, 1e9, 1.5, np.array([1.0, 3.0]))
    assert first == pytest.approx([1.5, 2 * 0.5 + 1.5])
    assert offload.gradients_exposed_s(1e9, 2e9, 1e9, 3.0, 5.0) == 0


def test_parameters_return_through_one_core_where_memory_is_pageable() -> None:
    assert offload.parameters_back_s(10e9, 50e9, 7e9, False) == pytest.approx(0.2)
    assert offload.parameters_back_s(10e9, 50e9, 7e9, True) == pytest.approx(10 / 7)
    assert offload.parameters_back_s(10e9, 1e9, 7e9, True) == pytest.approx(10)


def test_what_the_update_hides_behind() -> None:
    """Beside the backward pass no less shows than beside the whole step, and no more than after."""
    for rate in (1e8, 1e11):
        after, overlapped, delayed = (
            update_s(on(mechanisms=when), host_update=rate)
            for when in ((), (CpuUpdate("overlapped"),), (CpuUpdate("delayed"),))
        )
        assert after >= overlapped >= delayed >= 0
    assert update_s(
        on(mechanisms=(CpuUpdate("delayed"),)), host_update=1e30, host_staged=1e30
    ) == pytest.approx(0, abs=1e-9)


def test_hosts_of_the_catalogue_exist_and_are_plausible() -> None:
    named = {entry.host for entry in catalog.load_all("clusters", ClusterTemplate)}
    named |= {entry.node.host for entry in catalog.load_all("gpus", GpuSpec)}
    assert named <= set(catalog.ids("hosts"))
    for entry in catalog.load_all("hosts", HostSpec):
        streamed = float(entry.memory_bandwidth * entry.stream_frac)
        assert entry.cores % entry.sockets == 0
        assert float(entry.core_bandwidth) < streamed < float(entry.memory_bandwidth)
        assert entry.cores * float(entry.core_bandwidth) > streamed, "all cores fill the memory"


def test_a_host_is_that_of_the_request_of_the_cluster_or_of_the_gpu() -> None:
    def cluster_of(**given: Any) -> Any:
        return cluster_spec(Options(model="gpt2", **given))[0]

    assert cluster_of(gpu="h200", gpus=8).host.id == "xeon-8480c"
    assert not cluster_of(gpu="h200", gpus=8).host_stated
    assert cluster_of(cluster="aws-p5", gpus=8).host.id == "epyc-7r13"
    assert cluster_of(cluster="aws-p5", gpus=8).host_stated
    named = cluster_of(gpu="h200", gpus=8, host="epyc-9004", host_threads=4)
    assert (named.host.id, named.host_stated, named.host_threads) == ("epyc-9004", True, 4)


def test_a_host_that_is_not_known_widens_the_band() -> None:
    """Known host and threads leave a factor of 1.44 open, neither leaves ten."""
    unknown = on()
    cluster = unknown.cluster.model_copy(update={"host_stated": True, "host_threads": 4})
    known = unknown.model_copy(update={"cluster": cluster})
    assert (slowest_host(unknown), slowest_host(known)) == pytest.approx((10, 1.44))
    column = list(FEATURES).index("offload")

    def feature(plan: Plan, where: str) -> float:
        e = estimates(plan, where)
        return float(features(plan, e.table, e.time)[0, column])

    assert 0 < feature(known, "optimizer") < feature(unknown, "optimizer")
    assert feature(unknown, "none") == 0


def test_the_answer_names_the_host_and_what_other_threads_would_take() -> None:
    e = estimates(on())
    (only,) = host_update.assumed(e, 0)
    assert "48 of 48 cores of Two Xeon Platinum 8168" in only
    assert "--host-threads" in only
    (other,) = host_update.without(e, 0)
    assert "with 1 and" in other
    assert host_update.without(estimates(with_threads(on(), 2)), 0) == []
    assert host_update.assumed(estimates(on(), "none"), 0) == []
