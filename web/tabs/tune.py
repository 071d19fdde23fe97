"""Fine-tuning: which methods fit the cards."""

from __future__ import annotations

from planner.specs.documents.tune import Tuning
from planner.specs.options.tune import TuneOptions
from planner.verbs.tune import tune
from planner.views.tune import tune_blocks
from planner.views.view import Block
from web.tabs.base import Asked, Found, Tab, Table


def _find(asked: Asked) -> Tuning:
    return tune(asked.of(TuneOptions).changed(jobs=1), asked.given)


def _show(found: Tuning, asked: Asked) -> Found:
    """The table of the command line, what fits first."""
    block = tune_blocks(found)[0]
    title, (verdict, *data) = block.title, block.text
    order = sorted(range(len(found.methods)), key=lambda i: not found.methods[i].fits)
    rows = [found.methods[i] for i in order]
    block.rows = [block.rows[i] for i in order]
    block.title, block.text, block.order = "Methods", data, "what fits first"
    why = [[row.name, row.why] for row in rows if row.why is not None]
    return Found(
        title=title,
        verdict=verdict,
        command=asked.command,
        mark="no" if found.fastest is None else "yes",
        parts=(
            Table(
                block,
                commands=tuple(None if row.memory is None else row.command for row in rows),
                marks=tuple("yes" if row.fits else "no" for row in rows),
            ),
            *([Block("Why the others do not", header=["method", "why"], rows=why)] if why else []),
        ),
        notes=tuple(found.notes),
    )


TAB = Tab(
    path="/tune",
    name="Fine-tune",
    title="Fine-tuning on given cards",
    lead=(
        "Choose a model and a GPU: which fine-tuning methods fit, with which context length and"
        " micro-batch, how long the run takes and what it costs. Each method opens its "
        "estimate."
    ),
    ask="Compare methods",
    verb="tune",
    documents=("tune",),
    records=(TuneOptions,),
    shown=("model", "gpu", "gpus", "examples", "length_mean", "length_max", "epochs"),
    folded=(
        *("method", "rank", "task", "teacher", "seq_len", "global_batch", "packing"),
        *("loss_kernel", "market"),
    ),
    start=[("model", "llama-3.1-8b"), ("gpu", "rtx4090-24gb"), ("gpus", "1")],
    find=_find,
    show=_show,
)
