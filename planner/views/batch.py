"""Blocks of text for `dpplan batch`."""

from __future__ import annotations

from planner.specs.documents.batch import Regime, RegimePoint, TimeToTarget
from planner.units import percent, show
from planner.views.compare import amdahl_text, chart_lines, legend
from planner.views.view import Block


def batch_blocks(document: TimeToTarget) -> list[Block]:
    """What batches need, a table per regime with the reason that it ends, days over GPUs, and what
    this rests on."""
    blocks = [_verdict(document), _batches(document)]
    blocks += [_regime(line, document.gpu_title) for line in document.regimes.values()]
    drawn = [
        (name, [(float(point.value), point.days) for point in line.points if point.fits])
        for name, line in document.regimes.items()
    ]
    drawn = [(name, points) for name, points in drawn if points]
    if drawn:
        chart = Block("Days to the target over GPUs", text=chart_lines(drawn, False))
        chart.text.append(legend([name for name, _ in drawn]) + "; later ones over earlier ones")
        blocks.append(chart)
    return [*blocks, _sensitivity(document), Block("Notes", text=document.notes)]


def _verdict(document: TimeToTarget) -> Block:
    """How far more GPUs help each way to choose the batch."""
    lines = []
    for line in document.regimes.values():
        fitting = [point for point in line.points if point.fits and point.days is not None]
        if not fitting:
            lines.append(f"{line.title}: nothing fits")
            continue
        best = min(fitting, key=lambda point: point.days or 0.0)
        pays = "" if line.pays_until is None else f"; more GPUs pay up to {line.pays_until:,}"
        lines.append(
            f"{line.title}: {show(best.days, 'days')} at best, on {best.value:,} GPUs with batch"
            f" {best.global_batch:,}{pays}"
        )
    return Block(f"{document.model.title} on {document.gpu_title}: time to the target", lines)


def _count(value: float) -> str:
    return show(value, "count")


def _batches(document: TimeToTarget) -> Block:
    critical, rule, least = document.critical_batch, document.learning_rate, document.least
    times = "x " if rule.reference is None else ""
    reference = (
        "given as factors (--learning-rate)"
        if rule.reference is None
        else f"{rule.reference:g} at the reference batch"
    )
    warm = rule.warmup_tokens is not None
    block = Block(
        f"{document.model.title}: what a batch needs to reach the target, sequences of"
        f" {document.seq_len:,} tokens",
        text=[
            (
                f"critical batch  {_count(critical.tokens)} tokens, {show(critical.sequences, '')}"
                " sequences"
            ),
            (
                f"least           {_count(least.tokens)} tokens with a tiny batch,"
                f" {least.steps:,.0f} steps with an endless one; twice either at the critical batch"
            ),
            f"learning rate   {'linear' if rule.rule == 'linear' else 'sqrt'} rule for this"
            f" optimizer ({rule.source}); {reference}",
        ],
        header=[
            *(">batch", ">tokens/step", ">of critical", ">steps", ">tokens", ">of given"),
            *(">rate, linear", ">sqrt", ">saturating"),
            *((">warm-up steps", ">of the run") if warm else ()),
        ],
        order="smallest first",
        drop=("saturating", "of the run", "of given", "tokens/step", "warm-up steps"),
    )
    for batch in document.batches:
        rates = (batch.rates.linear, batch.rates.root, batch.rates.saturating)
        block.rows.append(
            [
                f"{batch.global_batch:,}",
                _count(batch.tokens_per_step),
                f"{batch.of_critical:.3g}",
                f"{batch.steps:,}",
                _count(batch.tokens),
                f"x {batch.tokens_factor:.3g}",
                *(f"{times}{rate:.3g}" for rate in rates),
                *((f"{batch.warmup_steps:,}", percent(batch.warmup_frac)) if warm else ()),
            ]
        )
    return block


def _regime(line: Regime, gpu_title: str) -> Block:
    block = Block(
        f"On {gpu_title}: {line.title}",
        header=[
            *(">GPUs", ">batch", ">of critical", ">accumulation", ">steps", ">step", ">days"),
            *(">USD", ">speed-up", ">efficiency", ">added GPU brings", ">comm./comp.", ">exposed"),
            "bottleneck",
        ],
        order="fewest GPUs first",
        drop=("comm./comp.", "exposed", "speed-up", "accumulation", "USD", "steps", "of critical"),
    )
    for point in line.points:
        head = [f"{point.value:,}", f"{point.global_batch:,}", f"{point.of_critical:.3g}"]
        cells = _point_cells(point) if point.fits else [point.why]
        missing = len(block.header) - len(head) - len(cells)
        block.rows.append([*head, *[""] * missing, *cells])
    if line.why is None:
        block.text.append("nothing fits")
        return block
    block.text += [f"why         {line.why.sentence}", _crossed(line)]
    if line.amdahl is not None:
        block.text.append(amdahl_text(line.amdahl))
    if line.floor_days is not None:
        block.text.append(
            f"floor       {show(line.floor_days, 'days')}: the least steps, each as the shortest"
            " above without its exposed communication; more GPUs with this batch each do not go"
            " below"
        )
    return block


def _point_cells(point: RegimePoint) -> list[str]:
    return [
        f"{point.layout.grad_accum:,}",
        show(point.steps, ""),
        show(point.step_seconds, "s"),
        show(point.days, "days"),
        show(point.cost_usd, ""),
        f"{point.speed_up:,.2f}",
        percent(point.efficiency),
        percent(point.marginal_frac),
        f"{point.communication_ratio:.3f}",
        percent(point.exposed_frac),
        point.bottleneck,
    ]


def _crossed(line: Regime) -> str:
    beyond = (
        f"beyond the critical batch from {line.critical_crossed_at:,} GPUs on"
        if line.critical_crossed_at
        else "the batch stays below the critical one"
    )
    left = (
        f"no accumulation is left from {line.accumulation_gone_at:,} GPUs on"
        if line.accumulation_gone_at
        else "accumulation is left at every count"
    )
    return f"crossed     {beyond}; {left}"


def _sensitivity(document: TimeToTarget) -> Block:
    return Block(
        "Were the critical batch another one: at the most GPUs that fit",
        text=["grown: the batch grows with the GPUs; best: the batch that is fastest"],
        header=[
            *(">times", ">critical batch", ">grown: days", ">grown: efficiency"),
            *(">grown: pays up to", ">best: batch", ">best: days", ">best: efficiency"),
            ">best: pays up to",
        ],
        order="smallest critical batch first",
        drop=("grown: efficiency", "best: efficiency", "grown: pays up to", "best: pays up to"),
        rows=[
            [
                f"{row.factor:g}",
                _count(row.critical_tokens),
                show(row.weak.days, "days"),
                percent(row.weak.efficiency),
                show(row.weak.pays_until, ""),
                show(row.best.global_batch, ""),
                show(row.best.days, "days"),
                percent(row.best.efficiency),
                show(row.best.pays_until, ""),
            ]
            for row in document.sensitivity
            if row.weak.days is not None and row.best.days is not None
        ],
    )
