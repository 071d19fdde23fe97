"""Limits on processor time that hold on slow and busy machines."""

from __future__ import annotations

import time

_LOOPS = 2_000_000
_ORDINARY_S = 0.04  # of _LOOPS additions by CPython 3.11 on a fast server core


def ordinary_seconds(spent_s: float, limit_s: float) -> float:
    """Processor time as an ordinary machine would have spent it. Only a time beyond the limit is
    worth measuring this machine for; a faster one is taken for ordinary."""
    if spent_s < limit_s:
        return spent_s
    started, added = time.process_time(), 0
    for number in range(_LOOPS):
        added += number
    return spent_s / max((time.process_time() - started) / _ORDINARY_S, 1.0)
