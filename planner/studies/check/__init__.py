"""The verb `check`: what logs, traces, memory snapshots and messages that memory ran out say,
beside what was predicted of their recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.estimate import Estimates
from planner.estimate.machine import machine
from planner.evidence import memory as evidence
from planner.inputs import catalog
from planner.inputs.options import read_options
from planner.inputs.secrets import scrubbed, scrubbing
from planner.rl.documents import Reinforcement
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, changed
from planner.specs.documents.estimate import Estimate
from planner.specs.options import AS_IT_RUNS, Given, Options, refuse
from planner.studies.check import phases, recordings, row, shortage
from planner.studies.check.learn import learn
from planner.studies.check.out_of_memory import out_of_memory
from planner.studies.check.reasons import another_recipe, reasons
from planner.studies.check.sort import is_runs_table
from planner.studies.check.steps import INSIDE, Size, step_times, verdict
from planner.studies.documents.check import (
    Against,
    Check,
    Checked,
    Flops,
    Learned,
    Phases,
    StepTimes,
)
from planner.studies.logs import Log, SaysNothing, read_log, stream
from planner.studies.options import CheckOptions
from planner.studies.runs.cells import Row
from planner.studies.runs.read import read as read_row
from planner.studies.traces import profiler, snapshot
from planner.studies.validate import fit
from planner.studies.validate.rows import read_tables
from planner.units import percent
from planner.verbs.estimate import estimate, taken

_FIELD = "LOG"
_MOST_FILES = 64
__all__ = ["INSIDE", "CheckResult", "check", "compared", "with_results"]
_TERA = 1e12
_GENERATES = (
    "its steps generate what they train on: give the answer of `dpplan rl --json` as one more file,"
    " beside whose phases they stand"
)
_PALM = 6.0  # FLOP per parameter and token, forward and backward (Kaplan et al. 2020)


@dataclass(frozen=True)
class CheckResult:
    """The document, and the table with its row that may be written."""

    document: Check
    table: str | None


@dataclass(frozen=True)
class _Recipe:
    """The plan of the options, in full and as its estimate."""

    options: Options
    one: Estimates
    document: Estimate
    planned: object  # the files that it was read from, None without files


def check(request: CheckOptions, given: Mapping[str, Any]) -> CheckResult:
    """Contents of files and their comparison with the recipe. Raises PlanError for an unreadable
    one, and for results that need a recipe if none is given.

    given: options of the recipe by name; without a model, files are read and nothing is predicted.
    """
    if not request.logs:
        raise PlanError(_FIELD, None, "name a log, a trace or a memory snapshot")
    if len(request.logs) > _MOST_FILES:
        raise PlanError(_FIELD, len(request.logs), f"at most {_MOST_FILES} files are read at once")
    recipe = _recipe(given) if given else None
    read, unused = [], list[str]()
    for name in request.logs:
        path = catalog.user_path(name, _FIELD)
        with scrubbing((name, str(path))):
            try:
                read.append(_file(path, recipe))
            except SaysNothing:  # beside others it is left out, and said
                if len(request.logs) == 1:
                    raise
                unused.append(path.name)
    if not read:
        raise PlanError(_FIELD, ", ".join(unused), "are not known logs, each of them")
    files, runs = [file.checked for file in read], [row for file in read for row in file.rows]
    generating = [file for file in files if phases.generates(file)]
    predicted = next((file.predicted for file in read if file.predicted), None)
    for file in generating if predicted is None else ():
        file.notes.append(_GENERATES)
    timed = [file for file in files if file.steps is not None and file not in generating]
    against = _against(recipe, timed) if recipe and timed else None
    learned = _learned(recipe, timed, runs) if request.save else None
    cells = (
        _row(request, recipe, [file for file in files if file not in generating])
        if request.append
        else None
    )
    short = [shortage for file in files for shortage in file.shortages]
    document = Check(
        schema_version=SCHEMA_VERSION,
        files=files,
        against=against,
        out_of_memory=out_of_memory(recipe.options, recipe.planned, short) if recipe else None,
        reinforcement=phases.phases(predicted, generating) if predicted and generating else None,
        learned=learned,
        row=cells,
        prediction=recipe.document if recipe else None,
        notes=[f"{scrubbed(name)} is not used: no log that is known" for name in unused],
    )
    table = row.appended(request.append, cells) if request.append and cells else None
    return CheckResult(document, table)


def with_results(
    logs: tuple[str, ...], given: Mapping[str, Any], save: str, append: str
) -> CheckResult:
    """As `check`, with every result that the files allow; why another is not there is a note of the
    document. save, append: what the results are called."""
    wanted, notes = {"save": save, "append": append}, list[str]()
    while True:
        try:
            result = check(CheckOptions(logs=logs, **wanted), given)
            remarks = [*result.document.notes, *notes]
            return replace(result, document=changed(result.document, notes=remarks))
        except PlanError as error:
            name = error.field.removeprefix("--")
            if name not in wanted:
                raise
            remark = f"{wanted.pop(name)}: {error.remedy}"
            notes += [remark] if given else []


def compared(document: Check) -> Against | Phases | None:
    """Measurement against prediction, if both exist."""
    return document.against or document.reinforcement


def _recipe(given: Mapping[str, Any]) -> _Recipe:
    options = read_options(given)
    refuse(options, "check")
    options = options.changed(AS_IT_RUNS, stack_defaults=True)
    planned = given.planned if isinstance(given, Given) else None
    return _Recipe(options, taken(options).estimates, estimate(options, brief=True), planned)


@dataclass(frozen=True)
class _Read:
    """Contents of one file."""

    checked: Checked
    rows: Sequence[Row] = ()
    predicted: Reinforcement | None = None


def _file(path: Path, recipe: _Recipe | None) -> _Read:
    """One file by what it begins with: a trace, a snapshot, a runs table, an answer of `dpplan rl`,
    else a log."""
    predicted = recipe.document if recipe else None
    with stream.pieces(path, _FIELD) as source:
        head = source.head()
        if snapshot.is_one(head):
            recorded = snapshot.read_snapshot(source.file(), path, _FIELD)
            short = [shortage.of_snapshot(*pair) for pair in recorded.short]
            parts = {
                "snapshot": recordings.snapshot_bytes(recorded, predicted),
                "shortages": shortage.shortages(short, *_estimates(recipe)),
            }
            return _Read(_checked(path, "snapshot", "torch memory snapshot", **parts))
        if profiler.is_one(head):
            trace = profiler.read_trace(source, path, _FIELD)
            times = recordings.trace_times(trace, predicted)
            notes = [] if trace.steps else ["the recording marks no steps: it counts as one"]
            kind, partly = "torch profiler trace", trace.partly
            return _Read(_checked(path, "trace", kind, trace=times, partly=partly, notes=notes))
    if phases.is_answer(head):
        answer = phases.read_answer(path, _FIELD)
        return _Read(_checked(path, "prediction", "dpplan rl"), predicted=answer)
    if is_runs_table(head):
        rows = read_tables([path])
        notes = [f"{len(rows):,} runs, which validation compares with their predictions"]
        return _Read(_checked(path, "runs", "runs table", notes=notes), rows)
    return _Read(_log(path, read_log(path, _FIELD), recipe))


def _estimates(recipe: _Recipe | None) -> tuple[Estimates | None, Estimate | None]:
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
        tokens_per_s=_tokens_per_s(log, steps, size),
        flops=flops,
        memory=dict(log.memory),
        shortages=shortage.shortages(log.shortages, *_estimates(recipe)),
        notes=[*log.notes, *notes],
    )


def _tokens_per_s(log: Log, steps: StepTimes | None, size: Size) -> float | None:
    """As the log prints values that vary from step to step, else by the size of a step."""
    logged = [step.tokens_per_s for step in log.steps if step.tokens_per_s is not None]
    if logged and steps is not None and (steps.phases or not size.tokens):
        return float(np.median(logged))
    return size.tokens / steps.seconds if steps and size.tokens else None


def _size(log: Log, recipe: _Recipe | None) -> tuple[Size, list[str]]:
    """Tokens of a step: of the recipe, else as the log repeats them; and where they contradict."""
    stated = log.stated
    if recipe is None:
        batch, length = stated.get("global_batch"), stated.get("seq_len")
        tokens = float(batch * length) if batch and length else None
        return Size(tokens, batch, stated.get("gpus")), []
    layout, r = recipe.document.layout, recipe.document
    planned = {
        "gpus": r.cluster.gpus,
        "seq_len": r.training.seq_len,
        **{name: getattr(layout, name) for name in ("global_batch", "micro_batch")},
        **{name: getattr(layout, name) for name in ("tp", "pp", "cp", "ep")},
    }
    notes = [
        f"the log says {name} {value:,}, the recipe {planned[name]:,} (--{name.replace('_', '-')})"
        for name, value in stated.items()
        if value != planned[name]
    ]
    tokens = float(layout.global_batch * r.training.seq_len)
    return Size(tokens, layout.global_batch, r.cluster.gpus), notes


def _flops(log: Log, recipe: _Recipe, seconds: float) -> Flops | None:
    """Whose count the printed FLOP/s are: the one that they come nearest to."""
    logged = [step.tflops for step in log.steps if step.tflops is not None]
    if not logged:
        return None
    printed, r = float(np.median(logged)), recipe.document
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
    seconds = float(np.median([checked.steps.seconds for checked in timed if checked.steps]))
    step = recipe.document.step
    memory, usual = _memory_ratios(recipe, timed)
    slowest = max(timed, key=lambda checked: checked.steps.seconds if checked.steps else 0.0)
    return Against(
        measured_s=seconds,
        predicted_s=step.seconds,
        low=step.low,
        high=step.high,
        ratio=seconds / step.seconds,
        verdict=verdict(seconds, step.low, step.high),
        memory=memory,
        memory_verdict=usual,
        reasons=[*another_recipe(slowest.flops), *reasons(recipe.one, seconds, slowest.steps)],
    )


def _memory_ratios(
    recipe: _Recipe, timed: Sequence[Checked]
) -> tuple[dict[str, float], str | None]:
    """Memory of the logs over the predicted by kind, and whether runs like it are off by as much:
    with what was measured in place of what was predicted of the need of the device."""
    memory = recipe.document.memory
    expected = {"allocated": memory.peak_bytes, "reserved": memory.reserved_bytes}
    sizes = {
        kind: max(checked.memory[kind] for checked in timed if kind in checked.memory)
        for kind in expected
        if any(kind in checked.memory for checked in timed)
    }
    ratios = {kind: size / expected[kind] for kind, size in sizes.items()}
    if not sizes:
        return ratios, None
    kind = next(iter(sizes))
    need = (memory.device_bytes - expected[kind] + sizes[kind]) / memory.device_bytes
    low, high = evidence.usual(recipe.one.plan, recipe.one.table)
    side = "more than" if need > high else "less than" if need < low else "within"
    off = f"{percent(low - 1)} to {percent(high - 1)}"
    next_ = "" if side == "within" else "; a memory snapshot tells which component"
    return ratios, f"{side} what eight of ten runs like it are off by ({off}){next_}"


def _learned(recipe: _Recipe | None, timed: Sequence[Checked], rows: Sequence[Row]) -> Learned:
    """Machine numbers learned from the logs of a recipe and the rows of tables."""
    base = None
    cases = fit.cases(rows)
    if recipe:
        e = recipe.one
        name = {"suite": "own", "gpu": e.plan.cluster.gpu.id, "stack": e.plan.stack.id}
        numbers, table = machine(e.plan), e.table.each(lambda column: column[:1])
        cases += [
            fit.Case(name, e.plan, table, numbers, float(np.log(checked.steps.seconds)))
            for checked in timed
            if checked.steps
        ]
        if recipe.options.calibration:
            path = catalog.user_path(recipe.options.calibration, "--calibration")
            base = catalog.read_toml(path, "--calibration")
    options = recipe.options if recipe else read_row(cases[-1].row).options if cases else None
    return learn(cases, base, options)


def _row(request: CheckOptions, recipe: _Recipe | None, files: Sequence[Checked]) -> Row:
    logs = [file for file in files if file.kind == "log"]
    if recipe is None or not logs:
        remedy = (
            "needs a log of training and its recipe (--model, --gpu, ...): they are the columns"
        )
        raise PlanError("--append", request.append, remedy)
    steps = [log.steps.seconds for log in logs if log.steps]
    memory: dict[str, float] = {}
    for log in logs:
        for kind, size in log.memory.items():
            memory[kind] = max(memory.get(kind, 0.0), size)
    seconds = float(np.median(steps)) if steps else None
    oom = not steps and any(log.shortages for log in logs)
    return row.row_of(recipe.options, recipe.one, seconds, memory, logs[0].name, oom)
