"""Activations of a part with frozen matrices, and of adapters beside it.

As autograd saves of PEFT's layers in transformers (tests/test_adapters.py): a frozen matrix keeps
no input, the kernels between keep what they did.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.estimate.quantised import base_of
from planner.estimate.state_types import state_of
from planner.formulas.experts import tensor_of
from planner.formulas.params import stream_of
from planner.ledger import Array, Ledger
from planner.specs.adapters import AdapterSpec, Matrix, adapted
from planner.specs.columns import Columns
from planner.specs.parts import Mlp, Moe, Part
from planner.specs.plan import Plan

_INPUTS = ("attention/input", "latent/input", "mlp/input", "moe/input")
_WIDE_BYTES = 4.0
_FACTORS = 2.0  # of the product of a gated MLP: what gate and up give
_DORA_OUTPUTS = 2.0  # of matrix and adapter, for the gradient of the magnitudes


def own_copy_bytes(plan: Plan, spec: AdapterSpec) -> float:
    """Bytes per element of the copy of its input that an adapter keeps: a dropped one, or one in
    the type of the adapter, which autocast brings back to 16 bit for torch's GEMMs, while a fused
    kernel keeps what it is given; 0: it keeps the input itself."""
    # weights that a stack keeps in fp32 under autocast are read so
    stated = spec.precision == "fp32" or (spec.precision is None and state_of(plan).cast_copy)
    wide = stated and plan.training.mixed_precision
    cast = wide or plan.stream_bytes > plan.training.element_bytes
    if spec.dropout == 0 and (plan.fused_adapters or not cast):
        return 0.0
    casts = spec.autocast and not plan.fused_adapters
    return _WIDE_BYTES if wide and not casts else plan.training.element_bytes


def kept(plan: Plan, c: Columns, part: Part, usual: Ledger, tokens: tuple[Array, Array]) -> Ledger:
    """The ledger of a part with frozen matrices, adapters, if any, a leaf of it. tokens: of the
    rank, and copies of them for routed experts."""
    spec, base = plan.training.adapter, base_of(plan)
    if base is not None and base.keeps_input:
        wider = plan.stream_bytes / plan.training.element_bytes
        inputs = [name for name in (*_INPUTS, "moe/routed") if name in usual]
        out = {**usual} | {name: wider * usual[name] for name in inputs}
    else:
        out = _without_inputs(plan, c, part, usual, tokens)
    if spec is None:
        return out
    adapted_matrices = adapted(part, stream_of(plan.model), spec, plan.joint)
    return out | {
        "adapters": sum(
            (_adapter(plan, c, matrix, tokens) for matrix in adapted_matrices), 0.0 * c.tp
        )
    }


def _without_inputs(
    plan: Plan, c: Columns, part: Part, usual: Ledger, tokens: tuple[Array, Array]
) -> dict[str, Array]:
    """The ledger of a part whose frozen matrices keep no input."""
    spec = plan.training.adapter
    matrices = () if spec is None else adapted(part, stream_of(plan.model), spec, plan.joint)
    copy = 0.0 if spec is None else own_copy_bytes(plan, spec)
    read = () if copy else matrices  # what reads an input that is kept as it is
    out = dict(usual)
    if not any(matrix.reads_hidden and not matrix.experts for matrix in read):
        out |= {name: 0.0 * out[name] for name in _INPUTS if name in out}
    if "moe/routed" in out and not any(matrix.reads_hidden and matrix.experts for matrix in read):
        out["moe/routed"] = 0.0 * out["moe/routed"]
    if "attention/joined" in out and not any("o" in matrix.role.split("+") for matrix in read):
        out["attention/joined"] = 0.0 * out["attention/joined"]
    for name, elements in _products(c, part, tokens).items():
        routed = name == "moe/activated"
        if name in made_again(plan, matrices):
            out[name] = _FACTORS * plan.stream_bytes * elements
        elif not any("down" in matrix.role and (matrix.experts > 0) == routed for matrix in read):
            out[name] = np.maximum(out[name] - plan.stream_bytes * elements, 0.0)
    return out


def made_again(plan: Plan, matrices: Sequence[Matrix]) -> tuple[str, ...]:
    """Leaves whose product backward makes again of its factors, over which it writes their
    gradients: of a gated MLP whose matrices and adapters are one function (LoRA_MLP of
    unsloth/kernels/fast_lora.py, of which Axolotl and fms-acceleration have copies)."""
    spec = plan.training.adapter
    dense = {role for matrix in matrices if not matrix.experts for role in matrix.role.split("+")}
    whole = {"gate", "up", "down"} <= dense and spec is not None and spec.dropout == 0
    return ("mlp/hidden",) if whole and plan.fused_adapters else ()


def hidden_gradients(plan: Plan, part: Mlp | Moe) -> float:
    """Gradients of hidden elements that are alive at once."""
    # a GELU's output is freed before the gradient of its input comes; a ReLU keeps it, a gated MLP
    # has two such gradients, which Liger writes over the gate's inputs (ops/swiglu.py of
    # linkedin/Liger-Kernel): the gradient of its output is all there is beside them
    spec = plan.training.adapter
    matrices = () if spec is None else adapted(part, stream_of(plan.model), spec, plan.joint)
    over = plan.liger or bool(made_again(plan, matrices))
    in_place = over if part.gated else part.activation == "gelu"
    return 1.0 if in_place else 2.0


def _products(c: Columns, part: Part, tokens: tuple[Array, Array]) -> dict[str, Array]:
    """Elements that the last matrix of an MLP reads, by the leaf they are in; none where they are
    what the activation keeps anyway."""
    if not isinstance(part, Mlp | Moe) or (part.activation == "relu" and not part.gated):
        return {}
    if isinstance(part, Mlp):
        return {"mlp/hidden": tokens[0] * part.ffn_hidden / c.tp}
    return {
        "moe/activated": tokens[1] * part.ffn_hidden,
        "moe/shared": tokens[0] * part.shared_ffn_hidden / c.tp,
    }


def _adapter(plan: Plan, c: Columns, matrix: Matrix, tokens: tuple[Array, Array]) -> Array:
    """Bytes that the adapter of a matrix keeps: what A reads with a mask of a byte, what B reads,
    and of DoRA both outputs."""
    spec, e = plan.training.adapter, plan.training.element_bytes
    if spec is None:
        return 0.0 * c.tp
    ranks = tensor_of(plan, c.tp) if matrix.experts else c.tp
    each = own_copy_bytes(plan, spec) + (spec.dropout > 0)
    width = matrix.k / (1.0 if matrix.reads_hidden else ranks)
    outputs = _DORA_OUTPUTS * e * matrix.n / ranks * (spec.method == "dora")
    rows = tokens[matrix.experts > 0]
    if matrix.rows is not None:
        rows = matrix.rows.at(c.micro_batch, float(plan.training.seq_len))
    return rows * (each * width + e * matrix.sides * spec.rank + outputs)
