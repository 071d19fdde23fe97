"""How large a batch must be: tokens per second and GPU against the global batch, each batch with
its own layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.report.layout import SCHEMA_VERSION, Report
from planner.search import divisors
from planner.specs.base import PlanError
from planner.specs.options import refuse
from planner.verbs.batch.critical import LARGEST_TOKENS
from planner.verbs.requests import Progress, answer, document

MOST_TOKENS = LARGEST_TOKENS  # per step, up to which batches are tried
WITHIN = (0.01, 0.05)  # of the best throughput


def batch(given: Mapping[str, Any], *, jobs: int = 1, progress: Progress | None = None) -> Report:
    """Throughput of batches 2^k times a divisor of the GPUs' odd part. Raises PlanError where none
    has a layout."""
    options = read_options(given)
    refuse(options, "recommend batch")
    model, _ = model_spec(options.model)
    seq_len = options.seq_len or model.max_positions
    odd = options.gpus // (options.gpus & -options.gpus)
    most = max(MOST_TOKENS // seq_len, options.gpus)
    sizes = sorted(
        {d * 2**k for d in divisors(odd) for k in range(most.bit_length()) if d * 2**k <= most}
    )
    requests = [options.changed(global_batch=size) for size in sizes]
    points = answer(requests, jobs=jobs, progress=progress, reasons=False)
    rows = [
        {
            "global_batch": size,
            "tokens_per_step": size * seq_len,
            **{k: v for k, v in document(point).items() if k in _KEPT},
        }
        for size, point in zip(sizes, points, strict=True)
        if point.fits
    ]
    if not rows:
        raise_none(points[-1].refused)
    best = max(rows, key=_rate)
    for row in rows:
        row["of_best_frac"] = _rate(row) / _rate(best)
    return {
        "schema_version": SCHEMA_VERSION,
        "question": "batch",
        "model": {"name": model.name, "title": model.title or model.name},
        "gpus": options.gpus,
        "gpu_title": next(p.report["cluster"]["gpu_title"] for p in points if p.report is not None),
        "seq_len": seq_len,
        "tried": len(sizes),
        "best": best["global_batch"],
        "saturates": {
            f"{share:g}": next(
                row["global_batch"] for row in rows if row["of_best_frac"] >= 1 - share
            )
            for share in WITHIN
        },
        "rows": rows,
        "notes": [
            f"batches up to {most:,} sequences ({most * seq_len:,} tokens); what a batch does to"
            " the loss is not modelled"
        ],
    }


_KEPT = ("command", "layout", "stack", "memory", "step", "throughput", "run")


def _rate(row: Report) -> float:
    return float(row["throughput"]["tokens_per_s_per_gpu"])


def raise_none(refused: str | None) -> None:
    """No batch fits: say what stands against the largest."""
    raise PlanError(
        "recommend batch",
        None,
        f"no batch fits this cluster{f' ({refused})' if refused else ''}; see dpplan estimate",
    )
