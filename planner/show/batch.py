"""Blocks of text for `dpplan batch`."""

from __future__ import annotations

from planner.show.compare import chart_lines, percent
from planner.show.text import Block, Report
from planner.units import show

_MARKS = "*o+"


def batch_blocks(r: Report) -> list[Block]:
    """What batches need, a table per regime with the reason that it ends, days over GPUs, and what
    this rests on."""
    curves = r["regimes"]
    blocks = [_batches(r), *(_regime(curve, r) for curve in curves.values())]
    drawn = [
        (name, [(p["value"], p["days"]) for p in c["points"] if p["fits"]])
        for name, c in curves.items()
    ]
    drawn = [(name, points) for name, points in drawn if points]
    if drawn:
        chart = Block("Days to the target over GPUs", text=chart_lines(drawn, False))
        chart.text.append(
            "  ".join(f"{_MARKS[i]} {name}" for i, (name, _) in enumerate(drawn))
            + "; later ones over earlier ones"
        )
        blocks.append(chart)
    return [*blocks, _sensitivity(r), Block("Notes", text=list(r["notes"]))]


def _count(value: float) -> str:
    return show(value, "count")


def _days(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if value >= 1 else f"{value:.3g}"


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _batches(r: Report) -> Block:
    c, rule, least = r["critical_batch"], r["learning_rate"], r["least"]
    block = Block(
        f"{r['model']['title']}: what a batch needs to reach the target, sequences of"
        f" {r['seq_len']:,} tokens"
    )
    block.text = [
        f"critical batch  {_count(c['tokens'])} tokens, {c['sequences']:,.0f} sequences",
        (
            f"least           {_count(least['tokens'])} tokens with a tiny batch,"
            f" {least['steps']:,.0f} steps with an endless one; twice either at the critical batch"
        ),
        f"learning rate   {'linear' if rule['rule'] == 'linear' else 'sqrt'} rule for this"
        f" optimizer ({rule['source']}); "
        + (
            "given as factors (--learning-rate)"
            if rule["reference"] is None
            else f"{rule['reference']:g} at the reference batch"
        ),
    ]
    warm = rule["warmup_tokens"] is not None
    block.header = [
        ">batch",
        ">tokens/step",
        ">of critical",
        ">steps",
        ">tokens",
        ">of given",
        ">rate, linear",
        ">sqrt",
        ">saturating",
    ]
    block.header += [">warm-up steps", ">of the run"] if warm else []
    for one in r["batches"]:
        cells = [
            f"{one['global_batch']:,}",
            _count(one["tokens_per_step"]),
            f"{one['of_critical']:.3g}",
            f"{one['steps']:,}",
            _count(one["tokens"]),
            f"x {one['tokens_factor']:.3g}",
            *(
                f"{'x ' if rule['reference'] is None else ''}{one['rates'][key]:.3g}"
                for key in ("linear", "root", "saturating")
            ),
        ]
        cells += [f"{one['warmup_steps']:,}", percent(one["warmup_frac"])] if warm else []
        block.rows.append(cells)
    return block


def _regime(curve: Report, r: Report) -> Block:
    block = Block(f"On {r['gpu_title']}: {curve['title']}")
    block.header = [
        ">GPUs",
        ">batch",
        ">of critical",
        ">accumulation",
        ">steps",
        ">step",
        ">days",
        ">USD",
        ">speed-up",
        ">efficiency",
        ">added GPU brings",
        ">comm./comp.",
        ">exposed",
        "bottleneck",
    ]
    for p in curve["points"]:
        head = [f"{p['value']:,}", f"{p['global_batch']:,}", f"{p['of_critical']:.3g}"]
        if not p["fits"]:
            block.rows.append(
                [*head, *[""] * (len(block.header) - len(head) - 1), p["why"].split(" - ")[0]]
            )
            continue
        block.rows.append(
            [
                *head,
                f"{p['layout']['grad_accum']:,}",
                f"{p['steps']:,.0f}",
                show(p["step_seconds"], "s"),
                _days(p["days"]),
                _money(p["cost_usd"]),
                f"{p['speed_up']:,.2f}",
                percent(p["efficiency"]),
                percent(p["marginal_frac"]),
                f"{p['communication_ratio']:.3f}",
                percent(p["exposed_frac"]),
                p["bottleneck"],
            ]
        )
    if curve["why"] is None:
        block.text.append("nothing fits")
        return block
    block.text += [f"why         {curve['why']['sentence']}", *_marks(curve)]
    if curve["amdahl"] is not None:
        a = curve["amdahl"]
        most = f", at most {a['most_speed_up']:,.0f} times the first" if a["most_speed_up"] else ""
        block.text.append(
            f"Amdahl      step = {show(a['serial_s'], 's')} + {show(a['parallel_gpu_s'], 's')} /"
            f" GPUs{most}; misses by up to {percent(abs(a['worst_residual_frac']))}"
        )
    if curve["floor_days"] is not None:
        block.text.append(
            f"floor       {_days(curve['floor_days'])} days: the least steps, each as the shortest"
            " above without its exposed communication; more GPUs with this batch each do not go"
            " below"
        )
    return block


def _marks(curve: Report) -> list[str]:
    crossed, gone = curve["critical_crossed_at"], curve["accumulation_gone_at"]
    said = [
        (
            f"beyond the critical batch from {crossed:,} GPUs on"
            if crossed
            else "the batch stays below the critical one"
        ),
        (
            f"no accumulation is left from {gone:,} GPUs on"
            if gone
            else "accumulation is left at every count"
        ),
    ]
    return [f"crossed     {'; '.join(said)}"]


def _sensitivity(r: Report) -> Block:
    block = Block("Were the critical batch another one: at the most GPUs that fit")
    block.header = [
        ">times",
        ">critical batch",
        ">grown: days",
        ">efficiency",
        ">pays up to",
        ">best: batch",
        ">days",
        ">efficiency",
        ">pays up to",
    ]
    for one in r["sensitivity"]:
        weak, best = one["weak"], one["best"]
        if weak["days"] is None or best["days"] is None:
            continue
        block.rows.append(
            [
                f"{one['factor']:g}",
                _count(one["critical_tokens"]),
                _days(weak["days"]),
                percent(weak["efficiency"]),
                f"{weak['pays_until']:,}",
                f"{best['global_batch']:,}",
                _days(best["days"]),
                percent(best["efficiency"]),
                f"{best['pays_until']:,}",
            ]
        )
    return block
