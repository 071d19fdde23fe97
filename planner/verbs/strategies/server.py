"""Parameter servers: workers push gradients and pull parameters, in step, with backups, within
bounds, or not at all."""

from __future__ import annotations

import numpy as np

from planner.error import PlanError
from planner.estimate import uneven
from planner.estimate.optimizer import cpu_rate
from planner.formulas import all_reduce, collectives, data_parallel
from planner.ledger import Array
from planner.specs.plan import Plan
from planner.verbs.strategies.base import FP32_BYTES, Context, Cost, Steps, with_state

_SOURCE = (
    "Li et al. 2014 (OSDI); one server per node unless --servers sets more, each with the cards of"
    " a node and its CPUs"
)


def worker(plan: Plan) -> Plan:
    """Workers keep parameters and gradients; moments and update are the servers'."""
    return with_state(
        plan.model_copy(update={"training": plan.training.model_copy(update={"optimizer": "sgd"})}),
        bucket=0.0,
        master=0.0,
        optimizer_temporary=0.0,
    )


def servers(x: Context) -> float:
    return float(x.settings.servers or x.plan.cluster.nodes)


def _card(x: Context) -> Array:
    return collectives.card_bandwidth_bytes_per_s(x.m.nic_per_gpu, x.m.inter_send, x.m.inter_socket)


def exchange_s(x: Context, workers: Array) -> Array:
    """Push and pull of everything, all workers at once."""
    gpus = float(x.plan.cluster.gpus_per_host)
    return all_reduce.parameter_server_s(
        FP32_BYTES * x.parameters,
        workers,
        servers(x),
        base_s=x.m.intra_base,
        hop_s=x.m.inter_hop,
        worker_bytes_per_s=_card(x),
        server_bytes_per_s=_card(x) * gpus,
    )


def replicate_s(x: Context) -> Array:
    """Updated parameters from each server to those that keep copies of its part, once per update
    (Li et al. 2014, section 4.3)."""
    copies = x.settings.server_copies
    if copies and copies >= servers(x):
        raise PlanError(
            "--server-copies",
            copies,
            f"are kept by other servers, and there are {servers(x):,.0f}: give more --servers",
        )
    sent = all_reduce.replicated_bytes(FP32_BYTES * x.parameters, servers(x), float(copies))
    return sent / (_card(x) * float(x.plan.cluster.gpus_per_host))


def update_s(x: Context) -> Array:
    """The optimizer on the CPUs of the servers, each its part, and copies of that."""
    update = data_parallel.cpu_step_s(x.parameters / servers(x), cpu_rate(x.plan, x.m))
    return update + replicate_s(x)


def _cost(x: Context, exposed: Array, total: Array, jitter: Array) -> Cost:
    """Compute without an optimizer on the GPU; jitter: slow-down by the ranks waited for, instead
    of by all ranks."""
    time = x.estimates.time
    working = (x.compute_s - x.slower * time.components["optimizer"]) / x.slower
    whole = FP32_BYTES * x.parameters + 0.0 * exposed
    zero = 0.0 * exposed
    return Cost(
        working * jitter, exposed, np.maximum(total - exposed, 0.0), zero, whole, whole, 2 * whole
    )


def synchronous(x: Context) -> Cost:
    spent = exchange_s(x, x.who.group.ranks) + update_s(x)
    return _cost(x, spent, spent, x.slower)


def backup(x: Context) -> Cost:
    """The b slowest are not waited for: of N normal ranks the b-th largest is near the largest of N
    / (b + 1)."""
    spent = exchange_s(x, x.who.group.ranks) + update_s(x)
    waited = uneven.jitter_factor(x.plan, x.m, float(x.plan.cluster.gpus) / (backups(x) + 1))
    return _cost(x, spent, spent, waited)


def backups(x: Context) -> float:
    return min(float(x.settings.backups), float(x.plan.cluster.gpus) - 1)


def bounded(x: Context) -> Cost:
    spent = exchange_s(x, x.who.group.ranks) + update_s(x)
    return _cost(
        x, spent, spent, data_parallel.bounded_staleness_factor(x.slower, float(x.settings.slack))
    )


def asynchronous(x: Context) -> Cost:
    """No one waits for others: a worker's cycle is its work and its own push and pull, unless the
    servers are the limit: their cards, which push and pull at the same time, or their CPUs, which
    update once per worker."""
    alone = exchange_s(x, np.full_like(x.who.group.ranks, 2.0))
    crowded = exchange_s(x, x.who.group.ranks)
    time = x.estimates.time
    working = (x.compute_s - x.slower * time.components["optimizer"]) / x.slower
    limit = np.maximum(crowded / 2, update_s(x) * x.who.group.ranks)
    exposed = np.maximum(alone, limit - working)
    return _cost(x, exposed, np.maximum(alone, limit), np.ones_like(working))


def stale_steps(x: Context) -> Steps:
    workers = x.plan.cluster.gpus
    return Steps(
        1.0,
        f"staleness {workers - 1:,} (workers - 1 in the steady state); Lian et al. 2015 (arXiv"
        " 1506.08272): no cost in the limit of many steps, a lower bound; set --steps-factor",
    )


def slack_steps(x: Context) -> Steps:
    return Steps(
        1.0,
        f"staleness at most {x.settings.slack}; Ho et al. 2013 (NIPS): same rate, larger constant:"
        " a lower bound; set --steps-factor",
    )


def backup_steps(x: Context) -> Steps:
    workers = float(x.plan.cluster.gpus)
    factor = float(data_parallel.dropped_batch_factor(workers, backups(x)))
    return Steps(
        factor,
        f"{backups(x):g} of {workers:,.0f} gradients dropped: n / (n - b) samples, Chen et al. 2016"
        " (arXiv 1604.00981)",
    )
