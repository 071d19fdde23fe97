"""Bytes that torch keeps and FLOP that it counts on transformers' models, against the formulas:
without a GPU, to the byte."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import plans
import pytest

for needed in ("torch", "transformers"):
    pytest.importorskip(needed, reason=f"the oracle is {needed}, of the dev extra")

import torch  # noqa: E402
import torch_models  # noqa: E402
from plans import flat_of  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from torch_models import DENSE, GROUP, MODELS, MODES  # noqa: E402

from planner.estimate import evaluate  # noqa: E402
from planner.estimate.memory import PHASES  # noqa: E402
from planner.formulas.flops import matmul_weights, model_flop  # noqa: E402
from planner.ledger import total  # noqa: E402
from planner.specs.layers import attended_of  # noqa: E402

pytestmark = pytest.mark.oracle

SHAPES = [(1, 64), (2, 96), (3, 160)]  # sequences, tokens
EACH = list(itertools.product(MODELS, MODES))


def predicted_kept(
    name: str, layers: int, mode: str, batch: int, sequence: int, precision: str = "bf16"
) -> float:
    plan = torch_models.plan(name, layers, batch, sequence, mode, precision=precision)
    memory = evaluate(
        plan, plans.rows(1, {"micro_batch": batch, "recompute": MODES.get(mode, "selective")})
    ).memory
    return float(memory.timeline[0][PHASES.index("forward")]["activations"][0])


def agree_per_layer(saw: Iterable[float], expected: Iterable[float]) -> None:
    """Bytes per layer, from the difference between a deeper and a shallower model."""
    (measured,), (predicted,) = np.diff(list(saw)), np.diff(list(expected))
    assert predicted == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(  # two of the shapes in turn
    ("name", "mode", "batch", "sequence"),
    [(*entry, *SHAPES[(i + k) % 3]) for i, entry in enumerate(EACH) for k in (0, 1)],
)
def test_bytes_kept_by_a_layer(name: str, mode: str, batch: int, sequence: int) -> None:
    few, many = GROUP, 2 * GROUP
    saw = (torch_models.kept_bytes(name, n, mode, batch, sequence) for n in (few, many))
    predicted = (predicted_kept(name, n, mode, batch, sequence) for n in (few, many))
    agree_per_layer(saw, predicted)


@pytest.mark.parametrize("name", ["llama", "llama, grouped queries", "mistral", "qwen3"])
def test_bytes_kept_by_the_rule_of_every_second_product(name: str) -> None:
    saw = (torch_models.kept_bytes(name, n, "per-op", 2, 96) for n in (2, 4))
    predicted = (predicted_kept(name, n, "per-op", 2, 96) for n in (2, 4))
    agree_per_layer(saw, predicted)


@pytest.mark.parametrize(
    ("name", "rates", "dropped", "attention", "kernel"),
    [
        ("gpt2", ("embd_pdrop", "resid_pdrop"), "hidden", "sdpa", "flash2"),
        ("gpt2", ("embd_pdrop", "resid_pdrop", "attn_pdrop"), "all", "eager", "fused_softmax"),
        ("llama", ("attention_dropout",), "attention", "eager", "eager"),
    ],
)
def test_masks_of_dropout(
    name: str,
    rates: tuple[str, ...],
    dropped: str,
    attention: str,
    kernel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A byte per hidden element after attention and after the MLP and one of the embedding, one
    per score and 16 bits of what is left of it; none of what is repeated. To the byte, with the
    kernel of GPUs, whose masks are bytes. GPT-2's softmax works in 16 bit, as fused ones do."""

    def fused(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(x, p, True)[0] if p and training else x

    monkeypatch.setattr(torch.nn.functional, "dropout", fused)
    family, fields = MODELS[name]

    def kept_and_predicted(rate: float, layers: int, mode: str) -> tuple[float, float]:
        monkeypatch.setitem(MODELS, name, (family, {**fields, **dict.fromkeys(rates, rate)}))
        torch_models.spec.cache_clear()
        seen = torch_models.kept_bytes(name, layers, mode, 2, 96, attention=attention)
        plan = torch_models.plan(name, layers, 2, 96, mode, kernel=kernel)
        if rate > 0:
            assert plan.model.dropout
            model = plan.model.model_copy(update={"dropout_of": dropped})
            plan = plan.model_copy(update={"model": model})
        memory = evaluate(plan, plans.rows(1, {"micro_batch": 2, "recompute": mode})).memory
        return seen, float(memory.timeline[0][PHASES.index("forward")]["activations"][0])

    for mode in ("none", "full"):
        for layers in (2, 4):
            seen, predicted = np.subtract(
                kept_and_predicted(0.1, layers, mode), kept_and_predicted(0.0, layers, mode)
            )
            assert predicted == seen
            assert (seen > 0) == (mode == "none" or dropped != "attention")
    torch_models.spec.cache_clear()


@pytest.mark.parametrize("name", ["llama, grouped queries", "qwen3", "gpt2", "opt"])
def test_bytes_kept_in_fp32(name: str) -> None:
    saw = (torch_models.kept_bytes(name, n, "none", 2, 96, torch.float32) for n in (2, 4))
    predicted = (predicted_kept(name, n, "none", 2, 96, "fp32") for n in (2, 4))
    agree_per_layer(saw, predicted)


@pytest.mark.parametrize(  # of one or two sequences in turn
    ("name", "mode", "micro"),
    [(*entry, 1 + (i + i // len(MODES)) % 2) for i, entry in enumerate(EACH)],
)
def test_a_whole_step(name: str, mode: str, micro: int) -> None:
    layers, batch, sequence = 4, 2, 96
    seen = torch_models.whole_step(name, layers, mode, batch, sequence, micro)
    plan = torch_models.plan(name, layers, batch, sequence, mode, micro)
    memory = evaluate(plan, plans.rows(1, {"micro_batch": batch, "recompute": MODES[mode]})).memory
    step = memory.timeline[0][PHASES.index("optimizer step")]
    assert step["parameters"][0] == seen.parameters
    assert step["gradients"][0] == seen.gradients
    assert step["optimizer"][0] == seen.optimizer
    assert float(memory.peak[0]) == pytest.approx(seen.peak, rel=0.03)


def test_a_step_that_updates_in_backward() -> None:
    """Gradients of one weight at a time, and of a tied embedding until its lookup has its share; on
    12 layers, gradients of the whole model would be a fifth of the peak."""
    for name, mode, layers in (
        ("llama", "none", 4),
        ("llama", "full", 12),
        ("qwen3", "full", 12),
        ("llama, grouped queries", "full", 12),
        ("gpt2", "none", 4),
        ("opt", "full", 4),
    ):
        seen = torch_models.step_in_backward(name, layers, mode, 2, 96)
        plan = torch_models.plan(name, layers, 2, 96, mode, in_backward=True)
        memory = evaluate(plan, plans.rows(1, {"micro_batch": 2, "recompute": MODES[mode]})).memory
        step = memory.timeline[0][PHASES.index("optimizer step")]
        assert seen.gradients == 0 == step["gradients"][0]
        assert step["optimizer"][0] == seen.optimizer
        assert float(memory.peak[0]) == pytest.approx(seen.peak, rel=0.03), (name, mode)


@pytest.mark.parametrize(("batch", "sequence"), SHAPES)
@pytest.mark.parametrize("name", DENSE)
def test_flop_of_a_step(name: str, batch: int, sequence: int) -> None:
    """Exact, except for the table of rotations: one product of half a head's frequencies and all
    positions per batch."""
    layers = 3
    model, words = (
        torch_models.build(name, layers, attention="eager"),
        torch_models.tokens(batch, sequence),
    )
    counter = FlopCounterMode(display=False)
    with counter:
        model(input_ids=words, labels=words, use_cache=False).loss.backward()
    spec = torch_models.spec(name, layers)
    # torch counts the whole score matrix
    met = sequence * sum(
        n * c.heads * (c.query_width + c.value_width) for c, n in attended_of(spec)
    )
    expected = float(model_flop(total(matmul_weights(spec)), met, batch * sequence))
    rotations = 2 * (flat_of(spec).head_dim // 2) * sequence if spec.positions == "rotary" else 0
    assert counter.get_total_flops() - expected in (0, rotations, batch * rotations)
