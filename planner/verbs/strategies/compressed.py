"""Gradient compression: codes of every codec, the time to make and read them, and the bandwidth
below which it pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate
from planner.estimate.gradients import tensors
from planner.formulas import compression, data_parallel
from planner.ledger import Array
from planner.verbs.strategies.base import FP32_BYTES, Context, Cost, evaluated

_BLOCK = 256.0  # elements that share an fp32 scale in int8 codes
_INDEX_BYTES = 4.0
_ONE_BIT_BLOCK = 1e9  # 1-bit Adam: one scale per tensor part, nothing beside the signs
# share of the steps that 1-bit Adam runs uncompressed; assumed, about what Tang et al. 2021 use for
# BERT
_WARM_UP = 0.2

# bytes that encoding and decoding move per element of fp32 gradient, from what the passes read and
# write (own count)
_INT8_MOVED = 4 + 5 + 5.0  # absolute maximum; quantise; dequantise
_ONE_BIT_MOVED = (
    12 + 4.25 + 4.125
)  # add momentum to what is left over; signs and new remainder; decode
_TOP_K_MOVED = (
    12 + 8 + 4 + 8.0
)  # DGC: add to velocity and remainder; sample and select; clear; scatter
_LOW_RANK_MOVED = 4.0 * (
    3 + 1 + 1 + 3
)  # of these: read two and write one, read, read, read, read and write


@dataclass(frozen=True)
class Codec:
    """A compressed reduction: bytes of one rank's code, seconds to encode and decode, whether codes
    are gathered."""

    code_bytes: float
    codec_s: Array
    gathered: bool


def int8_codec(x: Context) -> Codec:
    code = compression.coded_bytes(x.parameters, 8.0, FP32_BYTES, _BLOCK)
    return Codec(float(code), x.codec_s(_INT8_MOVED * x.parameters), False)


def one_bit_codec(x: Context) -> Codec:
    code = compression.coded_bytes(x.parameters, 1.0, FP32_BYTES, _ONE_BIT_BLOCK)
    return Codec(float(code), x.codec_s(_ONE_BIT_MOVED * x.parameters), False)


def top_k_codec(x: Context) -> Codec:
    """Every rank reads the code of all others: decoding grows with the ranks."""
    code = float(
        compression.sparse_bytes(x.parameters, x.settings.density, FP32_BYTES, _INDEX_BYTES)
    )
    ranks = float(np.max(x.who.group.ranks))
    return Codec(code, x.codec_s(_TOP_K_MOVED * x.parameters + ranks * code), True)


def power_sgd_codec(x: Context) -> Codec:
    """Matrices as torch flattens them: rows of the weight by all else. Vectors are reduced as they
    are."""
    hidden = x.plan.model.hidden
    edges, matrices, rest = 0.0, 0.0, 0.0
    for tensor in tensors(x.plan.model):
        columns = tensor.elements / hidden
        if tensor.elements % hidden or columns <= x.settings.rank:
            rest += tensor.elements
            continue
        edges += min(hidden + columns, tensor.elements / x.settings.rank)
        matrices += tensor.elements
    code = float(compression.low_rank_bytes(edges, rest, x.settings.rank, FP32_BYTES))
    flop = float(compression.low_rank_flop(matrices, x.settings.rank))
    return Codec(code, x.codec_s(_LOW_RANK_MOVED * matrices, flop), False)


def exchange(x: Context, codec: Codec) -> Cost:
    """Codes are reduced or gathered bucket by bucket beside backward; encoding takes GPU time."""
    group = x.who.group
    if codec.gathered:
        total = communicate.all_gather_s(x.m, codec.code_bytes * group.ranks, group)
    else:
        total = communicate.all_reduce_s(x.m, codec.code_bytes, group)
    gathered = 1.0 if codec.gathered else 0.0
    sent = compression.exchanged_bytes(codec.code_bytes, group.ranks, gathered)
    exposed = x.overlapped_s(total, total * x.last_share)
    return x.cost(exposed, total, (0.0, sent, 0.0), x.leaving_bytes(sent), codec.codec_s)


def break_even(x: Context, codec: Codec) -> float:
    """Bandwidth per GPU below which the code shortens a reduction of fp32 gradients that nothing
    hides, B/s."""
    ranks = x.who.group.ranks
    dense = data_parallel.backward_volume_bytes(0.0, FP32_BYTES * x.parameters, 0.0, ranks, 1.0)
    coded = compression.exchanged_bytes(codec.code_bytes, ranks, 1.0 if codec.gathered else 0.0)
    return float(np.ravel(compression.break_even_bytes_per_s(dense, coded, codec.codec_s))[0])


def int8(x: Context) -> Cost:
    return exchange(x, int8_codec(x))


def one_bit(x: Context) -> Cost:
    """The momentum is sent as signs after a warm-up that sends all of it: the mean of both."""
    coded, dense = exchange(x, one_bit_codec(x)), evaluated(x)

    def mean(a: Array, b: Array) -> Array:
        return (1 - _WARM_UP) * a + _WARM_UP * b

    return Cost(
        mean(coded.compute_s, dense.compute_s),
        mean(coded.exposed_s, dense.exposed_s),
        mean(coded.hidden_s, dense.hidden_s),
        coded.forward_bytes,
        mean(coded.backward_bytes, dense.backward_bytes),
        coded.optimizer_bytes,
        mean(coded.leaving_bytes, dense.leaving_bytes),
    )


def top_k(x: Context) -> Cost:
    return exchange(x, top_k_codec(x))


def power_sgd(x: Context) -> Cost:
    return exchange(x, power_sgd_codec(x))


CODECS = {
    "int8": int8_codec,
    "1-bit-adam": one_bit_codec,
    "top-k": top_k_codec,
    "ddp-powersgd-hook": power_sgd_codec,
}
