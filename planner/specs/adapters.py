"""Parameter-efficient fine-tuning: low-rank adapters beside frozen matrices (LoRA, arXiv
2106.09685; rsLoRA, 2312.03732; DoRA, 2402.09353), or the last layers only.

Targets are words for matrices: the words of Hugging Face PEFT, torchtune and Megatron-Bridge, and
three for many at once. A matrix that several words name has one adapter.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import Field

from planner.specs.base import Names, Spec
from planner.specs.names import AdapterMethod, GradientType
from planner.specs.parts import Mlp, Moe, Part, Product, Stream, routed_of
from planner.specs.polynomial import Polynomial

ALL, ATTENTION, MLP, EXPERTS = "all-linear", "attention", "mlp", "experts"
MANY = (ALL, ATTENTION, MLP, EXPERTS)  # words for many matrices at once
_QKV, _GATE = ("q", "k", "v"), ("gate", "up")
# words for one matrix each, of models and trainers: PEFT's
# TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, torchtune's lora_attn_modules, Megatron-Bridge
_ONE: dict[str, tuple[str, ...]] = {
    "q": ("q_proj", "query", "wq", "q_lin"),
    "k": ("k_proj", "key", "wk", "k_lin"),
    "v": ("v_proj", "value", "wv", "v_lin"),
    "o": ("o_proj", "out_proj", "output_proj", "wo", "dense", "linear_proj"),
    "gate": ("gate_proj", "w1"),
    "up": ("up_proj", "w3", "fc1", "fc_in", "c_fc", "dense_h_to_4h"),
    "down": ("down_proj", "w2", "fc2", "fc_out", "dense_4h_to_h", "linear_fc2"),
    "q_a": ("q_a_proj", "linear_q_down_proj"),
    "q_b": ("q_b_proj", "linear_q_up_proj"),
    "kv_a": ("kv_a_proj_with_mqa", "linear_kv_down_proj"),
    "kv_b": ("kv_b_proj", "linear_kv_up_proj"),
    "router": ("router",),
}
ROLES = {word: (role,) for role, words in _ONE.items() for word in words}
# words for matrices that are kept as one, side by side, with one adapter
JOINED = {
    **dict.fromkeys(("qkv_proj", "c_attn", "query_key_value", "wqkv", "linear_qkv"), _QKV),
    **dict.fromkeys(("gate_up_proj", "linear_fc1"), _GATE),
}
# GPT-2 calls two matrices alike, and GPT-NeoX's name of one is too short to be distinguished
_TWO = {"c_proj": ("o", "down"), "attn.c_proj": ("o",), "mlp.c_proj": ("down",)}
WORDS = (*MANY, *ROLES, *JOINED, *_TWO)
_MIXING = ("q", "k", "v", "o", "q_a", "q_b", "kv_a", "kv_b")
_DENSE = ("gate", "up", "down")


class AdapterSpec(Spec):
    """Low-rank adapters: of each adapted matrix (k x n) an A (k x rank) and a B (rank x n)."""

    method: AdapterMethod = "lora"
    rank: int = Field(ge=1, le=65_536)
    targets: Names = Field(default=(ALL,), min_length=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)  # of what A reads
    # type of weights, gradients and moments of adapters; None: as the stack keeps what it trains
    precision: GradientType | None = None
    autocast: bool = True  # casts what adapters in fp32 read back to 16 bit
    # products added inside the GEMMs that make them (fms-acceleration, Unsloth), not apart
    fused: bool = False
    resident: int = Field(default=1, ge=1, le=10_000)  # adapters of every matrix held at once


@dataclass(frozen=True)
class Matrix:
    """A matrix of a layer that may have an adapter. `role`: its function, or roles joined by + of
    matrices stored side by side; `product`: the GEMM that computes it."""

    role: str
    product: str
    k: int
    n: int
    experts: int = 0  # routed experts that have one each; 0: not a matrix of experts
    sides: int = 1  # matrices side by side that have the rank each
    rows: Polynomial | None = None  # that it multiplies, by samples and tokens; None: the tokens
    again: bool = False  # whether it is another use of a matrix before it, which has the adapter

    @property
    def copies(self) -> int:
        """Matrices of this shape; 0 of one that is used again."""
        return 0 if self.again else self.experts or 1

    @property
    def reads_hidden(self) -> bool:
        """Whether its input is the input of the part."""
        return not {"o", "down", "q_b", "kv_b"} & set(self.role.split("+"))


def target_words(text: str) -> list[str]:
    """Words of `--lora-targets`, joined by + or, as trainers' own arguments are, by commas."""
    return [word.strip().lower() for word in re.split("[+,]", text)]


def matrices(part: Part, stream: Stream) -> Iterator[Matrix]:
    """The matrices of a part, each its own."""
    for product in part.products(stream):
        k, n = product.k, product.n.elements
        if product.pixels is not None or product.groups > 1:
            continue  # of a traced block: a convolution, or experts
        if product.name == "q_kv_down":
            rank = getattr(part, "query_rank", None) or 0
            yield Matrix("q_a", product.name, k, rank)
            yield Matrix("kv_a", product.name, k, n - rank)
            continue
        roles = _roles(part, product)
        each, unshared = n * product.times // len(roles), product.times - product.shared
        for number, role in enumerate(roles):
            again = number * product.times >= unshared * len(roles)
            yield Matrix(role, product.name, k, each, rows=product.rows, again=again)
    if (moe := routed_of(part, stream.hidden)) is not None:
        read = moe.read(stream.hidden)
        for role in _inputs(moe):
            yield Matrix(role, "expert_in", read, moe.ffn_hidden, moe.experts)
        yield Matrix("down", "expert_out", moe.ffn_hidden, read, moe.experts)


_PRODUCTS = {
    "attention_out": "o",
    "mlp_out": "down",
    "shared_out": "down",
    "kv_down": "kv_a",
    "q_up": "q_b",
    "kv_up": "kv_b",
}


def _inputs(part: Mlp | Moe) -> tuple[str, ...]:
    """Roles of the matrices that read the input of an MLP or an expert."""
    return _GATE if part.gated else ("up",)


def _roles(part: Part, product: Product) -> tuple[str, ...]:
    """Roles of the matrices of a product."""
    if product.name in ("mlp_in", "shared_in") and isinstance(part, Mlp | Moe):
        return _inputs(part)
    if product.name == "kv":
        return ("k", "v")[: product.times]
    if product.rows is not None:  # of a traced block, by the name of its module
        return ROLES.get(product.name, (product.name,)) * product.times
    return (_PRODUCTS.get(product.name, product.name),) * product.times


def adapted(
    part: Part, stream: Stream, spec: AdapterSpec, joint: tuple[bool, bool] = (False, False)
) -> tuple[Matrix, ...]:
    """The matrices of a part that have adapters. joint: whether queries, keys and values, and gate
    and up are one matrix each where a word for many names them.

    Gate and up of experts are one tensor in transformers 5, of whose adapters PEFT 0.21 doubles
    the rank.
    """
    alone = {role for word in spec.targets for role in ROLES.get(word, ())}
    kept = [roles for roles, fused in zip((_QKV, _GATE), joint, strict=True) if fused]
    named = [JOINED[word] for word in spec.targets if word in JOINED]
    wide = [roles for roles in named if roles in kept or not alone & set(roles)]
    targeted = [matrix for matrix in matrices(part, stream) if _is_asked(matrix, spec, wide)]
    if any(word in MANY for word in spec.targets):
        wide += kept
    out: list[Matrix] = []
    for matrix in targeted:
        last, apart = out[-1] if out else None, matrix.experts > 0 and _GATE not in wide
        if last is not None and _beside(last, matrix, [_GATE] if apart else wide):
            sides = last.sides + apart
            role, n = f"{last.role}+{matrix.role}", last.n + matrix.n
            out[-1] = replace(last, role=role, n=n, sides=sides)
        else:
            out.append(matrix)
    return tuple(out)


_SAME = ("k", "experts", "rows", "again")


def _beside(last: Matrix, matrix: Matrix, wide: list[tuple[str, ...]]) -> bool:
    """Whether a matrix is kept beside the one before it."""
    same = all(getattr(last, name) == getattr(matrix, name) for name in _SAME)
    return same and any(
        matrix.role in roles and last.role.split("+")[-1] in roles for roles in wide
    )


def _is_asked(matrix: Matrix, spec: AdapterSpec, wide: list[tuple[str, ...]]) -> bool:
    """Whether a word of the targets names a matrix."""
    many = {
        ALL: True,
        ATTENTION: matrix.role in _MIXING,
        MLP: matrix.role in _DENSE,
        EXPERTS: matrix.experts > 0,
    }
    for word in spec.targets:
        if (
            many.get(word)
            or matrix.role in ROLES.get(word, ())
            or matrix.role in _TWO.get(word, ())
        ):
            return True
    return any(matrix.role in roles for roles in wide)


def adapter_elements(matrix: Matrix, spec: AdapterSpec) -> int:
    """Elements trained beside a matrix: A and B, and of DoRA a magnitude per column."""
    magnitude = matrix.n if spec.method == "dora" else 0
    return matrix.copies * (matrix.sides * spec.rank * (matrix.k + matrix.n) + magnitude)


def adapts_experts(part: Part | None, stream: Stream, spec: AdapterSpec) -> bool:
    """Whether routed experts have adapters; part: the model's routed experts."""
    return part is not None and any(matrix.experts for matrix in adapted(part, stream, spec))
