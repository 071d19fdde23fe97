"""Time of every pipeline stage, and why one of them is the slowest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate import Estimates
from planner.estimate.stages import StageSplit, stage_split
from planner.ledger import Array, first
from planner.schedules.base import total_s
from planner.specs.layers import timed_kinds
from planner.units import percent, show

_ALIKE = 0.005  # share above the mean of all stages from which a stage is called slower


@dataclass(frozen=True)
class Pace:
    """Seconds of one micro-batch's forward and backward."""

    seconds: Array  # of every stage
    slowest: str | None  # which stage that is and why; None where there is one stage
    above_frac: float  # of the slowest, over the mean of stages


def pace(estimates: Estimates) -> Pace:
    """Pace of a table with one row."""
    pp, kinds = int(estimates.table.pp[0]), timed_kinds(estimates.plan.model)
    many = estimates.table.each(lambda column: np.repeat(column, pp))
    split = stage_split(estimates.plan, many, np.arange(float(pp)), kinds)
    work = estimates.time.ranks.each.of(split.kinds, split.last + split.mtp, split.mtp)
    seconds = np.ravel(total_s(work) + np.zeros(pp))
    if pp == 1:
        return Pace(seconds, None, 0.0)
    at = int(seconds.argmax())
    more = float(seconds[at] / seconds.mean() - 1)
    sentence = f"stage {at} is the slowest: {show(float(seconds[at]), 's')} per micro-batch"
    if more < _ALIKE:
        return Pace(seconds, f"{sentence}, and no stage is much faster", more)
    why = f"{percent(more)} above the mean of stages; it has {_made_of(estimates, split, at)}"
    return Pace(seconds, f"{sentence}, {why}", more)


def _made_of(estimates: Estimates, split: StageSplit, stage: int) -> str:
    """Contents of a stage, and the time of each piece."""
    kinds, each = timed_kinds(estimates.plan.model).kinds, estimates.time.ranks.each
    pieces = [
        (float(n[stage]), "layer", "" if len(kinds) == 1 else f" of {kind.name}", work)
        for n, kind, work in zip(split.kinds, kinds, each.layer, strict=True)
    ]
    mtp = float(split.mtp[stage])
    pieces += [
        (float(split.last[stage]) + mtp, "head", "", each.head),
        (mtp, "projection", " of multi-token prediction", each.module),
    ]
    return ", ".join(
        f"{n:g} {word}{'' if n == 1 else 's'}{suffix} ({show(first(total_s(work)), 's')}"
        f"{'' if n == 1 else ' each'})"
        for n, word, suffix, work in pieces
        if n > 0
    )
