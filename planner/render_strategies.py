"""Blocks of text for `dpplan allreduce` and `dpplan strategies`."""

from __future__ import annotations

from planner.render import Block, Report
from planner.units import show


def all_reduce_blocks(r: Report) -> list[Block]:
    """Seconds by size, a map of the fastest, and the sizes at which it changes."""
    c = r["cluster"]
    used = [one for one in r["algorithms"] if one["refused"] is None]
    table = Block(
        f"All-reduce over {c['gpus']:,} x {c['gpu']}: {c['nodes']:,} node{'s' * (c['nodes'] > 1)}, {c['intra_node']} inside"
        + (f", {c['inter_node']} between" if c["nodes"] > 1 else ""),
        header=[">bytes", *(f">{one['name']}" for one in used), "fastest", ">bus bandwidth", ">estimates take"],
    )
    table.text = [f"{one['letter']}  {one['name']}: {one['title']} ({one['source']})" for one in used]
    table.text += [f"left out: {one['name']}, {one['refused']}" for one in r["algorithms"] if one["refused"] is not None]
    table.text.append(
        f"server: {r['servers']:,} machines of their own, each with the cards of a node; no candidate for the fastest"
    )
    for row in r["sizes"]:
        table.rows.append([
            show(row["bytes"], "B"), *(show(row["seconds"][one["name"]], "s") for one in used), row["fastest"],
            show(row["bus_bytes_per_s"], "B/s"), show(row["estimated_s"], "s"),
        ])  # fmt: skip
    return [table, _map(r), _crossovers(r)]


def _map(r: Report) -> Block:
    letters = {one["name"]: one["letter"] for one in r["algorithms"]}
    sizes = r["map"]["bytes"]
    block = Block("Fastest by size and ranks", header=[">ranks", ">nodes", f"{show(sizes[0], 'B')} to {show(sizes[-1], 'B')}"])
    for row in r["map"]["rows"]:
        line = "".join(letters[name] for name in row["fastest"])
        block.rows.append([f"{row['ranks']:,}", f"{row['nodes']:g}", line])
    block.text = ["each column is sqrt(2) times the size of the one before"]
    return block


def _crossovers(r: Report) -> Block:
    block = Block("Where the fastest changes", header=[">ranks", ">from", "fastest below", "fastest above"])
    for row in r["crossovers"]:
        block.rows.append([f"{row['ranks']:,}", show(row["bytes"], "B"), row["below"], row["above"]])
    return block
