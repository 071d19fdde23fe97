"""Experts: placement, dispatched copies of tokens, overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest

from planner import api
from planner.estimate import evaluate
from planner.estimate.layer import dispatch
from planner.estimate.layer.shape import local_shape
from planner.estimate.machine import machine
from planner.estimate.states import rank_parameters
from planner.estimate.step import StepTime
from planner.formulas import experts
from planner.formulas.rules import RULES
from planner.mechanisms.ep_overlap import EpOverlap
from planner.mechanisms.paged_stash import PagedStash
from planner.mechanisms.shared_expert_overlap import SharedExpertOverlap
from planner.specs.base import PlanError
from planner.specs.model import Experts
from planner.specs.plan import Plan


def plan(
    gpus: int = 16, stack: str = "megatron-core", gpu: str = "h100-sxm5-80gb", **ask: Any
) -> Plan:
    """Sixteen experts, four active per token."""
    moe = Experts(experts=16, experts_per_token=4, ffn_hidden=1024, shared_ffn_hidden=1024)
    shape = plans.model(moe=moe)
    return plans.plan(shape, gpus=gpus, gpu=gpu, software=stack, seq_len=2048, **ask)


def one_way(plan: Plan, **layout: float) -> dispatch.OneWay:
    columns = {"tp": 1.0, "cp": 1.0, "ep": 1.0, "micro_batch": 1.0, "sequence_parallel": 1.0}
    given = {name: np.array([value]) for name, value in (columns | layout).items()}
    return dispatch.one_way(local_shape(plan, **given), machine(plan))


def test_ranks_that_split_an_expert_are_asked_for_or_those_of_the_stack() -> None:
    tp = np.array([1.0, 4.0])
    assert experts.tensor_of(plan(), tp).tolist() == [1.0, 1.0]
    assert experts.tensor_of(plan(stack="maxtext"), tp).tolist() == [1.0, 4.0]
    assert experts.tensor_of(plan(etp=2), tp).tolist() == [2.0, 2.0]


def test_experts_are_held_by_tensor_ranks_as_well() -> None:
    # 16 ranks as tp 4 x dp 4: with experts whole, 16 hold one each; split over 4, 4 hold a quarter
    # of four each: as many elements, and one copy of every expert
    rows = plans.rows(16, {"tp": 4, "dp": 4, "ep": 16}, {"tp": 4, "dp": 4, "ep": 4})
    assert experts.replicas(plan(), rows).tolist() == [1.0, 4.0]
    assert experts.replicas(plan(etp=4), rows)[1] == 1.0
    whole, copies = rank_parameters(plan(), rows).experts
    split = rank_parameters(plan(etp=4), rows).experts[1]
    assert whole == split == 3 * 512 * 1024
    assert copies == 4 * whole


def test_search_knows_how_far_experts_go() -> None:
    rule = next(rule for rule in RULES if rule.options == ("ep",))
    rows = plans.rows(16, {"tp": 4, "dp": 4, "ep": 16})
    assert rule.holds(plan(), rows)[0]
    assert not rule.holds(plan(etp=4), rows)[0]
    why = rule.sentence(plan(etp=4), rows.layout(0))
    assert "tp x dp x cp = 16 over the 4 ranks" in why
    assert "--etp 1" in why
    assert "etp 3 must divide the width 1,024" in rule.sentence(plan(etp=3), rows.layout(0))


@pytest.mark.parametrize(
    ("stack", "allowed"), [("megatron-core", {1, 2, 4}), ("torchtitan", {1, 4}), ("maxtext", {4})]
)
def test_stacks_split_experts_over_the_ranks_they_can(stack: str, allowed: set[int]) -> None:
    """Megatron-LM's --expert-tensor-parallel-size is free, ParallelDims of torchtitan takes tp or
    1, and MaxText's mesh splits experts with the dense layers."""
    rule = next(rule for rule in RULES if rule.options == ("etp",))
    rows = plans.rows(16, {"tp": 4, "dp": 4, "ep": 1})
    assert {n for n in (1, 2, 4) if rule.holds(plan(stack=stack, etp=n), rows)[0]} == allowed
    if stack == "torchtitan":
        assert "here etp is 2, tp 4" in rule.sentence(plan(stack=stack, etp=2), rows.layout(0))


def test_whole_experts_stay_in_the_node_where_split_ones_leave_it() -> None:
    # two nodes of eight: eight experts ranks, next to each other or four apart
    assert one_way(plan(), tp=4, ep=4).group.nodes[0] == 1
    assert one_way(plan(etp=4), tp=4, ep=4).group.nodes[0] == 2


def test_a_copy_for_every_expert_rank_or_node() -> None:
    # 2048 tokens of 512 x 2 B to 16 ranks on two nodes: 4 copies each, or one for each of
    # 16 (1 - (15/16)^4) = 3.641 ranks, of which 2 (1 - 1/16) = 1.875 go to nodes, or 16
    token_bytes = 2048 * 512 * 2
    sent = {
        name: one_way(plan(dispatcher=name), ep=16)
        for name in ("alltoall", "deepep", "hybridep", "allgather")
    }
    assert sent["alltoall"].sent_bytes[0] == pytest.approx(4 * token_bytes)
    assert sent["deepep"].sent_bytes[0] == pytest.approx(3.641 * token_bytes, rel=1e-3)
    # HybridEP sends 8 fp32 weights of a node's experts with every copy, in half of its calls: 16 B
    # beside 1024
    weighted = sent["hybridep"].sent_bytes[0] / sent["deepep"].sent_bytes[0]
    assert weighted == pytest.approx(1 + 16 / 1024)
    assert sent["allgather"].sent_bytes[0] == 16 * token_bytes
    # what leaves is 1.875 / 4 of the copies: over one card that is what takes the time
    assert sent["deepep"].seconds[0] < 0.65 * sent["alltoall"].seconds[0]
    assert sent["allgather"].seconds[0] > sent["alltoall"].seconds[0]


@pytest.mark.parametrize(
    ("gpus", "local_tokens", "hidden", "per_token", "gb_per_s"),
    # HybridEP on H100, bf16, only the kernel, logical bandwidth of tokens to distinct nodes, their
    # own one included (DeepEP, README_Hybrid-EP: 8 SMs)
    [(16, 4096, 7168, 8, 76.8), (32, 4096, 7168, 8, 54.5), (64, 4096, 7168, 8, 50.55)],
)
def test_published_bandwidths(
    gpus: int, local_tokens: int, hidden: int, per_token: int, gb_per_s: float
) -> None:
    moe = Experts(experts=8 * gpus, experts_per_token=per_token, ffn_hidden=2048)
    plan = plans.plan(
        plans.model(moe=moe, hidden=hidden, heads=56, kv_heads=56, head_dim=128),
        gpus=gpus,
        gpu="h100-sxm5-80gb",
        seq_len=local_tokens,
        dispatcher="hybridep",
    )
    nodes = gpus / 8
    logical = local_tokens * hidden * 2 * nodes * (1 - (1 - 1 / nodes) ** per_token)
    seconds = one_way(plan, ep=gpus).seconds[0]
    assert logical / seconds / 1e9 == pytest.approx(gb_per_s, rel=0.25)


def exposed_s(plan: Plan, **layout: Any) -> float:
    rows = plans.rows(plan.cluster.gpus, {"ep": 16, "dp": 16, **layout})
    return float(np.ravel(evaluate(plan, rows).time.components["expert_parallel"])[0])


def test_nothing_hides_dispatch_but_another_micro_batch_or_shared_experts() -> None:
    plain, other = exposed_s(plan()), exposed_s(plan(mechanisms=(EpOverlap(True, None),)))
    shared = exposed_s(plan(mechanisms=(SharedExpertOverlap(),)))
    assert 0 < other < shared < plain
    assert other >= plain * dispatch.EXPOSED * (1 - 1e-9)
    neither = plan(mechanisms=(EpOverlap(True, None),), overlap=False)
    assert exposed_s(neither) == pytest.approx(plain)


def test_dispatch_takes_multiprocessors_from_what_it_hides_behind() -> None:
    rows = plans.rows(16, {"ep": 16, "dp": 16})

    def time(sms: int) -> StepTime:
        beside = plan(mechanisms=(EpOverlap(True, sms),), dispatcher="deepep")
        return evaluate(beside, rows).time

    few, more, most = time(4), time(20), time(40)
    assert few.seconds[0] < more.seconds[0] < most.seconds[0]
    # which is time of expert parallelism: one tensor-parallel rank communicates with none
    assert few.components["expert_parallel"][0] < more.components["expert_parallel"][0]
    for component in few.components.keys() - {"expert_parallel", "overhead"}:
        assert np.ravel(few.components[component])[0] == pytest.approx(
            np.ravel(more.components[component])[0]
        ), component


def test_the_fullest_rank_is_waited_for_up_to_its_capacity() -> None:
    rows = plans.rows(16, {"ep": 16, "dp": 16})

    def of(**ask: Any) -> Any:
        return evaluate(plan(**ask), rows)

    even, full = of(), of(expert_load=2.0)
    bounded = of(expert_load=2.0, capacity_factor=1.25)
    assert even.time.seconds[0] < bounded.time.seconds[0] < full.time.seconds[0]
    assert bounded.time.seconds[0] == pytest.approx(of(expert_load=1.25).time.seconds[0])
    assert even.memory.device[0] < bounded.memory.device[0] < full.memory.device[0]
    paged = of(expert_load=2.0, capacity_factor=1.25, mechanisms=(PagedStash(1.0),))
    assert paged.memory.device[0] == pytest.approx(even.memory.device[0])
    assert paged.time.seconds[0] == bounded.time.seconds[0]


def test_the_fullest_rank_follows_from_the_spread_of_experts() -> None:
    # 64 experts of spread 0.3 on 64, 8 and 1 ranks: of this many normals the largest is 2.34, 1.42
    # and 0 standard deviations above the mean (David and Nagaraja 2003, table of order statistics)
    ranks = np.array([64.0, 8.0, 1.0])
    each = 64 / ranks
    load = experts.fullest_load(ranks, each, 1e9, 0.3)
    largest = np.array([2.343, 1.424, 0.0])
    assert load == pytest.approx(1 + largest * 0.3 / np.sqrt(each), rel=1e-2)
    # only by chance: 64 copies each
    rng = np.random.default_rng(1)
    thrown = rng.multinomial(8 * 64, [1 / 8] * 8, size=20_000).max(axis=1).mean() / 64
    assert experts.fullest_load(8.0, 1.0, 64.0, 0.0) == pytest.approx(thrown, rel=0.01)


def test_spread_costs_more_the_more_ranks_share_experts() -> None:
    def of(ep: int, **ask: Any) -> float:
        rows = plans.rows(16, {"ep": ep, "dp": 16})
        estimates = evaluate(plan(**ask), rows)
        assert estimates.memory.device[0] >= evaluate(plan(), rows).memory.device[0]
        return float(estimates.time.seconds[0] / evaluate(plan(), rows).time.seconds[0])

    assert 1 < of(2, expert_spread=0.5) < of(16, expert_spread=0.5)
    assert of(16, expert_spread=0.5, capacity_factor=1.1) == pytest.approx(of(16, expert_load=1.1))
    given = {"model": "deepseek-v2-lite", "gpu": "h100", "gpus": 8, "ep": 8}
    with pytest.raises(PlanError, match="give one"):
        api.estimate(api.read_options({**given, "expert_load": 1.2, "expert_spread": 0.2}))


def test_buffered_tokens_are_unpacked_once_for_a_rank_and_sorted_ones_for_every_expert() -> None:
    # four experts of a token on 16 ranks are on 3.641 of them: 4 bytes each way for each; the
    # all-to-all sorts every copy, 8 bytes
    def sorted_bytes(name: str, ep: float) -> float:
        planned = plan(dispatcher=name)
        columns = dict.fromkeys(("tp", "cp", "micro_batch", "sequence_parallel"), np.ones(1))
        shape = local_shape(planned, ep=np.array([ep]), **columns)
        assert planned.model.routed is not None
        return float(dispatch.sorted_bytes(shape, machine(planned), planned.model.routed)[0])

    assert sorted_bytes("alltoall", 16) == 8
    assert sorted_bytes("deepep", 16) == pytest.approx(4 * 3.641 / 4, rel=1e-3)
    assert sorted_bytes("hybridep", 2) < sorted_bytes("hybridep", 16)


def test_tokens_arrive_in_buffers() -> None:
    rows = plans.rows(16, {"ep": 16, "dp": 16})
    plain = evaluate(plan(), rows).memory.device[0]
    buffered = evaluate(plan(dispatcher="hybridep"), rows).memory.device[0]
    # 2048 tokens of each of 16 ranks, 512 x 2 B
    assert buffered - plain == pytest.approx(2048 * 16 * 512 * 2, rel=0.3)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"etp": 2}, "--etp"),
        ({"dispatcher": "deepep"}, "--dispatcher"),
        ({"expert_load": 2.0}, "--expert-load"),
    ],
)
def test_dense_models_have_no_experts(given: dict[str, Any], field: str) -> None:
    with pytest.raises(PlanError) as error:
        api.estimate(api.read_options({"model": "gpt2", "gpu": "h100", "gpus": 8, **given}))
    assert error.value.field == field
