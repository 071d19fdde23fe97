"""Undecided options of launch files as a sentence: the question, then the range of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.specs.documents.estimate import Estimate, Undecided
from planner.specs.options import flag
from planner.units import show

_LISTED = 3  # arguments that are named beside an option


def question(left: Mapping[str, Sequence[str]]) -> str:
    """The options that are undecided, with the arguments that may set them."""
    listed = "; ".join(
        f"{flag(option)} ({', '.join(names[:_LISTED])} not understood)"
        for option, names in left.items()
    )
    return f"undecided: {listed}"


def sentence(e: Estimate, left: Undecided) -> str:
    """The question, the range of the step, and whether the plan fits."""
    tried = {case.option for case in left.possible}
    fits = {case.fits for case in left.possible} | {e.memory.fits}
    steps = [e.step.seconds, *(case.step_seconds for case in left.possible)]
    needs = [e.memory.device_bytes, *(case.device_bytes for case in left.possible)]
    if len(fits) > 1:
        listed = [f"{flag(case.option)} {case.value}" for case in left.possible if case.fits]
        verdict = f"whether it fits depends on it: it does with {' or '.join(listed)}"
        verdict = verdict if listed else "whether it fits depends on it"
    elif tried >= left.options.keys():
        verdict = "it fits either way" if fits == {True} else "it does not fit either way"
    else:
        verdict = f"with the values tried it {'fits' if True in fits else 'does not fit'}"
    return (
        f"{question(left.options)}; {_range(steps, 's')} per step, {_range(needs, 'B')} per GPU,"
        f" {verdict}; give {' '.join(map(flag, left.options))}"
    )


def _range(values: list[float], unit: str) -> str:
    first, last = show(min(values), unit), show(max(values), unit)
    return first if first == last else f"{first} to {last}"
