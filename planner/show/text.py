"""Blocks of text and tables from the report dicts, shown by rich on a terminal and as plain ASCII
when piped."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from planner.units import show

Report = dict[str, Any]


@dataclass
class Block:
    """A title, sentences, and perhaps a table. Numbers are right-aligned where the header starts
    with '>'."""

    title: str
    text: list[str] = field(default_factory=list)
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def show_blocks(blocks: list[Block], plain: bool = False) -> None:
    """Print blocks: rich tables on a terminal, ASCII otherwise."""
    if plain or not sys.stdout.isatty():
        for block in blocks:
            print(ascii_block(block))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for block in blocks:
        console.print(Text(block.title, style="bold cyan"))
        for line in block.text:
            console.print(Text(line))
        if block.header:
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for name in block.header:
                table.add_column(
                    name.lstrip(">"),
                    justify="right" if name.startswith(">") else "left",
                    overflow="fold",
                )
            for row in block.rows:
                table.add_row(*(Text(cell) for cell in row))
            console.print(table)
        console.print()


def ascii_block(block: Block) -> str:
    """The block as ASCII lines."""
    lines = [block.title, "-" * len(block.title), *block.text]
    if block.header:
        names = [name.lstrip(">") for name in block.header]
        widths = [
            (
                max(len(names[i]), *(len(row[i]) for row in block.rows))
                if block.rows
                else len(names[i])
            )
            for i in range(len(names))
        ]
        right = [name.startswith(">") for name in block.header]

        def line(cells: list[str]) -> str:
            padded = [
                c.rjust(w) if r else c.ljust(w)
                for c, w, r in zip(cells, widths, right, strict=True)
            ]
            return "  ".join(padded).rstrip()

        lines += [
            line(names),
            "  ".join("-" * w for w in widths),
            *(line(row) for row in block.rows),
        ]
    return "\n".join(lines).encode("ascii", "backslashreplace").decode("ascii") + "\n"


def layout_text(layout: Report) -> str:
    """A layout in one line: only what differs from plain data parallelism."""
    parts = [f"{k} {layout[k]}" for k in ("tp", "pp", "vpp", "cp", "ep") if layout[k] > 1]
    parts.append(f"dp {layout['dp']}")
    if layout["zero"]:
        shard = (
            f" over {layout['shard_group']}"
            if layout["shard_group"] != layout["dp"] * layout["cp"]
            else ""
        )
        parts.append(f"zero {layout['zero']}{shard}")
    if layout["sequence_parallel"]:
        parts.append("sp")
    if layout["pp"] > 1:
        parts.append(layout["schedule"])
    parts += [
        f"recompute {layout['recompute']}",
        f"micro-batch {layout['micro_batch']} x {layout['grad_accum']}",
    ]
    if layout["offload"] != "none":
        parts.append(f"offload {layout['offload']}")
    if layout["placement"] != "tp-cp-dp-pp":
        parts.append(f"placement {layout['placement']}")
    return ", ".join(parts)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def limit_text(one: Report, key: str) -> str:
    """Value or limit of a judged requirement."""
    value, unit = one[key], one["unit"]
    if value is None:
        return "-"
    if unit == "1":
        return _percent(value)
    return (
        show(value, unit)
        if unit in ("B", "s")
        else f"{value:,.{1 if abs(value) < 1000 else 0}f} {unit}"
    )


_FRONT_ROWS = 20  # of the front, in a terminal; --json and --html have all
_CHART = (64, 14)  # columns and rows of characters


def search_blocks(found: Report) -> list[Block]:
    """Counts, the best layouts, the front as chart and table, and the rejections."""
    head = Block(
        "Search",
        [
            f"{found['evaluated']:,} of {found['enumerated']:,} layouts evaluated in"
            f" {show(found['seconds'], 's')}, {found['feasible']:,} fit"
        ],
    )
    by = found["objective"]
    title = (
        "Best layouts that fit, by time"
        if by == "time"
        else f"Best layouts that fit, by {by.replace('-', ' ')}"
    )
    top = Block(
        title,
        header=[">#", ">step", ">MFU", ">memory", ">USD/Mtoken", ">Wh/Mtoken", "stack", "layout"],
    )
    for i, r in enumerate(found["top"]):
        price = r["per_token"]["usd_per_million_tokens"]
        top.rows.append(
            [
                str(i + 1),
                show(r["step"]["seconds"], "s"),
                _percent(r["throughput"]["mfu"]),
                show(r["memory"]["device_bytes"], "B"),
                "-" if price is None else f"{price:.4g}",
                f"{1000 * r['per_token']['kwh_per_million_tokens']:.4g}",
                r["stack"]["id"],
                layout_text(r["layout"]),
            ]
        )
    front = Block("Front of time against memory", header=[">step", ">memory", "stack", "layout"])
    points = found["pareto"]
    if len(points) > 1:
        front.text = chart(
            [a["step_seconds"] for a in points],
            [a["device_bytes"] / 2**30 for a in points],
            "s per step",
            "GiB",
        )
    shown = points[:: -(-len(points) // _FRONT_ROWS)] if points else []
    for a in shown:
        front.rows.append(
            [
                show(a["step_seconds"], "s"),
                show(a["device_bytes"], "B"),
                a["stack"],
                layout_text(a["layout"]),
            ]
        )
    if len(shown) < len(points):
        front.text.append(
            f"{len(shown)} of {len(points)} layouts on the front (--json and --html have all)"
        )
    why = Block("Rejected", header=["reason", ">layouts"])
    why.rows = [
        [reason, f"{count:,}"]
        for reason, count in sorted(found["rejected"].items(), key=lambda x: -x[1])
    ]
    if found["shortfall"] is not None:
        least, median = (show(found["shortfall"][k], "B") for k in ("least_bytes", "median_bytes"))
        why.text.append(
            f"of those that do not fit memory, the nearest is {least} short, the median {median}"
        )
    blocks = [head, top, front, why] if found["feasible"] else [head, why]
    if found.get("advice"):
        help_ = Block("With offloading", header=["change", ">step", ">memory", "command"])
        help_.rows = [
            [a["change"], show(a["step_seconds"], "s"), show(a["device_bytes"], "B"), a["command"]]
            for a in found["advice"]
        ]
        blocks.append(help_)
    return blocks


def chart(x: list[float], y: list[float], x_title: str, y_title: str) -> list[str]:
    """Points as lines of text: y upwards, x to the right."""
    width, height = _CHART
    low_x, high_x, low_y, high_y = min(x), max(x), min(y), max(y)
    cells = [[" "] * width for _ in range(height)]
    for a, b in zip(x, y, strict=True):
        column = round((a - low_x) / (high_x - low_x or 1.0) * (width - 1))
        row = round((high_y - b) / (high_y - low_y or 1.0) * (height - 1))
        cells[row][column] = "*"
    labels = {0: f"{high_y:.4g}", height - 1: f"{low_y:.4g}"}
    margin = max(len(y_title), *(len(text) for text in labels.values()))
    lines = [f"{y_title:>{margin}}"]
    lines += [
        f"{labels.get(i, ''):>{margin}} |{''.join(line).rstrip()}" for i, line in enumerate(cells)
    ]
    lines.append(f"{'':>{margin}} +{'-' * width}")
    ends = f"{low_x:.4g}", f"{high_x:.4g} {x_title}"
    lines.append(
        f"{'':>{margin}}  {ends[0]}{ends[1]:>{max(width - len(ends[0]), len(ends[1]) + 1)}}"
    )
    return lines


def list_blocks(kind: str, entries: list[Report]) -> list[Block]:
    """One row per catalogue entry."""
    block = Block(f"{len(entries)} {kind}")
    if kind == "gpus":
        block.header = ["id", "title", ">memory", ">bandwidth", ">bf16", ">fp8", "node", "aliases"]
        for e in entries:
            rate = e["dense_flop_per_s"]
            low = [show(rate[p], "FLOP/s") if p in rate else "-" for p in ("bf16", "fp8")]
            block.rows.append(
                [
                    e["id"],
                    e["title"],
                    show(e["memory_bytes"], "B"),
                    show(e["memory_bytes_per_s"], "B/s"),
                    *low,
                    e["node"],
                    ", ".join(e["aliases"]),
                ]
            )
    elif kind == "models":
        block.header = ["id", ">parameters", ">active", ">layers", ">hidden", ">context", "aliases"]
        for e in entries:
            block.rows.append(
                [
                    e["id"],
                    f"{e['parameters']:,}",
                    show(e["active_parameters"], "count"),
                    str(e["layers"]),
                    str(e["hidden"]),
                    str(e["max_positions"]),
                    ", ".join(e["aliases"]),
                ]
            )
    elif kind == "networks":
        block.header = ["id", "title", "scope", ">one way", ">latency", ">all-reduce share"]
        for e in entries:
            block.rows.append(
                [
                    e["id"],
                    e["title"],
                    e["scope"],
                    show(e["bytes_per_s"], "B/s"),
                    show(e["latency_s"], "s"),
                    _percent(e["all_reduce_frac"]),
                ]
            )
    else:
        names = [k for k in entries[0] if k != "source"] if entries else []
        block.header = names
        block.rows = [
            [", ".join(map(str, e[k])) if isinstance(e[k], list) else str(e[k]) for k in names]
            for e in entries
        ]
    return [block]
