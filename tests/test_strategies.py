"""Ways of keeping replicas in step: bytes by the ZeRO paper, agreement with estimates, and laws of
each family."""

from __future__ import annotations

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategy_costs import context, cost, sent

from planner.error import PlanError
from planner.estimate import communicate, evaluate, sync
from planner.estimate.machine import machine
from planner.estimate.states import rank_parameters
from planner.formulas.data_parallel import (
    backward_volume_bytes,
    bounded_staleness_factor,
    dropped_batch_factor,
    forward_volume_bytes,
    leaving_bytes,
    optimizer_volume_bytes,
    ring_volume_bytes,
)
from planner.formulas.params import parameter_count
from planner.specs.options.parallel import StrategySettings
from planner.verbs import strategies
from planner.verbs.strategies import BY_NAME, STRATEGIES
from planner.verbs.strategies.base import evaluated
from planner.verbs.strategies.compressed import CODECS, break_even, top_k_codec
from planner.verbs.strategies.zero import sharded_cost


@given(
    zero=st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    ranks=st.integers(1, 100000),
    size=st.floats(1.0, 1e13),
)
def test_phases_of_one_micro_batch_add_up_to_the_zero_paper(
    zero: float, ranks: int, size: float
) -> None:
    # 2 Psi for DDP, ZeRO-1 and ZeRO-2, 3 Psi for ZeRO-3 (arXiv 1910.02054, section 7)
    whole = (
        forward_volume_bytes(2 * size, zero, ranks, 1.0)
        + backward_volume_bytes(2 * size, 2 * size, zero, ranks, 1.0)
        + optimizer_volume_bytes(2 * size, zero, ranks)
    )
    assert float(whole) == pytest.approx(float(ring_volume_bytes(size, zero, ranks, 2.0)))


def test_accumulation_by_hand() -> None:
    # 1 GB of 16-bit parameters, as much of gradients, 4 ranks, 8 micro-batches: DDP and ZeRO-1 send
    # as for one micro-batch, ZeRO-2 reduces eight times, ZeRO-3 gathers sixteen times and reduces
    # eight times; without no_sync DDP reduces eight times
    zero = np.array([0.0, 1.0, 2.0, 3.0])
    assert forward_volume_bytes(1e9, zero, 4.0, 8.0).tolist() == pytest.approx([0, 0, 0, 6e9])
    assert backward_volume_bytes(1e9, 1e9, zero, 4.0, 8.0).tolist() == pytest.approx(
        [1.5e9, 0.75e9, 6e9, 12e9]
    )
    assert optimizer_volume_bytes(1e9, zero, 4.0).tolist() == pytest.approx([0, 0.75e9, 0.75e9, 0])
    assert float(backward_volume_bytes(1e9, 1e9, 0.0, 4.0, 8.0, 8.0)) == pytest.approx(12e9)


def test_one_of_the_ranks_of_a_node_sends_to_the_next() -> None:
    assert float(leaving_bytes(8e9, 64.0, 8.0)) == pytest.approx(1e9)
    assert float(leaving_bytes(8e9, 8.0, 8.0)) == 0.0
    assert float(leaving_bytes(8e9, 8.0, 1.0)) == pytest.approx(8e9)


@pytest.mark.parametrize(
    ("name", "psi"), [("ddp", 2.0), ("zero-1", 2.0), ("zero-2", 1 + 4.0), ("zero-3", 3 * 4.0)]
)
def test_traffic_of_strategies_in_psi(name: str, psi: float) -> None:
    """Four micro-batches on 16 GPUs; Psi: all gradients as they are on the wire (all of these have
    both types alike)."""
    x = context(name)
    first = sync.wire_bytes(x.plan) * parameter_count(x.plan.model) * 15 / 16
    assert sent(BY_NAME[name].cost(x)) == pytest.approx(psi * first, rel=1e-9)


@pytest.mark.parametrize("name", [strategy.name for strategy in STRATEGIES if strategy.is_plan])
def test_an_evaluated_strategy_is_its_estimate(name: str) -> None:
    x = context(name)
    costs = BY_NAME[name].cost(x)
    assert costs.step_s == pytest.approx(x.estimates.time.seconds)


@pytest.mark.parametrize("name", ["zero-3", "fsdp-full-shard"])
def test_sharding_by_formula_is_the_estimate_when_given_its_seconds(name: str) -> None:
    x = context(name)
    layer = rank_parameters(x.plan, x.estimates.table).per_layer()
    gather = communicate.all_gather_s(
        x.m, sync.compute_bytes(x.plan) * layer, x.who.shards, x.m.network_frac
    )
    scatter = communicate.reduce_scatter_s(
        x.m, sync.wire_bytes(x.plan) * layer, x.who.shards, x.m.network_frac
    )
    ours = sharded_cost(x, gather, gather, scatter, (0.0, 0.0), 0.0)
    assert ours.exposed_s == pytest.approx(evaluated(x).exposed_s, rel=1e-6)


def test_reducing_always_is_ddp_once_per_micro_batch() -> None:
    whole, once = cost("ddp-sync-always"), cost("ddp")
    assert whole.exposed_s == pytest.approx(4 * once.exposed_s, rel=0.05)
    assert sent(whole) == pytest.approx(4 * sent(once))
    first, other = (cost(name, micro_batch=16) for name in ("ddp-sync-always", "ddp"))
    assert first.step_s == pytest.approx(other.step_s, rel=1e-3)


def test_estimates_gather_what_zero_2_updated() -> None:
    """DeepSpeed's ZeRO-2 keeps parameters whole and gathers them after the update; FSDP's has them
    as shards."""
    for software, expected in (("deepspeed", 1), ("pytorch-fsdp", 0)):
        plan = plans.plan(gpus=16, software=software, global_batch=64)
        time = evaluate(plan, plans.rows(16, {"zero": 2})).time
        rows = [
            t
            for t in time.traffic
            if t.operation == "all_gather" and t.what == "parameters of the stage"
        ]
        assert [float(t.count[0]) for t in rows] == [expected]
        assert float(rows[0].exposed[0]) == pytest.approx(float(rows[0].seconds[0]))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda entry: entry.name)
def test_every_strategy_gives_finite_times_and_bytes(strategy: strategies.Strategy) -> None:
    gpus = 8 if strategy.refuses(plans.plan(gpus=16)) else 16
    costs = cost(strategy.name, gpus)
    for column in (
        costs.compute_s,
        costs.exposed_s,
        costs.hidden_s,
        costs.forward_bytes,
        costs.backward_bytes,
        costs.optimizer_bytes,
        costs.leaving_bytes,
    ):
        assert np.isfinite(column).all()
        assert (column >= 0).all()
    assert (costs.compute_s > 0).all()
    assert sent(costs) > 0
    assert (
        costs.leaving_bytes
        <= costs.forward_bytes + costs.backward_bytes + costs.optimizer_bytes + 1e-6
    ).all() or (
        strategy.family == "server"  # where all of it leaves, both ways
    )
    assert strategy.source
    assert strategy.differs


def test_names_are_unique_and_families_complete() -> None:
    assert len(BY_NAME) == len(STRATEGIES)
    assert {strategy.family for strategy in STRATEGIES} == {
        "DDP",
        "ZeRO",
        "FSDP",
        "offload",
        "frameworks",
        "compressed",
        "local",
        "server",
    }


def test_a_16_bit_hook_halves_the_bytes_of_ddp() -> None:
    assert sent(cost("ddp-fp16-hook")) == pytest.approx(sent(cost("ddp")) / 2)
    assert float(cost("ddp-fp16-hook").compute_s[0]) > float(cost("ddp").compute_s[0])


def test_bucket_views_save_a_copy_of_all_gradients() -> None:
    plain, views = (context(name).estimates.memory.peak[0] for name in ("ddp", "ddp-bucket-view"))
    assert plain - views == pytest.approx(4 * parameter_count(context("ddp").plan.model), rel=0.01)


def test_a_second_partition_trades_memory_for_bytes_between_nodes() -> None:
    plain, second = cost("zero-3"), cost("zero-3-hpz")
    assert float(second.leaving_bytes[0]) == pytest.approx(
        2 / 3 * float(plain.leaving_bytes[0]), rel=1e-6
    )
    assert float(np.ravel(second.extra_bytes)[0]) == pytest.approx(
        2 * parameter_count(context("zero-3").plan.model) / 8
    )
    # where the network is slow, backward waits for it no more
    slow = {"nic_per_gpu": 1e9}
    assert float(cost("zero-3-hpz", **slow).step_s[0]) < float(cost("zero-3", **slow).step_s[0])


def test_delayed_update_hides_the_cpu_and_no_more() -> None:
    plain, delayed = cost("zero-offload"), cost("zero-offload-dpu")
    assert float(delayed.step_s[0]) < float(plain.step_s[0])
    x = context("zero-offload")
    away = float((x.slower * x.estimates.time.components["optimizer"])[0])
    assert float(plain.step_s[0] - delayed.step_s[0]) <= away + 1e-12


BILLION = plans.model(
    layers=24, hidden=2048, heads=16, kv_heads=16, head_dim=128, ffn_hidden=5632, vocab=32000
)


@pytest.mark.parametrize("nic", [5e9, 20e9, 100e9])
def test_synchronous_reduction_is_slower_than_overlapped(nic: float) -> None:
    for first, other in (("tf-multi-worker-mirrored", "ddp"), ("jax-pmap", "jax-pjit")):
        synchronous, overlapped = (
            cost(name, shape=BILLION, nic_per_gpu=nic, slowdown=0.0) for name in (first, other)
        )
        assert float(synchronous.exposed_s[0]) > float(overlapped.exposed_s[0])


def test_one_process_issues_for_all_gpus() -> None:
    """nn.DataParallel: broadcasts and sums in the open, and a launch-bound forward pass n times
    over."""
    single, many = cost("data-parallel", 8), cost("ddp", 8)
    assert float(single.exposed_s[0]) > float(many.exposed_s[0])
    assert float(single.compute_s[0]) > 1.5 * float(
        many.compute_s[0]
    )  # the layers are tiny: the interpreter sets the pace


@pytest.mark.parametrize("gpus", [16, 64])
def test_fewer_exchanges_send_fewer_bytes(gpus: int) -> None:
    every = cost("local-sgd", gpus, StrategySettings(local_steps=1))
    assert sent(every) == pytest.approx(
        sent(cost("ddp", gpus))
    )  # 4 B of parameters where DDP reduces 4 B of gradients
    for steps in (2, 10, 500):
        rare = cost("local-sgd", gpus, StrategySettings(local_steps=steps))
        assert sent(rare) == pytest.approx(sent(every) / steps)
        assert rare.exposed_s == pytest.approx(every.exposed_s / steps)


def test_diloco_sends_between_nodes_once_in_h_steps() -> None:
    # 64 GPUs, 8 nodes: a GPU has an eighth of 4 P bytes to average over 8 nodes, 2 * 7/8 of it,
    # every 500 steps
    costs = cost("diloco", 64)
    whole = 4.0 * parameter_count(context("ddp").plan.model)
    assert float(costs.leaving_bytes[0]) == pytest.approx(whole / 8 * 2 * 7 / 8 / 500)
    assert float(costs.leaving_bytes[0]) < 0.003 * float(cost("ddp", 64).leaving_bytes[0])


def test_incast_at_the_servers() -> None:
    """One server takes eight times as long as eight; more than the workers' own cards they cannot
    use."""
    first, eight, many = (
        float(
            cost(
                "ps-sync",
                64,
                StrategySettings(servers=n),
                inter_hop=0.0,
                intra_base=0.0,
                host_update=1e30,
            ).exposed_s[0]
        )
        for n in (1, 8, 64)
    )
    assert first == pytest.approx(8 * eight, rel=1e-6)
    assert many == pytest.approx(eight, rel=1e-6)


def test_copies_on_other_servers_by_hand() -> None:
    """Each of eight servers sends its eighth of fp32 parameters once per copy, over its cards."""
    none, first, second = (
        float(cost("ps-sync", 64, StrategySettings(server_copies=n)).exposed_s[0])
        for n in (0, 1, 2)
    )
    x = context("ps-sync")
    part = 4.0 * parameter_count(x.plan.model) / 8
    node = 8 * float(x.m.nic_per_gpu)
    assert second - none == pytest.approx(2 * (first - none), rel=1e-6)
    assert part / node <= first - none <= 2 * part / node
    with pytest.raises(PlanError, match="there are 8: give more --servers"):
        cost("ps-sync", 64, StrategySettings(server_copies=8))


def test_what_staleness_and_backups_save_and_cost() -> None:
    assert float(bounded_staleness_factor(1.1, 0.0)) == pytest.approx(1.1)
    assert float(bounded_staleness_factor(1.1, 3.0)) == pytest.approx(1.05)
    assert float(bounded_staleness_factor(1.1, 1e12)) == pytest.approx(1.0)
    assert float(dropped_batch_factor(16.0, 1.0)) == pytest.approx(16 / 15)
    times = [
        float(cost(name).compute_s[0])
        for name in ("ps-sync", "ps-backup", "ps-bounded", "ps-async")
    ]
    assert times == sorted(times, reverse=True)
    four = context("ps-backup", settings=StrategySettings(backups=4))
    steps = BY_NAME["ps-backup"].steps_of(four)
    assert steps.factor == pytest.approx(16 / 12)
    assert "staleness 15" in BY_NAME["ps-async"].steps_of(context("ps-async")).source


@pytest.mark.parametrize("name", sorted(CODECS))
def test_codecs_pay_below_their_break_even(name: str) -> None:
    """At half of it the exchange with code is shorter than the dense one, at twice it is longer: no
    start-up times, one node."""
    x = context(name, 8)
    codec = CODECS[name](x)
    at = break_even(x, codec)
    dense = 2 * 7 / 8 * 4.0 * parameter_count(x.plan.model)
    code = 7 * codec.code_bytes if codec.gathered else 2 * 7 / 8 * codec.code_bytes
    spent = float(np.ravel(codec.codec_s)[0])
    assert dense / (at / 2) > code / (at / 2) + spent
    assert dense / (2 * at) < code / (2 * at) + spent


def test_compression_helps_on_a_slow_network_and_not_on_a_fast_one() -> None:
    slow, fast = {"nic_per_gpu": 0.1e9}, {"nic_per_gpu": 1e12, "inter_hop": 0.0}
    for name in ("int8", "top-k", "ddp-powersgd-hook"):
        assert float(cost(name, **slow).step_s[0]) < 0.6 * float(cost("ddp", **slow).step_s[0])
        assert float(cost(name, **fast).compute_s[0]) > float(cost("ddp", **fast).compute_s[0])


def test_sparse_codes_lose_to_dense_gradients_on_many_ranks() -> None:
    few, many = (context("top-k", n, StrategySettings(density=0.01)) for n in (8, 512))
    for x, pays in ((few, True), (many, False)):
        assert (break_even(x, top_k_codec(x)) > 0) == pays


def test_a_higher_rank_sends_more() -> None:
    low, high = (
        sent(cost("ddp-powersgd-hook", settings=StrategySettings(rank=rank))) for rank in (1, 8)
    )
    assert low < high < sent(cost("ddp")) / 2


def test_numbers_of_the_machine_are_those_of_estimates() -> None:
    plan = plans.plan(gpus=16, software="pytorch-ddp")
    assert float(context("ddp").m.intra_bandwidth) == float(machine(plan).intra_bandwidth)
