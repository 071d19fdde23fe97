"""The work of one rank: join the others, measure or train in step with them, and keep records."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import torch

from planner.calibrate import (
    cases,
    collectives,
    detect,
    device,
    finish,
    host,
    kernels,
    overhead,
    storage,
    training,
)
from planner.calibrate.cases import Case
from planner.calibrate.device import Device
from planner.calibrate.measure import Task, measure
from planner.calibrate.others import Crowd
from planner.calibrate.profile import Session
from planner.calibrate.quiet import Probe
from planner.calibrate.ranks import Lost, Ranks
from planner.calibrate.record import Record, Records, visit
from planner.calibrate.settings import LOST, WRONG, Place, Progress, Result, Settings, place, tell
from planner.error import PlanError
from planner.specs.document import plain

# share of a mode's time for kernels, collectives and small models
_KERNELS_SHARE, _LINKS_SHARE, _MODELS_SHARE = 0.6, 0.2, 0.2
_ALONE_KERNELS_SHARE = 0.8
_HOST_SHARE = 0.05  # beside them, for the memory of the host and an update on its processors
# a message takes as long as its ranks take to wake up: two hundred or five hundred microseconds
_MORE_OF_MESSAGES, _WITH_MESSAGES = 3, ("collectives", "small models")
# of the time for one decoder: waiting for quiet, and all steps that are timed
_WAIT_SHARE, _STEPS_SHARE = 0.1, 0.8
_TIMES_OF_PARTS = 3  # that parts of a step are timed one by one, for their middle
# moments over which the steps of a decoder are spread, so that one is held against the other, and
# visits of one whose steps disagree; choices
_TRAININGS, _MOST_TRAININGS = 2, 4


def work(settings: Settings) -> int:
    """Run one rank to its end; returns the exit status."""
    where = place()
    base_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    try:
        ranks = Ranks(where, settings.timeout_s, torch.cuda.is_available())
        with ranks.named("the start"):
            here = device.current(where.local_rank, settings.threads)
            if settings.out:
                _measure(settings, ranks, here, base_bytes, Path(settings.out))
            else:
                _verify(settings, ranks, here)
        with ranks.named("the end"):
            ranks.meet()
    except (Lost, PlanError) as error:
        _report(error)
        # threads of a broken group may never end
        os._exit(LOST if isinstance(error, Lost) else WRONG)
    ranks.close()
    sys.stdout.flush()
    os._exit(0)  # threads of torch that end after the interpreter abort the process


def _report(error: Lost | PlanError) -> None:
    """Say the error on stderr, and leave it where torchrun looks for it."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    message: dict[str, Any] = {"message": str(error), "timestamp": int(time.time())}
    if isinstance(error, PlanError):
        message |= {"field": error.field, "value": str(error.value), "remedy": error.remedy}
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        with contextlib.suppress(OSError):
            Path(path).write_text(json.dumps(message), encoding="utf-8")


def _conditions(settings: Settings, hardware: detect.Hardware, where: Place) -> dict[str, Any]:
    return {
        "device": detect.device_id(hardware),
        "threads": settings.threads,
        "ranks": where.ranks,
        "torch": torch.__version__,
        "host": hardware.host,
        "mode": settings.mode,
    }


def _records(settings: Settings, ranks: Ranks, hardware: detect.Hardware) -> Records:
    """Records of an earlier run are known to all ranks, so that all skip the same cases; a wrong
    file stops them all."""
    conditions = _conditions(settings, hardware, ranks.where)
    mine: Records | None = None
    wrong: PlanError | None = None
    if ranks.where.rank == 0:
        try:
            mine = Records(Path(settings.records), conditions, anew=settings.out is None)
        except PlanError as error:
            wrong = error
    shared = ranks.share(
        (mine.all if mine else [], (wrong.field, wrong.value, wrong.remedy) if wrong else None)
    )
    if shared[1]:
        raise PlanError(*shared[1])
    if mine is None:
        mine = Records(None, conditions)
        for record in shared[0]:
            mine.add(record)
    return mine


def _probe(settings: Settings, ranks: Ranks, here: Device) -> Probe:
    """Detector of quiet moments of this machine, shared by all ranks."""
    used = 0 if here.gpu else ranks.where.per_node
    crowd = Crowd(used, settings.threads, ranks.agree, ranks.of_node)
    return Probe(here.probe(), ranks.agree, not here.gpu and settings.threads == 1, crowd)


def _measure(settings: Settings, ranks: Ranks, here: Device, base_bytes: float, out: Path) -> None:
    where = ranks.where
    hardware = detect.hardware(where.local_rank, settings.threads)
    records = _records(settings, ranks, hardware)
    probe = _probe(settings, ranks, here)
    everyone = ranks.gather(hardware.as_dict())
    precisions = ranks.share(here.precisions())
    effort = cases.EFFORT[settings.mode]

    def report(progress: Progress) -> None:
        if where.rank == 0:
            tell(progress)

    index = here.torch_device.index if here.gpu else None

    def state() -> dict[str, Any]:
        return detect.conditions(index)

    stages: list[tuple[str, list[Task], float]] = [
        (
            "kernels",
            list(kernels.tasks(here, settings.mode, precisions)),
            _ALONE_KERNELS_SHARE if where.ranks == 1 else _KERNELS_SHARE,
        )
    ]
    if where.ranks > 1:
        links = list(
            collectives.tasks(here, settings.mode, where.rank, where.ranks, where.per_node)
        )
        stages.append(("collectives", links, _LINKS_SHARE))
    stages.append(("small models", _models(here, where), _MODELS_SHARE))
    folder = _storage_folder(settings, ranks)
    if folder is not None:
        stored = list(storage.tasks(folder, settings.mode, where.local_rank == 0))
        stages.append(("storage", stored, effort.storage_s / effort.total_s))
    offloaded = list(host.tasks(settings.mode, where.local_rank == 0))
    stages.append(("host", offloaded, _HOST_SHARE))
    for stage, tasks, share in stages:
        with ranks.named(stage):
            measure(
                stage,
                tasks,
                probe,
                records,
                effort,
                share * effort.total_s,
                report,
                state,
                ranks.meet,
                busy=not here.gpu and (stage == "kernels" or where.ranks == 1),
                more=_MORE_OF_MESSAGES if where.ranks > 1 and stage in _WITH_MESSAGES else 1,
            )
    if where.rank == 0:
        session = Session(
            found=hardware,
            ranks=where.ranks,
            ranks_per_node=where.per_node,
            precisions=precisions,
            context_bytes=here.context_bytes() or base_bytes,
            conditions={
                **_conditions(settings, hardware, where),
                "malloc": "kept by the process",
                "hosts": ", ".join(sorted({node["host"] for node in everyone})),
                "disturbed_frac": round(probe.disturbed_frac, 3),
            },
        )
        tell(Result(plain(finish.finish(records.all, session, out))))


def _storage_folder(settings: Settings, ranks: Ranks) -> Path | None:
    """The folder whose storage is measured, of which all nodes must have one: they decide
    together."""
    folder = Path(settings.storage or Path(settings.records).parent)
    if ranks.agree(float(not folder.is_dir())) == 0:
        return folder
    if settings.storage:
        raise PlanError(
            "--storage", settings.storage, "is not a folder on every node; give one that all have"
        )
    return None  # only the node that has the folder of --out was asked to write there


def _models(here: Device, where: Place) -> list[Task]:
    """Decoders whose steps show what the stack adds to kernels and links; a fit uses them,
    verification does not."""
    tasks: list[Task] = []
    for case in overhead.fitted_cases(where.ranks):
        tasks.append((_step(case, "fp32", True), partial(_step_of, case, here, where)))
    return tasks


def _step(case: Case, precision: str, used_in_fit: bool) -> Record:
    """The record of a step of a decoder."""
    return {"kind": "step", "case": plain(case), "precision": precision, "used_in_fit": used_in_fit}


def _prepared(case: Case, here: Device, precision: str, where: Place) -> training.Run:
    """A decoder that has made two steps: buffers, buckets and the optimizer's state exist."""
    alone = case.parallel == "single"
    rank, ranks = (0, 1) if alone else (where.rank, where.ranks)
    run = training.prepare(case, here, precision, rank, ranks)
    for _ in range(2):
        run.step()
    return run


def _step_of(case: Case, here: Device, where: Place) -> Callable[[], float]:
    return _prepared(case, here, "fp32", where).step


def _verify(settings: Settings, ranks: Ranks, here: Device) -> None:
    where = ranks.where
    hardware = detect.hardware(where.local_rank, settings.threads)
    records = _records(settings, ranks, hardware)
    probe = _probe(settings, ranks, here)
    total_s = cases.EFFORT[settings.mode].training_s
    each_s = total_s / max(len(settings.cases) * _TRAININGS, 1)
    start_s = time.perf_counter()
    for again in range(_MOST_TRAININGS):
        todo = [
            case
            for case in settings.cases
            if again < _TRAININGS
            or probe.agree(
                float(records.quiet(_step(case, settings.precision, False), probe.usual_s) == 0)
            )
        ]
        for i, case in enumerate(todo):
            left_s = total_s - (time.perf_counter() - start_s)
            if again >= _TRAININGS and probe.agree(-left_s) > 0:
                break
            with ranks.named(case.name):
                ranks.meet()
                if where.rank == 0:
                    tell(Progress(case.name, i, len(todo), max(left_s, 0.0), probe.disturbed_frac))
                records.add(_trained(settings, case, ranks, here, probe, each_s))
            if here.gpu:
                torch.cuda.empty_cache()
    if where.rank == 0:
        tell(Result(hardware.as_dict()))


def _trained(
    settings: Settings, case: Case, ranks: Ranks, here: Device, probe: Probe, each_s: float
) -> Record:
    """One visit of a decoder, about each_s seconds: step times and memory of the ranks."""
    run = _prepared(case, here, settings.precision, ranks.where)
    samples = probe.samples(
        run.step,
        want=ceil(cases.EFFORT[settings.mode].steps / _TRAININGS),
        wait_s=_WAIT_SHARE * each_s,
        most_s=_STEPS_SHARE * each_s,
        busy=not here.gpu and case.parallel == "single",
    )
    several = 1 if case.parallel == "pipeline" else _TIMES_OF_PARTS
    parts = _middle([run.parts() for _ in range(several)])
    peak = training.peak_bytes(here, run.step)
    states = ranks.gather(run.states())
    return {
        **_step(case, settings.precision, False),
        **visit(samples),
        "parts": parts,
        "states": states if case.parallel != "single" else states[:1],
        "peak_bytes": peak,
        "loss": run.loss,
    }


def _middle(each: list[dict[str, float]]) -> dict[str, float]:
    return {name: sorted(clocks[name] for clocks in each)[len(each) // 2] for name in each[0]}
