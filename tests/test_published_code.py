"""Traits of the code of types in transformers, read again off its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.inputs.huggingface.code import JOINED_ROTARY, NARROW_SOFTMAX, WIDE_NORMS, holds_of

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.oracle

MODELS = Path(transformers.__file__).parent / "models"
# a product with the weight in fp32, cast afterwards; the rotated part of a head and the rest
WIDE = r"self\.weight \* hidden_states\)\.to\(input_dtype\)|\(1\.0 \+ self\.weight\.float\(\)\)"
JOINED = r"cat\(\[?\(?(q_embed|query_rot|k_embed|query_states_rot|q_rot)"


def code_of(family: str) -> str:
    """The file of a type, or of the model that it is the text part of."""
    for name in (family, family.removesuffix("_text")):
        path = MODELS / name / f"modeling_{name}.py"
        if path.exists():
            return path.read_text("utf-8")
    raise AssertionError(family)


@pytest.mark.parametrize("family", sorted(WIDE_NORMS))
def test_a_norm_that_multiplies_in_fp32(family: str) -> None:
    assert re.search(WIDE, code_of(family)), family


@pytest.mark.parametrize("family", sorted(JOINED_ROTARY))
def test_rotary_embeddings_that_are_joined(family: str) -> None:
    assert re.search(JOINED, code_of(family)), family


@pytest.mark.parametrize("family", sorted(NARROW_SOFTMAX - {"gpt-sw3"}))
def test_a_softmax_in_the_type_of_scores(family: str) -> None:
    assert "softmax(attn_weights, dim=-1)" in code_of(family)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "mixtral", "cohere"])
def test_others_do_neither(family: str) -> None:
    code = code_of(family)
    assert not re.search(WIDE, code)
    assert not re.search(JOINED, code)
    assert holds_of({}, family, "") == ()


def test_words_of_a_config() -> None:
    words = holds_of({"activation_function": "gelu_new"}, "gpt2", "")
    assert words == ("composed gelu", "narrow softmax")
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    assert holds_of(caps, "gemma2", "") == ("wide norm", "capped scores", "capped logits")
    assert holds_of({"final_logit_softcapping": None}, "llama", "") == ()
