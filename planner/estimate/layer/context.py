"""How ranks of context parallelism share a sequence, and what they send each other.

Ring: keys and values pass around while attention works on the block at hand; partial results are
merged. All-gather: every rank has all keys and values before it begins. Ulysses: all-to-alls give
each rank whole sequences of a share of the heads, and back (Jacobs et al. 2023, arXiv 2309.14509).
Hybrid: Ulysses inside a node, a ring between those groups (Fang and Zhao 2024, arXiv 2405.07719).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate
from planner.estimate.communicate import (
    Between,
    Calls,
    Collective,
    Group,
    collective,
    place,
    share_of,
)
from planner.estimate.layer.operators import stream_s
from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.ledger import Array
from planner.specs.layers import attended_of
from planner.specs.names import ContextWay
from planner.specs.parts import Attended
from planner.specs.plan import Plan

_RING_HIDDEN = 0.7  # share of attention that can hide the next keys and values; assumed
# keys and values travel forward; backward they travel again, with their gradients
_RING_PASSES = BothWays(1.0, 2.0)
# a block of n queries and n keys, of which the balanced order of tokens leaves three quarters on
# average, is to the kernel what 1.5 n tokens under the causal mask are; own derivation
_BLOCK_TOKENS = 1.5
# bytes moved per element where a block's result joins those before it: its output (2) is added into
# an fp32 sum (read 4, write 4); backward the gradients of queries, and of keys and values, are
# added in 16 bit. Three quarters of a block, as above; own count
_MERGED = BothWays(7.5, 4.5)
_MERGE_KERNELS = BothWays(3.0, 3.0)
_STATE_CALLS = 2.0  # what is read, together; the output
_ULYSSES_CALLS = 4.0  # queries, keys, values; the output


@dataclass(frozen=True)
class Split:
    """Degrees of context parallelism: ranks that share the heads, and ranks that share tokens."""

    heads: Array
    tokens: Array


def _between(label: str, group: Group) -> Between:
    return Between("context", label, "context_parallel", group)


def split(plan: Plan, tp: Array, cp: Array) -> Split:
    """How the plan's way divides a context-parallel group."""
    ones = np.ones_like(1.0 * cp)
    way: ContextWay = plan.context_way
    if way == "ulysses":
        return Split(1.0 * cp, ones)
    if way == "hybrid":
        return Split(_heads_of_hybrid(plan, tp, cp), cp / _heads_of_hybrid(plan, tp, cp))
    return Split(ones, 1.0 * cp)


def _heads_of_hybrid(plan: Plan, tp: Array, cp: Array) -> Array:
    """Ranks of Ulysses in a hybrid: as many as divide the key and value heads of a rank and fit
    beside each other in a node."""
    heads = math.gcd(*(core.kv_heads or core.heads for core, _ in attended_of(plan.model)), 0)
    kv_heads = np.maximum(np.floor(heads / tp), 1.0).astype(np.int64)
    room = np.maximum(np.floor(plan.cluster.nvlink_domain / tp), 1.0).astype(np.int64)
    shared = np.gcd(kv_heads, np.asarray(cp).astype(np.int64))
    return 1.0 * np.gcd(shared, room)


def block_tokens(shape: LayerShape, core: Attended, tokens: float) -> Array:
    """Tokens under the causal mask to which one call of the kernel corresponds; `tokens` where no
    ring divides the keys."""
    return np.minimum(_BLOCK_TOKENS * tokens / blocks_of(shape, core), tokens)


def blocks_of(shape: LayerShape, core: Attended) -> Array:
    """Blocks of keys, each a call of the kernel: one where keys are on every rank."""
    return np.ones_like(1.0 * shape.cp) if core.apart else ring_ranks(shape)


def ring_ranks(shape: LayerShape) -> Array:
    """Ranks around which keys and values pass, each block of which is a call of the kernel."""
    if shape.plan.context_way not in ("ring", "hybrid"):
        return np.ones_like(1.0 * shape.cp)
    return split(shape.plan, shape.tp, shape.cp).tokens


def merge_s(shape: LayerShape, m: Machine) -> BothWays[Array]:
    """Seconds in which a ring merges its blocks' results."""
    if shape.plan.context_way not in ("ring", "hybrid"):
        return BothWays(0.0, 0.0)
    ways = split(shape.plan, shape.tp, shape.cp)
    more = ways.tokens - 1.0
    queries, keys = _widths(shape, ways.heads)
    sums = BothWays(queries / 2, queries / 2 + keys)

    def pass_s(elements: Array, each: float, kernels: float) -> Array:
        time = stream_s(shape.plan, m, each * elements * more, 0.0)
        return time + kernels * more * m.kernel_gap

    tokens = shape.tokens * ways.heads
    return BothWays(
        pass_s(tokens * sums.forward, _MERGED.forward, _MERGE_KERNELS.forward),
        pass_s(tokens * sums.backward, _MERGED.backward, _MERGE_KERNELS.backward),
    )


def _widths(shape: LayerShape, sharing: Array) -> tuple[Array, Array]:
    """Elements per token of queries and output together, and of keys and values together, of one
    rank of `sharing` that divide the heads. A rank has a whole head of keys and values at least:
    where there are more ranks than those heads, they are repeated."""
    mix, ranks = shape.mix, shape.tp * sharing
    queries, keys = 0.0 * ranks, 0.0 * ranks
    for core, count in mix.attended:
        if core.apart:
            continue
        share, width = count / mix.layers, float(core.query_width + core.value_width)
        kv_heads = core.kv_heads or core.heads
        queries = queries + share * (core.heads * width / ranks)
        keys = keys + share * (np.maximum(kv_heads / ranks, 1.0) * width)
    return queries, keys


def exchanges(shape: LayerShape, m: Machine, core: BothWays[Array]) -> tuple[Collective, ...]:
    """Exchanges between the ranks of a context-parallel group. core: seconds of attention."""
    way = shape.plan.context_way
    result: tuple[Collective, ...] = _states(shape, m)
    if all(core.apart for core, _ in shape.mix.attended):
        return result
    if way in ("ulysses", "hybrid"):
        result += (_all_to_all(shape, m),)
    if way in ("ring", "hybrid"):
        result += (_ring(shape, m, core),)
    if way == "all-gather":
        result += _gathers(shape, m)
    return result


def _all_to_all(shape: LayerShape, m: Machine) -> Collective:
    """Queries, keys and values before attention and its output after it, exposed; likewise their
    gradients. Bytes of keys and values include repeated heads."""
    plan = shape.plan
    sharing = split(plan, shape.tp, shape.cp).heads
    group = place(sharing, shape.tp, plan.cluster.tiers)
    queries, keys = _widths(shape, sharing)
    whole = plan.training.element_bytes * shape.tokens * sharing * (queries + keys)
    each = communicate.even_all_to_all_s(m, whole / _ULYSSES_CALLS, group)
    calls = np.where(sharing > 1, _ULYSSES_CALLS, 0.0)
    sent = whole / _ULYSSES_CALLS
    return collective(_between("heads", group), "all_to_all", sent, each, Calls(calls, calls))


def _states(shape: LayerShape, m: Machine) -> tuple[Collective, ...]:
    """Layers with a state carried from token to token: all-to-alls give each rank whole sequences
    of a share of the heads, and back, independent of the method of attention (MambaContextParallel
    of Megatron-LM); likewise for gradients."""
    plan, mix = shape.plan, shape.mix
    read = sum(core.read_elements * n for core, n in mix.scans) / mix.layers
    if not read:
        return ()
    group = place(shape.cp, shape.tp, plan.cluster.tiers)
    whole = plan.training.element_bytes * shape.tokens * shape.cp * read / shape.tp
    each = communicate.even_all_to_all_s(m, whole / _STATE_CALLS, group)
    share = sum(n for _, n in mix.scans) / mix.layers
    calls = np.where(shape.cp > 1, _STATE_CALLS * share, 0.0)
    between, sent = _between("heads of recurrent layers", group), whole / _STATE_CALLS
    return (collective(between, "all_to_all", sent, each / share, Calls(calls, calls)),)


def _keys(shape: LayerShape) -> tuple[Array, Group]:
    """Bytes of the keys and values of all ranks that share tokens, and those ranks."""
    plan = shape.plan
    ways = split(plan, shape.tp, shape.cp)
    each = sum(
        _per_token(shape, core, ways.heads) * (count / shape.mix.layers)
        for core, count in shape.mix.attended
    )
    local_bytes = plan.training.element_bytes * shape.tokens * ways.heads * each
    ring = place(ways.tokens, shape.tp * ways.heads, plan.cluster.tiers)
    return local_bytes * ways.tokens, ring


def _per_token(shape: LayerShape, core: Attended, sharing: Array) -> Array:
    """Elements of keys and values that a rank sends: of a latent model the compressed vector,
    unless heads were shared out before; nothing where they are another layer's."""
    if not core.own_kv or core.apart:
        return 0.0 * sharing
    if core.sent and shape.plan.context_way != "hybrid":
        return float(core.sent) + 0.0 * sharing
    ranks, width = shape.tp * sharing, float(core.query_width + core.value_width)
    if core.sent:
        return np.maximum((core.kv_heads or core.heads) / ranks, 1.0) * width
    return core.kv_heads * width / ranks


def _ring(shape: LayerShape, m: Machine, core: BothWays[Array]) -> Collective:
    """Keys and values pass around a ring while attention works on the part at hand."""
    keys, ring = _keys(shape)
    each = communicate.all_gather_s(m, keys, ring)
    once = np.where(ring.ranks > 1, 1.0, 0.0)
    hides = 0.0 if shape.plan.training.overlap is False else _RING_HIDDEN

    def exposed(beside_s: Array) -> Array:
        """Share of one pass around the ring that attention on the part at hand does not hide."""
        rest = np.maximum(each - hides * beside_s, 0.0)
        return share_of(once * (rest + m.slowdown * np.minimum(each, beside_s)), each)

    forward = _RING_PASSES.forward * exposed(core.forward)
    backward = _RING_PASSES.backward * exposed(core.backward / _RING_PASSES.backward)
    passes = _RING_PASSES.forward + _RING_PASSES.backward
    return collective(
        _between("keys and values", ring),
        "all_gather",
        keys,
        each,
        Calls(forward, backward, np.maximum(passes * once - forward - backward, 0.0), once),
    )


def _gathers(shape: LayerShape, m: Machine) -> tuple[Collective, ...]:
    """Keys and values are gathered before attention, again before its backward pass, and their
    gradients reduced after it; nothing hides them (Llama 3, arXiv 2407.21783 section 3.3.2)."""
    keys, group = _keys(shape)
    once = np.where(group.ranks > 1, 1.0, 0.0)
    sent = _between("keys and values", group)
    summed = _between("gradients of keys and values", group)
    gathered = communicate.all_gather_s(m, keys, group)
    reduced = communicate.reduce_scatter_s(m, keys, group)
    return (
        collective(sent, "all_gather", keys, gathered, Calls(once, once)),
        collective(summed, "reduce_scatter", keys, reduced, Calls(0.0 * once, once, issued=once)),
    )
