"""A whole step of reinforcement learning, of which trainers' files are read for the policy's
optimizer step: options of `dpplan rl`, which `dpplan rl --recipe` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.formats.record import RL, Answer


def say(answer: Answer, whole_step: Mapping[str, Any], which: str) -> None:
    """State options of `dpplan rl`, and that this verb plans the whole step. which: "this is ...",
    what other verbs plan of it. None leaves an option of the request open there."""
    for name, value in {**whole_step, "task": None}.items():
        answer.imply(f"{RL}.{name}", value, which)
    listed = " ".join(
        f"--{name.replace('_', '-')} {value}"
        for name, value in whole_step.items()
        if value is not None
    )
    answer.notes.append(
        f"{which}; `dpplan rl --recipe` plans the whole one, with {listed}, and with"
        " --prompt-length and --response-length, which its log says"
    )
