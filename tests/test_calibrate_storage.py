"""Storage as calibration measures it: files written and read, refusals, and what an estimate makes
of the numbers."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from command import argv, dpplan, refused

from planner.calibrate import fit, fit_links, profile
from planner.error import PlanError

pytest.importorskip("torch", reason="calibration measures with torch, of the calibrate extra")

from planner.calibrate import storage
from planner.inputs.calibration import read_calibration

MIB = 2**20


def timed(folder: Path, way: str, first: bool = True) -> float:
    values = {name["way"]: prepare for name, prepare in storage.tasks(folder, "quick", first)}
    return values[way]()()


def records(write_s: float, read_s: float, spread: float = 0.1) -> list[dict[str, Any]]:
    each = {"kind": "storage", "bytes": 16 * MIB, "spread": spread, "quiet": True}
    return [
        {**each, "way": "write", "seconds": write_s},
        {**each, "way": "read", "seconds": read_s},
    ]


@pytest.mark.parametrize("way", ["write", "read"])
def test_a_file_is_timed_and_leaves_nothing_behind(way: str, tmp_path: Path) -> None:
    seconds = timed(tmp_path, way)
    assert 1e-12 < seconds < 1e-6  # between 1 TB/s and 1 MB/s
    assert list(tmp_path.iterdir()) == []


def test_other_ranks_of_a_node_write_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(storage.tempfile, "TemporaryFile", None)
    assert timed(tmp_path, "write", first=False) == 0.0


def test_every_byte_is_on_the_storage_before_the_clock_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sizes = []
    synced = os.fsync

    def fsync(file: int) -> None:
        sizes.append(os.fstat(file).st_size)
        synced(file)

    monkeypatch.setattr(os, "fsync", fsync)
    timed(tmp_path, "write")
    assert sizes == [16 * MIB]


def test_a_full_folder_is_refused_before_and_while_it_fills(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            storage.shutil, "disk_usage", lambda _: type("usage", (), {"free": 3 * 16 * MIB})
        )
        with pytest.raises(PlanError, match=r"--storage.*50 MB free, measuring wants 67 MB"):
            timed(tmp_path, "write")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PlanError, match=r"--storage.*No space left on device.*is kept"):
        timed(tmp_path, "write")
    assert list(tmp_path.iterdir()) == []


def test_rates_are_the_middle_and_a_half_measurement_is_refused() -> None:
    result = fit_links.storage(records(1e-9, 0.4e-9, spread=0.3))
    assert result.numbers["write_bandwidth"].value == pytest.approx(1e9)
    assert result.numbers["read_bandwidth"].value == pytest.approx(2.5e9)
    assert result.worst_error == pytest.approx(0.15)
    with pytest.raises(fit.Unsupported, match="written and read"):
        fit_links.storage(records(1e-9, 0.0))  # a rank that waited


def written(folder: Path, **rates: float) -> Path:
    path = folder / "node.toml"
    lines = [
        "schema_version = 1",
        'gpu = "rtx4090"',
        'date = "2026-11-22"',
        'source = "test"',
        "[storage]",
        'id = "measured"',
        'title = "measured on test"',
    ]
    lines += [
        f'{k} = {{ value = {v}, kind = "measured", source = "test", date = "2026-11-22" }}'
        for k, v in rates.items()
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


ASKED = argv(
    "estimate --model llama-2-7b --gpu rtx4090 --gpus 16 --stack pytorch-fsdp --zero 3 "
    "--checkpoint sync"
)


def test_an_estimate_writes_checkpoints_as_fast_as_was_measured(tmp_path: Path) -> None:
    path = written(tmp_path, per_node=1.5e9, read_per_node=6e9)
    answer = dpplan(*ASKED, "--calibration", path, "--json").json()
    run = answer["run"]["reliability"]
    # two nodes of eight
    assert run["checkpoint_write_s"] == pytest.approx(run["checkpoint_bytes"] / 3e9)
    usual = dpplan(*ASKED, "--json").json()["run"]["reliability"]
    start = usual["restart_s"] - usual["checkpoint_write_s"] / 2
    assert run["restart_s"] == pytest.approx(start + run["checkpoint_bytes"] / 12e9)
    assert any("as --calibration measured" in assumption for assumption in answer["assumptions"])
    document = dpplan(*ASKED, "--calibration", path, "--storage", "10 GB/s", "--json").json()
    assert document["run"]["reliability"]["checkpoint_write_s"] == pytest.approx(
        run["checkpoint_bytes"] / 10e9
    )
    assert any("stated in the request" in assumption for assumption in document["assumptions"])


def test_a_storage_that_is_no_storage_is_refused(tmp_path: Path) -> None:
    refused(
        dpplan(*ASKED, "--calibration", written(tmp_path, per_node=-1.0)),
        "--calibration",
        "storage",
    )


def test_the_file_that_calibrate_writes_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    profile.write(
        {
            "schema_version": 1,
            "gpu": "rtx4090",
            "date": "2026-11-22",
            "source": "test",
            "storage": profile.storage_table(
                fit_links.storage(records(1e-9, 0.5e-9)), "test", "2026-11-22"
            ),
        },
        path,
    )
    storage = read_calibration(str(path)).storage
    assert storage is not None
    assert float(storage.per_node or 0) == pytest.approx(1e9)
    assert float(storage.read_per_node or 0) == pytest.approx(2e9)


def test_a_folder_that_cannot_hold_checkpoints_is_refused_before_measuring(tmp_path: Path) -> None:
    refused(
        dpplan("calibrate", "--out", tmp_path / "node.toml", "--storage", tmp_path / "none"),
        "--storage",
        "is not a folder",
    )
    refused(
        dpplan("calibrate", "--diff", "a.toml", "b.toml", "--storage", tmp_path), "is for measuring"
    )
