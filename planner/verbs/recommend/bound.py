"""Lower bounds of days and dollars of a kind of GPU before any search. A step takes at least its
GEMMs with weights, at the rate that the largest tiles of the GPU reach under load:

    step >= FLOP / (GPUs * rate * clock * efficiency)

`formulas.kernels.gemm_s` never exceeds that rate, and all else of a step takes time beside it. And
it takes at least its layers, on one GPU each with micro-batches as large as the batch, where all
their kernels are at their best and nothing is communicated (`layers_gpu_s`): nearer, and some 20 ms
per kind. tests/test_recommend_bound.py compares both with the picks of many requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate.bound import least_s
from planner.estimate.machine import machine
from planner.formulas import flops
from planner.inputs.cluster import price_of
from planner.inputs.least import least_layout
from planner.inputs.prices import markets
from planner.ledger import total
from planner.search.software import SHORTENS, acts
from planner.specs.columns import Columns
from planner.specs.documents.recommend import ClusterRow
from planner.specs.model import ModelSpec
from planner.specs.options import LAYOUT, Options
from planner.specs.options.recommend import Goal
from planner.specs.plan import Plan, SoftwareChoice
from planner.units import in_unit
from planner.verbs.recommend.limits import DAY_S

_HOUR_S = 3600.0
Market = str | None  # None: as the request is priced


@dataclass(frozen=True)
class Least:
    """Bounds of a kind from below.

    step_gpu_s: GPU-seconds of a step; run_gpu_s: of the run, None where its length is not known;
    usd: dollars of a GPU-hour in each market that has the kind.
    """

    step_gpu_s: float
    run_gpu_s: float | None
    usd: dict[Market, float]

    def step_s(self, gpus: int) -> float:
        """Seconds of a step on this many GPUs."""
        return self.step_gpu_s / gpus

    def days(self, gpus: int) -> float:
        """Days of the run on this many GPUs; 0 where its length is not known."""
        return 0.0 if self.run_gpu_s is None else self.run_gpu_s / gpus / DAY_S

    def at_least(self, step_gpu_s: float) -> Least:
        """The bound raised to this many GPU-seconds of a step."""
        more = max(step_gpu_s / self.step_gpu_s, 1.0)
        run = None if self.run_gpu_s is None else more * self.run_gpu_s
        return replace(self, step_gpu_s=more * self.step_gpu_s, run_gpu_s=run)

    def cost(self, gpus: int, market: Market = None) -> float:
        """Dollars of the run, of an hour where its length is not known; infinite where the market
        does not have the kind. What spare GPUs, failures and electricity add is left out."""
        usd = self.usd.get(market, math.inf)
        return usd * (gpus if self.run_gpu_s is None else self.run_gpu_s / _HOUR_S)

    def order(self, goal: Goal, gpus: int, market: Market = None) -> tuple[float, ...]:
        """A bound of `counts.ORDER` of a goal."""
        if goal == "fastest":
            return self.step_s(gpus), gpus
        if goal == "smallest":
            return gpus, self.cost(gpus, market), self.step_s(gpus)
        return self.cost(gpus, market), gpus


def least(plan: Plan, base: Options, tokens: float | None) -> Least:
    """The bounds of a kind of which `plan` is one number of GPUs."""
    numbers, training = machine(plan), plan.training
    fastest = max(float(numbers.wide_rate), float(numbers.dense_rate) * float(numbers.recipe_frac))
    rate = fastest * float(numbers.sustained_clock) * float(numbers.gemm_efficiency)
    if plan.ranks.other is not None:  # whose rate may be higher
        rate = math.inf
    in_step = training.global_batch * training.seq_len
    step_gpu_s = least_flop(plan.model, in_step, plan, training.seq_len) / rate
    usd = {
        market: in_unit(float(known), "USD/h")
        for market in (None, *market_names(base))
        if (known := price_of(base, market).usd_per_gpu_hour) is not None
    }
    return Least(step_gpu_s, None if tokens is None else step_gpu_s * tokens / in_step, usd)


def layers_gpu_s(plan: Plan, base: Options) -> float:
    """GPU-seconds of the layers of a step with the micro-batch and the free options that are best.
    What splits them over ranks makes their GEMMs smaller and adds collectives."""
    batch = plan.training.global_batch
    open_ = base.changed(**dict.fromkeys(LAYOUT), pipeline_layout=None)
    layout = least_layout(plan, open_)
    table = Columns.of(
        layout.model_copy(update={"micro_batch": 2**power}) for power in range(batch.bit_length())
    )
    replicas = batch / table.micro_batch
    table = replace(table, dp=replicas, shard_group=replicas)

    def seconds(choices: Iterable[SoftwareChoice]) -> float:
        return float(np.min(least_s(plan.choosing(tuple(choices)), table) * replicas))

    start = {choice.option: choice for choice in plan.start}
    out = usual = seconds(plan.start)
    for choice in plan.free:
        name = choice.option
        if name in SHORTENS or choice in plan.start or not acts(name, table):
            continue  # shortens nothing that such layers have
        out *= min(seconds((start | {name: choice}).values()) / usual, 1.0)
    return out


def market_names(base: Options) -> list[str]:
    """Markets in which an answer names the cheapest, beside the one of the request."""
    if base.market is not None or not price_of(base).is_listed:
        return []
    return [market.id for market in markets() if market.preempted_after is None]


def least_flop(model: ModelSpec, tokens: float, plan: Plan, seq_len: int) -> float:
    """FLOP of a run that counts only GEMMs with weights; with frozen ones, forward, and backward
    down to the first trained layer. plan: what is trained of the model; seq_len: tokens of a
    sequence, to which towers of a model are in proportion."""
    weights = float(total(flops.matmul_weights(model, seq_len)))
    if plan.partial:
        back = 0.0 if plan.backward_layers is not None else weights
        return float(flops.partial_flop(weights, back, 0.0, 0.0, tokens))
    return float(flops.model_flop(weights, 0.0, tokens))


def cost_in(row: ClusterRow, least: Least, market: Market) -> float:
    """Dollars of an evaluated count in another market, or more: electricity, which no market
    changes, is scaled with the price where that is higher."""
    usd, here = least.usd.get(market, math.inf), least.usd.get(None)
    known = row.usd_per_hour if row.cost_usd is None else row.cost_usd
    if known is None or here is None or market is None:
        return math.inf if known is None else known
    return known * max(usd / here, 1.0)
