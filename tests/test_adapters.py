"""Adapters and frozen weights: what is trained, what is held, what backward computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest
from not_none import not_none
from plans import flat_of

from planner import api
from planner.estimate import evaluate
from planner.estimate.layer.adapters import adapter_work
from planner.estimate.layer.shape import key_of, local_shape
from planner.estimate.machine import machine
from planner.estimate.memory import layer_activations
from planner.estimate.trained import trained_count, trained_gemms
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.inputs.adapters import targets_of
from planner.ledger import first, total
from planner.mechanisms.last_layers import LastLayers
from planner.mechanisms.lisa import Lisa
from planner.specs.adapters import AdapterSpec
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

DATA = Path(__file__).parent / "data"


def plan(**changes: Any) -> Plan:
    """One GPU of torch's FSDP, whose base is bf16."""
    gpus = changes.pop("gpus", 1)
    return plans.plan(gpus=gpus, software="pytorch-fsdp", **changes)


def lora(**changes: Any) -> AdapterSpec:
    return AdapterSpec(**{"rank": 16, "targets": ("attention",), "precision": "fp32", **changes})


def estimates_of(plan: Plan, **layout: Any) -> Any:
    return evaluate(plan, Columns.of([plans.layout(plan.cluster.gpus, **layout)]))


def test_states_are_those_of_what_is_trained() -> None:
    """Frozen weights have 2 bytes, adapters in fp32 4 with 4 of a gradient and 8 of moments."""
    planned = plan(adapter=lora())
    adapters, every = trained_count(planned), parameter_count(planned.model)
    components = estimates_of(planned).memory.components
    assert components["parameters"][0] == 2 * every + 4 * adapters
    assert components["optimizer"][0] == 8 * adapters
    step = estimates_of(planned).memory.timeline[0][-1]
    assert step["gradients"][0] == 4 * adapters
    narrow = estimates_of(plan(adapter=lora(precision="bf16"))).memory.components
    assert narrow["parameters"][0] == 2 * (every + adapters)
    assert narrow["optimizer"][0] == 4 * adapters


def test_moments_of_8_bit_are_those_of_adapters() -> None:
    """Moments take 2 bytes in place of 8, beside a share of the scales of blocks."""
    narrow, usual = (plan(adapter=lora(), optimizer=name) for name in ("adam8bit", "adam"))
    trained = trained_count(narrow)
    states = estimates_of(narrow).memory.components["optimizer"][0]
    saved = estimates_of(usual).memory.components["optimizer"][0] - states
    assert saved == pytest.approx((8 - 2) * trained, rel=0.02)


def test_ranks_shard_frozen_weights_as_well_as_adapters() -> None:
    planned = plan(adapter=lora(), gpus=4)
    adapters, every = trained_count(planned), parameter_count(planned.model)
    whole, cut = (estimates_of(planned, zero=zero).memory.timeline[0][0] for zero in (0, 3))
    assert whole["parameters"][0] == 2 * every + 4 * adapters
    assert cut["parameters"][0] == pytest.approx((2 * every + 4 * adapters) / 4)


def test_only_adapters_are_reduced() -> None:
    base, planned = plan(gpus=4), plan(adapter=lora(), gpus=4)

    def reduced(plan: Plan) -> float:
        rows = estimates_of(plan, zero=0).time.traffic
        return sum(first(t.bytes * t.count) for t in rows if t.operation == "all_reduce")

    assert reduced(planned) == 4 * trained_count(planned)
    assert reduced(base) == 4 * parameter_count(base.model)


def test_backward_has_no_gradient_of_a_frozen_weight() -> None:
    """Forward GEMMs are unchanged; backward and the head run one of their two GEMMs."""
    base, with_adapters = (estimates_of(entry).time for entry in (plan(), plan(adapter=lora())))
    for name in ("mlp_in", "attention_out"):
        whole, ours = (
            next(x for n, x in t.detail.items() if name in n) for t in (base, with_adapters)
        )
        assert 0.6 * whole < ours < 0.75 * whole
    every, above, trained = trained_gemms(plan(adapter=lora()))
    assert every == above
    assert trained == trained_count(plan(adapter=lora()))


def test_layers_below_the_first_trained_one_only_run_forward() -> None:
    few, all_of = plan(mechanisms=(LastLayers(2),)), plan()
    some, whole = estimates_of(few), estimates_of(all_of)
    share = 2 / few.model.layers
    assert first(some.time.components["launch"]) < first(whole.time.components["launch"])
    kept, usual = (x.memory.timeline[0][1]["activations"][0] for x in (some, whole))
    assert kept < usual * (share + 0.1)
    states = some.memory.components["optimizer"][0]
    assert states == pytest.approx(8 * trained_count(few))
    layer = total(dict.fromkeys(["x"], parameter_count(few.model)))
    assert trained_count(few) < layer


def test_trained_layers_of_all_are_all_but_the_embedding() -> None:
    planned = plan(mechanisms=(LastLayers(8),))
    words = planned.model.padded_vocab * planned.model.hidden
    assert trained_count(planned) == parameter_count(planned.model) - words
    both = plan(mechanisms=(LastLayers(8),), train_embeddings=True)
    assert trained_count(both) == parameter_count(planned.model)


def test_trained_parameters_equal_pefts() -> None:
    """PEFT's counts for twelve models and five sets of targets, some of them with DoRA."""
    known = json.loads((DATA / "peft_counts.json").read_text(encoding="utf-8"))
    assert len(known["trained"]) > 12
    for name, counts in known["trained"].items():
        shape = catalog.load("models", ModelSpec, name)
        for label, count in counts.items():
            targets, _, dora = label.partition(" ")
            spec = AdapterSpec(
                rank=known["rank"],
                targets=tuple(targets.split("+")),
                method="dora" if dora else "lora",
            )
            planned = plan(shape=shape, adapter=spec)
            assert trained_count(planned) == count, (name, label)


def test_targets_are_joined_by_commas_as_in_arguments_of_trainers() -> None:
    model = catalog.load("models", ModelSpec, "llama-3.1-8b")
    assert targets_of("q_proj,v_proj", model) == targets_of("q_proj + V_proj", model)
    with pytest.raises(PlanError, match="'x_proj' names no matrix; did you mean v_proj"):
        targets_of("q_proj,x_proj", model)


def test_a_weight_of_several_layers_has_a_single_adapter() -> None:
    """ALBERT's 12 layers are the same weights: rank 8 beside a query of 768 x 768 is 8 x 1,536
    elements, which every layer multiplies with."""
    shape = catalog.load("models", ModelSpec, "albert-base-v2")
    planned = plan(shape=shape, adapter=AdapterSpec(rank=8, targets=("query",)))
    assert trained_count(planned) == 8 * (768 + 768)
    assert trained_gemms(planned)[2] == pytest.approx(12 * 8 * (768 + 768))


# bytes per token that a layer of a Mistral (hidden 256, MLP 896, 8 heads of 32, 2 of keys and
# values, rank 8) keeps beyond full training: torch.autograd.graph.saved_tensors_hooks over
# transformers 5.23 and PEFT 0.21 on the CPU, copies of A and B left out, a mask of a byte each as
# CUDA has them
_SAVED: dict[tuple[tuple[str, ...], str, bool, float, str], int] = {
    (("attention",), "bf16", False, 0.0, "lora"): -3264,
    (("attention",), "bf16", False, 0.1, "lora"): -704,
    (("attention",), "fp32", False, 0.0, "lora"): 384,
    (("attention",), "fp32", False, 0.1, "lora"): 1408,
    (("attention",), "fp32", True, 0.0, "lora"): -1712,
    (("all-linear",), "fp32", True, 0.0, "lora"): 1152,
    (("attention",), "fp32", True, 0.0, "dora"): -1712 + 2728,
}


def test_kept_activations_are_those_that_autograd_saves() -> None:
    shape = plans.model(hidden=256, heads=8, kv_heads=2, head_dim=32, ffn_hidden=896)

    def kept(**training: Any) -> float:
        plan = plans.plan(shape, gpus=1, software="hf-fsdp", **training)
        layer = layer_activations(plan, plans.rows(1, {}))
        return float(total(layer)[0]) / plan.training.seq_len

    whole = kept()
    for (targets, precision, autocast, dropout, method), more in _SAVED.items():
        spec = lora(
            rank=8,
            targets=targets,
            precision=precision,
            autocast=autocast,
            dropout=dropout,
            method=method,
        )
        assert kept(adapter=spec) - whole == pytest.approx(more, abs=0.015 * whole), spec
    # the same layer with nothing trained in it, 8,744 of 12,584 bytes, beside one that is
    assert whole == 12584
    assert kept(mechanisms=(Lisa(2, "active"),)) == pytest.approx((2 * 12584 + 6 * 8744) / 8)


def test_norms_in_fp32_beside_quantised_matrices_widen_what_is_between_them() -> None:
    """The layer above with matrices that return the type of their input, as in bitsandbytes, and
    adapters of attention in fp32: autograd saves 11,400 bytes per token, and 16,776 with its norms
    in fp32, for gate, their activation and up are fp32 then (3 x 896 x 2). Its input is, too. A
    LayerNorm under autocast does the same by default."""
    shape = plans.model(hidden=256, heads=8, kv_heads=2, head_dim=32, ffn_hidden=896)
    gpt = {"norm": "layernorm", "mlp": "plain", "positions": "learned"}

    def of(model: ModelSpec, **training: Any) -> Any:
        quantised = {"adapter": lora(rank=8), "base_precision": "nf4-double", **training}
        plan = plans.plan(model, gpus=1, software="hf-fsdp", **quantised)
        answer, tokens = estimates_of(plan, recompute="full"), plan.training.seq_len
        saved = float(total(layer_activations(plan, plans.rows(1, {})))[0]) / tokens
        return answer, saved, answer.memory.input_bytes[0] / tokens

    usual, wide = of(shape), of(shape, base_upcast="norms")
    assert wide[1] - usual[1] == 16776 - 11400
    assert (usual[2], wide[2]) == (2 * 256, 4 * 256)
    moved, less = (entry[0].time.components["memory_bound"][0] for entry in (wide, usual))
    assert moved > 1.2 * less
    every, hidden = of(shape, base_upcast="all")[0].memory, shape.hidden
    kept, norms, before = (
        entry.components["parameters"][0] for entry in (every, wide[0].memory, usual[0].memory)
    )
    assert norms - before == pytest.approx(2 * 2 * hidden * shape.layers)
    ends = parameter_count(shape) - shape.layers * (2 * hidden * (hidden + 64) + 3 * hidden * 896)
    assert kept - before == pytest.approx(2 * ends)
    plain = of(plans.model(**gpt))
    assert plain[2] == 4 * plans.model(**gpt).hidden
    assert of(plans.model(**gpt), base_precision="hqq")[2] == 2 * plans.model(**gpt).hidden


# lengths of one sequence that Unsloth publishes as the longest of a card of this many GB, for
# itself and for Hugging Face with FlashAttention 2: Llama 3.1 8B, QLoRA of rank 32 of all matrices
# (docs.unsloth.ai/basics/unsloth-benchmarks)
_LONGEST = {
    "unsloth": {8: 2_972, 12: 21_848, 24: 78_475, 80: 342_733},
    "hf-trainer": {12: 932, 16: 2_551, 24: 5_789, 80: 28_454},
}


def test_longest_contexts_that_unsloth_publishes_take_most_of_their_card() -> None:
    """Checkpoints of Unsloth go to the host, its loss has no logits of all tokens, its MLP keeps
    two tensors; Hugging Face's model was prepared by PEFT, all that is not quantised in fp32, of
    whose head autocast makes a 16-bit copy."""
    values: dict[str, dict[str, Any]] = {"unsloth": {"offload": "activations"}, "hf-trainer": {}}
    bounds = {"unsloth": (0.85, 0.95), "hf-trainer": (0.94, 0.98)}
    by_name = {
        "model": "llama-3.1-8b",
        "gpu": "a100-80gb",
        "gpus": 1,
        "global_batch": 1,
        "advice": 0,
    }
    by_name |= {"lora": 32, "base_precision": "nf4-double", "lora_precision": "fp32"}
    by_name |= {"optimizer": "adam8bit", "micro_batch": 1, "recompute": "full"}
    for stack, lengths in _LONGEST.items():
        for gib, tokens in lengths.items():
            given = {**by_name, **values[stack], "stack": stack, "seq_len": tokens}
            memory = api.estimate(api.read_options(given)).memory
            low, high = bounds[stack]
            assert low < memory.device_bytes / (gib * 2**30) < high, (stack, gib)


def test_what_is_in_fp32_beside_quantised_matrices_follows_the_stack() -> None:
    """PEFT's preparation with the Trainer; norms alone in older TRL; nothing where programs cast
    back, weights are sharded, or no matrix is quantised by bitsandbytes; and what the request
    says."""

    def of(software: str, base: str | None = "nf4", **value: Any) -> str:
        plan = plans.plan(gpus=1, software=software, adapter=lora(), base_precision=base, **value)
        return plan.base_upcast

    stacks = ("hf-trainer", "trl-0.25", "trl", "axolotl", "llama-factory-ddp", "ms-swift")
    assert [of(stack) for stack in stacks] == ["all", "norms", *["none"] * 4]
    assert of("unsloth") == of("hf-fsdp") == of("hf-deepspeed") == "none"
    assert of("hf-trainer", None) == of("hf-trainer", "gptq") == "none"
    assert of("hf-trainer", base_upcast="none") == "none"
    assert of("trl", base_upcast="all") == "all"


def test_autocast_copies_a_frozen_head_in_fp32_for_the_loss() -> None:
    """A step of transformers 5.23 and PEFT 0.21 on fake tensors, with frozen weights in fp32 and
    with norms, embedding and head cast: 250.5 MiB for a head of 1,024 x 128,256, which backward of
    the loss reads (`_cast_head`); a trained head is in autocast's cache instead."""

    def copy(**value: Any) -> float:
        plan = plans.plan(
            plans.model(vocab=128_256, hidden=1024),
            gpus=1,
            software="hf-trainer",
            adapter=lora(),
            base_precision="nf4",
            **value,
        )
        phases = evaluate(plan, plans.rows(1, {})).memory.phases
        return float(np.ravel(phases[2]["dequantised_weights"])[0])

    assert copy() == 2 * 128_256 * 1024
    assert copy(base_upcast="norms") == copy(train_embeddings=True) == 0
    assert copy(loss_kernel="tiled") == 0


def test_an_mlp_that_is_one_function_with_its_adapters_keeps_gate_and_up() -> None:
    """LoRA_MLP of Unsloth saves what gate and up give, 2 bytes each, and makes their product again;
    with dropout, or adapters only in attention, it does not run."""

    def hidden(software: str, **value: Any) -> float:
        plan = plans.plan(gpus=1, software=software, adapter=lora(**value))
        kept = layer_activations(plan, plans.rows(1, {}))["mlp/hidden"]
        return float(kept[0]) / plan.training.seq_len / flat_of(plan.model).ffn_hidden

    assert hidden("unsloth", targets=("all-linear",)) == 4
    assert hidden("pytorch-fsdp", targets=("all-linear",), precision="bf16") == 8
    assert hidden("pytorch-fsdp", targets=("all-linear",), fused=True) == 4
    assert hidden("pytorch-fsdp", targets=("all-linear",), fused=True, dropout=0.1) == 6


def test_matrices_of_8_bit_keep_what_they_read() -> None:
    """MatMul8bitLt of bitsandbytes 0.50 holds its input until backward: the normed stream, once
    for queries, keys and values and once for gate and up, and what the last matrix reads."""

    def kept(base: str) -> float:
        plan = plans.plan(
            gpus=1, software="hf-trainer", adapter=lora(), base_precision=base, base_upcast="none"
        )
        return float(total(layer_activations(plan, plans.rows(1, {})))[0]) / plan.training.seq_len

    shape = plans.model()
    assert kept("int8") - kept("nf4") == 2 * (2 * shape.hidden + flat_of(shape).ffn_hidden)


def test_a_word_for_several_matrices_does_not_join_what_is_named_one_by_one() -> None:
    """PEFT passes over names that a model does not have: c_attn of a Llama, q_proj of a GPT-2."""
    alone = ("q_proj", "k_proj", "v_proj")

    def count(*targets: str, **model: Any) -> int:
        shape = plans.model(**model)
        return trained_count(plan(shape=shape, adapter=lora(targets=targets)))

    assert count(*alone, "c_attn") == count(*alone) > count("c_attn")
    assert count(*alone, "c_attn", joint=("qkv",)) == count("c_attn")


def test_experts_with_adapters_are_a_loop_where_a_stack_has_no_grouped_kernel_for_them() -> None:
    """prime-rl groups their GEMMs only on Hopper. Elsewhere every expert is issued by itself, and
    backward makes a gradient as large as what all of them read for each."""
    shape = catalog.load("models", ModelSpec, "qwen3-30b-a3b")

    def of(gpu: str, target: str) -> tuple[float, float]:
        spec = lora(targets=(target,), precision=None)
        plan = plans.plan(shape, gpus=1, gpu=gpu, software="prime-rl", adapter=spec)
        work = adapter_work(local_shape(plan, **key_of(plans.rows(1, {}))), machine(plan))
        assert work is not None
        return float(work.issued.forward[0]), float(work.operators.backward[0])

    (few, short), (many, long) = (of(gpu, "experts") for gpu in ("h100", "b200"))
    assert many == not_none(shape.routed).experts * few
    assert long > 10 * short
    assert of("b200", "attention")[0] == of("h100", "attention")[0]


def test_lisa_trains_few_layers_and_passes_through_all() -> None:
    """Embedding, final norm, head and 2 of 8 layers have gradients and moments; upstream no moment
    is dropped. Backward of the others has one GEMM of two, and none of their weights is updated."""
    bf16: dict[str, Any] = {"state_precision": "bf16"}
    partly, visited, all_of = (
        plan(mechanisms=mechanisms, **bf16)
        for mechanisms in ((Lisa(2, "active"),), (Lisa(2, "visited"),), ())
    )
    every, model = parameter_count(partly.model), partly.model
    ends = (2 * model.vocab + 1) * model.hidden
    trained = ends + (every - ends) // 4
    assert trained_count(partly) == trained
    states = [estimates_of(entry).memory for entry in (partly, visited, all_of)]
    for memory, moments in zip(states, (trained, every, every), strict=True):
        assert memory.components["optimizer"][0] == pytest.approx(2 * 2 * moments)
        assert memory.components["parameters"][0] == 2 * every
    step, usual = (entry.timeline[0][-1]["gradients"][0] for entry in (states[1], states[2]))
    assert step == pytest.approx(usual * trained / every)
    ours, whole = (estimates_of(entry).time for entry in (partly, all_of))
    name = next(n for n in ours.detail if "mlp_in" in n)
    # forward and one GEMM, and a quarter of the other
    assert 0.70 < ours.detail[name][0] / whole.detail[name][0] < 0.80
    assert ours.components["optimizer"][0] < 0.6 * whole.components["optimizer"][0]
    weights, above, some = trained_gemms(partly)
    assert weights == above > some


def test_sharded_frozen_weights_keep_a_second_layer_where_the_stack_does() -> None:
    layout = {"zero": 3, "recompute": "full"}
    spec = lora(dropout=0.1)
    first, two = (
        estimates_of(plans.plan(gpus=2, software=name, adapter=spec), **layout).memory
        for name in ("pytorch-fsdp", "hf-fsdp")
    )
    sets = [m.timeline[0][3]["recompute_working_set"][0] for m in (first, two)]
    assert sets[1] > 1.9 * sets[0]


def test_a_checkpoint_holds_what_is_trained_and_the_answer_says_so() -> None:
    values = {"model": "llama-3.1-8b", "gpu": "rtx4090", "gpus": 1, "seq_len": 2048, "lora": 16}
    given = {**values, "global_batch": 8, "micro_batch": 1, "recompute": "full", "advice": 0}
    document = api.estimate(api.read_options({**given, "stack": "hf-trainer"}))
    assert document.memory.fits
    assumption = next(text for text in document.assumptions if text.startswith("trained:"))
    assert "41,943,040 of 8,030,261,248 parameters (0.52%)" in assumption
    size = document.run.reliability.checkpoint_bytes
    assert size == 12 * 41_943_040


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"lora": 8, "lora_targets": "q_prj"}, "--lora-targets"),
        ({"lora": 8, "lora_targets": "experts"}, "--lora-targets"),
        ({"lora": 8, "lora_targets": "q_a_proj"}, "--lora-targets"),
        ({"lora": 8, "optimizer": "muon"}, "--optimizer"),
        ({"lora": 8, "optimizer_in_backward": True}, "--optimizer-in-backward"),
        ({"lora": 8, "trainable_layers": 2}, "--trainable-layers"),
        ({"trainable_layers": 99}, "--trainable-layers"),
        ({"lora": 8, "lisa": 2}, "--lisa"),
        ({"lora": 8, "base_precision": "hqq", "base_upcast": "all"}, "--base-upcast"),
        ({"lisa": 99}, "--lisa"),
        ({"lora_dropout": 0.1}, "--lora-dropout"),
        ({"train_embeddings": True}, "--train-embeddings"),
    ],
)
def test_what_is_not_modelled_is_refused(given: dict[str, Any], field: str) -> None:
    values = {"model": "gpt2", "gpu": "h100", "gpus": 1, "stack": "pytorch-fsdp", "advice": 0}
    with pytest.raises(PlanError) as error:
        api.estimate(api.read_options({**values, **given}))
    assert error.value.field == field
