"""Laws that whole estimates obey, whatever the model, the software or the layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_plans import (
    EXPERT_LAYOUTS,
    GPUS,
    LAYOUTS,
    PLANS,
    SHAPES,
    STACKS,
    estimates_of,
    plan,
    table,
)

from planner.estimate import evaluate
from planner.estimate.machine import Machine
from planner.ledger import Call, recording
from planner.specs.columns import Columns
from planner.specs.plan import Plan


@pytest.mark.parametrize(("software", "shape"), PLANS)
def test_one_row_equals_many_rows(software: str, shape: str) -> None:
    planned, rows = plan(software, shape), table(shape)
    many = evaluate(planned, rows)
    for row in range(len(rows)):
        alone = evaluate(planned, rows.pick(np.array([row])))
        size = float(many.time.seconds[row])
        assert alone.time.seconds[0] == pytest.approx(size, rel=1e-12)
        for ledger, single in (
            (many.time.components, alone.time.components),
            (many.time.hidden, alone.time.hidden),
        ):
            for name, leaf in ledger.items():  # a dimension that no row uses has no leaf
                assert np.asarray(single.get(name, [0.0]))[0] == pytest.approx(
                    leaf[row], rel=1e-12, abs=1e-12 * size
                ), name
        assert alone.memory.peak[0] == pytest.approx(many.memory.peak[row], rel=1e-12)
        for name, leaf in many.memory.components.items():
            assert alone.memory.components[name][0] == pytest.approx(leaf[row], rel=1e-12), name
        assert alone.memory.host[0] == pytest.approx(many.memory.host[row], rel=1e-12)
        assert bool(alone.fits[0]) == bool(many.fits[row])


@pytest.mark.parametrize(("software", "shape"), PLANS)
def test_parts_add_up_and_nothing_is_negative(software: str, shape: str) -> None:
    estimates = evaluate(plan(software, shape), table(shape))
    time, memory = estimates.time, estimates.memory
    assert np.isfinite(time.seconds).all()
    assert np.isfinite(memory.device).all()
    assert sum(time.components.values()) == pytest.approx(time.seconds, rel=1e-12)
    assert sum(memory.components.values()) == pytest.approx(memory.peak, rel=1e-12)
    for name, leaf in (
        *time.components.items(),
        *time.hidden.items(),
        *memory.components.items(),
        *time.detail.items(),
    ):
        assert (leaf >= -1e-12 * time.seconds).all(), name
    assert (memory.device >= memory.reserved).all()
    assert (memory.reserved >= memory.peak).all()
    assert memory.stage_peaks.max(axis=0) == pytest.approx(memory.peak, rel=1e-9)


@pytest.mark.parametrize(("software", "shape"), PLANS)
def test_hidden_and_exposed_make_up_all_communication(software: str, shape: str) -> None:
    time = evaluate(plan(software, shape), table(shape)).time
    both: dict[str, Any] = {}
    for kind in time.traffic:
        assert (kind.exposed >= 0).all(), kind.what
        assert (kind.exposed <= kind.seconds * (1 + 1e-12)).all(), kind.what
        assert ((kind.count > 0) | (kind.seconds == 0)).all(), kind.what
        both[kind.component] = both.get(kind.component, 0.0) + kind.seconds
    for name, hidden in time.hidden.items():
        assert (hidden <= both[name] * (1 + 1e-12)).all(), name


@pytest.mark.parametrize(("software", "shape"), PLANS)
def test_all_stages_equal_representative_stages(software: str, shape: str) -> None:
    planned, rows = plan(software, shape), table(shape)
    for row in range(len(rows)):
        single = rows.pick(np.array([row]))
        every = evaluate(planned, single, stages=np.arange(single.pp[0])[:, None]).memory
        assert every.peak[0] == pytest.approx(
            evaluate(planned, single).memory.peak[0], rel=1e-12
        ), rows.layout(row)


def test_explaining_changes_nothing() -> None:
    planned, rows = plan(shape="experts"), table("experts")
    silent = evaluate(planned, rows)
    with recording() as tree:
        explained = evaluate(planned, rows)
    assert explained.time.seconds.tolist() == silent.time.seconds.tolist()
    assert explained.memory.peak.tolist() == silent.memory.peak.tolist()

    def names(call: Call) -> set[str]:
        return {call.formula.name}.union(*(names(inner) for inner in call.calls))

    assert [call.formula.name for call in tree.calls] == ["step time", "memory"]
    assert {
        "gemm_s",
        "ring_intra_s",
        "ring_inter_s",
        "pipeline_s",
        "optimizer_step_s",
        "state_bytes",
        "reserved_bytes",
    } <= names(tree)


def test_a_layout_survives_the_table() -> None:
    layouts = [plans.layout(GPUS, **chosen) for chosen in (*LAYOUTS, *EXPERT_LAYOUTS)]
    rows = Columns.of(layouts)
    assert [rows.layout(row) for row in range(len(layouts))] == layouts


@pytest.mark.parametrize("software", STACKS)
def test_without_tensor_parallelism_there_is_no_time_for_it(software: str) -> None:
    rows = table("dense")
    time = evaluate(plan(software), rows).time
    alone = rows.tp == 1
    assert (time.components["tensor_parallel"][alone] == 0).all()
    assert (time.components["tensor_parallel"][~alone] > 0).all()
    for kind in time.traffic:
        if kind.group == "tensor":
            assert (kind.count[alone] == 0).all()
    assert (time.components["bubble"][rows.pp == 1] == 0).all()
    assert (time.components["pipeline_transfer"][rows.pp == 1] == 0).all()


def test_sequence_parallelism_shares_norms_and_residuals() -> None:
    rows = plans.rows(GPUS, {"tp": 4}, {"tp": 4, "sequence_parallel": True})
    plain, shared = evaluate(plan(seq_len=8192), rows).time.components["memory_bound"]
    assert shared < 0.7 * plain


def test_one_gpu_communicates_with_nobody() -> None:
    planned = plan(gpus=1)
    for chosen in ({}, {"zero": 1}, {"zero": 3, "recompute": "full"}):
        result = estimates_of(planned, **chosen)
        assert sum(kind.seconds[0] for kind in result.time.traffic) == 0
        assert result.time.components["data_parallel"][0] == 0
        assert result.memory.communicators[0] == 0


_COMMUNICATION = (
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "pipeline_transfer",
)


@pytest.mark.parametrize(("software", "shape"), PLANS)
def test_free_links_leave_only_latency(software: str, shape: str) -> None:
    planned, rows = plan(software, shape), table(shape)
    usual = evaluate(planned, rows).time
    latency = evaluate(planned, rows, numbers=plans.numbers(planned, **plans.FREE_LINKS)).time
    nothing = evaluate(
        planned, rows, numbers=plans.numbers(planned, **plans.FREE_LINKS, **plans.NO_LATENCY)
    ).time
    for name in _COMMUNICATION:
        if name not in usual.components:
            continue
        assert (latency.components[name] <= usual.components[name] * (1 + 1e-12)).all(), name
        assert nothing.components[name] == pytest.approx(0.0, abs=1e-15), name
        assert nothing.hidden.get(name, np.zeros(1)) == pytest.approx(0.0, abs=1e-15), name
    # what is left of latency counts messages, not bytes: a layer four times as wide sends as many
    wide = plans.plan(
        SHAPES[shape].model_copy(update={"hidden": 2048}), gpus=GPUS, software=software
    )
    wider = evaluate(wide, rows, numbers=plans.numbers(wide, **plans.FREE_LINKS))
    tensor = rows.tp > 1
    factor = (
        wider.time.components["tensor_parallel"][tensor]
        / latency.components["tensor_parallel"][tensor]
    )
    assert factor == pytest.approx(1.0)
    # compute does not know about links
    assert nothing.components["matmul"].tolist() == usual.components["matmul"].tolist()


FASTER = (
    "memory_bandwidth",
    "matmul",
    "sustained_clock",
    "gemm_efficiency",
    "attention_forward",
    "attention_backward",
    "nic_per_gpu",
    "intra_bandwidth",
    "host_bandwidth",
    "elementwise_frac",
    "inter_all_reduce",
    "intra_send",
    "host_update",
)


def speed_up(plan: Plan, rows: Columns, factor: float) -> np.ndarray:
    """Step time with one number of the machine raised by `factor`, over step time as it is: shape
    (numbers, rows)."""
    base, count = plans.numbers(plan), len(rows)
    columns: dict[str, Any] = {
        name: np.full((len(FASTER) + 1) * count, float(getattr(base, name)))
        for name in base.names()
    }
    for place, name in enumerate(FASTER, start=1):
        for field in ("dense_rate", "wide_rate") if name == "matmul" else (name,):
            columns[field][place * count : (place + 1) * count] *= factor
    many = rows.each(lambda column: np.tile(column, len(FASTER) + 1))
    seconds = evaluate(plan, many, numbers=Machine(**columns)).time.seconds.reshape(-1, count)
    assert seconds[0] == pytest.approx(
        evaluate(plan, rows).time.seconds, rel=1e-12
    )  # a machine per row is the same machine
    return seconds[1:] / seconds[0]


@pytest.mark.parametrize(("software", "shape"), PLANS)
@settings(max_examples=8, deadline=None)
@given(factor=st.floats(1.0, 20.0))
def test_faster_hardware_never_slows_a_step(software: str, shape: str, factor: float) -> None:
    rows = table(shape)
    ratio = speed_up(plan(software, shape), rows.pick(np.flatnonzero(rows.cp == 1)), factor)
    for name, each in zip(FASTER, ratio, strict=True):
        assert (each <= 1 + 1e-9).all(), name
    for name in ("memory_bandwidth", "matmul"):
        assert factor < 1.01 or (ratio[FASTER.index(name)] < 1).any()


def test_faster_hardware_never_slows_context_parallelism() -> None:
    assert (speed_up(plan(), plans.rows(GPUS, {"cp": 2, "tp": 2}), 2.0) <= 1 + 1e-9).all()


def test_a_slower_network_is_felt_only_across_nodes() -> None:
    for gpus, felt in ((8, False), (16, True)):
        planned = plan(gpus=gpus)
        slow = plans.numbers(planned, nic_per_gpu=1e9)
        rows = plans.rows(gpus, {"zero": 1}, {"tp": 2, "pp": 2})
        ratio = (
            evaluate(planned, rows, numbers=slow).time.seconds
            / evaluate(planned, rows).time.seconds
        )
        assert ((ratio > 1.001) == felt).all()


@pytest.mark.parametrize(
    "chosen",
    [
        {"pp": 4},
        {"pp": 4, "schedule": "gpipe"},
        {"pp": 4, "vpp": 2, "schedule": "interleaved"},
        {"pp": 2, "tp": 2},
    ],
)
def test_more_microbatches_lower_the_share_of_the_bubble(chosen: dict[str, Any]) -> None:
    shares = []
    for batch in (16, 32, 64, 128, 512):
        time = estimates_of(plan(global_batch=batch), **chosen).time
        shares.append(float(time.components["bubble"][0] / time.seconds[0]))
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 2 * shares[-1] > 0


def test_virtual_stages_shrink_the_bubble_and_zero_bubble_more() -> None:
    rows = plans.rows(
        GPUS,
        {"pp": 4},
        {"pp": 4, "vpp": 2, "schedule": "interleaved"},
        {"pp": 4, "schedule": "zb-1p"},
        {"pp": 4, "schedule": "zb-2p"},
    )
    bubble = evaluate(plan(), rows).time.components["bubble"]
    assert bubble[1] == pytest.approx(bubble[0] / 2)
    assert (
        0 < bubble[2] < bubble[0]
    )  # F + I - W instead of F + I + W; W is small in a model that waits for its launches
    assert bubble[3] == 0


@given(
    layers=st.integers(1, 40),
    pp=st.sampled_from([2, 4, 8]),
    software=st.sampled_from(["nanotron", "megatron-core"]),
)
def test_every_layer_is_on_a_stage(layers: int, pp: int, software: str) -> None:
    result = estimates_of(plans.plan(plans.model(layers=layers), gpus=8, software=software), pp=pp)
    most, last = float(result.time.stage_layers[0]), float(result.time.last_layers[0])
    kept = (pp - 1) * most + last
    assert kept >= layers - 1e-9
    assert kept < layers + pp  # rounding up leaves a layer too many per stage at most
