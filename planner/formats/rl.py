"""A whole step of reinforcement learning, of which trainers' files are read for the policy's
optimizer step: options of `dpplan rl`, which `dpplan rl --recipe` takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.formats.record import RL, Answer
from planner.specs.options.origin import NoNumber


def say(
    answer: Answer, whole_step: Mapping[str, Any], which: str, numbers: Mapping[str, Iterable[str]]
) -> None:
    """State options of `dpplan rl`, and that this verb plans the whole step. which: "this is ...",
    what other verbs plan of it. None leaves an option of the request open there. numbers: the
    arguments that state an option, where these are numbers; other text is refused there unless the
    option is typed."""
    unread = {
        option: NoNumber(name, answer.values[name].value)
        for option, names in numbers.items()
        for name in names
        if name in answer.values and not _is_number(answer, name)
    }
    for name, value in {**whole_step, **unread, "task": None}.items():
        answer.imply(f"{RL}.{name}", value, which)
    listed = " ".join(
        f"--{name.replace('_', '-')} {value}"
        for name, value in whole_step.items()
        if value is not None and name not in unread
    )
    answer.notes.append(
        f"{which}; `dpplan rl --recipe` plans the whole one, with {listed}, and with"
        " --prompt-length and --response-length, which its log says"
    )


def _is_number(answer: Answer, name: str) -> bool:
    """Whether an argument is a number, or left open; one whose variables the file does not set is
    none."""
    value = answer.values[name]
    if value.unknown:
        return False
    try:
        return value.value in (None, "auto") or float(value.value) >= 0
    except (TypeError, ValueError):
        return False
