"""Which cluster: of every kind of GPU the smallest, cheapest and fastest number that trains the
model within the limits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.estimate.memory import state_ledger
from planner.formulas import flops, run_level
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.inputs.cluster import node_size
from planner.inputs.model import model_spec
from planner.inputs.options import number, read_options
from planner.inputs.run import default_batch
from planner.inputs.scenario import resolve
from planner.ledger import total
from planner.report.layout import SCHEMA_VERSION, Report
from planner.search import divisors
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterTemplate
from planner.specs.model import ModelSpec
from planner.specs.options import Options, flag, refuse
from planner.specs.options.recommend import GOALS, Limits
from planner.units import show
from planner.verbs.requests import Point, Progress, answer, document

# where no limit says otherwise: the largest cluster of a published run, Llama 3 405B (arXiv
# 2407.21783, section 3.3)
MOST_GPUS = 16384
# counts are made of context-parallel degrees that leave each rank as many tokens; the search takes
# fewer
_CONTEXT_TOKENS = 4096
_DAY_S, _HOUR_S = 86400.0, 3600.0


def checked(limits: Limits, tokens: object) -> Limits:
    """The limits again. Raises PlanError for one that makes no sense without another option."""
    for name in ("days", "budget"):
        if name in limits.given() and tokens is None:
            raise PlanError(
                "--tokens",
                None,
                f"is needed for {flag(name)}: the length of the run, such as --tokens 2T",
            )
    if limits.sure and limits.days is None and limits.budget is None:
        raise PlanError(
            "--sure",
            None,
            "holds --days and --budget at the slow end of the band; give one of them",
        )
    return limits


@dataclass(frozen=True)
class _Machine:
    """One kind of GPU, or of node, with the requests that are tried, in ascending counts of
    GPUs."""

    name: str
    requests: tuple[Options, ...] = ()
    reason: str | None = None  # why none is tried
    left_out: str | None = None  # which counts are not tried, and why


def cluster(
    limits: Limits,
    given: Mapping[str, Any],
    gpus: Sequence[str] = (),
    clusters: Sequence[str] = (),
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Every count of every kind of GPU over which the batch divides, held against the limits.

    given: options of a request without gpu, gpus and cluster. gpus, clusters: the kinds to try; by
    default every GPU of the catalogue in its usual node, and every cluster with a price of its own.
    """
    base, limits, notes = read_options(given), checked(limits, given.get("tokens")), []
    refuse(base, "recommend cluster")
    model, _ = model_spec(base.model)
    tokens = number(base, "tokens")
    if base.global_batch is None:
        base = base.changed(global_batch=default_batch(base.seq_len or model.max_positions, 1))
        notes.append(
            f"global batch {base.global_batch:,} sequences, near 4 Mi tokens, the same on every"
            " cluster (set --global-batch)"
        )
    if limits.max_gpus is None:
        notes.append(f"clusters of up to {MOST_GPUS:,} GPUs (set --max-gpus)")
    machines = [
        _machine(name, base.changed(**kind), model, tokens, limits)
        for name, kind in _kinds(gpus, clusters)
    ]
    requests = [one for machine in machines for one in machine.requests]
    points = iter(answer(requests, jobs=jobs, progress=progress, reasons=False))
    answered = [
        (machine, [_row(machine.name, next(points), limits) for _ in machine.requests])
        for machine in machines
    ]
    within = [row for _, rows in answered for row in rows if row["within"]]
    types = [_type(machine, rows, limits, limits.goal) for machine, rows in answered]
    return {
        "schema_version": SCHEMA_VERSION,
        "question": "cluster",
        "model": {
            "name": model.name,
            "title": model.title or model.name,
            "parameters": parameter_count(model),
        },
        "limits": {
            "days": limits.days,
            "budget_usd": limits.budget,
            "max_gpus": limits.max_gpus or MOST_GPUS,
            "power_kw": limits.power_kw,
            "sure": limits.sure,
        },
        "tokens": tokens,
        "global_batch": base.global_batch,
        "goal": limits.goal,
        "tried": len(requests),
        "answers": {aim: _best(within, aim) for aim in GOALS},
        "types": sorted(
            types,
            key=lambda one: (one["answer"] is None, *_order(limits.goal)(one["answer"] or {})),
        ),
        "notes": notes,
    }


# ------------------------------------------------------------------------------------------------ w


def _kinds(gpus: Sequence[str], clusters: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Names and options of the machines to try."""
    if not gpus and not clusters:
        priced = (
            one.id
            for one in catalog.load_all("clusters", ClusterTemplate)
            if one.usd_per_gpu_hour is not None
        )
        gpus, clusters = catalog.ids("gpus"), tuple(priced)
    named = [(name, {"gpu": name, "cluster": None}) for name in _listed(gpus, "--gpu")]
    return named + [
        (name, {"cluster": name, "gpu": None}) for name in _listed(clusters, "--cluster")
    ]


def _listed(names: Sequence[str], option: str) -> list[str]:
    """Names, also those written in one word with commas; each once."""
    out = [word.strip() for name in names for word in name.split(",")]
    for word in out:
        if not word or out.count(word) > 1:
            raise PlanError(
                option, ",".join(out), "must name kinds once each, as in --gpu a100 --gpu h100"
            )
    return out


def counts(model: ModelSpec, base: Options, node: int, most: int) -> list[int]:
    """Whole nodes over which the work divides, ascending: dp divides the batch, tp the heads, pp
    the layers, cp the sequence.

    All that even layouts can have; what the request fixes is taken as it is.
    """
    assert base.global_batch is not None
    seq_len = base.seq_len or model.max_positions
    tps = [base.tp] if base.tp else divisors(model.heads)
    pps = [base.pp] if base.pp else _stages(model.layers, base.uneven_stages)
    contexts = [c for c in divisors(seq_len) if c <= max(1, seq_len // _CONTEXT_TOKENS)]
    products = {1}
    for degrees in (
        tps,
        pps,
        [base.cp] if base.cp else contexts,
        [base.dp] if base.dp else divisors(base.global_batch),
    ):
        products = {a * b for a, b in itertools.product(products, degrees) if a * b <= most}
    return sorted(n for n in products if n % node == 0)


def _stages(layers: int, uneven: bool) -> list[int]:
    """Stages that layers divide into, alone or with embedding and head as a layer each; any number
    where they may differ."""
    if uneven:
        return list(range(1, layers + 1))
    return sorted({*divisors(layers), *(p for p in divisors(layers + 2) if 2 * p <= layers + 2)})


def _machine(
    name: str, base: Options, model: ModelSpec, tokens: float | None, limits: Limits
) -> _Machine:
    """Counts of one kind that could be within the limits: those that even the peak rate or bare
    states rule out are left out."""
    node = node_size(base)
    most = limits.max_gpus or MOST_GPUS
    if node > most:
        return _Machine(name, reason=f"one node has {node} GPUs, more than {most:,}")
    try:
        scenario = resolve(base.changed(gpus=node))
    except PlanError as error:
        return _Machine(name, reason=str(error))
    _, spec, training = scenario.parts
    price, rate = spec.usd_per_gpu_hour, float(spec.gpu.rate(training.precision) or math.inf)
    least, why, upper = 1.0, "", float(most)
    if base.offload in (None, "none"):
        bare = min(
            total({k: v for k, v in state_ledger(plan).items() if k != "gradients"})
            for plan in scenario.plans
        )
        least, why = (
            bare * parameter_count(model) / float(spec.gpu.usable_memory),
            "parameters and optimizer states alone fill more",
        )
    if tokens is not None:
        # with all of the peak rate and no failures, counting products with weights only
        gpu_s = (
            float(flops.model_flop(float(total(flops.matmul_weights(model))), 0.0, tokens, 0.0))
            / rate
        )
        if limits.days is not None and gpu_s / (limits.days * _DAY_S) > least:
            least, why = (
                gpu_s / (limits.days * _DAY_S),
                f"even the peak rate takes more than {limits.days:g} days",
            )
        if limits.budget is not None and price is not None and gpu_s * float(price) > limits.budget:
            return _Machine(
                name, reason=f"costs {gpu_s * float(price):,.0f} USD even at the peak rate"
            )
    if limits.power_kw is not None:
        upper = min(
            upper, limits.power_kw * 1e3 / _plug_w(1, float(spec.power_limit or spec.gpu.power))
        )
    every = counts(model, base, node, most)
    tried = [n for n in every if least <= n <= upper]
    if not every:
        return _Machine(
            name,
            reason=f"no number of nodes of {node} GPUs divides the batch, the heads and the layers",
        )
    if not tried:
        short = upper < every[0] or all(n > upper for n in every if n >= least)
        said = (
            f"{limits.power_kw:g} kW allow {int(upper):,} GPUs"
            if short and upper < most
            else f"more than {most:,} GPUs: {why}"
        )
        return _Machine(name, reason=said)
    below = f"fewer than {tried[0]:,} GPUs: {why}" if tried[0] > every[0] else None
    return _Machine(name, tuple(base.changed(gpus=n) for n in tried), None, below)


def _plug_w(gpus: float, board_w: float) -> float:
    """Mean power at the plug: the energy of one second."""
    return float(
        run_level.energy_j(gpus, board_w, run_level.POWER_FRAC, run_level.FACILITY_FACTOR, 1.0)
    )


# ------------------------------------------------------------------------------------------------ w


def _row(name: str, point: Point, limits: Limits) -> Report:
    """One count: its plan, what the run takes, and whether it is within the limits."""
    out: Report = {
        "machine": name,
        "gpus": point.options.gpus,
        "fits": point.fits,
        "within": False,
        "verdict": None,
        "why": None,
    }
    if point.report is None:
        return {**out, "why": point.refused}
    found = document(point)
    step, run, memory, node = found["step"], found["run"], found["memory"], found["cluster"]
    low, high = step["low"] / step["seconds"], step["high"] / step["seconds"]
    price = node["usd_per_gpu_hour"]
    out |= {
        "command": found["command"],
        "layout": found["layout"],
        "stack": found["stack"],
        "step_seconds": step["seconds"],
        "days": run["days"],
        "goodput": run["goodput"],
        "cost_usd": run["cost_usd"],
        "energy_kwh": run["energy_kwh"],
        "usd_per_hour": None if price is None else price * point.options.gpus,
        "headroom_bytes": memory["headroom_bytes"],
        "bottleneck": step["bottleneck"],
        "mfu": found["throughput"]["mfu"],
    }
    for key in ("days", "cost_usd"):
        for end, factor in (("low", low), ("high", high)):
            out[f"{key}_{end}"] = None if out[key] is None else out[key] * factor
    if not point.fits:
        return {
            **out,
            "why": (
                f"does not fit, {show(-memory['headroom_bytes'], 'B')} short"
                if memory["headroom_bytes"] < 0
                else "does not fit host memory"
            ),
        }
    out["verdict"], out["why"] = _verdict(out, limits)
    out["within"] = out["verdict"] in (
        (None, "very likely") if limits.sure else (None, "very likely", "likely")
    )
    return out


def _verdict(row: Report, limits: Limits) -> tuple[str | None, str | None]:
    """How likely the run ends within days and dollars, by the 80 % band; and what it takes where it
    is not likely."""
    asked = [
        (key, limit)
        for key, limit in (("days", limits.days), ("cost_usd", limits.budget))
        if limit is not None
    ]
    if not asked:
        return None, None
    if any(row[key] is None for key, _ in asked):
        return "unknown", "no price is known; give --price"
    over = [(key, limit) for key, limit in asked if row[key] > limit]
    said = (
        "; ".join(
            (
                f"{row[key]:,.1f} days ({row['days_low']:,.1f} .. {row['days_high']:,.1f})"
                if key == "days"
                else (
                    f"{row[key]:,.0f} USD ({row['cost_usd_low']:,.0f} .."
                    f" {row['cost_usd_high']:,.0f})"
                )
            )
            for key, limit in asked
            if row[f"{key}_high"] > limit
        )
        or None
    )
    if not over:
        return ("very likely", None) if said is None else ("likely", said)
    return ("unlikely" if all(row[f"{key}_low"] <= limit for key, limit in over) else "no"), said


def _order(aim: str) -> Callable[[Report], tuple[float, ...]]:
    """What makes a row better for an aim; smaller is better."""

    def number(row: Report, *keys: str) -> float:
        return next((float(row[key]) for key in keys if row.get(key) is not None), math.inf)

    if aim == "cheapest":
        return lambda row: (number(row, "cost_usd", "usd_per_hour"), number(row, "gpus"))
    if aim == "smallest":
        return lambda row: (
            number(row, "gpus"),
            number(row, "cost_usd", "usd_per_hour"),
            number(row, "step_seconds"),
        )
    return lambda row: (number(row, "step_seconds"), number(row, "gpus"))


def _best(rows: Sequence[Report], aim: str) -> Report | None:
    found = min(rows, key=_order(aim), default=None)
    return found if found is not None and _order(aim)(found)[0] < math.inf else None


def _type(machine: _Machine, rows: Sequence[Report], limits: Limits, goal: str) -> Report:
    """One kind: its best count, or why there is none; and what stands against the count below its
    smallest."""
    within = [row for row in rows if row["within"]]
    smallest = _best(within, "smallest")
    below = [row for row in rows if smallest and row["gpus"] < smallest["gpus"]]
    tried = ("gpus", "fits", "within", "verdict", "why", "step_seconds", "days", "cost_usd")
    return {
        "machine": machine.name,
        "answer": min(within, key=_order(goal), default=None),
        "smallest_gpus": smallest["gpus"] if smallest else None,
        "below": {"gpus": below[-1]["gpus"], "why": below[-1]["why"]} if below else None,
        "left_out": machine.left_out,
        "reason": None if within else machine.reason or _reason(rows, limits),
        "tried": [{key: row.get(key) for key in tried} for row in rows],
    }


def _reason(rows: Sequence[Report], limits: Limits) -> str:
    """Why no count of a kind is within the limits: the nearest miss."""
    most = rows[-1]["gpus"]
    fitting = [row for row in rows if row["fits"]]
    if not fitting:
        nearest = max(
            (row for row in rows if "headroom_bytes" in row),
            key=lambda row: float(row["headroom_bytes"]),
            default=None,
        )
        if nearest is None:
            return f"no layout divides the batch at any count up to {most:,} GPUs"
        return f"{nearest['why']} at best, up to {most:,} GPUs"
    if any(row["verdict"] == "unknown" for row in fitting):
        return "no price is known, so no budget can be held; give --price"
    in_time = [row for row in fitting if limits.days is None or row["days"] <= limits.days]
    if not in_time:
        least = min(fitting, key=lambda row: float(row["days"]))
        return f"{least['why']} at best, on {least['gpus']:,} GPUs"
    cheapest = min(in_time, key=_order("cheapest"))
    return f"{cheapest['why']} at least, on {cheapest['gpus']:,} GPUs"
