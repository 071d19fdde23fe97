"""What of the trained model fits the same GPU when it generates text: how many sequences of which
length, on how many GPUs."""

from __future__ import annotations

import numpy as np

from planner.formulas import inference
from planner.formulas.params import parameter_count
from planner.ledger import Array
from planner.specs.documents.inference import Held, Inference, LargestBatch
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

BYTES = 2.0  # of a weight and of a cached element: bf16
BUDGET_FRAC = 0.9  # of the device: gpu_memory_utilization of vLLM by default; recalled
CHUNK_TOKENS = 2048.0  # of prompts read at once; assumed
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SHORTEST, _CONTEXTS = (
    1024,
    6,
)  # lengths of the table: doubling up to the model's context, at most so many


def cache_width(model: ModelSpec) -> tuple[float, int]:
    """(elements per token and layer, tensor-parallel ranks over which they can be divided; more
    hold copies)."""
    if model.latent is not None:
        return float(model.latent.kv_rank + model.latent.rope_head_dim), 1
    return float(2 * model.kv_heads * model.head_dim), model.kv_heads


def sequence_bytes(model: ModelSpec, tokens: Array) -> Array:
    """Cache of sequences of these lengths, all GPUs together."""
    windowed = 0 if model.attention_window is None else model.layers // model.window_every
    return inference.kv_cache_bytes(
        tokens,
        cache_width(model)[0],
        float(model.layers - windowed),
        float(windowed),
        float(model.attention_window or 0),
        BYTES,
    )


def device_bytes(plan: Plan, tp: int, batch: Array, tokens: Array) -> Array:
    """Bytes per GPU with this tensor-parallel degree: weights, cache, working memory, context."""
    model = plan.model
    shards = min(tp, cache_width(model)[1])
    ffn = (
        model.ffn_hidden
        if model.moe is None
        else model.moe.ffn_hidden * model.moe.experts_per_token + model.moe.shared_ffn_hidden
    )
    work = inference.working_bytes(
        CHUNK_TOKENS,
        float(model.hidden),
        float(ffn),
        batch,
        float(model.padded_vocab),
        float(tp),
        BYTES,
    )
    weights = BYTES * parameter_count(model) / tp
    return (
        weights
        + batch * sequence_bytes(model, tokens) / shards
        + work
        + float(plan.cluster.gpu.context_memory)
    )


def serving(plan: Plan) -> Inference:
    """The fewest GPUs that hold the model and one sequence of its context, and which batches of
    which contexts they hold."""
    model, gpu = plan.model, plan.cluster.gpu
    budget = BUDGET_FRAC * float(gpu.usable_memory)
    degrees = [t for t in (1, 2, 4, 8, 16, 32, 64, 128) if model.heads % t == 0]
    longest = float(model.max_positions)
    tp = next((t for t in degrees if float(device_bytes(plan, t, 1.0, longest)) <= budget), None)
    shown = tp or degrees[-1]
    contexts = _contexts(model.max_positions)
    grid = device_bytes(
        plan,
        shown,
        np.array(BATCHES, dtype=float)[None, :],
        np.array(contexts, dtype=float)[:, None],
    )
    return Inference(
        gpus=tp,
        weights_bytes=BYTES * parameter_count(model),
        cache_bytes_per_token=float(sequence_bytes(model, 1.0)),
        budget_bytes=budget,
        table=[
            Held(context, batch, float(grid[i, j]), bool(grid[i, j] <= budget))
            for i, context in enumerate(contexts)
            for j, batch in enumerate(BATCHES)
        ],
        max_batch=[
            LargestBatch(context, _largest_batch(plan, shown, float(context), budget))
            for context in contexts
        ],
    )


def _contexts(longest: int) -> list[int]:
    """Lengths that double up to the longest."""
    out = [longest]
    while out[0] >= 2 * _SHORTEST and len(out) < _CONTEXTS:
        out.insert(0, out[0] // 2)
    return out


def _largest_batch(plan: Plan, tp: int, tokens: float, budget: float) -> int:
    """Whole sequences for which the bytes, linear in their number, stay within the budget."""
    empty, one = (float(device_bytes(plan, tp, batch, tokens)) for batch in (0.0, 1.0))
    return max(0, int((budget - empty) // (one - empty)))
