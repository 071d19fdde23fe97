"""The table of words and the head of a language model, where a trace shows both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from planner.trace.classes import GEMM, Call
from planner.trace.divide import TOKENS
from planner.trace.regions import OUTSIDE, Recorded, Region

_Place = tuple[int, int]  # of an operator: its region, and its place there
_FEWEST_WORDS = 256
_MATRIX = 2


@dataclass(frozen=True)
class Head:
    """A table of words and the product with it, or with one as large, that ends the model."""

    vocab: int
    hidden: int
    tied: bool
    bias: bool
    weights: tuple[str, ...]  # of table and head
    region: int  # in which the head is

    def keys(self) -> dict[str, Any]:
        """Keys of a model file."""
        return {
            "vocab": self.vocab,
            "hidden": self.hidden,
            "tied_embeddings": self.tied,
            "bias_head": self.bias,
        }


def recognised(
    module: nn.Module, output: Any, steps: Sequence[Recorded], sizes: Sequence[tuple[int, int]]
) -> Head | None:
    """The head, whose operators and parameters are taken out of the steps; None where the last
    output is not one logit per token and word of an embedding."""
    logits = next((x for x in tree_iter(_plain(output)) if isinstance(x, torch.Tensor)), None)
    if logits is None or logits.dim() <= _MATRIX or logits.shape[:_MATRIX] != sizes[-1]:
        return None
    vocab = logits.shape[-1]
    tables = [
        x for x in module.modules() if isinstance(x, nn.Embedding) and x.num_embeddings == vocab
    ]
    names = {id(weight): name for name, weight in module.named_parameters()}
    if vocab < _FEWEST_WORDS or len(tables) != 1:
        return None
    table = tables[0]
    heads = [
        _head_of(step, vocab, table.embedding_dim, size)
        for step, size in zip(steps, sizes, strict=True)
    ]
    if any(each is None for each in heads) or sizes[0][1] == 1:
        return None
    last = [each for each in heads if each is not None]
    weight = str(last[0][1].words["weight"])
    tied = weight == names.get(id(table.weight))
    bias = bool(last[0][1].words.get("bias"))
    ends = _ends(steps, [call for _, call in last], names[id(table.weight)])
    for step, each, (region, call) in zip(steps, ends, last, strict=True):
        rows = vocab * table.embedding_dim
        step.regions[step.owner[names[id(table.weight)]]].parameters -= rows
        _taken(step, region, call, each)
        region.parameters -= rows * (not tied) + vocab * bias
    weights = names[id(table.weight)], weight
    return Head(vocab, table.embedding_dim, tied, bias, weights, steps[0].regions.index(last[0][0]))


def _plain(output: Any) -> Any:
    return output.to_tuple() if hasattr(output, "to_tuple") else output


def _head_of(
    step: Recorded, vocab: int, hidden: int, size: tuple[int, int]
) -> tuple[Region, Call] | None:
    """The last product forward, where it gives the logits of all tokens."""
    last: tuple[Region, Call] | None = None
    for region in step.regions:
        for call in region.calls:
            if call.kind == GEMM and not call.backward:
                last = region, call
    if last is None or last[0].name:
        return None
    n = last[1].numbers
    wide = (n["m"], n["k"], n["n"]) == (size[0] * size[1], hidden, vocab)
    return last if wide else None


def _ends(steps: Sequence[Recorded], heads: Sequence[Call], table: str) -> list[set[_Place]]:
    """Where each step looks words up and multiplies with the head, both ways. Logits of as many
    tokens as the model is wide have the size of the table: of steps that run the same operators,
    places that all have."""
    ends = [
        {
            (i, at)
            for i, region in enumerate(step.regions)
            # what a block makes may have as many elements as there are words
            if region.name == OUTSIDE or i == step.owner[table]
            for at, call in enumerate(region.calls)
            if call is head or _of_ends(call, head, table)
        }
        for step, head in zip(steps, heads, strict=True)
    ]
    if len({tuple(len(region.calls) for region in step.regions) for step in steps}) > 1:
        return ends
    return [set.intersection(*ends)] * len(ends)


def _taken(step: Recorded, region: Region, head: Call, ends: set[_Place]) -> None:
    """Takes out the lookup of words and the head, both ways, and what head keeps of its input: the
    planner has a model of both, and of the loss."""
    for i, each in enumerate(step.regions):
        each.calls = [call for at, call in enumerate(each.calls) if (i, at) not in ends]
    saved = head.numbers["m"] * head.numbers["k"]
    region.saved = max(region.saved - saved, 0)
    region.fused_saved = max(region.fused_saved - saved, 0)
    for name in ("saved", "fused_saved"):
        if shares := region.shares.get(TOKENS):
            shares[name] = max(shares[name] - saved, 0)


def _of_ends(call: Call, head: Call, table: str) -> bool:
    """Whether an operator looks words up, or computes a gradient of the table, of the head, or of
    either's input."""
    if not call.backward:
        return call.operator == "embedding" and call.words["weight"] == table
    n, sizes = call.numbers, [head.numbers[name] for name in ("m", "k", "n")]
    if call.kind == GEMM:
        return sorted((n["m"], n["k"], n["n"])) == sorted(sizes)
    _, hidden, vocab = sizes
    return n.get("made") in (vocab, vocab * hidden)
