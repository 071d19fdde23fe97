"""A node as it is now: its GPUs by nvidia-smi, memory, network cards and disks by the kernel."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from planner.error import PlanError

# properties of `nvidia-smi --help-query-gpu`, in the order of Gpu
_QUERY = "name,driver_version,memory.total,memory.used,power.limit,power.max_limit"
_WIDTHS = "pcie.link.width.current,pcie.link.width.max"
_TIMEOUT_S = 30
_MIB = 2**20


@dataclass(frozen=True)
class Gpu:
    """A GPU that a process would see. Powers and widths are None where the card does not say.

    index: as nvidia-smi counts, whatever CUDA_VISIBLE_DEVICES leaves.
    """

    index: str
    name: str
    driver: str
    memory_bytes: float
    used_bytes: float
    power_w: float | None
    most_power_w: float | None
    lanes: float | None
    most_lanes: float | None


@dataclass(frozen=True)
class Node:
    """gpus: None where no driver answers. nic_bytes_per_s: of each active port, one way.
    locked_memory: whether RDMA may register memory without limit."""

    host: str
    gpus: tuple[Gpu, ...] | None
    free_memory_bytes: float | None
    shared_memory_bytes: float | None
    free_disk_bytes: float
    nic_bytes_per_s: tuple[float, ...]
    locked_memory: bool


def read(folder: str, root: Path = Path("/")) -> Node:
    """This node. folder: of the checkpoints. root: of /proc, /sys and /dev, for tests. Raises
    PlanError where the folder does not exist."""
    try:
        disk = shutil.disk_usage(folder).free
    except OSError as error:
        raise PlanError(
            "--folder", folder, f"cannot be read ({error.strerror}): make it first"
        ) from None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Node(
        platform.node(),
        gpus(),
        free_memory_bytes(root),
        _shared_memory_bytes(root / "dev" / "shm"),
        disk,
        tuple(_ports(root / "sys" / "class" / "infiniband")),
        soft == resource.RLIM_INFINITY,
    )


def gpus() -> tuple[Gpu, ...] | None:
    """NVIDIA GPUs of this node that CUDA_VISIBLE_DEVICES leaves; None without nvidia-smi. Raises
    PlanError where the driver does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, f"--query-gpu=index,uuid,{_QUERY},{_WIDTHS}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(
            "nvidia-smi", None, f"does not answer ({error}): check the driver"
        ) from None
    if answer.returncode:
        words = " ".join((answer.stdout + answer.stderr).split())
        raise PlanError("nvidia-smi", None, f"{words}: no GPU can be used before that is mended")
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = None if visible is None else [name.strip() for name in visible.split(",")]
    return tuple(
        _gpu(index, cells)
        for index, uuid, *cells in rows
        if names is None or any(name and (name == index or uuid.startswith(name)) for name in names)
    )


def _gpu(index: str, cells: list[str]) -> Gpu:
    name, driver, *numbers = cells
    total, used, *others = map(_number, numbers)
    return Gpu(index, name, driver, (total or 0) * _MIB, (used or 0) * _MIB, *others)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None


def free_memory_bytes(root: Path) -> float | None:
    """Host memory that a new process can take: what the kernel calls available, within the limit
    of the control group."""
    try:
        text = (root / "proc" / "meminfo").read_text("ascii")
        free = float(re.findall(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)[0]) * 1024
    except (OSError, IndexError):
        return None
    group = root / "sys" / "fs" / "cgroup"
    try:
        limit = float((group / "memory.max").read_text("ascii"))
        return min(free, limit - float((group / "memory.current").read_text("ascii")))
    except (OSError, ValueError):  # no control group, or "max"
        return free


def _shared_memory_bytes(folder: Path) -> float | None:
    try:
        return float(shutil.disk_usage(folder).total)
    except OSError:
        return None


def _ports(folder: Path) -> list[float]:
    """Rates of the active InfiniBand and RoCE ports, bytes/s: "400 Gb/sec (4X NDR)"."""
    rates = []
    for port in sorted(folder.glob("*/ports/*")):
        try:
            active = "ACTIVE" in (port / "state").read_text("ascii")
            rate = float((port / "rate").read_text("ascii").split()[0])
        except (OSError, ValueError, IndexError):
            continue
        if active:
            rates.append(rate * 1e9 / 8)
    return rates
