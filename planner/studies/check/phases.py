"""Steps of reinforcement learning as a log prints their phases, beside those that `dpplan rl`
predicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from planner.inputs import catalog
from planner.rl.documents import Reinforcement
from planner.specs import document
from planner.specs.base import PlanError
from planner.studies.check.steps import verdict
from planner.studies.documents.check import Checked, Phases, PhaseTime

_MOST_BYTES = 4_000_000  # of an answer, with its formulas
_GENERATES = ("generation", "exposed_generation")  # the latter: what is not beside training
_AND = " + "  # between phases that a program times together


def is_answer(head: bytes) -> bool:
    """Whether a file begins as the answer of `dpplan rl --json`."""
    return head.lstrip().startswith(b"{") and b'"step_low_s"' in head and b'"phases"' in head


def read_answer(path: Path, field: str) -> Reinforcement:
    """The answer of a file. Raises PlanError."""
    text = catalog.read_text(path, field, _MOST_BYTES)
    try:
        answer = document.read(text, Reinforcement)
    except msgspec.MsgspecError as error:
        remedy = f"is not an answer of `dpplan rl --json`: {error}"
        raise PlanError(field, str(path), remedy) from None
    if answer.step_s is None:
        remedy = "has no time to compare with: its engines hold no sequence"
        raise PlanError(field, str(path), remedy)
    return answer


def generates(checked: Checked) -> bool:
    """Whether the steps of a log generate what they train on."""
    return checked.steps is not None and any(name in checked.steps.phases for name in _GENERATES)


def phases(predicted: Reinforcement, logs: Sequence[Checked]) -> Phases:
    """The middle of the logs beside an answer with a time: the step, and phase by phase."""
    steps = [log.steps for log in logs if log.steps]
    seconds = float(np.median([step.seconds for step in steps]))
    names = dict.fromkeys(name for step in steps for name in step.phases)
    measured = {
        name: float(np.median([step.phases[name] for step in steps if name in step.phases]))
        for name in names
    }
    lines = [_line(name, s, predicted) for name, s in measured.items()]
    known = {part for name in measured for part in name.split(_AND)}
    lines += [
        PhaseTime(phase.name, None, phase.seconds, phase.low, phase.high, None)
        for phase in predicted.phases
        if phase.name not in known
    ]
    step_s, low, high = (
        value or 0.0  # read_answer refuses an answer without
        for value in (predicted.step_s, predicted.step_low_s, predicted.step_high_s)
    )
    return Phases(
        measured_s=seconds,
        predicted_s=step_s,
        low=low,
        high=high,
        ratio=seconds / step_s,
        verdict=verdict(seconds, low, high),
        lines=lines,
    )


def _line(name: str, seconds: float, predicted: Reinforcement) -> PhaseTime:
    parts = [phase for phase in predicted.phases if phase.name in name.split(_AND)]
    if not parts:
        return PhaseTime(name, seconds, None, None, None, None)
    low, high = sum(part.low or 0.0 for part in parts), sum(part.high or 0.0 for part in parts)
    inside = low <= seconds <= high
    predicted_s = sum(part.seconds or 0.0 for part in parts)
    return PhaseTime(name, seconds, predicted_s, low, high, inside)
