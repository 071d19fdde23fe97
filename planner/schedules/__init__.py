"""Pipeline schedules: bubble and live micro-batches in closed form, one file per schedule.

Each module offers NAME, `bubble_frac(v)` - the share of the fill-and-drain time sum(stages) - slowest that stays idle - and
`live_chunks(stage, pp, v, m)` - forward chunks (layers / (pp v) each) whose activations a stage holds at its peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from planner.ledger import Array
from planner.schedules import dualpipe, gpipe, interleaved, one_f_one_b, zero_bubble_1p, zero_bubble_2p

BY_NAME: dict[str, ModuleType] = {
    module.NAME: module for module in (one_f_one_b, gpipe, interleaved, zero_bubble_1p, zero_bubble_2p, dualpipe)
}


def bubble_frac(names: Sequence[str], code: Array, vpp: Array) -> Array:
    """Bubble share per row for schedule codes that index `names`."""
    out = np.ones_like(code)
    for index, name in enumerate(names):
        if np.any(rows := code == index):
            out = np.where(rows, BY_NAME[name].bubble_frac(vpp), out)
    return out


def live_chunks(names: Sequence[str], code: Array, stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """Live forward chunks per row for schedule codes that index `names`."""
    out = np.ones_like(code)
    for index, name in enumerate(names):
        if np.any(rows := code == index):
            out = np.where(rows, BY_NAME[name].live_chunks(stage, pp, vpp, microbatches), out)
    return out
