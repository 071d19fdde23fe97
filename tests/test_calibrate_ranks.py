"""Calibration as it runs: two ranks measure, fit and train; a rank that dies or hangs is named; a
full disk keeps what was there.

Everything here runs torch with gloo on the CPU, and as little of it as shows that it works: what
fits make of numbers is tested on records of a node that never was.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import ROOT, argv, dpplan_process, python

pytest.importorskip("torch", reason="calibration measures with torch, of the calibrate extra")
pytest.importorskip("scipy", reason="fits need scipy, of the calibrate extra")

from node_records import SESSION, document

from planner.calibrate import cases, detect, launch, overhead, profile, record
from planner.calibrate.cases import Case
from planner.calibrate.settings import Failed, Progress, Settings

pytestmark = pytest.mark.oracle

RANKS = 2
SMALL: dict[str, Any] = {
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "ffn": 192,
    "vocab": 256,
    "seq": 32,
    "micro_batch": 2,
}


@pytest.fixture(autouse=True)
def _find_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def case(parallel: str, **changed: Any) -> str:
    shape = {**SMALL, **changed, "parallel": parallel}
    return ",".join(f"{key}={value}" for key, value in shape.items())


# what ranks import before they measure: a shape or two of everything, and no fit, whose numbers a
# loaded machine does not give
FEW = """
import json
from pathlib import Path
from planner.calibrate import cases, collectives, finish, host, kernels, overhead
from planner.calibrate.documents import Calibrated

few = {
    "gemms": [(32, 32, 32, False)], "attentions": [(1, 2, 32, 16)], "losses": [(32, 64)],
    "operators": [("rmsnorm", 32, 32), ("gated", 32, 64)], "embeddings": [(32, 64, 32)],
    "sizes": [1024, 65536],
}
overhead.fitted_cases = lambda ranks: [
    cases.Case(1, 32, 2, 64, 64, 16, 1, parallel=how) for how in ("single", "ddp", "fsdp", "tensor")
]
host._PARAMETERS["quick"] = kernels._OPTIMIZED = 2**12
kernels._COPY_BYTES = collectives._BESIDE_BYTES = collectives._PAIR_BYTES_CPU = 2**16
collectives._BESIDE_WIDTH_CPU = collectives._ROUNDS = 2
kernels._LEAST_SAMPLE_S = 0.0
for name, those in few.items():
    setattr(cases, name, lambda mode, gpu=False, those=those: those)
cases.EFFORT["quick"] = cases.Effort(0.02, 0.01, 2, 1, 1, 5.0, 0.5, 2.0, 2)

def finished(records, session, out):
    Path(out).write_text(json.dumps(dict(session.conditions)))
    return Calibrated(1, str(out), "test", len(records), 0, [], {}, {}, [], 0.0)

finish.finish = finished
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks that the command starts; what they measured, as little as shows every kind."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "sitecustomize.py").write_text(FEW, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
        items: list[Progress] = []
        out = folder / "node.toml"
        settings = Settings(records=str(record.path_of(out)), out=str(out), mode="quick")
        result = launch.run(settings, RANKS, items.append)
    assert result["out"] == str(out)
    assert {"kernels", "collectives", "small models", "storage", "host"} <= {p.stage for p in items}
    return out


def test_two_ranks_measure_every_kind_of_case(measured: Path) -> None:
    """Each kind of case was measured; the values depend on the machine and are not checked."""
    head, *lines = record.read(record.path_of(measured))
    result = record.merged(lines)
    assert head["ranks"] == json.loads(measured.read_text(encoding="utf-8"))["ranks"] == RANKS
    kinds = {"gemm", "attention", "operator", "loss", "embedding", "optimizer", "memory"}
    assert {r["kind"] for r in result} == kinds | {
        "collective",
        "pair",
        "overlap",
        "storage",
        "host",
        "step",
    }
    assert {r["operation"] for r in result if r["kind"] == "collective"} == set(cases.COLLECTIVES)
    trained = {Case(**r["case"]).parallel for r in result if r["kind"] == "step"}
    assert trained == {case.parallel for case in overhead.fitted_cases(RANKS)}
    assert all(r["seconds"] > 0 and r["tried"] >= 1 for r in result)
    assert [
        p.name for p in measured.parent.iterdir() if "partial" in p.name or "trial" in p.name
    ] == []


def test_a_second_run_goes_on_from_the_records(measured: Path) -> None:
    """A case with all its samples is not measured again: records grow only by open cases."""
    path = record.path_of(measured)
    before = path.read_text(encoding="utf-8").splitlines()
    merged = record.merged(map(json.loads, before))
    again = record.Records(path, json.loads(before[0]))
    assert path.read_text(encoding="utf-8").splitlines() == before
    assert sum(len(s) for s in again.samples.values()) == sum(r["tried"] for r in merged)


@pytest.fixture
def calibrated(tmp_path: Path) -> Path:
    """A calibration of this device whose numbers are made up."""
    path = tmp_path / "node.toml"
    result = detect.hardware(0, 1)
    profile.write(document(ranks=RANKS, session=replace(SESSION, found=result, ranks=RANKS)), path)
    return path


@pytest.mark.slow
def test_verification_trains_every_parallelism_and_counts_bytes_exactly(
    calibrated: Path, tmp_path: Path
) -> None:
    extra: dict[str, dict[str, Any]] = {
        "pipeline": {"microbatches": 4},
        "single": {"family": "gpt"},
    }
    words = [word for how in cases.PARALLEL for word in ("--case", case(how, **extra.get(how, {})))]
    answer = dpplan_process(
        *argv("calibrate --verify --quick --processes"),
        RANKS,
        *argv("--threads 1 --calibration"),
        calibrated,
        *argv("--tolerance 10 --report"),
        tmp_path / "report",
        "--json",
        *words,
        timeout_s=300,
    )
    assert answer.status in (0, 3), answer.stderr
    out = answer.json()
    assert [row["case"]["parallel"] for row in out["cases"]] == list(cases.PARALLEL)
    for row in out["cases"]:
        assert row["states_exact"], (row["name"], row["predicted_states"], row["measured_states"])
        assert row["measured_step_s"] > 0
        assert row["predicted_step_s"] > 0
        assert len(row["measured_states"]) == (1 if row["case"]["parallel"] == "single" else RANKS)
    assert (answer.status == 3) == (out["summary"]["mape"] > 10)
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.slow
def test_the_loss_falls_and_is_the_same_however_ranks_share_the_model(tmp_path: Path) -> None:
    """FSDP and DDP train the same decoder on the same words: their losses are equal."""
    result = trained(tmp_path, "ddp", "fsdp")
    losses = {r["case"]["parallel"]: r["loss"] for r in result}
    assert losses["ddp"] == pytest.approx(losses["fsdp"], rel=1e-4)
    assert losses["ddp"][1] < losses["ddp"][0]


def trained(folder: Path, *parallel: str) -> list[dict[str, Any]]:
    path = folder / "v.jsonl"
    todo = tuple(Case(**SMALL, parallel=how) for how in parallel)
    launch.run(Settings(records=str(path), mode="quick", cases=todo), RANKS, lambda message: None)
    return [r for r in record.read(path) if r["kind"] == "step"]


def pid_of(rank: int) -> int:
    """The process of a rank that this process started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or another user's
            continue
        if parent == os.getpid() and f"RANK={rank}".encode() in words:
            return int(folder.name)
    raise AssertionError(f"rank {rank} does not run")


def interrupted(folder: Path, subject: int, timeout_s: float) -> str:
    """Measure with two ranks and send rank 1 a signal at its first progress; what the run says."""
    items: list[Progress] = []

    def strike(progress: Progress) -> None:
        if not items:
            os.kill(pid_of(1), subject)
        items.append(progress)

    settings = Settings(
        records=str(folder / "r.jsonl"),
        out=str(folder / "node.toml"),
        mode="quick",
        timeout_s=timeout_s,
    )
    with pytest.raises(Failed) as failed:
        launch.run(settings, RANKS, strike)
    assert items
    return str(failed.value)


def test_a_rank_that_dies_is_named_and_records_are_kept(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("earlier = 1\n", encoding="utf-8")
    text = interrupted(tmp_path, signal.SIGKILL, 60)
    assert text.startswith("rank 1 ")
    assert "SIGKILL" in text
    assert "kept" in text
    assert record.read(tmp_path / "r.jsonl")[0]["kind"] == "conditions"
    assert (tmp_path / "node.toml").read_text(encoding="utf-8") == "earlier = 1\n"


@pytest.mark.slow
def test_a_rank_that_hangs_is_named(tmp_path: Path) -> None:
    text = interrupted(tmp_path, signal.SIGSTOP, 6)
    assert "rank 1" in text
    assert "kept" in text


def test_a_rank_that_cannot_start_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launch.sys, "executable", "/bin/false")
    with pytest.raises(Failed, match="rank 0 ended with status 1"):
        launch.run(Settings(records=str(tmp_path / "r.jsonl")), 1, lambda progress: None)


def test_a_rank_alone_that_hangs_is_named(tmp_path: Path) -> None:
    """Without another rank that waits for it, an alarm ends the run."""
    settings = Settings(
        records=str(tmp_path / "r.jsonl"),
        out=str(tmp_path / "x.toml"),
        mode="quick",
        timeout_s=3.0,
        longest_case_s=2.0,
    )
    stopped: list[Progress] = []

    def stop(progress: Progress) -> None:
        if not stopped:
            os.kill(pid_of(0), signal.SIGSTOP)
        stopped.append(progress)

    with pytest.raises(Failed, match="rank 0 hangs"):
        launch.run(settings, 1, stop)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = ["dpplan", *sys.argv[2:]]
from planner.cli import main
main()
"""


def test_a_full_disk_keeps_the_file_that_was_there(tmp_path: Path) -> None:
    """Files may not grow beyond 2 KiB: some records fit, then none. A record has 0.3 to 3 kB, by
    how often a noisy machine makes it measure again; a run has dozens."""
    (tmp_path / "sitecustomize.py").write_text(FEW, encoding="utf-8")
    out = tmp_path / "node.toml"
    out.write_text("schema_version = 1\n", encoding="utf-8")
    words = (2 * 1024, *argv("calibrate --quick --threads 1 --processes 1 --out"), out)
    # nor may compiled modules, which Python cuts off without a word, for whoever imports them next
    answer = python(
        LIMITED,
        *words,
        timeout=120,
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
    )
    assert answer.status == 2, answer.stderr
    assert "cannot be written" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert out.read_text(encoding="utf-8") == "schema_version = 1\n"
    kept = record.read(
        record.path_of(out)
    )  # what fits is whole; a line that was cut off is dropped
    assert kept[0]["kind"] == "conditions"
    assert len(kept) > 1


UNDER_TORCHRUN = """
import runpy, sys
for words in (["--out", sys.argv[1]], ["--help"]):
    sys.argv = ["calibrate", *words]
    try:
        runpy.run_module("planner.calibrate", run_name="__main__")
    except SystemExit as ended:
        print("status", ended.code)
print("loaded", *{"torch", "scipy"} & sys.modules.keys())
"""


def test_torchrun_starts_the_same_ranks(tmp_path: Path) -> None:
    """A wrong request under torchrun is one sentence of rank 0, without torch, as is --help."""
    answer = python(UNDER_TORCHRUN, tmp_path / "none" / "x.toml")
    assert "missing folder" in answer.stderr
    assert "--quick" in answer.stdout
    wrong, shown, loaded = (
        line for line in answer.stdout.splitlines() if line.startswith(("status", "loaded"))
    )
    assert (wrong, shown, loaded) == ("status 2", "status 0", "loaded")
