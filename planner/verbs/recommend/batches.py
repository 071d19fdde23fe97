"""How large a batch must be: tokens per second and GPU against the global batch, each batch with
its own layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.formulas.divisors import divisors
from planner.inputs.batch import largest_published
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import doubts_of, searched
from planner.inputs.training import sequence_length
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, extended
from planner.specs.documents.estimate import Figures
from planner.specs.documents.recommend import BatchRow, NamedModel, SaturatingBatch
from planner.specs.options import refuse
from planner.verbs.requests import Point, answer
from planner.verbs.workers import Progress

WITHIN = (0.01, 0.05)  # of the best throughput


def batch(
    given: Mapping[str, Any], *, jobs: int = 1, progress: Progress | None = None
) -> SaturatingBatch:
    """Throughput of batches 2^k times a divisor of the GPUs' odd part. Raises PlanError where none
    has a layout."""
    options = read_options(given)
    refuse(options, "recommend batch")
    model, _ = model_spec(options.model)
    seq_len = sequence_length(options, model)
    most = max(largest_published()[1] // seq_len, options.gpus)
    sizes = _sizes(options.gpus, most)
    requests = [options.changed(global_batch=size) for size in sizes]
    points = answer(requests, jobs=jobs, progress=progress, reasons=False)
    fitting = [
        (size, point, point.report)
        for size, point in zip(sizes, points, strict=True)
        if point.report is not None and point.fits
    ]
    if not fitting:
        refused = points[-1].refused
        raise PlanError(
            "recommend batch",
            None,
            f"no batch fits this cluster{f' ({refused})' if refused else ''}; see dpplan estimate",
        )
    best, _, best_figures = max(fitting, key=lambda row: row[2].throughput.tokens_per_s_per_gpu)
    rows = [_row(size, seq_len, point, figures, best_figures) for size, point, figures in fitting]
    return SaturatingBatch(
        schema_version=SCHEMA_VERSION,
        question="batch",
        model=NamedModel(model.name, model.title or model.name),
        gpus=options.gpus,
        gpu_title=best_figures.cluster.gpu_title,
        seq_len=seq_len,
        tried=len(sizes),
        best=best,
        saturates={
            f"{share:g}": next(row.global_batch for row in rows if row.of_best_frac >= 1 - share)
            for share in WITHIN
        },
        rows=rows,
        notes=[
            f"batches up to {most:,} sequences ({most * seq_len:,} tokens); what a batch does to"
            " the loss is not modelled",
            *searched(options),
        ],
        doubts=doubts_of(options),
    )


def _sizes(gpus: int, most: int) -> list[int]:
    """Batches up to the largest, ascending: 2^k times a divisor of the GPUs' odd part."""
    odd = gpus // (gpus & -gpus)
    doubled = {d * 2**k for d in divisors(odd) for k in range(most.bit_length())}
    return sorted(size for size in doubled if size <= most)


def _row(size: int, seq_len: int, point: Point, figures: Figures, best: Figures) -> BatchRow:
    rate = figures.throughput.tokens_per_s_per_gpu
    return extended(
        BatchRow,
        figures,
        global_batch=size,
        tokens_per_step=size * seq_len,
        of_best_frac=rate / best.throughput.tokens_per_s_per_gpu,
        command=point.command,
        pick=point.pick,
    )
