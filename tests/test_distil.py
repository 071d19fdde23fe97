"""Distillation: a teacher in forward passes, its logits beside the student's; bytes of the losses
as torch's operators keep them."""

from __future__ import annotations

from typing import Any

import pytest

from planner import api
from planner.estimate.memory.loss import TOP_BYTES
from planner.formulas.params import parameter_count
from planner.inputs.model import model_spec
from planner.mechanisms.distillation import DIVERGENCES
from planner.specs.base import PlanError
from planner.specs.options.tune import TuneOptions
from planner.verbs.tune import tune

ONE: dict[str, Any] = {
    "model": "qwen3-0.6b",
    "gpu": "h100",
    "gpus": 1,
    "seq_len": 1024,
    "global_batch": 16,
    "micro_batch": 2,
    "recompute": "none",
    "stack": "torchtune",
    "stack_defaults": True,
}
TAUGHT: dict[str, Any] = {"task": "distil", "teacher": "qwen3-8b"}
TOKENS = 2 * 1024
TEACHER, STUDENT = (model_spec(name)[0] for name in ("qwen3-8b", "qwen3-0.6b"))


def report(brief: bool = True, **more: Any) -> Any:
    given = {name: value for name, value in {**ONE, **more}.items() if value is not None}
    return api.estimate(api.read_options(given), brief=brief)


def logits(**more: Any) -> float:
    phases = report(brief=False, **more).memory.per_stage[0].phases
    return float(phases[2].components["logits"])


def test_weights_of_a_teacher_by_hand() -> None:
    """Two bytes per parameter of its own shape, cut over the ranks where ZeRO-3 cuts parameters,
    and none where it computes elsewhere."""
    size = parameter_count(TEACHER)
    for more, ranks in (({}, 1), ({"gpus": 8, "zero": 3}, 8), ({"lora": 8}, 1)):
        estimate = report(**(TAUGHT | more)).memory.components["reference_model"]
        assert estimate == pytest.approx(2 * size / ranks, rel=1e-6)
    top = {**TAUGHT, "teacher_top_k": 64}
    for other in ({"teacher_gpus": 2}, {"reference": "precomputed"}):
        assert report(**(top | other)).memory.components["reference_model"] == 0


def test_a_quantised_teacher_by_hand() -> None:
    """Matrices of its layers in NF4 with double quantisation, embedding and head in 16 bit; every
    matrix is made of its codes once per micro-batch, which takes time and one buffer."""
    wide, narrow = (report(**TAUGHT, teacher_precision=name) for name in (None, "qlora"))
    items = [entry.memory.components["reference_model"] for entry in (wide, narrow)]
    ends = 2 * TEACHER.padded_vocab * TEACHER.hidden
    layers = parameter_count(TEACHER) - ends
    assert items[1] == pytest.approx(2 * ends + 0.5161 * layers, rel=1e-3)
    assert items[1] < 0.4 * items[0]
    fused: dict[str, Any] = {"micro_batch": 8, "compile": True, "recompute": "full"}
    seconds = [
        report(**TAUGHT, **fused, teacher_precision=name).step.components["reference"]
        for name in (None, "qlora")
    ]
    moved = 2 * (2 + 0.5161) * layers  # bytes of codes and weights in two micro-batches
    assert 1 < (seconds[1] - seconds[0]) / (moved / 3.35e12) < 1.5
    assert "in nf4-double" in " ".join(narrow.assumptions)


def test_flop_of_a_teacher_by_hand() -> None:
    """2 FLOP per weight of GEMMs and token, and no backward: with compiled layers about two thirds
    of the peak; of the student's own shape the pass of DPO's reference except for its loss."""
    fused: dict[str, Any] = {"micro_batch": 16, "compile": True, "recompute": "full"}
    estimate = report(**TAUGHT, **fused).step.components["reference"]
    gemms = parameter_count(TEACHER) - TEACHER.padded_vocab * TEACHER.hidden  # of its embedding
    at_peak = 2 * gemms * 16 * 1024 / 989.4e12
    assert 1.4 < estimate / at_peak < 2.1
    itself, dpo = (
        report(**{"model": "qwen3-8b", **more, **fused}).step.components["reference"]
        for more in ({"task": "distil", "teacher": "qwen3-8b"}, {"task": "dpo"})
    )
    assert itself == pytest.approx(estimate)
    assert itself == pytest.approx(dpo, rel=0.02)
    sharded = report(**TAUGHT, gpus=8, zero=3, global_batch=128).step.components["reference"]
    assert sharded > report(**TAUGHT).step.components["reference"]  # layers are gathered


def test_teachers_elsewhere_take_no_memory_and_their_own_time() -> None:
    """Served on GPUs of its own, training waits for it, and they are paid for; before the run, it
    is one pass whatever the epochs."""
    top = {**TAUGHT, "teacher_top_k": 64}
    plain, apart = report(tokens="1e9"), report(tokens="1e9", teacher_gpus=4, **top)
    more = apart.step.components["reference"]
    fewer = report(teacher_gpus=2, **top).step.components["reference"]
    assert fewer == pytest.approx(2 * more)
    assert apart.step.seconds == pytest.approx(plain.step.seconds + more, rel=0.05)
    hours = apart.run.days * 24
    assert apart.run.gpu_hours == pytest.approx(5 * hours)
    assert apart.run.cost_usd / plain.run.cost_usd == pytest.approx(
        5 * apart.run.days / plain.run.days, rel=1e-3
    )
    before = report(reference="precomputed", **top)
    assert before.step.components == plain.step.components
    assert before.step.before_seconds == pytest.approx(4 * more)  # one GPU in place of four
    assert report(task="distil", reference="precomputed", teacher_top_k=8).step.seconds > 0


def test_what_a_distillation_does_not_have_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"teacher": "llama-3.1-8b"},
            "--teacher: .*vocabulary of 128,256, qwen3-0.6b one of 151,936",
        ),
        ({"teacher": None}, "--teacher: is needed"),
        ({"teacher": "qwen3-9b"}, "--teacher: "),
        ({"reference": "shared"}, "is the student itself"),
        ({"reference": "precomputed"}, "--teacher-top-k"),
        ({"teacher_gpus": 1}, "give --teacher-top-k"),
        ({"teacher": "qwen3-235b-a22b", "teacher_gpus": 2, "teacher_top_k": 8}, "take 8 or more"),
        (
            {"teacher": "qwen3-235b-a22b", "reference": "precomputed", "teacher_top_k": 8},
            "--gpus: 1 - do not hold the weights of qwen3-235b-a22b; take 8 or more",
        ),
        ({"task": "dpo", "teacher": "qwen3-8b"}, "give --task distil"),
        ({"gpus": 8, "pp": 2, "stack": "megatron-core"}, "without a pipeline"),
    ]
    for more, words in cases:
        with pytest.raises(PlanError, match=words):
            report(**{**TAUGHT, **more})
    with pytest.raises(PlanError, match="vocabulary of 128,256"):
        tune(TuneOptions(method="lora"), {**ONE, **TAUGHT, "teacher": "llama-3.1-8b"})


def test_methods_are_compared_beside_a_teacher() -> None:
    given = {name: ONE[name] for name in ("model", "gpu", "seq_len", "stack", "recompute")}
    options = TuneOptions(method="full-8bit", examples=1000, jobs=1)
    plain, taught = (tune(options, {**given, **more}) for more in ({}, TAUGHT))
    for was, now in zip(plain.methods, taught.methods, strict=True):
        assert now.fits
        assert (now.run_s or 0) > 2 * (was.run_s or 0)
        assert (now.largest_micro_batch or 0) < (was.largest_micro_batch or 0)


def test_logits_of_both_by_hand() -> None:
    """All words: 25 bytes per logit of the forward divergence, 8 of which are logits in fp32; only
    the k most likely: the bytes of cross-entropy, and 24 for each of the k."""
    every = TOKENS * STUDENT.padded_vocab
    assert logits(**TAUGHT) == pytest.approx(25 * every)
    top = logits(teacher_top_k=64, **TAUGHT) - logits()
    assert top == pytest.approx(TOKENS * 64 * TOP_BYTES)
    # chunks of 1,024 tokens of Liger, each with 16-bit logits of both too; gradients beside them
    liger = logits(divergence="jsd", loss_kernel="fused-linear", **TAUGHT)
    gradients = 2 * STUDENT.hidden * (TOKENS + STUDENT.padded_vocab)
    assert liger == pytest.approx(72 * every / 2 + gradients)


def test_bytes_of_the_losses_are_those_of_torch() -> None:
    """Losses of torchtune and TRL, operator by operator, whole and in eight chunks."""
    torch = pytest.importorskip("torch", reason="the oracle is torch, of the dev extra")
    from live_bytes import LiveBytes
    from torch.nn import functional as f

    def forward(s: Any, t: Any) -> Any:
        teacher = f.softmax(t, dim=-1, dtype=torch.float32)
        infinite = torch.isinf(s)
        student = f.log_softmax(s, dim=-1, dtype=torch.float32)
        return -torch.masked_fill(teacher * student, infinite, 0).sum()

    def reverse(s: Any, t: Any) -> Any:
        student = f.softmax(s, dim=-1, dtype=torch.float32)
        ours = f.log_softmax(s, dim=-1, dtype=torch.float32)
        theirs = f.log_softmax(t, dim=-1, dtype=torch.float32)
        infinite = torch.isinf(s) | torch.isinf(t)
        products = torch.masked_fill(student * theirs, infinite, 0)
        products -= torch.masked_fill(student * ours, infinite, 0)
        return -products.sum()

    def jsd(s: Any, t: Any) -> Any:
        s, t = s / 1.0, t / 1.0  # the temperature
        ours, theirs = (f.log_softmax(entry.float(), dim=-1) for entry in (s, t))
        beta = torch.tensor(0.5)
        both = torch.stack([ours + torch.log1p(-beta), theirs + torch.log(beta)])
        mixed = torch.logsumexp(both, dim=0)
        of_teacher = f.kl_div(mixed, theirs, reduction="none", log_target=True)
        of_student = f.kl_div(mixed, ours, reduction="none", log_target=True)
        return (beta * of_teacher + (1 - beta) * of_student).sum()

    tokens, vocab, chunks = 64, 1024, 8

    def peak(loss: Any, name: Any, parts: int) -> float:
        with LiveBytes() as live:
            x = torch.randn(tokens, 1, dtype=torch.bfloat16, requires_grad=True)
            head, its = (torch.randn(1, vocab, dtype=torch.bfloat16) for _ in range(2))
            labels = torch.zeros(tokens, dtype=torch.long).chunk(parts)
            items = [entry @ head for entry in x.chunk(parts)]
            with torch.no_grad():
                theirs = [entry @ its for entry in x.chunk(parts)]
                theirs = [their.float() for their in theirs] if parts == 1 else theirs
            items = [entry.float() for entry in items] if parts == 1 else items
            result = sum(loss(s, t) for s, t in zip(items, theirs, strict=True))
            if DIVERGENCES[name].hard:
                result = result + sum(
                    f.cross_entropy(s.float(), to, reduction="sum")
                    for s, to in zip(items, labels, strict=True)
                )
            del items, theirs
            result.backward()
        return live.peak / (tokens * vocab)

    every = TOKENS * STUDENT.padded_vocab
    for loss in (forward, reverse, jsd):
        name = loss.__name__
        for parts, kernel in ((1, None), (chunks, "chunked")):
            counted = logits(divergence=name, loss_kernel=kernel, **TAUGHT) / every
            assert peak(loss, name, parts) == pytest.approx(counted, rel=0.04), (name, parts)
