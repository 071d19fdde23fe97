"""A node against a plan: what nvidia-smi and the kernel say of it, and what a run would meet."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command import dpplan, refused

from planner.preflight import node as nodes
from planner.preflight import verb
from planner.preflight.documents import Preflight
from planner.specs.options import Given
from planner.units import show
from planner.views.text import show_blocks

H100 = "NVIDIA H100 80GB HBM3, 570.86.15, 81559, {used}, {power}, 700.00, {lanes}, 16"
PLAN = {
    "model": "llama-3.1-8b", "gpu": "h100", "gpus": 16, "tokens": "1B", "stack": "torchtitan",
    "tp": 1, "pp": 1, "zero": 3, "micro_batch": 1, "recompute": "full", "seq_len": 4096,
    "global_batch": 64,
}  # fmt: off
SMI = """#!/bin/sh
case "$*" in *--query-gpu=index,uuid,name,driver_version,memory.total*) ;; *) exit 9 ;; esac
cat "$(dirname "$0")/answer"
exit {status}
"""


class Fake:
    """A node of which the kernel's files are in a folder and nvidia-smi is a script."""

    def __init__(self, folder: Path) -> None:
        self.root, self.programs = folder / "root", folder / "bin"
        self.programs.mkdir(parents=True)
        for name in ("proc", "sys/fs/cgroup", "dev/shm", "sys/class/infiniband"):
            (self.root / name).mkdir(parents=True)
        self.memory(2e12)
        self.ports(8, "400 Gb/sec (4X NDR)")
        self.gpus(8)

    def gpus(
        self, count: int, status: int = 0, used: int = 4, power: str = "700.00", lanes: int = 16
    ) -> None:
        line = H100.format(used=used, power=power, lanes=lanes)
        lines = [f"{index}, GPU-{index}a5c, {line}\n" for index in range(count)]
        (self.programs / "answer").write_text("".join(lines))
        program = self.programs / "nvidia-smi"
        program.write_text(SMI.format(status=status))
        program.chmod(0o755)

    def memory(self, available: float, limit: str = "max") -> None:
        text = f"MemTotal: 1 kB\nMemAvailable:   {available / 1024:.0f} kB\n"
        (self.root / "proc" / "meminfo").write_text(text)
        (self.root / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
        (self.root / "sys/fs/cgroup/memory.current").write_text("1000000000\n")

    def ports(self, count: int, rate: str, state: str = "4: ACTIVE") -> None:
        for index in range(8):
            port = self.root / "sys/class/infiniband" / f"mlx5_{index}" / "ports" / "1"
            port.mkdir(parents=True, exist_ok=True)
            (port / "rate").write_text(f"{rate}\n")
            (port / "state").write_text(f"{state if index < count else '1: DOWN'}\n")

    def checked(self, **changed: object) -> Preflight:
        return verb.answer(
            Given({**PLAN, "stack_defaults": True, **changed}), str(self.root), self.root
        )

    def states(self, **changed: object) -> dict[str, str]:
        return {check.name: check.state for check in self.checked(**changed).checks}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    node = Fake(tmp_path)
    monkeypatch.setenv("PATH", str(node.programs) + ":/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return node


def test_a_node_as_planned_is_ready(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nodes.shutil, "disk_usage", lambda folder: _Disk)
    answer = fake.checked()
    bad = {check.name: check for check in answer.checks if check.state != "ok"}
    assert bad.keys() <= {"locked memory"}  # as this machine limits it
    assert answer.ready
    assert answer.command.startswith("dpplan estimate --model llama-3.1-8b")
    show_blocks(verb.view(answer).blocks, plain=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("is ready, as a run meets them")
    assert max(len(line) for line in lines if not line.startswith("dpplan ")) <= 100


class _Disk:
    total, free = 2**40, 2**40


@pytest.mark.parametrize(
    ("change", "name", "state"),
    [
        (lambda node: node.gpus(4), "GPUs", "failed"),
        (lambda node: node.gpus(8, used=75_000), "free GPU memory", "failed"),
        (lambda node: node.gpus(8, used=5_000), "free GPU memory", "warning"),
        (lambda node: node.gpus(8, power="350.00"), "power limit", "warning"),
        (lambda node: node.gpus(8, power="[N/A]"), "power limit", None),
        (lambda node: node.gpus(8, lanes=8), "PCIe lanes", "warning"),
        (lambda node: node.memory(10e9), "host memory", "failed"),
        (lambda node: node.memory(2e12, limit="12000000000"), "host memory", "failed"),
        (lambda node: (node.root / "proc" / "meminfo").unlink(), "host memory", "unknown"),
        (lambda node: node.ports(7, "400 Gb/sec (4X NDR)"), "network", "warning"),
        (lambda node: node.ports(8, "200 Gb/sec (4X HDR)"), "network", "warning"),
        (lambda node: node.ports(0, "400 Gb/sec (4X NDR)"), "network", "warning"),
        (lambda node: (node.programs / "nvidia-smi").unlink(), "GPUs", "unknown"),
    ],
)
def test_what_a_run_would_meet_is_said(
    fake: Fake, change: Callable[[Fake], object], name: str, state: str | None
) -> None:
    change(fake)
    answer = fake.checked()
    states = {check.name: check for check in answer.checks}
    assert (states[name].state if name in states else None) == state
    if state in ("failed", "warning"):
        assert states[name].remedy
    assert answer.ready == all(check.state != "failed" for check in answer.checks)


def test_memory_of_the_plan_is_that_of_the_estimate(fake: Fake) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in PLAN.items()]
    memory = dpplan("estimate", *words, "--stack-defaults", "--json").json()["memory"]
    checks = {check.name: check.plan for check in fake.checked().checks}
    assert checks["plan"].startswith(show(memory["device_bytes"], "B"))
    assert checks["free GPU memory"].startswith(show(memory["device_bytes"], "B"))


def test_a_busy_gpu_has_the_number_that_nvidia_smi_gives_it(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.gpus(8, used=5_000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    remedies = {check.name: check.remedy for check in fake.checked(gpus=2).checks}
    assert "on GPU 5, 6:" in remedies["free GPU memory"]


def test_ranks_that_read_whole_weights_are_warned_of(fake: Fake) -> None:
    fake.memory(200e9)
    one_each = {"stack": "hf-fsdp", "gpus": 8}
    assert fake.states(**one_each)["reading weights"] == "warning"
    assert "reading weights" not in fake.states(**one_each, weight_readers="in-parts")


def test_only_visible_gpus_count(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,GPU-3a5c")
    visible = nodes.gpus()
    assert visible is not None
    assert len(visible) == 2
    assert fake.states()["GPUs"] == "failed"
    assert fake.states(gpus=2)["GPUs"] == "ok"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert nodes.gpus() == ()


def test_another_gpu_and_a_plan_that_does_not_fit(fake: Fake) -> None:
    assert fake.states(gpu="a100")["kind of GPU"] == "warning"
    states = fake.states(gpu="rtx4090", gpus=1, zero=0)
    assert states["plan"] == "failed"
    assert "network" not in states  # of one node


def test_a_driver_that_does_not_answer_is_an_error(fake: Fake, tmp_path: Path) -> None:
    fake.gpus(1, status=9)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in PLAN.items()]
    refused(dpplan("preflight", *words), "nvidia-smi", "no GPU can be used")
    refused(dpplan("preflight", *words, "--folder", tmp_path / "none"), "--folder", "make it first")
    fake.gpus(1)
    answer = dpplan("preflight", *words, "--json")
    assert answer.status == 3
    assert not json.loads(answer.stdout)["ready"]


def test_a_node_is_compared_with_the_plan_before_it_starts_where_that_is_wanted(
    tmp_path: Path,
) -> None:
    """Programs of the same names print their words; dpplan ends as its answer says."""
    words = "export --to torchtitan --model llama-3.1-8b --gpu h100 --gpus 16 --global-batch 64"
    assert dpplan(*words.split(), "--out", str(tmp_path / "recipe")).status == 0
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, status in (("dpplan", "${STATUS:-0}"), ("torchrun", "0")):
        (programs / name).write_text(f'#!/bin/bash\necho {name} "$@"\nexit {status}\n')
        (programs / name).chmod(0o755)
    path = {"PATH": f"{programs}:/usr/bin:/bin"}

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(tmp_path / "recipe" / "run.sh")],
            env={**path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    plain, checked, stopped = (
        run(),
        run(DPPLAN_PREFLIGHT="1"),
        run(DPPLAN_PREFLIGHT="1", STATUS="3"),
    )
    assert plain.returncode == checked.returncode == 0
    assert "preflight" not in plain.stdout
    first, *others = checked.stdout.splitlines()
    assert first.startswith("dpplan preflight --model llama-3.1-8b --gpu h100 --gpus 16 ")
    assert others[0].startswith("torchrun ")
    assert stopped.returncode == 3
    assert "torchrun" not in stopped.stdout
