"""The blocks of a model as a table: what each has, computes, moves and keeps for backward."""

from __future__ import annotations

from planner.formulas.flops import core_forward_flop
from planner.formulas.params import layer_tensors, parameter_count, parameter_leaves, stream_of
from planner.ledger import Array
from planner.specs.documents.listing import BlockRow, ModelTree
from planner.specs.layers import Kind, layers_of
from planner.specs.model import ModelSpec
from planner.specs.parts import Part, Traced

_COUNTED_BYTES = 2.0  # of an element of the compute precision


def model_tree(model: ModelSpec, length: int | None = None) -> ModelTree:
    """The blocks of a model, for one sample of `length` tokens, by default as it was published."""
    published = model.published.sequence
    tokens = float(length or (published.tokens if published else model.max_positions))
    layers = layers_of(model)
    rows: list[BlockRow] = []
    for kind, count in zip(layers.kinds, layers.counts, strict=True):
        rows.append(_row(model, kind, kind.name, kind.parts, count, tokens))
        if len(kind.parts) > 1:
            rows += [_row(model, kind, f"  {p.name}", (p,), count, tokens) for p in kind.parts]
    ends = [leaf for leaf in parameter_leaves(model) if leaf.place != "layer"]
    if ends:
        head = 2.0 * model.head_rows * model.hidden * tokens
        count = sum(leaf.count * leaf.times for leaf in ends)
        rows.append(BlockRow("table of words and head", "", 1, count, head, None, None, ""))
    return ModelTree(
        name=model.name,
        title=model.title or model.name,
        source=model.source,
        parameters=parameter_count(model),
        layers=model.layers,
        tokens=int(tokens),
        unit=model.samples.removesuffix("s"),
        blocks=rows,
    )


def _row(
    model: ModelSpec, kind: Kind, name: str, parts: tuple[Part, ...], count: int, tokens: float
) -> BlockRow:
    tensors = [x for part in parts for x in part.tensors(stream_of(model, kind))]
    if len(parts) == len(kind.parts):
        tensors = [*layer_tensors(model, kind)]
    weights = sum(
        x.count * x.active_frac[0] / x.active_frac[1] * x.used(tokens) for x in tensors if x.matmul
    )
    cores: Array = sum((core_forward_flop(x, tokens) for p in parts for x in p.core()), start=0.0)
    traced = [part for part in parts if isinstance(part, Traced)]
    whole = len(traced) == len(parts)
    moved = sum(
        float(x.apart[0].at(1.0, tokens) + x.apart[1].at(1.0, tokens))
        for part in traced
        for x in part.moved()
    )
    saved = sum(
        float(_COUNTED_BYTES * part.saved.at(1.0, tokens) + part.saved_bytes.at(1.0, tokens))
        for part in traced
    )
    return BlockRow(
        name,
        ", ".join(dict.fromkeys(part.module for part in traced if part.module)),
        count,
        sum(x.count for x in tensors),
        2.0 * weights + float(cores),
        moved if whole else None,
        saved if whole else None,
        ", ".join(_operators(parts)),
    )


def _operators(parts: tuple[Part, ...]) -> list[str]:
    """Kinds of operators of parts, with the number of those that take most of the time."""
    traced = [part for part in parts if isinstance(part, Traced)]
    gemms = [gemm for part in traced for gemm in part.gemms]
    counts = {
        "GEMM": sum(gemm.times for gemm in gemms if gemm.read is None),
        "convolution": sum(gemm.times for gemm in gemms if gemm.read is not None),
        "product of activations": sum(len(part.multiplied) for part in traced),
    }
    out = [part.type for part in parts if not isinstance(part, Traced)]
    out += [_counted(number, noun) for noun, number in counts.items() if number]
    masks = (x for part in traced for x in part.attention)
    out += [f"attention {x.mask}{f' {x.window}' if x.window else ''}" for x in masks]
    out += [str(x.operators) for part in traced for x in part.moves]
    return [*dict.fromkeys(out)]


def _counted(number: int, noun: str) -> str:
    first, _, rest = noun.partition(" ")
    return " ".join(filter(None, (str(number), first + "s" * (number > 1), rest)))
