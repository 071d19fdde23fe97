"""The work of the verb, without options and print-out: calibrate, verify, diff, merge. Imports no
torch."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from planner.calibrate import cases, detect, nodes, profile, record, verify
from planner.calibrate.cases import Case
from planner.calibrate.detect import Hardware
from planner.calibrate.documents import Calibrated, Compared, Merged, Verification
from planner.calibrate.options import CalibrateOptions
from planner.calibrate.settings import WRONG, Progress, Settings
from planner.error import PlanError
from planner.inputs import catalog, files
from planner.specs.document import SCHEMA_VERSION
from planner.specs.options.checked import read
from planner.specs.options.table import rows

Report = Callable[[Progress], None]
_MOST_TOLERANCE = 10  # beyond it a request is a slip of the hand
_OF_A_RANK = ("out", "quick", "thorough", "threads", "storage", "timeout")


def needs() -> None:
    """Refuse early where torch or scipy is not installed."""
    for name in ("torch", "scipy"):
        if importlib.util.find_spec(name) is None:
            raise PlanError(
                "calibrate",
                None,
                f"needs {name}, which is not installed; install it with: pip install"
                " 'dpplan[calibrate]'",
            )


def writable(path: Path, field: str) -> None:
    """Refuse a result that could not be written before anything is measured."""
    files.result(str(path), field)
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        raise PlanError(field, str(path), f"cannot be written: {error.strerror or error}") from None


def calibrate(options: CalibrateOptions, report: Report) -> Calibrated:
    """Measure with ranks on this machine and write the calibration file."""
    needs()
    if options.out is None or not options.out.endswith(".toml"):
        raise PlanError("--out", options.out, "must end in .toml: `--calibration` reads that")
    settings = _measuring(options, options.processes)
    writable(Path(str(settings.out)), "--out")
    _unused(Path(settings.records))
    from planner.calibrate import launch

    return msgspec.convert(launch.run(settings, options.processes, report), Calibrated)


def _unused(records: Path) -> None:
    """Refuse records that another run holds, before ranks start to find the same."""
    if records.exists():
        record.locked(records).close()


def _measuring(options: CalibrateOptions, ranks_per_node: int) -> Settings:
    """Settings of each rank of a calibration."""
    path = catalog.user_path(str(options.out), "--out").absolute()
    return replace(
        _settings(options, record.path_of(path), ranks_per_node),
        out=str(path),
        storage=_storage(options.storage),
    )


def _settings(options: CalibrateOptions, records: Path, ranks_per_node: int) -> Settings:
    if options.quick and options.thorough:
        raise PlanError("--quick", None, "goes against --thorough; give one of them")
    return Settings(
        records=str(records),
        mode="quick" if options.quick else "thorough" if options.thorough else "default",
        threads=options.threads or max(1, detect.usable_cores() // ranks_per_node),
        timeout_s=options.timeout,
    )


def _storage(folder: str | None) -> str | None:
    """The folder whose storage is measured; refused before anything is measured where it cannot be
    written."""
    if folder is None:
        return None
    path = catalog.user_path(folder, "--storage").absolute()
    if not path.is_dir():
        raise PlanError("--storage", folder, "is not a folder; give the one that checkpoints go to")
    writable(path / "checkpoint", "--storage")
    return str(path)


def verification(options: CalibrateOptions, report: Report) -> Verification:
    """Train decoders with ranks on this machine and compare them with the estimate."""
    if not 0 < options.tolerance <= _MOST_TOLERANCE:
        raise PlanError(
            "--tolerance",
            options.tolerance,
            f"must be above 0 and at most {_MOST_TOLERANCE}: 0.1 is 10 %",
        )
    needs()
    chosen = [cases.read_case(text) for text in options.case]
    document = (
        nodes.read(catalog.user_path(options.calibration, "--calibration"), "--calibration")
        if options.calibration
        else None
    )
    folder = _report_folder(options.report)
    on_gpu = _on_gpu()
    precision = options.precision or ("bf16" if on_gpu else "fp32")
    with tempfile.TemporaryDirectory() as scratch:
        records = (folder or Path(scratch)) / "verify.records.jsonl"
        settings = _settings(options, records, options.processes)
        _unused(records)
        decoders = chosen or cases.unseen(options.processes, settings.mode, gpu=on_gpu)
        for case in decoders:
            _can_run(case, options.processes)
        settings = replace(
            settings, cases=tuple(decoders), precision=precision, calibration=options.calibration
        )
        from planner.calibrate import launch

        hardware = Hardware(**launch.run(settings, options.processes, report))
        raw = record.read(records)
    reference = document["node"].get("probe_s") if document and "node" in document else None
    out = verify.compare(
        record.merged(raw, reference),
        gpu=_gpu_of(hardware, document),
        ranks=options.processes,
        precision=precision,
        calibration=options.calibration,
        tolerance=options.tolerance,
        speed=reference / record.usual_of(raw) if reference else 1.0,
    )
    if document:
        out = _kept(out, document, catalog.user_path(str(options.calibration), "--calibration"))
    if folder:
        from planner.calibrate import report as pages

        pages.write(out, folder)
    return out


def _kept(out: Verification, document: dict[str, Any], path: Path) -> Verification:
    """Write the verified error into the calibration file, from which bands of estimates read it. A
    file that cannot be written stays as it is, and the answer says so."""
    errors = verify.kept(out)
    if errors is None:
        return out
    try:
        profile.write({**document, "verified": errors}, path)
    except PlanError:
        return out
    return msgspec.structs.replace(out, kept=True)


def _can_run(case: Case, processes: int) -> None:
    if case.parallel != "single" and processes < 2:
        raise PlanError("--case", f"parallel={case.parallel}", "needs --processes 2 or more")
    if case.parallel == "tensor" and (
        case.heads % processes or case.ffn % processes or case.vocab % processes
    ):
        raise PlanError(
            "--case",
            case.name,
            f"{processes} tensor-parallel ranks must divide heads, ffn and vocab",
        )
    if case.parallel == "pipeline" and (case.layers % processes or case.microbatches < processes):
        raise PlanError(
            "--case",
            case.name,
            f"{processes} stages must divide layers, and microbatches be no fewer",
        )


def _report_folder(report: str | None) -> Path | None:
    if report is None:
        return None
    folder = catalog.user_path(report, "--report")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise PlanError("--report", report, f"cannot be written: {why}") from None
    from planner.calibrate.report import NAMES

    for name in NAMES:
        writable(folder / name, "--report")
    return folder


def _on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _gpu_of(hardware: Hardware, document: dict[str, Any] | None) -> str:
    """The device that the run trained on; a calibration must have the same."""
    device = detect.device_id(hardware)
    if document is None:
        if device not in catalog.ids("gpus"):
            raise PlanError(
                "--calibration",
                None,
                f"is needed: {hardware.name} has no shipped profile; run `dpplan calibrate` first",
            )
        return device
    if document["gpu"] != device:
        raise PlanError(
            "--calibration",
            document["gpu"],
            f"was measured on another device than this one, {device} "
            "(a CPU counts its threads; see --threads)",
        )
    return device


def difference(first: str, second: str) -> Compared:
    """Numbers of two files, the largest loss of the second first."""
    base, other = (
        nodes.read(catalog.user_path(name, "--diff"), "--diff") for name in (first, second)
    )
    return Compared(
        schema_version=SCHEMA_VERSION,
        first=first,
        second=second,
        numbers=nodes.compare(base, other),
    )


def merged(names: Sequence[str], out: str) -> Merged:
    """One file for several nodes of a kind, and nodes far from the middle."""
    if len(names) < 2:
        raise PlanError("--merge", ", ".join(names), "needs two files or more")
    path = files.result(out, "--out")
    documents = [nodes.read(catalog.user_path(name, "--merge"), "--merge") for name in names]
    document, far = nodes.merge(documents, names)
    profile.write(document, path)
    return Merged(
        schema_version=SCHEMA_VERSION, out=str(path), gpu=document["gpu"], nodes=len(names), far=far
    )


def under_torchrun(words: Sequence[str]) -> Settings | int:
    """Settings of a rank started by torchrun or a scheduler, or the exit status: the measuring
    options of `dpplan calibrate`."""
    parser = argparse.ArgumentParser(
        prog="python -m planner.calibrate", description="Measure this node; start with torchrun."
    )
    table = rows(CalibrateOptions)
    for name in _OF_A_RANK:
        row = table[name]
        kind: Any = {"action": "store_true"} if row.is_switch else {}
        parser.add_argument(row.flag, required=name == "out", help=row.help, **kind)
    given = vars(parser.parse_args(list(words)))
    local_ranks = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE", "1")
    try:
        options = read(CalibrateOptions, {name: value or None for name, value in given.items()})
        settings = _measuring(options, int(local_ranks))
        if int(os.environ.get("RANK", "0")) == 0:
            writable(Path(str(settings.out)), "--out")
    except PlanError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
    return settings
