"""Numbers of GPUs over which a request's work can divide, before any layout is evaluated."""

from __future__ import annotations

import itertools
import math

from planner.formulas.divisors import divisors
from planner.inputs.degrees import contexts_of, longest_context, stages_of
from planner.inputs.model import model_spec
from planner.inputs.training import sequence_length
from planner.specs.layers import shared_heads
from planner.specs.options import Options


def layout_counts(options: Options, most: int, *, every: bool = False) -> list[int]:
    """GPUs up to `most`, ascending: dp divides the batch, tp the heads, pp the layers, cp the
    sequence.

    What the request fixes is taken as it is. A batch that follows from the accumulation divides
    over any number. every: any number of stages, where they may differ.
    """
    uneven = True if every and options.uneven_stages is None else options.uneven_stages
    model, _ = model_spec(options.model)
    batch = options.global_batch
    replicas = list(range(1, most + 1)) if batch is None else divisors(batch)
    length = sequence_length(options, model)
    products = {1}
    for degrees in (
        [options.tp] if options.tp else divisors(shared_heads(model)),
        [options.pp] if options.pp else stages_of(model.layers, uneven),
        [options.cp] if options.cp else contexts_of(length, longest_context(length)),
        [options.dp] if options.dp else replicas,
    ):
        products = {a * b for a, b in itertools.product(products, degrees) if a * b <= most}
    return sorted(products)


def around(counts: list[int], exact: float, node: int) -> list[int]:
    """Counts that are whole nodes, or divisors of one node, nearest to `exact` first; of two at
    equal distance the smaller."""
    whole = exact >= node
    allowed = (n for n in counts if (n % node == 0 if whole else node % n == 0))
    return sorted(allowed, key=lambda n: (abs(n - exact), n))


def nearer(exact: float, taken: int, node: int) -> list[int]:
    """Whole nodes, or parts of one, that are nearer to `exact` than the count taken, the nearest
    first."""
    far = abs(taken - exact)
    low, high = max(1, math.ceil(exact - far)), math.floor(exact + far)
    between = [n for n in range(low, high + 1) if abs(n - exact) < far]
    return around(between, exact, node)
