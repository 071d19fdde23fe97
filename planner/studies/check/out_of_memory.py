"""Why a run ran out of memory, by its message and the prediction of its recipe: need, fragmentation
or others on the card; the changes that make it fit, and the smallest card that would."""

from __future__ import annotations

from collections.abc import Sequence

from planner.formats.documents.read import Recipe
from planner.formats.plan import Planned
from planner.formats.verbs import read
from planner.inputs import catalog
from planner.inputs.cluster import price_of
from planner.inputs.fine_tuning import MOST_GPUS, tune_command
from planner.specs.document import extended
from planner.specs.documents.estimate import Estimate
from planner.specs.hardware import GpuSpec
from planner.specs.options import Options
from planner.specs.options.tune import ANY
from planner.studies.documents.check import Cause, LargerCard, OutOfMemory, Shortage
from planner.units import show
from planner.verbs.estimate import answered
from planner.verbs.requests import answer

_MOST_CHANGES = 3
_DEAR = 0.5  # of the throughput: a change that costs as much is worth the price of another card
_ALIKE = 0.05  # relative: what tensors hold beyond the predicted peak and is the same recipe
_OTHERS = 0.02  # of a GPU's memory: the driver and rounding hold as much beside processes


def out_of_memory(
    options: Options, planned: object, shortages: Sequence[Shortage]
) -> OutOfMemory | None:
    """The explanation of the first of these messages by the recipe; a larger card where nothing
    makes it fit on this one at half its speed. planned: the files that the
    recipe was read from, if any. None without messages."""
    if not shortages:
        return None
    report, _ = answered(options)
    message, memory = shortages[0], report.memory
    changes: list[Recipe] = []
    card = None
    if not memory.fits:
        same_gpus = [
            change for change in report.advice if change.fits and change.gpus == report.cluster.gpus
        ]
        worded = [
            read.in_files(planned, options, report)(change)
            if isinstance(planned, Planned)
            else extended(Recipe, change, edits=[], unsaid={})
            for change in same_gpus
        ]
        # inside the framework of the files first
        changes = sorted(worded, key=lambda change: bool(change.unsaid))[:_MOST_CHANGES]
        if all(change.tokens_change_frac < -_DEAR for change in changes):
            card = _larger(options, report)
    terms = read.terms(report)
    cause = _cause(message, report)
    elsewhere = None
    if cause == "need" and not changes and card is None:
        elsewhere = tune_command(Options(model=options.model), (ANY,), MOST_GPUS)
    return OutOfMemory(
        cause=cause,
        at="load" if message.phase == "load" else "step" if message.phase else None,
        missing_bytes=max(0.0, -memory.headroom_bytes),
        needed_bytes=memory.device_bytes,
        terms=terms,
        changes=changes,
        card=card,
        elsewhere=elsewhere,
        says=_says(cause, message, report),
    )


def _others_bytes(message: Shortage) -> float:
    """Bytes of the card that neither are free nor belong to the process of the message."""
    parts = (message.capacity_bytes, message.free_bytes, message.process_bytes)
    if any(part is None for part in parts):
        return 0.0
    capacity, free, process = (part or 0.0 for part in parts)
    rest = capacity - free - process
    return rest if rest > _OTHERS * capacity else 0.0


def _cause(message: Shortage, report: Estimate) -> Cause:
    if not report.memory.fits:
        return "need"
    if _others_bytes(message):
        return "others"
    expected = report.memory.peak_bytes * (1 + _ALIKE)
    in_pieces = (message.reserved_free_bytes or 0.0) >= message.asked_bytes > 0
    if in_pieces and (message.allocated_bytes or 0.0) <= expected:
        return "fragmentation"
    return "unexplained"


def _says(cause: Cause, message: Shortage, report: Estimate) -> str:
    m = report.memory
    need = f"the recipe needs {show(m.device_bytes, 'B')} per GPU"
    room = f"{show(m.capacity_bytes, 'B')} that a GPU has"
    when = " while weights were loaded" if message.phase == "load" else ""
    if cause == "need":
        idle = message.reserved_free_bytes or 0.0
        gains = (
            f"; fragmentation is not the cause: joining free pieces gains {show(idle, 'B')} at most"
            if idle >= message.asked_bytes > 0
            else ""
        )
        missing = show(-m.headroom_bytes, "B")
        short = f"{missing} more than the {room}" if m.headroom_bytes < 0 else "more than its host"
        return f"{need}{when}, {short}, fullest in the phase {m.worst_phase}{gains}"
    fits = f"{need} of the {room}"
    if cause == "others":
        taken_bytes = show(_others_bytes(message), "B")
        return f"another process: {fits}, and others hold {taken_bytes} of this one (nvidia-smi)"
    if cause == "fragmentation":
        return f"fragmentation: {fits}, and as much as was requested was free in smaller pieces"
    tensors = message.allocated_bytes
    beside = "" if tensors is None else f", and tensors held {show(tensors, 'B')}"
    return (
        f"not explained: {fits}{beside}. The run differs from the recipe: rows longer than"
        f" {report.training.seq_len:,} tokens, another micro-batch than"
        f" {report.layout.micro_batch:,}, a copy of the model, or what a memory snapshot shows"
    )


def _larger(options: Options, report: Estimate) -> LargerCard | None:
    """The card with the least memory, then the least price, of which as many run the recipe as it
    is: one on which it surely fits before one on which it may. None where there is none."""
    if options.cluster:
        return None
    vendor = catalog.load("gpus", GpuSpec, options.gpu or "").vendor
    cards = sorted(
        (
            (float(gpu.usable_memory), price_of(options.changed(gpu=gpu.id)).usd_per_gpu_hour, gpu)
            for gpu in catalog.load_all("gpus", GpuSpec)
            if gpu.vendor == vendor and float(gpu.usable_memory) >= report.memory.device_bytes
        ),
        key=lambda entry: (entry[0], entry[1] is None, entry[1] or 0.0, entry[2].id),
    )
    fitting: list[LargerCard] = []
    for _, price, gpu in cards:
        point = answer([options.changed(gpu=gpu.id)], reasons=False)[0]
        if point.report is None or not point.fits:
            continue
        memory = point.report.memory
        fitting.append(
            LargerCard(
                gpu=gpu.id,
                title=gpu.title,
                verdict=memory.verdict,
                capacity_bytes=memory.capacity_bytes,
                device_bytes=memory.device_bytes,
                step_seconds=point.report.step.seconds,
                usd_per_hour=None if price is None else float(price) * options.gpus,
                command=point.command,
            )
        )
        if point.roomy:
            return fitting[-1]
    return next(iter(fitting), None)
