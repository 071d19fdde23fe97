"""The verb `check`: what logs, traces, memory snapshots and messages that memory ran out say,
beside what was predicted of their recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.estimate import Estimates
from planner.estimate.machine import machine
from planner.evidence import memory as evidence
from planner.inputs import catalog
from planner.inputs.logs import Log, read_log, stream
from planner.inputs.options import read_options
from planner.inputs.secrets import scrubbing
from planner.inputs.traces import profiler, snapshot
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION
from planner.specs.documents.check import Against, Check, Checked, Flops
from planner.specs.documents.estimate import Estimate
from planner.specs.options import Options, refuse
from planner.specs.options.commands import CheckOptions
from planner.units import percent
from planner.verbs.check import recordings, row, shortage
from planner.verbs.check.learn import Calibrated, learn
from planner.verbs.check.reasons import reasons
from planner.verbs.check.sort import is_runs_table
from planner.verbs.check.steps import Size, step_times
from planner.verbs.estimate import estimate, taken
from planner.verbs.validate import fit
from planner.verbs.validate.rows import Row, read_tables

_FIELD = "LOG"
_MOST_FILES = 64
_TERA = 1e12
INSIDE = "inside the band"  # the verdict of a step that is as predicted
_PALM = 6.0  # FLOP per parameter and token, forward and backward (Kaplan et al. 2020)


@dataclass(frozen=True)
class Found:
    """The document, and the results that may be written."""

    document: Check
    calibration: Calibrated | None
    table: str | None


@dataclass(frozen=True)
class _Recipe:
    """What the options plan, in full and as its estimate."""

    options: Options
    one: Estimates
    document: Estimate


def check(own: CheckOptions, given: Mapping[str, Any]) -> Found:
    """What files say. Raises PlanError for one that cannot be read, and for results that need a
    recipe where none is given.

    given: options of the recipe by name; without a model, files are read and nothing is predicted.
    """
    if not own.logs:
        raise PlanError(_FIELD, None, "name a log, a trace or a memory snapshot")
    if len(own.logs) > _MOST_FILES:
        raise PlanError(_FIELD, len(own.logs), f"at most {_MOST_FILES} files are read at once")
    recipe = _recipe(given) if given else None
    files, runs = [], []
    for name in own.logs:
        path = catalog.user_path(name, _FIELD)
        with scrubbing((name, str(path))):
            found, rows = _file(path, recipe)
        files.append(found)
        runs += rows
    timed = [one for one in files if one.steps is not None]
    against = _against(recipe, timed) if recipe and timed else None
    learned = _learned(recipe, timed, runs) if own.save else None
    cells = _row(own, recipe, files) if own.append else None
    document = Check(
        schema_version=SCHEMA_VERSION,
        files=files,
        against=against,
        learned=learned.learned if learned else None,
        row=cells,
        prediction=recipe.document if recipe else None,
    )
    table = row.appended(own.append, cells) if own.append and cells else None
    return Found(document, learned, table)


def _recipe(given: Mapping[str, Any]) -> _Recipe:
    options = read_options(given)
    refuse(options, "check")
    return _Recipe(options, taken(options).estimates, estimate(options, brief=True))


def _file(path: Path, recipe: _Recipe | None) -> tuple[Checked, list[Row]]:
    """One file by what it begins with: a trace, a snapshot, a runs table, else a log."""
    predicted = recipe.document if recipe else None
    with stream.pieces(path, _FIELD) as source:
        head = source.head()
        if snapshot.is_one(head):
            held = snapshot.read_snapshot(source.file(), path, _FIELD)
            return _checked(
                path,
                "snapshot",
                "torch memory snapshot",
                snapshot=recordings.snapshot_bytes(held, predicted),
                shortages=shortage.shortages(
                    [shortage.of_snapshot(*one) for one in held.short], *_of(recipe)
                ),
            ), []
        if profiler.is_one(head):
            trace = profiler.read_trace(source, path, _FIELD)
            times = recordings.trace_times(trace, predicted)
            notes = [] if trace.steps else ["the recording marks no steps: it counts as one"]
            kind, partly = "torch profiler trace", trace.partly
            return _checked(path, "trace", kind, trace=times, partly=partly, notes=notes), []
    if is_runs_table(head):
        rows = read_tables([path])
        notes = [f"{len(rows):,} runs, which validation compares with their predictions"]
        return _checked(path, "runs", "runs table", notes=notes), rows
    return _log(path, read_log(path, _FIELD), recipe), []


def _of(recipe: _Recipe | None) -> tuple[Estimates | None, Estimate | None]:
    return (recipe.one, recipe.document) if recipe else (None, None)


def _checked(path: Path, kind: str, program: str, **more: Any) -> Checked:
    empty: dict[str, Any] = {
        "steps": None,
        "tokens_per_s": None,
        "flops": None,
        "memory": {},
        "partly": "",
    }
    empty |= {"shortages": [], "trace": None, "snapshot": None, "notes": []}
    return Checked(name=path.name, kind=kind, program=program, **{**empty, **more})


def _log(path: Path, log: Log, recipe: _Recipe | None) -> Checked:
    size, notes = _size(log, recipe)
    steps = step_times(log, size)
    if steps is None and log.steps:
        notes.append(
            "its lines print rates: give the recipe (--model, --gpus, --global-batch, --seq-len),"
            " which makes them times"
        )
    flops = _flops(log, recipe, steps.seconds) if recipe and steps else None
    return _checked(
        path,
        "log",
        log.title or "torch",
        partly=log.partly,
        steps=steps,
        tokens_per_s=size.tokens / steps.seconds if steps and size.tokens else None,
        flops=flops,
        memory=dict(log.memory),
        shortages=shortage.shortages(log.shortages, *_of(recipe)),
        notes=[*log.notes, *notes],
    )


def _size(log: Log, recipe: _Recipe | None) -> tuple[Size, list[str]]:
    """Tokens of a step: of the recipe, else as the log repeats them; and where they contradict."""
    said = log.stated
    if recipe is None:
        batch, length = said.get("global_batch"), said.get("seq_len")
        tokens = float(batch * length) if batch and length else None
        return Size(tokens, batch, said.get("gpus")), []
    layout, r = recipe.document.layout, recipe.document
    planned = {
        "gpus": r.cluster.gpus,
        "seq_len": r.training.seq_len,
        **{name: getattr(layout, name) for name in ("global_batch", "micro_batch")},
        **{name: getattr(layout, name) for name in ("tp", "pp", "cp", "ep")},
    }
    notes = [
        f"the log says {name} {value:,}, the recipe {planned[name]:,} (--{name.replace('_', '-')})"
        for name, value in said.items()
        if value != planned[name]
    ]
    tokens = float(layout.global_batch * r.training.seq_len)
    return Size(tokens, layout.global_batch, r.cluster.gpus), notes


def _flops(log: Log, recipe: _Recipe, seconds: float) -> Flops | None:
    """Whose count the printed FLOP/s are: the one that they come nearest to."""
    told = [one.tflops for one in log.steps if one.tflops is not None]
    if not told:
        return None
    printed, r = float(np.median(told)), recipe.document
    t, gpus = r.throughput, r.cluster.gpus
    tokens = float(r.layout.global_batch * r.training.seq_len)
    palm = t.tflops_palm * _TERA * r.step.seconds
    counts = {
        "the whole score matrix (PaLM)": palm,
        "half of it, causal": t.model_flop_per_step / gpus,
        "recomputed FLOP too": t.hardware_flop_per_step / gpus,
        "6 per parameter and token": _PALM * r.model.active_parameters * tokens / gpus,
    }
    ratios = {name: printed * _TERA * seconds / flop for name, flop in counts.items() if flop}
    nearest = min(ratios, key=lambda name: abs(np.log(ratios[name])))
    return Flops(tflops=printed, said=log.flops, nearest=nearest, ratio=ratios[nearest])


def _against(recipe: _Recipe, timed: Sequence[Checked]) -> Against:
    """The middle of the logs against the band."""
    seconds = float(np.median([one.steps.seconds for one in timed if one.steps]))
    step = recipe.document.step
    inside = step.low <= seconds <= step.high
    side = "slower than" if seconds > step.seconds else "faster than"
    held, verdict = _held(recipe, timed)
    slowest = max(timed, key=lambda one: one.steps.seconds if one.steps else 0.0)
    return Against(
        measured_s=seconds,
        predicted_s=step.seconds,
        low=step.low,
        high=step.high,
        ratio=seconds / step.seconds,
        verdict=INSIDE if inside else f"{side} the band",
        memory=held,
        memory_verdict=verdict,
        reasons=reasons(recipe.one, seconds, slowest.steps),
    )


def _held(recipe: _Recipe, timed: Sequence[Checked]) -> tuple[dict[str, float], str | None]:
    """Memory of the logs over the predicted by kind, and whether runs like it are off by as much:
    with what was measured in place of what was predicted of the need of the device."""
    memory = recipe.document.memory
    expected = {"allocated": memory.peak_bytes, "reserved": memory.reserved_bytes}
    found = {
        kind: max(one.memory[kind] for one in timed if kind in one.memory)
        for kind in expected
        if any(kind in one.memory for one in timed)
    }
    ratios = {kind: size / expected[kind] for kind, size in found.items()}
    if not found:
        return ratios, None
    kind = next(iter(found))
    need = (memory.device_bytes - expected[kind] + found[kind]) / memory.device_bytes
    low, high = evidence.usual(recipe.one.plan, recipe.one.table)
    side = "more than" if need > high else "less than" if need < low else "within"
    off = f"{percent(low - 1)} to {percent(high - 1)}"
    next_ = "" if side == "within" else "; a memory snapshot tells which component"
    return ratios, f"{side} what eight of ten runs like it are off by ({off}){next_}"


def _learned(recipe: _Recipe | None, timed: Sequence[Checked], rows: Sequence[Row]) -> Calibrated:
    """What the logs of a recipe, and the rows of tables, say of the machine."""
    base = None
    cases = fit.cases(rows)
    if recipe:
        e = recipe.one
        name = {"suite": "own", "gpu": e.plan.cluster.gpu.id, "stack": e.plan.stack.id}
        numbers, table = machine(e.plan), e.table.each(lambda column: column[:1])
        cases += [
            fit.Case(name, e.plan, table, numbers, float(np.log(one.steps.seconds)))
            for one in timed
            if one.steps
        ]
        if recipe.options.calibration:
            path = catalog.user_path(recipe.options.calibration, "--calibration")
            base = catalog.read_toml(path, "--calibration")
    return learn(cases, base)


def _row(own: CheckOptions, recipe: _Recipe | None, files: Sequence[Checked]) -> Row:
    logs = [one for one in files if one.kind == "log"]
    if recipe is None or not logs:
        remedy = "needs a log and its recipe (--model, --gpu, ...): they are the columns"
        raise PlanError("--append", own.append, remedy)
    steps = [one.steps.seconds for one in logs if one.steps]
    memory: dict[str, float] = {}
    for one in logs:
        for kind, held in one.memory.items():
            memory[kind] = max(memory.get(kind, 0.0), held)
    seconds = float(np.median(steps)) if steps else None
    oom = not steps and any(one.shortages for one in logs)
    return row.row_of(recipe.one, seconds, memory, logs[0].name, oom)
