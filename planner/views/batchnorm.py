"""View of `dpplan batchnorm`."""

from __future__ import annotations

from planner.specs.documents.batchnorm import BatchNorm
from planner.views.view import Block, View


def view(r: BatchNorm) -> View:
    """Synchronized batch norm of one training step."""
    passes = (("forward", "all_gather", r.forward), ("backward", "all_reduce", r.backward))
    nodes = r.cluster.nodes
    return View(
        f"Synchronized batch norm over {r.cluster.gpus} x {r.cluster.gpu}: {nodes}"
        f" node{'s' * (nodes > 1)}",
        f"{r.layers} layers, {r.channels:,} channels in all; every layer waits for its statistics",
        parts=(
            Block(
                "Calls of a step",
                header=["pass", "operation", ">calls", "bytes per rank|traffic", "time|s"],
                rows=[
                    *(
                        [way, op, str(r.layers), seconds.bytes, seconds.seconds]
                        for way, op, seconds in passes
                    ),
                    ["step", "", str(2 * r.layers), r.bytes, r.seconds],
                ],
                order="as they run",
                lead=True,
            ),
        ),
    )
