"""Embedding, final norm, logits and loss of one micro-batch, and the norms and projection of a
multi-token prediction module."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.estimate.layer.gemm import UNALIGNED_WEIGHT, Gemm, gemm_s
from planner.estimate.layer.matmul import weight_gemms_s
from planner.estimate.layer.operators import (
    NORM_KERNELS_BACK,
    copy_s,
    measured_s,
    operator_s,
    stream_s,
)
from planner.estimate.layer.shape import LayerShape, head_columns
from planner.estimate.machine import Machine
from planner.formulas import kernels
from planner.formulas.memory import TILE_TOKENS, liger_chunks
from planner.formulas.params import MTP_NORMS
from planner.formulas.stages import mtp_layers
from planner.ledger import Array, Ledger
from planner.specs.plan import Plan

# bytes moved per hidden element by the embedding and the final norm, both ways: gather, sum of
# positions, dropout, norm, and scattering the gradient; own count
_EMBEDDING = 20.0
# bytes moved per logit, both ways: one kernel in 16 bit (6 counted, 8 assumed), or torch operators
# on an fp32 copy
_FUSED_LOSS, _PLAIN_LOSS = 8.0, 52.0
_OUTPUT_CHUNKS = 8.0  # num_output_chunks of torchtune's CEWithChunkedOutputLoss
_JOINED = 16.0  # per hidden element, both ways: two normed inputs side by side, copied; own count
_DISTIL_CHUNK = 1024.0  # tokens: CHUNK_SIZE of LigerFusedLinearDistillationBase
CONTRASTED = 2  # embeddings of a sample, of its image and of its text


def _contrast_s(shape: LayerShape, m: Machine) -> Ledger:
    """Seconds of the logits of a rank's samples with all of the batch, both ways (image to text,
    text to image), each with its gradients: arXiv 2103.00020 figure 3."""
    plan, samples = shape.plan, shape.micro_batch
    width = plan.model.contrast
    if width is None:
        return {"matmul/logits": 0.0 * samples}
    batch, inner = float(plan.training.global_batch), float(width)
    ways = float(CONTRASTED)
    gemms = gemm_s(plan, m, samples, batch, inner) + gemm_s(plan, m, samples, inner, batch)
    gemms = gemms + gemm_s(plan, m, batch, inner, samples)
    return {
        "matmul/logits": ways * gemms,
        "memory_bound/loss": copy_s(m, ways * samples * batch * m.cross_entropy_bytes),
    }


def loss_chunks(plan: Plan, tokens: Array) -> Array:
    """Chunks of head and loss: by the request, else by the loss kernel."""
    chunks, kernel = float(plan.training.loss_chunks), plan.loss_kernel
    if chunks == 1 and kernel == "fused-linear" and plan.training.task == "distil":
        return np.maximum(np.floor(tokens / _DISTIL_CHUNK), 1.0)
    if plan.model.outputs is not None:  # too few columns for any kernel to divide them
        return 1.0 + 0.0 * tokens
    if chunks == 1 and kernel == "fused-linear":
        return liger_chunks(tokens, float(plan.model.vocab), float(plan.model.hidden))
    if chunks == 1 and kernel == "tiled":
        return np.maximum(np.ceil(tokens / TILE_TOKENS), 1.0)
    if chunks == 1 and kernel == "chunked":
        chunks = _OUTPUT_CHUNKS
    return np.minimum(chunks, tokens)


def head_s(shape: LayerShape, m: Machine) -> Ledger:
    """Seconds forward and backward together.

    Chunks of the tokens come one after the other, the weight's gradient of the next added to that
    of the ones before.
    """
    plan, tokens = shape.plan, shape.tokens * shape.plan.training.loss_share
    if not plan.model.vocab:
        return _contrast_s(shape, m)
    h, columns = float(plan.model.hidden), head_columns(plan, shape.tp)
    words = shape.vocab / shape.tp * h
    width = plan.training.element_bytes
    alignment = kernels.alignment_frac(columns, h, width, UNALIGNED_WEIGHT)
    chunks = loss_chunks(plan, tokens)
    rows, added = tokens / chunks, width * h * columns * (chunks > 1)
    logits = gemm_s(plan, m, rows, columns, h, alignment=alignment)
    gemms = logits + gemm_s(plan, m, rows, h, columns, alignment=alignment)
    if plan.loss_kernel == "tiled":  # no logits are kept: backward makes them again
        gemms = gemms + logits
    trained = plan.trains_head
    if trained:
        gemms = gemms + gemm_s(plan, m, h, columns, rows, extra_bytes=added, alignment=alignment)
    fused = plan.fused_cross_entropy
    per_logit = m.cross_entropy_bytes if fused is None else _FUSED_LOSS if fused else _PLAIN_LOSS
    loss = measured_s(m, tokens * columns, m.loss_s, 0.0, copy_s(m, tokens * columns * per_logit))
    if (second := plan.second) is not None and second.words is None:
        divergence = second.divergence
        loss = divergence.hard * loss + copy_s(m, tokens * columns * divergence.moved)
    hidden = shape.local_tokens * h
    weights = words + columns * h * (not plan.model.tied_embeddings)
    waited = {"launch/tokens": shape.tokens * m.token_idle} if np.any(m.token_idle) else {}
    return {
        **waited,
        "matmul/logits": chunks * gemms,
        "memory_bound/loss": loss,
        "memory_bound/embedding": operator_s(plan, m, hidden, _EMBEDDING, m.embedding_s, 0.0)
        + m.table_s * words,
        # the weights of embedding and head are cast, gathered and reduced like a layer's
        "memory_bound/weights": copy_s(m, trained * weights * m.weight_bytes_moved),
    }


def module_s(shape: LayerShape, m: Machine) -> Ledger:
    """Seconds forward and backward together of a module's norms, and of its projection of a hidden
    state beside the embedding of a later word: 2h columns to h (DeepSeek-V3, arXiv 2412.19437
    section 2.2). Empty without such modules."""
    plan = shape.plan
    if not mtp_layers(plan):
        return {}
    h, tokens, split = float(plan.model.hidden), shape.tokens, shape.local_tokens
    product = Gemm("mtp_projection", tokens, h / shape.tp, 2 * h)
    gemms = weight_gemms_s(plan, m, replace(product, weight_gradient=plan.gradients_frac))
    norms = split * h * MTP_NORMS
    back = NORM_KERNELS_BACK * MTP_NORMS
    joined = stream_s(plan, m, _JOINED * split * h, 2.0)
    return {
        "matmul/mtp_projection": gemms.forward + gemms.backward,
        "memory_bound/mtp_norm": operator_s(plan, m, norms, m.norm_forward, m.norm_forward_s, 3.0)
        + operator_s(plan, m, norms, m.norm_backward, m.norm_backward_s, back),
        "memory_bound/mtp_joined": joined,
    }
