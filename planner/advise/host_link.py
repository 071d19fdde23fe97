"""Offload or recompute: what the link to host memory makes of each, for the layout that was chosen
and for other links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.advise.weigh import Base, allowed
from planner.estimate import Estimates, evaluate
from planner.estimate.machine import machine
from planner.estimate.step import step_time
from planner.inputs import catalog
from planner.ledger import Array
from planner.search.pick import pick
from planner.specs.columns import Columns
from planner.specs.documents.advice import Choice, HostLink, LayerCopy, OffloadChoices
from planner.specs.hardware import LinkSpec
from planner.specs.layout import Layout
from planner.specs.options import command_line
from planner.specs.plan import Plan

LINKS = ("pcie3", "pcie4", "pcie5", "nvlink-c2c")
_AWAY = ("activations", "optimizer", "params")


def with_host_link(plan: Plan, link: LinkSpec) -> Plan:
    """The plan with another link between GPU and host memory."""
    return plan.model_copy(update={"cluster": plan.cluster.model_copy(update={"host_link": link})})


def seconds_over(
    plan: Plan, table: Columns, host_bytes_per_s: Array, copy_bytes_per_s: Array
) -> Array:
    """Step times with these speeds of the host link: for states, and for activations that all GPUs
    of a host copy at once."""
    numbers = replace(
        machine(plan), host_bandwidth=host_bytes_per_s, host_copy_bandwidth=copy_bytes_per_s
    )
    return step_time(plan, table, numbers).seconds


def waiting_s(estimates: Estimates, row: int) -> float:
    """Seconds of the step that the host link adds: against the same plan over a link that takes no
    time."""
    table = estimates.table.pick([row])
    without = seconds_over(estimates.plan, table, np.inf, np.inf)
    return float(estimates.time.seconds[row] - without[0])


def recompute_s(plan: Plan, layout: Layout) -> float | None:
    """Seconds that recomputing everything adds to this layout without recompute or offload; None
    where the stack cannot."""
    none = layout.model_copy(update={"recompute": "none", "offload": "none"})
    table, kept = allowed(plan, [none, none.model_copy(update={"recompute": "full"})])
    if len(kept) < 2:
        return None
    seconds = step_time(plan, table).seconds
    return max(
        0.0, float(seconds[1] - seconds[0])
    )  # of launch-bound layers nothing but rounding is left


def offload_or_recompute(base: Base) -> OffloadChoices | None:
    """Recompute against offloading over this and other host links, all evaluated; None where the
    stack can do neither.

    Everything is compared with the chosen layout with nothing recomputed and nothing offloaded.
    """
    plan = base.plan
    tries = [{"recompute": "none", "offload": "none"}, {"recompute": "full", "offload": "none"}]
    tries += [{"recompute": "none", "offload": kind} for kind in _AWAY]
    whole = [base.layout.model_copy(update=update) for update in tries]
    table, kept = allowed(plan, whole)
    if len(kept) < 2 or kept[0] != 0:
        return None
    own_link = plan.cluster.host_link
    links = [own_link] + [
        link
        for name in LINKS
        if (link := catalog.load("networks", LinkSpec, name)).id != own_link.id
    ]
    plans = [with_host_link(plan, link) for link in links]
    numbers = [machine(variant) for variant in plans]
    estimates = evaluate(plan, table)
    times = [
        seconds_over(variant, table, n.host_bandwidth, n.host_copy_bandwidth)
        for variant, n in zip(plans, numbers, strict=True)
    ]
    free = seconds_over(plan, table, np.inf, np.inf)
    need, start = estimates.memory.device, float(estimates.time.seconds[0])

    def line(row: int, seconds: Array, link: LinkSpec | None) -> Choice:
        layout = whole[kept[row]]
        options = pick(base.options, plan, layout)
        if link is not None and link.id != own_link.id:
            options = options.changed(host_link=link.id)
        return Choice(
            what="recompute full" if link is None else f"offload {layout.offload}",
            link=None if link is None else link.id,
            step_seconds=float(seconds[row]),
            step_change_s=float(seconds[row]) - start,
            transfer_s=None if link is None else float(seconds[row] - free[row]),
            bytes_saved=float(need[0] - need[row]),
            fits=bool(estimates.fits[row]),
            command=command_line(options),
        )

    rows = [row for row in range(1, len(kept)) if whole[kept[row]].offload == "none"]
    lines = [line(row, times[0], None) for row in rows]
    away = [row for row in range(1, len(kept)) if whole[kept[row]].offload != "none"]
    lines += [
        line(row, seconds, link) for row in away for link, seconds in zip(links, times, strict=True)
    ]
    return OffloadChoices(
        link=own_link.id,
        links=[
            HostLink(link.id, link.title, float(n.host_bandwidth), float(n.host_copy_bandwidth))
            for link, n in zip(links, numbers, strict=True)
        ],
        layer=_per_layer(estimates, [whole[k] for k in kept], numbers[0].host_copy_bandwidth),
        choices=lines,
    )


def _per_layer(
    estimates: Estimates, layouts: list[Layout], copy_bytes_per_s: Array
) -> LayerCopy | None:
    """One mean layer and micro-batch: bytes that leave, the seconds of a copy, and of running the
    layer forward again."""
    copies = [t for t in estimates.time.traffic if t.group == "host"]
    row = next((i for i, layout in enumerate(layouts) if layout.offload == "activations"), None)
    again = next((i for i, layout in enumerate(layouts) if layout.recompute == "full"), None)
    if row is None or again is None or not copies or float(copies[0].count[row]) == 0:
        return None
    passes = float(copies[0].count[row]) / 2
    size = float(copies[0].bytes[row])
    return LayerCopy(
        bytes=size,
        transfer_s=size / float(copy_bytes_per_s),
        recompute_s=float(estimates.time.components["recompute"][again]) / passes,
    )
