"""Laws of memory that whole estimates obey: states, shards, activations, and what recompute and
offload trade."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_plans import (
    GPUS,
    LAYOUTS,
    PERSISTENT,
    PLANS,
    SHAPE,
    SHAPES,
    SOFTWARE,
    STACKS,
    estimates_of,
    plan,
)

from planner.estimate import Estimates, evaluate
from planner.estimate.layer import padded_vocab
from planner.estimate.memory import state_ledger
from planner.formulas.params import parameter_count
from planner.formulas.rules import check
from planner.inputs import catalog
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.model import ModelSpec


def most_of(estimates: Estimates, name: str) -> Array:
    """Bytes of a component in the phase that has most of it."""
    phases = [phase[name] for stage in estimates.memory.timeline for phase in stage]
    largest: Array = np.max(phases, axis=0)
    return largest


def at_step(estimates: Estimates, name: str) -> Array:
    """Bytes of a component while the optimizer steps, of the stage that has most of it."""
    largest: Array = np.max([stage[-1][name] for stage in estimates.memory.timeline], axis=0)
    return largest


@settings(max_examples=40, deadline=None)
@given(software=st.sampled_from(PERSISTENT), gpus=st.sampled_from([2, 4, 8, 16, 64]), shape=SHAPE)
def test_shards_never_raise_the_bytes_of_a_state(software: str, gpus: int, shape: str) -> None:
    estimates = evaluate(
        plan(software, shape, gpus=gpus),
        plans.rows(gpus, *({"zero": zero} for zero in (0, 1, 2, 3))),
    )
    for name in ("parameters", "optimizer"):
        assert (np.diff(most_of(estimates, name)) <= 0).all(), name
    # before the step the gradient of a tied head waits beside a buffer, which ZeRO-3 alone keeps
    assert (np.diff(at_step(estimates, "gradients")) <= 0).all()
    groups = [group for group in (1, 2, 4, 8, 16, 32, 64) if group <= gpus]
    hybrid = evaluate(
        plan(software, shape, gpus=gpus),
        plans.rows(gpus, *({"zero": 3, "shard_group": group} for group in groups)),
    )
    for name in ("parameters", "gradients", "optimizer"):
        assert (np.diff(hybrid.memory.components[name]) <= 0).all(), name


@pytest.mark.parametrize("shape", SHAPES)
def test_stages_together_hold_the_model_once(shape: str) -> None:
    planned = plan("deepspeed", shape)
    whole = evaluate(planned, plans.rows(GPUS, {})).memory.components["parameters"][0]
    assert whole == 2 * parameter_count(SHAPES[shape])
    staged = evaluate(
        planned, plans.rows(GPUS, {"pp": 4}), stages=np.arange(4.0)[:, None]
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
    # beside the group of all ranks: data parallelism one; tensor parallelism one more, and a stage
    # one with each neighbour
    single, three = evaluate(plan(), plans.rows(GPUS, {}, {"tp": 2, "pp": 2})).memory.communicators
    assert three == pytest.approx(5 / 2 * single)
    assert single > 0


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("degrees", [{}, {"ep": 2}, {"ep": 8}, {"ep": 4, "cp": 2}])
def test_all_ranks_together_hold_one_copy(degrees: dict[str, int], zero: int) -> None:
    # experts have fewer replicas than the rest of the model, and each is sharded over its own
    memory = estimates_of(plan("deepspeed", "experts"), zero=zero, **degrees).memory
    elements = parameter_count(SHAPES["experts"])
    for name, level, size in (("optimizer", 1, 12), ("gradients", 2, 2), ("parameters", 3, 2)):
        if zero >= level:
            assert GPUS * memory.components[name][0] == pytest.approx(size * elements), name


@pytest.mark.parametrize("software", ["deepspeed", "torchtitan", "llmq"])
def test_what_is_offloaded_is_in_host_memory(software: str) -> None:
    planned = plan(software, "gpt")
    rows = plans.rows(
        GPUS, *({"zero": 3, "offload": where} for where in ("none", "optimizer", "params"))
    )
    none, optimizer, params = (
        evaluate(planned, rows.pick(np.array([row]))).memory for row in range(3)
    )
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
    planned = plan("nemo", "gpt")
    rows = plans.rows(GPUS, {"pp": 2, "zero": 1, "offload": "optimizer"})
    every, first, last = (
        evaluate(planned, rows, stages=np.array(s)[:, None]).memory.host[0]
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
                    estimates_of(
                        plan(software, shape, gpus=8 * n), **{degree: n, "zero": zero, "dp": 8}
                    ).memory.peak[0]
                )
                for n in (1, 2, 4)
            ]
            if degree == "tp":
                with_sequence = float(
                    estimates_of(
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
            estimates_of(
                plan(software, shape, gpus=gpus, global_batch=1024), zero=3, recompute=recompute
            ).memory.device[0]
        )

    # whole tensors are dealt to ranks: more than there are tensors share nothing more
    assert needed(4 * 2**nodes) <= needed(2 * 2**nodes)


@pytest.mark.parametrize("software", STACKS)
@pytest.mark.parametrize("shape", ["dense", "experts"])
def test_recompute_trades_time_for_memory(software: str, shape: str) -> None:
    # sequences long enough that activations, not gradients, set the peak
    planned = plan(software, shape, seq_len=8192, gpus=8, global_batch=8)
    for pp in (1, 2):
        rows = plans.rows(
            8, *({"pp": pp, "recompute": kind} for kind in ("none", "selective", "full"))
        )
        estimates = evaluate(planned, rows)
        none, selective, full = estimates.time.seconds
        assert none < selective < full
        none, selective, full = estimates.memory.peak
        assert full < selective <= none
        assert (estimates.time.repeated_flop > 0).tolist() == [False, True, True]


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
    planned = plan(software, shape, seq_len=128 * seq, gpus=8, global_batch=batch)
    memory = evaluate(
        planned, plans.rows(8, {"zero": zero}, {"zero": zero, "recompute": "full"})
    ).memory
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
        planned = plan(software, shape, seq_len=seq, global_batch=8 * layout.dp * micro)
        return float(evaluate(planned, Columns.of([layout])).memory.peak[0])

    here = needed(size, 512)
    # Megatron's fused softmax takes fours of attention matrices, and keeps less than torch's
    assert needed(size + 4, 512) >= here
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
    plan = plans.plan(
        LLAMA_70B, gpus=8, software=software, seq_len=4096, global_batch=8, **training
    )
    memory = evaluate(
        plan, plans.rows(8, *({"zero": zero, "recompute": "full"} for zero in (0, 1, 2, 3)))
    ).memory
    return sum(
        memory.components[name] for name in ("parameters", "gradients", "optimizer")
    ).tolist()


def test_some_stacks_keep_two_two_and_twelve_bytes() -> None:
    assert "deepspeed" in OF_SIXTEEN


@pytest.mark.parametrize("software", OF_SIXTEEN)
def test_states_of_70_billion_parameters_on_eight_gpus(software: str) -> None:
    # 2 + 2 + 12 B: whole 16; ZeRO-1 4 + 12/8 = 5.5; ZeRO-2 2 + 14/8 = 3.75; ZeRO-3 16/8 = 2 B per
    # parameter, for 70e9 parameters 1120, 385, 262.5 and 140 GB. Where the last micro-batch of
    # ZeRO-1 reduces into the rank's part, it ends with as much as ZeRO-2
    per_parameter = [size / ELEMENTS for size in states(software)]
    state = plans.plan(plans.model(), gpus=8, software=software).stack.state
    first = 3.75 if state.parts_reduced else 5.5
    assert per_parameter == pytest.approx([16, first, 3.75, 2], rel=1e-9)
    by_size = [1120, 70 * first, 262.5, 140]
    assert [size * 70e9 / 1e9 for size in per_parameter] == pytest.approx(by_size)


def test_states_with_eight_bytes_of_optimizer() -> None:
    # 2 + 2 + 8 B, an Adam whose fp32 master copy is not counted: 840, 350 (227.5 when the last
    # micro-batch has reduced its gradients), 227.5 and 105 GB for 70e9 parameters
    sizes = [size / ELEMENTS * 70 for size in states("deepspeed", moments_precision="bf16")]
    assert sizes == pytest.approx([840, 227.5, 227.5, 105], rel=1e-9)


@pytest.mark.parametrize("software", PERSISTENT)
def test_states_follow_the_ledger_of_the_stack(software: str) -> None:
    plan = plans.plan(plans.model(), gpus=8, software=software)
    per = state_ledger(plan)
    components = evaluate(
        plan, plans.rows(8, *({"zero": zero} for zero in (0, 1, 2, 3)))
    ).memory.components
    elements = components["parameters"][0] / per["parameters"]
    for name, level in (("parameters", 3), ("gradients", 2), ("optimizer", 1)):
        cut = [8 if zero >= level else 1 for zero in (0, 1, 2, 3)]
        whole = (
            plan.stack.state.master
            if name == "optimizer" and plan.stack.state.whole_master
            else 0.0
        )
        assert components[name].tolist() == pytest.approx(
            [(whole + (per[name] - whole) / parts) * elements for parts in cut]
        )


@pytest.mark.parametrize("software", STACKS)
def test_every_stack_keeps_the_bytes_of_adam_with_its_weights(software: str) -> None:
    # fp32 master copy (or fp32 parameters) and two fp32 moments are 12; parameters and gradients to
    # compute with add 4; LLMQ's weights in bf16 are the master weights, and KempnerForge's have
    # moments in bf16, too
    ledger = state_ledger(plans.plan(software=software))
    state = plans.stack(software).state
    moments = 4 if state.narrow_moments else 8
    least = 4 + moments if state.master == 0 and state.parameter == 2 else 14
    assert least <= sum(ledger.values()) <= 20
    assert sum(state_ledger(plans.plan(software=software, precision="fp32")).values()) == 16
    assert (
        state_ledger(plans.plan(software=software, optimizer="sgd"))["optimizer"]
        == ledger["optimizer"] - moments
    )


def test_a_parallel_block_exchanges_once_where_two_blocks_exchange_twice() -> None:
    def spent(parallel: bool) -> float:
        plan = plans.plan(plans.model(parallel_block=parallel))
        time = evaluate(plan, plans.rows(8, {"tp": 4})).time
        return sum(
            float(t.seconds[0])
            for t in time.traffic
            if t.group == "tensor" and t.what == "activations"
        )

    assert spent(True) == pytest.approx(spent(False) / 2, rel=1e-12)


def test_parameters_are_offloaded_only_where_they_are_sharded() -> None:
    plan = plans.plan(software="deepspeed")
    rows = plans.rows(
        8,
        {"zero": 1, "offload": "params"},
        {"zero": 3, "offload": "params"},
        {"zero": 1, "offload": "optimizer"},
    )
    assert check(plan, rows)["offloaded parameters need ZeRO-3"].tolist() == [False, True, True]
