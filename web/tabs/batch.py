"""What more GPUs and a larger batch buy: days, cost and tokens to the same loss."""

from __future__ import annotations

from planner.specs.documents.batch import Regime, TimeToTarget
from planner.specs.options.own import BatchOptions
from planner.verbs import batch
from planner.views.batch import batch_blocks
from planner.views.batch_page import curves
from web.state import PAGE
from web.tabs.base import Asked, Found, Mark, Tab, Table
from web.tabs.charts import marked, tabled

_SHORT = {"strong": "batch kept", "weak": "grown", "best": "best"}


def _find(asked: Asked) -> TimeToTarget:
    return batch.batch(asked.of(BatchOptions).changed(jobs=1), asked.given)


def _show(found: TimeToTarget, asked: Asked) -> Found:
    head, batches, *rest = batch_blocks(found)
    lines = list(found.regimes.values())
    tables = rest[: len(lines)]
    others = [block for block in rest[len(lines) :] if block.header]
    at = {
        f"knee, {_SHORT[name]}": float(line.pays_until)
        for name, line in found.regimes.items()
        if line.pays_until
    }
    now = asked.state.options.gpus
    charts = [tabled(marked(chart, {**at, "now": float(now)})) for chart in curves(found)]
    # a line per way to choose the batch, the best of them first
    verdict, *more = sorted(head.text, key=lambda line: line.endswith("nothing fits"))
    head.title, head.text = "Each way to choose the batch", [verdict, *more]
    fits = any(point.fits for line in lines for point in line.points)
    return Found(
        title=f"{found.model.title} on {found.gpu_title}: time to the target",
        verdict=verdict,
        command=asked.command,
        mark="yes" if fits else "no",
        parts=(
            *([Table(head)] if more else []),
            *charts[:3],
            *(
                Table(
                    block,
                    commands=tuple(point.command for point in line.points),
                    marks=tuple(_mark(line, point.value, point.fits) for point in line.points),
                    note="The shaded row is the knee: more GPUs pay up to here.",
                )
                for line, block in zip(lines, tables, strict=True)
            ),
            Table(batches),
            *map(Table, others),
            *charts[3:],
        ),
        notes=tuple(found.notes),
        csv=batch.csv_text(found),
    )


def _mark(line: Regime, gpus: int, fits: bool) -> Mark:
    if not fits:
        return "no"
    return "here" if gpus == line.pays_until else ""


TAB = Tab(
    path="/batch",
    name="Batch",
    title="What more GPUs and a larger batch buy",
    lead=(
        "Days, cost and tokens to the same loss over the number of GPUs: with a fixed batch "
        "(strong scaling), a batch that grows with the GPUs (weak scaling), or the best one, "
        "and up to which number more GPUs pay off."
    ),
    ask="Compute",
    verb="batch",
    documents=("batch",),
    records=(BatchOptions,),
    shown=("model", "gpu", "gpus", "tokens", "global_batch", "sweep"),
    folded=(
        "critical_batch",
        "target_loss",
        "reference_batch",
        "learning_rate",
        "warmup",
        "stop_below",
        "seq_len",
        "precision",
        "market",
    ),
    start=PAGE,
    usual=PAGE[3:],
    find=_find,
    show=_show,
)
