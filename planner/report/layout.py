"""One chosen layout as a document, by the public contract; terminal and page show this and nothing
else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.estimate import (
    Estimates,
    cut,
    evaluate,
    fit,
    host_room,
    inference,
    loading,
    run,
    uneven,
    waiting,
)
from planner.estimate.communicate import Traffic
from planner.estimate.islands import behind_unknown
from planner.estimate.machine import machine
from planner.estimate.machine.clock import sustained_clock
from planner.estimate.memory import (
    PHASES,
    best_recompute_group,
    layer_activations,
    peak_memory,
    state_ledger,
)
from planner.estimate.merging import merged
from planner.estimate.stages import layout_document, rank_texts, repeated_share
from planner.estimate.state_types import frozen_bytes
from planner.estimate.trained import backward_share, trained_count, trained_gemms
from planner.evidence import memory as evidence
from planner.evidence.band import Band, band
from planner.evidence.whole_run import whole_run
from planner.formulas import flops, run_level
from planner.formulas.params import active_parameter_count, parameter_count
from planner.inputs.prices import caution
from planner.ledger import Array, Ledger, first, firsts, is_recording, total
from planner.report.bottleneck import bottleneck, exposed_s
from planner.report.machine import elasticities, elasticities_of_rows, provenance
from planner.report.pace import pace
from planner.search.pick import pick_command
from planner.search.room import fit_chance
from planner.specs.columns import Columns, joined
from planner.specs.document import SCHEMA_VERSION, UNSET, changed, plain
from planner.specs.documents.estimate import (
    Communication,
    Evidence,
    Figures,
    Line,
    MachineNumber,
    Report,
    Step,
    StepByWire,
    Throughput,
)
from planner.specs.documents.memory import (
    Chance,
    Fit,
    LayerActivation,
    Memory,
    Outside,
    Phase,
    Stage,
)
from planner.specs.documents.plan import Cluster, Model, Stack
from planner.specs.documents.run import Reliability, Run
from planner.specs.documents.training import training_document
from planner.specs.layers import of_samples
from planner.specs.model import NAMING, stated
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.units import in_unit


def whole_pipeline(table: Columns, row: int) -> Any:
    """Every stage number of one layout, shape (stages, 1)."""
    return np.arange(int(table.pp[row]), dtype=float)[:, None]


def evaluate_row(estimates: Estimates, row: int) -> Estimates:
    """One layout, over every pipeline stage; recorded formula by formula when a recorder is on."""
    table = estimates.table.pick([row])
    stages = whole_pipeline(table, 0)
    if not estimates.time.detail or is_recording():
        return evaluate(estimates.plan, table, stages)
    rows, known = len(estimates.table), estimates.memory
    time = cut(estimates.time, row, rows)
    if np.array_equal(known.stages[:, row : row + 1], stages):  # none was left out
        memory = cut(known, row, rows)
    else:
        memory = peak_memory(estimates.plan, table, stages)
    return Estimates(estimates.plan, table, time, memory, *fit(estimates.plan, memory))


def reports(
    options: Options, lines: Sequence[tuple[Estimates, int]], assumptions: Sequence[str] = ()
) -> list[Report]:
    """`report` of several rows; sensitivities of rows of one plan are evaluated together."""
    numbers: dict[int, list[MachineNumber]] = {}
    for plan in {id(e.plan): e.plan for e, _ in lines}.values():
        places = [i for i, (e, _) in enumerate(lines) if e.plan is plan]
        together = joined([lines[i][0].table.pick([lines[i][1]]) for i in places])
        numbers.update(zip(places, elasticities_of_rows(plan, together), strict=True))
    return [report(options, e, row, assumptions, numbers[i]) for i, (e, row) in enumerate(lines)]


def report(
    options: Options,
    estimates: Estimates,
    row: int,
    assumptions: Sequence[str] = (),
    numbers: list[MachineNumber] | None = None,
    *,
    sensitivities: bool = True,
) -> Report:
    """Full answer for one row: evaluated again by itself, over every pipeline stage.

    options: the request. numbers: its elasticities, where known. sensitivities: whether to compute
    the elasticity of the step time to every number of the machine; else `machine` is empty.
    """
    plan = estimates.plan
    table = estimates.table.pick([row])
    evaluated = evaluate_row(estimates, row)
    machine_numbers, around, paced = machine(plan), _band(plan, table, evaluated), pace(evaluated)
    seconds = first(evaluated.time.seconds)
    whole = _sure(plan, run.whole_run(plan, evaluated.time, table), around)
    if numbers is None:
        numbers = elasticities(plan, table) if sensitivities else []
    name, share = bottleneck(evaluated.time)
    return Report(
        schema_version=SCHEMA_VERSION,
        model=_model(plan),
        cluster=_cluster(plan),
        stack=Stack(plan.stack.id, plan.stack.title, state_ledger(plan)),
        training=training_document(plan, options),
        mechanisms=plan.settings,
        layout=layout_document(plan, table.layout(0)),
        pick=pick_command(options, evaluated),
        memory=_memory(plan, evaluated, paced.seconds),
        step=Step(
            seconds=seconds,
            low=seconds * around.low,
            high=seconds * around.high,
            confidence=around.basis,
            validated_runs=around.runs,
            evidence=Evidence(around.hardware, around.software, around.parts),
            components=firsts(evaluated.time.components),
            hidden=_hidden(evaluated),
            bottleneck=name,
            bottleneck_frac=share,
            before_seconds=first(evaluated.time.before),
            pace=paced.slowest,
            pace_frac=paced.above_frac,
            operators=firsts(evaluated.time.detail),
        ),
        throughput=throughput(plan, evaluated, table),
        communication=[_traffic(plan, t) for t in evaluated.time.traffic if t.count[0] > 0],
        run=whole,
        merge=merged(plan),
        inference=None if of_samples(plan.model) or plan.model.traced else inference.serving(plan),
        stragglers=waiting.stragglers(plan, machine_numbers, table, evaluated.time),
        input=loading.needs(plan, machine_numbers, table, _without_loading_s(evaluated)),
        alternatives=[],
        advice=[],
        assumptions=[*assumptions, *_assumed(plan, whole.reliability)],
        provenance=provenance(numbers),
        machine=numbers,
    )


def _without_loading_s(evaluated: Estimates) -> float:
    """Seconds of the step without its wait for data: a sum, which loses no digits where the wait is
    long."""
    parts = evaluated.time.components.items()
    return sum(first(seconds) for name, seconds in parts if name != "input")


def figures(estimates: Estimates, assumptions: Sequence[str] = ()) -> Figures:
    """The figures of a single layout that comparisons show, from what is already evaluated."""
    plan = estimates.plan
    seconds, around = first(estimates.time.seconds), _band(plan, estimates.table, estimates)
    exposed = exposed_s(estimates.time)
    name, share = bottleneck(estimates.time, exposed)
    device, usable = first(estimates.memory.device), plan.usable_bytes
    return Figures(
        model=plan.model.title or plan.model.name,
        cluster=_cluster(plan),
        stack=plan.stack.id,
        layout=layout_document(plan, estimates.table.layout(0)),
        tokens_per_step=plan.training.global_batch * first(estimates.time.row_tokens),
        memory=Fit(
            **plain(_chance(estimates, 0)),
            device_bytes=device,
            capacity_bytes=usable,
            headroom_bytes=usable - device,
        ),
        step=StepByWire(
            seconds=seconds,
            low=seconds * around.low,
            high=seconds * around.high,
            components=firsts(estimates.time.components),
            hidden=_hidden(estimates),
            exposed=firsts(exposed),
            bottleneck=name,
            bottleneck_frac=share,
            before_seconds=first(estimates.time.before),
        ),
        throughput=throughput(plan, estimates, estimates.table),
        run=_sure(plan, run.whole_run(plan, estimates.time, estimates.table), around),
        merge=merged(plan),
        assumptions=list(assumptions),
    )


def line(options: Options, estimates: Estimates, row: int) -> Line:
    """One layout in short, for alternatives and searches."""
    plan, seconds = estimates.plan, float(estimates.time.seconds[row])
    training = plan.training
    return Line(
        stack=plan.stack.id,
        layout=layout_document(plan, estimates.table.layout(row)),
        step_seconds=seconds,
        tokens_per_s=float(
            run_level.tokens_per_s(
                training.global_batch,
                first(uneven.row_tokens(plan, estimates.table.pick([row]))),
                seconds,
            )
        ),
        peak_bytes=float(estimates.memory.peak[row]),
        device_bytes=float(estimates.memory.device[row]),
        command=pick_command(options, estimates, row),
        **plain(_chance(estimates, row)),
    )


def _chance(estimates: Estimates, row: int) -> Chance:
    """Whether a layout fits, and how sure that is."""
    fits = bool(estimates.fits[row])
    rest_fits = estimates.host_fits[row] and estimates.drive_fits[row]
    chance = first(fit_chance(estimates, np.array([row]))) if rest_fits else 0.0
    return Chance(fits, chance, evidence.verdict(fits, chance))


def _band(plan: Plan, table: Columns, estimates: Estimates) -> Band:
    """Band of the step of one layout."""
    seconds, mfu = estimates.time.seconds, throughput(plan, estimates, table).mfu
    return band(plan, table, estimates.time, mfu, islands=behind_unknown(plan, table, seconds))


def _sure(plan: Plan, whole: Run, around: Band) -> Run:
    """The whole run with the ends of its band."""
    spread = whole_run(around.spread, whole, stated=plan.run.states_failures)
    low, high = spread.ends()
    return changed(whole, low=low, high=high)


def _model(plan: Plan) -> Model:
    model = plan.model
    return Model(
        name=model.name,
        title=model.title or model.name,
        parameters=parameter_count(model),
        active_parameters=active_parameter_count(model),
        source=model.source,
        shape=stated(model, exclude={"name", "title", "source", *NAMING}, exclude_none=True),
    )


def _cluster(plan: Plan) -> Cluster:
    c, price = plan.cluster, plan.cluster.price
    usd = price.usd_per_gpu_hour
    return Cluster(
        title=c.title,
        gpu=c.gpu.id,
        gpu_title=c.gpu.title,
        gpus=c.gpus,
        gpus_per_node=c.gpus_per_node,
        nodes=c.nodes,
        intra_node=c.intra_node.id,
        inter_node=c.inter_node.id,
        nics_per_node=c.nics_per_node,
        nic_bytes_per_s=float(c.nic_bandwidth),
        nvlink_domain=c.nvlink_domain,
        island_nodes=c.island_nodes,
        oversubscription=float(c.oversubscription or 1.0),
        usd_per_gpu_hour=None if usd is None else in_unit(float(usd), "USD/h"),
        price_market=price.market,
        price_source=price.words,
        price_missing=price.missing,
        price_read=None if usd is None else usd.source,
    )


def _memory(plan: Plan, estimates: Estimates, passes: Array) -> Memory:
    m = estimates.memory
    holds = rank_texts(plan, estimates.table)
    usable, device = plan.usable_bytes, first(m.device)
    phases = [_of_stages(*each) for each in zip(PHASES, m.phases, strict=True)]
    stages = [
        Stage(
            stage=int(m.stages[i][0]),
            layers=float(m.stage_layers[i][0]),
            holds=holds[int(m.stages[i][0])],
            pass_seconds=float(passes[int(m.stages[i][0])]),
            peak_bytes=float(m.stage_peaks[i][0]),
            reserved_bytes=float(m.stage_reserved[i][0]),
            worst_phase=PHASES[int(m.stage_phases[i][0])],
            components=firsts(m.stage_components[i]),
            phases=[phase[i] for phase in phases],
        )
        for i in range(len(m.stages))
    ]
    return Memory(
        peak_bytes=first(m.peak),
        reserved_bytes=first(m.reserved),
        reserved_high_bytes=first(m.reserved_high),
        device_bytes=device,
        capacity_bytes=usable,
        nominal_bytes=float(plan.cluster.gpu.memory),
        **plain(_chance(estimates, 0)),
        fit_evidence=evidence.evidence(plan).basis,
        headroom_bytes=usable - device,
        worst_stage=int(m.worst_stage[0]),
        worst_phase=PHASES[int(m.worst_phase[0])],
        components=firsts(m.components),
        outside=Outside(
            fragmentation=first(m.reserved) - first(m.peak),
            context=first(m.context),
            communicators=first(m.communicators),
        ),
        host_bytes=first(m.host),
        host_saving_bytes=first(m.host_saving),
        host_loading_bytes=first(m.host_loading),
        host_pretrained_bytes=first(m.host_pretrained),
        host_room_bytes=host_room(plan),
        host_fits=bool(estimates.host_fits[0]),
        nvme_bytes=first(m.drive),
        nvme_fits=bool(estimates.drive_fits[0]),
        best_recompute_group=best_recompute_group(plan, estimates.table),
        layer_activations=[
            LayerActivation(name, size)
            for name, size in firsts(
                layer_activations(uneven.of_longest(plan), estimates.table)
            ).items()
        ],
        per_stage=stages,
    )


def _of_stages(name: str, ledger: Ledger) -> list[Phase]:
    """A phase on every stage of one layout."""
    leaves = {part: leaf[:, 0].tolist() for part, leaf in ledger.items()}
    sums = total(ledger)[:, 0].tolist()
    return [
        Phase(name, whole, {part: leaf[i] for part, leaf in leaves.items()})
        for i, whole in enumerate(sums)
    ]


def _hidden(estimates: Estimates) -> dict[str, float]:
    return {name: value for name, value in firsts(estimates.time.hidden).items() if value > 0}


def _traffic(plan: Plan, t: Traffic) -> Communication:
    across = bool(t.across_nodes[0])
    inside = plan.cluster.host_link if t.group == "host" else plan.cluster.intra_node
    seconds = first(t.seconds)
    return Communication(
        operation=t.operation,
        group=t.group,
        what=t.what,
        component=t.component,
        bytes=first(t.bytes),
        link=(plan.cluster.inter_node if across else inside).id,
        across_nodes=across,
        seconds=seconds,
        hidden_seconds=max(0.0, seconds - first(t.exposed)),
        count=first(t.count),
    )


def throughput(plan: Plan, estimates: Estimates, table: Columns) -> Throughput:
    training, model = plan.training, plan.model
    gpus = plan.cluster.gpus
    length = first(estimates.time.row_tokens)
    tokens = training.global_batch * length
    weights = total(flops.matmul_weights(model, training.seq_len))
    # of the same document, where rows are packed
    alike = uneven.attended_frac(plan)
    # of rows that are as long as their longest document
    alike *= first(uneven.computed_frac(plan, table.micro_batch, 2.0)) * training.seq_len / length
    seen = flops.attended_elements(model, training.seq_len) * alike
    scanned = flops.scanned_flop(model)

    def model_flop(attended: float) -> float:
        if not plan.partial:
            return float(flops.model_flop(weights, attended, tokens, scanned))
        above = backward_share(plan)
        core = (2 + 4 * above) * attended + (1 + 2 * above) * scanned
        return float(flops.partial_flop(*trained_gemms(plan), core, tokens))

    useful = model_flop(seen)
    executed = useful + first(estimates.time.repeated_flop) * gpus
    seconds = first(estimates.time.seconds)
    rate = uneven.peak_flop_per_s(plan)
    whole = model_flop(flops.attended_elements(model, training.seq_len, flops.PALM) * alike)
    palm = float(run_level.utilisation(whole, gpus, rate, seconds))
    per_s = float(run_level.tokens_per_s(training.global_batch, length, seconds))
    return Throughput(
        tokens_per_s=per_s,
        tokens_per_s_per_gpu=per_s / gpus,
        samples=model.samples,
        samples_per_s=training.global_batch / seconds,
        model_tflops_per_gpu=useful / gpus / seconds / 1e12,
        mfu=float(run_level.utilisation(useful, gpus, rate, seconds)),
        mfu_palm=UNSET if palm > 1 else palm,
        tflops_palm=whole / gpus / seconds / 1e12,
        hfu=float(run_level.utilisation(executed, gpus, rate, seconds)),
        flop_convention=flops.CONVENTION,
        model_flop_per_step=useful,
        hardware_flop_per_step=executed,
        recomputed_share=first(repeated_share(plan, table)),
    )


def _trained(plan: Plan) -> list[str]:
    """Which weights are trained, where not all are."""
    if not plan.partial:
        return []
    trained, every = trained_count(plan), parameter_count(plan.model)
    return [
        f"trained: {trained:,} of {every:,} parameters ({trained / every:.2%}); frozen weights are"
        f" kept in {frozen_bytes(plan):g} bytes, without gradients and optimizer states, and"
        " checkpoints hold what is trained (--lora, --trainable-layers, --lisa, --train-embeddings)"
    ]


def _layout_of_images(plan: Plan) -> list[str]:
    """That a layout of images changes nothing, where it does not."""
    if not (plan.training.channels_last and plan.training.compile):
        return []
    return [
        "images: torch.compile chooses the layout that kernels of convolutions read;"
        " --channels-last changes nothing beside --compile"
    ]


def _assumed(plan: Plan, failures: Reliability) -> list[str]:
    stack, clock = plan.stack, sustained_clock(plan)
    ledger = state_ledger(plan)
    unit = "trained parameter" if plan.partial else "parameter"
    sentences = [
        f"stack: {stack.title}, {sum(ledger.values()):g} bytes per {unit} ("
        + " + ".join(f"{value:g} {name}" for name, value in ledger.items())
        + ")",
        (
            f"clock: tensor units sustain {float(clock):.0%} of the clock of the dense rate under"
            f" load ({clock.source})"
        ),
        *_trained(plan),
        *_layout_of_images(plan),
        *run.assumptions(plan, failures),
        *waiting.assumptions(plan),
    ]
    if plan.training.tokens is not None:
        price = plan.cluster.price
        sentences.append(f"price: {price.sentence} (--market, --price, --capex)")
        sentences += [f"{price.market}: {known}" for known in [caution(price.market)] if known]
    return sentences
