"""How much bandwidth per GPU makes communication free: for the chosen layout, and where each
bandwidth gets its own layout."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from planner.estimate.machine import Machine, machine
from planner.estimate.step import StepTime, step_time
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.ledger import Array
from planner.report.bottleneck import exposed_s
from planner.report.layout import figures
from planner.search import batched
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.document import SCHEMA_VERSION, extended
from planner.specs.documents.recommend import BandwidthSweep, LinkPoint, SearchedBandwidth, Wire
from planner.specs.options import Options, refuse, rows
from planner.specs.plan import Plan
from planner.units import in_unit
from planner.verbs.requests import answer
from planner.verbs.workers import Progress

FREE = (0.01, 0.05)  # shares of the step below which communication counts as free: a choice
# bandwidths that are searched again, as multiples of the cluster's own
_TIMES = tuple(2.0**k for k in range(-3, 9))
_RANGE = (1e-3, 1e6)  # multiples between which the exact one is sought
# of the search between them: each round narrows to one of the gaps between the points
_ROUNDS, _POINTS = 6, 33
_UNLIMITED = 1e9  # times the bandwidth: what is left is latency

# what grows with the bandwidth of a wire
_WIRES: dict[str, tuple[str, ...]] = {
    "network": ("nic_per_gpu", "inter_socket"),
    "intra-node link": ("intra_bandwidth", "intra_host"),
}


def bandwidth(
    given: Mapping[str, Any], *, jobs: int = 1, progress: Progress | None = None
) -> BandwidthSweep:
    """Exposed communication of each wire against its bandwidth. Raises PlanError where no layout is
    allowed."""
    options = read_options(given)
    refuse(options, "recommend bandwidth")
    if options.gpus < 2:
        raise PlanError("--gpus", options.gpus, "has no communication; ask for two GPUs or more")
    scenario = resolve(options)
    chosen = batched.choose([scenario.plans])[0]
    if isinstance(chosen, PlanError):
        raise chosen
    if chosen is None:
        raise why_none(scenario)
    plan, table = chosen.estimates.plan, chosen.estimates.table
    nodes = plan.cluster.nodes > 1
    searched = _searched(options, plan, jobs, progress) if nodes else []
    return extended(
        BandwidthSweep,
        figures(chosen.estimates),
        schema_version=SCHEMA_VERSION,
        question="bandwidth",
        wires={
            wire: _of_wire(plan, table, wire) for wire in (_WIRES if nodes else ["intra-node link"])
        },
        searched=searched,
        searched_free={f"{share:g}": _first_free(searched, share) for share in FREE}
        if searched
        else None,
        notes=list(scenario.assumptions),
        doubts=list(scenario.doubts),
    )


def _searched(
    options: Options, plan: Plan, jobs: int, progress: Progress | None
) -> list[SearchedBandwidth]:
    """Each bandwidth between nodes with its own layout."""
    per_card, per_gpu = float(plan.cluster.nic_bandwidth), float(machine(plan).nic_per_gpu)
    most = rows(Options)["nic_bandwidth"].says.most or _UNLIMITED  # that a request may state
    tried = [times for times in _TIMES if times * per_card <= most]
    requests = [
        options.changed(
            nic_bandwidth=f"{in_unit(per_card * times, 'Gbit/s'):.6g} Gbit/s",
            global_batch=plan.training.global_batch,
        )
        for times in tried
    ]
    points = answer(requests, jobs=jobs, progress=progress)
    return [
        extended(
            SearchedBandwidth,
            point.report,
            times=times,
            bytes_per_s_per_gpu=times * per_gpu,
            fits=point.fits,
            step_seconds=point.report.step.seconds,
            exposed_frac=point.report.step.exposed["network"] / point.report.step.seconds,
            command=point.command,
            pick=point.pick,
        )
        for times, point in zip(tried, points, strict=True)
        if point.report is not None
    ]


def _first_free(searched: Sequence[SearchedBandwidth], share: float) -> float | None:
    """Least bandwidth tried from which on the fastest layout's exposed traffic between nodes stays
    below a share of its step."""
    free = list(takewhile(lambda row: row.exposed_frac < share, reversed(searched)))
    return free[-1].bytes_per_s_per_gpu if free else None


def scaled(numbers: Machine, wire: str, times: Array) -> Machine:
    """The machine with one wire this many times as fast; the others stay."""
    return dataclasses.replace(
        numbers, **{name: float(getattr(numbers, name)) * times for name in _WIRES[wire]}
    )


def exposed_share(plan: Plan, table: Columns, wire: str, times: Array) -> tuple[Array, StepTime]:
    """Share of the step that waits for a wire, of one layout at this many times the wire's
    bandwidth."""
    many_rows = table.each(lambda column: np.repeat(column, len(times)))
    time = step_time(plan, many_rows, scaled(machine(plan), wire, np.asarray(times, float)))
    return exposed_s(time)[wire] / time.seconds, time


def _of_wire(plan: Plan, table: Columns, wire: str) -> Wire:
    """One wire: what it exposes now, without a limit, and the bandwidth at which it is free."""
    rate = float(getattr(machine(plan), _WIRES[wire][0]))
    shares, time = exposed_share(plan, table, wire, np.array([1.0, _UNLIMITED, *_TIMES]))
    (now, unlimited, *exposed), (now_s, unlimited_s, *seconds) = map(tuple, (shares, time.seconds))
    return Wire(
        bytes_per_s_per_gpu=rate,
        exposed_frac=float(now),
        exposed_s=float(now * now_s),
        latency_frac=float(unlimited),
        step_unlimited_s=float(unlimited_s),
        free=_needed(plan, table, wire, rate),
        curve=[
            LinkPoint(times, times * rate, float(step_s), float(share))
            for times, step_s, share in zip(_TIMES, seconds, exposed, strict=True)
        ],
    )


def _needed(plan: Plan, table: Columns, wire: str, rate: float) -> dict[str, float | None]:
    """For each share that counts as free, the least bandwidth per GPU at which one layout waits
    less than that share of its step for a wire; None: no bandwidth is enough.

    0 where it never waits so long. More bandwidth never exposes more, so each round keeps one gap
    between its points.
    """
    least: dict[float, float | None] = {}
    gaps = dict.fromkeys(FREE, _RANGE)
    for _ in range(_ROUNDS):
        points = {share: np.geomspace(low, high, _POINTS) for share, (low, high) in gaps.items()}
        if not points:
            break
        exposed = exposed_share(plan, table, wire, np.concatenate([*points.values()]))[0]
        for (share, times), mine in zip(
            points.items(), np.split(exposed, len(points)), strict=True
        ):
            free = mine < share
            at = int(free.argmax())
            if free[-1] and at:
                gaps[share] = float(times[at - 1]), float(times[at])
                continue
            low, _ = gaps.pop(share)
            least[share] = None if not free[-1] else 0.0 if low == _RANGE[0] else low * rate
    least |= {share: math.sqrt(low * high) * rate for share, (low, high) in gaps.items()}
    return {f"{share:g}": least[share] for share in FREE}
