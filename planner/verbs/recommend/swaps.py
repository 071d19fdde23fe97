"""When recomputing beats swapping: a layer's activations run again, or copied to host memory and
back, over each kind of link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.advise.host_link import LINKS, with_host_link
from planner.estimate.machine import machine
from planner.estimate.memory import layer_activations, state_ledger
from planner.estimate.memory.activations import one_input
from planner.estimate.step import layer_seconds
from planner.estimate.sync import compute_bytes
from planner.formulas import offload as outside
from planner.formulas import overlap
from planner.inputs import catalog
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.ledger import Array, total
from planner.report.layout import SCHEMA_VERSION, Report
from planner.search import many
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.hardware import LinkSpec
from planner.specs.options import refuse
from planner.specs.plan import Plan

_LENGTHS = (1024, 4096, 16384, 65536)  # tokens per sequence that are shown beside the plan's own
_EFFICIENCIES = (
    0.5,
    0.9,
)  # shares of the peak rate whose bandwidth is told, as in figure 3 of ZeRO-Infinity


def offload(given: Mapping[str, Any]) -> Report:
    """Recompute or swap, for a layer of the chosen layout over every host link. Raises PlanError
    where no layout is allowed.

    The layer is a mean layer of one micro-batch on one rank. Copies are taken to run beside the
    computation of the layer whose activations they move, as software with streams of its own has
    it; `in_turn_s` is what they cost where nothing overlaps.
    """
    options = read_options(given)
    refuse(options, "recommend offload")
    scenario = resolve(options)
    chosen = many.choose([scenario.plans])[0]
    if isinstance(chosen, PlanError):
        raise chosen
    if chosen is None:
        raise why_none(scenario)
    plan, table = chosen.estimates.plan, chosen.estimates.table.pick([0])
    layer, layout = of_layer(plan, table), table.layout(0)
    accumulated = round(plan.training.global_batch / (layout.dp * layout.micro_batch))
    lengths = sorted({*_LENGTHS, plan.training.seq_len})
    return {
        "schema_version": SCHEMA_VERSION,
        "question": "offload",
        "model": {"name": plan.model.name, "title": plan.model.title or plan.model.name},
        "gpu": plan.cluster.gpu.id,
        "gpus": plan.cluster.gpus,
        "stack": plan.stack.id,
        "layout": {
            **layout.model_dump(),
            "global_batch": plan.training.global_batch,
            "grad_accum": accumulated,
        },
        "seq_len": plan.training.seq_len,
        "host_link": plan.cluster.host_link.id,
        "layer": layer,
        "links": [over(plan, link, layer) for link in links(plan)],
        "lengths": [
            row for length in lengths if (row := _of_length(plan, table, length)) is not None
        ],
        "bounds": bounds(plan, table),
        "notes": [
            *scenario.assumptions,
            (
                "a mean layer of one micro-batch on one rank; its activations go out beside its"
                " forward and come back beside its backward, all GPUs of a host at the same time"
            ),
        ],
    }


def links(plan: Plan) -> list[LinkSpec]:
    """PCIe 3, 4, 5 and NVLink-C2C, and the plan's own link where it is another; slowest first."""
    own = plan.cluster.host_link
    found = [own if name == own.id else catalog.load("networks", LinkSpec, name) for name in LINKS]
    return (
        found if own.id in LINKS else sorted([*found, own], key=lambda link: float(link.bandwidth))
    )


def of_layer(plan: Plan, table: Columns) -> Report:
    """Bytes and seconds of a layer, and the bandwidths per GPU at which swapping it costs what
    recompute costs, and nothing."""
    seconds = layer_seconds(plan, table)
    kept = float(np.asarray(total(layer_activations(plan, table))).reshape(-1)[0])
    forward, backward, again = (
        float(part[0]) for part in (seconds.forward, seconds.backward, seconds.again)
    )
    free_s = min(forward, backward)
    return {
        "kept_bytes": kept,
        "recompute_kept_bytes": float(np.asarray(one_input(plan, table)).reshape(-1)[0]),
        "forward_s": forward,
        "backward_s": backward,
        "recompute_s": again,
        "break_even_bytes_per_s": kept / float(outside.break_even_copy_s(forward, backward, again)),
        "hidden_bytes_per_s": kept / free_s if free_s > 0 else None,
    }


def over(plan: Plan, link: LinkSpec, layer: Report) -> Report:
    """The same layer swapped over one link, and what is cheaper."""
    m = machine(with_host_link(plan, link))
    copy = float(overlap.host_copy_s(layer["kept_bytes"], m.host_copy_bandwidth))
    out, back = (
        float(overlap.offload_exposed_s(layer[part], copy)) for part in ("forward_s", "backward_s")
    )
    return {
        "id": link.id,
        "title": link.title,
        "alone_bytes_per_s": float(m.host_bandwidth),
        "bytes_per_s": float(m.host_copy_bandwidth),
        "copy_s": copy,
        "out_exposed_s": out,
        "back_exposed_s": back,
        "hidden_s": 2 * copy - out - back,
        "in_turn_s": 2 * copy,
        "recompute_s": layer["recompute_s"],
        "cheaper": "swap" if out + back < layer["recompute_s"] else "recompute",
        "cheaper_in_turn": "swap" if 2 * copy < layer["recompute_s"] else "recompute",
    }


def _of_length(plan: Plan, table: Columns, length: int) -> Report | None:
    """One row of the table by sequence length; None where the layout cannot cut such sequences."""
    layout = table.layout(0)
    if length % (2 * layout.cp * layout.tp):
        return None
    other = plan.model_copy(
        update={"training": plan.training.model_copy(update={"seq_len": length})}
    )
    layer = of_layer(other, table)
    return {
        "seq_len": length,
        **{
            name: layer[name]
            for name in (
                "kept_bytes",
                "recompute_s",
                "break_even_bytes_per_s",
                "hidden_bytes_per_s",
            )
        },
        "links": [
            {"id": link.id, "cheaper": over(other, link, layer)["cheaper"]} for link in links(other)
        ],
    }


def bounds(plan: Plan, table: Columns) -> list[Report]:
    """Bandwidths that ZeRO-Infinity's equations ask for: of all ranks together that share
    parameters and gradients, or optimizer states, and of each rank for checkpoints."""
    training, layout = plan.training, table.layout(0)
    peak = float(plan.cluster.gpu.rate(training.precision) or 0.0) * float(
        machine(plan).gemm_efficiency
    )
    tokens: Array = float(layout.micro_batch * training.seq_len / layout.cp)
    link = float(machine(plan).host_copy_bandwidth)
    accumulated = training.global_batch / (layout.dp * layout.micro_batch)
    narrow = compute_bytes(plan)
    states = (
        state_ledger(plan)["optimizer"] + 4.0
    )  # with a gradient in fp32, as ZeRO-Infinity counts 16 B
    shards = float(layout.shard_group)
    found = {
        # loaded for forward, backward and recompute, and gradients stored: four times
        "parameters and gradients": (
            outside.state_intensity(tokens, 4 * narrow),
            shards if layout.zero >= 3 else 1.0,
        ),
        "optimizer states": (
            outside.state_intensity(tokens * accumulated, 2 * states),
            shards if layout.zero >= 1 else 1.0,
        ),
        "activation checkpoints": (
            outside.checkpoint_intensity(float(plan.model.hidden), 1.0),
            1.0,
        ),
    }
    return [
        {
            "what": what,
            "flop_per_byte": float(intensity),
            "ranks": round(ranks),
            "needed": [
                {
                    "share_frac": share,
                    "bytes_per_s": float(outside.bandwidth_for_efficiency(intensity, peak, share)),
                }
                for share in _EFFICIENCIES
            ],
            "efficiency_frac": float(outside.bandwidth_efficiency(intensity, ranks * link, peak)),
        }
        for what, (intensity, ranks) in found.items()
    ]
