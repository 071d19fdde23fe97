"""The question of fine-tuning, which `dpplan tune` answers, for a request to `dpplan recommend`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from planner.specs.options import Options, rows
from planner.specs.options.line import command_line
from planner.specs.options.recommend import Limits
from planner.specs.options.tune import ANY, RANK

_MOST_GPUS = 8  # a node, as most fine-tune on
_LIMITS = ("days", "budget", "sure")


def of_examples(
    base: Options, limits: Limits, gpus: Sequence[str], examples: int | None = None
) -> str:
    """The command of `dpplan tune` with what a request states: its adapters as a method.

    gpus: kinds to compare, any where empty; examples: of the data, "N" where they are not known.
    """
    table = rows(Options)
    taken = {name: value for name, value in base.given().items() if "tune" in table[name].verbs}
    most = limits.max_gpus or max(base.gpus, _MOST_GPUS)
    words = [command_line(Options(**taken), "tune")]
    words += [f"--gpu {shlex.quote(name)}" for name in gpus or (base.gpu or ANY,)]
    words += [f"--max-gpus {most}"]
    words += [] if (method := _method(base)) is None else [f"--method {method}"]
    words += [] if base.lora in (None, RANK) else [f"--rank {base.lora}"]
    given = limits.given()
    for name in _LIMITS:
        if name in given:
            words.append(f"--{name}" if given[name] is True else f"--{name} {given[name]:g}")
    return " ".join([*words, f"--examples {'N' if examples is None else examples}"])


def _method(base: Options) -> str | None:
    """The method of fine-tuning that a request states, None where it leaves it open."""
    if base.lora is None:
        return None
    precision = base.base_precision or ""
    return "qlora" if "nf4" in precision else "lora-int8" if precision == "int8" else "lora"
