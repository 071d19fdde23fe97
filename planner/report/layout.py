"""One chosen layout as a JSON-able dict, by the public contract; the terminal and the page render
this and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.estimate import Estimates, cut, evaluate, fit, inference, loading, run, uneven, waiting
from planner.estimate.communicate import Traffic
from planner.estimate.machine import Machine, machine, moved_one_by_one, sustained_clock
from planner.estimate.memory import PHASES, layer_activations, peak_memory, state_ledger
from planner.estimate.step import StepTime, step_time
from planner.formulas import flops, memory, run_level
from planner.formulas.params import active_parameter_count, parameter_count
from planner.ledger import Sourced, is_recording, total
from planner.report import band as uncertainty
from planner.specs.columns import Columns, joined
from planner.specs.plan import Plan

SCHEMA_VERSION = 1
SENSITIVITY_STEP = (
    0.02  # each number of the machine is moved by this share to see what the step time makes of it
)

Report = dict[str, Any]

_CLASS = {
    "matmul": "compute",
    "attention": "compute",
    "recompute": "compute",
    "memory_bound": "memory bandwidth",
    "optimizer": "memory bandwidth",
    "launch": "launch",
    "bubble": "pipeline bubble",
    "overhead": "overhead",
    "offload": "host link",
    "nvme": "NVMe drives",
    "stragglers": "stragglers",
    "input": "input",
}


def whole_pipeline(table: Columns, row: int) -> Any:
    """Every stage number of one layout, shape (stages, 1)."""
    return np.arange(int(table.pp[row]), dtype=float)[:, None]


def evaluate_row(estimates: Estimates, row: int) -> Estimates:
    """One layout alone, over every pipeline stage; recorded formula by formula when a recorder is
    on."""
    table = estimates.table.pick([row])
    stages = whole_pipeline(table, 0)
    if not estimates.time.detail or is_recording():
        return evaluate(estimates.plan, table, stages)
    time = cut(estimates.time, row, len(estimates.table))  # is known
    memory = peak_memory(estimates.plan, table, stages)
    return Estimates(estimates.plan, table, time, memory, *fit(estimates.plan, memory))


def reports(
    lines: Sequence[tuple[Estimates, int]], assumptions: Sequence[str] = ()
) -> list[Report]:
    """`report` of several rows; the sensitivities of those of one plan are found together."""
    numbers: dict[int, list[Report]] = {}
    for plan in {id(e.plan): e.plan for e, _ in lines}.values():
        places = [i for i, (e, _) in enumerate(lines) if e.plan is plan]
        together = joined([lines[i][0].table.pick([lines[i][1]]) for i in places])
        numbers.update(zip(places, elasticities_of_rows(plan, together), strict=True))
    return [report(e, row, assumptions, numbers[i]) for i, (e, row) in enumerate(lines)]


def report(
    estimates: Estimates,
    row: int,
    assumptions: Sequence[str] = (),
    numbers: list[Report] | None = None,
    *,
    sensitivities: bool = True,
) -> Report:
    """Full answer for one row: evaluated again alone, over every pipeline stage.

    numbers: its elasticities, where known. sensitivities: whether to find what the step time makes
    of every number of the machine; else `machine` is empty.
    """
    plan = estimates.plan
    table = estimates.table.pick([row])
    one = evaluate_row(estimates, row)
    layout = table.layout(0)
    microbatches = plan.training.global_batch / (layout.dp * layout.micro_batch)
    band = uncertainty.band(plan)
    seconds = float(one.time.seconds[0])
    communication = [_traffic(plan, t) for t in one.time.traffic if t.count[0] > 0]
    whole = run.whole_run(plan, one.time)
    if numbers is None:
        numbers = elasticities(plan, table) if sensitivities else []
    return {
        "schema_version": SCHEMA_VERSION,
        "model": _model(plan),
        "cluster": _cluster(plan),
        "stack": {
            "id": plan.stack.id,
            "title": plan.stack.title,
            "bytes_per_parameter": state_ledger(plan),
        },
        "training": plan.training.model_dump(exclude_none=True),
        "layout": {
            **layout.model_dump(),
            "global_batch": plan.training.global_batch,
            "grad_accum": round(microbatches),
        },
        "memory": _memory(plan, one),
        "step": {
            "seconds": seconds,
            "low": seconds * band.low,
            "high": seconds * band.high,
            "confidence": band.basis,
            "validated_runs": band.runs,
            "components": _numbers(one.time.components),
            "hidden": {k: v for k, v in _numbers(one.time.hidden).items() if v > 0},
            "bottleneck": bottleneck(one),
            "operators": _numbers(one.time.detail),
        },
        "throughput": _throughput(plan, one, table),
        "communication": communication,
        "run": whole,
        "inference": inference.serving(plan),
        "stragglers": waiting.report(plan, machine(plan), table, one.time),
        "input": loading.report(
            plan, machine(plan), table, seconds, _first(one.time.components.get("input", 0.0))
        ),
        "alternatives": [],
        "advice": [],
        "assumptions": [*assumptions, *_assumed(plan, whole["reliability"])],
        "provenance": provenance(numbers),
        "machine": numbers,
    }


def _first(leaf: Any) -> float:
    return float(np.asarray(leaf).reshape(-1)[0])


def _numbers(ledger: dict[str, Any]) -> dict[str, float]:
    return {name: _first(leaf) for name, leaf in ledger.items()}


def _model(plan: Plan) -> Report:
    model = plan.model
    shape = model.model_dump(exclude={"aliases", "name", "title", "source"}, exclude_none=True)
    return {
        "name": model.name,
        "title": model.title or model.name,
        "parameters": parameter_count(model),
        "active_parameters": active_parameter_count(model),
        "source": model.source,
        "shape": shape,
    }


def _cluster(plan: Plan) -> Report:
    c = plan.cluster
    price = c.usd_per_gpu_hour
    return {
        "title": c.title,
        "gpu": c.gpu.id,
        "gpu_title": c.gpu.title,
        "gpus": c.gpus,
        "gpus_per_node": c.gpus_per_node,
        "nodes": c.nodes,
        "intra_node": c.intra_node.id,
        "inter_node": c.inter_node.id,
        "nics_per_node": c.nics_per_node,
        "nic_bytes_per_s": float(c.nic_bandwidth),
        "nvlink_domain": c.nvlink_domain,
        "usd_per_gpu_hour": None if price is None else float(price) * 3600,
        "price_source": None if price is None else f"{price.source}, {price.date}".rstrip(", "),
    }


def _memory(plan: Plan, one: Estimates) -> Report:
    m = one.memory
    usable = plan.usable_bytes
    stages = [
        {
            "stage": int(m.stages[i][0]),
            "layers": float(m.stage_layers[i][0]),
            "peak_bytes": float(m.stage_peaks[i][0]),
            "reserved_bytes": float(m.stage_reserved[i][0]),
            "worst_phase": PHASES[int(m.stage_phases[i][0])],
            "components": _numbers(m.stage_components[i]),
            "phases": [
                {"name": name, "bytes": float(total(ledger)[0]), "components": _numbers(ledger)}
                for name, ledger in zip(PHASES, m.timeline[i], strict=True)
            ],
        }
        for i in range(len(m.stages))
    ]
    layers = float(m.stage_layers[0][0])
    group = float(memory.best_group_layers(layers, m.input_bytes[0], m.layer_bytes[0]))
    return {
        "peak_bytes": float(m.peak[0]),
        "reserved_bytes": float(m.reserved[0]),
        "reserved_high_bytes": float(m.reserved_high[0]),
        "device_bytes": float(m.device[0]),
        "capacity_bytes": usable,
        "nominal_bytes": float(plan.cluster.gpu.memory),
        "fits": bool(one.fits[0]),
        "headroom_bytes": usable - float(m.device[0]),
        "worst_stage": int(m.worst_stage[0]),
        "worst_phase": PHASES[int(m.worst_phase[0])],
        "components": _numbers(m.components),
        "outside": {
            "fragmentation": float(m.reserved[0] - m.peak[0]),
            "context": float(m.context[0]),
            "communicators": float(m.communicators[0]),
        },
        "host_bytes": float(m.host[0]),
        "host_saving_bytes": float(m.host_saving[0]),
        "host_loading_bytes": float(m.host_loading[0]),
        "host_fits": bool(one.host_fits[0]),
        "nvme_bytes": float(m.drive[0]),
        "nvme_fits": bool(one.drive_fits[0]),
        "best_recompute_group": max(1, min(round(group), round(layers))),
        "layer_activations": [
            {"name": name, "bytes": value}
            for name, value in _numbers(layer_activations(plan, one.table)).items()
        ],
        "per_stage": stages,
    }


def exposed_s(time: StepTime) -> dict[str, Any]:
    """Seconds of communication that add to the step, by the wire they take: between nodes
    (`network`) and inside one.

    A component's seconds go to the wires as the exposed seconds of its traffic do.
    """
    wires: dict[str, Any] = {"network": 0.0 * time.seconds, "intra-node link": 0.0 * time.seconds}
    for name, leaf in time.components.items():
        if name in _CLASS:
            continue
        found = [
            (t, (t.count > 0) * 1.0, np.minimum(t.exposed, t.seconds))
            for t in time.traffic
            if t.component == name
        ]
        exposed, used = sum(x for _, _, x in found), np.maximum(sum(n for _, n, _ in found), 1.0)
        for t, runs, x in found:
            part = leaf * np.where(
                exposed > 0, x / np.where(exposed > 0, exposed, 1.0), runs / used
            )
            wires["network"] = wires["network"] + part * t.across_nodes
            wires["intra-node link"] = wires["intra-node link"] + part * (1 - t.across_nodes)
    return wires


def class_of(component: str) -> str:
    """What a component of the step is: compute, memory bandwidth, launch, pipeline bubble,
    overhead, host link, communication."""
    return _CLASS.get(component, "communication")


def bottleneck(one: Estimates, exposed: dict[str, Any] | None = None) -> str:
    """What takes most of the step: compute, memory bandwidth, a link, the bubble, or launching
    kernels."""
    shares: dict[str, float] = {}
    for name, leaf in one.time.components.items():
        if name in _CLASS:
            shares[_CLASS[name]] = shares.get(_CLASS[name], 0.0) + float(leaf[0])
    shares.update(
        (wire, float(seconds[0])) for wire, seconds in (exposed or exposed_s(one.time)).items()
    )
    return max(shares, key=lambda name: shares[name])


def _traffic(plan: Plan, t: Traffic) -> Report:
    across = bool(t.across_nodes[0])
    link = (
        plan.cluster.inter_node
        if across
        else plan.cluster.host_link
        if t.group == "host"
        else plan.cluster.intra_node
    )
    seconds, exposed = float(t.seconds[0]), float(t.exposed[0])
    return {
        "operation": t.operation,
        "group": t.group,
        "what": t.what,
        "component": t.component,
        "bytes": float(t.bytes[0]),
        "link": link.id,
        "across_nodes": across,
        "seconds": seconds,
        "hidden_seconds": max(0.0, seconds - exposed),
        "count": float(t.count[0]),
    }


def _throughput(plan: Plan, one: Estimates, table: Columns) -> Report:
    training, model = plan.training, plan.model
    gpus = plan.cluster.gpus
    tokens = float(training.global_batch * training.seq_len)
    qk, v = flops.head_widths(model)
    weights = total(flops.matmul_weights(model))
    seen = training.seq_len * uneven.attended_frac(
        plan
    )  # positions of the same document, where rows are packed
    useful = float(
        flops.model_flop(weights, float(model.layers * model.heads * (qk + v)), tokens, seen)
    )
    executed = useful + float(one.time.repeated_flop[0]) * gpus
    seconds = float(one.time.seconds[0])
    rate = uneven.peak_flop_per_s(plan)
    per_s = float(run_level.tokens_per_s(training.global_batch, training.seq_len, seconds))
    return {
        "tokens_per_s": per_s,
        "tokens_per_s_per_gpu": per_s / gpus,
        "model_tflops_per_gpu": useful / gpus / seconds / 1e12,
        "mfu": float(run_level.utilisation(useful, gpus, rate, seconds)),
        "hfu": float(run_level.utilisation(executed, gpus, rate, seconds)),
        "flop_convention": flops.CONVENTION,
        "model_flop_per_step": useful,
        "hardware_flop_per_step": executed,
        "recomputed_share": float(table.repeated_share(model.layers)[0]),
    }


def _assumed(plan: Plan, failures: Report) -> list[str]:
    stack, clock = plan.stack, sustained_clock(plan)
    ledger = state_ledger(plan)
    said = [
        f"software: {stack.title}, {sum(ledger.values()):g} bytes per parameter ("
        + " + ".join(f"{value:g} {name}" for name, value in ledger.items())
        + ")",
        (
            f"clock: tensor units sustain {float(clock):.0%} of the clock of the dense rate under"
            f" load ({clock.source})"
        ),
        *run.assumptions(plan, failures),
        *waiting.assumptions(plan),
    ]
    price = plan.cluster.usd_per_gpu_hour
    if plan.training.tokens is not None and price is not None and plan.run.capex_usd is None:
        said.append(
            f"price: {float(price) * 3600:.2f} USD per GPU-hour, {price.source} {price.date}".rstrip()
        )
    return said


def elasticities(plan: Plan, table: Columns) -> list[Report]:
    """Every number of the machine with its source, and by how many percent the step time changes
    when it grows by one.

    Found by moving each number by 2 % in a row of its own.
    """
    return elasticities_of_rows(plan, table)[0]


def elasticities_of_rows(plan: Plan, table: Columns) -> list[list[Report]]:
    """`elasticities` of every row of a table."""
    base, rows = machine(plan), len(table)
    moved, names = moved_one_by_one(base, SENSITIVITY_STEP, rows)
    many = table.each(lambda column: np.repeat(column, len(names) + 1))
    seconds = step_time(plan, many, moved).seconds.reshape(rows, len(names) + 1)
    slopes = np.log(seconds[:, 1:] / seconds[:, :1]) / np.log1p(SENSITIVITY_STEP)
    return [_elasticities(base, names, row) for row in slopes]


def _elasticities(base: Machine, names: Sequence[str], slopes: Sequence[float]) -> list[Report]:
    out = []
    for name, slope in zip(names, slopes, strict=True):
        number = getattr(base, name)
        known = isinstance(number, Sourced)
        out.append(
            {
                "name": name,
                "value": float(number),
                "unit": number.unit if known else "1",
                "kind": number.kind if known else "assumed",
                "source": number.source if known else "choice of the stack",
                "date": number.date if known else "",
                "elasticity": float(slope),
            }
        )
    return out


def provenance(numbers: list[Report]) -> dict[str, float]:
    """Shares of the step time's sensitivity that rest on measured, vendor and assumed numbers."""
    shares = {"measured": 0.0, "vendor": 0.0, "assumed": 0.0}
    for number in numbers:
        shares[number["kind"]] += abs(number["elasticity"])
    whole = sum(shares.values()) or 1.0
    return {f"{kind}_frac": value / whole for kind, value in shares.items()}


def brief(one: Estimates, assumptions: Sequence[str] = ()) -> Report:
    """The figures of a single layout that comparisons show, from what is already evaluated; a part
    of `report`, same keys."""
    plan, memory = one.plan, one.memory
    layout, seconds, around = (
        one.table.layout(0),
        float(one.time.seconds[0]),
        uncertainty.band(plan),
    )
    usable, exposed = plan.usable_bytes, exposed_s(one.time)
    return {
        "model": plan.model.title or plan.model.name,
        "cluster": _cluster(plan),
        "stack": plan.stack.id,
        "layout": {
            **layout.model_dump(),
            "global_batch": plan.training.global_batch,
            "grad_accum": round(plan.training.global_batch / (layout.dp * layout.micro_batch)),
        },
        "tokens_per_step": float(plan.training.global_batch * plan.training.seq_len),
        "memory": {
            "device_bytes": float(memory.device[0]),
            "capacity_bytes": usable,
            "headroom_bytes": usable - float(memory.device[0]),
            "fits": bool(one.fits[0]),
        },
        "step": {
            "seconds": seconds,
            "low": seconds * around.low,
            "high": seconds * around.high,
            "components": _numbers(one.time.components),
            "hidden": {k: v for k, v in _numbers(one.time.hidden).items() if v > 0},
            "exposed": {wire: float(seconds[0]) for wire, seconds in exposed.items()},
            "bottleneck": bottleneck(one, exposed),
        },
        "throughput": _throughput(plan, one, one.table),
        "run": run.whole_run(plan, one.time),
        "assumptions": list(assumptions),
    }


def summary(estimates: Estimates, row: int) -> Report:
    """A short line of one layout, for alternatives and searches."""
    layout = estimates.table.layout(row)
    plan = estimates.plan
    seconds = float(estimates.time.seconds[row])
    return {
        "stack": plan.stack.id,
        "layout": {
            **layout.model_dump(),
            "global_batch": plan.training.global_batch,
            "grad_accum": round(plan.training.global_batch / (layout.dp * layout.micro_batch)),
        },
        "step_seconds": seconds,
        "tokens_per_s": float(
            run_level.tokens_per_s(plan.training.global_batch, plan.training.seq_len, seconds)
        ),
        "peak_bytes": float(estimates.memory.peak[row]),
        "device_bytes": float(estimates.memory.device[row]),
        "fits": bool(estimates.fits[row]),
    }
