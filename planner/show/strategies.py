"""Blocks of text for `dpplan allreduce` and `dpplan strategies`."""

from __future__ import annotations

from planner.show.text import Block, Report
from planner.units import show


def all_reduce_blocks(r: Report) -> list[Block]:
    """Seconds by size, a map of the fastest, and the sizes at which it changes."""
    c = r["cluster"]
    used = [one for one in r["algorithms"] if one["refused"] is None]
    table = Block(
        f"All-reduce over {c['gpus']:,} x {c['gpu']}: {c['nodes']:,} node{'s' * (c['nodes'] > 1)},"
        f" {c['intra_node']} inside" + (f", {c['inter_node']} between" if c["nodes"] > 1 else ""),
        header=[
            ">bytes",
            *(f">{one['name']}" for one in used),
            "fastest",
            ">bus bandwidth",
            ">estimates take",
        ],
    )
    table.text = [
        f"{one['letter']}  {one['name']}: {one['title']} ({one['source']})" for one in used
    ]
    table.text += [
        f"left out: {one['name']}, {one['refused']}"
        for one in r["algorithms"]
        if one["refused"] is not None
    ]
    table.text.append(
        f"server: {r['servers']:,} machines of their own, each with the cards of a node; no"
        " candidate for the fastest"
    )
    for row in r["sizes"]:
        table.rows.append(
            [
                show(row["bytes"], "B"),
                *(show(row["seconds"][one["name"]], "s") for one in used),
                row["fastest"],
                show(row["bus_bytes_per_s"], "B/s"),
                show(row["estimated_s"], "s"),
            ]
        )
    return [table, _map(r), _crossovers(r)]


def _map(r: Report) -> Block:
    letters = {one["name"]: one["letter"] for one in r["algorithms"]}
    sizes = r["map"]["bytes"]
    block = Block(
        "Fastest by size and ranks",
        header=[">ranks", ">nodes", f"{show(sizes[0], 'B')} to {show(sizes[-1], 'B')}"],
    )
    for row in r["map"]["rows"]:
        line = "".join(letters[name] for name in row["fastest"])
        block.rows.append([f"{row['ranks']:,}", f"{row['nodes']:g}", line])
    block.text = ["each column is sqrt(2) times the size of the one before"]
    return block


def _crossovers(r: Report) -> Block:
    block = Block(
        "Where the fastest changes", header=[">ranks", ">from", "fastest below", "fastest above"]
    )
    for row in r["crossovers"]:
        block.rows.append(
            [f"{row['ranks']:,}", show(row["bytes"], "B"), row["below"], row["above"]]
        )
    return block


# --------------------------------------------------------------------------------------------------

_WIDTH = 96  # characters of a timeline


def strategy_blocks(r: Report) -> list[Block]:
    """One table of all strategies; in full where one was asked for."""
    head = f"{r['model']} on {r['cluster']['gpus']:,} x {r['cluster']['gpu']}"
    found = [one for one in r["strategies"] if one["refused"] is None]
    table = Block(
        f"{head}: {r['global_batch']:,} x {r['seq_len']:,} tokens per step, {r['precision']}",
        header=[
            "strategy",
            "by",
            ">memory",
            "fits",
            ">compute",
            ">exposed",
            ">step",
            ">forward",
            ">backward",
            ">optimizer",
            ">between nodes",
            ">steps",
            ">us per token",
        ],
    )
    for one in found:
        step, sent = one["step"], one["sent_bytes"]
        by = f"plan {one['stack']}" if one["evaluated"] else f"formulas, {one['stack']}"
        table.rows.append(
            [
                one["name"],
                by,
                show(one["device_bytes"], "B"),
                "yes" if one["fits"] else "no",
                *(show(step[key], "s") for key in ("compute_s", "exposed_s", "seconds")),
                *(
                    show(sent[key], "traffic")
                    for key in ("forward", "backward", "optimizer", "between_nodes")
                ),
                f"x {one['statistics']['steps_factor']:.3g}",
                f"{1e6 * one['seconds_per_token']:.3g}",
            ]
        )
    best = min(
        (one for one in found if one["fits"]),
        key=lambda one: one["seconds_per_token"],
        default=None,
    )
    if best is not None:
        table.text.append(f"least time per token of what fits: {best['name']}, {best['title']}")
    table.text += [
        (
            f"capacity {show(r['cluster']['capacity_bytes'], 'B')} per GPU; bytes are what a GPU"
            " sends per step in each phase; steps: to the same loss, a parameter with its source"
            " (--json)"
        ),
        "each with the micro-batch and recompute that are fastest for it",
    ]
    blocks = [table]
    refused = [one for one in r["strategies"] if one["refused"] is not None]
    if refused:
        blocks.append(
            Block(
                "Left out",
                header=["strategy", "why"],
                rows=[[one["name"], one["refused"]] for one in refused],
            )
        )
    if len(r["strategies"]) == 1 and found:
        blocks += _in_full(found[0])
    return blocks


def _in_full(one: Report) -> list[Block]:
    layout, step = one["layout"], one["step"]
    block = Block(one["title"])
    block.text = [
        f"what differs   {one['differs']}",
        f"source         {one['source']}",
        (
            f"layout         dp {layout['dp']}, zero {layout['zero']}, recompute"
            f" {layout['recompute']}, micro-batch {layout['micro_batch']} x {layout['grad_accum']}"
        ),
        (
            f"step           {show(step['seconds'], 's')}, {show(step['hidden_s'], 's')} of"
            " communication beside compute"
        ),
        (
            f"to the same loss  x {one['statistics']['steps_factor']:.3g} steps:"
            f" {one['statistics']['source']}"
        ),
    ]
    if one["break_even_bytes_per_s"] is not None:
        block.text.append(
            f"break-even     pays below {show(one['break_even_bytes_per_s'], 'B/s')} per GPU, where"
            " nothing hides the exchange"
        )
    return [block] if one["timeline"] is None else [block, _timeline(one["timeline"])]


def _timeline(line: Report) -> Block:
    """Backward above, reductions below; a digit is the last one of the bucket's number."""
    found = line["buckets"]
    end = max(line["backward_s"], found[-1]["end_s"])
    block = Block(
        "Buckets of the last backward pass",
        header=[">bucket", ">gradients", ">bytes", ">ready", ">start", ">end"],
    )
    busy = [" "] * _WIDTH
    for i, one in enumerate(found):
        low, high = (round(_WIDTH * one[key] / end) for key in ("start_s", "end_s"))
        for column in range(min(low, _WIDTH - 1), max(high, low + 1)):
            busy[min(column, _WIDTH - 1)] = str(i % 10)
    work = round(_WIDTH * line["backward_s"] / end)
    block.text = [
        (
            f"{len(found)} buckets; exposed {show(line['exposed_s'], 's')}:"
            f" {show(line['tail_s'], 's')} after backward, {show(line['contention_s'], 's')} of"
            " slower backward beside them"
        ),
        "backward  " + "=" * work,
        "reduce    " + "".join(busy).rstrip(),
        f"          0 to {show(end, 's')}",
    ]
    shown = (
        range(len(found))
        if len(found) <= 12
        else (0, 1, 2, len(found) // 2, len(found) - 2, len(found) - 1)
    )
    for i in shown:
        one = found[i]
        block.rows.append(
            [
                str(i),
                str(one["tensors"]),
                show(one["bytes"], "B"),
                *(show(one[k], "s") for k in ("ready_s", "start_s", "end_s")),
            ]
        )
    if len(shown) < len(found):
        block.text.append(f"{len(shown)} of {len(found)} buckets (--json lists all)")
    return block
