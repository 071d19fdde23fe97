"""Bytes that torch keeps for backward where a layer is a chain of its operators: by autocast, and
by the code that a type of model has in transformers.

Counted on fake tensors (benchmarks/frameworks); the counted steps are tests/data/frameworks.csv.
"""

from __future__ import annotations

from planner.estimate.state_types import frozen_bytes, state_of
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.model import Held
from planner.specs.parts import Attention, Latent, Mlp, Moe, Part
from planner.specs.plan import Plan

WIDE_BYTES = 4.0
_NORM_WORKING = 24.0
_LATENT_INPUTS = 2.0  # down-projections of queries, and of keys and values
# per element of an MLP whose gelu_new is a chain of operators: its input, half of it, tanh, one
# more than that, and the product; in fp32 from the power on where autocast runs, and then a copy of
# the product in 16 bit
_COMPOSED, _COMPOSED_WIDE = 10.0, 16.0
# gate, its factor and their product, which AOTAutograd's min-cut partitioner saves
# (benchmarks/frameworks/compiled.py)
_COMPILED_GATED = 6.0


def runs_code(plan: Plan, trait: Held) -> bool:
    """Whether the published code of the model runs, and does this."""
    if not plan.stack.activations.published_code or plan.training.compile:
        return False
    return trait in plan.model.holds


def autocasts(plan: Plan) -> bool:
    """Whether autocast runs over what matrices, norms and activation functions are given."""
    training = plan.training
    if training.compile or not training.mixed_precision or training.state_precision is not None:
        return False
    return plan.stack.activations.wide_layernorm or state_of(plan).cast_copy


def wide_stream(plan: Plan) -> bool:
    """Whether autocast runs over weights in fp32: what the embedding returns, and all that is added
    to it, stays so, and every matrix makes a 16-bit copy of its input."""
    if not autocasts(plan) or plan.training.fused_norm:  # which returns the type of the matrices
        return False
    if plan.training.adapter is not None:
        wide = plan.training.base_precision is None and frozen_bytes(plan) == WIDE_BYTES
        return wide or plan.training.base_precision == "fp32"
    return state_of(plan).cast_copy


def compiled_wide(plan: Plan) -> bool:
    """Whether the residual stream of a compiled model under autocast is in fp32, as the embedding
    returns it: norms keep it so, and casts are in kernels (benchmarks/frameworks/compiled.py)."""
    training = plan.training
    casts = training.mixed_precision and training.state_precision is None
    whole = training.adapter is None and state_of(plan).cast_copy
    return bool(training.compile) and casts and whole


def residual_bytes(plan: Plan) -> float:
    """Bytes of an element of the residual stream."""
    return WIDE_BYTES if wide_stream(plan) or compiled_wide(plan) else plan.stream_bytes


def normed_bytes(plan: Plan) -> float:
    """Bytes that a norm of several operators keeps per element for the gradient of its weight,
    where what it reads is in 16 bit."""
    stated = plan.stack.activations.wide_normed and not plan.training.compile
    wide = runs_code(plan, "wide norm") or stated
    return WIDE_BYTES if wide else plan.training.element_bytes


def norm_working_bytes(plan: Plan) -> float:
    """Bytes per element of an RMSNorm of several operators while it is in backward: its fp32 input,
    and five more fp32 tensors; 0: a kernel of its own, or not known."""
    chain = plan.stack.activations.published_code and plan.model.norm == "rmsnorm"
    known = chain and not (plan.fused_norm or plan.training.compile)
    return _NORM_WORKING if known and plan.training.adapter is None else 0.0


def casts_inputs(plan: Plan) -> bool:
    """Whether every matrix keeps its own 16-bit copy of a norm's fp32 output."""
    of_norm = autocasts(plan) and plan.model.norm == "layernorm" and not plan.training.fused_norm
    return wide_stream(plan) or (of_norm and plan.stack.activations.wide_layernorm)


def norms_cast(plan: Plan) -> bool:
    """Whether every norm makes its own fp32 copy of its input."""
    return casts_inputs(plan) and residual_bytes(plan) < WIDE_BYTES


def input_copies(plan: Plan, part: Part) -> float:
    """Matrices of a part that read what its norm returns, where its code is known."""
    if not (plan.stack.activations.published_code or plan.stack.state.cast_alone):
        return 1.0
    joint_qkv, joint_gate = plan.joint
    if isinstance(part, Attention):
        return 1.0 if joint_qkv else 1.0 + len(part.key_value_widths)
    if isinstance(part, Latent):
        return _LATENT_INPUTS
    if isinstance(part, Mlp):
        return 1.0 if joint_gate else float(part.inputs)
    return 1.0


def expert_bytes(plan: Plan) -> float:
    """Bytes of an element that experts work on: autocast has no grouped products in its lists, so
    that they run in the type of their weights (integrations/moe.py of transformers)."""
    grouped = plan.stack.activations.published_code and plan.model.routed is not None
    return WIDE_BYTES if grouped and wide_stream(plan) else plan.training.element_bytes


def composed_bytes(plan: Plan, part: Mlp | Moe) -> float | None:
    """Bytes per element of an MLP whose activation function is a chain; None: it is one kernel."""
    if part.gated or not runs_code(plan, "composed gelu"):
        return None
    return _COMPOSED_WIDE if autocasts(plan) else _COMPOSED


def gated_bytes(plan: Plan) -> float:
    """Bytes per element of a gated MLP. A whole model that is compiled makes the activated gate
    again in backward; peaks of stacks that compile layer by layer (torchtune, prime-rl) have it."""
    kept = plan.stack.activations
    if plan.training.compile and kept.published_code:
        return min(kept.mlp_gated, _COMPILED_GATED)
    return kept.mlp_gated


def narrow_softmax(plan: Plan) -> bool:
    """Whether scores in memory take a softmax in 16 bit; autocast would have it in fp32."""
    return runs_code(plan, "narrow softmax") and not autocasts(plan)


def masks(plan: Plan) -> bool:
    """Whether scores are masked by a matrix in memory, which all layers read."""
    return plan.attention == "eager" and plan.stack.activations.published_code


def masked_rows(plan: Plan, c: Columns) -> Array:
    """1 where rows have padding that torch's scaled_dot_product_attention is given a mask for, so
    that its memory-efficient kernel runs: a mask in the type of queries for every layer, and keys
    and values for every head (sdpa_attention_forward of transformers); otherwise 0. A kernel that
    the request names is FlashAttention's package, which removes padding."""
    spec, training = plan.lengths, plan.training
    if spec is None or spec.packing == "packed" or training.attention is not None:
        return 0.0 * c.micro_batch
    if not (plan.stack.activations.published_code and plan.flash_attention):
        return 0.0 * c.micro_batch
    # a single row, as long as its document, has none
    return 1.0 * ((c.micro_batch > 1) | (spec.packing == "padded"))


def joined_rotary(plan: Plan) -> bool:
    """Whether queries and keys are concatenated from rotated and unrotated parts, as new
    tensors."""
    joined = runs_code(plan, "joined rotary") or plan.stack.activations.joined_rotary
    return joined and plan.model.positions == "rotary" and not plan.fused_rotary


def rotated_beside(plan: Plan, c: Columns, part: Attention) -> Array:
    """Elements per token that attention keeps beside queries, keys and values: where values are a
    view of one joint product, all of it stays for them, unless every head has a copy of its own
    (repeat_kv, and what a product of scores and values makes contiguous)."""
    rotary = plan.model.positions == "rotary" and part.rotary
    kept = "qkv" in plan.model.joint and _rotates(plan, part)
    if not part.own_kv or not (kept or (rotary and plan.stack.activations.joint_views)):
        return 0.0 * c.tp
    copied = masked_rows(plan, c) * (part.heads > part.kv_heads > 1)
    if masks(plan):
        copied = 1.0 + 0.0 * copied
    return (1.0 - copied) * float((part.heads + part.kv_heads) * part.head_dim)


def _rotates(plan: Plan, part: Attention) -> bool:
    published = plan.stack.activations.published_code and not plan.training.compile
    rotary = plan.model.positions == "rotary" and part.rotary
    return published and rotary and not plan.fused_rotary
