"""`dpplan search`: every valid layout, ranked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from planner import advise
from planner.inputs.scenario import Scenario, resolve
from planner.report import layout as report
from planner.report import search as search_report
from planner.report.layout import Report
from planner.report.search import NEEDS_PRICE
from planner.search import Found
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.options import Options, refuse
from planner.verbs.estimate import _families


def search_layouts(options: Options, tick: Callable[[float], None] | None = None) -> Report:
    """Every valid layout: counts, reasons of rejection, the best that fit and the front of time
    against memory.

    tick: called with the share of the work that is done, now and then.
    """
    return search_with_layouts(options, tick)[0]


def search_with_layouts(
    options: Options, tick: Callable[[float], None] | None = None
) -> tuple[Report, tuple[Found, ...]]:
    """`search_layouts` and what it was made from, for files that list every layout."""
    refuse(options, "search")
    started = time.perf_counter()
    scenario = resolve(options)
    if options.objective in NEEDS_PRICE and scenario.parts[1].usd_per_gpu_hour is None:
        raise PlanError(
            "--objective", options.objective, "needs a price of this GPU; give it with --price"
        )
    answer = answer_of(scenario, tick)
    if answer is None:
        raise why_none(scenario)
    spent = time.perf_counter() - started
    out = search_report.document(answer.found, options.objective, options.top, scenario.assumptions)
    out["seconds"] = spent
    out["families"] = _families(answer)
    out["command"] = advise.command_line(options, "search")
    if not answer.fits and options.offload is None and not options.search_offload:
        out["advice"] = _with_offload(scenario)
    return out, answer.found


def _with_offload(scenario: Scenario) -> list[Report]:
    """The fastest layout that fits once offloading is searched, too: what to try where nothing
    fits."""
    usual = [None] if scenario.options.stack else [None, "optimizer", "activations"]
    out = []
    for kind in usual:
        update: dict[str, Any] = {"search_offload": True} if kind is None else {"offload": kind}
        changed = scenario.options.changed(**update)
        answer = answer_of(resolve(changed))
        if answer is not None and answer.fits:
            entry = report.summary(answer.chosen, answer.row)
            out.append(
                {
                    **entry,
                    "change": "offload to host memory",
                    "command": advise.command_line(changed, "search"),
                }
            )
    return sorted(out, key=lambda entry: float(entry["step_seconds"]))[:1]
