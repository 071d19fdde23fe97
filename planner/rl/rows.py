"""Rows of the training step that the responses of a step are packed into."""

from __future__ import annotations

import math

from planner.formulas.divisors import divisors
from planner.inputs.workload import packs
from planner.rl.specs import Job
from planner.rl.step import mean_before_cut
from planner.specs.model import ModelSpec
from planner.specs.options import Options

_ROUND = 256  # tokens to whose multiple a packed row is rounded up
_PADDING = 1.06  # most rows over those needed, so that more ranks can share them


def training_options(options: Options, model: ModelSpec, job: Job, gpus: int) -> Options:
    """A request for the step of training: rows as long as the longest sequence, filled with prompts
    and responses; one each where attention to packed rows is not modelled."""
    longest = job.prompt + job.longest
    seq_len = math.ceil(longest / _ROUND) * _ROUND
    if model.positions == "learned":
        seq_len = min(seq_len, model.max_positions)
    mean = job.prompt + job.response
    packed = packs(model)
    needed = math.ceil(job.batch * mean / seq_len) if packed else math.ceil(job.batch)
    whole = job.of_lengths(mean, float(seq_len))
    return options.changed(
        gpus=gpus,
        nodes=None,
        seq_len=seq_len,
        global_batch=_rows(needed, options, gpus),
        length_mean=max(1.0, mean_before_cut(whole)),
        length_sigma=job.sigma,
        packing="packed" if packed else "padded",
    )


def _rows(needed: int, options: Options, gpus: int) -> int:
    """Rows of an optimizer step, rounded up to what the stated replicas take in turn; where they
    are open, so that many ranks can share them without padding more than a few."""
    degrees = [options.tp, options.pp, options.cp]
    if options.dp is not None or None not in degrees:
        replicas = options.dp or max(1, gpus // math.prod(degree or 1 for degree in degrees))
        together = replicas * (options.micro_batch or 1)
        return math.ceil(needed / together) * together
    padded = (math.ceil(needed / ranks) * ranks for ranks in reversed(divisors(gpus)))
    return next(rows for rows in padded if rows <= max(_PADDING * needed, needed))
