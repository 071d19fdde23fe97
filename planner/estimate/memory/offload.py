"""Activations that lie in host memory between forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate import sync
from planner.estimate.machine import Machine
from planner.estimate.memory.activations import Kept, kept
from planner.estimate.stages import repeated, repeated_share, stage_split
from planner.estimate.states import RankParameters
from planner.formulas import memory, overlap
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.names import SHARDS_PARAMETERS
from planner.specs.plan import Plan

# layers on the GPU: with copies on streams of their own the one that computes and the one being
# copied; else a layer at most while its tensors leave one after the other
_AHEAD, _IN_TURN = 2.0, 1.0


def moved(
    plan: Plan, c: Columns, activations: Kept, alive_bytes: Array, weight_bytes: Array
) -> tuple[Array, Array]:
    """(bytes that are not on the GPU, bytes in host memory) of `alive_bytes` that layers keep; zero
    for rows without.

    Copies on streams of their own leave the last layers where they are, since backward begins with
    them. Hooks that copy in turn (torch.autograd.graph.save_on_cpu) move every tensor that autograd
    saves, weights among them (`weight_bytes`) where no checkpoint runs the layer again, and the GPU
    holds the activations of one layer besides.
    """
    checkpoints = plan.stack.activations.host_checkpoints & (c.zero >= SHARDS_PARAMETERS)
    checkpoints = checkpoints & c.is_recompute("full", "group")
    offloaded = c.offloads("activations") | checkpoints
    if not np.any(offloaded):
        return 0.0 * alive_bytes, 0.0 * alive_bytes
    window = _AHEAD if plan.stack.overlap.offload_copies else _IN_TURN
    leaving = activations.leaving * alive_bytes
    leaving = leaving - memory.resident_bytes(
        leaving, activations.leaving * activations.largest, window
    )
    saved = activations.leaving * alive_bytes + weight_bytes * (1 - repeated_share(plan, c))
    host = leaving if plan.stack.overlap.offload_copies else saved
    host = np.where(checkpoints, leaving / c.tp, host)
    return np.where(offloaded, leaving, 0.0), np.where(offloaded, host, 0.0)


@dataclass(frozen=True)
class Copies:
    """Seconds per layer and micro-batch."""

    bytes: Array  # of a mean layer, one way
    seconds: Array  # of one copy, out or back
    forward: Array  # what copying out adds
    backward: Array  # what copying back adds


def copies(
    plan: Plan,
    m: Machine,
    c: Columns,
    p: RankParameters,
    layer_s: tuple[Array, Array],
    shared_s: tuple[Array, Array],
) -> Copies:
    """Copies of a mean layer of the first stage beside a layer's forward and backward. Their bytes
    are those that `moved` finds in host memory.

    shared_s: what other traffic takes of the link beside the forward, and beside the backward.
    """
    stage = 0.0 * c.pp
    split = stage_split(plan, c, stage)
    activations = kept(plan, c, split, repeated(plan, c, stage))
    weights = sync.compute_bytes(plan) * p.per_layer() * split.layers
    leaving = moved(plan, c, activations, activations.stage, weights)[1] / split.layers
    seconds = overlap.host_copy_s(leaving, m.host_copy_bandwidth)
    if not plan.stack.overlap.offload_copies or plan.training.overlap is False:
        return Copies(leaving, seconds, seconds, seconds)
    out, back = (
        overlap.offload_exposed_s(whole, seconds, shared)
        for whole, shared in zip(layer_s, shared_s, strict=True)
    )
    return Copies(leaving, seconds, out, back)
