"""Differences between replicas that train on different data or updates: drift between averages,
moments, statistics of a part of the batch, delayed and clipped gradients."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula


@formula(
    unit="1",
    equation="eta sqrt((n-1)/n (H sigma^2 + H^2 zeta^2))",
    source=(
        "local SGD, Stich 2019 (arXiv 1805.09767) and, for data that differ, Woodworth et al. 2020"
        " (arXiv 2006.04735); own derivation to first order: H steps with independent noise add as"
        " squares, those with a gradient of the replica's own add up"
    ),
)
def drift_norm(
    learning_rate: Array, local_steps: Array, noise_norm: Array, shard_norm: Array, replicas: Array
) -> Array:
    """Root mean square distance of a replica's parameters from the average after H local steps.

    noise_norm: of a replica's gradient about its own mean; shard_norm: of that mean about the mean
    of all, 0 for shards of one distribution.
    """
    squares = local_steps * noise_norm**2 + (local_steps * shard_norm) ** 2
    return learning_rate * np.sqrt((replicas - 1) / replicas * squares)


@formula(
    unit="1", equation="sigma / sqrt(N)", source="standard error of a mean of N independent samples"
)
def shard_gradient_norm(sample_norm: Array, shard_samples: Array) -> Array:
    """Distance of the mean gradient of a random shard from the mean over all data; larger for
    shards that are not random."""
    return sample_norm / np.sqrt(shard_samples)


@formula(
    unit="1",
    equation="sigma sqrt((1 - beta) / (1 + beta))",
    source="variance of an exponential average of independent numbers, to which every moment tends",
)
def moment_spread(noise_norm: Array, decay: Array) -> Array:
    """By how much a replica's own moment differs from the moment of the mean gradient when moments
    are never averaged: no number of averages of the parameters reduces it."""
    return noise_norm * np.sqrt((1 - decay) / (1 + decay))


@formula(
    unit="1",
    equation="|B| / (n |B_i|)",
    source=(
        "own derivation: the gradient of a batch is sum |B_i| / |B| g_i; a mean of n parts weighs"
        " each 1 / n"
    ),
)
def plain_mean_weight(part_samples: Array, batch_samples: Array, parts: Array) -> Array:
    """Weight that a plain mean over parts gives a sample of one part, over the weight it has in the
    batch; 1 where all parts are equal."""
    return batch_samples / (parts * part_samples)


@formula(
    unit="1",
    equation="(T - m (1 - m^T) / (1 - m)) / (T (1 - m))",
    source=(
        "deep gradient compression, Lin et al. 2018 (arXiv 1712.01887) equations 4 to 7: the"
        " factors sum of m^j that disappear, for a gradient that stays"
    ),
)
def momentum_correction(momentum: Array, interval_steps: Array) -> Array:
    """How much further parameters move between two sends, T steps apart, when momentum is
    accumulated where the gradient is and not after what was kept back is sent."""
    kept = momentum * (1 - momentum**interval_steps) / (1 - momentum)
    return (interval_steps - kept) / (interval_steps * (1 - momentum))


@formula(
    unit="1",
    equation="norm / sqrt(n)",
    source=(
        "deep gradient compression, Lin et al. 2018 (arXiv 1712.01887) section 3.2: n independent"
        " gradients of one variance"
    ),
)
def local_clip_norm(global_norm: Array, ranks: Array) -> Array:
    """Norm to which each rank clips its own gradient so that the sum is clipped to the global norm;
    needed if only parts of the sum are sent."""
    return global_norm / np.sqrt(ranks)


@formula(
    unit="1",
    equation="sqrt(2 / (N - 1))",
    source="standard error of the variance of N independent normal numbers, over the variance",
)
def variance_error_frac(samples: Array) -> Array:
    """Error of the variance that a batch norm takes from N samples; neighbouring pixels of one
    image are hardly samples of their own."""
    return np.sqrt(2 / (samples - 1))
