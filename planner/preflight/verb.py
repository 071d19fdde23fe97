"""`dpplan preflight`: this node against a plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from planner.inputs import catalog
from planner.inputs.options import read_options
from planner.preflight import node as nodes
from planner.preflight.documents import Check, Preflight, State
from planner.preflight.node import Gpu, Node
from planner.specs.documents.estimate import Estimate
from planner.specs.hardware import GpuSpec
from planner.specs.options import Given
from planner.units import chance_text, show
from planner.verbs.estimate import estimate
from planner.views.view import Block, View

_SAME = 0.05  # within which two rates or powers are the same
_IDLE_BYTES = 1.5 * 2**30  # of a card with nothing on it: driver, display
# a container has 64 MiB where its --shm-size is not set (docs.docker.com/engine/containers/run)
_LEAST_SHARED_BYTES = 2**30


def answer(given: Given, folder: str, root: Path = Path("/")) -> Preflight:
    """The node against the plan of a request. Raises PlanError for a wrong request and for a
    driver that does not answer."""
    here = nodes.read(folder, root)
    plan = estimate(read_options(given), brief=True)
    checks = [*_fits(plan), *_gpus(here, plan), *_host(here, plan, folder), *_network(here, plan)]
    ready = all(check.state != "failed" for check in checks)
    return Preflight(command=plan.command, host=here.host, ready=ready, checks=checks)


def _check(name: str, state: State, node: str, plan: str, remedy: str = "") -> Check:
    return Check(name=name, state=state, node=node, plan=plan, remedy=remedy)


def _fits(plan: Estimate) -> Iterator[Check]:
    memory = plan.memory
    yield _check(
        "plan",
        "ok" if memory.fits else "failed",
        f"{show(memory.capacity_bytes, 'B')} per GPU as its profile has it",
        f"{show(memory.device_bytes, 'B')}, fits with a chance of {chance_text(memory.fit_chance)}",
        "" if memory.fits else "dpplan estimate with the same options says what would fit",
    )


def _gpus(here: Node, plan: Estimate) -> Iterator[Check]:
    needed = min(plan.cluster.gpus, plan.cluster.gpus_per_node)
    title = plan.cluster.gpu_title
    if here.gpus is None:
        remedy = "install the NVIDIA driver; other GPUs are not looked at"
        yield _check("GPUs", "unknown", "no nvidia-smi", f"{needed} x {title}", remedy)
        return
    kinds = sorted({gpu.name for gpu in here.gpus})
    few = len(here.gpus) < needed
    yield _check(
        "GPUs",
        "failed" if few else "ok",
        f"{len(here.gpus)} visible" + "".join(f", {kind}" for kind in kinds),
        f"{needed} x {title}",
        "ask for whole nodes, or look at CUDA_VISIBLE_DEVICES" if few else "",
    )
    if not here.gpus:
        return
    profile = catalog.load("gpus", GpuSpec, plan.cluster.gpu)
    if kinds != [profile.torch_name]:
        yield _check(
            "kind of GPU",
            "warning",
            ", ".join(kinds),
            profile.torch_name or title,
            "plan for the GPU of this node: --gpu",
        )
    yield from _memory(here.gpus[:needed], plan)
    yield from _speed(here.gpus[:needed], profile)


def _memory(gpus: tuple[Gpu, ...], plan: Estimate) -> Iterator[Check]:
    needed = plan.memory.device_bytes
    free = min(gpu.memory_bytes - gpu.used_bytes for gpu in gpus)
    busy = [gpu.index for gpu in gpus if gpu.used_bytes > _IDLE_BYTES]
    remedy = f"another process is on GPU {', '.join(busy)}: nvidia-smi lists it" if busy else ""
    if free < needed and not busy:
        remedy = "lower --micro-batch or recompute more: dpplan estimate says what fits"
    yield _check(
        "free GPU memory",
        "failed" if free < needed else "warning" if busy else "ok",
        f"{show(free, 'B')} on the fullest GPU",
        f"{show(needed, 'B')} with context and communicators",
        remedy,
    )


def _speed(gpus: tuple[Gpu, ...], profile: GpuSpec) -> Iterator[Check]:
    limits = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    if limits:
        power = float(profile.power)
        low = min(limits) < power * (1 - _SAME)
        yield _check(
            "power limit",
            "warning" if low else "ok",
            f"{min(limits):,.0f} W" + ("" if min(limits) == max(limits) else " on the lowest GPU"),
            f"{power:,.0f} W",
            f"plan with --power-limit '{min(limits):.0f} W', or nvidia-smi -pl {power:.0f}"
            if low
            else "",
        )
    narrow = [gpu for gpu in gpus if gpu.lanes and gpu.most_lanes and gpu.lanes < gpu.most_lanes]
    if narrow:
        yield _check(
            "PCIe lanes",
            "warning",
            f"{narrow[0].lanes:.0f} on {len(narrow)} of {len(gpus)} GPUs",
            f"{narrow[0].most_lanes:.0f}",
            "reseat the card or choose another slot; transfers take longer than planned",
        )


def _host(here: Node, plan: Estimate, folder: str) -> Iterator[Check]:
    gpus = min(plan.cluster.gpus, plan.cluster.gpus_per_node)
    memory = plan.memory
    # a checkpoint is loaded before the states are offloaded, and saved beside them
    needed = gpus * max(memory.host_bytes + memory.host_saving_bytes, memory.host_loading_bytes)
    free = here.free_memory_bytes
    short = free is not None and free < needed
    yield _check(
        "host memory",
        "unknown" if free is None else "failed" if short else "ok",
        "not known" if free is None else f"{show(free, 'B')} free",
        f"{show(needed, 'B')} to load, offload and save",
        "free memory, or ask the scheduler for all of the node's (--mem=0)" if short else "",
    )
    reading = gpus * memory.host_pretrained_bytes
    if free is not None and free < reading:
        yield _check(
            "reading weights",
            "warning",
            f"{show(free, 'B')} free",
            f"{show(reading, 'B')} while {gpus} ranks read the weights that training begins with",
            "read them once per host, as cpu_ram_efficient_loading does: --weight-readers",
        )
    shared = here.shared_memory_bytes
    if shared is not None and shared < _LEAST_SHARED_BYTES:
        remedy = "start the container with --shm-size=16g or --ipc=host"
        yield _check("/dev/shm", "warning", show(shared, "B"), "data loaders and NCCL", remedy)
    written = plan.run.reliability.checkpoint_bytes
    full = here.free_disk_bytes < written
    yield _check(
        "disk",
        "failed" if full else "ok",
        f"{show(float(here.free_disk_bytes), 'B')} free in {folder}",
        f"{show(written, 'B')} per checkpoint of the whole job",
        "name a folder with room: --folder" if full else "",
    )


def _network(here: Node, plan: Estimate) -> Iterator[Check]:
    if plan.cluster.nodes == 1:
        return
    cards, rate = plan.cluster.nics_per_node, plan.cluster.nic_bytes_per_s
    ports = here.nic_bytes_per_s
    needed = f"{cards} x {show(rate, 'B/s')}"
    if not ports:
        remedy = (
            "NCCL would use TCP: load the RDMA driver, or plan with the --inter-node that it has"
        )
        yield _check("network", "warning", "no active RDMA port", needed, remedy)
        return
    slow = sum(ports) < cards * rate * (1 - _SAME)
    yield _check(
        "network",
        "warning" if slow else "ok",
        f"{len(ports)} active ports, {show(sum(ports), 'B/s')} in all",
        needed,
        f"plan with --nics-per-node {len(ports)} or --nic-bandwidth, or bring up the other ports"
        if slow
        else "",
    )
    if not here.locked_memory:
        yield _check(
            "locked memory",
            "warning",
            "limited",
            "unlimited, for RDMA",
            "ulimit -l unlimited, or PropagateResourceLimitsExcept=MEMLOCK of Slurm",
        )


def view(document: Preflight) -> View:
    """One row per check."""
    title = f"{document.host} is ready" if document.ready else f"{document.host} is not ready"
    block = Block(
        title,
        [document.command],
        header=["check", "state", "node", "plan"],
        order="as a run meets them",
    )
    block.rows = [[check.name, check.state, check.node, check.plan] for check in document.checks]
    remedies = [f"{check.name}: {check.remedy}" for check in document.checks if check.remedy]
    return View.of([block, Block("What to do", remedies)] if remedies else [block])
