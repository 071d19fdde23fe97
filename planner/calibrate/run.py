"""What one rank does: join the others, measure or train in step with them, keep records, and name a
rank that is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from planner.calibrate import (
    cases,
    collectives,
    detect,
    device,
    finish,
    kernels,
    overhead,
    storage,
    training,
)
from planner.calibrate.cases import Case
from planner.calibrate.device import Device
from planner.calibrate.measure import Task, measure
from planner.calibrate.profile import Session
from planner.calibrate.quiet import Probe
from planner.calibrate.record import Records
from planner.calibrate.settings import LOST, WRONG, Place, Progress, Result, Settings, place, tell
from planner.specs.document import plain
from planner.specs.error import PlanError

_BEAT_S = 1.0  # between signs of life
_LOST_AFTER_BEATS = 4
# share of a mode's time for kernels, collectives and small models
_KERNELS_SHARE, _LINKS_SHARE, _MODELS_SHARE = 0.6, 0.2, 0.2
_ALONE_KERNELS_SHARE = 0.8
# a message takes as long as its ranks take to wake up: two hundred or five hundred microseconds
_MORE_OF_COLLECTIVES = 3
# of the time for one decoder: waiting for quiet, and all steps that are timed
_WAIT_SHARE, _STEPS_SHARE = 0.1, 0.8


# what torch and gloo say where another rank is gone, against errors of this rank alone
_BROKEN = re.compile(
    r"gloo|nccl|connection|monitoredbarrier|timed out|timeout|peer|socket|store", re.IGNORECASE
)


class Lost(RuntimeError):
    """A rank died or hangs; the message names it."""


class Ranks:
    """The ranks of this run and how they agree; alone, everything is local."""

    def __init__(self, where: Place, timeout_s: float, on_gpu: bool) -> None:
        self.where, self.timeout_s = where, timeout_s
        self.together: dist.ProcessGroup | None = None
        self._stop = threading.Event()
        if where.ranks == 1:
            return
        limit = timedelta(seconds=timeout_s)
        try:
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=limit)
        except Exception as error:
            raise Lost(
                f"rank {where.rank} found no other ranks within {timeout_s:.0f} s at"
                f" {os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
                f" ({str(error).splitlines()[0]}); check that all nodes run the same command and"
                " reach that address"
            ) from error
        self.together = dist.new_group(backend="gloo", timeout=limit)
        self._store = dist.distributed_c10d._get_default_store()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def _beat(self) -> None:
        """torchrun sees ranks that end, not ones that hang: whose beats stop is named."""
        while not self._stop.wait(_BEAT_S):
            try:
                self._store.add(f"dpplan-beats-{self.where.rank}", 1)
            except Exception:  # the store is gone: the run is over
                return

    def agree(self, number: float) -> float:
        """Largest over all ranks."""
        if self.together is None:
            return number
        held = torch.tensor([number], dtype=torch.float64)
        dist.all_reduce(held, dist.ReduceOp.MAX, group=self.together)
        return float(held[0])

    def meet(self) -> None:
        """All ranks come to this point, or the missing ones are named."""
        if self.together is not None:
            dist.monitored_barrier(
                self.together, timedelta(seconds=self.timeout_s), wait_all_ranks=True
            )

    def share(self, value: Any) -> Any:
        """What rank 0 has, on all ranks."""
        held = [value]
        if self.together is not None:
            dist.broadcast_object_list(held, src=0, group=self.together)
        return held[0]

    def gather(self, value: Any) -> list[Any]:
        """One value of each rank, on all ranks."""
        if self.together is None:
            return [value]
        held: list[Any] = [None] * self.where.ranks
        dist.all_gather_object(held, value, group=self.together)
        return held

    def lost(self) -> list[int]:
        """Ranks whose beats stand still for a while; beats are counted, since clocks of nodes
        differ."""
        try:
            before = self._beats_so_far()
            time.sleep(_BEAT_S * _LOST_AFTER_BEATS)
            after = self._beats_so_far()
        except Exception:
            return [0]  # the store is on the first node
        return [rank for rank in range(self.where.ranks) if before[rank] == after[rank]]

    def _beats_so_far(self) -> list[int]:
        return [self._store.add(f"dpplan-beats-{r}", 0) for r in range(self.where.ranks)]

    def close(self) -> None:
        self._stop.set()
        if self.together is not None:
            self._beats.join()
            dist.destroy_process_group()


@contextlib.contextmanager
def _named(ranks: Ranks, doing: list[str]) -> Iterator[None]:
    """Turn a broken connection into a sentence that names the rank and the case."""
    try:
        yield
    except PlanError:
        raise
    except RuntimeError as error:
        if ranks.together is None:
            raise
        first = str(error).strip().splitlines()[0]
        if not _BROKEN.search(str(error)):
            raise
        gone = ranks.lost()
        who = (
            f"rank {', '.join(map(str, gone))} died" if gone else f"a rank did not answer ({first})"
        )
        raise Lost(
            f"{who} while measuring {doing[0]}; what was measured until now is kept, run the same"
            " command to go on"
        ) from error


def work(settings: Settings) -> int:
    """Run one rank to its end; returns the exit status."""
    where = place()
    on_gpu = torch.cuda.is_available()
    doing = ["the start"]
    base_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ranks: Ranks | None = None
    try:
        ranks = Ranks(where, settings.timeout_s, on_gpu)
        with _named(ranks, doing):
            here = device.current(where.local_rank, settings.threads)
            (_measure if settings.out else _verify)(settings, where, ranks, here, doing, base_bytes)
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
    said: dict[str, Any] = {"message": str(error), "timestamp": int(time.time())}
    if isinstance(error, PlanError):
        said |= {"field": error.field, "value": str(error.value), "remedy": error.remedy}
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        with contextlib.suppress(OSError):
            Path(path).write_text(json.dumps(said), encoding="utf-8")


def _conditions(settings: Settings, found: detect.Hardware, where: Place) -> dict[str, Any]:
    return {
        "device": detect.device_id(found),
        "threads": settings.threads,
        "ranks": where.ranks,
        "torch": torch.__version__,
        "host": found.host,
        "mode": settings.mode,
    }


def _records(settings: Settings, where: Place, ranks: Ranks, found: detect.Hardware) -> Records:
    """Records of an earlier run are known to all ranks, so that all skip the same cases; a wrong
    file stops them all."""
    conditions = _conditions(settings, found, where)
    mine: Records | None = None
    wrong: PlanError | None = None
    if where.rank == 0:
        try:
            mine = Records(Path(settings.records), conditions)
        except PlanError as error:
            wrong = error
    told = ranks.share(
        (mine.all if mine else [], (wrong.field, wrong.value, wrong.remedy) if wrong else None)
    )
    if told[1]:
        raise PlanError(*told[1])
    if mine is None:
        mine = Records(None, conditions)
        for record in told[0]:
            mine.add(record)
    return mine


def _measure(
    settings: Settings,
    where: Place,
    ranks: Ranks,
    here: Device,
    doing: list[str],
    base_bytes: float,
) -> None:
    found = detect.hardware(where.local_rank, settings.threads)
    records = _records(settings, where, ranks, found)
    probe = Probe(here.probe(), ranks.agree, not here.gpu and settings.threads == 1)
    everyone = ranks.gather(found.as_dict())
    precisions = ranks.share(here.precisions())
    effort = cases.EFFORT[settings.mode]

    def told(progress: Progress) -> None:
        doing[0] = progress.stage
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
    for stage, tasks, share in stages:
        measure(
            stage,
            tasks,
            probe,
            records,
            effort,
            share * effort.total_s,
            told,
            state,
            ranks.meet,
            busy=not here.gpu and (stage == "kernels" or where.ranks == 1),
            more=_MORE_OF_COLLECTIVES if stage == "collectives" else 1,
        )
    if where.rank == 0:
        doing[0] = "the fit"
        assert settings.out is not None
        session = Session(
            found=found,
            ranks=where.ranks,
            ranks_per_node=where.per_node,
            precisions=precisions,
            context_bytes=here.context_bytes() or base_bytes,
            conditions={
                **_conditions(settings, found, where),
                "malloc": "kept by the process",
                "hosts": ", ".join(sorted({one["host"] for one in everyone})),
                "disturbed_frac": round(probe.disturbed_frac, 3),
            },
        )
        summary = finish.finish(records.all, session, Path(settings.out))
        tell(Result(plain(summary)))


def _storage_folder(settings: Settings, ranks: Ranks) -> Path | None:
    """The folder whose storage is measured, of which all nodes must have one: they decide
    together."""
    folder = Path(settings.storage or Path(settings.records).parent)
    if ranks.agree(float(not folder.is_dir())) == 0:
        return folder
    if settings.storage:
        raise PlanError(
            "--storage", settings.storage, "is no folder on every node; give one that all have"
        )
    return None  # where a node does not have the folder of --out, nobody asked for it


def _models(here: Device, where: Place) -> list[Task]:
    """Decoders whose steps show what software adds to kernels and links; a fit uses them,
    verification does not."""
    found: list[Task] = []
    for case in overhead.fitted_cases(where.ranks):
        what = {"kind": "step", "case": plain(case), "precision": "fp32", "used_in_fit": True}
        found.append((what, partial(_step_of, case, here, where)))
    return found


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


def _verify(
    settings: Settings,
    where: Place,
    ranks: Ranks,
    here: Device,
    doing: list[str],
    base_bytes: float,
) -> None:
    found = detect.hardware(where.local_rank, settings.threads)
    records = _records(settings, where, ranks, found)
    probe = Probe(here.probe(), ranks.agree, not here.gpu and settings.threads == 1)
    todo = settings.cases
    effort = cases.EFFORT[settings.mode]
    each_s = effort.training_s / max(len(todo), 1)
    for i, case in enumerate(todo):
        ranks.meet()
        doing[0] = case.name
        if where.rank == 0:
            tell(Progress(case.name, i, len(todo), each_s * (len(todo) - i)))
        run = _prepared(case, here, settings.precision, where)
        samples = probe.samples(
            run.step,
            want=effort.steps,
            wait_s=_WAIT_SHARE * each_s,
            most_s=_STEPS_SHARE * each_s,
            busy=not here.gpu and case.parallel == "single",
        )
        parts = (
            _middle([run.parts() for _ in range(3)]) if case.parallel != "pipeline" else run.parts()
        )
        peak = training.peak_bytes(here, run.step)
        states = ranks.gather(run.states())
        records.add(
            {
                "kind": "step",
                "case": plain(case),
                "precision": settings.precision,
                "used_in_fit": False,
                "samples": [[s.seconds, s.before_s, s.after_s] for s in samples],
                "parts": parts,
                "states": states if case.parallel != "single" else states[:1],
                "peak_bytes": peak,
                "loss": run.loss,
                "when": round(time.time(), 1),
            }
        )
        del run
        if here.gpu:
            torch.cuda.empty_cache()
    if where.rank == 0:
        tell(Result(found.as_dict()))


def _middle(each: list[dict[str, float]]) -> dict[str, float]:
    return {name: sorted(one[name] for one in each)[len(each) // 2] for name in each[0]}
