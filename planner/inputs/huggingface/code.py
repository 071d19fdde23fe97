"""Traits of the code that a type has in transformers, by which backward keeps more than usual.

Read off modeling_*.py of transformers 5.23; tests/test_published_code.py reads it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.inputs.huggingface.source import ACTIVATION
from planner.specs.model import Held

# RMSNorms whose weight is multiplied in fp32 and whose product is cast back
WIDE_NORMS = frozenset(
    (
        "afmoe",
        "deepseek_v4",
        "flex_olmo",
        "flint",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt_oss",
        "olmo2",
        "olmo3",
        "olmo_hybrid",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "recurrent_gemma",
        "vaultgemma",
    )
)
# rotary embeddings that join the rotated part of a head with the rest, even where that is empty
JOINED_ROTARY = frozenset(
    (
        "bamba",
        "codegen",
        "glm",
        "glm4",
        "glm4_moe",
        "gpt_neox",
        "gptj",
        "laguna",
        "minimax_m2",
        "nemotron",
        "persimmon",
        "phi",
        "phi3",
        "phi4_multimodal",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "recurrent_gemma",
        "stablelm",
    )
)
# softmax of eager attention without a type of its own
NARROW_SOFTMAX = frozenset(("biogpt", "gpt-sw3", "gpt2", "gpt_neo", "gptj"))
_COMPOSED = ("gelu_new",)
_CAPS: dict[str, Held] = {
    "attn_logit_softcapping": "capped scores",
    "final_logit_softcapping": "capped logits",
}


def holds_of(data: Mapping[str, Any], family: str, like: str) -> tuple[Held, ...]:
    """Words of ModelSpec.holds of a config.json. like: the type whose class it has."""
    out: list[Held] = []
    if {family, like} & WIDE_NORMS:
        out.append("wide norm")
    if {family, like} & JOINED_ROTARY:
        out.append("joined rotary")
    if any(data.get(key) in _COMPOSED for key in ACTIVATION):
        out.append("composed gelu")
    if {family, like} & NARROW_SOFTMAX:
        out.append("narrow softmax")
    return (*out, *(word for key, word in _CAPS.items() if data.get(key)))
