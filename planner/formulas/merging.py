"""Adapters merged into the matrices beside which they were trained."""

from __future__ import annotations

from planner.ledger import Array, formula


@formula(
    unit="B",
    equation="k n (4 a + 2 w)",
    source=(
        "PEFT 0.21 tuners/lora/layer.py: B A written, read and written again by its scale, read and"
        " added to the weight, which is read and written; own count"
    ),
)
def merged_traffic_bytes(elements: Array, adapter_bytes: Array, weight_bytes: Array) -> Array:
    """Bytes that move while adapters are merged into matrices of this many elements. adapter_bytes,
    weight_bytes: of an element of either."""
    return elements * (4 * adapter_bytes + 2 * weight_bytes)


@formula(
    unit="B",
    equation="w P + 2 a max k n",
    source="the same: B A and its scaled copy of one matrix at a time, beside all weights",
)
def merging_bytes(
    parameters: Array, largest: Array, adapter_bytes: Array, weight_bytes: Array
) -> Array:
    """Bytes alive while adapters are merged. largest: elements of the largest matrix."""
    return weight_bytes * parameters + 2 * adapter_bytes * largest
