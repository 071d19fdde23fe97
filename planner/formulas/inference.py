"""Memory of generating text: weights, the cache of keys and values, and the workspace of a chunk of
the prompt."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="B",
    equation="bytes width (full s + windowed min(s, window))",
    source=(
        "keys and values of every layer and token; a windowed layer keeps its window (Mistral,"
        " arXiv 2310.06825 section 2)"
    ),
)
def kv_cache_bytes(
    tokens: Array,
    width: Array,
    full_layers: Array,
    windowed_layers: Array,
    window_tokens: Array,
    element_bytes: Array,
) -> Array:
    """Cache of one sequence. width: elements per token and layer, 2 k d, or of the compressed
    vector of latent attention."""
    return (
        element_bytes
        * width
        * (full_layers * tokens + windowed_layers * np.minimum(tokens, window_tokens))
    )


@formula(
    unit="B",
    equation="bytes elements layers",
    source="a recurrent layer keeps its state and its convolution's last inputs, at any length",
)
def recurrent_state_bytes(elements: Array, layers: Array, element_bytes: Array) -> Array:
    """States of one sequence."""
    return element_bytes * elements * layers


@formula(
    unit="B",
    equation="t bytes (4 h + 2 f/tp) + 4 n V/tp",
    source=(
        "own count: residual, norm, attention in and out, both halves of the MLP, fp32 logits of"
        " one token per sequence"
    ),
)
def working_bytes(
    chunk_tokens: Array,
    hidden: Array,
    ffn_hidden: Array,
    sequences: Array,
    vocab: Array,
    tp: Array,
    element_bytes: Array,
) -> Array:
    """Activations of the largest layer while a chunk of prompts is read, and the logits of the next
    tokens."""
    return (
        chunk_tokens * element_bytes * (4 * hidden + 2 * ffn_hidden / tp)
        + 4 * sequences * vocab / tp
    )
