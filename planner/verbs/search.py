"""`dpplan search`: every valid layout, ranked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from planner.inputs.scenario import Scenario, resolve
from planner.report import layout as report
from planner.report.search import (
    NEEDS_PRICE,
    by_tp_pp,
    front,
    not_searched,
    rejections,
    shortfall,
    top,
)
from planner.search import Found, Wanted
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, UNSET, extended
from planner.specs.documents.search import Search, WithOffload
from planner.specs.options import Options, command_line, refuse
from planner.verbs.estimate import best_of_families, for_target


def search_layouts(options: Options, tick: Callable[[float], None] | None = None) -> Search:
    """Every valid layout: counts, reasons of rejection, the best that fit and the front of time
    against memory.

    tick: called with the share of the work that is done, now and then.
    """
    return search_with_layouts(options, tick)[0]


def search_with_layouts(
    options: Options, tick: Callable[[float], None] | None = None
) -> tuple[Search, tuple[Found, ...]]:
    """`search_layouts` and what it was made from, for files that list every layout."""
    refuse(options, "search")
    started = time.perf_counter()
    typed, options = options, for_target(options)
    scenario = resolve(options)
    if options.objective in NEEDS_PRICE and scenario.parts[1].price.usd_per_gpu_hour is None:
        raise PlanError(
            "--objective",
            options.objective,
            f"needs a price: {scenario.parts[1].price.missing}; give --price or another --market",
        )
    if options.objective in NEEDS_PRICE and not scenario.plans[0].costs:
        raise PlanError(
            "--objective", options.objective, "compares nothing: every layout costs 0; take time"
        )
    answer = answer_of(scenario, tick, wanted=Wanted(max(options.top, 1), True, True))
    if answer is None:
        raise why_none(scenario)
    spent = time.perf_counter() - started
    evaluated = [search.estimates for search in answer.searches if search.estimates is not None]
    offload = not answer.fits and options.offload is None and not options.search_offload
    return Search(
        schema_version=SCHEMA_VERSION,
        enumerated=sum(search.enumerated for search in answer.searches),
        evaluated=sum(e.space.count for e in evaluated),
        feasible=sum(int(e.fits.sum()) for e in evaluated),
        excluded=sum(search.excluded for search in answer.searches),
        not_searched=not_searched(options, answer.searches),
        rejected=rejections(answer.searches),
        shortfall=shortfall(evaluated),
        objective=options.objective,
        top=top(options, answer.searches, scenario.sentences),
        pareto=front(options, evaluated),
        by_tp_pp=by_tp_pp(options, evaluated),
        seconds=spent,
        families=best_of_families(options, answer),
        command=command_line(typed, "search"),
        assumptions=list(scenario.assumptions),
        doubts=list(scenario.doubts),
        advice=_with_offload(scenario) if offload else UNSET,
    ), answer.searches


def _with_offload(scenario: Scenario) -> list[WithOffload]:
    """The fastest layout that fits once offloading is searched, too: what to try where nothing
    fits."""
    usual = [None] if scenario.options.stack else [None, "optimizer", "activations"]
    out = []
    for kind in usual:
        update: dict[str, Any] = {"search_offload": True} if kind is None else {"offload": kind}
        options = scenario.options.changed(**update)
        answer = answer_of(resolve(options))
        if answer is not None and answer.fits:
            out.append(
                extended(
                    WithOffload,
                    report.line(options, answer.chosen, answer.row),
                    change="offload to host memory",
                )
            )
    return sorted(out, key=lambda entry: entry.step_seconds)[:1]
