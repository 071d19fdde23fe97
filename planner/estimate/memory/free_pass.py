"""Bytes alive in a layer of a pass without gradients, of which backward needs nothing."""

from __future__ import annotations

import numpy as np

from planner.estimate.memory import attention, eager
from planner.estimate.memory.tokens import routed_tokens, tokens_of
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layers import parts_of
from planner.specs.parts import Attended, Mlp, Moe
from planner.specs.plan import Plan

# bytes per score where scores are in memory: in 16 bit, and in fp32 what softmax reads and returns
# (eager_attention_forward of transformers)
_SCORE_BYTES = 10.0
# of the residual stream: the embedding's output and the layer's input, which their callers hold,
# the sum after attention, and what a norm returns (modeling_llama.py of transformers)
_STREAMS = 4.0
_HELD_BY_CALLERS = 2.0  # of these; one where the only layer's input is the embedding's output


def layer_bytes(plan: Plan, c: Columns) -> Array:
    """Bytes inside the largest operator of a layer: products of an MLP before the last one, or
    scores, beside the residual stream."""
    tokens, local = tokens_of(plan, c)
    e, inner = plan.training.element_bytes, 0.0 * tokens
    for part, _ in parts_of(plan.model):
        if isinstance(part, Mlp):
            inner = np.maximum(inner, e * tokens * part.ffn_hidden * (part.inputs + 1.0) / c.tp)
        elif isinstance(part, Moe):
            routed = routed_tokens(plan, c)
            inner = np.maximum(inner, e * routed * part.ffn_hidden * (part.inputs + 1.0))
        for core in part.core():
            if isinstance(core, Attended) and attention.scores_kernel(plan, core):
                keys = float(core.keys or plan.training.seq_len)
                inner = np.maximum(inner, tokens * core.heads / c.tp * keys * _SCORE_BYTES)
    streams = _STREAMS - max(_HELD_BY_CALLERS - float(plan.model.layers), 0.0)
    return inner + streams * eager.residual_bytes(plan) * local * float(plan.model.hidden)
