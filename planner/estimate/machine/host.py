"""Host memory traffic of an offloaded optimizer's update."""

from __future__ import annotations

from planner.formulas import offload
from planner.ledger import Kind, Sourced
from planner.specs.plan import Plan

# share of what all cores stream that an update reaches, threads and memory of several sockets mixed
UPDATE_FRAC = 0.62


def threads(plan: Plan) -> int:
    """Threads of all ranks of a host that update: the number in the request, else the launcher's
    default of the stack, at most the cores."""
    cluster = plan.cluster
    ranks = cluster.gpus_per_host
    if cluster.host_threads is not None:
        return min(ranks * cluster.host_threads, cluster.host.cores)
    alone = ranks == 1 or plan.stack.host_threads == "all"
    return cluster.host.cores if alone else min(ranks, cluster.host.cores)


def update_bandwidth(plan: Plan) -> Sourced:
    """Bytes per second of all ranks of a host together, with where the number comes from."""
    host, used = plan.cluster.host, threads(plan)
    rate = offload.update_bandwidth_bytes_per_s(
        float(used),
        float(host.core_bandwidth),
        float(host.memory_bandwidth) * float(host.stream_frac),
        UPDATE_FRAC if host.update_frac is None else float(host.update_frac),
    )
    known = host.memory_bandwidth
    source = f"{used} of {host.cores} cores of {host.title}: {known.source}"
    kind: Kind = "assumed" if host.update_frac is None else "measured"
    return Sourced(float(rate), "B/s", kind, source, known.date)


def staged_bandwidth(plan: Plan) -> Sourced:
    """Bytes per second from pageable host memory to one GPU: measured, else half a core's copy
    rate, since it reads pages and writes the driver's staging buffer."""
    host = plan.cluster.host
    if host.staged_bandwidth is not None:
        return host.staged_bandwidth
    core = host.core_bandwidth
    return Sourced(core / 2, "B/s", core.kind, core.source, core.date)
