"""Measurements of a host by `dpplan calibrate`, and their use in an estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plans
import pytest

from planner.calibrate import detect, host, profile
from planner.calibrate.fit import Fits, Unsupported
from planner.estimate.machine import machine
from planner.inputs.calibration import read_calibration
from planner.inputs.cluster import cluster_spec
from planner.specs.options import Options

CORES = 16


def records(**seconds: float) -> list[dict[str, Any]]:
    """A host whose cores move 20 GB/s each, sixteen 200 GB/s; an update as fast on one, at 0.6 of
    it on all."""
    values = {"stream_1": 1 / 20e9, "stream_16": 1 / 200e9}
    values |= {"update_1": 28 / 20e9, "update_16": 28 / 120e9} | seconds
    return [
        {
            "kind": "host",
            "what": name.split("_")[0],
            "threads": int(name.split("_")[1]),
            "seconds": s,
        }
        for name, s in values.items()
    ]


def copies(**seconds: float) -> list[dict[str, Any]]:
    values = {"locked_host": 1 / 20e9, "locked_device": 1 / 25e9}
    values |= {"pageable_host": 1 / 4e9, "pageable_device": 1 / 8e9} | seconds
    return [
        {
            "kind": "host copy",
            "pinned": name.startswith("locked"),
            "way": "to " + name.split("_")[1],
            "seconds": s,
        }
        for name, s in values.items()
    ]


def test_the_host_of_records() -> None:
    fit = host.memory(records())
    values = {name: number.value for name, number in fit.numbers.items()}
    assert values == pytest.approx(
        {"stream_bandwidth": 200e9, "core_bandwidth": 20e9, "update_frac": 0.6}
    )
    assert fit.median_error == pytest.approx(0.0)
    slow = host.memory(records(update_1=28 / 16e9))
    assert slow.median_error == pytest.approx(0.2)
    with pytest.raises(Unsupported):
        host.memory([r for r in records() if r["what"] == "stream"])


def test_copies_of_records() -> None:
    values = {name: number.value for name, number in host.copies(copies()).numbers.items()}
    assert values == pytest.approx({"copy_bandwidth": 20e9, "staged_bandwidth": 8e9})
    with pytest.raises(Unsupported):
        host.copies([])


@pytest.mark.parametrize("text", ["stream", "update"])
def test_a_host_is_measured(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Between 0.1 and 10,000 GB/s; other ranks of the node wait."""
    monkeypatch.setitem(host._PARAMETERS, "quick", 2**14)
    mine = {r["threads"]: prepare for r, prepare in host.tasks("quick", True) if r["what"] == text}
    assert set(mine) == {1, detect.usable_cores()}
    assert 1e-13 < mine[1]()() < 28e-8
    waiting = next(prepare for r, prepare in host.tasks("quick", False) if r["what"] == text)
    assert waiting()() == 0.0


def test_what_was_measured_is_what_an_estimate_rests_on(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    fits = Fits({"host": host.memory(records()), "host copies": host.copies(copies())}, {})
    table = profile.host_table(fits, detect.hardware(0, 1), "2026-11-22")
    profile.write(
        {
            "schema_version": 1,
            "gpu": "rtx4090",
            "date": "2026-11-22",
            "source": "test",
            "host": table | {"cores": CORES},
        },
        path,
    )
    options = Options(model="gpt2", gpu="rtx4090", gpus=4, calibration=str(path))
    kept = read_calibration(str(path)).host
    cluster = cluster_spec(options)[0]
    assert kept is not None
    assert cluster.host == kept
    assert cluster.host_stated
    m = machine(plans.plan().model_copy(update={"cluster": cluster}))
    assert float(m.host_update) == pytest.approx(4 * 20e9)  # one thread each
    assert float(m.host_copy_bandwidth) == pytest.approx(20e9)
    assert float(m.host_staged) == pytest.approx(8e9)
    named = cluster_spec(options.changed(host="epyc-9004", offload="optimizer"))[0]
    assert named.host.id == "epyc-9004"
