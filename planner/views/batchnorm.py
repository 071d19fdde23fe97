"""Blocks of text for `dpplan batchnorm`."""

from __future__ import annotations

from planner.specs.documents.batchnorm import BatchNorm
from planner.units import show
from planner.views.view import Block


def batch_norm_blocks(r: BatchNorm) -> list[Block]:
    """Synchronized batch norm of one training step."""
    passes = (("forward", "all_gather", r.forward), ("backward", "all_reduce", r.backward))
    rows = [
        [way, operation, str(r.layers), show(one.bytes, "traffic"), show(one.seconds, "s")]
        for way, operation, one in passes
    ]
    step = ["step", "", str(2 * r.layers), show(r.bytes, "traffic"), show(r.seconds, "s")]
    return [
        Block(
            f"Synchronized batch norm over {r.cluster.gpus} x {r.cluster.gpu}: {r.cluster.nodes}"
            f" node{'s' * (r.cluster.nodes > 1)}",
            [
                f"{r.layers} layers, {r.channels:,} channels in all; every layer waits for its"
                " statistics"
            ],
            ["pass", "operation", ">calls", ">bytes per rank", ">time"],
            [*rows, step],
            order="as they run",
        )
    ]
