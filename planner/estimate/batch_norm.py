"""Synchronised batch norm: what its statistics cost between ranks, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate
from planner.estimate.machine import Machine
from planner.formulas import stragglers
from planner.specs.cluster import Tiers


@dataclass(frozen=True)
class Traffic:
    """All layers of one training step."""

    layers: int
    channels: int
    forward_bytes: float  # that a rank gives
    backward_bytes: float
    forward_s: float  # nothing hides them: the layer waits for its statistics
    backward_s: float


def traffic(
    m: Machine, channels: Sequence[int], ranks: int, tiers: Tiers, element_bytes: float
) -> Traffic:
    """Bytes and seconds of the all-gathers of a forward pass and the all-reduces of a backward
    pass."""
    widths = np.array(channels, dtype=float)
    group = communicate.place(np.full(len(widths), float(ranks)), np.ones(len(widths)), tiers)
    forward = stragglers.batch_norm_forward_bytes(widths, element_bytes)
    backward = stragglers.batch_norm_backward_bytes(widths, element_bytes)
    gathered = communicate.all_gather_s(m, ranks * forward, group)
    reduced = communicate.all_reduce_s(m, backward, group)
    return Traffic(
        len(channels),
        int(widths.sum()),
        float(forward.sum()),
        float(backward.sum()),
        float(gathered.sum()),
        float(reduced.sum()),
    )
