"""Islands of a network: what stays below one tier of switches knows nothing of them, what passes
between them has their share of the links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st
from not_none import not_none

from planner.estimate import communicate, evaluate
from planner.estimate.all_reduce import ALGORITHMS, network
from planner.estimate.communicate import Group, place
from planner.formulas.collectives import bisection_bytes_per_s, uplink_bandwidth_bytes_per_s
from planner.inputs import catalog
from planner.inputs.cluster import cluster_spec
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterTemplate, Tiers
from planner.specs.columns import Columns
from planner.specs.options import Options
from planner.specs.plan import Plan

ONE = np.array([1.0])
LARGE = np.array([10e9])


def _plan(oversubscription: float | None, nodes: int = 4, gpus: int = 64) -> Plan:
    plain = plans.plan(gpus=gpus, global_batch=256)
    return plain if oversubscription is None else plans.in_islands(plain, nodes, oversubscription)


def _reduced_s(plan: Plan, ranks: int, size: float = 10e9) -> float:
    group = place(np.array([float(ranks)]), ONE, plan.cluster.tiers)
    return float(communicate.all_reduce_s(plans.numbers(plan), np.array([size]), group)[0])


def test_a_group_inside_an_island_knows_nothing_of_it() -> None:
    assert _reduced_s(_plan(4.0), 32) == _reduced_s(_plan(None), 32)


def test_a_large_all_reduce_between_islands_has_their_share_of_the_links() -> None:
    # 64 ranks on 8 nodes in 2 islands: the same ring over links with a third of the bandwidth
    assert _reduced_s(_plan(3.0), 64) / _reduced_s(_plan(None), 64) == pytest.approx(3, rel=0.01)


def test_a_non_blocking_fabric_has_no_islands() -> None:
    assert _reduced_s(_plan(1.0), 64) == _reduced_s(_plan(None), 64)


@given(st.floats(1.0, 50.0), st.floats(1.0, 10.0), st.floats(1e3, 1e10))
def test_more_oversubscription_is_never_faster(share: float, more: float, size: float) -> None:
    assert _reduced_s(_plan(share * more), 64, size) >= _reduced_s(_plan(share), 64, size)


def test_an_uplink_is_never_faster_than_the_card() -> None:
    # sockets carry 2 of the card's 10 GB/s: at 1:4 the link between islands still carries 2.5
    sockets = {"nic_bytes_per_gpu_per_s": 10e9, "oversubscription": 4.0}
    assert uplink_bandwidth_bytes_per_s(2e9, **sockets) == 2e9
    assert uplink_bandwidth_bytes_per_s(10e9, **sockets) == 2.5e9


def test_an_all_to_all_sees_the_bisection() -> None:
    # 64 ranks, 8 in a node, 32 in an island: of 56/64 that leave the node 32/64 leave the island
    # over a quarter of the bandwidth, in 32/64 S / (B/4) = 2 S/B against 56/64 S/B
    rate = bisection_bytes_per_s(10e9, 64.0, 8.0, 32.0, uplink_bytes_per_s=2.5e9)
    assert (56 / 64) / rate == pytest.approx(2 / 10e9)
    assert bisection_bytes_per_s(10e9, 32.0, 8.0, 32.0, uplink_bytes_per_s=2.5e9) == 10e9
    # a mild one hides behind what leaves the nodes anyway
    assert bisection_bytes_per_s(10e9, 64.0, 8.0, 32.0, uplink_bytes_per_s=8e9) == 10e9


def test_expert_traffic_between_islands_takes_longer() -> None:
    plain, split = _plan(None), _plan(4.0)

    def sent_s(plan: Plan) -> float:
        group = place(np.array([64.0]), ONE, plan.cluster.tiers)
        return float(communicate.even_all_to_all_s(plans.numbers(plan), LARGE, group)[0])

    assert sent_s(split) > 1.5 * sent_s(plain)


def test_a_group_of_distant_ranks_spans_islands_sooner() -> None:
    near, far = (place(np.array([4.0]), stride * ONE, Tiers(8, 32.0)) for stride in (1.0, 16.0))
    assert not_none(near.ranks_per_island).tolist() == [4]
    assert not near.spans_islands[0]
    assert not_none(far.ranks_per_island).tolist() == [2]
    assert far.spans_islands[0]


def _sends_s(plan: Plan, pp: int) -> tuple[float, float]:
    """Seconds of pipeline sends of a step, and how many of them there are."""
    table = Columns.of([plans.layout(plan.cluster.gpus, pp=pp)], plan.cluster.gpus)
    sent = [t for t in evaluate(plan, table).time.traffic if t.operation == "send_recv"]
    return sum(float(t.seconds[0]) for t in sent), sum(float(t.count[0]) for t in sent)


def test_pipeline_sends_between_islands_are_as_many_and_take_longer() -> None:
    plain, split = _sends_s(_plan(None), 8), _sends_s(_plan(8.0), 8)
    assert split[1] == plain[1]
    assert split[0] > plain[0]
    # of 8 stages on 2 islands one boundary lies between islands: far less than all sends slow down
    assert split[0] < 8 * plain[0]
    # stages within one island
    assert _sends_s(_plan(8.0, nodes=8), 8) == plain


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda entry: str(entry.name))
def test_no_algorithm_gains_by_islands(algorithm: object) -> None:
    def taken(plan: Plan) -> float:
        links = network(plans.numbers(plan), plan.cluster, 64)
        return float(np.ravel(algorithm.seconds(links, LARGE))[0])  # type: ignore[attr-defined]

    assert taken(_plan(4.0)) >= taken(_plan(None))


def test_estimates_agree_with_the_algorithms_they_choose_from() -> None:
    plan = _plan(4.0)
    links = network(plans.numbers(plan), plan.cluster, 64)
    each = {algorithm.name: algorithm for algorithm in ALGORITHMS}
    fastest = min(float(np.ravel(each[name].seconds(links, LARGE))[0]) for name in ("ring", "tree"))
    assert _reduced_s(plan, 64) == pytest.approx(fastest, rel=1e-9)


@pytest.mark.parametrize(
    "given", [{"island_nodes": 8}, {"oversubscription": 2.0}], ids=lambda entry: next(iter(entry))
)
def test_half_a_tier_is_refused(given: dict[str, Any]) -> None:
    options = Options(model="gpt2", gpu="a100", gpus=64, **given)
    with pytest.raises(PlanError) as refused:
        cluster_spec(options)
    assert "--island-nodes" in str(refused.value)
    assert "--oversubscription" in str(refused.value)


def test_the_options_reach_the_cluster_and_silence_the_assumption() -> None:
    options = Options(model="gpt2", gpu="a100", gpus=256)
    _, assumed = cluster_spec(options)
    assert any("non-blocking" in entry for entry in assumed)
    cluster, assumed = cluster_spec(options.changed(island_nodes=8, oversubscription=2.0))
    assert cluster.tiers == Tiers(8, 64.0)
    assert not any("non-blocking" in entry for entry in assumed)
    few, assumed = cluster_spec(options.changed(gpus=64))
    assert few.tiers.island == np.inf
    assert not any("non-blocking" in entry for entry in assumed)


def test_a_file_of_a_cluster_states_its_tiers(tmp_path: Path) -> None:
    shipped = catalog.find("clusters", "dgx-h100").read_text()
    lines = [x for x in shipped.splitlines() if not x.startswith(("island_", "oversub"))]
    path = tmp_path / "own.toml"
    path.write_text("\n".join(["island_nodes = 4", "oversubscription = 2", *lines]))
    cluster, _ = cluster_spec(Options(model="gpt2", cluster=str(path), gpus=64))
    assert cluster.tiers == Tiers(8, 32.0)
    path.write_text("\n".join(["island_nodes = 4", "oversubscription = 0.5", *lines]))
    with pytest.raises(PlanError, match="oversubscription"):
        cluster_spec(Options(model="gpt2", cluster=str(path), gpus=64))


def test_a_fabric_stated_to_be_non_blocking_needs_no_islands() -> None:
    options = Options(model="gpt2", gpu="a100", gpus=256, oversubscription=1)
    cluster, assumed = cluster_spec(options)
    assert cluster.tiers.island == np.inf
    assert not any("non-blocking" in entry for entry in assumed)


def test_shipped_clusters_say_what_is_above_their_islands() -> None:
    for entry in catalog.load_all("clusters", ClusterTemplate):
        assert entry.island_nodes is None or entry.oversubscription is not None, entry.id


def test_an_island_holds_whole_domains() -> None:
    cluster, _ = cluster_spec(
        Options(model="gpt2", cluster="gb200-nvl72", gpus=288, island_nodes=4, oversubscription=2.0)
    )
    assert cluster.tiers == Tiers(72, 72.0)
    assert not Group(ONE, ONE).spans_islands.any()
