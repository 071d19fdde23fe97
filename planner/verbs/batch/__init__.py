"""The verb `batch`: time to a target against the number of GPUs, where more of them need a larger
batch to be busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.formulas.params import parameter_count
from planner.inputs import tables
from planner.inputs.batch import largest_published
from planner.inputs.cluster import price_of
from planner.inputs.scenario import doubts_of
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, UNSET
from planner.specs.documents.batch import CriticalBatch, Least, Reference, SizedModel, TimeToTarget
from planner.specs.documents.plan import describe
from planner.specs.options.own import BatchOptions
from planner.verbs.batch.critical import PUBLISHED
from planner.verbs.batch.rates import learning_rate, needs_of_batches
from planner.verbs.batch.regimes import REGIMES, regime, sensitivity
from planner.verbs.batch.runs import Question, Run, answered_runs, read_question
from planner.verbs.workers import Progress

__all__ = ["batch", "csv_text"]

# times the critical batch: laws and measurements differ by such factors
_SPREAD = (0.25, 1.0, 4.0)


def batch(
    request: BatchOptions, given: Mapping[str, Any], progress: Progress | None = None
) -> TimeToTarget:
    """Steps, tokens, days and cost to the target at every number of GPUs, with the batch kept,
    grown, and best.

    given: options of the request; its tokens are those that the run takes with the reference batch.
    Raises PlanError where the request is wrong or nothing can be answered.
    """
    question = read_question(request, given)
    model, target, seq_len = question.model, question.target, question.seq_len
    runs = answered_runs(question, request.jobs or 1, progress)
    answered = [run.point.report for run in runs if run.point.report is not None]
    if not answered:
        raise PlanError(
            "batch",
            None,
            f"none of the {len(runs)} requests can be answered; the first: {runs[0].point.refused}",
        )
    rate = learning_rate(request, question.options.optimizer)
    critical = target.critical
    return TimeToTarget(
        schema_version=SCHEMA_VERSION,
        model=SizedModel(model.name, model.title or model.name, parameter_count(model)),
        gpu_title=answered[0].cluster.gpu_title,
        seq_len=seq_len,
        reference=Reference(
            global_batch=request.reference_batch or question.first_batch,
            tokens_per_step=target.reference_tokens,
            tokens=target.tokens,
            steps=target.steps(target.reference_tokens),
        ),
        critical_batch=CriticalBatch(
            tokens=critical.tokens,
            sequences=critical.tokens / seq_len,
            source=critical.source,
            measured=critical.measured,
            loss_nats=critical.loss_nats,
        ),
        least=Least(target.least_tokens, target.least_steps),
        stop_below=request.stop_below,
        regimes={name: regime(name, runs, target, target, request.stop_below) for name in REGIMES},
        batches=needs_of_batches(question, runs, rate),
        learning_rate=rate,
        sensitivity=[sensitivity(runs, target, factor, request.stop_below) for factor in _SPREAD],
        published=list(PUBLISHED),
        notes=_notes(request, question, runs),
        doubts=doubts_of(question.options.changed(gpus=question.counts[-1])),
    )


def _notes(request: BatchOptions, question: Question, runs: Sequence[Run]) -> list[str]:
    target = question.target
    notes = [
        f"critical batch {target.critical.tokens:,.0f} tokens: {target.critical.source}",
        (
            f"the run reaches its target with {target.tokens:,.0f} tokens in batches of"
            f" {target.reference_tokens:,.0f} (--tokens,"
            f" {'--reference-batch' if request.reference_batch else '--global-batch'}); other"
            " batches by (S / S_min - 1) (E / E_min - 1) = 1 with rates tuned for each"
        ),
    ]
    notes += question.assumptions
    notes.append(f"price: {price_of(question.options).sentence} (--market, --price, --capex)")
    largest = max(run.batch for run in runs) * question.seq_len
    title, published = largest_published()
    if largest > published:
        notes.append(
            f"the largest batch, {largest:,} tokens, is beyond the {published:,} of {title}, the"
            " largest published one of the catalogue (dpplan list models)"
        )
    return notes


_COLUMNS = (
    "fits",
    "why",
    "value",
    "global_batch",
    "tokens_per_step",
    "of_critical",
    "steps",
    "tokens",
    "step_seconds",
    "days",
    "cost_usd",
    "goodput",
    "speed_up",
    "efficiency",
    "marginal_frac",
    "communication_ratio",
    "exposed_frac",
    "bottleneck",
)


def csv_text(document: TimeToTarget) -> str:
    """One line per regime and number of GPUs: figures, factors of GPU-time, layout, and the command
    for this line."""
    points = [(name, point) for name, line in document.regimes.items() for point in line.points]
    factors = dict.fromkeys(
        name for _, point in points if point.fits for name in point.gpu_time_factors
    )
    header = [
        "regime",
        *("gpus" if name == "value" else name for name in _COLUMNS),
        *(f"factor_{name}" for name in factors),
        *("stack", "layout", "command"),
    ]
    lines = []
    for regime_name, point in points:
        figures = [getattr(point, name) for name in _COLUMNS]
        lines.append(
            [
                regime_name,
                *(None if value is UNSET else value for value in figures),
                *(
                    point.gpu_time_factors.get(name, 1.0) if point.fits else None
                    for name in factors
                ),
                *((point.stack, describe(point.layout)) if point.fits else (None, None)),
                point.command,
            ]
        )
    return tables.csv_text(header, lines)
