"""Phases of a training step, and bytes of a leaf of memory through them."""

from __future__ import annotations

from typing import NamedTuple

from planner.ledger import Array

PHASES = (
    "load",
    "forward",
    "loss",
    "backward",
    "end of backward",
    "gradient synchronisation",
    "optimizer step",
)


class Phased(NamedTuple):
    """Bytes of a leaf at the fullest moment of every phase of PHASES."""

    load: Array = 0.0
    forward: Array = 0.0
    loss: Array = 0.0
    backward: Array = 0.0
    end: Array = 0.0  # of backward
    synchronisation: Array = 0.0
    step: Array = 0.0


def throughout(size: Array) -> Phased:
    """A size that is allocated in all phases."""
    return Phased(*(size for _ in PHASES))


def between_updates(size: Array) -> Phased:
    """A size from the first forward pass until the optimizer begins."""
    return Phased(forward=size, loss=size, backward=size, end=size, synchronisation=size)


def in_backward(size: Array) -> Phased:
    """A size that is alive while layers are in backward."""
    return Phased(backward=size, end=size)
