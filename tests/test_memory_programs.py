"""Memory peculiar to single programs: DeepSpeed's buckets, the gate that Liger overwrites, a
compiled loss."""

from __future__ import annotations

from typing import Any

import plans
import pytest
from run_tables import row, row_plan

from planner.estimate import Estimates, evaluate
from planner.estimate.memory import PHASES, needed
from planner.formulas.params import parameter_count
from planner.specs.adapters import AdapterSpec
from planner.specs.columns import Columns
from planner.studies.validate.files import read_all

FORWARD, LOSS, BACKWARD = 1, 2, 3  # phases of a timeline


def run(software: str, chosen: dict[str, Any] | None = None, **training: Any) -> Estimates:
    plan = plans.plan(plans.model(vocab=128_000), software=software, **training)
    return evaluate(plan, plans.rows(8, {"zero": 3, "micro_batch": 4, **(chosen or {})}))


def leaf(estimates: Estimates, name: str, phase: int = LOSS) -> float:
    return float(estimates.memory.timeline[0][phase][name][0])


@pytest.mark.parametrize("software", ["deepspeed", "hf-deepspeed", "llama-factory"])
def test_zero_3_has_one_bucket_of_half_a_billion_elements_and_zero_2_two(software: str) -> None:
    first, two = (run(software, {"zero": stage}) for stage in (3, 2))
    assert leaf(first, "communication_buckets") == 5e8 * 2
    assert leaf(two, "communication_buckets") == 2 * 5e8 * 2


def test_deepspeed_copies_the_gradients_that_it_updates_zero_3_a_billion_at_a_time() -> None:
    """A flat 16-bit copy and an fp32 copy: 6 bytes per parameter of the rank's shard. Under ZeRO-2
    the shard of the first rank is some of the embedding, of which the norm of all gradients makes
    an fp64 copy before."""
    plan = plans.plan(
        plans.model(vocab=256_000, hidden=8192, ffn_hidden=28_672), software="deepspeed"
    )
    kept = [
        evaluate(plan, plans.rows(8, {"zero": stage, "offload": away}))
        for stage, away in ((2, "none"), (3, "none"), (3, "optimizer"))
    ]
    owned = parameter_count(plan.model) / 8
    assert owned > 1e9
    saw = [leaf(entry, "optimizer_temporaries", PHASES.index("optimizer step")) for entry in kept]
    assert owned < 256_000 * 8192
    assert saw == [pytest.approx(8 * owned), pytest.approx(6 * min(owned, 1e9)), 0]


def test_liger_writes_the_gradients_of_a_gate_over_its_inputs() -> None:
    kept, over = (
        leaf(
            run("hf-deepspeed", loss_kernel=fused),
            "backward_temporaries",
            PHASES.index("end of backward"),
        )
        for fused in (None, "fused-linear")
    )
    # 4,096 tokens of 1,408 elements in 16 bit: one gradient less
    assert kept - over == 4096 * 1408 * 2


def test_a_model_that_keeps_its_cache_in_training_holds_what_its_matrix_returned() -> None:
    """GPT-BigCode of transformers, 2 key-value heads: views of all that c_attn gives, of every
    repeated layer, until the loss; in fp32 where a matrix of NF4 gives that. Logits reach the loss
    in the type of the weights, in fp32 under autocast."""
    shape: dict[str, Any] = {
        "kv_heads": 2,
        "joint": ("qkv",),
        "norm": "layernorm",
        "vocab": 128_000,
    }
    repeat = {"recompute": "full"}
    quantised: dict[str, Any] = {
        "base_precision": "nf4",
        "adapter": AdapterSpec(rank=8, targets=("q_proj",)),
    }
    pure: dict[str, Any] = {"state_precision": "bf16"}
    cases: list[tuple[float, float, dict[str, Any], dict[str, Any]]] = [
        (2.0, 0.5, repeat, pure),
        (2.0, 1.0, repeat, {}),
        (4.0, 1.0, repeat, quantised),
        # norms in a kernel of its own leave autocast to the logits
        (2.0, 1.0, repeat, {"fused_norm": True}),
    ]
    for each, share, layout, training in (*cases, (0.0, 1.0, {"recompute": "none"}, {})):
        saw = []
        for holds in ((), ("cache", "narrow logits")):
            plan = plans.plan(plans.model(**shape, holds=holds), software="hf-fsdp", **training)
            saw.append(evaluate(plan, plans.rows(8, {"micro_batch": 4, **layout})))
        width = 512 + 2 * 2 * 64
        for phase in (FORWARD, LOSS, BACKWARD):
            more = leaf(saw[1], "activations", phase) - leaf(saw[0], "activations", phase)
            assert more == (phase != BACKWARD) * 8 * 4096 * width * each
        assert leaf(saw[1], "logits") == share * leaf(saw[0], "logits")


def test_zero_of_deepspeed_has_its_buckets_on_one_rank_too() -> None:
    """setup_buckets of zero/stage_1_and_2.py: two of reduce_bucket_size elements in 16 bit under
    overlap_comm, whatever the number of ranks."""

    def buckets(zero: int, **training: Any) -> float:
        plan = plans.plan(gpus=1, software="hf-deepspeed", **training)
        estimates = evaluate(plan, plans.rows(1, {"zero": zero}))
        return leaf(estimates, "communication_buckets", BACKWARD)

    assert buckets(2) == 2 * 2 * 5e8
    assert buckets(2, data_bucket=4e8) == 2 * 4e8
    assert buckets(0) == 0


def test_a_full_device_gives_back_what_frozen_weights_leave_unused() -> None:
    """32 sequences of QLoRA ran with 69 GiB allocated and 76 to 78 on the device, which has 79."""
    runs = {entry["run_id"]: entry for entry in read_all([], ["fms"])}
    for name, fits in (("fms-0256", True), ("fms-0268", True), ("fms-0248", False)):
        plan, layout = row_plan(runs[name])
        table = Columns.of([layout], 1)
        estimates, usable = evaluate(plan, table), plan.usable_bytes
        assert estimates.memory.firm is not None
        needs, shows = float(estimates.memory.firm[0]), float(estimates.memory.device[0])
        assert bool(estimates.fits[0]) is fits is (needs <= usable)
        assert shows == pytest.approx(max(needs, usable))
        assert float(needed(plan, table).device[0]) == pytest.approx(shows)


def test_runs_of_gpt_bigcode_are_met() -> None:
    """Four of sixteen of fms-acceleration: all weights in bf16, QLoRA, with torch's loss and a
    fused one, 16,384 tokens on one A100."""
    runs = {entry["run_id"]: entry for entry in read_all([], ["fms"])}
    for name in ("fms-0003", "fms-0007", "fms-0071", "fms-0075"):
        plan, layout = row_plan(runs[name])
        memory = evaluate(plan, Columns.of([layout], 1)).memory
        measured = float(runs[name]["peak_memory_gib"])
        assert float(memory.peak[0]) / 2**30 == pytest.approx(measured, rel=0.005)


def test_a_compiled_loss_holds_16_bit_logits_and_their_gradient() -> None:
    logits = 4096 * 128_000
    assert leaf(run("torchtitan-25.04", compile=True), "logits") == 4 * logits
    for software, compiled in (("torchtitan-25.04", None), ("torchtitan", True)):
        assert leaf(run(software, compile=compiled), "logits") == 12 * logits


@pytest.mark.parametrize(
    ("named", "stated", "stack"),
    [
        ("benchmarks/llama3_h100_202412_torchtitan.md", "", "torchtitan"),
        ("benchmarks/llama3-8b_h200_202506_trainy.md", "", "torchtitan-25.04"),
        ("benchmarks/llama3_h100_202412_torchtitan.md", "release=25.04", "torchtitan-25.04"),
        ("issue 202506123", "", "torchtitan"),
    ],
)
def test_the_month_of_a_benchmark_is_its_release(named: str, stated: str, stack: str) -> None:
    cells = row(stack="torchtitan", zero=3, source_ref=named, options=stated)
    assert row_plan(cells)[0].stack.id == stack


def test_recipes_of_nemo_let_segments_grow_unless_the_row_says_otherwise() -> None:
    for stack, options, grow in (
        ("nemo", "", True),
        ("nemo", "release=26.06", True),
        ("nemo", "expandable_segments=0", False),
        ("megatron-core", "", False),
        ("megatron-core", "expandable_segments=1", True),
    ):
        cells = row(gpu="gb200-186gb", stack=stack, options=options, precision="fp8")
        assert row_plan(cells)[0].expandable_segments is grow


def test_zero_3_of_bigscience_keeps_checkpoints_in_host_memory_shared_by_tensor_ranks() -> None:
    """One layer's input stays on the GPU; the others, an eighth each where tp is 2 of 8 GPUs."""
    chosen = {"tp": 2, "recompute": "full"}
    (first, two) = (run("bigscience", {**chosen, "zero": stage}) for stage in (3, 1))
    here, whole = (leaf(x, "activations") for x in (first, two))
    each, layers = 4096 * 512 * 2, first.plan.model.layers  # 4 sequences of 1,024 tokens
    assert whole - here == (layers - 1) * each
    assert float(first.memory.host[0]) == (layers - 1) * each / 2


def test_recipes_say_what_reduces_gradients_and_who_fuses_the_loss() -> None:
    sft, other = (
        row(stack="megatron-core", model=name) for name in ("Llama3 70B (sft)", "Llama3 70B")
    )
    assert [row_plan(r)[0].training.gradient_reduce for r in (sft, other)] == ["bf16", None]
    factory, trainer = (row(stack=name) for name in ("llama-factory", "hf-deepspeed"))
    assert [row_plan(r)[0].training.loss_kernel for r in (factory, trainer)] == [
        "fused-linear",
        None,
    ]
