"""Bytes on one GPU: states, activations kept for backward, overheads of framework and libraries.

Symbols: T tokens of a micro-batch on this rank, T' = T / t under sequence parallelism else T, h
hidden, t tensor parallel, e bytes of an activation element, a heads, f MLP width.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula

# of a tile of TRL's head and loss: TOKEN_CHUNK_SIZE of trl/kernels/chunked_logprob.py and
# _CHUNKED_LOGPROB_CHUNK_SIZE of trl/trainer/utils.py
TILE_TOKENS, TILE_WORDS = 4096.0, 32768.0


@formula(
    unit="B",
    equation="P bytes / shards",
    source="ZeRO, arXiv 1910.02054 section 3: 2 + 2 + 12 B per parameter for mixed-precision Adam",
)
def state_bytes(parameters: Array, bytes_per_parameter: Array, shards: Array) -> Array:
    """Bytes of one state (parameters, gradients or optimizer) on one rank."""
    return parameters * bytes_per_parameter / shards


@formula(
    unit="B",
    equation="(N + N_waiting) bytes / shards",
    source=(
        "LOMO, arXiv 2306.09782 section 3.1: a weight is updated when its gradient is there, so"
        " that gradients of two tensors at most are alive"
    ),
)
def updated_gradient_bytes(
    elements: Array, waiting_elements: Array, bytes_per_element: Array, shards: Array
) -> Array:
    """Gradients alive during an update inside backward, or temporaries of the update of their size,
    plus gradients of weights that wait for a second contribution."""
    return (elements + waiting_elements) * bytes_per_element / shards


@formula(
    unit="B",
    equation="T' h norms bytes",
    source="Korthikanti et al. 2022 (arXiv 2205.05198) section 4.1: 2sbh per norm input",
)
def norm_kept_bytes(
    local_tokens: Array, hidden: Array, norms: Array, bytes_per_element: Array
) -> Array:
    """Inputs (and fp32 copies, where the norm is not fused) that norms keep."""
    return local_tokens * hidden * norms * bytes_per_element


@formula(
    unit="B",
    equation="T' h e",
    source="arXiv 2205.05198 section 4.1: 2sbh for the shared input of the q, k, v GEMMs",
)
def product_input_bytes(local_tokens: Array, width: Array, element_bytes: Array) -> Array:
    """Input that a GEMM keeps for its weight gradient."""
    return local_tokens * width * element_bytes


@formula(
    unit="B",
    equation="T e w / t",
    source="arXiv 2205.05198 section 4.1; queries, keys, values and what latent attention projects",
)
def projected_bytes(tokens: Array, width: Array, element_bytes: Array, tp: Array) -> Array:
    """Outputs of tensor-parallel projections, cut by t."""
    return tokens * width * element_bytes / tp


@formula(
    unit="B",
    equation="flash: T 4 a / t (log-sum-exp); else scores (5 a s with dropout) T / t",
    source=(
        "FlashAttention, arXiv 2205.14135 section 3.1; arXiv 2205.05198 eq. 1: 5abs^2 with dropout"
    ),
)
def attention_core_bytes(
    tokens: Array, heads: Array, keys: Array, score_bytes: Array, tp: Array
) -> Array:
    """Activations of the attention core besides its output: score_bytes per score element, 0 for
    flash, and its statistics."""
    return tokens * heads / tp * np.where(score_bytes > 0, score_bytes * keys, 4.0)


@formula(
    unit="B",
    equation="T' h per mask",
    source="arXiv 2205.05198 section 4.1: sbh per dropout mask, one byte per element",
)
def dropout_mask_bytes(local_tokens: Array, hidden: Array, masks: Array) -> Array:
    """One byte per element and dropout."""
    return local_tokens * hidden * masks


@formula(
    unit="B",
    equation="T f bytes / t",
    source=(
        "arXiv 2205.05198 section 4.1: 16sbh for GeLU at f = 4h; SwiGLU keeps gate, up and product"
    ),
)
def mlp_kept_bytes(tokens: Array, ffn_hidden: Array, bytes_per_element: Array, tp: Array) -> Array:
    """Inputs of the activation function and of the second GEMM."""
    return tokens * ffn_hidden * bytes_per_element / tp


@formula(
    unit="B",
    equation="T V / t bytes",
    source="Megatron vocabulary-parallel loss; torch: fp32 copy and gradient of the logits",
)
def logits_bytes(tokens: Array, vocab: Array, bytes_per_logit: Array, tp: Array) -> Array:
    """Logits alive at the loss."""
    return tokens * vocab / tp * bytes_per_logit


@formula(
    unit="1",
    equation="K = ceil(T / C), C = 2^ceil(log2(ceil(T / ceil(V / h))))",
    source="fused_linear_cross_entropy_forward of linkedin/Liger-Kernel: chunk_size, num_chunks",
)
def liger_chunks(tokens: Array, vocab: Array, hidden: Array) -> Array:
    """Chunks of Liger's fused head and loss: a power of two of tokens each, with about as many
    logits as there are hidden elements."""
    least = np.ceil(tokens / np.ceil(vocab / hidden))
    return np.ceil(tokens / 2 ** np.ceil(np.log2(least)))


@formula(
    unit="B",
    equation="kept + turn / K",
    source=(
        "CEWithChunkedOutputLoss of torchtune: 16-bit logits of all chunks, or their gradients, and"
        " what each chunk keeps (fp32 log-softmax, none where it is compiled); of one chunk an"
        " fp32 copy, or the gradient that is written"
    ),
)
def chunked_logits_bytes(kept_bytes: Array, turn_bytes: Array, chunks: Array) -> Array:
    """Per logit, where all are there and the loss comes in chunks of them."""
    return kept_bytes + turn_bytes / chunks


@formula(
    unit="B",
    equation="K = 1: L; else L / min(K, T) + T h e + V h e / t",
    source=(
        "fused linear cross-entropy, Liger Kernel (arXiv 2410.10989) section 3.2: a chunk of"
        " logits; gradients in forward"
    ),
)
def chunked_loss_bytes(
    logits_bytes: Array,
    chunks: Array,
    tokens: Array,
    hidden: Array,
    vocab: Array,
    element_bytes: Array,
    tp: Array,
    trained: Array = 1.0,
) -> Array:
    """At the loss, with L bytes of logits worked on in K chunks: gradients of the head's input and
    weight grow meanwhile. trained: 0 where that weight is frozen."""
    weight = trained * vocab * hidden * element_bytes / tp
    gradients = tokens * hidden * element_bytes + weight
    return np.where(chunks > 1, logits_bytes / np.minimum(chunks, tokens) + gradients, logits_bytes)


@formula(
    unit="B",
    equation="T h i + e (min(T, N) W + c (n min(V / t, W) + min(T, N)) h), n = 2 beyond one tile",
    source=(
        "ChunkedLogProbFunction.backward of trl/kernels/chunked_logprob.py: the loop holds a tile's"
        " weights until the next tile's are cast"
    ),
)
def tiled_logits_bytes(
    tokens: Array,
    hidden: Array,
    columns: Array,
    input_bytes: Array,
    element_bytes: Array,
    cast: Array,
) -> Array:
    """Bytes of a head and loss in tiles of N tokens and W words: the copy of its input that it
    keeps (input_bytes per element), and logits of a tile. columns: of the head on this rank. cast:
    1 where input and weight are in fp32, of which tiles are cast."""
    of_tile, words = np.minimum(tokens, TILE_TOKENS), np.minimum(columns, TILE_WORDS)
    several = 1.0 + ((tokens > TILE_TOKENS) | (columns > TILE_WORDS))
    tile = of_tile * TILE_WORDS + cast * (several * words + of_tile) * hidden
    return tokens * hidden * input_bytes + element_bytes * tile


@formula(
    unit="B",
    equation="(T + V / t) h b",
    source=(
        "ChunkedLogProbFunction.backward of trl/kernels/chunked_logprob.py: logits are made again,"
        " gradients added up in fp32 and returned in the type of input and weight"
    ),
)
def tiled_gradient_bytes(
    tokens: Array, hidden: Array, columns: Array, bytes_per_gradient: Array
) -> Array:
    """Gradients of input and weight of a head and loss in tiles, which backward has beside what its
    forward has. columns: of a weight that is trained, on this rank."""
    return (tokens + columns) * hidden * bytes_per_gradient


@formula(
    unit="B",
    equation="min(kept, window layer)",
    source=(
        "vDNN, Rhu et al. 2016 (arXiv 1602.08124) section 3.2: data leave after a layer's forward,"
        " return one layer ahead"
    ),
)
def resident_bytes(kept_bytes: Array, layer_bytes: Array, window_layers: Array) -> Array:
    """Bytes of offloaded activations that stay on the GPU: the layers being computed and being
    copied."""
    return np.minimum(kept_bytes, window_layers * layer_bytes)


@formula(
    unit="B",
    equation="lasting + passing (1 + frac)",
    source=(
        "torch.cuda.memory_reserved over memory_allocated: states are allocated once, what comes"
        " and goes leaves gaps"
    ),
)
def reserved_bytes(lasting_bytes: Array, passing_bytes: Array, fragmentation_frac: Array) -> Array:
    """Memory reserved by the caching allocator: short-lived blocks leave part of their segments
    unused."""
    return lasting_bytes + passing_bytes * (1 + fragmentation_frac)


@formula(
    unit="B",
    equation="threads * handle + buffers * module",
    source=(
        "CublasHandlePool.cpp of PyTorch: a workspace per handle and stream, a handle per thread"
        " (forward, autograd); Transformer Engine's own beside them. Allocated after training"
        " minus states: 16 to 24 MiB on A100 (Hugging Face Trainer), 98 MiB on H100 and GB200"
        " (Megatron-Core), 243 to 262 MiB there with grouped GEMMs"
    ),
)
def workspace_bytes(threads: Array, handle: Array, buffers: Array, module: Array) -> Array:
    """Workspaces that GEMM libraries allocate once."""
    return threads * handle + buffers * module


@formula(
    unit="B",
    equation="kernels * copies * each",
    source=(
        "an executable CUDA graph keeps the parameters of every kernel it launches on the device:"
        " what vLLM prints for its graphs, over their kernels"
    ),
)
def captured_bytes(kernels: Array, copies: Array, each: Array) -> Array:
    """Memory of captured CUDA graphs: the kernels of one micro-batch, captured once per copy."""
    return kernels * copies * each
