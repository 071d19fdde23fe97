"""Rows of the training step that the responses of a step are packed into: a budget of tokens, the
same on every rank."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.formulas.divisors import divisors
from planner.formulas.stragglers import longest_moment
from planner.inputs.workload import packs
from planner.rl.specs import Job
from planner.rl.step import mean_before_cut
from planner.specs.model import ModelSpec
from planner.specs.options import Options

_ROUND = 256  # tokens to whose multiple a packed row is rounded up
_PADDING = 1.06  # most rows over those needed, so that more ranks can share them
_MOST_EMPTY = 2.0  # tokens of all rows / tokens of the responses, beyond which ranks only idle
_DIVIDED = 4  # rows of a replica are tried as a multiple of it: a prime number has one micro-batch
_ABOUT = 0.9  # of the longest row: longer ones save nothing to speak of


def training_requests(
    options: Options, model: ModelSpec, job: Job, gpus: int, *, pads: bool = False
) -> list[Options]:
    """Requests for the step of training, of which the fastest is taken. Rows are filled with
    prompts and responses (dynamic batches by tokens): an even share of the tokens of an optimizer
    step for every replica, in rows no longer than the longest sequence that may come. A sequence
    has a row of its own where attention to packed rows is not modelled, or where most are so long
    that no two fit a row. pads: a row holds no more than the longest sequence, and stages of a
    pipeline get rows of one length; else a micro-batch may have more tokens than that."""
    seq_len = math.ceil((job.prompt + job.longest) / _ROUND) * _ROUND
    if model.positions == "learned":
        seq_len = min(seq_len, model.max_positions)
    mean = job.prompt + job.response
    length_mean = max(1.0, mean_before_cut(job.of_lengths(mean, float(seq_len))))
    whole = not packs(model)
    if whole or (pads and mean > seq_len / 2):
        whole = whole or (options.pp or 1) > 1
        packing = "padded" if whole else "longest"
        shapes = iter([(_rows(math.ceil(job.batch), options, gpus), seq_len)])
    else:
        packing = "packed"
        expected = float(longest_moment(length_mean / seq_len, job.sigma, job.sequences, 1.0))
        shapes = _shapes(job.batch * mean, seq_len, expected * seq_len, options, gpus)
    node = options.gpus_per_node
    if node is not None and gpus > node and gpus % node:
        node = max(n for n in divisors(gpus) if n <= node)  # the same share of every node
    return [
        options.changed(
            gpus=gpus,
            nodes=None,
            gpus_per_node=node,
            seq_len=length,
            global_batch=rows,
            length_mean=length_mean,
            length_sigma=job.sigma,
            excess_length=None,  # responses end at the longest that is generated
            short_length=None,
            packing=packing,
        )
        for rows, length in dict.fromkeys(shapes)
    ]


def _shapes(
    tokens: float, seq_len: int, shortest: float, options: Options, gpus: int
) -> Iterator[tuple[int, int]]:
    """Rows of an optimizer step and their length, such that the replicas share the tokens evenly:
    for each number of replicas, from the largest, until rows are about as long as they may be.
    shortest: tokens that the replica with the longest sequence has at least."""
    replicas = _replicas(options, gpus)
    for ranks in [replicas] if replicas else reversed(divisors(gpus)):
        together = ranks * (options.micro_batch or 1)
        each = math.ceil(tokens / seq_len / together)
        length = max(tokens / (each * together), shortest / each)
        if not replicas and ranks > 1 and each * together * length > _MOST_EMPTY * tokens:
            continue
        counts = [each]
        if options.micro_batch is None and each > _DIVIDED:
            counts.append(math.ceil(each / _DIVIDED) * _DIVIDED)
        for count in dict.fromkeys(counts):
            tokens_of_row = max(tokens / (count * together), shortest / count)
            yield count * together, min(math.ceil(tokens_of_row / _ROUND) * _ROUND, seq_len)
        if length >= _ABOUT * seq_len:
            return


def _replicas(options: Options, gpus: int) -> int | None:
    """Data-parallel replicas of a request; None where they are searched."""
    degrees = [options.tp, options.pp, options.cp]
    if options.dp is not None or None not in degrees:
        return options.dp or max(1, gpus // math.prod(degree or 1 for degree in degrees))
    return None


def _rows(needed: int, options: Options, gpus: int) -> int:
    """Rows of an optimizer step with a sequence in each, rounded up to what the stated replicas
    take in turn; where they are open, so that many ranks can share them without padding more than
    a few."""
    replicas = _replicas(options, gpus)
    if replicas is not None:
        together = replicas * (options.micro_batch or 1)
        return math.ceil(needed / together) * together
    padded = (math.ceil(needed / ranks) * ranks for ranks in reversed(divisors(gpus)))
    return next(rows for rows in padded if rows <= max(_PADDING * needed, needed))
