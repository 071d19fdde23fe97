"""Lower bounds of a step's time, evaluated before a layout is."""

from __future__ import annotations

from planner.estimate.layer.rows import cost_of_rows, layer_times, mean_time
from planner.estimate.machine import machine
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.plan import Plan


def least_s(plan: Plan, c: Columns) -> Array:
    """Seconds that no step undercuts: every micro-batch passes through the slowest stage, which has
    the mean number of layers at least. Bubble, head, gradient synchronisation and update are left
    out, and so is what recompute and offloading add where the columns have none.

        least = microbatches * layers / pp * (forward + backward of the mean layer)
    """
    m = machine(plan)
    mean = mean_time(plan, layer_times(plan, m, c, cost_of_rows(plan, m, c)))
    passes = c.microbatches(plan.training.global_batch) * (plan.model.layers / c.pp)
    return passes * (mean.forward + mean.backward)
