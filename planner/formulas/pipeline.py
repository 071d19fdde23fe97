"""Layers per stage, the time of a pipeline whose last stage carries the LM head, and what can wait in a backward pass."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="layers",
    equation="k minimising max(k t_layer, (L - (p-1) k) t_layer + t_head)",
    source="nanotron and Hagemann 2023 place layers by their cost: 10.4 -> 6.6 % on those runs",
)
def balanced_layers(layers: Array, stages: Array, layer_s: Array, head_s: Array) -> Array:
    """Layers of every stage but the last, when the last one also computes the head."""
    ideal = (layers * layer_s + head_s) / (stages * layer_s)

    def slowest(k: Array) -> Array:  # with more layers per stage than needed, the last stages keep none but the head
        return np.maximum(k, np.maximum(layers - (stages - 1) * k, 0.0) + head_s / layer_s)

    most = np.ceil(layers / np.maximum(stages - 1, 1))  # beyond it the head alone sets the pace, more layers only cost memory
    high = np.clip(np.ceil(ideal - 1e-9), 1.0, most)
    low = np.clip(np.floor(ideal), 1.0, most)
    return np.where(stages > 1, np.where(slowest(high) < slowest(low), high, low), layers)


@formula(
    unit="s",
    equation="m slowest + idle",
    source="Narayanan et al. 2021, arXiv 2104.04473 section 2; idle time by schedule, planner/schedules",
)
def pipeline_s(slowest_s: Array, microbatches: Array, idle_s: Array) -> Array:
    """Time of m micro-batches: the slowest stage is busy but for what the schedule leaves idle around it."""
    return microbatches * slowest_s + idle_s


@formula(
    unit="s",
    equation="1/2 of the backward time of the products",
    source="input and weight gradient of a product have the same FLOP; Qi et al. 2023 (arXiv 2401.10241) table 1 and section 3",
)
def weight_gradient_s(products_backward_s: Array) -> Array:
    """The part of backward that no other stage waits for; attention, norms and activations have no weights to speak of."""
    return 0.5 * products_backward_s
