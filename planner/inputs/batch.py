"""The global batch of a request that names none: one rule for every verb.

It is the batch that the authors of the model published, else the tokens of Llama 2, in sequences of
the request's length; of fine-tuning a few sequences. The number of GPUs only rounds it, so that
layouts divide it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from planner.formulas.divisors import divisors
from planner.inputs import catalog
from planner.inputs.degrees import LEAST_MAX_TP, contexts_of, stages_of
from planner.inputs.fine_tuning import (
    BATCH_SOURCE,
    USUAL_BATCH,
    is_fine_tuning,
    replicas,
    usual_batch,
)
from planner.inputs.usual import tried
from planner.ledger import Array
from planner.specs.capabilities import values
from planner.specs.layers import of_samples, shared_heads
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.published import Published
from planner.specs.stack import StackSpec
from planner.units import show

BATCH_TOKENS = 4 * 2**20  # tokens per step where no batch is published: Llama 2's
BATCH_SAMPLES = 1024  # of models that count images, clips or sounds
_BATCH_SOURCE = "the 4 Mi tokens of Llama 2 are taken, arXiv 2307.09288 table 1"
# a batch is rounded by up to this share, so that more data-parallel degrees divide it. A choice:
# 15 x 2^k is 6.7 % from the next power of two, and stays as it was published
ROUNDING = 0.05
# tokens of a context-parallel rank where a default batch has to suit it: only of long sequences
_LONG = 8192
_STEPS = 4096  # batches that are compared are at least this share of the wanted one apart


@dataclass(frozen=True)
class Batch:
    """A default global batch: sequences per step, and the tokens that were wanted, with their
    source."""

    sequences: int
    seq_len: int
    wanted_tokens: float
    source: str
    published: bool
    samples: str = "sequences"
    moved: str = ""  # why it is not the wanted number

    @property
    def tokens(self) -> int:
        return self.sequences * self.seq_len

    @property
    def sentence(self) -> str:
        """The default as an assumption."""
        moved = f"; {self.moved}" if self.moved else ""
        tokens = f" ({show(self.tokens, 'count')} tokens)" if self.seq_len > 1 else ""
        size = f"{self.sequences:,} {self.samples}{tokens}"
        return f"global batch {size}: {self.source}{moved} (set --global-batch)"


def default_batch(options: Options, model: ModelSpec, seq_len: int) -> Batch:
    """The global batch of one request that names none."""
    return default_batches([options], model, seq_len)[0]


def default_batches(requests: Sequence[Options], model: ModelSpec, seq_len: int) -> list[Batch]:
    """A global batch for each of these requests of one model and sequence length: the same for all
    of which some layout divides one near the wanted number of tokens, else each its own."""
    if any(map(is_fine_tuning, requests)) and not of_samples(model):
        return _of_fine_tuning(requests, model, seq_len)
    tokens, source, published = _wanted(model, seq_len)
    wanted = tokens / seq_len
    sizes = _near(wanted)
    degrees = [_replicas(options, model, seq_len) for options in requests]
    possible = np.array([_divides(sizes, replicas) for replicas in degrees])
    common = _roundest(wanted, sizes, possible.sum(axis=0, dtype=int), requests)
    out = []
    for options, multiples in zip(requests, degrees, strict=True):
        taken = common
        if not _divides(np.array([common]), multiples)[0]:
            taken = min(
                (size * max(1, round(wanted / size)) for size in multiples),
                key=lambda size: (abs(size - wanted), size),
            )
        moved = _moved(taken * seq_len, tokens, options.gpus)
        out.append(Batch(taken, seq_len, tokens, source, published, model.samples, moved))
    return out


def _of_fine_tuning(requests: Sequence[Options], model: ModelSpec, seq_len: int) -> list[Batch]:
    """The largest of the usual batches where all of these requests divide it, else each its own."""
    sizes = [usual_batch(options) for options in requests]
    each = [replicas(options) for options in requests]
    common = max(sizes) if all(max(sizes) % count == 0 for count in each) else None
    wanted = float(USUAL_BATCH * seq_len)
    return [
        Batch(common or size, seq_len, wanted, BATCH_SOURCE, False, model.samples) for size in sizes
    ]


@cache
def published() -> dict[str, Published]:
    """How models of the catalogue were trained, by their ids."""
    tables = catalog.tables("models", "published").items()
    return {name: Published.model_validate(table) for name, table in tables}


def title_of(name: str) -> str:
    """Title of a model of the catalogue."""
    model = catalog.load("models", ModelSpec, name)
    return model.title or model.name


@cache
def largest_published() -> tuple[str, int]:
    """The model of the catalogue that was trained with the largest batch, and its tokens."""
    tokens = {name: each.batch_tokens or 0.0 for name, each in published().items()}
    largest = max(tokens, key=tokens.__getitem__)
    return title_of(largest), int(tokens[largest])


def _wanted(model: ModelSpec, seq_len: int) -> tuple[float, str, bool]:
    """Tokens per step, where they come from, and whether the model's authors published them."""
    published, tokens = model.published.batch, model.published.batch_tokens
    if model.sample and published is None:
        why = f"none is published for {model.name}; a choice, as most networks of images have"
        return float(BATCH_SAMPLES * seq_len), why, False
    if published is None or tokens is None:
        return float(BATCH_TOKENS), f"none is published for {model.name}, {_BATCH_SOURCE}", False
    ramp = f", {published.ramp}" if published.ramp else ""
    return tokens, f"as {model.name} was trained{ramp} ({published.source})", True


def _near(wanted: float) -> Array:
    """Whole batches within ROUNDING of the wanted one, the nearest among them first."""
    nearest = max(1, round(wanted))
    step = 2 ** max(0, math.floor(math.log2(nearest / _STEPS)))
    low, high = (math.ceil(wanted * (1 + way) / step) for way in (-ROUNDING, ROUNDING))
    multiples = step * np.arange(max(1, low), high)
    return np.array([nearest, *multiples[multiples != nearest]], int)


def _replicas(options: Options, model: ModelSpec, seq_len: int) -> tuple[int, ...]:
    """Sequences that some layout of a request computes at a time: what the batch must be a
    multiple of. Every batch where the degrees do not divide its GPUs."""
    micro = options.micro_batch or 1
    if options.dp is not None:
        return (options.dp * micro,)
    stacks = [
        catalog.load("stacks", StackSpec, name)
        for name in ([options.stack] if options.stack else {name for name, _ in tried(options)})
    ]
    able = {name for name in ("tp", "pp", "cp") if any(values(stack, name) for stack in stacks)}
    heads = divisors(shared_heads(model))
    tensor = [t for t in heads if t <= LEAST_MAX_TP] if "tp" in able else [1]
    stages = stages_of(model.layers, options.uneven_stages) if "pp" in able else [1]
    context = contexts_of(seq_len, max(1, seq_len // _LONG)) if "cp" in able else [1]
    inside = {
        t * p * c
        for t in ([options.tp] if options.tp else tensor)
        for p in ([options.pp] if options.pp else stages)
        for c in ([options.cp] if options.cp else context)
    }
    return tuple(sorted({options.gpus // n * micro for n in inside if options.gpus % n == 0})) or (
        1,
    )


def _divides(sizes: Array, replicas: Sequence[int]) -> Array:
    """Which batches some layout can split."""
    return (sizes[:, None] % np.array(replicas) == 0).any(axis=1)


def _roundest(wanted: float, sizes: Array, possible: Array, requests: Sequence[Options]) -> int:
    """The roundest batch among those that most requests have a layout for (possible: their number):
    the wanted one where it is whole and all odd parts of the GPUs divide it, else the one that
    shares most with them, then with powers of two."""
    odd = [options.gpus // (options.gpus & -options.gpus) for options in requests]
    exact = sizes[0] == wanted and possible[0] == possible.max()
    if exact and all(sizes[0] % part == 0 for part in odd):
        return int(sizes[0])
    shared = sum((np.log2(np.gcd(sizes, part)) for part in odd), np.zeros(len(sizes)))
    order = np.lexsort((abs(sizes - wanted), -(sizes & -sizes), -shared, -possible))
    return int(sizes[order[0]])


def _moved(taken_tokens: int, wanted_tokens: float, gpus: int) -> str:
    """Why a batch is not of the wanted number of tokens."""
    change = taken_tokens / wanted_tokens - 1
    wanted = f"{show(wanted_tokens, 'count')} tokens"
    if abs(change) > ROUNDING:
        return f"{change:+.0%} from {wanted}, which no layout on {gpus:,} GPUs divides"
    return f"rounded from {wanted}" if change else ""
