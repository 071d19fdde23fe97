"""Blocks of text for `dpplan recommend`."""

from __future__ import annotations

from planner.show.text import Block, Report, layout_text
from planner.units import show

_MOST_MODELS = 12  # models of the catalogue that are listed


def recommend_blocks(r: Report) -> list[Block]:
    """The answer first, then what was tried and why the rest fell."""
    kinds = {
        "cluster": _cluster,
        "bandwidth": _bandwidth,
        "batch": _batch,
        "model": _model,
        "offload": _offload,
    }
    blocks = kinds[r["question"]](r)
    if r["notes"]:
        blocks.append(Block("What this rests on", text=list(r["notes"])))
    return blocks


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


# ------------------------------------------------------------------------------------------------ c


def _cluster(r: Report) -> list[Block]:
    limits = r["limits"]
    asked = [
        text
        for value, text in (
            (r["tokens"], f"{show(r['tokens'] or 0, 'count')} tokens"),
            (limits["days"], f"within {limits['days']} days"),
            (limits["budget_usd"], f"for {_money(limits['budget_usd'])} USD"),
            (limits["power_kw"], f"with {limits['power_kw']} kW"),
        )
        if value is not None
    ]
    head = Block(f"{r['model']['title']}: {', '.join(asked) or 'the clusters it fits'}")
    for aim, row in r["answers"].items():
        head.text.append(f"{aim:<10}  {_sentence(row) if row else 'none'}")
    head.text += [f"            {row['command']}" for row in _distinct(r)]
    head.text.append(
        f"tried       {r['tried']:,} clusters of {len(r['types'])} kinds: whole nodes over which"
        " the batch, heads and layers divide"
    )
    found = [one for one in r["types"] if one["answer"]]
    table = Block(f"The {r['goal']} of each kind")
    days = r["tokens"] is not None
    table.header = [
        "kind",
        ">GPUs",
        ">step",
        *([">days", ">80 % band", "within"] if days else []),
        ">USD",
        *([">kWh"] if days else [">USD/h"]),
        ">free",
        "limited by",
        "one size smaller",
        "layout",
    ]
    for one in found:
        row = one["answer"]
        spread = (
            [
                f"{row['days']:,.1f}",
                f"{row['days_low']:,.1f} .. {row['days_high']:,.1f}",
                row["verdict"] or "-",
            ]
            if days
            else []
        )
        last = f"{row['energy_kwh']:,.0f}" if days else _money(row["usd_per_hour"])
        table.rows.append(
            [
                one["machine"],
                f"{row['gpus']:,}",
                show(row["step_seconds"], "s"),
                *spread,
                _money(row["cost_usd"]),
                last,
                show(row["headroom_bytes"], "B"),
                row["bottleneck"],
                _smaller(one),
                f"{layout_text(row['layout'])} [{row['stack']}]",
            ]
        )
    blocks = [head, table] if found else [head]
    fell = [one for one in r["types"] if not one["answer"]]
    if fell:
        blocks.append(
            Block(
                "Why the others fell",
                header=["kind", "reason"],
                rows=[[one["machine"], one["reason"]] for one in fell],
            )
        )
    return blocks


def _distinct(r: Report) -> list[Report]:
    """Answers without repeats."""
    rows: list[Report] = []
    for row in r["answers"].values():
        if row is not None and all(row["command"] != other["command"] for other in rows):
            rows.append(row)
    return rows


def _sentence(row: Report) -> str:
    run = ""
    if row["days"] is not None:
        run = (
            f": {row['days']:,.1f} days ({row['days_low']:,.1f} .. {row['days_high']:,.1f}), "
            + ("no price known" if row["cost_usd"] is None else f"{row['cost_usd']:,.0f} USD")
            + (f", {row['verdict']}" if row["verdict"] else "")
        )
    return f"{row['gpus']:,} x {row['machine']}{run}"


def _smaller(one: Report) -> str:
    """What stands against fewer GPUs than the smallest cluster of this kind that is within the
    limits."""
    if one["below"]:
        return f"{one['below']['gpus']:,}: {one['below']['why']}"
    return one["left_out"] or "none"


# ------------------------------------------------------------------------------------------------ b


def _bandwidth(r: Report) -> list[Block]:
    cluster, fits = r["cluster"], r["memory"]["fits"]
    head = Block(
        f"{r['model']} on {cluster['gpus']:,} x {cluster['gpu_title']}: bandwidth per GPU that"
        " makes communication free"
    )
    head.text = [
        f"layout    {layout_text(r['layout'])} [{r['stack']}]{'' if fits else ' - DOES NOT FIT'}",
        f"step      {show(r['step']['seconds'], 's')}",
    ]
    for wire, one in r["wires"].items():
        head.text.append(
            f"{wire}: {_speed(one['bytes_per_s_per_gpu'])} per GPU, waits"
            f" {show(one['exposed_s'], 's')}, {_percent(one['exposed_frac'])} of the step; without"
            f" a limit the step takes {show(one['step_unlimited_s'], 's')}"
        )
        head.text += [
            f"  below {100 * float(share):g} %: {_needed(need, one)}"
            for share, need in one["free"].items()
        ]
    blocks = [head]
    if r["searched"]:
        table = Block(
            "Each bandwidth between nodes with its own layout",
            header=[">times", ">per GPU", ">step", ">exposed", "layout"],
        )
        for one in r["searched"]:
            table.rows.append(
                [
                    f"{one['times']:g}",
                    _speed(one["bytes_per_s_per_gpu"]),
                    show(one["step_seconds"], "s"),
                    _percent(one["exposed_frac"]),
                    layout_text(one["layout"]),
                ]
            )
        for share, need in r["searched_free"].items():
            said = "no bandwidth tried" if need is None else f"from {_speed(need)} per GPU on"
            table.text.append(
                f"exposed traffic between nodes below {100 * float(share):g} % of the step: {said}"
            )
        blocks.append(table)
    return blocks


def _speed(value: float) -> str:
    return f"{show(value, 'B/s')} ({value * 8 / 1e9:,.4g} Gbit/s)"


def _needed(need: float | None, wire: Report) -> str:
    if need is None:
        return f"no bandwidth suffices, latency alone keeps {_percent(wire['latency_frac'])}"
    return (
        "at any bandwidth"
        if need == 0
        else f"{_speed(need)} per GPU, {need / wire['bytes_per_s_per_gpu']:,.3g} times as much"
    )


# ------------------------------------------------------------------------------------------------ b


def _batch(r: Report) -> list[Block]:
    table = Block(
        f"{r['model']['title']} on {r['gpus']:,} x {r['gpu_title']}: global batch, sequences of"
        f" {r['seq_len']:,} tokens"
    )
    for share, size in r["saturates"].items():
        table.text.append(
            f"within {100 * float(share):g} % of the best from {size:,} sequences on,"
            f" {show(size * r['seq_len'], 'count')} tokens"
        )
    best = f"best at {r['best']:,}" + (
        ", the largest tried" if r["best"] == r["rows"][-1]["global_batch"] else ""
    )
    table.text.append(
        f"{best}; {r['tried']} batches tried, {len(r['rows'])} with a layout that fits"
    )
    table.header = [
        ">batch",
        ">tokens",
        ">step",
        ">tokens/s/GPU",
        ">of the best",
        ">MFU",
        "bottleneck",
        "layout",
    ]
    for row in r["rows"]:
        rate = row["throughput"]
        table.rows.append(
            [
                f"{row['global_batch']:,}",
                show(row["tokens_per_step"], "count"),
                show(row["step"]["seconds"], "s"),
                f"{rate['tokens_per_s_per_gpu']:,.0f}",
                _percent(row["of_best_frac"]),
                _percent(rate["mfu"]),
                row["step"]["bottleneck"],
                layout_text(row["layout"]),
            ]
        )
    return [table]


# ------------------------------------------------------------------------------------------------ m


def _model(r: Report) -> list[Block]:
    title = f"Largest model on {r['gpus']:,} x {r['gpu_title']}"
    limits = r["limits"]
    if limits["days"] is not None:
        title += f" within {limits['days']:g} days"
    if limits["budget_usd"] is not None:
        title += f" for {_money(limits['budget_usd'])} USD"
    head = Block(title)
    best, family = r["catalogue"]["answer"], r["family"]
    head.text.append(f"catalogue  {_told(best)}" if best else "catalogue  none of the models")
    if family:
        shape = family["shape"]
        told = (
            "no scaled shape"
            if family["answer"] is None
            else (
                f"{_told(family['answer'])}: {shape['layers']} layers, hidden {shape['hidden']:,},"
                f" {shape['heads']} heads"
            )
        )
        head.text.append(f"scaled     {told}")
        if family["above"]:
            above = family["above"]
            why = above["refused"] or (
                "does not fit" if not above["fits"] else f"takes {above['days']:,.1f} days"
            )
            head.text.append(
                f"           the next, {show(above['parameters'], 'count')} with {above['layers']}"
                f" layers, {why}"
            )
        head.text.append(f"           rule: {family['rule']}")
        head.text.append("           --model-out FILE writes it for --model")
    table = Block(
        "Models of the catalogue",
        header=["model", ">parameters", "fits", ">memory", ">step", ">days", ">USD", "layout"],
    )
    rows = r["catalogue"]["rows"]
    first = next((i for i, row in enumerate(rows) if row["within"]), 0)
    start = max(0, min(first - 3, len(rows) - _MOST_MODELS))
    for row in rows[start : start + _MOST_MODELS]:
        if row["refused"] is not None:
            table.rows.append(
                [
                    row["model"],
                    show(row["parameters"], "count"),
                    "no",
                    "-",
                    "-",
                    "-",
                    "-",
                    row["refused"],
                ]
            )
            continue
        days = "-" if row["days"] is None else f"{row['days']:,.1f}"
        table.rows.append(
            [
                row["model"],
                show(row["parameters"], "count"),
                "yes" if row["fits"] else "no",
                show(row["memory"]["device_bytes"], "B"),
                show(row["step"]["seconds"], "s"),
                days,
                _money(row["cost_usd"]),
                layout_text(row["layout"]),
            ]
        )
    table.text.append(
        f"{len(table.rows)} of {len(rows)} shown, largest first; smaller ones are not tried"
    )
    return [head, table]


def _told(row: Report) -> str:
    days = "" if row["days"] is None else f", {row['days']:,.1f} days"
    return (
        f"{row['title']}, {show(row['parameters'], 'count')} parameters: step"
        f" {show(row['step']['seconds'], 's')}, {show(row['memory']['headroom_bytes'], 'B')}"
        f" free{days}"
    )


# ------------------------------------------------------------------------------------------------ o


def _offload(r: Report) -> list[Block]:
    layer = r["layer"]
    hidden = layer["hidden_bytes_per_s"]
    head = Block(
        f"Recompute or swap a layer of {r['model']['title']} on {r['gpu']}",
        text=[
            (
                f"layout      {layout_text(r['layout'])}  [{r['stack']}], {r['seq_len']:,} tokens"
                " per sequence"
            ),
            (
                f"a layer     keeps {show(layer['kept_bytes'], 'B')} for backward,"
                f" {show(layer['recompute_kept_bytes'], 'B')} where it is recomputed"
            ),
            (
                f"            forward {show(layer['forward_s'], 's')}, backward"
                f" {show(layer['backward_s'], 's')}, to run forward again"
                f" {show(layer['recompute_s'], 's')}"
            ),
            (
                f"break-even  above {show(layer['break_even_bytes_per_s'], 'B/s')} per GPU and"
                " direction swapping costs less than recompute, from"
                f" {'-' if hidden is None else show(hidden, 'B/s')} on nothing"
            ),
        ],
    )
    by_link = Block(
        "By link to host memory",
        text=[
            "per GPU with all GPUs of the host copying; adds: beside the computation of the same"
            " layer"
        ],
        header=[
            "link",
            ">per GPU",
            ">copy",
            ">hidden",
            ">swap adds",
            ">in turn",
            ">recompute adds",
            "cheaper",
        ],
    )
    for one in r["links"]:
        own = " (this node)" if one["id"] == r["host_link"] else ""
        by_link.rows.append(
            [
                f"{one['id']}{own}",
                show(one["bytes_per_s"], "B/s"),
                show(one["copy_s"], "s"),
                show(one["hidden_s"], "s"),
                show(one["out_exposed_s"] + one["back_exposed_s"], "s"),
                show(one["in_turn_s"], "s"),
                show(one["recompute_s"], "s"),
                one["cheaper"],
            ]
        )
    names = [one["id"] for one in r["links"]]
    lengths = Block(
        "By sequence length",
        header=[">tokens", ">kept", ">recompute", ">break-even", ">hides from", *names],
    )
    for row in r["lengths"]:
        free = row["hidden_bytes_per_s"]
        lengths.rows.append(
            [
                f"{row['seq_len']:,}",
                show(row["kept_bytes"], "B"),
                show(row["recompute_s"], "s"),
                show(row["break_even_bytes_per_s"], "B/s"),
                "-" if free is None else show(free, "B/s"),
                *(one["cheaper"] for one in row["links"]),
            ]
        )
    bounds = Block(
        "What ZeRO-Infinity's equations ask for",
        text=[
            "bandwidth of all ranks that share it, for a share of the achievable matrix rate;"
            " nothing overlaps (arXiv 2104.07857)"
        ],
        header=[
            "what moves",
            ">FLOP per byte",
            ">ranks",
            *(f">{one['share_frac']:.0%}" for one in r["bounds"][0]["needed"]),
            ">this link gives",
        ],
    )
    for one in r["bounds"]:
        bounds.rows.append(
            [
                one["what"],
                f"{one['flop_per_byte']:,.0f}",
                f"{one['ranks']:,}",
                *(show(need["bytes_per_s"], "B/s") for need in one["needed"]),
                _percent(one["efficiency_frac"]),
            ]
        )
    return [head, by_link, lengths, bounds]
