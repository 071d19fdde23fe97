"""Answers between which the undecided options of launch files decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from planner.error import PlanError
from planner.specs.document import UNSET, Unset
from planner.specs.documents.estimate import Possible, Report, Undecided
from planner.specs.options import TYPED, Options

Estimated = Callable[[Options], Report]


def undecided(options: Options, result: Report, estimated: Estimated) -> Undecided | Unset:
    """Answers with other values of the options that launch files leave undecided, one at a time;
    estimated: the report of a request."""
    if not options.undecided:
        return UNSET
    possible = list(_possible(options, estimated))
    tried = {case.option for case in possible}
    moves = any(name not in tried for name in options.undecided)
    return Undecided(
        {name: list(entry.arguments) for name, entry in options.undecided.items()},
        possible,
        moves or any(_differs(result, case) for case in possible),
    )


def _possible(options: Options, estimated: Estimated) -> Iterator[Possible]:
    for option, entry in options.undecided.items():
        for value in entry.values:
            update: dict[str, Any] = {option: value, "advice": 0, "undecided": {}}
            try:
                other = estimated(options.changed(TYPED, **update))
            except PlanError:  # no value of it beside the others
                continue
            memory = other.memory
            yield Possible(option, value, memory.fits, memory.device_bytes, other.step.seconds)


def _differs(result: Report, case: Possible) -> bool:
    """Whether a value moves memory or the step by more than its band."""
    memory, step = result.memory, result.step
    band = memory.reserved_high_bytes - memory.reserved_bytes
    return (
        case.fits != memory.fits
        or abs(case.device_bytes - memory.device_bytes) > band
        or not step.low <= case.step_seconds <= step.high
    )
