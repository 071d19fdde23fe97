"""Layouts of other degrees with nearly the predicted time of the layout taken."""

from __future__ import annotations

from planner.estimate.ties import TIE
from planner.report import layout as report
from planner.report.search import best_of
from planner.search.answer import Answer
from planner.specs.document import extended
from planner.specs.documents.estimate import NearTie
from planner.specs.layout import Layout
from planner.specs.options import Options

_LISTED = 24  # layouts that are looked at: many differ only in micro-batch or schedule
_NAMED = 3
_DEGREES = ("tp", "pp", "cp", "ep")


def near_ties(options: Options, answer: Answer) -> list[NearTie]:
    """The fastest layout with enough room of each other combination of stack and degrees within a
    tie of the layout taken, fastest first."""
    plan, seconds = answer.chosen.plan, float(answer.chosen.time.seconds[answer.row])
    if not answer.fits:
        return []
    each = seconds / plan.training.global_batch
    known = {_kind(plan.stack.id, answer.chosen.table.layout(answer.row))}
    out: list[NearTie] = []
    for estimates, row in best_of(answer.searches, _LISTED, "time"):
        per_sequence = float(estimates.time.seconds[row]) / estimates.plan.training.global_batch
        kind = _kind(estimates.plan.stack.id, estimates.table.layout(row))
        if kind in known or per_sequence > each * (1 + TIE):
            continue
        known.add(kind)
        line = report.line(options, estimates, row)
        if line.verdict == "fits":
            out.append(extended(NearTie, line, slower_frac=per_sequence / each - 1))
    return out[:_NAMED]


def _kind(stack: str, layout: Layout) -> tuple[object, ...]:
    zero = layout.zero if layout.dp * layout.cp > 1 else 0
    return (stack, *(getattr(layout, name) for name in _DEGREES), zero)
