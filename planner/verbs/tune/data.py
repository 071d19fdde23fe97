"""The data of a fine-tuning: how long its examples are, and how many sequences they fill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from planner.estimate import uneven
from planner.formulas import stragglers
from planner.inputs.fine_tuning import (
    BATCH_SOURCE,
    LENGTH_SOURCE,
    USUAL_SEQUENCE,
    each_of,
    usual_batch,
)
from planner.inputs.workload import lengths_spec
from planner.ledger import first
from planner.specs.base import PlanError
from planner.specs.data import LengthsSpec
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.options.tune import TuneOptions

_DIGITS = 4  # of a sigma that follows from the longest example, so that commands can be read


@dataclass(frozen=True)
class Data:
    """Examples as sequences. dropped_frac: share of examples that are too long or too short and
    left out; sequences, useful_tokens: of an epoch, without padding."""

    examples: int
    epochs: float
    seq_len: int
    lengths: LengthsSpec | None
    dropped_frac: float
    sequences: int
    useful_tokens: float

    @property
    def is_of_micro_batches(self) -> bool:
        """Whether the micro-batch tells how many tokens are padding."""
        return self.lengths is not None and self.lengths.packing in ("longest", "bucketed")

    def tokens(self, micro_batch: int) -> int:
        """Tokens of all epochs that are computed with such micro-batches, padding included."""
        share = (
            1.0
            if self.lengths is None
            else first(
                uneven.row_length(self.lengths, self.seq_len, np.array([float(micro_batch)]))
            )
        )
        return round(self.epochs * self.sequences * self.seq_len * share)


def sized(request: TuneOptions, options: Options, model: ModelSpec) -> tuple[Options, list[str]]:
    """The request with a sequence length, the spread of the lengths and a batch, and what was
    assumed for them. Raises PlanError."""
    sentences: list[str] = []
    if request.length_max is not None:
        options = options.changed(length_sigma=_sigma(request, options))
    if options.seq_len is None:
        taken = request.length_max or min(USUAL_SEQUENCE, model.max_positions)
        options = options.changed(seq_len=taken)
        why = "the longest example" if request.length_max else LENGTH_SOURCE
        sentences.append(f"sequence length {taken:,}: {why} (set --seq-len)")
    if options.global_batch is None:
        batch = usual_batch(options)
        options = options.changed(global_batch=batch)
        sentences.append(f"global batch {batch:,} sequences, {BATCH_SOURCE} (set --global-batch)")
    return options, sentences


def with_longest(
    request: TuneOptions, options: Options, model: ModelSpec
) -> tuple[Options, list[str]]:
    """The request with the longest row that its examples make, where rows follow from them, and
    what was assumed."""
    seq_len = options.seq_len or 1
    lengths = lengths_spec(options, model, seq_len)
    if lengths is None or lengths.packing not in ("longest", "bucketed"):
        return options, []
    tokens = request.length_max
    why = "the longest example (--length-max)"
    if tokens is None:
        rows = uneven.rows_per_document(lengths, seq_len)
        count = np.array([max(1.0, request.examples * each_of(options) * rows)])
        tokens = math.ceil(
            seq_len * first(uneven.longest_document(lengths, seq_len, count, 1.0, "longest"))
        )
        why = f"the longest of {request.examples:,} examples that can be expected (--length-max)"
    if tokens >= seq_len:
        return options, []
    sentence = f"memory is that of micro-batches of {tokens:,} tokens a row, {why}"
    return options.changed(longest_row=tokens), [sentence]


def _sigma(request: TuneOptions, options: Options) -> float:
    """Sigma of the log-normal whose quantile n/(n + 1), for n examples, is the longest length of
    the data."""
    longest, mean = request.length_max, options.length_mean
    if longest is None or mean is None:
        raise PlanError(
            "--length-max", longest, "spreads lengths around their mean: give --length-mean, too"
        )
    if options.length_sigma is not None:
        raise PlanError(
            "--length-max", longest, "and --length-sigma both say how lengths spread; give one"
        )
    if longest < mean:
        raise PlanError(
            "--length-max", longest, f"is below the mean of {mean:,.0f} (--length-mean)"
        )
    z = NormalDist().inv_cdf(1 - 1 / (request.examples + 1))
    most = mean * math.exp(z * z / 2)
    if longest > most:
        raise PlanError(
            "--length-max",
            longest,
            f"is beyond {most:,.0f}, the longest of {request.examples:,} log-normal lengths with"
            f" mean {mean:,.0f} that can be expected: give --length-sigma, or a --length-max"
            " without the few that are longer",
        )
    return round(float(stragglers.sigma_of_longest(longest / mean, z)), _DIGITS)


def data_of(request: TuneOptions, options: Options, model: ModelSpec) -> Data:
    """The examples of a request as sequences."""
    assert options.seq_len is not None
    seq_len = options.seq_len
    lengths = lengths_spec(options, model, seq_len)
    examples, dropped = request.examples * each_of(options), 0.0
    if lengths is None:
        useful, sequences = float(examples * seq_len), examples
    else:
        dropped, share = (
            uneven.dropped_frac(lengths, seq_len),
            uneven.length_moment(lengths, seq_len),
        )
        kept = examples * uneven.rows_per_document(lengths, seq_len)
        useful = kept * share * seq_len
        sequences = math.ceil(kept * share if lengths.packing == "packed" else kept)
    return Data(
        examples=request.examples,
        epochs=request.epochs,
        seq_len=seq_len,
        lengths=lengths,
        dropped_frac=dropped,
        sequences=sequences,
        useful_tokens=useful,
    )
