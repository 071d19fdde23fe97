"""How measured runs are weighed together: runs of one suite err together, and quantiles of weighted
values."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array


def suite_members(suites: Array) -> Array:
    """Number of runs in the suite of every run."""
    _, which, count = np.unique(suites, return_inverse=True, return_counts=True)
    members: Array = count[which.reshape(-1)].astype(float)
    return members


def suite_weight(members: Array, correlation: float) -> Array:
    """Weight of a run whose suite has this many: one over the design effect 1 + (n - 1) rho (Kish
    1965), with rho the correlation of errors within a suite."""
    return 1 / (1 + (members - 1) * correlation)


def quantile(values: Array, weight: Array, q: float) -> float:
    """Quantile of weighted values, linear between the middles of their shares."""
    order = np.argsort(values, kind="stable")
    ordered, share = values[order], weight[order]
    middle = (np.cumsum(share) - 0.5 * share) / share.sum()
    return float(np.interp(q, middle, ordered))
