"""An estimate as blocks of text and tables, all of them: answer, requirements, memory, time,
communication, families, advice, assumptions.

Long: a block of each part of the document.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from planner.specs.document import UNSET
from planner.specs.documents.estimate import Estimate, Report, SearchCounts, Throughput
from planner.specs.documents.memory import Fit
from planner.specs.documents.plan import Model, describe
from planner.specs.documents.run import Run
from planner.specs.options import flag
from planner.units import chance_text, in_unit, percent, show, span
from planner.views.estimate_figures import phases, waterfall
from planner.views.estimate_figures import stages as stages_chart
from planner.views.groups import SEEN
from planner.views.remarks import remark_rows
from planner.views.view import Block, Link, words

_FEW = 0.01  # failures of a run; what is fewer is not counted
BY_STEP = "by step time; of those within the noise of measured runs, the simpler first"


def title_of(r: Report) -> str:
    """The model and the GPUs, of both kinds where there are two."""
    mixed = r.stragglers.mixed if isinstance(r, Estimate) and r.stragglers else None
    other = f", {mixed.share:.0%} of them {mixed.gpu}" if mixed else ""
    return f"{r.model.title} on {r.cluster.gpus:,} x {r.cluster.gpu_title}{other}"


def answer_block(r: Estimate) -> Block:
    lines = [f"{label:<12}{text}" for label, text in answer_rows(r)]
    return Block("The answer", lines, lead=True)


def active(model: Model) -> str:
    """Parameters that one token uses, where it does not use all."""
    if model.active_parameters == model.parameters:
        return ""
    return f" ({show(model.active_parameters, 'count')} active)"


def answer_rows(r: Estimate) -> list[tuple[str, str]]:
    """The answer line by line; a line without a label goes on with the one above."""
    model, m, step, t, run = r.model, r.memory, r.step, r.throughput, r.run
    verdict = m.verdict if m.fits else f"{m.verdict.upper()} ({short_of(r)})"
    rows = [
        ("model", f"{model.parameters:,} parameters{active(model)}"),
        ("layout", f"{describe(r.layout)}  [{r.stack.title}]"),
        ("memory", f"{verdict}: {memory_text(m)} ({fullest(r)})"),
        ("", f"chance: {m.fit_evidence}"),
        *(("", f"DOUBTFUL: {doubt}") for doubt in r.doubts),
        *remark_rows(r),
        (
            "step",
            f"{show(step.seconds, 's')}  (80 % band {span(step.low, step.high, 's')}:"
            f" {step.confidence})",
        ),
        ("bottleneck", step.bottleneck),
        ("throughput", f"{rate_text(r)}, {show(t.model_tflops_per_gpu, 'TFLOP/s')} per GPU"),
        ("", f"MFU {percent(t.mfu)}, HFU {percent(t.hfu)}  ({t.flop_convention})"),
        ("", f"{_as_palm(t)}, as PaLM, Megatron-LM and torchtitan count"),
    ]
    power = (
        "power",
        f"{show(run.power_w, 'W')} at the plug, {show(run.co2_kg_per_h, 'kg')} CO2 an hour",
    )
    if run.days is None:
        return [*rows, power, ("run", "days, cost and energy: give --tokens, e.g. --tokens 2T")]
    return [
        *rows,
        power,
        (
            "run",
            f"{amount(r, run.tokens)}:"
            f" {show(run.days, 'days')}{band_text(run, run.days, 'days')},"
            f" {show(run.gpu_hours, 'GPU-hours')}, {show(run.energy_kwh, 'kWh')},"
            f" {show(run.co2_kg, 'kg')} CO2 (goodput {percent(run.goodput)})",
        ),
        ("", _failures_text(run)),
        ("cost", cost_text(r)),
        project_row(run),
    ]


def amount(r: Estimate, tokens: float | None) -> str:
    """An amount of tokens; of samples for a model whose sample is one token."""
    unit = r.throughput.samples if r.training.seq_len == 1 else "tokens"
    return f"{show(tokens, 'count')} {unit}"


def rate_text(r: Estimate) -> str:
    """Tokens a second; of a model of samples, those."""
    t, gpus = r.throughput, r.cluster.gpus
    if t.samples == "sequences":
        return f"{show(t.tokens_per_s, '')} tokens/s, {show(t.tokens_per_s_per_gpu, '')} per GPU"
    each = show(t.samples_per_s / gpus, "")
    return f"{show(t.samples_per_s, '')} {t.samples}/s, {each} per GPU"


def _as_palm(t: Throughput) -> str:
    """The count of most logs and papers, half of whose attention a causal kernel never does."""
    rate = f"{show(t.tflops_palm, 'TFLOP/s')} per GPU"
    return rate if t.mfu_palm is UNSET else f"{rate}, MFU {percent(t.mfu_palm)}"


def memory_text(m: Fit) -> str:
    """Device memory that is used, there and free, and how likely that suffices."""
    used, capacity = show(m.device_bytes, "B"), show(m.capacity_bytes, "B")
    return f"{used} of {capacity} per GPU, {room(m)}, chance to fit {chance_text(m.fit_chance)}"


def room(m: Fit) -> str:
    """Device memory that is free or lacking."""
    free = m.headroom_bytes
    return f"{show(free, 'B')} free" if free >= 0 else f"{show(-free, 'B')} short"


def fullest(r: Report) -> str:
    """Stage and phase of the memory peak."""
    return f"worst: stage {r.memory.worst_stage}, {r.memory.worst_phase}"


def short_of(r: Report) -> str:
    """Memory that a layout that does not fit is short of."""
    m = r.memory
    lacking = [
        (m.headroom_bytes >= 0, f"{room(m)} of GPU memory"),
        (m.host_fits, _host_need(r)),
        (m.nvme_fits, f"{show(m.nvme_bytes, 'B')} of NVMe drives per GPU, more than the node has"),
    ]
    return ", ".join(text for enough, text in lacking if not enough)


def _host_need(r: Report) -> str:
    """Host memory that a node needs, and that it has."""
    m, ranks = r.memory, min(r.cluster.gpus_per_node, r.cluster.gpus)
    need, purpose = m.host_bytes, ""
    if m.host_room_bytes is not None and need <= m.host_room_bytes:
        need, purpose = m.host_pretrained_bytes, " to read whole weights (--weight-readers)"
    needed, capacity = (show(each * ranks, "B") for each in (need, m.host_room_bytes or 0.0))
    return f"{needed} of host memory on a node{purpose}, which has {capacity}"


def cost_text(r: Report) -> str:
    """Cost of the run and the kind of its price, or why it is not known."""
    cost = r.run.cost_usd
    if cost is None:
        return f"{r.cluster.price}; give --price or another --market"
    return f"{show(cost, 'USD')}{band_text(r.run, cost, 'USD')} at {r.cluster.price}"


def project_row(run: Run) -> tuple[str, str]:
    """Usual days and cost of a whole project, or whether they are counted already."""
    project = run.project
    ratio = f"usually {project.usual:g} times the best plan ({project.low:g} .. {project.high:g})"
    if project.counted:
        return "project", f"{ratio}, counted here (--as plan: without)"
    days = show((run.days or 0.0) * project.usual, "days")
    cost = "" if run.cost_usd is None else f", {show(run.cost_usd * project.usual, 'USD')}"
    return "project", f"{ratio}: {days}{cost} (--as project)"


def band_text(run: Run, value: float, unit: str) -> str:
    """The 80 % band of what is proportional to the days of a run."""
    return f" ({span(value * run.low, value * run.high, unit)})"


def _failures_text(run: Run) -> str:
    r = run.reliability
    interval = show(in_unit(r.interval_s, "days"), "days")
    proposed = r.spare_nodes is None
    spare, share = (
        (r.spare_nodes_proposed, "99 %")
        if proposed
        else (r.spare_nodes, percent(r.spares_suffice_frac))
    )
    spares = (
        f"{spare} spare {'node suffices' if spare == 1 else 'nodes suffice'} {share} of the time"
    )
    return (
        f"{_failures(run.failures)} expected; checkpoint of"
        f" {show(r.checkpoint_bytes, 'traffic')} every {interval} stops"
        f" training {show(r.checkpoint_stop_s, 's')}; {spares}"
    )


def _failures(count: float | None) -> str:
    if count is not None and 0 < count < _FEW:
        return f"fewer than {_FEW} failures"
    return f"{show(count, '')} failures"


def memory_block(r: Estimate) -> Block:
    m = r.memory
    block = Block(
        f"Memory per GPU (worst: stage {m.worst_stage}, {m.worst_phase})",
        header=["part", "bytes|B", "share|%"],
        order="what tensors hold, then what comes on top",
        chart=phases(r),
    )
    whole = m.device_bytes
    parts_held = [(words(name), value) for name, value in m.components.items() if value > 0]
    outside = [(f"+ {words(name)}", value) for name, value in structs.asdict(m.outside).items()]
    block.rows = [
        [name, value, value / whole]
        for name, value in [*parts_held, ("peak allocated", m.peak_bytes), *outside]
    ]
    block.rows.append(["on the device", whole, ""])
    for name, value in (
        ("in host memory", m.host_bytes),
        ("in host memory while weights are read", m.host_pretrained_bytes),
        ("on NVMe drives", m.nvme_bytes),
    ):
        if value > 0:
            block.rows.append([f"{name}, per GPU", value, ""])
    bytes_per = " + ".join(f"{v:g} {k}" for k, v in r.stack.bytes_per_parameter.items())
    block.text.append(
        f"bytes per parameter before sharding: {bytes_per} ="
        f" {sum(r.stack.bytes_per_parameter.values()):g}"
    )
    block.text.append(
        f"best recompute group here: {m.best_recompute_group} layers per kept input (smallest"
        " activation memory with the micro-batches in flight; groups save memory, never time)"
    )
    return block


def stage_block(r: Estimate) -> Block:
    """Stages in runs of equal peak."""
    stages, unequal = r.memory.per_stage, r.layout.pipeline_layout is not UNSET
    block = Block(
        "Pipeline stages",
        header=[
            *("stage", "holds" if unequal else "layers|.6g", "parameters|B", "activations|B"),
            *("logits|B", "peak|B", "pass|s"),
        ],
        order="first to last",
        chart=stages_chart(r),
    )
    shown = (
        stages
        if len(stages) <= 8
        else [stages[0], stages[1], stages[len(stages) // 2], stages[-2], stages[-1]]
    )
    for s in shown:
        parts = s.components
        states = sum(parts[name] for name in ("parameters", "gradients", "optimizer"))
        block.rows.append(
            [
                *(str(s.stage), s.holds if unequal else s.layers, states),
                parts["activations"] + parts["recompute_working_set"],
                *(parts["logits"], s.peak_bytes, s.pass_seconds),
            ]
        )
    if r.step.pace is not None:
        block.text.append(r.step.pace)
    if len(shown) < len(stages):
        block.text.append(
            f"{len(shown)} of {len(stages)} stages (--json lists all); parameters include gradients"
            " and optimizer"
        )
    return block


def step_block(r: Estimate) -> Block:
    step = r.step
    parts = sorted(step.components.items(), key=lambda x: -x[1])
    return Block(
        "Step time",
        header=["part", "seconds|s", "share|%", "hidden beside it|s"],
        rows=[
            *(
                [words(name), value, value / step.seconds, step.hidden.get(name) or ""]
                for name, value in parts
                if max(value, step.hidden.get(name, 0.0)) > SEEN * step.seconds
            ),
            ["step", step.seconds, "", ""],
        ],
        order="longest part first",
        chart=waterfall(r),
    )


def communication_block(r: Estimate) -> Block:
    """Every collective, transfer and copy of a step."""
    block = Block(
        "Communication per step, slowest rank",
        header=[
            *("operation", "group", "what", "link", "calls|,.0f", "bytes each|traffic", "time|s"),
            "hidden|s",
        ],
        order="longest first",
        drop=("link", "calls"),
    )
    for c in sorted(r.communication, key=lambda c: -c.seconds):
        block.rows.append(
            [
                *(c.operation, c.group, c.what, c.link, c.count, c.bytes, c.seconds),
                c.hidden_seconds if c.hidden_seconds > 0 else None,
            ]
        )
    if not block.rows:
        block.header = []
        block.text.append("none: one GPU")
    return block


def family_blocks(r: Estimate) -> list[Block]:
    """The best layout of each family, and the fastest of all."""
    families = [a for a in r.alternatives if a.family]
    top = [a for a in r.alternatives if a.rank]
    best = Block(
        "Best of each family",
        header=["family", "stack", "step|s", "memory|B", "to fit|chance", "layout, or why not"],
        order="from replicas to the most divided",
        drop=("stack",),
        links=[Link(a.command) if a.fits else None for a in families],
    )
    for a in families:
        best.rows.append(
            [
                *(a.family or "", a.stack, a.step_seconds if a.fits else "does not fit"),
                *(a.device_bytes, a.fit_chance, a.reason or describe(a.layout)),
            ]
        )
    blocks = [best]
    if len(top) > 1:
        ranking = Block(
            "Fastest layouts that fit",
            header=[">#", "step|s", "memory|B", "to fit|chance", "stack", "layout"],
            order=BY_STEP,
            drop=("stack",),
            links=[Link(a.command) for a in top],
        )
        for a in top:
            ranking.rows.append(
                [
                    *(str(a.rank), a.step_seconds, a.device_bytes, a.fit_chance, a.stack),
                    describe(a.layout),
                ]
            )
        blocks.append(ranking)
    return blocks


def _limit(value: float | None, unit: str | None) -> str:
    """Value or limit of a judged requirement."""
    return percent(value) if unit == "1" else show(value, unit or "")


def requirement_sentences(r: Estimate) -> list[tuple[bool, str]]:
    """(whether it holds, the sentence) of every requirement."""
    out = []
    for requirement in r.requirements:
        actual = (
            ""
            if requirement.value is None
            else f", here {_limit(requirement.value, requirement.unit)}"
        )
        out.append(
            (
                requirement.holds,
                f"{requirement.text} {'holds' if requirement.holds else 'does not hold'}{actual}",
            )
        )
    return out


def requirement_blocks(r: Estimate) -> list[Block]:
    """Requirements, judged; none where none were made."""
    if not r.requirements:
        return []
    block = Block(
        "Requirements", header=["requirement", ">value", ">limit", "verdict"], order="as given"
    )
    for requirement in r.requirements:
        verdict = "holds" if requirement.holds else "DOES NOT HOLD"
        block.rows.append(
            [
                requirement.text,
                _limit(requirement.value, requirement.unit),
                _limit(requirement.limit, requirement.unit),
                verdict,
            ]
        )
    return [block]


def offload_blocks(r: Estimate) -> list[Block]:
    """Recompute against offloading over several host links."""
    offload = r.offload
    if not offload:
        return []
    block = Block(
        "Offload or recompute",
        header=[*("what", "link", "step|s", "change|+s", "of it waiting|s", "memory|+B", "fits")],
        order="recompute, then each link",
    )
    block.text.append("against the same layout with nothing recomputed and nothing offloaded")
    layer = offload.layer
    if layer is not None:
        verdict = "offload" if layer.transfer_s < layer.recompute_s else "recompute"
        block.text.append(
            f"one layer keeps {show(layer.bytes, 'B')} for backward: each way"
            f" {show(layer.transfer_s, 's')} over {offload.link}, run again in"
            f" {show(layer.recompute_s, 's')}; one copy is"
            f" {'shorter' if verdict == 'offload' else 'longer'} than the recompute"
        )
    for c in offload.choices:
        block.rows.append(
            [
                *(c.what, c.link or None, c.step_seconds, c.step_change_s, c.transfer_s),
                *(-c.bytes_saved, c.fits),
            ]
        )
    return [block]


def basis_block(r: Estimate, with_assumptions: bool = True) -> Block:
    p = r.provenance
    block = Block("What this rests on")
    block.text = [
        (
            f"step time depends {percent(p.measured_frac)} on measured,"
            f" {percent(p.vendor_frac)} on vendor and {percent(p.assumed_frac)} on assumed"
            " numbers (--explain lists them)"
        ),
        *(f"assumed: {text}" for text in r.assumptions if with_assumptions),
        *_searched(r.search),
    ]
    return block


def software_words(software: Mapping[str, str]) -> str:
    """The free options of the stack that the search chose, as they are typed."""
    switches = {"True": ""}
    each = software.items()
    return " ".join(f"{flag(name)} {switches.get(value, value)}".strip() for name, value in each)


def _searched(counts: SearchCounts) -> list[str]:
    """How many layouts the answer is the best of, and what no search tries."""
    chosen = software_words(counts.software)
    out = (
        [f"searched with the layout: {chosen} (--stack-defaults: as the stack comes)"]
        if chosen
        else []
    )
    if counts.excluded:
        out.append(
            f"layouts: {counts.evaluated:,} evaluated, {counts.excluded:,} excluded by a bound"
        )
    if counts.not_searched:
        out.append(f"not searched: {'; '.join(counts.not_searched)}")
    return out


def scenario_block(r: Estimate) -> Block:
    """Every option with its value and where it is from, what files say first."""
    header = ["option", "value", "from", "where"]
    block = Block("Scenario", header=header, order="what files say first", folded=True)
    order = ("file", "typed", "run", "publication", "default", "search")
    for name, source in sorted(r.scenario.items(), key=lambda pair: order.index(pair[1].origin)):
        value = "; ".join(source.value) if isinstance(source.value, list) else str(source.value)
        where = source.where + ("" if source.over is UNSET else f"; {source.over}")
        block.rows.append([flag(name), value, source.origin, where])
    return block
