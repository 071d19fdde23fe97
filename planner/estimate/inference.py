"""Capacity of the same GPUs for inference with the trained model: how many sequences of which
length, on how many GPUs."""

from __future__ import annotations

import numpy as np

from planner.formulas import inference
from planner.formulas.params import parameter_count
from planner.ledger import Array
from planner.specs.documents.inference import Held, Inference, LargestBatch
from planner.specs.layers import parts_of, shared_heads
from planner.specs.model import ModelSpec
from planner.specs.parts import Mlp, Moe, Part
from planner.specs.parts.mlp import ChannelMix
from planner.specs.plan import Plan

BYTES = 2.0  # of a weight and of a cached element: bf16
STATE_BYTES = 4.0  # of an element of a recurrent state: fp32
BUDGET_FRAC = 0.9  # of the device: gpu_memory_utilization of vLLM by default; recalled
CHUNK_TOKENS = 2048.0  # of prompts read at once; assumed
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SHORTEST, _CONTEXTS = (
    1024,
    6,
)  # lengths of the table: doubling up to the model's context, at most this many


def sequence_bytes(model: ModelSpec, tokens: Array, tp: int = 1) -> Array:
    """KV cache and recurrent states of sequences of these lengths, per GPU of a tensor-parallel
    group. GPUs beyond a part's heads hold copies."""
    total: Array = 0.0 * tokens
    for part, count in parts_of(model):
        cached = part.cached()
        short = float(count) if cached.window else 0.0
        each = inference.kv_cache_bytes(
            tokens, float(cached.per_token), count - short, short, float(cached.window or 0), BYTES
        )
        state = inference.recurrent_state_bytes(float(cached.once), float(count), STATE_BYTES)
        total = total + (each + state) / min(tp, cached.units)
    return total


def device_bytes(plan: Plan, tp: int, batch: Array, tokens: Array) -> Array:
    """Bytes per GPU with this tensor-parallel degree: weights, cache, working memory, context."""
    model = plan.model
    ffn = max((_ffn(part) for part, _ in parts_of(model)), default=0.0)
    work = inference.working_bytes(
        CHUNK_TOKENS, float(model.hidden), ffn, batch, float(model.padded_vocab), float(tp), BYTES
    )
    weights = BYTES * parameter_count(model) / tp
    return (
        weights
        + batch * sequence_bytes(model, tokens, tp)
        + work
        + float(plan.cluster.gpu.context_memory)
    )


def _ffn(part: Part) -> float:
    """Active width of an MLP per token."""
    if isinstance(part, Moe):
        return float(part.ffn_hidden * part.experts_per_token + part.shared_ffn_hidden)
    return float(part.ffn_hidden) if isinstance(part, Mlp | ChannelMix) else 0.0


def serving(plan: Plan) -> Inference:
    """The fewest GPUs that hold the model and one sequence of its context, and which batches of
    which contexts they hold."""
    model, gpu = plan.model, plan.cluster.gpu
    budget = BUDGET_FRAC * float(gpu.usable_memory)
    degrees = [t for t in (1, 2, 4, 8, 16, 32, 64, 128) if shared_heads(model) % t == 0]
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
    empty, single = (float(device_bytes(plan, tp, batch, tokens)) for batch in (0.0, 1.0))
    return max(0, int((budget - empty) // (single - empty)))
