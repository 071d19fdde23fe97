"""Layers per stage, the time of a pipeline whose last stage carries the LM head, and what can wait
in a backward pass."""

from __future__ import annotations

from planner.ledger import Array, formula


@formula(
    unit="s",
    equation="m slowest + idle",
    source=(
        "Narayanan et al. 2021, arXiv 2104.04473 section 2; idle time by schedule,"
        " planner/schedules"
    ),
)
def pipeline_s(slowest_s: Array, microbatches: Array, idle_s: Array) -> Array:
    """Time of m micro-batches: the slowest stage is busy but for what the schedule leaves idle
    around it."""
    return microbatches * slowest_s + idle_s


@formula(
    unit="s",
    equation="1/2 of the backward time of the GEMMs",
    source=(
        "input and weight gradient of a GEMM have the same FLOP; Qi et al. 2023 (arXiv"
        " 2401.10241) table 1 and section 3"
    ),
)
def weight_gradient_s(products_backward_s: Array) -> Array:
    """The part of backward that no other stage waits for; attention, norms and activations have no
    weights to speak of."""
    return 0.5 * products_backward_s
