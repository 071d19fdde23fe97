"""When recomputing beats swapping: a layer's activations run again, or copied to host memory and
back, over each kind of link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.advise.host_link import LINKS, offload_or_recompute, with_host_link
from planner.advise.weigh import Base
from planner.estimate.machine import machine
from planner.estimate.memory import layer_activations, state_ledger
from planner.estimate.memory.activations import one_input
from planner.estimate.ranks import layer_seconds
from planner.estimate.stages import layout_document
from planner.estimate.sync import compute_bytes
from planner.formulas import offload as outside
from planner.formulas import overlap
from planner.formulas.rules import RULES
from planner.inputs import catalog
from planner.inputs.options import read_options
from planner.inputs.scenario import Scenario, resolve
from planner.ledger import Array, total
from planner.search import batched
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.document import SCHEMA_VERSION, extended
from planner.specs.documents.advice import Choice
from planner.specs.documents.recommend import (
    Bound,
    HostLink,
    Layer,
    LengthLink,
    LengthRow,
    NamedModel,
    Needed,
    SwapOrRecompute,
)
from planner.specs.hardware import LinkSpec
from planner.specs.layout import Layout
from planner.specs.options import refuse
from planner.specs.plan import Plan

_LENGTHS = (1024, 4096, 16384, 65536)  # tokens per sequence that are shown beside the plan's own
_SHARES = (0.5, 0.9)  # of the peak rate, as in figure 3 of ZeRO-Infinity
_GRADIENT_BYTES = 4.0  # fp32, as ZeRO-Infinity counts 16 B per parameter with the states


def offload(given: Mapping[str, Any]) -> SwapOrRecompute:
    """Recompute or swap, for a layer of the chosen layout over every host link. Raises PlanError
    where no layout is allowed.

    The layer is a mean layer of one micro-batch on one rank. Copies are taken to run beside the
    computation of the layer whose activations they move, as a stack with streams of its own has
    it; `in_turn_s` is what they cost where nothing overlaps.
    """
    options = read_options(given)
    refuse(options, "recommend offload")
    scenario = resolve(options)
    chosen = batched.choose([scenario.plans])[0]
    if isinstance(chosen, PlanError):
        raise chosen
    if chosen is None:
        raise why_none(scenario)
    plan, table = chosen.estimates.plan, chosen.estimates.table.pick([0])
    whole = _steps(scenario, plan, table.layout(0))
    rows = (
        _of_length(plan, table, length) for length in sorted({*_LENGTHS, plan.training.seq_len})
    )
    return SwapOrRecompute(
        schema_version=SCHEMA_VERSION,
        question="offload",
        model=NamedModel(plan.model.name, plan.model.title or plan.model.name),
        gpu=plan.cluster.gpu.id,
        gpus=plan.cluster.gpus,
        stack=plan.stack.id,
        layout=layout_document(plan, table.layout(0)),
        seq_len=plan.training.seq_len,
        host_link=plan.cluster.host_link.id,
        verdict=_faster(whole),
        refused=_refused(plan, table.layout(0)),
        choices=whole,
        layer=of_layer(plan, table),
        links=[over(plan, link, _beside(plan, link, table)) for link in links(plan)],
        lengths=[row for row in rows if row is not None],
        bounds=bounds(plan, table),
        notes=[
            *scenario.assumptions,
            (
                "a mean layer of one micro-batch on one rank; its activations go out beside its"
                " forward and come back beside its backward, all GPUs of a host at the same time"
            ),
        ],
        doubts=list(scenario.doubts),
    )


def _steps(scenario: Scenario, plan: Plan, layout: Layout) -> list[Choice]:
    """This layout with all recomputed and with its activations swapped over its own link, by the
    rules and the step time of `estimate`."""
    comparison = offload_or_recompute(Base(scenario, plan, layout))
    kinds = ("recompute full", "offload activations")
    return [
        choice
        for choice in (comparison.choices if comparison else ())
        if choice.what in kinds and choice.link in (None, plan.cluster.host_link.id)
    ]


def _faster(steps: Sequence[Choice]) -> str | None:
    best = min(steps, key=lambda choice: (not choice.fits, choice.step_seconds), default=None)
    if best is None or not best.fits:
        return None
    return "recompute" if best.link is None else "swap"


def _refused(plan: Plan, layout: Layout) -> str | None:
    """The rule that forbids to swap the activations of this layout, in a sentence."""
    swapped = layout.model_copy(update={"recompute": "none", "offload": "activations"})
    columns = Columns.of([swapped])
    broken = (rule for rule in RULES if not np.all(rule.holds(plan, columns)))
    return next((rule.sentence(plan, swapped) for rule in broken), None)


def _beside(plan: Plan, link: LinkSpec, table: Columns) -> Layer:
    """The layer where this is the link to host memory, which its collectives may share."""
    return of_layer(with_host_link(plan, link), table)


def links(plan: Plan) -> list[LinkSpec]:
    """PCIe 3, 4, 5 and NVLink-C2C, and the plan's own link where it is another; slowest first."""
    link = plan.cluster.host_link
    known = [
        link if name == link.id else catalog.load("networks", LinkSpec, name) for name in LINKS
    ]
    if link.id in LINKS:
        return known
    return sorted([*known, link], key=lambda link: float(link.bandwidth))


def of_layer(plan: Plan, table: Columns) -> Layer:
    """Bytes and seconds of a layer, and the bandwidths per GPU at which swapping it costs what
    recompute costs, and nothing."""
    seconds = layer_seconds(plan, table)
    kept = float(np.asarray(total(layer_activations(plan, table))).reshape(-1)[0])
    forward, backward, again = (
        float(part[0]) for part in (seconds.forward, seconds.backward, seconds.again)
    )
    shared = [float(np.broadcast_to(part, seconds.forward.shape)[0]) for part in seconds.shared]
    beside = [max(way - part, 0.0) for way, part in zip((forward, backward), shared, strict=True)]
    free_s = min(beside)
    return Layer(
        kept_bytes=kept,
        recompute_kept_bytes=float(np.asarray(one_input(plan, table)).reshape(-1)[0]),
        forward_s=forward,
        backward_s=backward,
        forward_shared_s=shared[0],
        backward_shared_s=shared[1],
        recompute_s=again,
        break_even_bytes_per_s=kept / float(outside.break_even_copy_s(beside[0], beside[1], again)),
        hidden_bytes_per_s=kept / free_s if free_s > 0 else None,
    )


def over(plan: Plan, link: LinkSpec, layer: Layer) -> HostLink:
    """Swapping the layer over one link, and the cheaper choice."""
    numbers = machine(with_host_link(plan, link))
    copy = float(overlap.host_copy_s(layer.kept_bytes, numbers.host_copy_bandwidth))
    out, back = (
        float(overlap.offload_exposed_s(whole, copy, shared))
        for whole, shared in (
            (layer.forward_s, layer.forward_shared_s),
            (layer.backward_s, layer.backward_shared_s),
        )
    )
    return HostLink(
        id=link.id,
        title=link.title,
        alone_bytes_per_s=float(numbers.host_bandwidth),
        bytes_per_s=float(numbers.host_copy_bandwidth),
        copy_s=copy,
        out_exposed_s=out,
        back_exposed_s=back,
        hidden_s=2 * copy - out - back,
        in_turn_s=2 * copy,
        recompute_s=layer.recompute_s,
        cheaper=_cheaper(out + back, layer),
        cheaper_in_turn=_cheaper(2 * copy, layer),
    )


def _cheaper(swap_s: float, layer: Layer) -> str:
    return "swap" if swap_s < layer.recompute_s else "recompute"


def _of_length(plan: Plan, table: Columns, length: int) -> LengthRow | None:
    """One row of the table by sequence length; None where the layout cannot cut such sequences."""
    layout = table.layout(0)
    if length % (2 * layout.cp * layout.tp):
        return None
    other = plan.model_copy(
        update={"training": plan.training.model_copy(update={"seq_len": length})}
    )
    layer = of_layer(other, table)
    return extended(
        LengthRow,
        layer,
        seq_len=length,
        links=[
            LengthLink(link.id, over(other, link, _beside(other, link, table)).cheaper)
            for link in links(other)
        ],
    )


def bounds(plan: Plan, table: Columns) -> list[Bound]:
    """Bandwidths that ZeRO-Infinity's equations ask for: of all ranks together that share
    parameters and gradients, or optimizer states, and of each rank for checkpoints."""
    training, layout = plan.training, table.layout(0)
    numbers = machine(plan)
    peak = float(plan.cluster.gpu.rate(training.precision) or 0.0) * float(numbers.gemm_efficiency)
    link = float(numbers.host_copy_bandwidth)
    tokens: Array = float(layout.micro_batch * training.seq_len / layout.cp)
    accumulated = training.global_batch / (layout.dp * layout.micro_batch)
    states = state_ledger(plan)["optimizer"] + _GRADIENT_BYTES
    shards = float(layout.shard_group)
    moved = {
        # loaded for forward, backward and recompute, and gradients stored: four times
        "parameters and gradients": (
            outside.state_intensity(tokens, 4 * compute_bytes(plan)),
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
        Bound(
            what=label,
            flop_per_byte=float(intensity),
            ranks=round(ranks),
            needed=[
                Needed(share, float(outside.bandwidth_for_efficiency(intensity, peak, share)))
                for share in _SHARES
            ],
            efficiency_frac=float(outside.bandwidth_efficiency(intensity, ranks * link, peak)),
        )
        for label, (intensity, ranks) in moved.items()
    ]
