"""The largest component of a step, and its share."""

from __future__ import annotations

import numpy as np

from planner.estimate.step import StepTime
from planner.ledger import Ledger, first
from planner.specs.components import COMMUNICATION, WIRES, class_of


def exposed_s(time: StepTime) -> Ledger:
    """Seconds of communication that add to the step by wire: between nodes (`network`) and inside
    one.

    A component's seconds go to the wires as the exposed seconds of its traffic do.
    """
    between, inside = (0.0 * time.seconds for _ in WIRES)
    for name, leaf in time.components.items():
        if class_of(name) != COMMUNICATION:
            continue
        found = [
            (t, (t.count > 0) * 1.0, np.minimum(t.exposed, t.seconds))
            for t in time.traffic
            if t.component == name
        ]
        exposed, used = sum(x for _, _, x in found), np.maximum(sum(n for _, n, _ in found), 1.0)
        for t, runs, x in found:
            part = leaf * np.where(
                exposed > 0, x / np.where(exposed > 0, exposed, 1.0), runs / used
            )
            between = between + part * t.across_nodes
            inside = inside + part * (1 - t.across_nodes)
    return dict(zip(WIRES, (between, inside), strict=True))


def bottleneck(time: StepTime, exposed: Ledger | None = None) -> tuple[str, float]:
    """(what takes most of a step of one layout, its share of the step); a name of BOTTLENECKS.

    exposed: `exposed_s`, where known.
    """
    seconds: dict[str, float] = {}
    for name, leaf in time.components.items():
        if (kind := class_of(name)) != COMMUNICATION:
            seconds[kind] = seconds.get(kind, 0.0) + first(leaf)
    for wire, leaf in (exposed or exposed_s(time)).items():
        seconds[wire] = first(leaf)
    most = max(seconds, key=lambda name: seconds[name])
    return most, seconds[most] / first(time.seconds)
