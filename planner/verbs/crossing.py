"""Whether a parallel degree that communicates in every layer crosses the border of a node, and what
the best layout without that takes."""

from __future__ import annotations

import numpy as np

from planner.estimate.ties import TIE
from planner.ledger import Array
from planner.report import layout as report
from planner.search import best, timed
from planner.search.answer import Answer
from planner.search.choose import stride
from planner.specs.document import extended
from planner.specs.documents.estimate import Crossing, InsideNodes
from planner.specs.options import Options

_HEARD = 0.05  # share of the step from which traffic of contexts or experts is worth a remark
REPEATS = 2 * TIE  # by which exact repeats of measured runs differ from their median
_GROUPS = (("tp", "tensor_parallel"), ("ep", "expert_parallel"), ("cp", "context_parallel"))


def crossing(options: Options, answer: Answer) -> Crossing | None:
    """The first of tensor, expert and context parallelism whose group spans nodes; None if none
    does, or if its traffic is a negligible part of the step."""
    plan, table = answer.chosen.plan, answer.chosen.table.pick([answer.row])
    domain, layout = plan.cluster.nvlink_domain, table.layout(0)
    time = answer.chosen.time
    for name, component in _GROUPS:
        seconds = time.components.get(component, 0.0)
        heard = np.ravel(seconds / time.seconds)[answer.row if np.size(seconds) > 1 else 0]
        size, spanned = getattr(layout, name), float(stride(plan, name, 1.0 * layout.tp))
        if size > 1 and size * spanned > domain and (name == "tp" or heard >= _HEARD):
            inside = _inside(options, answer, name, domain)
            return Crossing(degree=name, size=size, node_gpus=domain, inside=inside)
    return None


def _inside(options: Options, answer: Answer, name: str, domain: int) -> InsideNodes | None:
    """The fastest layout that fits and keeps this group inside nodes."""
    candidates = []
    for searched in answer.searches:
        if searched.estimates is None:
            continue
        outer, row = searched.estimates.space.outer, searched.estimates.space.row
        span: Array = outer[name] * stride(searched.estimates.plan, name, outer["tp"])
        at = best(searched.estimates, (span <= domain)[row])
        if at is not None:
            candidates.append(
                (float(timed(searched.estimates).seconds[at]), searched.estimates, at)
            )
    if not candidates:
        return None
    seconds, outline, at = min(candidates, key=lambda each: each[0])
    estimates, row = outline.some([at])[0]
    slower = seconds / float(answer.chosen.time.seconds[answer.row]) - 1
    return extended(
        InsideNodes,
        report.line(options, estimates, row),
        slower_frac=slower,
        within_noise=abs(slower) <= REPEATS,
    )
