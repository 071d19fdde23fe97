"""Cost of stragglers and heterogeneity in a synchronous step: jitter, slow hosts, a second
kind of GPU, documents of different lengths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.estimate.machine import Machine
from planner.formulas import flops, overlap, split_documents, stragglers
from planner.ledger import Array, Ledger, rowwise, section, total
from planner.specs.columns import Columns
from planner.specs.data import LengthsSpec
from planner.specs.layers import attended_of
from planner.specs.names import Packing
from planner.specs.parts import Attended
from planner.specs.plan import Plan
from planner.specs.ranks import RanksSpec

COMPUTING = (
    "matmul",
    "attention",
    "memory_bound",
    "recompute",
    "reference",
    "launch",
    "optimizer",
)  # what a slow host does more slowly
_AFTER = ("overhead", "stragglers", "input")  # components that follow from the others


def moments(plan: Plan) -> tuple[float, float, float, float]:
    """First to fourth moment of document length over sequence length; ones if every sequence is
    full."""
    if plan.lengths is None:
        return 1.0, 1.0, 1.0, 1.0
    spec, seq_len = plan.lengths, plan.training.seq_len
    first, second, third, fourth = (length_moment(spec, seq_len, float(k)) for k in range(1, 5))
    return first, second, third, fourth


def dropped_frac(spec: LengthsSpec, seq_len: int) -> float:
    """Share of documents that are left out because they are longer than a sequence, or too short to
    be trained on."""
    return _long_frac(spec, seq_len) + short_frac(spec)


def _long_frac(spec: LengthsSpec, seq_len: int) -> float:
    if spec.excess != "drop":
        return 0.0
    return float(stragglers.longer_frac(spec.mean_tokens / seq_len, spec.sigma))


def short_frac(spec: LengthsSpec) -> float:
    """Share of documents that are left out because they are too short."""
    if spec.short_tokens is None:
        return 0.0
    return 1 - float(stragglers.longer_frac(spec.mean_tokens / spec.short_tokens, spec.sigma))


def rows_per_document(spec: LengthsSpec, seq_len: int) -> float:
    """Rows that documents make on average, those that are left out among them: beyond one where
    long ones are split."""
    if spec.excess != "split":
        return 1 - dropped_frac(spec, seq_len)
    mean = spec.mean_tokens / seq_len
    return float(split_documents.rows_per_document(mean, spec.sigma, short_frac(spec)))


def length_moment(
    spec: LengthsSpec, seq_len: int, order: float = 1.0, within: float = 1.0
) -> float:
    """Moment of the length of what a document leaves in one row, over the sequence length; within:
    cut to this share of it, over that."""
    if spec.excess == "split" or spec.short_tokens is not None:
        return float(_longest(spec, seq_len, 1.0, order, within))
    share, dropped = spec.mean_tokens / seq_len / within, dropped_frac(spec, seq_len)
    return float(stragglers.cut_moment(share, spec.sigma, order, dropped))


def _longest(
    spec: LengthsSpec, seq_len: int, documents: Array, order: float, within: float = 1.0
) -> Array:
    """Moment of the longest of this many independent documents."""
    share, short = spec.mean_tokens / seq_len, short_frac(spec)
    if spec.excess == "split":
        return split_documents.longest_row_moment(
            share, spec.sigma, documents, order, short, within
        )
    dropped = _long_frac(spec, seq_len)
    return stragglers.longest_moment(share / within, spec.sigma, documents, order, dropped, short)


def _bucketed(spec: LengthsSpec, seq_len: int, documents: Array, order: float) -> Array:
    """Moment of the longest document if similar lengths are batched together."""
    share, short = spec.mean_tokens / seq_len, short_frac(spec)
    if spec.excess == "split":
        return split_documents.bucketed_row_moment(share, spec.sigma, documents, order, short)
    dropped = _long_frac(spec, seq_len)
    return stragglers.bucketed_moment(share, spec.sigma, documents, order, dropped, short)


# moments of the length of micro-batches that are as long as their longest document
_AS_LONGEST: dict[str, Callable[[LengthsSpec, int, Array, float], Array]] = {
    "longest": _longest,
    "bucketed": _bucketed,
}


def document_frac(plan: Plan) -> float:
    """Mean document length seen by a row's tokens over the row's length: below one if packed
    documents are masked from each other.

    Kernels that write the whole score matrix compute all of it.
    """
    flash = plan.flash_attention
    if plan.lengths is None or plan.lengths.packing != "packed" or not flash:
        return 1.0
    mean, square, _, _ = moments(plan)
    return float(stragglers.packed_attention_frac(mean, square))


def attended_frac(plan: Plan, core: Attended | None = None) -> float:
    """Share of a row's attention that is computed, of one core or of all of the model's."""
    every, s = document_frac(plan), plan.training.seq_len
    windows = any(
        attended.window and attended.window < s for attended, _ in attended_of(plan.model)
    )
    if every == 1.0 or not windows:
        return every
    if core is not None:
        return _within_window(plan, core, every)
    work = [
        n * float(flops.core_forward_flop(attended, s)) for attended, n in attended_of(plan.model)
    ]
    left = [_within_window(plan, attended, every) for attended, _ in attended_of(plan.model)]
    return sum(w * frac for w, frac in zip(work, left, strict=True)) / sum(work)


def _within_window(plan: Plan, core: Attended, every: float) -> float:
    """The share of one core, whose window leaves less of long documents than of short ones."""
    lengths, s = plan.lengths, plan.training.seq_len
    if lengths is None or core.window is None or core.window >= s:
        return every
    share = core.window / s
    first, second = (length_moment(lengths, s, order, share) for order in (1.0, 2.0))
    return float(stragglers.packed_window_frac(moments(plan)[0], first, second, share))


def useful_frac(plan: Plan) -> float:
    """Fraction of non-padding tokens."""
    lengths = plan.lengths
    return 1.0 if lengths is None or lengths.packing == "packed" else moments(plan)[0]


def computed_frac(plan: Plan, micro_batch: Array, order: float = 1.0) -> Array:
    """Computed tokens of a row, padding included, over the sequence length: below one if
    micro-batches are as long as their longest document. order: of the moment, 2 for work that grows
    with the square of the length."""
    lengths, seq_len = plan.lengths, plan.training.seq_len
    if lengths is None or lengths.packing not in _AS_LONGEST:
        return 1.0
    return rowwise(lambda rows: row_length(lengths, seq_len, rows, order), micro_batch)


def row_length(spec: LengthsSpec, seq_len: int, documents: Array, order: float = 1.0) -> Array:
    """Moment of the length of a row that packs `documents` documents, relative to the sequence
    length. Evaluated once per distinct number of documents."""
    if spec.packing not in _AS_LONGEST:
        return 1.0 + 0.0 * np.asarray(documents)
    each, back = np.unique(documents, return_inverse=True)
    moments = longest_document(spec, seq_len, each, order, spec.packing)
    return moments[back].reshape(np.shape(documents))


def longest_document(
    spec: LengthsSpec, seq_len: int, documents: Array, order: float, packing: Packing
) -> Array:
    """Moment of the longest of `documents` documents that are trained on, over the sequence length;
    packing: longest, or bucketed where documents of like lengths come together."""
    return np.asarray(_AS_LONGEST[packing](spec, seq_len, documents, order))


def row_tokens(plan: Plan, c: Columns) -> Array:
    """Tokens of a sequence that are computed, padding included."""
    return plan.training.seq_len * computed_frac(plan, c.micro_batch)


def longest_row(plan: Plan) -> int:
    """Tokens of the longest row that comes."""
    lengths, seq_len = plan.lengths, plan.training.seq_len
    if lengths is None or lengths.longest_tokens is None:
        return seq_len
    return min(lengths.longest_tokens, seq_len)


def of_longest(plan: Plan) -> Plan:
    """The plan of micro-batches of the longest row that comes, whose memory is the peak."""
    if (tokens := longest_row(plan)) == plan.training.seq_len:
        return plan
    training = plan.training.model_copy(update={"seq_len": tokens})
    # none is longer than the longest
    update = {"excess": "truncate", "short_tokens": None}
    lengths = plan.lengths and plan.lengths.model_copy(update=update)
    return plan.model_copy(update={"training": training, "lengths": lengths})


def jitter_factor(plan: Plan, m: Machine, gpus: Array) -> Array:
    """Slow-down of a step that waits for the slowest of equal ranks: exact for a stated jitter,
    else the usual bound."""
    if plan.ranks.jitter_frac is None:
        return overlap.straggler_factor(gpus, m.straggler_sigma)
    return 1 + stragglers.expected_slowest(gpus, 1.0, m.straggler_sigma)


def slow_hosts_frac(plan: Plan, m: Machine) -> Array:
    """How much longer the slowest rank computes because some hosts may be slow, as a share; beyond
    jitter."""
    ranks, cluster = plan.ranks, plan.cluster
    if ranks.slow_frac == 0:
        return 0.0
    per_host = cluster.gpus / cluster.nodes
    hosts = float(cluster.nodes)
    both = stragglers.expected_slowest(
        hosts, per_host, m.straggler_sigma, ranks.slow_frac, ranks.slow_by_frac
    )
    return both - stragglers.expected_slowest(hosts, per_host, m.straggler_sigma)


def imbalance_frac(plan: Plan, c: Columns) -> Array:
    """How much more the fullest replica has to do than the mean one: of its attention where rows
    are packed, of all that it computes where micro-batches differ in length.

    Replicas meet once per step; in every micro-batch where it reduces gradients (ZeRO-2), gathers
    parameters (ZeRO-3), or sends tokens to experts of other replicas. Between the micro-batches of
    a step lengths even out with the root of their number.
    """
    spec, seq_len = plan.lengths, plan.training.seq_len
    if spec is None or spec.packing not in ("packed", "longest"):
        return 0.0
    together = (c.zero >= 2) | (c.ep > 1)
    waits = np.where(together, 1.0, c.microbatches(plan.training.global_batch))
    if spec.packing == "longest":
        mine, all_ = (
            rowwise(lambda rows: row_length(spec, seq_len, rows), documents)
            for documents in (c.micro_batch, c.micro_batch * c.dp)
        )
        return (all_ / mine - 1) / np.sqrt(waits)
    one_row = float(stragglers.packed_spread_frac(*moments(plan)))
    rows = c.micro_batch * waits
    most = 1 / attended_frac(plan) - 1  # no row has more than one document of its whole length
    slowest = rowwise(_slowest_replica, c.dp)
    return np.minimum(slowest * one_row / np.sqrt(rows), most)


def _slowest_replica(replicas: Array) -> Array:
    """Expected maximum of `replicas` standard normal variables; evaluated once per distinct
    number."""
    each, back = np.unique(replicas, return_inverse=True)
    return np.asarray(stragglers.expected_slowest(each, 1.0, 1.0))[back]


def parts(plan: Plan, m: Machine, c: Columns, components: Ledger) -> Ledger:
    """Seconds that each reason to wait for others adds to a step of these components."""
    base = {name: leaf for name, leaf in components.items() if name not in _AFTER}
    with section("stragglers"):
        computing = total({name: base[name] for name in COMPUTING if name in base})
        return {
            "jitter": (jitter_factor(plan, m, float(plan.cluster.gpus)) - 1) * total(base),
            "slow_hosts": slow_hosts_frac(plan, m) * computing,
            "lengths": imbalance_frac(plan, c)
            * (computing if _rows_differ(plan) else base["attention"]),
        }


def is_uneven(plan: Plan) -> bool:
    """Whether the request states stragglers or heterogeneity beyond the usual jitter."""
    lengths = plan.lengths
    waits = lengths is not None and lengths.packing in ("packed", "longest")
    return plan.ranks.uneven or waits


def _rows_differ(plan: Plan) -> bool:
    return plan.lengths is not None and plan.lengths.packing == "longest"


def of_other_gpu(plan: Plan) -> Plan:
    """The plan with all GPUs of the second kind."""
    cluster = plan.cluster.model_copy(
        update={"gpu": plan.ranks.other, "clock": None, "power_limit": None}
    )
    return plan.model_copy(update={"cluster": cluster, "ranks": RanksSpec(), "data": None})


def shared(plan: Plan, c: Columns, usual: Ledger, other: Ledger) -> Ledger:
    """Components of a step on two kinds of GPUs, given the components on either
    kind: compute and the bubble change.

    Hosts are assigned so that replicas use one kind where possible; a mixed replica is as slow as
    its slower GPUs.
    """
    ranks = plan.ranks
    mine = total({name: usual[name] for name in COMPUTING if name in usual})
    theirs = total({name: other[name] for name in COMPUTING if name in other})
    if ranks.split == "equal":
        together = stragglers.equal_split_s(mine, theirs)
    else:
        exact = c.dp * ranks.other_frac
        count = np.where(theirs > mine, np.ceil(exact - 1e-9), np.floor(exact + 1e-9))
        batches = c.microbatches(plan.training.global_batch)
        together = stragglers.proportional_split_s(mine, theirs, c.dp, count, batches)
    changed = (*COMPUTING, "bubble")
    return {
        name: leaf * (together / mine) if name in changed else leaf for name, leaf in usual.items()
    }


def peak_flop_per_s(plan: Plan) -> float:
    """Dense vendor rate of a GPU in the training precision, the mean over both kinds."""
    rate = float(plan.cluster.gpu.rate(plan.training.precision) or 0.0)
    if plan.ranks.other is None:
        return rate
    other = float(plan.ranks.other.rate(plan.training.precision) or 0.0)
    return rate + plan.ranks.other_frac * (other - rate)
