"""Objectives of fine-tuning: pairs, passes without gradients, references: TRL's arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from not_none import not_none
from plans import flat_of

from planner import api
from planner.formulas.params import parameter_count
from planner.inputs.model import model_spec
from planner.specs.base import PlanError
from planner.specs.options.tune import TuneOptions
from planner.verbs.tune import tune

ONE: dict[str, Any] = {
    "model": "qwen2.5-0.5b",
    "gpu": "a100",
    "gpus": 1,
    "seq_len": 1024,
    "global_batch": 16,
    "micro_batch": 2,
    "recompute": "none",
    "stack": "pytorch-fsdp",
}
PARAMETERS = parameter_count(model_spec("qwen2.5-0.5b")[0])


def report(brief: bool = True, **more: Any) -> Any:
    return api.estimate(api.read_options({**ONE, **more}), brief=brief)


def test_passes_of_each_objective() -> None:
    """DPO: one pass of the reference beside forward and backward; KTO: two of the reference and one
    of the model, for the batch and for mismatched completions; ORPO and SimPO: none; and none where
    log-probabilities were computed before."""
    plain = report()
    assert "reference" not in plain.step.components
    once = report(task="dpo").step.components["reference"]
    kto = report(task="kto").step.components
    assert kto["reference"] == pytest.approx(3 * once)
    before = report(task="kto", reference="precomputed").step.components
    assert before["reference"] == pytest.approx(once)
    for task, reference in (("orpo", None), ("simpo", None), ("dpo", "precomputed")):
        assert report(task=task, reference=reference).step.components == plain.step.components
    # forward is a third of the GEMMs of a step, attention 2 of 7; the rest is bound by memory
    parts = plain.step.components
    least = parts["matmul"] / 3 + parts["attention"] * 2 / 7
    assert least < once < least + parts["memory_bound"] * 0.6 + parts["launch"]
    assert report(task="dpo").run.gpu_busy_frac > 0.5


def test_a_reference_has_no_adapters() -> None:
    """The base without them, or a model of its own, takes what it takes where all weights are
    trained; of a base in 4 bit it reads the codes. The model's own pass of KTO has adapters."""
    lora: dict[str, Any] = {"lora": 64, "lora_precision": "fp32", "micro_batch": 4}
    plain = report(task="dpo", micro_batch=4).step.components["reference"]
    for more in ({}, {"reference": "held"}, {"reference": "held", "base_precision": "nf4"}):
        assert report(task="dpo", **(lora | more)).step.components["reference"] == plain
    coded = report(task="dpo", **lora, base_precision="nf4").step.components["reference"]
    assert coded > plain
    kto = report(task="kto", **lora).step.components["reference"]
    assert kto > 3.1 * plain


def test_weights_and_logits_of_a_reference() -> None:
    """A resident reference is 2 bytes per parameter; its logits are two sequences of 1,024 tokens
    over the padded vocabulary in 16 bit, beside the model's."""
    plain, dpo = report().memory, report(task="dpo").memory
    assert dpo.components["reference_model"] == pytest.approx(2 * PARAMETERS)
    vocab = model_spec("qwen2.5-0.5b")[0].padded_vocab
    more = dpo.components["logits"] - plain.components["logits"]
    assert more == pytest.approx(2 * 1024 * vocab * 2, rel=0.01)
    sharded = report(task="dpo", gpus=8, zero=3).memory
    assert sharded.components["reference_model"] == pytest.approx(2 * PARAMETERS / 8)
    shared = report(task="dpo", lora=16).memory
    assert shared.components["reference_model"] == 0
    estimate = report(task="dpo", lora=16, reference="held").memory
    assert estimate.components["reference_model"] == pytest.approx(2 * PARAMETERS)


def test_what_an_objective_does_not_have_is_refused() -> None:
    with pytest.raises(PlanError, match="an example of DPO has 2 sequences"):
        report(task="dpo", micro_batch=1)
    with pytest.raises(PlanError, match="give --lora"):
        report(task="dpo", reference="shared")
    with pytest.raises(PlanError, match="give --task dpo, kto or distil"):
        report(task="orpo", reference="held")


def test_pairs_are_two_sequences_of_the_data() -> None:
    """1,000 pairs at per_device_train_batch_size 1 of TRL: 1,000 micro-batches of two sequences."""
    given = {name: ONE[name] for name in ("model", "gpu", "seq_len")}
    given |= {"stack_defaults": True}
    options = TuneOptions(method="full-bf16", examples=1000, jobs=1)
    first, pairs = (tune(options, {**given, **more}) for more in ({}, {"task": "dpo"}))
    assert (first.data.sequences, pairs.data.sequences) == (1000, 2000)
    row = pairs.methods[0]
    assert row.layout is not None
    assert row.layout.micro_batch % 2 == 0
    assert (row.largest_micro_batch or 1) % 2 == 0
    assert (row.run_s or 0) > 2.5 * (first.methods[0].run_s or 1)


def test_a_model_of_rewards_has_a_score_in_place_of_words() -> None:
    """AutoModelForSequenceClassification with one label: no head of words, a weight per hidden
    element, no logits to speak of. PEFT (TaskType.SEQ_CLS) trains that weight beside adapters."""
    plain, reward = (report(brief=False, **more) for more in ({}, {"task": "reward"}))
    shape = model_spec("qwen2.5-0.5b")[0]
    assert reward.model.parameters == PARAMETERS + shape.hidden  # its head is tied
    assert "reference" not in reward.step.components
    ends = ("head/matmul/logits", "head/memory_bound/loss")
    was, now = (sum(entry.step.operators[n] for n in ends) for entry in (plain, reward))
    assert now < 0.02 * was
    logits = reward.memory.per_stage[0].phases[2].components["logits"]
    assert logits < 1e6
    adapted = report(brief=False, task="reward", lora=8, lora_targets="q_proj+v_proj")
    heads = flat_of(shape)
    rank = 8 * (shape.hidden + heads.heads * heads.head_dim + shape.hidden + 128)
    assumption = next(text for text in adapted.assumptions if text.startswith("trained:"))
    assert f"{shape.layers * rank + shape.hidden:,} of" in assumption
    with pytest.raises(PlanError, match="reads no words"):
        report(model="resnet-50", task="reward", seq_len=None)


def test_a_precomputed_reference_takes_one_pass_over_the_examples() -> None:
    """Once, however many epochs there are: in the time and cost of a run, not in its steps."""
    given = {name: ONE[name] for name in ("model", "gpu", "seq_len", "micro_batch")}
    given |= {"task": "dpo", "stack": "pytorch-ddp", "recompute": "full"}
    options = TuneOptions(method="full-bf16", examples=1000, epochs=3, jobs=1)
    before, kept = (
        tune(options, {**given, "reference": name}).methods[0] for name in ("precomputed", "held")
    )
    steps = 2 * 1000 / 16
    once = api.estimate(api.read_options({**ONE, **given, "state_precision": "bf16"}), brief=True)
    expected = once.step.components["reference"] * steps
    assert before.before_s == pytest.approx(expected, rel=1e-3)
    assert kept.before_s == 0
    saved = (kept.step_seconds or 0) - (before.step_seconds or 0)
    gone = (kept.run_s or 0) - (before.run_s or 0)
    assert gone == pytest.approx(3 * steps * saved - expected, rel=0.02)
    assert before.cost_usd == pytest.approx(
        not_none(kept.cost_usd) / not_none(kept.run_s) * not_none(before.run_s)
    )
