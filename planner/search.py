"""Every valid layout of a plan: enumerate, mask by rules, estimate in chunks, rank, keep the front of time against memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner import schedules
from planner.estimate import Estimates, evaluate
from planner.estimate.table import COLUMNS, Table, from_rows, length, pick
from planner.estimate.ties import fastest
from planner.formulas.rules import check
from planner.ledger import Array
from planner.specs.base import PlanError
from planner.specs.layout import OFFLOADS, SCHEDULES, recompute_parts
from planner.specs.plan import Plan

CHUNK = 16384
MOST_LAYOUTS = 1_000_000  # of one stack; the cluster and model of such a request have unusually many divisors
_MAX_TP = 16  # searched; larger degrees only when asked for, collectives would leave any node
_MAX_MICRO_BATCH = 64
# context parallelism is searched only where each rank keeps this many tokens: no validated run cuts shorter sequences
_TOKENS_PER_CONTEXT_RANK = 8192
_GROUPS = (2, 4, 8)  # layers per recompute group that are searched


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def layouts(plan: Plan) -> Table:
    """Table of all layouts that satisfy what the request fixed; rules are applied by the caller."""
    rows = list(itertools.islice(_rows(plan), MOST_LAYOUTS + 1))
    if len(rows) > MOST_LAYOUTS:
        asked = plan.request.model_dump(exclude_none=True, exclude_defaults=True)
        raise PlanError("layout", asked, f"more than {MOST_LAYOUTS:,} layouts are possible; fix some, such as --tp, --pp or --ep")
    return from_rows(np.array(rows, dtype=float).reshape(len(rows), len(COLUMNS)))


def _choices(fixed: int | None, values: list[int]) -> list[int]:
    return values if fixed is None else [fixed]


def _rows(plan: Plan) -> Iterator[tuple[float, ...]]:
    request, model, supports = plan.request, plan.model, plan.stack.supports
    gpus, batch = plan.cluster.gpus, plan.training.global_batch
    tps = [t for t in divisors(gpus) if t <= _MAX_TP and model.heads % t == 0] if supports.tensor else [1]
    pps = [p for p in divisors(gpus) if p <= model.layers] if supports.pipeline else [1]
    if not request.uneven_stages:
        pps = [p for p in pps if model.layers % p == 0]
    cps = (
        [c for c in divisors(gpus) if c <= max(1, plan.training.seq_len // _TOKENS_PER_CONTEXT_RANK)] if supports.context else [1]
    )
    kinds = [_recompute(text) for text in ([request.recompute] if request.recompute else _recomputes(plan))]
    zeros = _choices(request.zero, list(supports.zero))
    offloads = [OFFLOADS.index(request.offload)] if request.offload else [0]
    for tp, pp, cp in itertools.product(_choices(request.tp, tps), _choices(request.pp, pps), _choices(request.cp, cps)):
        if gpus % (tp * pp * cp):
            continue
        dp = gpus // (tp * pp * cp)
        if batch % dp or (request.dp is not None and request.dp != dp):
            continue
        per_replica = batch // dp
        micro = [b for b in divisors(per_replica) if b <= _MAX_MICRO_BATCH]
        eps = [e for e in divisors(dp * cp) if model.moe.experts % e == 0] if model.moe and supports.expert else [1]
        sequences = [request.sequence_parallel] if request.sequence_parallel is not None else (
            [True] if tp > 1 and supports.sequence_parallel else [False])  # fmt: skip
        for b in _choices(request.micro_batch, micro):
            for vpp, schedule in _schedules(plan, pp, per_replica // b if per_replica % b == 0 else 0):
                for ep, zero, sequence, (kind, size), offload in itertools.product(
                    _choices(request.ep, eps), zeros, sequences, kinds, offloads
                ):
                    for group in _shard_groups(plan, zero, dp * cp):
                        yield (tp, pp, vpp, dp, cp, ep, zero, group, sequence, kind, size, schedule, b, offload)


def _recompute(text: str) -> tuple[int, int]:
    return recompute_parts(text)


def _recomputes(plan: Plan) -> list[str]:
    allowed = plan.stack.supports.recompute
    plain = [k for k in ("none", "selective", "full") if k in allowed]
    return plain + ([f"group:{k}" for k in _GROUPS if k <= plan.model.layers] if "group" in allowed else [])


def _schedules(plan: Plan, pp: int, microbatches: int) -> list[tuple[int, int]]:
    """(virtual stages, schedule) pairs worth trying."""
    request, layers = plan.request, plan.model.layers
    if request.schedule is not None and request.vpp is not None:
        return [(request.vpp, SCHEDULES.index(request.schedule))]
    names = [request.schedule] if request.schedule else [s for s in plan.stack.supports.schedules if s not in schedules.DOMINATED]
    out = []
    for name in names:
        code = SCHEDULES.index(name)
        if schedules.BY_NAME[name].CHUNKS != "one":
            if pp > 1 and microbatches and schedules.BY_NAME[name].allows(pp, microbatches, 2) and layers % pp == 0:
                found = divisors(layers // pp) if request.vpp is None else [request.vpp]
                out += [(v, code) for v in found if schedules.chunks_fit(name, v)]
        elif request.vpp in (None, 1) and (pp > 1 or name == "1f1b" or request.schedule):
            out.append((1, code))
    if request.vpp not in (None, 1) and not out:
        out.append((request.vpp or 1, SCHEDULES.index("interleaved")))
    return out


def _shard_groups(plan: Plan, zero: int, ranks: int) -> list[int]:
    if plan.request.shard_group is not None:
        return [plan.request.shard_group]
    if zero != 3 or not plan.stack.supports.hybrid_shard:
        return [ranks]
    node = min(plan.cluster.nvlink_domain, ranks)
    return [d for d in divisors(ranks) if d > 1 and (d % node == 0 or d == ranks)] or [ranks]


@dataclass(frozen=True)
class Found:
    """Outcome of a search in one plan (one stack)."""

    plan: Plan
    estimates: Estimates | None  # of all allowed layouts; None when no layout is allowed
    rejected: dict[str, int]  # layouts that a rule forbids, by rule
    enumerated: int


def search(plan: Plan) -> Found:
    """Evaluate every allowed layout of the plan."""
    table = layouts(plan)
    allowed = np.ones(length(table), dtype=bool)
    rejected = {}
    for name, holds in check(plan, table).items():
        fails = allowed & ~np.asarray(holds, dtype=bool)
        if fails.any():
            rejected[name] = int(fails.sum())
        allowed &= ~fails
    if not allowed.any():
        return Found(plan, None, rejected, length(table))
    return Found(plan, evaluate(plan, pick(table, np.flatnonzero(allowed))), rejected, length(table))


def best(estimates: Estimates, among: Array | None = None) -> int | None:
    """Row of the fastest layout that fits (among the rows marked), None if none fits. Ties: estimate.ties."""
    usable = estimates.fits if among is None else estimates.fits & among
    if not usable.any():
        return None
    return fastest(np.where(usable, estimates.time.seconds, np.inf), estimates.time.components["recompute"])


def smallest(estimates: Estimates, among: Array | None = None) -> int:
    """Row that needs the least memory (among the rows marked): the nearest to fitting."""
    peak = estimates.memory.device
    return int((peak if among is None else np.where(among, peak, np.inf)).argmin())


def ranked(estimates: Estimates, count: int) -> Array:
    """Rows of the fastest layouts that fit, fastest first."""
    order = np.argsort(np.where(estimates.fits, estimates.time.seconds, np.inf), kind="stable")
    return order[: min(count, int(estimates.fits.sum()))]


def pareto(seconds: Array, peak_bytes: Array) -> Array:
    """Rows that no other row beats in both time and memory, fastest first."""
    order = np.lexsort((peak_bytes, seconds))
    lowest = np.minimum.accumulate(peak_bytes[order])
    keep = np.concatenate([[True], lowest[1:] < lowest[:-1]]) if len(order) else np.zeros(0, dtype=bool)
    return order[keep]


# ------------------------------------------------------------------------------------------------ families


def family_rows(table: Table) -> dict[str, Array]:
    """Boolean column per family of layouts."""
    alone = (table["tp"] == 1) & (table["pp"] == 1) & (table["cp"] == 1) & (table["ep"] == 1)
    whole = table["shard_group"] == table["dp"] * table["cp"]
    zero = table["zero"]
    return {
        "DDP": alone & (zero == 0),
        "ZeRO-1": alone & (zero == 1),
        "ZeRO-2": alone & (zero == 2),
        "ZeRO-3 / FSDP": alone & (zero == 3) & whole,
        "hybrid shard": alone & (zero == 3) & ~whole,
        "TP x PP x DP, ZeRO-1": ~alone & (zero <= 1),
    }
