"""Communication hidden behind compute, and the slowdown from sharing the chip."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="s",
    equation="max(C + ov min(X, C), X) - C",
    source=(
        "prefetching FSDP, Zhao et al. 2023 (arXiv 2304.11277); contention: arXiv 2507.03114 (19 %"
        " mean slow-down)"
    ),
)
def prefetched_exposed_s(compute_s: Array, communication_s: Array, slowdown: Array) -> Array:
    """Time that prefetched communication adds to compute it overlaps with."""
    slowed = compute_s + slowdown * np.minimum(communication_s, compute_s)
    return np.maximum(slowed, communication_s) - compute_s


@formula(
    unit="s",
    equation="bytes / link",
    source=(
        "definition; one direction of the link from GPU to host, bridges shared by all GPUs of the"
        " host"
    ),
)
def host_copy_s(copied_bytes: Array, host_bytes_per_s: Array) -> Array:
    """Time of a copy to host memory, or back."""
    return copied_bytes / host_bytes_per_s


@formula(
    unit="1",
    equation="min(rate / link, 1)",
    source="definition; a transfer at a rate below that of a link leaves the rest of it free",
)
def link_share(bytes_per_s: Array, link_bytes_per_s: Array) -> Array:
    """Share of a link's capacity that a transfer at this rate takes."""
    return np.minimum(bytes_per_s / link_bytes_per_s, 1.0)


@formula(
    unit="s",
    equation="max(L, X + S) - L",
    source=(
        "vDNN, Rhu et al. 2016 (arXiv 1602.08124) section 3.2: a layer takes the longer of its"
        " computation and its copy; S: own derivation, a link carries the sum of what passes it"
    ),
)
def offload_exposed_s(layer_s: Array, copy_s: Array, shared_s: Array = 0.0) -> Array:
    """Time that copying a layer's activations to host memory, or back, adds to the layer beside it.

    shared_s: seconds of the layer's own collectives that take the same link.
    """
    return np.maximum(layer_s, copy_s + np.minimum(shared_s, layer_s)) - layer_s


@formula(
    unit="s",
    equation="tail + ov (AR - tail), tail = max(last bucket, AR - (T_backward - first ready))",
    source=(
        "PyTorch DDP, Li et al. 2020 (arXiv 2006.15704) section 3.2.3: buckets are reduced in"
        " order, each when it is ready; own derivation from bucket_ends_s, exact for equal buckets"
        " that become ready at equal times"
    ),
)
def bucketed_exposed_s(
    sync_s: Array, window_s: Array, first_ready_s: Array, last_bucket_s: Array, slowdown: Array
) -> Array:
    """Time that bucketed gradient reduction adds to the backward pass it overlaps with.

    What follows the end of backward is the last bucket, which is ready no sooner, or where the
    network binds all reductions from the first ready bucket on, less what backward still ran: the
    last bucket is among them.
    """
    beside = np.maximum(window_s - first_ready_s, 0.0)
    tail = np.minimum(np.maximum(last_bucket_s, sync_s - beside), sync_s)
    return tail + slowdown * (sync_s - tail)


def bucket_ends_s(ready_s: Array, reduce_s: Array) -> Array:
    """When each bucket is reduced, in seconds, of buckets in the order in which they become ready;
    arrays along the last axis.

    end_i = max(ready_i, end_(i-1)) + AR_i: PyTorch DDP, Li et al. 2020 (arXiv 2006.15704) section
    3.2.3, reduces buckets in order, each when its last gradient is ready. No registered formula,
    whose rows would not depend on one another.
    """
    done = np.cumsum(reduce_s, axis=-1)
    return done + np.maximum.accumulate(ready_s - (done - reduce_s), axis=-1)


@formula(
    unit="1",
    equation="1 + sigma sqrt(2 ln N)",
    source="expected maximum of N normal variables; sigma assumed, not identifiable from the runs",
)
def straggler_factor(gpus: Array, sigma: Array) -> Array:
    """Slow-down of a synchronous step because the slowest of N GPUs sets the pace."""
    return 1 + sigma * np.sqrt(2 * np.log(np.maximum(gpus, 1.0)))


@formula(
    unit="B",
    equation="sqrt(G alpha B)",
    source=(
        "own derivation: starts of G/b buckets of b bytes, alpha each, and the tail b/B of the last"
        " one, which nothing hides, are least together where both are equal"
    ),
)
def best_bucket_bytes(gradient_bytes: Array, start_s: Array, bytes_per_s: Array) -> Array:
    """Size of gradient buckets with the least of starts and tail together, where the network is
    what limits; B: bytes of gradients that are reduced per second."""
    return np.sqrt(gradient_bytes * start_s * bytes_per_s)
