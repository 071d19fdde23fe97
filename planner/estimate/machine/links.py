"""Numbers of links: between GPUs of a node, between nodes, to host memory and to NVMe drives."""

from __future__ import annotations

import math
from typing import Any

from planner.ledger import Sourced
from planner.specs.plan import Plan

_TIER = Sourced(
    1e-6,
    "s",
    "assumed",
    "two more switches and the cable between rows: 0.3 us each of InfiniBand, more of Ethernet",
    "2026-11",
)
_NON_BLOCKING = Sourced(
    1.0, "1", "assumed", "no oversubscription: a fabric whose islands are not stated", "2026-11"
)
_NO_LIMIT = 1e15  # B/s; more than any link carries, and a number that a report can print


def link_numbers(plan: Plan) -> dict[str, Any]:
    """Numbers by field of Machine."""
    cluster = plan.cluster
    intra, inter, nic = cluster.intra_node, cluster.inter_node, cluster.nic_bandwidth
    return {
        "intra_bandwidth": cluster.gpu.links.get(intra.id, intra.bandwidth),
        "intra_base": intra.base_latency
        or Sourced(0.0, "s", "assumed", "no table; the latency of the steps holds it"),
        "intra_latency": intra.latency,
        "intra_all_reduce_start": intra.all_reduce_start or 0.0,
        "intra_reduce_scatter_start": intra.reduce_scatter_start or 0.0,
        "intra_ramp": intra.ramp,
        "intra_mesh": intra.mesh
        or Sourced(0.0, "1", "assumed", "a switch or a bus: every group has the whole link"),
        "intra_peers": _peers(plan),
        "intra_host": _bridge_bandwidth(plan),
        "intra_all_reduce": intra.all_reduce_frac,
        "intra_all_gather": intra.all_gather_frac,
        "intra_reduce_scatter": intra.reduce_scatter_frac,
        "intra_send": intra.send_recv_frac,
        "intra_two_rank": intra.two_rank_frac
        or Sourced(1.0, "1", "assumed", "two ranks use all paths"),
        "intra_switch": intra.switch_all_reduce_frac or intra.all_reduce_frac,
        "intra_switch_setup": intra.switch_latency
        or Sourced(0.0, "s", "assumed", "no reduction in a switch, or no table of one"),
        "intra_switch_ranks": float(intra.switch_minimum_ranks or math.inf),
        "nic_per_gpu": _like(nic, nic * cluster.nics_per_node / cluster.gpus_per_host),
        "inter_hop": inter.latency,
        "inter_tier": _TIER,
        "oversubscription": cluster.oversubscription or _NON_BLOCKING,
        "inter_all_reduce": inter.all_reduce_frac,
        "inter_all_gather": inter.all_gather_frac,
        "inter_reduce_scatter": inter.reduce_scatter_frac,
        "inter_send": inter.send_recv_frac,
        "inter_socket": inter.socket_bandwidth
        or Sourced(
            _NO_LIMIT, "B/s", "assumed", "cards reach GPU memory themselves, without sockets"
        ),
        "network_frac": plan.stack.network_frac,
        "host_bandwidth": _host_bandwidth(plan),
        "host_copy_bandwidth": _host_copy_bandwidth(plan),
        **_drives(plan),
    }


def _like(origin: Sourced, value: float) -> Sourced:
    """A bandwidth worked out from another one, whose source it has."""
    return Sourced(value, "B/s", origin.kind, origin.source, origin.date)


def _peers(plan: Plan) -> float:
    """Other GPUs that the links of a GPU lead to. A part of a server gets that part's links, not
    all of them."""
    here = plan.cluster.gpus_per_node
    joined = plan.cluster.intra_node.mesh_ranks or here
    return float(max(here if plan.cluster.nodes > 1 else joined, 2) - 1)


def _bridge_bandwidth(plan: Plan) -> Sourced:
    """A GPU's share of the bridges of its host: groups run at the same time, so all GPUs of the
    host share them."""
    whole = plan.cluster.intra_node.host_bandwidth
    if whole is None:
        source = "copies between GPUs do not pass the bridges of the host"
        return Sourced(_NO_LIMIT, "B/s", "assumed", source)
    return _like(whole, whole / plan.cluster.gpus_per_host)


def _host_bandwidth(plan: Plan) -> Sourced:
    link, measured = plan.cluster.host_link, plan.cluster.host.copy_bandwidth
    if measured is not None:
        return measured
    return _like(link.bandwidth, link.bandwidth * link.send_recv_frac)


def _host_copy_bandwidth(plan: Plan) -> Sourced:
    """The link to host memory while all GPUs of the host copy: no more than a share of what its
    bridges carry."""
    alone, bridges = _host_bandwidth(plan), plan.cluster.host_link.host_bandwidth
    if bridges is None or plan.cluster.host.copy_bandwidth is not None:
        return alone
    share = _like(bridges, bridges / plan.cluster.gpus_per_host)
    return alone if alone <= share else share


def _drives(plan: Plan) -> dict[str, Sourced]:
    """A GPU's share of the drives of its node, which all GPUs of the node read and write at the
    same time."""
    nvme, sharing = plan.cluster.nvme, plan.cluster.gpus_per_host
    if nvme is None:
        return {}
    return {
        "nvme_read": _like(nvme.read, nvme.read / sharing),
        "nvme_write": _like(nvme.write, nvme.write / sharing),
    }
