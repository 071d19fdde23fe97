"""Which of several layouts with nearly the same predicted time to take."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array

# predictions closer than this are a tie: half of the 3.4 % by which exact repeats of measured runs
# lie from their median
TIE = 0.017


# from this chance to fit on, more room counts no more: of runs with that chance hardly any failed
AMPLE = 0.99


def fastest(
    seconds: Array,
    repeated_s: Array,
    device_bytes: Array | None = None,
    fit_chance: Array | None = None,
    spanning: Array | None = None,
) -> int:
    """Index of the layout to take: of those within a tie of the fastest the one that repeats the
    least work, then the one with the fewest groups over the border of nodes, then where chances are
    given the likeliest to fit, then the fastest, then where bytes are given the one that needs the
    least.

    seconds: predicted step times, infinite for layouts that are out; repeated_s: seconds of
    recompute among them; fit_chance: up to AMPLE, from where on room is worth nothing; spanning:
    number of tensor, expert and context parallel groups that span nodes. Work done once costs less
    energy, which under a power limit is time: over 39 groups of validated runs it lowers the mean
    regret from 3.97 to 3.92 % and the largest from 28 to 19 %. Fewer stages do not decide: they
    would raise the mean to 4.4 %.
    """
    tied = seconds <= seconds.min() * (1 + TIE)
    repeated = np.where(tied, repeated_s, np.inf)
    left = tied & (repeated <= repeated.min() * (1 + 1e-9))
    if spanning is not None:
        groups = np.where(left, spanning, np.inf)
        left = left & (groups <= groups.min())
    if fit_chance is not None:
        room = np.where(left, np.minimum(fit_chance, AMPLE), -np.inf)
        left = left & (room >= room.max())
    among = np.where(left, seconds, np.inf)
    if device_bytes is not None:
        among = np.where(among <= among.min(), device_bytes, np.inf)
    return int(among.argmin())
