"""Adapters merged into their base when they are trained: on one GPU, into weights of 16 bit, also
where the base was kept in 4 or 8 bit, whose codes would round what was learned (PEFT warns)."""

from __future__ import annotations

import numpy as np

from planner.estimate.layer.gemm import gemm_s
from planner.estimate.layer.operators import copy_s
from planner.estimate.machine import machine
from planner.estimate.state_types import state_of
from planner.estimate.trained import kind_adapters, trained_count
from planner.formulas import merging
from planner.formulas.params import parameter_count
from planner.ledger import first
from planner.specs.documents.estimate import Merge
from planner.specs.layers import layers_of
from planner.specs.plan import Plan

_WEIGHT = 2.0  # bytes of a merged weight, as checkpoints are published


def merged(plan: Plan) -> Merge | None:
    """Time and memory of merging adapters, and size of the result; None without adapters."""
    spec = plan.training.adapter
    if spec is None:
        return None
    m, layers, each = machine(plan), layers_of(plan.model), state_of(plan).parameter
    elements, seconds, largest = 0.0, 0.0, 0.0
    for kind, count in zip(layers.kinds, layers.counts, strict=True):
        for matrix in kind_adapters(plan, kind):
            k, n, rank = (
                np.array([float(x)]) for x in (matrix.k, matrix.n, matrix.sides * spec.rank)
            )
            elements += count * matrix.copies * matrix.k * matrix.n
            seconds += count * matrix.copies * first(gemm_s(plan, m, n, k, rank))
            largest = max(largest, float(matrix.copies * matrix.k * matrix.n))
    moved = merging.merged_traffic_bytes(np.array([elements]), each, _WEIGHT)
    every = float(parameter_count(plan.model))
    return Merge(
        seconds=seconds + first(copy_s(m, moved)),
        device_bytes=float(merging.merging_bytes(every, largest, each, _WEIGHT)),
        adapter_bytes=each * trained_count(plan) / spec.resident,
        merged_bytes=_WEIGHT * every,
    )
