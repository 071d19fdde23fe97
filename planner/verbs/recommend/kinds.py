"""The kinds of GPU and node that `recommend cluster` tries, and the numbers of GPUs of each."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.estimate.memory import state_ledger
from planner.estimate.state_types import frozen_bytes
from planner.formulas import run_level
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.inputs.cluster import node_size
from planner.inputs.scenario import resolve
from planner.ledger import total
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterSpec
from planner.specs.hardware import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.options import Options, flag
from planner.specs.options.recommend import Limits
from planner.specs.plan import Plan
from planner.verbs.counts import layout_counts
from planner.verbs.recommend.bound import Least, layers_gpu_s, least
from planner.verbs.recommend.limits import DAY_S

# where no limit says otherwise: the largest cluster of a published run, Llama 3 405B (arXiv
# 2407.21783, section 3.3)
MOST_GPUS = 16384
# times the days of a limit that the expected run of a cluster which is as likely as not within them
# takes at most: bands are near symmetric
_MEDIAN = 1.1


@dataclass(frozen=True)
class Kind:
    """One kind of GPU, or of node, with the requests that are tried, in ascending counts of
    GPUs."""

    name: str
    base: Options  # of all counts
    least: Least | None = None  # None where none is tried
    requests: tuple[Options, ...] = ()
    plans: tuple[Plan, ...] = ()  # of one node
    reason: str | None = None  # why none is tried
    left_out: str | None = None  # which counts are not tried, and why

    @functools.cached_property
    def nearest(self) -> Least | None:
        """The nearest bound: of the layers of the stack with the fastest ones."""
        plans = {plan.stack.id: plan for plan in self.plans}.values()
        slowed = any(plan.ranks.other is not None for plan in plans)  # whose kernels may be faster
        if self.least is None or slowed or not plans:
            return self.least
        return self.least.at_least(min(layers_gpu_s(plan, self.base) for plan in plans))


@dataclass(frozen=True)
class _Fewest:
    """A bound from below on the number of GPUs, and what it comes from."""

    gpus: float = 1.0
    why: str = ""


def kinds(
    gpus: Sequence[str],
    clusters: Sequence[str],
    base: Options,
    model: ModelSpec,
    tokens: float | None,
    limits: Limits,
) -> list[Kind]:
    """Every named kind; by default every GPU of the catalogue in its usual node, if that has more
    than one: clusters of desktop computers, TPUs and Trainium only on request."""
    if not gpus and not clusters:
        every = catalog.load_all("gpus", GpuSpec)
        gpus = [gpu.id for gpu in every if gpu.node.gpus_per_node > 1 and gpu.accelerator == "gpu"]
    updates: list[tuple[str, dict[str, Any]]] = [
        *((name, {"gpu": name, "cluster": None}) for name in _listed(gpus, "--gpu")),
        *((name, {"cluster": name, "gpu": None}) for name in _listed(clusters, "--cluster")),
    ]
    return [kind(name, base.changed(**update), model, tokens, limits) for name, update in updates]


def _listed(names: Sequence[str], option: str) -> list[str]:
    """Names, also those written in one word with commas; each once."""
    out = [word.strip() for name in names for word in name.split(",")]
    for word in out:
        if not word or out.count(word) > 1:
            raise PlanError(
                option, ",".join(out), "must name kinds once each, as in --gpu a100 --gpu h100"
            )
    return out


def kind(name: str, base: Options, model: ModelSpec, tokens: float | None, limits: Limits) -> Kind:
    """Counts of one kind that could be within the limits: those that the GEMMs (`bound`) or bare
    states rule out are left out."""
    node = node_size(base)
    most = limits.max_gpus or MOST_GPUS
    if node > most:
        return Kind(name, base, reason=f"one node has {node} GPUs, more than {most:,}")
    try:
        scenario = resolve(base.changed(gpus=node))
    except PlanError as error:
        return Kind(name, base, reason=str(error))
    _, cluster, _ = scenario.parts
    fewest = _Fewest()
    if base.offload in (None, "none"):
        bare = bare_bytes(scenario.plans) * parameter_count(model)
        fewest = _Fewest(
            bare / float(cluster.gpu.usable_memory),
            "parameters and optimizer states already fill more",
        )
    floor = least(scenario.plans[0], base, tokens)
    if floor.run_gpu_s is not None:
        usd = min((floor.cost(node, market) for market in floor.usd), default=0.0)
        if limits.budget is not None and usd > limits.budget:
            why = f"its GEMMs by themselves cost {usd:,.0f} USD at the lowest price known"
            return Kind(name, base, reason=why)
        in_time = floor.run_gpu_s / (expected_days(limits) * DAY_S)
        if in_time > fewest.gpus:
            fewest = _Fewest(in_time, f"even its GEMMs take more than {limits.days:g} days")
    upper = min(float(most), _powered(cluster, limits))
    every = [n for n in layout_counts(base, most) if n % node == 0]
    tried = [n for n in every if fewest.gpus <= n <= upper]
    if not every:
        return Kind(name, base, reason=_indivisible(base, node, most))
    if not tried:
        short = upper < every[0] or all(n > upper for n in every if n >= fewest.gpus)
        return Kind(
            name,
            base,
            reason=f"{limits.power_kw:g} kW allow {int(upper):,} GPUs"
            if short and upper < most
            else f"more than {most:,} GPUs: {fewest.why}",
        )
    left_out = f"fewer than {tried[0]:,} GPUs: {fewest.why}" if tried[0] > every[0] else None
    requests = tuple(base.changed(gpus=n) for n in tried)
    return Kind(name, base, floor, requests, scenario.plans, left_out=left_out)


def expected_days(limits: Limits) -> float:
    """Days that the expected run of a cluster within the limits takes at most."""
    return math.inf if limits.days is None else limits.days * _MEDIAN


def _indivisible(base: Options, node: int, most: int) -> str:
    """Which options leave no number of whole nodes, and which of them to change."""
    fixed = [name for name in ("tp", "pp", "cp", "dp", "global_batch") if getattr(base, name)]
    loose = [
        name
        for name in fixed
        if any(n % node == 0 for n in layout_counts(base.changed(**{name: None}), most))
    ]
    stated = ", ".join(f"{flag(name)} {getattr(base, name)}" for name in fixed)
    change = " or ".join(flag(name) for name in loose or fixed)
    return f"no number of whole nodes of {node} GPUs goes with {stated}; change {change}"


def bare_bytes(plans: Sequence[Plan]) -> float:
    """Bytes per parameter of parameters and optimizer states, of the plan that keeps the least."""
    return min(
        frozen_bytes(plan)
        if plan.partial
        else total({name: kept for name, kept in state_ledger(plan).items() if name != "gradients"})
        for plan in plans
    )


def _powered(cluster: ClusterSpec, limits: Limits) -> float:
    """GPUs that the limit of power allows."""
    if limits.power_kw is None:
        return math.inf
    board_w = float(cluster.power_limit or cluster.gpu.power)
    # mean power of a GPU at the plug: the energy of one second
    plug_w = run_level.energy_j(1, board_w, run_level.POWER_FRAC, run_level.FACILITY_FACTOR, 1.0)
    return limits.power_kw * 1e3 / float(plug_w)
