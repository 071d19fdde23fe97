"""The verb `schedule`: one pipeline schedule timed, counted, drawn and compared with the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner import schedules
from planner.inputs.doubts import unflagged
from planner.ledger import Array
from planner.report.layout import figures
from planner.schedules import checks, timing
from planner.schedules.base import Actions, with_sends
from planner.specs.base import PlanError
from planner.specs.components import AROUND
from planner.specs.document import SCHEMA_VERSION, UNSET, extended, plain
from planner.specs.documents.schedule import Durations, Figures, OfLayout, Row, Schedule
from planner.specs.options.checked import read
from planner.specs.options.layout import LayoutOptions
from planner.specs.options.own import ScheduleOptions
from planner.verbs.estimate import Taken
from planner.verbs.schedule.case import (
    SHAPE,
    Case,
    imported,
    of_estimate,
    of_file,
    of_model,
    of_request,
    refuse_beside_file,
    refuse_idle,
)

__all__ = ["Drawn", "draw"]

_MOST_COMPARED = 300_000  # actions of a schedule in the table: larger ones take seconds each
_MOST_MADE = 8192  # forward passes up to which automatic schedules are made for the table
_NOTHING = dict.fromkeys(Figures.__struct_fields__)  # of a schedule that is refused
_ROUNDING = 1e-9  # of a step: sums in another order
_PHASES = 3  # actions of a micro-batch on a stage, at most: forward, input and weight gradient


@dataclass(frozen=True)
class Drawn:
    """A schedule with its times, ready to be drawn; `document` is the JSON answer."""

    document: Schedule
    program: timing.Program
    timing: timing.Timing
    title: str


def draw(request: ScheduleOptions, given: Mapping[str, Any]) -> Drawn:
    """Time one schedule, and all others beside it. Raises PlanError for wrong requests.

    given: the options of an estimate by name; without a model, only options of its layout.
    """
    question = _request_of(request, given)
    refuse_idle(request, question.case)
    timed = timing.timed(question.program, question.case.durations(question.program), keep=True)
    free = not question.own and schedules.free_running(question.name)
    counted = plain(_figures(question.actions, question.program, timed, question.case, free))
    comparison = _comparison(question.case, None if question.own else question.name)
    if question.own:
        comparison.insert(0, Row(schedule=question.name, vpp=question.vpp, refused=None, **counted))
    document = Schedule(
        schema_version=SCHEMA_VERSION,
        schedule=question.name,
        pp=question.program.ranks,
        vpp=question.vpp,
        microbatches=question.program.microbatches,
        **counted,
        durations=_durations(question.case),
        actions=[
            [str(action) for action in row]
            for row in (with_sends(question.actions) if request.sends else question.actions)
        ],
        comparison=comparison,
        estimate=UNSET if question.taken is None else _of_layout(question.taken, counted["step_s"]),
        doubts=[] if question.taken is None else list(unflagged(question.taken.assumptions)),
    )
    program = question.program
    title = f"{question.name}, pp {program.ranks}, {program.microbatches} micro-batches"
    return Drawn(document, question.program, timed, title)


@dataclass(frozen=True)
class _Asked:
    """The requested schedule."""

    name: str
    case: Case
    actions: Actions
    program: timing.Program
    vpp: int
    own: bool  # of the user's file, not of the catalogue
    taken: Taken | None  # the layout that a model gives


def _request_of(request: ScheduleOptions, given: Mapping[str, Any]) -> _Asked:
    alone = given.keys() <= set(SHAPE)
    shape = read(LayoutOptions, {name: given.get(name) for name in SHAPE})
    if request.file is not None and alone:
        refuse_beside_file(request, shape)
    taken = None if alone else of_model(request, given)
    of_layout = None if taken is None else of_estimate(taken.estimates, request)
    if request.file is None:
        case, name = of_layout or of_request(request, shape)
        actions = case.actions(name)
        vpp = case.vpp or schedules.default_chunks(name)
        return _Asked(name, case, actions, checks.checked(actions), vpp, own=False, taken=taken)
    file = imported(request.file)
    case = of_layout[0] if of_layout else of_file(request, file)
    ranks = file.program.ranks
    if case.pp != ranks:
        raise PlanError("--file", ranks, f"has {ranks} ranks, but the layout has pp {case.pp}")
    vpp = file.program.stages // ranks
    return _Asked(file.name, case, file.actions, file.program, vpp, own=True, taken=taken)


def _of_layout(taken: Taken, step_s: float) -> OfLayout:
    """The layout of a schedule, and what its estimate has beside the schedule."""
    estimate = figures(taken.estimates, taken.assumptions)
    seconds = estimate.step.seconds
    around = {name: s for name in AROUND if (s := estimate.step.components.get(name, 0.0)) > 0}
    rest = seconds - sum(around.values()) - step_s
    return extended(
        OfLayout,
        estimate,
        search=taken.search,
        around=around,
        transfers_s=rest if abs(rest) > _ROUNDING * seconds else 0.0,
    )


def _figures(
    actions: Actions, program: timing.Program, timed: timing.Timing, case: Case, free: bool
) -> Figures:
    """Times, bubble and what is alive; live chunks count as shares of a micro-batch on the rank.

    free: ranks start the next step without waiting for the others.
    """
    step = float((timed.span if free else timed.makespan)[0])
    chunks = _chunks_per_rank(program)
    live = [count / n for count, n in zip(checks.peak_live(actions), chunks, strict=True)]
    size = case.activation_bytes
    return Figures(
        makespan_s=float(timed.makespan[0]),
        step_s=step,
        bubble_frac=float(1 - timed.busy[:, 0].mean() / step) if step > 0 else 0.0,
        busy_s=timed.busy[:, 0].tolist(),
        peak_live_microbatches=live,
        peak_live_bytes=None if size is None else (np.array(live) * size).tolist(),
    )


def _chunks_per_rank(program: timing.Program) -> list[float]:
    """Chunks of layers that a micro-batch passes on each rank: two stages in DualPipe's opposite
    directions are one each."""
    passes = np.zeros(program.ranks)
    for _, rank, action in timing.order_of(program):
        passes[rank] += sum(part.kind == "F" for part in action.parts or (action,))
    return [max(float(n) / program.microbatches, 1e-9) for n in passes]


def _comparison(case: Case, chosen: str | None) -> list[Row]:
    """Every schedule at the same ranks and micro-batches; with the requested chunks if it has
    several. Schedules that cannot run have a reason."""
    shared = case.per_rank()
    rows = []
    for name in schedules.BY_NAME:
        v = schedules.default_chunks(name)
        if case.vpp is not None and schedules.chunks_fit(name, case.vpp):
            v = case.vpp
        varied = replace(case if name == chosen else shared, vpp=v)
        try:
            _refuse_large(name, varied, v, automatic=name == chosen)
            actions = varied.actions(name)
            program = timing.compiled(actions)
            timed = timing.timed(program, varied.durations(program))
        except PlanError as error:
            rows.append(Row(schedule=name, vpp=v, refused=error.remedy, **_NOTHING))
            continue
        figures = _figures(actions, program, timed, varied, schedules.free_running(name))
        rows.append(Row(schedule=name, vpp=v, refused=None, **plain(figures)))
    return rows


def _refuse_large(name: str, case: Case, v: int, automatic: bool) -> None:
    passes = case.pp * case.microbatches
    if passes * v * _PHASES > _MOST_COMPARED:
        why = f"more than {_MOST_COMPARED:,} actions; not simulated in the table"
    elif not automatic and passes > _MOST_MADE and schedules.is_automatic(name):
        why = f"takes seconds to make at this size; ask for it with --schedule {name}"
    else:
        return
    raise PlanError("--microbatches", case.microbatches, why)


def _durations(case: Case) -> Durations:
    def seconds(x: Array) -> list[float]:
        return np.asarray(x, dtype=float).tolist()

    return Durations(
        forward_s=seconds(case.forward),
        input_gradient_s=seconds(case.input_gradient),
        weight_gradient_s=seconds(case.weight),
        p2p_s=seconds(case.send),
        optimizer_s=seconds(case.tail),
        slowdown=seconds(case.slowdown),
    )
