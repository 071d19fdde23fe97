"""Shared by the adapters of planners. It runs in an environment of theirs, without dpplan.

An adapter is `python ADAPTER.py CLONE`: a recipe per line on stdin, as
benchmarks/planners/recipes.py makes them, an answer per line on stdout: `step_s` in seconds and
`peak_gib` in GiB of the fullest GPU, or `refused` with the reason where the planner cannot express
the recipe.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any

Recipe = dict[str, Any]
GIB = 2**30


class Unexpressed(Exception):
    """The planner has no words for a recipe."""


def want(holds: bool, reason: str) -> None:
    """Raises Unexpressed with the reason where a condition does not hold."""
    if not holds:
        raise Unexpressed(reason)


def chosen(table: dict[str, Any], value: str, kind: str) -> Any:
    """The planner's word for one of ours. Raises Unexpressed where it has none."""
    want(value in table, f"{kind} {value}")
    return table[value]


def dense_decoder(recipe: Recipe) -> None:
    """Raises Unexpressed unless a recipe trains all weights of a plain transformer."""
    want(recipe["plain"], "blocks other than attention and MLP")
    want(recipe["peft"] == "none", "adapters")
    want(recipe["offload"] == "none", "offloading")


def serve(answer: Callable[[Recipe], tuple[float, float]]) -> None:
    """Answer recipes of stdin. answer: step time (s) and peak memory (GiB) of a recipe; whatever it
    raises is a refusal by the planner, which has its reason."""
    for line in sys.stdin:
        recipe = json.loads(line)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                step_s, peak_gib = answer(recipe)
            reply = {"step_s": step_s, "peak_gib": peak_gib}
        except Exception as error:
            reply = {"refused": f"{error}".partition("\n")[0] or type(error).__name__}
        print(json.dumps({"run_id": recipe["run_id"], **reply}), flush=True)
