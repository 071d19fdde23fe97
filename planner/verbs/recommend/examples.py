"""The question of fine-tuning, which `dpplan tune` answers, for a request to `dpplan recommend`."""

from __future__ import annotations

from collections.abc import Sequence

from planner.inputs.fine_tuning import MOST_GPUS, tune_command
from planner.specs.options import Options
from planner.specs.options.recommend import Limits
from planner.specs.options.tune import ANY

_LIMITS = ("days", "budget", "sure")


def of_examples(
    base: Options, limits: Limits, gpus: Sequence[str], examples: int | None = None
) -> str:
    """The command of `dpplan tune` with the limits of a request.

    gpus: kinds to compare, any where empty; examples: of the data, "N" where they are not known.
    """
    most = limits.max_gpus or max(base.gpus, MOST_GPUS)
    words = [tune_command(base, gpus or (base.gpu or ANY,), most)]
    given = limits.given()
    for name in _LIMITS:
        if name in given:
            words.append(f"--{name}" if given[name] is True else f"--{name} {given[name]:g}")
    return " ".join([*words, f"--examples {'N' if examples is None else examples}"])
