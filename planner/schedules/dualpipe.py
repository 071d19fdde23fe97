"""DualPipe: two pipelines in opposite directions share the ranks. DeepSeek-V3 report (arXiv 2412.19437) section 3.2.1."""

import numpy as np

from planner.ledger import Array

NAME = "dualpipe"


def bubble_frac(vpp: Array) -> Array:
    """(p/2 - 1)(t_FB + t_B - 3 t_W) over (p-1)(t_F + t_B): at most a third with t_B = 2 t_F, t_W = t_F (table 2)."""
    return np.full_like(np.asarray(vpp, float), 1 / 3)


def live_chunks(stage: Array, pp: Array, vpp: Array, microbatches: Array) -> Array:
    """p + 1 micro-batches on every rank (table 2); the two directions keep two copies of the parameters."""
    return np.minimum(microbatches, pp + 1) + 0 * stage
