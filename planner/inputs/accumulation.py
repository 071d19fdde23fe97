"""The global batches that --grad-accum leaves possible where no --global-batch is given."""

from __future__ import annotations

from planner.inputs.batch import default_batch
from planner.specs.model import ModelSpec
from planner.specs.options import Options

_MOST_MICRO_BATCH = 64  # sequences; as the search tries


def accumulated(options: Options, accumulation: int, model: ModelSpec, seq_len: int) -> list[int]:
    """Global batches of this many accumulation steps, in sequences, ascending.

    The batch is micro-batch x data-parallel degree x accumulation. With a micro-batch, each degree
    is tried that GPUs leave for model parallelism of 1, 2, 4, ... ranks; without one, each
    micro-batch of a power of two whose batch is at most the default one.
    """
    stated = (options.tp or 1) * (options.pp or 1) * (options.cp or 1)
    most = options.dp or max(1, options.gpus // stated)
    if options.micro_batch is None:
        usual = default_batch(options, model, seq_len).sequences
        each = (2**k for k in range(_MOST_MICRO_BATCH.bit_length()))
        sizes = [accumulation * most * micro for micro in each]
        return [size for size in sizes if size <= max(usual, sizes[0])]
    is_known = options.dp or None not in (options.tp, options.pp, options.cp)
    replicas = [most] if is_known else _halved(most)
    return sorted(accumulation * options.micro_batch * degree for degree in replicas)


def _halved(number: int) -> list[int]:
    """The number over 1, 2, 4, ... as long as that is whole."""
    out = [number]
    while out[-1] % 2 == 0:
        out.append(out[-1] // 2)
    return out
