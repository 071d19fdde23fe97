"""What the verb does, apart from options and print-out: calibrate, verify, diff, merge. Imports no
torch."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from planner.calibrate import cases, detect, nodes, profile, record, verify
from planner.calibrate.cases import Case, Mode
from planner.calibrate.detect import Hardware
from planner.calibrate.settings import WRONG, Progress, Settings
from planner.inputs import catalog
from planner.specs.base import PlanError

Told = Callable[[Progress], None]


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
    folder = path.parent
    if path.is_dir():
        raise PlanError(field, str(path), "is a folder; give the file to write")
    if not folder.is_dir():
        raise PlanError(field, str(path), f"cannot be written: there is no folder {folder}")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        raise PlanError(field, str(path), f"cannot be written: {error.strerror or error}") from None


def threads_of(threads: int | None, processes: int) -> int:
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if threads is None:
        return max(1, cores // processes)
    if not 1 <= threads <= 1024:
        raise PlanError("--threads", threads, "must be from 1 to 1024")
    return threads


def checked(processes: int, timeout_s: float) -> None:
    if not 1 <= processes <= 1024:
        raise PlanError(
            "--processes",
            processes,
            "must be from 1 to 1024; more nodes are started with torchrun, docs/calibration.md",
        )
    if not 5 <= timeout_s <= 86400:
        raise PlanError("--timeout", timeout_s, "must be from 5 to 86400 seconds")


def calibrate(
    out: str,
    mode: Mode,
    threads: int | None,
    processes: int,
    timeout_s: float,
    storage: str | None,
    told: Told,
) -> dict[str, Any]:
    """Measure with local workers and write the calibration file; returns the summary of the
    fits."""
    checked(processes, timeout_s)
    needs()
    path = catalog.user_path(out, "--out").absolute()
    if path.suffix != ".toml":
        raise PlanError("--out", out, "must end in .toml: `--calibration` reads that")
    writable(path, "--out")
    settings = Settings(
        records=str(record.path_of(path)),
        out=str(path),
        mode=mode,
        threads=threads_of(threads, processes),
        timeout_s=timeout_s,
        storage=_storage(storage),
    )
    from planner.calibrate import launch

    return launch.run(settings, processes, told)


def _storage(folder: str | None) -> str | None:
    """The folder whose storage is measured; refused before anything is measured where it cannot be
    written."""
    if folder is None:
        return None
    path = catalog.user_path(folder, "--storage").absolute()
    if not path.is_dir():
        raise PlanError("--storage", folder, "is no folder; give the one that checkpoints go to")
    writable(path / "checkpoint", "--storage")
    return str(path)


def verification(
    calibration: str | None,
    mode: Mode,
    threads: int | None,
    processes: int,
    timeout_s: float,
    tolerance: float,
    chosen: Sequence[str],
    report: str | None,
    precision: str | None,
    told: Told,
) -> dict[str, Any]:
    """Train decoders with local workers and compare with what the estimate says; returns the
    document of the contract."""
    checked(processes, timeout_s)
    if not 0 < tolerance <= 10:
        raise PlanError("--tolerance", tolerance, "must be above 0 and at most 10: 0.1 is 10 %")
    needs()
    own = [cases.read_case(text) for text in chosen]
    document = (
        nodes.read(catalog.user_path(calibration, "--calibration"), "--calibration")
        if calibration
        else None
    )
    folder = _report_folder(report)
    decoders = own or cases.unseen(processes, mode, gpu=_on_gpu())
    for case in decoders:
        _can_run(case, processes)
    with tempfile.TemporaryDirectory() as scratch:
        records = (folder or Path(scratch)) / "verify.records.jsonl"
        if records.exists():
            records.unlink()
        settings = Settings(
            records=str(records),
            mode=mode,
            threads=threads_of(threads, processes),
            timeout_s=timeout_s,
            cases=tuple(decoders),
            precision=precision or ("bf16" if _on_gpu() else "fp32"),
            calibration=calibration,
        )
        from planner.calibrate import launch

        found = Hardware(**launch.run(settings, processes, told))
        raw = record.read(records)
    reference = document["node"].get("probe_s") if document and "node" in document else None
    measured = record.merged(raw, reference)
    speed = reference / record.usual_of(raw) if reference else 1.0
    out = verify.compare(
        measured,
        gpu=_gpu_of(found, document),
        ranks=processes,
        precision=settings.precision,
        calibration=calibration,
        tolerance=tolerance,
        speed=speed,
    )
    if folder:
        from planner.calibrate import report as pages

        pages.write(out, folder)
    return out


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
    except OSError as error:
        raise PlanError(
            "--report", report, f"cannot be written: {error.strerror or error}"
        ) from None
    writable(folder / "report.md", "--report")
    return folder


def _on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _gpu_of(found: Hardware, document: dict[str, Any] | None) -> str:
    """The device that was trained on, which a calibration must be of."""
    device = detect.device_id(found)
    if document is None:
        if device not in catalog.ids("gpus"):
            raise PlanError(
                "--calibration",
                None,
                f"is needed: {found.name} has no shipped profile; run `dpplan calibrate` first",
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


def difference(first: str, second: str) -> list[dict[str, Any]]:
    """Numbers of two files, the largest loss of the second first."""
    one, other = (
        nodes.read(catalog.user_path(name, "--diff"), "--diff") for name in (first, second)
    )
    return nodes.compare(one, other)


def merged(names: Sequence[str], out: str) -> dict[str, Any]:
    """One file for several nodes of a kind, and nodes far from the middle."""
    if len(names) < 2:
        raise PlanError("--merge", ", ".join(names), "needs two files or more")
    path = catalog.user_path(out, "--out")
    writable(path, "--out")
    if path.absolute() in {catalog.user_path(name, "--merge").absolute() for name in names}:
        raise PlanError("--out", out, "is one of the files to merge; give the result its own file")
    documents = [nodes.read(catalog.user_path(name, "--merge"), "--merge") for name in names]
    document, far = nodes.merge(documents, names)
    profile.write(document, path)
    return {"out": str(path), "gpu": document["gpu"], "nodes": len(names), "far": far}


def under_torchrun(words: Sequence[str]) -> Settings | int:
    """Settings of a rank that torchrun or a scheduler started: the measuring options of `dpplan
    calibrate`."""
    parser = argparse.ArgumentParser(
        prog="python -m planner.calibrate", description="Measure this node; start with torchrun."
    )
    parser.add_argument("--out", required=True, help="calibration file, written by rank 0")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument("--quick", action="store_true", help="about a minute")
    speed.add_argument("--thorough", action="store_true", help="until every case is certain")
    parser.add_argument("--threads", type=int, help="CPU threads of each rank")
    parser.add_argument(
        "--storage",
        help="folder that checkpoints go to, to measure its storage; default: that of --out",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        help="seconds after which a rank that does not come is named",
    )
    given = parser.parse_args(list(words))
    mode: Mode = "quick" if given.quick else "thorough" if given.thorough else "default"
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    try:
        checked(1, given.timeout)
        path = catalog.user_path(given.out, "--out").absolute()
        if int(os.environ.get("RANK", "0")) == 0:
            writable(path, "--out")
        local = int(os.environ.get("LOCAL_WORLD_SIZE", str(ranks)))
        return Settings(
            records=str(record.path_of(path)),
            out=str(path),
            mode=mode,
            threads=threads_of(given.threads, local),
            timeout_s=given.timeout,
            storage=_storage(given.storage),
        )
    except PlanError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
