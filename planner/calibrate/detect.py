"""The hardware of this node: CPU and GPU names, cores, memory, clocks, and the shipped profile
nearest to it."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner.inputs import catalog
from planner.specs.hardware import GpuSpec

# of one name there may be cards of two sizes: total memory as torch reports it, by driver
_MEMORY_SLACK = 0.1


@dataclass(frozen=True)
class Hardware:
    """The device of one rank and its host."""

    kind: str  # "cpu" or "gpu"
    name: str  # as the driver or the kernel calls it
    compute_units: int  # multiprocessors; 1 for a CPU, whose threads work on one GEMM together
    memory_bytes: int  # of the card, or of the host
    threads: int
    cores: int
    host: str
    driver: str = ""
    power_limit_w: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48] or "device"


def cpu_name() -> str:
    """Model name of the CPU, as /proc tells it; the machine's architecture elsewhere."""
    try:
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.lower().startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "cpu"


def host_memory_bytes() -> int:
    """Memory of the host that this process may use, with the limit of its control group."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        return min(whole, limit)
    except (OSError, ValueError):  # no control group, or "max"
        return whole


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sockets() -> int:
    """Processors whose cores this process may use, as the system tells; 1 where it does not."""
    packages = set()
    for core in os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ():
        place = Path(f"/sys/devices/system/cpu/cpu{core}/topology/physical_package_id")
        if place.is_file():
            packages.add(place.read_text(encoding="ascii").strip())
    return max(len(packages), 1)


def hardware(local_rank: int, threads: int) -> Hardware:
    """The device this process would train on. Imports torch."""
    import torch

    if torch.cuda.is_available():
        index = local_rank % torch.cuda.device_count()
        card = torch.cuda.get_device_properties(index)
        watts, driver = _nvml(index)
        return Hardware(
            "gpu",
            card.name,
            card.multi_processor_count,
            card.total_memory,
            threads,
            usable_cores(),
            platform.node(),
            driver,
            watts,
        )
    return Hardware(
        "cpu", cpu_name(), 1, host_memory_bytes(), threads, usable_cores(), platform.node()
    )


def _nvml(index: int) -> tuple[float | None, str]:
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0, str(
            pynvml.nvmlSystemGetDriverVersion()
        )
    except (
        Exception
    ):  # no library, no driver, or a card that tells nothing: the report says so by leaving it out
        return None, ""


def conditions(index: int | None) -> dict[str, float]:
    """Clock, power and temperature of a card at this moment; nothing where NVML does not tell."""
    if index is None:
        return {}
    try:
        import pynvml

        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return {
            "clock_mhz": float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "power_w": pynvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
            "temperature_c": float(
                pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            ),
        }
    except Exception:  # as above
        return {}


def profile_of(hardware: Hardware) -> str | None:
    """The shipped profile of exactly this variant, None without one."""
    if hardware.kind != "gpu":
        return None
    return next(
        (
            gpu.id
            for gpu in catalog.load_all("gpus", GpuSpec)
            if gpu.torch_name == hardware.name
            and abs(hardware.memory_bytes / float(gpu.usable_memory) - 1) < _MEMORY_SLACK
        ),
        None,
    )


def nearest(hardware: Hardware) -> GpuSpec:
    """The shipped profile a new card starts from: closest in multiprocessors and memory."""

    def distance(gpu: GpuSpec) -> float:
        return abs(gpu.compute_units / hardware.compute_units - 1) + abs(
            float(gpu.memory) / hardware.memory_bytes - 1
        )

    return min(catalog.load_all("gpus", GpuSpec), key=distance)


def device_id(hardware: Hardware) -> str:
    """Profile id: the shipped one, or one made of the device's name."""
    known = profile_of(hardware)
    if known:
        return known
    return (
        f"cpu-{slug(hardware.name)}-{hardware.threads}t"
        if hardware.kind == "cpu"
        else slug(hardware.name)
    )
