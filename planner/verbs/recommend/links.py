"""How much bandwidth per GPU makes communication free: for the chosen layout, and where each
bandwidth gets its own layout."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.estimate.machine import Machine, machine
from planner.estimate.step import StepTime, step_time
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.ledger import Array
from planner.report.bottleneck import exposed_s
from planner.report.layout import SCHEMA_VERSION, Report, figures
from planner.search import many
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.options import refuse
from planner.specs.plan import Plan
from planner.units import in_unit
from planner.verbs.requests import Progress, answer, document

FREE = (0.01, 0.05)  # shares of the step below which communication counts as free
_TIMES = tuple(
    2.0**k for k in range(-3, 9)
)  # bandwidths that are searched again, as multiples of the cluster's own
_RANGE = (1e-3, 1e6)  # multiples between which the exact one is sought
_ROUNDS, _POINTS = (
    6,
    33,
)  # of the search between them: each round narrows to one of the gaps between the points
_UNLIMITED = 1e9  # times the bandwidth: what is left is latency

# what grows with the bandwidth of a wire
_WIRES: dict[str, tuple[str, ...]] = {
    "network": ("nic_per_gpu", "inter_socket"),
    "intra-node link": ("intra_bandwidth", "intra_host"),
}


def bandwidth(
    given: Mapping[str, Any], *, jobs: int = 1, progress: Progress | None = None
) -> Report:
    """Exposed communication of each wire against its bandwidth. Raises PlanError where no layout is
    allowed."""
    options = read_options(given)
    refuse(options, "recommend bandwidth")
    if options.gpus < 2:
        raise PlanError("--gpus", options.gpus, "has no communication; ask for two GPUs or more")
    scenario = resolve(options)
    chosen = many.choose([scenario.plans])[0]
    if isinstance(chosen, PlanError):
        raise chosen
    if chosen is None:
        raise why_none(scenario)
    plan, table = chosen.estimates.plan, chosen.estimates.table
    cluster = plan.cluster
    wires = {}
    for wire in _WIRES if cluster.nodes > 1 else ("intra-node link",):
        wires[wire] = _of_wire(plan, table, wire)
    requests = []
    if cluster.nodes > 1:
        per_card = float(cluster.nic_bandwidth)
        requests = [
            options.changed(
                nic_bandwidth=f"{in_unit(per_card * times, 'Gbit/s'):.6g} Gbit/s",
                global_batch=plan.training.global_batch,
            )
            for times in _TIMES
        ]
    searched = []
    for times, point in zip(_TIMES, answer(requests, jobs=jobs, progress=progress), strict=False):
        found = document(point)
        if point.report is not None:
            step = found["step"]
            searched.append(
                {
                    "times": times,
                    "bytes_per_s_per_gpu": times * float(machine(plan).nic_per_gpu),
                    "fits": point.fits,
                    "step_seconds": step["seconds"],
                    "exposed_frac": step["exposed"]["network"] / step["seconds"],
                    "layout": found["layout"],
                    "stack": found["stack"],
                    "command": found["command"],
                }
            )
    return {
        "schema_version": SCHEMA_VERSION,
        "question": "bandwidth",
        **{
            key: value
            for key, value in figures(chosen.estimates, scenario.assumptions).items()
            if key not in ("assumptions",)
        },
        "wires": wires,
        "searched": searched,
        "searched_free": {f"{share:g}": _first_free(searched, share) for share in FREE}
        if searched
        else None,
        "notes": list(scenario.assumptions),
    }


def _first_free(searched: list[Report], share: float) -> float | None:
    """Least bandwidth tried from which on the fastest layout's exposed traffic between nodes stays
    below a share of its step."""
    least = None
    for one in reversed(searched):
        if one["exposed_frac"] >= share:
            break
        least = one["bytes_per_s_per_gpu"]
    return least


def scaled(numbers: Machine, wire: str, times: Array) -> Machine:
    """The machine with one wire so many times as fast; the others stay."""
    return dataclasses.replace(
        numbers, **{name: float(getattr(numbers, name)) * times for name in _WIRES[wire]}
    )


def exposed_share(plan: Plan, table: Columns, wire: str, times: Array) -> tuple[Array, StepTime]:
    """Share of the step that waits for a wire, of one layout at so many times the wire's
    bandwidth."""
    many_rows = table.each(lambda column: np.repeat(column, len(times)))
    time = step_time(plan, many_rows, scaled(machine(plan), wire, np.asarray(times, float)))
    return exposed_s(time)[wire] / time.seconds, time


def _of_wire(plan: Plan, table: Columns, wire: str) -> Report:
    """One wire: what it exposes now, without a limit, and the bandwidth at which it is free."""
    own = float(getattr(machine(plan), _WIRES[wire][0]))
    now, time = exposed_share(plan, table, wire, np.array([1.0, _UNLIMITED, *_TIMES]))
    return {
        "bytes_per_s_per_gpu": own,
        "exposed_frac": float(now[0]),
        "exposed_s": float(now[0] * time.seconds[0]),
        "latency_frac": float(now[1]),
        "step_unlimited_s": float(time.seconds[1]),
        "free": {f"{share:g}": _needed(plan, table, wire, share, own) for share in FREE},
        "curve": [
            {
                "times": times,
                "bytes_per_s_per_gpu": times * own,
                "step_seconds": float(s),
                "exposed_frac": float(e),
            }
            for times, s, e in zip(_TIMES, time.seconds[2:], now[2:], strict=True)
        ],
    }


def _needed(plan: Plan, table: Columns, wire: str, share: float, own: float) -> float | None:
    """Least bandwidth per GPU at which one layout waits less than a share of its step for a wire;
    None: no bandwidth is enough.

    0 where it never waits so long. More bandwidth never exposes more, so each round keeps one gap
    between its points.
    """
    low, high = _RANGE
    for _ in range(_ROUNDS):
        times = np.geomspace(low, high, _POINTS)
        free = exposed_share(plan, table, wire, times)[0] < share
        if not free[-1]:
            return None
        if free[0]:
            return 0.0 if low == _RANGE[0] else low * own
        at = int(free.argmax())
        low, high = float(times[at - 1]), float(times[at])
    return math.sqrt(low * high) * own
