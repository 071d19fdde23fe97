"""Parameter counts, leaf by leaf.

Each leaf says where it lives (`place`) and how it is divided (`shard`), so memory, FLOP and traffic
all start here. Counts are exact integers. Symbols: h hidden, a heads, k key/value heads, d head
width, f MLP width, V vocabulary, E experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.specs.model import ModelSpec

Place = Literal["layer", "dense_layer", "moe_layer", "first", "last"]
Shard = Literal["tensor", "replicated", "expert"]


@dataclass(frozen=True)
class Leaf:
    """One parameter tensor (or a few of one kind): elements per occurrence, occurrences in the
    model."""

    name: str
    count: int
    place: Place
    shard: Shard
    matmul: bool  # a weight of a matrix multiplication, hence 2 FLOP per token and element
    active_frac: tuple[int, int] = (
        1,
        1,
    )  # share of the elements that one token uses (routed experts)

    def occurrences(self, model: ModelSpec) -> int:
        return {
            "layer": model.layers,
            "dense_layer": model.dense_layers,
            "moe_layer": model.moe_layers,
            "first": 1,
            "last": 1,
        }[self.place]


def parameter_leaves(model: ModelSpec) -> list[Leaf]:
    """Every trainable tensor of the model, as Hugging Face transformers counts them (a tied head
    counts once)."""
    h, a, k, d = model.hidden, model.heads, model.kv_heads, model.head_dim
    leaves: list[Leaf] = []

    def add(
        name: str,
        count: int,
        place: Place,
        shard: Shard = "tensor",
        matmul: bool = True,
        active: tuple[int, int] = (1, 1),
    ) -> None:
        if count:
            leaves.append(Leaf(name, count, place, shard, matmul, active))

    def norm(name: str, width: int, place: Place, times: int = 1) -> None:
        add(name, times * width * (2 if model.norm_bias else 1), place, "replicated", False)

    add("embedding/word", model.padded_vocab * h, "first", matmul=False)
    if model.positions == "learned":
        add(
            "embedding/position",
            (model.position_rows or model.max_positions) * h,
            "first",
            "replicated",
            False,
        )
    if model.embedding_norm:
        norm("embedding/norm", h, "first")

    norm("norm/layer", h, "layer", model.norms_per_layer)
    if model.latent is None:
        q, kv = a * d, 2 * k * d
        add("attention/qkv", h * (q + kv), "layer")
        add("attention/qkv_bias", (q + kv) * model.bias_qkv, "layer", matmul=False)
        add("attention/out", q * h, "layer")
        if model.qk_norm == "per_head":
            norm("attention/qk_norm", d, "layer", 2)
        elif model.qk_norm == "full":
            norm("attention/qk_norm", q + k * d, "layer")
    else:
        mla = model.latent
        q_width = a * (mla.nope_head_dim + mla.rope_head_dim)
        if mla.query_rank is None:
            add("attention/q", h * q_width, "layer")
        else:
            add("attention/q_down", h * mla.query_rank, "layer", "replicated")
            norm("attention/q_norm", mla.query_rank, "layer")
            add("attention/q_up", mla.query_rank * q_width, "layer")
        add("attention/kv_down", h * (mla.kv_rank + mla.rope_head_dim), "layer", "replicated")
        norm("attention/kv_norm", mla.kv_rank, "layer")
        add("attention/kv_up", mla.kv_rank * a * (mla.nope_head_dim + mla.value_head_dim), "layer")
        add("attention/out", a * mla.value_head_dim * h, "layer")
    add("attention/out_bias", h * model.bias_attention_out, "layer", "replicated", False)

    matrices = model.mlp_inputs + 1
    if model.dense_layers:
        add("mlp/weights", matrices * h * model.ffn_hidden, "dense_layer")
        add(
            "mlp/bias_in",
            (matrices - 1) * model.ffn_hidden * model.bias_mlp,
            "dense_layer",
            matmul=False,
        )
        add("mlp/bias_out", h * model.bias_mlp, "dense_layer", "replicated", False)
    if model.moe is not None and model.moe_layers:
        moe = model.moe
        share = (moe.experts_per_token, moe.experts)
        add("moe/router", h * moe.experts, "moe_layer", "replicated")
        add(
            "moe/experts",
            moe.experts * matrices * h * moe.ffn_hidden,
            "moe_layer",
            "expert",
            active=share,
        )
        bias_in, bias_out = (matrices - 1) * model.bias_mlp, h * model.bias_mlp
        biases = moe.experts * (bias_in * moe.ffn_hidden + bias_out)
        add("moe/experts_bias", biases, "moe_layer", "expert", matmul=False, active=share)
        add("moe/shared", matrices * h * moe.shared_ffn_hidden, "moe_layer")
        if moe.shared_ffn_hidden:
            add("moe/shared_bias_in", bias_in * moe.shared_ffn_hidden, "moe_layer", matmul=False)
            add("moe/shared_bias_out", bias_out, "moe_layer", "replicated", False)
        add("moe/shared_gate", h * moe.shared_gate, "moe_layer", "replicated")

    if model.final_norm:
        norm("head/norm", h, "last")
    if not model.tied_embeddings:
        add("head/logits", model.padded_vocab * h, "last")
    add("head/bias", model.padded_vocab * model.bias_head, "last", matmul=False)
    return leaves


def parameter_count(model: ModelSpec) -> int:
    """All parameters of the model, exact."""
    return sum(leaf.count * leaf.occurrences(model) for leaf in parameter_leaves(model))


def active_parameter_count(model: ModelSpec) -> int:
    """Parameters that take part in the forward pass of one token (top-k of the experts), exact."""
    return sum(
        leaf.count * leaf.active_frac[0] // leaf.active_frac[1] * leaf.occurrences(model)
        for leaf in parameter_leaves(model)
    )
