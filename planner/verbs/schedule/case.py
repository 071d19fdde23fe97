"""The timed case: ranks, micro-batches and seconds, from the request or from an estimate."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner import schedules
from planner.estimate import Estimates
from planner.estimate.pipeline import chunk_seconds, sends_overlap
from planner.inputs import catalog
from planner.inputs.options import read_options
from planner.ledger import Array, first
from planner.schedules import checks
from planner.schedules.base import Actions, parse_actions
from planner.schedules.timing import Durations, Program
from planner.specs.base import PlanError
from planner.specs.layout import SCHEDULES
from planner.specs.options import flag, refuse, rows
from planner.specs.options.layout import LayoutOptions
from planner.specs.options.numbers import several, within
from planner.specs.options.own import ModelTimes, ScheduleOptions
from planner.units import parse, parse_whole
from planner.verbs.estimate import Taken, taken

_MOST_FILE_BYTES = 100_000_000
_FORWARD_S, _INPUT_S, _WEIGHT_S = 1.0, 1.0, 1.0  # a backward takes twice a forward


@dataclass(frozen=True)
class Imported:
    """A schedule of the user's own file."""

    name: str
    actions: Actions
    program: Program


@dataclass(frozen=True)
class Case:
    """Ranks, micro-batches and seconds that every schedule of the table shares."""

    pp: int
    microbatches: int
    vpp: int | None  # None: each schedule's own
    forward: Array  # s per micro-batch: (ranks,), or (stages,) where one was given per chunk
    backward: Array  # whole backward, likewise
    weight: Array  # weight gradient, part of it
    send: Array  # s of a message: (1,), or (stages - 1,)
    tail: Array  # (ranks,) s that follow a rank's last action
    slowdown: Array  # (ranks,)
    blocking: bool  # ranks wait for their sends
    activation_bytes: Array | None  # (ranks,) of one micro-batch

    @property
    def input_gradient(self) -> Array:
        return self.backward - self.weight

    def per_rank(self) -> Case:
        """Seconds per rank: what was given per chunk is summed over the chunks of a rank."""
        if self.forward.size == self.pp:
            return self
        summed = {
            name: getattr(self, name).reshape(-1, self.pp).sum(axis=0)
            for name in ("forward", "backward", "weight")
        }
        return replace(self, **summed)

    def durations(self, program: Program) -> Durations:
        """Seconds per chunk: a rank's own divided by its chunks, unless one was given for each."""
        stages = program.stages
        forward, given, weight = self.forward, self.input_gradient, self.weight
        if forward.size != stages:
            rank_of = {stage: rank for _, stage, _, rank in program.kinds if stage >= 0}
            ranks = np.array([rank_of[stage] for stage in range(stages)])
            forward, given, weight = (x[ranks] * self.pp / stages for x in (forward, given, weight))
        fits = self.send.size in (1, stages - 1)
        return Durations(
            forward,
            given,
            weight,
            send=self.send if fits else self.send.max(keepdims=True),
            slowdown=self.slowdown,
            tail=self.tail,
            blocking=self.blocking,
        )

    def actions(self, name: str) -> Actions:
        """Actions of a schedule; automatic ones are made for the durations at hand."""
        return schedules.fitted_actions(
            name,
            self.pp,
            self.microbatches,
            schedules.default_chunks(name) if self.vpp is None else self.vpp,
            self.forward,
            self.input_gradient,
            self.weight,
            float(np.max(self.send, initial=0.0)),
        )


def imported(name: str) -> Imported:
    """A schedule file, checked. Raises PlanError naming --file and the line."""
    path = catalog.user_path(name, "--file")
    text = catalog.read_text(path, "--file", _MOST_FILE_BYTES)
    actions = parse_actions(text, "--file", name)
    file = Path(name).name
    return Imported(file, actions, checks.checked(actions, "--file", file))


def of_file(request: ScheduleOptions, file: Imported) -> Case:
    """Seconds from the request, ranks and micro-batches from the file."""
    program = file.program
    chunks = max(program.stages // program.ranks, 1)
    return _stated(request, program.ranks, program.microbatches, chunks)


def of_request(request: ScheduleOptions, shape: LayoutOptions) -> tuple[Case, str]:
    """Ranks, micro-batches and seconds of the request, and the schedule's name."""
    name, p, m, v = shape.schedule, shape.pp, request.microbatches, shape.vpp
    if name is None:
        raise PlanError(
            "--schedule", None, f"is needed, one of {', '.join(schedules.BY_NAME)}; or give --file"
        )
    schedules.module_of(name)
    if p is None or m is None:
        field = "--pp" if p is None else "--microbatches"
        raise PlanError(field, None, "is needed, unless a model gives it (--model)")
    v = schedules.default_chunks(name) if v is None else v
    if p * v * m > 0:
        schedules.actions(name, p, m, v)
    return _stated(request, p, m, v), name


def refuse_beside_file(request: ScheduleOptions, shape: LayoutOptions) -> None:
    """The file states what runs, on how many ranks."""
    given = {**shape.given(), **{k: v for k, v in request.given().items() if k == "microbatches"}}
    for name, value in given.items():
        raise PlanError(flag(name), value, "is in the file; leave it out beside --file")


def _stated(request: ScheduleOptions, p: int, m: int, v: int) -> Case:
    stages = p * v
    sizes = (p, stages)
    forward = _numbers("forward_s", request, _FORWARD_S, sizes)
    weight_s = request.weight_s
    weight = _numbers("weight_s", request, _WEIGHT_S, sizes)
    if request.backward_s is None:
        backward = _INPUT_S + weight
    else:
        backward = _numbers("backward_s", request, 0.0, sizes)
        weight = backward / 2 if weight_s is None else weight
    size = max(forward.size, backward.size, weight.size)
    forward, backward, weight = (_as_chunks(x, size, p) for x in (forward, backward, weight))
    if np.any(weight > backward):
        raise PlanError(
            "--weight-s", weight_s, "is part of the backward; it cannot be longer than --backward-s"
        )
    return Case(
        p,
        m,
        v,
        forward,
        backward,
        weight,
        send=_numbers("p2p_s", request, 0.0, (1, max(stages - 1, 1))),
        tail=_numbers("optimizer_s", request, 0.0, (p,)),
        slowdown=_slowdown(request, p),
        blocking=request.blocking_sends,
        activation_bytes=None
        if request.activation_bytes is None
        else _numbers("activation_bytes", request, 0.0, (p,)),
    )


def _numbers(name: str, request: ScheduleOptions, default: float, counts: tuple[int, ...]) -> Array:
    """One number, or one per stage separated by commas, in base units. Raises PlanError naming the
    option."""
    text, row = getattr(request, name), rows(ScheduleOptions)[name]
    if text is None:
        return np.full(counts[0], default)
    field = row.flag
    try:
        values = np.array(several(row, text))
    except ValueError as error:
        raise PlanError(
            field, text, f"{error}; write one number, or one per stage separated by commas"
        ) from None
    if values.size == 1:
        return np.full(counts[0], values[0])
    if values.size not in counts:
        expected = " or ".join(str(count) for count in sorted(set(counts)))
        raise PlanError(field, text, f"has {values.size} numbers; give 1 or {expected}")
    return values


def _as_chunks(x: Array, size: int, p: int) -> Array:
    """(size,) of values per rank, where another was given per chunk: each chunk an equal share."""
    return x if x.size == size else np.tile(x, size // p) / (size // p)


def _slowdown(request: ScheduleOptions, p: int) -> Array:
    """`RANK:FACTOR`, several separated by commas."""
    out = np.ones(p)
    for part in filter(None, (request.straggler or "").split(",")):
        rank, _, factor = part.partition(":")
        try:
            number, value = int(parse_whole(rank)), parse(factor, "1")
            within(rows(ScheduleOptions)["straggler"], value)
        except ValueError as error:
            raise PlanError(
                "--straggler", part, f"{error}; must read RANK:FACTOR, such as 3:1.2"
            ) from None
        if not 0 <= number < p:
            raise PlanError("--straggler", part, f"takes a rank from 0 to {p - 1}, such as 0:1.2")
        out[number] = value
    return out


SHAPE = ("schedule", "pp", "vpp")  # options of a layout that a schedule without a model has, too


def refuse_idle(request: ScheduleOptions, case: Case) -> None:
    """Refuse options of messages without stages that exchange any, and blocking on messages that
    take zero time."""
    for name in ("sends", "blocking_sends"):
        if getattr(request, name) and case.pp == 1:
            raise PlanError(flag(name), True, "one stage sends nothing: take --pp 2 or more")
    if request.blocking_sends and not case.send.any():
        raise PlanError("--blocking-sends", True, "sends take no time: give --p2p-s, too")


def of_model(request: ScheduleOptions, given: Mapping[str, Any]) -> Taken:
    """The layout that an estimate with these options chooses."""
    if "model" not in given:
        extra = next(name for name in given if name not in SHAPE)
        near = difflib.get_close_matches(extra, SHAPE, 1)
        hint = f"; did you mean --{near[0]}?" if near else ""
        raise PlanError(flag(extra), given[extra], f"needs --model{hint}")
    for name, value in request.given().items():
        if name in rows(ModelTimes):
            raise PlanError(
                flag(name), value, "comes from the model; leave it out, or leave out --model"
            )
    options = read_options(given)
    refuse(options, "schedule")
    return taken(options)


def of_estimate(estimates: Estimates, request: ScheduleOptions) -> tuple[Case, str]:
    """Seconds, bytes and micro-batches of row 0 of an estimate, and its schedule. Ranks wait for
    their sends where the estimate has it so."""
    layout = estimates.table.layout(0)
    p, v = layout.pp, layout.vpp
    m = round(estimates.plan.training.global_batch / (layout.dp * layout.micro_batch))
    ranks = estimates.time.ranks
    f, i, w = (x[:, 0] for x in chunk_seconds(estimates.plan, ranks.each, p, v))
    send = next((t for t in estimates.time.traffic if t.operation == "send_recv"), None)
    each = float(send.seconds[0] / send.count[0]) if send is not None and send.count[0] > 0 else 0.0
    code = SCHEDULES.index(layout.schedule)
    live = schedules.live_chunks(code, np.arange(p, dtype=float), float(p), float(v), float(m))
    activations = np.array(
        [float(parts["activations"][0]) for parts in estimates.memory.stage_components]
    )
    case = Case(
        p,
        m,
        v,
        f,
        i + w,
        w,
        send=np.array([each]),
        tail=np.full(p, first(estimates.time.tail)),
        slowdown=_slowdown(request, p),
        blocking=request.blocking_sends
        or not np.all(sends_overlap(estimates.plan, estimates.table.pick([0]))),
        activation_bytes=activations / np.maximum(live / v, 1e-9),
    )
    return case, layout.schedule
