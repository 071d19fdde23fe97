"""`dpplan estimate`: one request, answered in full."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner import advise, plugins
from planner.advise import host_update
from planner.estimate import Estimates, Outline
from planner.inputs.scenario import resolve
from planner.ledger import Call, recording
from planner.report import charts, origins, require
from planner.report import layout as report
from planner.report.doubts import answered_of, doubts
from planner.report.search import best_of, not_searched, rejections, software
from planner.report.undecided import undecided
from planner.search import Wanted, best, families, fastest_that_fits, smallest, timed
from planner.search.answer import Answer, answer_of
from planner.search.idle import with_idle
from planner.search.pick import pick_of
from planner.search.room import fit_chance
from planner.search.why_none import why_none
from planner.specs.document import UNSET, changed, extended
from planner.specs.documents.advice import Advice
from planner.specs.documents.estimate import Alternative, Estimate, SearchCounts, Tighter
from planner.specs.options import Options, command_line, flag, refuse
from planner.specs.options.own import ChartName
from planner.units import show
from planner.verbs.both_ways import both_ways
from planner.verbs.crossing import REPEATS, crossing
from planner.verbs.near_ties import near_ties


def estimate(options: Options, *, brief: bool = False) -> Estimate:
    """Answer a request: the best layout in full, the best of each family, and advice. `memory.fits`
    tells whether any fits.

    brief: the same numbers sooner, without `alternatives`, `advice`, `both_ways`, `near_ties`,
    `machine` and `provenance` (empty, and zero).
    """
    return answered(options, brief)[0]


def may_fit(result: Estimate) -> bool:
    """Whether an answer fits, or would with a value of what launch files leave undecided."""
    left = result.undecided
    possible = left.possible if left else []
    return result.memory.fits or any(case.fits for case in possible)


def for_target(options: Options) -> Options:
    """The request with the conditions of --for; formats are loaded only for that."""
    if options.for_target is None:
        return options
    request: Options = plugins.load("formats.recipe", "--for", options.for_target).request(options)
    return request


def answered(options: Options, brief: bool = False) -> tuple[Estimate, Answer]:
    """The estimate with the searches that it was made from."""
    refuse(options, "estimate")
    typed, options = options, for_target(options)
    required = require.read(options.require)
    scenario = resolve(options)
    wanted = Wanted(max(options.top, 1), not brief)
    search = functools.partial(answer_of, beside=fastest_that_fits, wanted=wanted)
    answer = search(scenario)
    if answer is None:
        raise why_none(scenario)
    idle = ""
    if options.allow_idle:
        scenario, answer, idle = with_idle(scenario, answer, search)
        options = scenario.options
    assumptions = (*scenario.assumptions, *host_update.assumed(answer.chosen, answer.row))
    result = report.report(options, answer.chosen, answer.row, assumptions, sensitivities=not brief)
    advice = [] if brief else advise.advice(scenario, answer.chosen, answer.row)
    out = extended(
        Estimate,
        result,
        alternatives=[] if brief else [*best_of_families(options, answer), *_top(options, answer)],
        advice=advice,
        doubts=[*scenario.doubts, *doubts(answered_of(result))],
        both_ways=[] if brief else both_ways(options, answer.chosen.plan, result, advice),
        without=[
            *([idle] if idle else []),
            *advise.deciding(scenario, answer.fits, advice),
            *([] if brief else host_update.without(answer.chosen, answer.row)),
        ],
        search=_counts(options, answer, advice),
        tighter=_tighter(options, answer),
        crossing=crossing(options, answer),
        near_ties=[] if brief else near_ties(options, answer),
        undecided=undecided(options, result, lambda other: estimate(other, brief=True)),
        requirements=require.judge(required, result),
        command=command_line(typed),
        scenario=origins.scenario(
            options, scenario.filled, pick_of(options, answer.chosen, answer.row), result.layout.dp
        ),
    )
    return out, answer


_SURE = 0.99  # chance to fit above which layouts count as equally safe


def _tighter(options: Options, answer: Answer) -> Tighter | None:
    """The fastest layout that is expected to fit, where it is faster than the one taken."""

    def per_sequence(pair: tuple[Estimates | Outline, int]) -> float:
        e, row = pair
        return float(timed(e).seconds[row]) / e.plan.training.global_batch

    searched = [search.estimates for search in answer.searches if search.estimates is not None]
    candidates = [(e, row) for e in searched if (row := fastest_that_fits(e)) is not None]
    if not candidates:
        return None
    outline, at = min(candidates, key=per_sequence)
    faster = 1 - per_sequence((outline, at)) / per_sequence((answer.chosen, answer.row))
    estimates, row = outline.some([at])[0]
    chances = [
        fit_chance(e, np.array([i]))[0] for e, i in ((estimates, row), (answer.chosen, answer.row))
    ]
    if faster <= REPEATS or min(chances) >= _SURE:
        return None
    return extended(Tighter, report.line(options, estimates, row), faster_frac=faster)


def best_of_families(options: Options, answer: Answer) -> list[Alternative]:
    """The best layout of each family, or the nearest to fitting with the reason in bytes."""
    out: dict[str, Alternative] = {}
    for search in answer.searches:
        estimates = search.estimates
        if estimates is None:
            continue
        members = {name: among for name, among in families(estimates).items() if among.any()}
        rows = {name: best(estimates, among) for name, among in members.items()}
        nearest = {
            name: smallest(estimates, members[name]) if row is None else row
            for name, row in rows.items()
        }
        for (name, row), (full, at) in zip(
            rows.items(), estimates.some(list(nearest.values())), strict=True
        ):
            reason = UNSET if row is not None else _shortfall(full, at)
            entry = extended(
                Alternative, report.line(options, full, at), family=name, reason=reason
            )
            old = out.get(name)
            if old is None or _better(entry) > _better(old):
                out[name] = entry
    return list(out.values())


def _better(entry: Alternative) -> tuple[bool, bool, float]:
    """Sort key: entries that fit first, those with the wanted chance before others; then by time,
    or by memory if they do not fit."""
    sure = entry.verdict == "fits"
    return entry.fits, sure, -entry.step_seconds if entry.fits else -entry.device_bytes


def _shortfall(estimates: Estimates, row: int) -> str:
    usable = estimates.plan.usable_bytes
    need = float(estimates.memory.device[row])
    if need <= usable and not estimates.drive_fits[row]:
        return (
            f"needs {show(float(estimates.memory.drive[row]), 'B')} of NVMe drives per GPU, more"
            " than the node has"
        )
    if need <= usable:
        return (
            f"needs {show(float(estimates.memory.host[row]), 'B')} of host memory per GPU, more"
            " than the node has"
        )
    parts = sorted(
        ((float(v[row]), k) for k, v in estimates.memory.components.items()), reverse=True
    )[:3]
    largest = ", ".join(f"{k.replace('_', ' ')} {show(v, 'B')}" for v, k in parts if v > 0)
    return (
        f"needs {show(need, 'B')} of {show(usable, 'B')}, {show(need - usable, 'B')} too much:"
        f" {largest}"
    )


def _top(options: Options, answer: Answer) -> list[Alternative]:
    """The fastest layouts that fit, over all plans."""
    lines = best_of(answer.searches, options.top, "time")
    return [
        extended(Alternative, report.line(options, e, row), rank=i + 1)
        for i, (e, row) in enumerate(lines)
    ]


def explain(options: Options) -> tuple[Estimate, Call]:
    """The report and the tree of formulas that produced its chosen layout."""
    out, answer = answered(options)
    offload = advise.offload_or_recompute(resolve(for_target(options)), answer.chosen, answer.row)
    with recording("estimate of the chosen layout") as tree:
        report.evaluate_row(answer.chosen, answer.row)
    return changed(out, offload=offload), tree


def charted(result: Estimate, options: Options, name: ChartName) -> Estimate:
    """The answer with the numbers of a chart of its layout. Raises PlanError where there are
    none."""
    return changed(result, **charts.drawn(chosen(options), name))


@dataclass(frozen=True)
class Taken:
    """The layout that an estimate answers with, over all its stages."""

    estimates: Estimates
    search: SearchCounts
    assumptions: tuple[str, ...]


def taken(options: Options) -> Taken:
    """The layout that an estimate with these options answers with. Raises PlanError where no layout
    is allowed."""
    scenario = resolve(for_target(options))
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    estimates = report.evaluate_row(answer.chosen, answer.row)
    return Taken(estimates, _counts(options, answer), scenario.sentences)


def chosen(options: Options) -> Estimates:
    """The layout that an estimate with these options answers with, over all its stages. Raises
    PlanError where no layout is allowed."""
    return taken(options).estimates


def _counts(options: Options, answer: Answer, advice: Sequence[Advice] = ()) -> SearchCounts:
    searched = [search.estimates for search in answer.searches if search.estimates is not None]
    return SearchCounts(
        evaluated=sum(e.space.count for e in searched),
        feasible=sum(int(e.fits.sum()) for e in searched),
        excluded=sum(search.excluded for search in answer.searches),
        rejected=rejections(answer.searches),
        software=software(answer.chosen.plan, answer.chosen.table.layout(answer.row)),
        not_searched=_with_worth(not_searched(options, answer.searches), options, advice),
    )


def _with_worth(sentences: Sequence[str], options: Options, advice: Sequence[Advice]) -> list[str]:
    """Sentences on what is not searched, with what advice has found it to be worth."""
    out = list(sentences)
    for entry in advice:
        names = {flag(name) for name in entry.changes}
        names |= {"--allow-idle"} if entry.gpus < options.gpus else set()
        for i, text in enumerate(sentences):
            typed = {word.strip("(),;:") for word in text.split()}
            gains = entry.fits and entry.tokens_change_frac > 0 and out[i] == text
            if gains and names & typed - {"--stack"}:
                out[i] = f"{text}: {entry.tokens_change_frac:.1%} faster with {entry.change}"
    return out
