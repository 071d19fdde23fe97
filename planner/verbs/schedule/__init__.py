"""The verb `schedule`: one pipeline schedule timed, counted, drawn and compared with the others;
and the trace of an estimate."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner import schedules
from planner.estimate import Estimates
from planner.estimate.pipeline import chunk_seconds
from planner.inputs import catalog
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.ledger import Array
from planner.report.layout import SCHEMA_VERSION, Report, evaluate_row
from planner.schedules import checks, timing
from planner.schedules.base import Actions, parse_actions, with_sends
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.layout import Layout
from planner.specs.options import Options, only_for, refuse_whole_steps
from planner.units import UnitError, parse
from planner.verbs.step_trace import of_estimate

_MOST_FILE_BYTES = 100_000_000
_MOST_COMPARED = (
    300_000  # actions of a schedule in the table of all: larger ones would take seconds each
)
_MOST_MADE = 8192  # forward passes up to which automatic schedules are made for the table


@dataclass(frozen=True)
class Request:
    """What `dpplan schedule` was asked; texts as they were typed, None where nothing was."""

    schedule: str | None = None
    pp: int | None = None
    vpp: int | None = None
    microbatches: int | None = None
    forward_s: str | None = None
    backward_s: str | None = None
    weight_s: str | None = None
    p2p_s: str | None = None
    optimizer_s: str | None = None
    straggler: str | None = None
    blocking_sends: bool = False
    activation_bytes: str | None = None
    file: str | None = None
    sends: bool = False  # list messages among the actions


@dataclass(frozen=True)
class Drawn:
    """A schedule with its times, ready to be drawn; `document` is the JSON answer."""

    document: Report
    program: timing.Program
    timing: timing.Timing
    title: str


@dataclass(frozen=True)
class _Case:
    """Ranks, micro-batches and seconds that every schedule of the table shares; per rank and
    micro-batch."""

    p: int
    m: int
    v: int | None
    forward: Array  # (ranks,) of whole ranks, or (stages,) where the caller gave one per chunk
    backward: Array
    weight: Array
    send: Array
    tail: Array
    slowdown: Array
    blocking: bool
    activation_bytes: Array | None  # (ranks,) of one micro-batch


def draw(request: Request, given: Mapping[str, Any]) -> Drawn:
    """Time one schedule, and all others beside it. `given` are the options of an estimate, empty
    without a model."""
    model = {key: value for key, value in given.items() if value is not None}
    case, name = _of_model(request, model) if model else _of_request(request)
    if request.file is not None:
        lists = _read(request.file)
        name = Path(request.file).name
        program = checks.checked(lists, "--file", name)
        case = _fit(case, program)
    else:
        lists = _lists(name, case)
        program = checks.checked(lists)
    timed = timing.timed(program, _durations(case, program), keep=True)
    free = request.file is None and schedules.free_running(name)
    document: Report = {
        "schema_version": SCHEMA_VERSION,
        "schedule": name,
        "pp": program.ranks,
        "vpp": program.stages // program.ranks
        if request.file is not None
        else case.v or schedules.default_chunks(name),
        "microbatches": program.microbatches,
        **_figures(lists, program, timed, case, free),
        "durations": _shown(case),
        "actions": [
            [str(action) for action in row]
            for row in (with_sends(lists) if request.sends else lists)
        ],
        "comparison": _comparison(case, name if request.file is None else None),
    }
    if request.file is not None:
        document["comparison"].insert(
            0,
            {
                "schedule": name,
                "vpp": document["vpp"],
                "refused": None,
                **_figures(lists, program, timed, case, free),
            },
        )
    return Drawn(
        document,
        program,
        timed,
        f"{name}, pp {program.ranks}, {program.microbatches} micro-batches",
    )


def _figures(
    lists: Actions, program: timing.Program, timed: timing.Timing, case: _Case, free: bool
) -> Report:
    """Times, bubble and what is alive; live chunks count as shares of a micro-batch on the rank."""
    step = float((timed.span if free else timed.makespan)[0])
    per_rank = _chunks_of(program)
    live = [count / chunks for count, chunks in zip(checks.peak_live(lists), per_rank, strict=True)]
    size = case.activation_bytes
    return {
        "makespan_s": float(timed.makespan[0]),
        "step_s": step,
        "bubble_frac": float(1 - timed.busy[:, 0].mean() / step) if step > 0 else 0.0,
        "busy_s": [float(x) for x in timed.busy[:, 0]],
        "peak_live_microbatches": live,
        "peak_live_bytes": None
        if size is None
        else [float(n * b) for n, b in zip(live, size, strict=True)],
    }


def _chunks_of(program: timing.Program) -> list[float]:
    """Chunks of layers that a micro-batch passes on each rank: two stages in DualPipe's opposite
    directions are one each."""
    passes = np.zeros(program.ranks)
    for node, rank, action in timing.order_of(program):
        del node
        passes[rank] += sum(part.kind == "F" for part in action.parts or (action,))
    return [max(float(n) / program.microbatches, 1e-9) for n in passes]


def _lists(name: str, case: _Case) -> Actions:
    """Actions of a schedule; automatic ones are made for the durations at hand."""
    v = schedules.default_chunks(name) if case.v is None else case.v
    send = float(np.max(case.send, initial=0.0))
    return schedules.fitted_actions(
        name, case.p, case.m, v, case.forward, case.backward - case.weight, case.weight, send
    )


def _durations(case: _Case, program: timing.Program) -> timing.Durations:
    """Seconds per chunk: a rank's own divided by its chunks, unless one was given for each
    chunk."""
    stages = program.stages
    parts = [case.forward, case.backward - case.weight, case.weight]
    if case.forward.size != stages:
        rank_of = {stage: rank for _, stage, _, rank in program.kinds if stage >= 0}
        ranks = np.array([rank_of[stage] for stage in range(stages)])
        parts = [x[ranks] * case.p / stages for x in parts]
    send = case.send if case.send.size in (1, stages - 1) else case.send.max(keepdims=True)
    return timing.Durations(
        parts[0],
        parts[1],
        parts[2],
        send=send,
        slowdown=case.slowdown,
        tail=case.tail,
        blocking=case.blocking,
    )


def _comparison(case: _Case, chosen: str | None) -> list[Report]:
    """Every schedule at the same ranks and micro-batches; chunks as asked where it has several.
    What cannot run says why."""
    rows: list[Report] = []
    for name in schedules.BY_NAME:
        v = (
            case.v
            if case.v is not None and schedules.chunks_fit(name, case.v)
            else schedules.default_chunks(name)
        )
        own = case if name == chosen else _alike(case)
        row: Report = {"schedule": name, "vpp": v, "refused": None}
        try:
            if own.p * own.m * v * 3 > _MOST_COMPARED:
                raise PlanError(
                    "--microbatches",
                    own.m,
                    f"more than {_MOST_COMPARED:,} actions; not simulated in the table",
                )
            if (
                name != chosen
                and own.p * own.m > _MOST_MADE
                and hasattr(schedules.BY_NAME[name], "actions_for")
            ):
                raise PlanError(
                    "--microbatches",
                    own.m,
                    f"takes seconds to make at this size; ask for it with --schedule {name}",
                )
            lists = _lists(name, _with_chunks(own, v))
            program = timing.compiled(lists)
            timed = timing.timed(program, _durations(own, program))
        except PlanError as error:
            rows.append(
                {
                    **row,
                    "refused": error.remedy,
                    "makespan_s": None,
                    "step_s": None,
                    "bubble_frac": None,
                    "busy_s": None,
                    "peak_live_microbatches": None,
                    "peak_live_bytes": None,
                }
            )
            continue
        rows.append({**row, **_figures(lists, program, timed, own, schedules.free_running(name))})
    return rows


def _alike(case: _Case) -> _Case:
    """The case with seconds per rank: what was given per chunk is summed over the chunks of a
    rank."""
    if case.forward.size == case.p:
        return case

    def ranks(x: Array) -> Array:
        return x.reshape(-1, case.p).sum(axis=0)

    return _replace(
        case, forward=ranks(case.forward), backward=ranks(case.backward), weight=ranks(case.weight)
    )


def _with_chunks(case: _Case, v: int) -> _Case:
    return _replace(case, v=v)


def _replace(case: _Case, **changes: Any) -> _Case:
    return _Case(**{**case.__dict__, **changes})


def _shown(case: _Case) -> Report:
    return {
        "forward_s": case.forward.tolist(),
        "input_gradient_s": (case.backward - case.weight).tolist(),
        "weight_gradient_s": case.weight.tolist(),
        "p2p_s": case.send.tolist(),
        "optimizer_s": case.tail.tolist(),
        "slowdown": case.slowdown.tolist(),
    }


# --------------------------------------------------------------------------------------------------


def _numbers(field: str, text: str | None, default: float, counts: tuple[int, ...]) -> Array:
    """One number, or one per stage separated by commas. Raises PlanError naming the option."""
    if text is None:
        return np.full(counts[0], default)
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise PlanError(
            field, text, "must be a number of seconds, or one per stage separated by commas"
        ) from None
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise PlanError(field, text, "must be finite and not negative")
    if values.size == 1:
        return np.full(counts[0], values[0])
    if values.size not in counts:
        expected = " or ".join(str(count) for count in sorted(set(counts)))
        raise PlanError(field, text, f"has {values.size} numbers; give 1 or {expected}")
    return values


def _of_request(request: Request) -> tuple[_Case, str]:
    """Ranks, micro-batches and seconds from the request alone."""
    name, p, m, v = request.schedule, request.pp, request.microbatches, request.vpp
    if request.file is not None:
        for field, value in (
            ("--schedule", name),
            ("--pp", p),
            ("--vpp", v),
            ("--microbatches", m),
        ):
            if value is not None:
                raise PlanError(field, value, "is in the file; leave it out beside --file")
        lists = _read(request.file)
        program = checks.checked(lists, "--file", Path(request.file).name)
        p, m, v = program.ranks, program.microbatches, max(program.stages // program.ranks, 1)
        name = request.file
    else:
        if name is None:
            raise PlanError(
                "--schedule",
                None,
                f"is needed, one of {', '.join(schedules.BY_NAME)}; or give --file",
            )
        schedules.module_of(name)
        if p is None or m is None:
            field = "--pp" if p is None else "--microbatches"
            raise PlanError(field, None, "is needed, unless a model gives it (--model)")
        v = schedules.default_chunks(name) if v is None else v
        if p * v * m > 0:
            schedules.actions(name, p, m, v)
    stages = p * v
    forward = _numbers("--forward-s", request.forward_s, 1.0, (p, stages))
    backward = _numbers("--backward-s", request.backward_s, 2.0, (p, stages))
    if request.backward_s is None and request.weight_s is not None:
        backward = 1.0 + _numbers("--weight-s", request.weight_s, 1.0, (p, stages))
    weight = (
        backward / 2
        if request.weight_s is None
        else _numbers("--weight-s", request.weight_s, 1.0, (p, stages))
    )
    size = max(forward.size, backward.size, weight.size)
    forward, backward, weight = (_as_chunks(x, size, p) for x in (forward, backward, weight))
    if np.any(weight > backward):
        raise PlanError(
            "--weight-s",
            request.weight_s,
            "is part of the backward; it cannot be longer than --backward-s",
        )
    send = _numbers("--p2p-s", request.p2p_s, 0.0, (1, max(stages - 1, 1)))
    tail = _numbers("--optimizer-s", request.optimizer_s, 0.0, (p,))
    return _Case(
        p,
        m,
        v,
        forward,
        backward,
        weight,
        send,
        tail,
        _slowdown(request, p),
        request.blocking_sends,
        _bytes(request, p),
    ), name


def _as_chunks(x: Array, size: int, p: int) -> Array:
    """(size,) of values per rank, where another was given per chunk: each chunk an equal share."""
    return x if x.size == size else np.tile(x, size // p) / (size // p)


def _slowdown(request: Request, p: int) -> Array:
    """`RANK:FACTOR`, several separated by commas."""
    out = np.ones(p)
    for part in (request.straggler or "").split(","):
        if not part:
            continue
        rank, _, factor = part.partition(":")
        try:
            number, value = int(rank), float(factor)
        except ValueError:
            raise PlanError("--straggler", part, "must read RANK:FACTOR, such as 3:1.2") from None
        if not 0 <= number < p or not 0 < value < 1e6:
            raise PlanError(
                "--straggler",
                part,
                f"takes a rank from 0 to {p - 1} and a factor above 0, such as 0:1.2",
            )
        out[number] = value
    return out


def _bytes(request: Request, p: int) -> Array | None:
    if request.activation_bytes is None:
        return None
    try:
        values = [parse(part, "B") for part in request.activation_bytes.split(",")]
    except UnitError as error:
        raise PlanError("--activation-bytes", request.activation_bytes, str(error)) from None
    if len(values) not in (1, p):
        raise PlanError(
            "--activation-bytes",
            request.activation_bytes,
            f"has {len(values)} sizes; give 1 or {p}",
        )
    return np.broadcast_to(np.array(values, dtype=float), (p,))


def _read(name: str) -> Actions:
    path = catalog.user_path(name, "--file")
    return parse_actions(catalog.read_text(path, "--file", _MOST_FILE_BYTES), "--file", name)


def _fit(case: _Case, program: timing.Program) -> _Case:
    if case.p != program.ranks:
        raise PlanError(
            "--file", program.ranks, f"has {program.ranks} ranks, but the layout has pp {case.p}"
        )
    return case


def _of_model(request: Request, given: dict[str, Any]) -> tuple[_Case, str]:
    """Seconds and bytes of the layout that an estimate with these options chooses."""
    if "model" not in given:
        extra = next(iter(given))
        near = difflib.get_close_matches(extra, ["schedule", "pp", "vpp"], 1)
        hint = f"; did you mean --{near[0]}?" if near else ""
        raise PlanError(f"--{extra.replace('_', '-')}", given[extra], f"needs --model{hint}")
    for field in (
        "forward_s",
        "backward_s",
        "weight_s",
        "p2p_s",
        "activation_bytes",
        "microbatches",
    ):
        if getattr(request, field) is not None:
            dashed = "--" + field.replace("_", "-")
            raise PlanError(
                dashed,
                getattr(request, field),
                "comes from the model; leave it out, or leave out --model",
            )
    options = read_options({**given, **{k: getattr(request, k) for k in ("schedule", "pp", "vpp")}})
    only_for(options, "schedule")
    refuse_whole_steps(options, "schedule")
    one = chosen(options)
    layout = one.table.layout(0)
    return _estimated(one, layout, request), layout.schedule


def chosen(options: Options) -> Estimates:
    """The layout that an estimate with these options answers with, over all its stages."""
    scenario = resolve(options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    return evaluate_row(answer.chosen, answer.row)


def _estimated(one: Estimates, layout: Layout, request: Request) -> _Case:
    """Seconds, bytes and micro-batches of one estimated layout."""
    p, v = layout.pp, layout.vpp
    m = round(one.plan.training.global_batch / (layout.dp * layout.micro_batch))
    f, i, w = (x[:, 0] for x in chunk_seconds(list(one.time.ranks.work), p, v))
    send = next((t for t in one.time.traffic if t.operation == "send_recv"), None)
    each = float(send.seconds[0] / send.count[0]) if send is not None and send.count[0] > 0 else 0.0
    memory = one.memory
    module = schedules.BY_NAME[layout.schedule]
    live = module.live_chunks(
        np.arange(p, dtype=float), np.full(p, float(p)), np.full(p, float(v)), np.full(p, float(m))
    )
    held = np.array([float(parts["activations"][0]) for parts in memory.stage_components])
    tail = np.full(p, float(one.time.components["optimizer"][0]))
    return _Case(
        p,
        m,
        v,
        f,
        i + w,
        w,
        np.array([each]),
        tail,
        _slowdown(request, p),
        request.blocking_sends,
        held / np.maximum(live / v, 1e-9),
    )


def step_trace_text(options: Options) -> str:
    """Trace events of the step that an estimate with these options answers with, as JSON text."""
    return of_estimate(chosen(options)).text()
