"""Laws that whole estimates obey, whatever the model, the software or the layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.estimate import Estimates, evaluate
from planner.estimate.layer import padded_vocab
from planner.estimate.machine import Machine
from planner.estimate.memory import state_ledger
from planner.formulas.params import parameter_count
from planner.formulas.rules import check
from planner.inputs import catalog
from planner.ledger import Call, recording
from planner.specs.columns import Columns
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

GPUS = 16
STACKS = catalog.ids("stacks")
PERSISTENT = [name for name in STACKS if plans.stack(name).state.persistent_gradients]

SHAPES: dict[str, ModelSpec] = {
    "dense": plans.model(),
    "experts": plans.expert_model(),
    "gpt": plans.model(
        mlp="plain",
        activation="gelu",
        norm="layernorm",
        positions="learned",
        dropout=True,
        tied_embeddings=True,
        bias_qkv=True,
        bias_mlp=True,
        vocab=5000,
    ),
    "grouped": plans.model(kv_heads=2, attention_window=256, window_every=2),
}

# layouts of 16 GPUs in two nodes that use every dimension at least once
LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"zero": 1, "recompute": "selective", "micro_batch": 2},
    {"zero": 2},
    {"zero": 3, "recompute": "full"},
    {"zero": 3, "shard_group": 8},
    {"tp": 2},
    {"tp": 4, "sequence_parallel": True, "zero": 1},
    {"tp": 2, "pp": 2, "micro_batch": 2},
    {"pp": 4, "zero": 1, "recompute": "block:1"},
    {"pp": 4, "schedule": "gpipe", "recompute": "group:2"},
    {"pp": 4, "vpp": 2, "schedule": "interleaved", "zero": 1},
    {"pp": 2, "schedule": "zb-1p"},
    {"pp": 2, "schedule": "zb-2p"},
    {"pp": 2, "schedule": "dualpipe", "tp": 2},
    {"cp": 2, "tp": 2, "sequence_parallel": True},
    {"tp": 8, "pp": 2, "sequence_parallel": True},
    {"zero": 3, "offload": "params"},
    {"zero": 1, "offload": "optimizer"},
    {"zero": 1, "micro_batch": 2, "offload": "activations"},
)
EXPERT_LAYOUTS: tuple[dict[str, Any], ...] = (
    {"ep": 8, "zero": 1},
    {"ep": 2, "tp": 2, "pp": 2},
    {"ep": 4, "zero": 3, "cp": 2},
)

PLANS = [
    ("megatron-core", "dense"),
    ("megatron-core", "experts"),
    ("torchtitan", "experts"),
    ("torchtitan", "gpt"),
    ("deepspeed", "grouped"),
    ("pytorch-ddp", "gpt"),
    ("nanotron", "dense"),
    ("hai-llm", "experts"),
]

SOFTWARE = st.sampled_from(STACKS)
SHAPE = st.sampled_from(sorted(SHAPES))


def table(shape: str) -> Columns:
    return plans.rows(GPUS, *LAYOUTS, *(EXPERT_LAYOUTS if shape == "experts" else ()))


def plan(software: str = "megatron-core", shape: str = "dense", **others: Any) -> Plan:
    return plans.plan(SHAPES[shape], software=software, **({"gpus": GPUS} | others))


def one(of: Plan, **chosen: Any) -> Estimates:
    return evaluate(of, plans.rows(of.cluster.gpus, chosen))


def seconds(of: Plan, **chosen: Any) -> float:
    return float(one(of, **chosen).time.seconds[0])


# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("software", "shape"), PLANS)
def test_one_row_equals_many_rows(software: str, shape: str) -> None:
    of, rows = plan(software, shape), table(shape)
    many = evaluate(of, rows)
    for row in range(len(rows)):
        alone = evaluate(of, rows.pick(np.array([row])))
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
    found = evaluate(plan(software, shape), table(shape))
    time, memory = found.time, found.memory
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
    of, rows = plan(software, shape), table(shape)
    for row in range(len(rows)):
        single = rows.pick(np.array([row]))
        every = evaluate(of, single, stages=np.arange(single.pp[0])[:, None]).memory
        assert every.peak[0] == pytest.approx(evaluate(of, single).memory.peak[0], rel=1e-12), (
            rows.layout(row)
        )


def test_explaining_changes_nothing() -> None:
    of, rows = plan(shape="experts"), table("experts")
    silent = evaluate(of, rows)
    with recording() as tree:
        explained = evaluate(of, rows)
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


# -------------------------------------------------------------------------------------------------


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
    of = plan(gpus=1)
    for chosen in ({}, {"zero": 1}, {"zero": 3, "recompute": "full"}):
        found = one(of, **chosen)
        assert sum(kind.seconds[0] for kind in found.time.traffic) == 0
        assert found.time.components["data_parallel"][0] == 0
        assert found.memory.communicators[0] == 0


_COMMUNICATION = (
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "pipeline_transfer",
)


@pytest.mark.parametrize(("software", "shape"), PLANS)
def test_free_links_leave_only_latency(software: str, shape: str) -> None:
    of, rows = plan(software, shape), table(shape)
    usual = evaluate(of, rows).time
    latency = evaluate(of, rows, numbers=plans.numbers(of, **plans.FREE_LINKS)).time
    nothing = evaluate(
        of, rows, numbers=plans.numbers(of, **plans.FREE_LINKS, **plans.NO_LATENCY)
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
    "cpu_adam",
)


def speed_up(of: Plan, rows: Columns, factor: float) -> np.ndarray:
    """Step time with one number of the machine raised by `factor`, over step time as it is: shape
    (numbers, rows)."""
    base, count = plans.numbers(of), len(rows)
    columns = {
        name: np.full((len(FASTER) + 1) * count, float(getattr(base, name)))
        for name in base.names()
    }
    for place, name in enumerate(FASTER, start=1):
        for field in ("dense_rate", "wide_rate") if name == "matmul" else (name,):
            columns[field][place * count : (place + 1) * count] *= factor
    many = rows.each(lambda column: np.tile(column, len(FASTER) + 1))
    seconds = evaluate(of, many, numbers=Machine(**columns)).time.seconds.reshape(-1, count)
    assert seconds[0] == pytest.approx(
        evaluate(of, rows).time.seconds, rel=1e-12
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
        of = plan(gpus=gpus)
        slow = plans.numbers(of, nic_per_gpu=1e9)
        rows = plans.rows(gpus, {"zero": 1}, {"tp": 2, "pp": 2})
        ratio = evaluate(of, rows, numbers=slow).time.seconds / evaluate(of, rows).time.seconds
        assert ((ratio > 1.001) == felt).all()


# --------------------------------------------------------------------------------------------------


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
        time = one(plan(global_batch=batch), **chosen).time
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
    found = one(plans.plan(plans.model(layers=layers), gpus=8, software=software), pp=pp)
    most, last = float(found.time.stage_layers[0]), float(found.time.last_layers[0])
    held = (pp - 1) * most + last
    assert held >= layers - 1e-9
    assert held < layers + pp  # rounding up leaves a layer too many per stage at most


# --------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(software=st.sampled_from(PERSISTENT), gpus=st.sampled_from([2, 4, 8, 16, 64]), shape=SHAPE)
def test_shards_never_raise_the_bytes_of_a_state(software: str, gpus: int, shape: str) -> None:
    found = evaluate(
        plan(software, shape, gpus=gpus),
        plans.rows(gpus, *({"zero": zero} for zero in (0, 1, 2, 3))),
    )
    for name in ("parameters", "gradients", "optimizer"):
        assert (np.diff(found.memory.components[name]) <= 0).all(), name
    groups = [group for group in (1, 2, 4, 8, 16, 32, 64) if group <= gpus]
    hybrid = evaluate(
        plan(software, shape, gpus=gpus),
        plans.rows(gpus, *({"zero": 3, "shard_group": group} for group in groups)),
    )
    for name in ("parameters", "gradients", "optimizer"):
        assert (np.diff(hybrid.memory.components[name]) <= 0).all(), name


@pytest.mark.parametrize("shape", SHAPES)
def test_stages_together_hold_the_model_once(shape: str) -> None:
    of = plan("deepspeed", shape)
    whole = evaluate(of, plans.rows(GPUS, {})).memory.components["parameters"][0]
    assert whole == 2 * parameter_count(SHAPES[shape])
    staged = evaluate(
        of, plans.rows(GPUS, {"pp": 4}), stages=np.arange(4.0)[:, None]
    ).memory.stage_components
    copy = (
        SHAPES[shape].vocab * 512 if SHAPES[shape].tied_embeddings else 0
    )  # a tied head is a copy on the last stage
    assert sum(stage["parameters"][0] for stage in staged) == pytest.approx(whole + 2 * copy)


def test_virtual_stages_keep_more_activations() -> None:
    # of eight layers on four stages, 1F1B keeps 4 x 2 on the first, two virtual stages (1 + 3/8) x
    # 8 = 11
    rows = plans.rows(GPUS, {"pp": 4}, {"pp": 4, "vpp": 2, "schedule": "interleaved"})
    memory = evaluate(plan(seq_len=8192, global_batch=256), rows).memory
    assert (memory.components["activations"] / memory.layer_bytes).tolist() == pytest.approx(
        [8, 11]
    )
    assert memory.worst_stage.tolist() == [0, 0]


def test_every_dimension_in_use_has_a_communicator() -> None:
    # beside that of all ranks: data parallelism one; tensor parallelism one more, and a stage one
    # with each neighbour
    one_, three = evaluate(plan(), plans.rows(GPUS, {}, {"tp": 2, "pp": 2})).memory.communicators
    assert three == pytest.approx(5 / 2 * one_)
    assert one_ > 0


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("degrees", [{}, {"ep": 2}, {"ep": 8}, {"ep": 4, "cp": 2}])
def test_all_ranks_together_hold_one_copy(degrees: dict[str, int], zero: int) -> None:
    # experts have fewer replicas than the rest of the model, and each is sharded over its own
    memory = one(plan("deepspeed", "experts"), zero=zero, **degrees).memory
    elements = parameter_count(SHAPES["experts"])
    for name, level, size in (("optimizer", 1, 12), ("gradients", 2, 2), ("parameters", 3, 2)):
        if zero >= level:
            assert GPUS * memory.components[name][0] == pytest.approx(size * elements), name


@pytest.mark.parametrize("software", ["deepspeed", "torchtitan", "llmq"])
def test_what_is_offloaded_is_in_host_memory(software: str) -> None:
    of = plan(software, "gpt")
    rows = plans.rows(
        GPUS, *({"zero": 3, "offload": where} for where in ("none", "optimizer", "params"))
    )
    none, optimizer, params = (evaluate(of, rows.pick(np.array([row]))).memory for row in range(3))
    assert none.host[0] == 0
    assert optimizer.host[0] >= none.components["optimizer"][0]
    assert (
        optimizer.components["optimizer"][0]
        == params.components["optimizer"][0]
        == params.components["parameters"][0]
        == 0
    )
    assert params.host[0] - optimizer.host[0] == pytest.approx(none.components["parameters"][0])
    assert params.peak[0] < optimizer.peak[0] < none.peak[0]


def test_host_memory_is_that_of_the_fullest_stage() -> None:
    of = plan("nemo", "gpt")
    rows = plans.rows(GPUS, {"pp": 2, "zero": 1, "offload": "optimizer"})
    every, first, last = (
        evaluate(of, rows, stages=np.array(s)[:, None]).memory.host[0]
        for s in ([0.0, 1.0], [0.0], [1.0])
    )
    assert first > last  # embedding and positions outweigh the head
    assert every == first


@pytest.mark.parametrize(("software", "shape"), PLANS)
def test_tensor_pipeline_and_context_parallelism_never_raise_the_peak(
    software: str, shape: str
) -> None:
    # with as many replicas, each running as many micro-batches, as without
    for degree in ("tp", "pp", "cp"):
        for zero in (0, 1):
            peaks = [
                float(
                    one(
                        plan(software, shape, gpus=8 * n), **{degree: n, "zero": zero, "dp": 8}
                    ).memory.peak[0]
                )
                for n in (1, 2, 4)
            ]
            if degree == "tp":
                with_sequence = float(
                    one(
                        plan(software, shape, gpus=16), tp=2, zero=zero, sequence_parallel=True
                    ).memory.peak[0]
                )
                assert with_sequence <= peaks[1]
            assert peaks == sorted(peaks, reverse=True), degree


@settings(max_examples=60, deadline=None)
@given(
    software=SOFTWARE,
    shape=SHAPE,
    recompute=st.sampled_from(["none", "full"]),
    nodes=st.integers(0, 4),
)
def test_more_gpus_never_raise_memory_under_zero_3(
    software: str, shape: str, recompute: str, nodes: int
) -> None:
    def needed(gpus: int) -> float:
        return float(
            one(
                plan(software, shape, gpus=gpus, global_batch=1024), zero=3, recompute=recompute
            ).memory.device[0]
        )

    assert needed(4 * 2**nodes) < needed(2 * 2**nodes)


@pytest.mark.parametrize("software", STACKS)
@pytest.mark.parametrize("shape", ["dense", "experts"])
def test_recompute_trades_time_for_memory(software: str, shape: str) -> None:
    # sequences long enough that activations, not gradients, set the peak
    of = plan(software, shape, seq_len=8192, gpus=8, global_batch=8)
    for pp in (1, 2):
        rows = plans.rows(
            8, *({"pp": pp, "recompute": kind} for kind in ("none", "selective", "full"))
        )
        found = evaluate(of, rows)
        none, selective, full = found.time.seconds
        assert none < selective < full
        none, selective, full = found.memory.peak
        assert full < selective <= none
        assert (found.time.repeated_flop > 0).tolist() == [False, True, True]


@settings(max_examples=80, deadline=None)
@given(
    software=SOFTWARE,
    seq=st.integers(1, 64),
    batch=st.sampled_from([8, 32]),
    shape=SHAPE,
    zero=st.integers(0, 3),
)
def test_recompute_never_costs_more_than_the_input_it_keeps(
    software: str, seq: int, batch: int, shape: str, zero: int
) -> None:
    of = plan(software, shape, seq_len=128 * seq, gpus=8, global_batch=batch)
    memory = evaluate(of, plans.rows(8, {"zero": zero}, {"zero": zero, "recompute": "full"})).memory
    assert memory.peak[1] <= (memory.peak[0] + memory.input_bytes[0]) * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(
    software=SOFTWARE, size=st.integers(1, 12), shape=SHAPE, row=st.integers(0, len(LAYOUTS) - 1)
)
def test_memory_grows_with_the_micro_batch_and_the_sequence(
    software: str, size: int, shape: str, row: int
) -> None:
    chosen = LAYOUTS[row]

    def needed(micro: int, seq: int) -> float:  # eight micro-batches a step, whatever their size
        layout = plans.layout(GPUS, **(chosen | {"micro_batch": micro}))
        of = plan(software, shape, seq_len=seq, global_batch=8 * layout.dp * micro)
        return float(evaluate(of, Columns.of([layout])).memory.peak[0])

    here = needed(size, 512)
    assert needed(size + 1, 512) >= here
    assert needed(size, 1024) >= here
    if needed(size, 1024) == here:  # a step bound by its states is not bound by tokens
        assert needed(64 * size, 4096) > here


@given(vocab=st.integers(100, 200000), tp=st.sampled_from([1.0, 2.0, 4.0, 8.0]))
def test_a_vocabulary_is_padded_to_what_shares_it(vocab: int, tp: float) -> None:
    padded = float(padded_vocab(plans.plan(plans.model(vocab=vocab)), np.array([tp]))[0])
    assert padded % (128 * tp) == 0
    assert vocab <= padded < vocab + 128 * tp
    assert (
        float(
            padded_vocab(
                plans.plan(plans.model(vocab=vocab), software="deepspeed"), np.array([tp])
            )[0]
        )
        == vocab
    )


def test_the_padded_vocabulary_of_gpt() -> None:
    # 50257 words become 50304 on one GPU and 51200 on eight, the V of Narayanan et al. 2021 (arXiv
    # 2104.04473)
    padded = padded_vocab(plans.plan(plans.model(vocab=50257)), np.array([1.0, 8.0]))
    assert padded.tolist() == [50304, 51200]


# --------------------------------------------------------------------------------- states of a mode

LLAMA_70B = catalog.load("models", ModelSpec, "llama-2-70b")
ELEMENTS = 68_976_648_192
OF_SIXTEEN = [
    name
    for name in STACKS
    if plans.stack(name).state.parameter == plans.stack(name).state.gradient == 2
    and plans.stack(name).state.master == 4
    and plans.stack(name).vocab_multiple == 1
]


def states(software: str, **training: Any) -> list[float]:
    """Bytes of parameters, gradients and optimizer on each of 8 GPUs without and with ZeRO 1, 2,
    3."""
    of = plans.plan(LLAMA_70B, gpus=8, software=software, seq_len=4096, global_batch=8, **training)
    memory = evaluate(
        of, plans.rows(8, *({"zero": zero, "recompute": "full"} for zero in (0, 1, 2, 3)))
    ).memory
    return sum(
        memory.components[name] for name in ("parameters", "gradients", "optimizer")
    ).tolist()


def test_some_stacks_keep_two_two_and_twelve_bytes() -> None:
    assert "deepspeed" in OF_SIXTEEN


@pytest.mark.parametrize("software", OF_SIXTEEN)
def test_states_of_70_billion_parameters_on_eight_gpus(software: str) -> None:
    # 2 + 2 + 12 B: whole 16; ZeRO-1 4 + 12/8 = 5.5; ZeRO-2 2 + 14/8 = 3.75; ZeRO-3 16/8 = 2 B per
    # parameter, for 70e9 parameters 1120, 385, 262.5 and 140 GB
    per_parameter = [size / ELEMENTS for size in states(software)]
    assert per_parameter == pytest.approx([16, 5.5, 3.75, 2], rel=1e-9)
    assert [size * 70e9 / 1e9 for size in per_parameter] == pytest.approx([1120, 385, 262.5, 140])


def test_states_with_eight_bytes_of_optimizer() -> None:
    # 2 + 2 + 8 B, an Adam whose fp32 master copy is not counted: 840, 350, 227.5 and 105 GB for
    # 70e9 parameters
    sizes = [size / ELEMENTS * 70 for size in states("deepspeed", moment_bytes=4.0)]
    assert sizes == pytest.approx([840, 350, 227.5, 105], rel=1e-9)


@pytest.mark.parametrize("software", PERSISTENT)
def test_states_follow_the_ledger_of_the_stack(software: str) -> None:
    of = plans.plan(plans.model(), gpus=8, software=software)
    per = state_ledger(of)
    found = evaluate(
        of, plans.rows(8, *({"zero": zero} for zero in (0, 1, 2, 3)))
    ).memory.components
    elements = found["parameters"][0] / per["parameters"]
    for name, level in (("parameters", 3), ("gradients", 2), ("optimizer", 1)):
        cut = [8 if zero >= level else 1 for zero in (0, 1, 2, 3)]
        whole = (
            of.stack.state.master if name == "optimizer" and of.stack.state.whole_master else 0.0
        )
        assert found[name].tolist() == pytest.approx(
            [(whole + (per[name] - whole) / parts) * elements for parts in cut]
        )


@pytest.mark.parametrize("software", STACKS)
def test_every_stack_keeps_sixteen_bytes_or_more_with_adam(software: str) -> None:
    # fp32 master copy (or fp32 parameters) and two fp32 moments are 12; parameters and gradients to
    # compute with add 4
    ledger = state_ledger(plans.plan(software=software))
    assert 14 <= sum(ledger.values()) <= 20
    assert sum(state_ledger(plans.plan(software=software, precision="fp32")).values()) == 16
    assert (
        state_ledger(plans.plan(software=software, optimizer="sgd"))["optimizer"]
        == ledger["optimizer"] - 8
    )


def test_a_parallel_block_exchanges_once_where_two_blocks_exchange_twice() -> None:
    def spent(parallel: bool) -> float:
        of = plans.plan(plans.model(parallel_block=parallel))
        time = evaluate(of, plans.rows(8, {"tp": 4})).time
        return sum(float(t.seconds[0]) for t in time.traffic if t.group == "tensor")

    assert spent(True) == pytest.approx(spent(False) / 2, rel=1e-12)


def test_parameters_are_offloaded_only_where_they_are_sharded() -> None:
    of = plans.plan(software="deepspeed")
    rows = plans.rows(
        8,
        {"zero": 1, "offload": "params"},
        {"zero": 3, "offload": "params"},
        {"zero": 1, "offload": "optimizer"},
    )
    assert check(of, rows)["offloaded parameters need ZeRO-3"].tolist() == [False, True, True]
