"""Whole layers on pipeline stages, and what single stacks keep: cases worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.estimate import Estimates, evaluate
from planner.estimate.memory import PHASES, best_recompute_group, layer_activations
from planner.estimate.stages import stage_split
from planner.formulas.params import parameter_count
from planner.formulas.stages import contents
from planner.inputs import catalog
from planner.mechanisms.cuda_graphs import CudaGraphs
from planner.specs.layers import memory_kinds
from planner.specs.model import Experts, ModelSpec
from planner.specs.names import GraphScope
from planner.specs.stack import StackSpec
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.scored import predict


def split(software: str, shape: ModelSpec, pp: int, vpp: int = 1) -> list[tuple[float, float]]:
    """(dense, expert) layers of every stage."""
    plan = plans.plan(shape, software=software, gpus=8 * pp)
    table = plans.rows(8 * pp, *[{"pp": pp, "vpp": vpp, "schedule": "interleaved"}] * pp)
    result = stage_split(plan, table, np.arange(float(pp)))
    values = {"mlp": np.zeros(pp), "moe": np.zeros(pp)}
    for kind, counts in zip(memory_kinds(shape).kinds, result.kinds, strict=True):
        values[kind.parts[-1].type] += counts
    return list(zip(values["mlp"].tolist(), values["moe"].tolist(), strict=True))


def layers(software: str, shape: ModelSpec, pp: int) -> list[float]:
    return [dense + moe for dense, moe in split(software, shape, pp)]


def test_embedding_and_head_count_as_layers_where_that_is_even() -> None:
    # Megatron-DeepSpeed's BLOOM: 70 layers on 12 stages are (70 + 2) / 12 = 6, one less at both
    # ends
    assert layers("megatron-deepspeed", catalog.load("models", ModelSpec, "bloom-176b"), 12) == [
        5,
        *[6] * 10,
        5,
    ]
    # Qi et al. 2023 (arXiv 2401.10241), table 4: 22 layers on 8 stages
    assert layers("megatron-core", plans.model(layers=22), 8) == [2, *[3] * 6, 2]
    assert layers("megatron-core", plans.model(layers=24), 8) == [3] * 8


def test_uneven_layers_go_to_the_first_stages() -> None:
    assert layers("megatron-core", plans.model(layers=11), 4) == [3, 3, 3, 2]
    assert layers("deepspeed", plans.model(layers=10), 4) == [3, 3, 2, 2]


def test_nanotron_fills_a_stage_past_its_share_of_the_products() -> None:
    # 28 layers of 4 * 3072^2 + 3 * 8192 * 3072 weights and a head of 131072 * 3072 = 3.56 layers:
    # shares of 31.56 / p
    shape = plans.model(
        layers=28, hidden=3072, heads=32, kv_heads=32, head_dim=96, ffn_hidden=8192, vocab=131072
    )
    assert layers("nanotron", shape, 2) == [16, 12]
    assert layers("nanotron", shape, 4) == [8, 8, 8, 4]
    assert layers("nanotron", shape, 8) == [4] * 7 + [0]
    assert layers("nanotron", shape, 1) == [28]


def test_blocks_are_dealt_out_as_equals() -> None:
    # Aleph Alpha scaling: embedding, 40 layers, norm and head are 43 blocks: 22 and 21, or 11, 11,
    # 11 and 10
    assert layers("scaling-want", plans.model(layers=40), 2) == [21, 19]
    assert layers("scaling-want", plans.model(layers=40), 4) == [10, 11, 11, 8]


def test_dense_layers_come_first() -> None:
    shape = plans.model(moe=Experts(experts=8, experts_per_token=2, ffn_hidden=704, dense_layers=3))
    assert split("megatron-core", shape, 4) == [(2, 0), (1, 1), (0, 2), (0, 2)]
    # two virtual stages of one layer: ranks hold layers 0 and 4, 1 and 5, 2 and 6, 3 and 7
    assert split("megatron-core", shape, 4, 2) == [(1, 1), (1, 1), (1, 1), (0, 2)]
    assert split("megatron-core", shape, 1) == [(3, 5)]


@given(
    software=st.sampled_from(["deepspeed", "megatron-core", "nanotron", "scaling-want"]),
    count=st.integers(1, 96),
    pp=st.integers(1, 16),
    dense=st.integers(0, 6),
    vocab=st.sampled_from([1000, 50000, 250000]),
)
def test_stages_together_have_every_layer_once(
    software: str, count: int, pp: int, dense: int, vocab: int
) -> None:
    dense = min(dense, count)
    experts = Experts(experts=8, experts_per_token=2, ffn_hidden=704, dense_layers=dense)
    result = np.array(split(software, plans.model(layers=count, vocab=vocab, moe=experts), pp))
    assert result.sum(axis=0).tolist() == [dense, count - dense]
    assert (result >= 0).all()


def test_a_stage_of_dense_layers_is_smaller_than_one_of_experts() -> None:
    shape = plans.model(moe=Experts(experts=8, experts_per_token=2, ffn_hidden=704, dense_layers=4))
    plan = plans.plan(shape, software="deepspeed")
    stage_components = evaluate(
        plan, plans.rows(8, {"pp": 2}), stages=np.array([[0.0], [1.0]])
    ).memory.stage_components
    first, last = (float(stage["parameters"][0]) / 2 for stage in stage_components)
    # each of the last four layers has eight experts of 3 * 512 * 704 and a router; a dense one 3 *
    # 512 * 1408
    assert (
        last - first == 4 * (8 * 3 * 512 * 704 + 8 * 512 - 3 * 512 * 1408) + 512
    )  # and the final norm
    assert first + last == parameter_count(shape)


@given(
    software=st.sampled_from(["deepspeed", "megatron-core", "nanotron", "scaling-want"]),
    count=st.integers(4, 64),
    pp=st.sampled_from([2, 4, 8, 16]),
    dense=st.integers(1, 6),
    seq=st.sampled_from([512, 4096]),
)
@example(software="nanotron", count=49, pp=8, dense=3, seq=512)  # the second stage is the worst
def test_the_stages_that_are_looked_at_have_the_worst(
    software: str, count: int, pp: int, dense: int, seq: int
) -> None:
    experts = Experts(
        experts=8, experts_per_token=2, ffn_hidden=704, dense_layers=min(dense, count)
    )
    plan = plans.plan(
        plans.model(layers=count, moe=experts),
        software=software,
        gpus=8 * pp,
        seq_len=seq,
        global_batch=256,
    )
    rows = plans.rows(8 * pp, {"pp": pp})
    every = evaluate(plan, rows, stages=np.arange(float(pp))[:, None]).memory.peak[0]
    assert evaluate(plan, rows).memory.peak[0] == pytest.approx(every, rel=1e-12)


def run(
    software: str,
    shape: ModelSpec | None = None,
    *,
    gpus: int = 8,
    changes: dict[str, object] | None = None,
    training: dict[str, Any] | None = None,
    **layout: object,
) -> Estimates:
    plan = plans.plan(shape, software=software, gpus=gpus, **(training or {}))
    stack: StackSpec = plan.stack
    state = stack.state.model_copy(update=changes or {})
    plan = plan.model_copy(
        update={"stack": stack.model_copy(update={"state": state, "state_fp16": None})}
    )
    return evaluate(plan, plans.rows(gpus, dict(layout)))


def leaf(estimates: Estimates, phase: str, name: str) -> float:
    return float(estimates.memory.timeline[-1][PHASES.index(phase)][name][0])


def test_logits_that_are_gathered_do_not_shrink_with_tensor_parallelism() -> None:
    # 1024 tokens, 4096 words, 14 B
    assert {leaf(run("scaling-want", tp=tp), "loss", "logits") for tp in (1, 4)} == {
        1024 * 4096 * 14.0
    }
    assert leaf(run("megatron-core", tp=4), "loss", "logits") == 1024 * 4096 * 6 / 4


def test_sequence_parallelism_holds_whole_tensors_of_one_product() -> None:
    # 1024 tokens of 512 in 2 B: a gathered input and an output before the scatter; inputs that are
    # kept gathered need no buffer
    whole = 1024 * 512 * 2
    assert (
        leaf(run("megatron-core", tp=2, sequence_parallel=True), "forward", "sequence_buffers")
        == 2 * whole
    )
    assert leaf(run("megatron-core", tp=2), "forward", "sequence_buffers") == 0
    assert (
        leaf(run("scaling-want", tp=2, sequence_parallel=True), "forward", "sequence_buffers")
        == whole
    )


def test_fp8_products_keep_one_byte() -> None:
    # of h = 512 and f = 1408: inputs of two products and of the third lose a byte, the output of
    # attention is kept once more
    wide, narrow = (
        layer_activations(plans.plan(gpu="h100-sxm5-80gb", precision=p), plans.rows(8, {}))
        for p in ("bf16", "fp8")
    )
    saved = {
        name: float(wide[name][0] - narrow[name][0]) / 1024
        for name in wide
        if wide[name][0] != narrow[name][0]
    }
    assert saved == {
        "attention/input": 512,
        "mlp/input": 512,
        "mlp/hidden": 1408,
        "attention/output": -512,
    }


def test_a_relu_keeps_its_output_alone() -> None:
    gelu, relu = (
        layer_activations(plans.plan(plans.model(mlp="plain", activation=a)), plans.rows(8, {}))
        for a in ("gelu", "relu")
    )
    assert float(gelu["mlp/hidden"][0]) == 2 * float(relu["mlp/hidden"][0]) == 1024 * 1408 * 4


def test_gradients_beside_the_buffer() -> None:
    # bf16 gradients of all parameters when backward is over, none in forward; while the first layer
    # is in backward, all but its own and the embedding's
    whole, layer = parameter_count(plans.model()), 4 * 512**2 + 3 * 512 * 1408 + 2 * 512
    answer = run("nanotron", changes={"gradient_copy": 2.0})
    assert leaf(answer, "forward", "gradient_copies") == 0
    later = layer + 4096 * 512
    assert leaf(answer, "end of backward", "gradient_copies") == 2 * (whole - later)
    assert leaf(answer, "gradient synchronisation", "gradient_copies") == 2 * whole
    # placeholders of one layer's weights stay, the head's comes at the loss
    answer = run("megatron-core", tp=2)
    weights = 2 * (4 * 512**2 / 2 + 3 * 512 * 1408 / 2 + 2 * 512)
    assert leaf(answer, "forward", "gradient_copies") == weights
    assert leaf(answer, "loss", "gradient_copies") == weights + 2 * 4096 * 512 / 2


def test_fp16_may_have_states_of_its_own() -> None:
    def gradients(precision: str) -> float:
        plan = plans.plan(software="megatron-deepspeed", precision=precision)
        return float(evaluate(plan, plans.rows(8, {})).memory.components["gradients"][0])

    assert gradients("bf16") == 2 * gradients("fp16") == 4 * (parameter_count(plans.model()))


def test_a_whole_master_copy_is_not_sharded() -> None:
    # DeepSpeed's BF16_Optimizer of early 2022: 4 B of master copy on every rank, 8 B of moments
    # over the replicas, which is what lets BLOOM's layout take 63 GiB where a sharded copy would
    # take 50
    count = parameter_count(plans.model())
    assert leaf(run("bigscience", zero=1), "forward", "optimizer") == count * (4 + 8 / 8)
    # since April 2022 each rank copies only its own part
    assert leaf(run("megatron-deepspeed", zero=1), "forward", "optimizer") == count * 12 / 8
    assert (
        leaf(run("bigscience", zero=1, training={"precision": "fp32"}), "forward", "optimizer")
        == count * 8 / 8
    )


def test_reserved_memory_adds_gaps_to_what_comes_and_goes() -> None:
    answer = run("deepspeed", changes={"optimizer_temporary": 6.0, "flat_temporaries": False})
    memory, slack = answer.memory, float(answer.plan.stack.fragmentation_frac)
    lasting = sum(
        memory.components[name][0]
        for name in ("parameters", "gradients", "optimizer", "communication_buckets", "workspaces")
    )
    assert memory.reserved[0] == pytest.approx(lasting + (1 + slack) * (memory.peak[0] - lasting))
    assert memory.reserved_high[0] == pytest.approx(
        lasting + (1 + 2 * slack) * (memory.peak[0] - lasting)
    )
    # flat buffers of the step find no room among freed activations: they come on top of the passes
    flat = run(
        "deepspeed",
        changes={"optimizer_temporary": 6.0, "flat_temporaries": True},
        training={"seq_len": 65536},
    )
    gaps = run(
        "deepspeed",
        changes={"optimizer_temporary": 6.0, "flat_temporaries": False},
        training={"seq_len": 65536},
    )
    assert flat.memory.peak[0] == gaps.memory.peak[0]
    assert (
        flat.memory.reserved[0] - gaps.memory.reserved[0]
        == 6 * parameter_count(plans.model()) + 2 * 4096 * 512
    )


def test_the_rank_whose_log_is_printed_is_compared() -> None:
    # a head of 131072 words makes the last of two stages the fullest; nanotron's log is from
    # rank 0
    row = {
        "run_id": "r",
        "suite": "small",
        "gpu": "h100-sxm5-80gb",
        "gpus": "8",
        "gpus_per_node": "8",
        "stack": "nanotron",
        "layers": "8",
        "hidden": "1024",
        "heads": "8",
        "vocab": "131072",
        "seq_len": "4096",
        "precision": "bf16",
        "tp": "1",
        "pp": "2",
        "dp": "4",
        "zero": "1",
        "micro_batch": "4",
        "global_batch": "64",
        "recompute": "none",
        "outcome": "ok",
        "memory_kind": "reserved",
        "peak_memory_gib": "20",
    }
    for stack, stage in (("nanotron", 0), ("megatron-core", -1)):
        memory = predict(row | {"stack": stack}).memory
        assert memory.stage_reserved[-1, 0] > 1.4 * memory.stage_reserved[0, 0]
        assert memory.worst_stage[0] == 1
        predicted_peak_gib = validate_rows([row | {"stack": stack}]).rows[0].predicted_peak_gib
        assert predicted_peak_gib == pytest.approx(memory.stage_reserved[stage, 0] / 2**30)


def kept_in(pp: int, vpp: int, recompute: str, layers: int = 80, **more: int) -> dict[str, float]:
    """Activations and working set of the first stage in backward, over the bytes of one input."""
    row = {"pp": pp, "vpp": vpp, "recompute": recompute, **more}
    row["schedule"] = "interleaved" if vpp > 1 else "1f1b"
    plan = plans.plan(
        plans.model(layers=layers), gpus=pp, software="megatron-core", global_batch=64
    )
    memory = evaluate(plan, plans.rows(pp, row), stages=np.zeros((1, 1))).memory
    backward = memory.timeline[0][PHASES.index("backward")]
    parts = ("activations", "recompute_working_set")
    return {part: float(backward[part][0]) / float(memory.input_bytes[0]) for part in parts}


def test_a_recompute_group_ends_with_its_chunk() -> None:
    """Megatron-Core, recompute.py: uniform groups of recompute_num_layers layers of one chunk, the
    last smaller."""
    # README's pipeline: 16 ranks with 5 chunks of a layer: 30 + 64 + 1 chunks are in flight
    whole = kept_in(16, 5, "full")
    assert kept_in(16, 5, "group:2") == whole
    assert whole["activations"] == 2 * 15 + 4 * 16 + 1
    # 16 micro-batches of 5 layers: 5, 3, 2, 2 and 1 input each
    kept = [kept_in(16, 1, f"group:{k}")["activations"] for k in (1, 2, 3, 4, 5, 9)]
    assert kept == [16 * n for n in (5, 3, 2, 2, 1, 1)]
    # the working set is one group, of a chunk at most
    work = [kept_in(16, 1, f"group:{k}")["recompute_working_set"] for k in (1, 3, 5, 9)]
    assert np.diff(work) == pytest.approx([(work[1] - work[0]), (work[1] - work[0]), 0.0])


def test_a_block_is_of_every_chunk() -> None:
    # 5 chunks of 2 layers on 8 ranks: one of each keeps its input, the other all
    none, full = (kept_in(8, 5, name)["activations"] for name in ("none", "full"))
    assert kept_in(8, 5, "block:1")["activations"] == pytest.approx((none + full) / 2)
    assert kept_in(8, 5, "block:2")["activations"] == full


def test_groups_save_memory_and_never_time() -> None:
    plan = plans.plan(plans.model(layers=16), gpus=4, software="megatron-core")
    names = ("full", "group:2", "group:3", "group:4", "group:9")
    estimates = evaluate(plan, plans.rows(4, *({"pp": 4, "recompute": name} for name in names)))
    assert len(set(estimates.time.seconds.tolist())) == 1
    assert len(set(estimates.time.components["recompute"].tolist())) == 1


@given(
    layers=st.integers(1, 64),
    pp=st.sampled_from([1, 2, 4, 8]),
    vpp=st.integers(1, 4),
    experts=st.booleans(),
    batch=st.sampled_from([8, 64]),
)
def test_the_best_group_is_that_of_the_ledger(
    layers: int, pp: int, vpp: int, experts: bool, batch: int
) -> None:
    layers, vpp = max(layers, pp), vpp if pp > 1 and pp * vpp <= layers else 1
    shape = plans.expert_model(layers=layers) if experts else plans.model(layers=layers)
    plan = plans.plan(shape, gpus=pp, software="megatron-core", global_batch=batch)
    schedule = "interleaved" if vpp > 1 else "1f1b"
    most = int(contents(plan, pp, vpp).layers[:, 0].max())
    base = {"pp": pp, "vpp": vpp, "schedule": schedule}
    table = plans.rows(pp, *({**base, "recompute": f"group:{k}"} for k in range(1, most + 1)))
    memory = evaluate(plan, table, stages=np.zeros((1, most))).memory
    backward = memory.timeline[0][PHASES.index("backward")]
    kept = backward["activations"] + backward["recompute_working_set"]
    best = best_recompute_group(plan, table.pick(np.array([0])))
    assert kept[best - 1] == pytest.approx(kept.min(), rel=1e-12)
    if pp == 1:  # one chunk, one micro-batch in flight: the inputs weigh as much as the group
        k = np.sqrt(layers * memory.input_bytes[0] / memory.layer_bytes[0])
        assert kept.min() >= 2 * k * memory.layer_bytes[0] - memory.input_bytes[0] * 1.001


def test_workspaces_of_gemms_are_those_of_the_libraries() -> None:
    """Allocated after training minus states, MiB: 16 on A100 with only torch, 96 on H100 with
    Transformer Engine; grouped GEMMs have four more, and XLA none in torch's allocator."""
    mib = 2.0**20
    moe = plans.expert_model()

    def workspace_mib(software: str, gpu: str, shape: ModelSpec | None = None) -> float:
        estimates = evaluate(
            plans.plan(shape, software=software, gpu=gpu, gpus=8), plans.rows(8, {})
        )
        return float(estimates.memory.components["workspaces"][0]) / mib

    assert workspace_mib("pytorch-fsdp", "a100-sxm4-80gb") == 16.25
    assert workspace_mib("pytorch-fsdp", "h100-sxm5-80gb") == 64
    assert workspace_mib("megatron-core", "a100-sxm4-80gb") == 20.25
    assert workspace_mib("megatron-core", "h100-sxm5-80gb") == 96
    assert workspace_mib("megatron-core", "h100-sxm5-80gb", moe) == 224
    assert workspace_mib("maxtext", "h100-sxm5-80gb") == 0


def test_captured_graphs_take_memory_by_their_kernels() -> None:
    """None without graphs; parts take less than layers, and whole iterations hold each
    micro-batch."""

    def context_bytes(*scopes: GraphScope) -> float:
        estimates = evaluate(
            plans.plan(gpus=8, global_batch=64, mechanisms=(CudaGraphs(scopes),)),
            plans.rows(8, {"pp": 2}),
        )
        return float(estimates.memory.context[0])

    none, part, layer, whole = (
        context_bytes("none"),
        context_bytes("attn"),
        context_bytes("layer"),
        context_bytes("full"),
    )
    assert none < part < layer < whole
    # 4 replicas of 16 sequences: all in the graph, where two are in flight
    assert whole - none == pytest.approx(8 * (layer - none))
