"""A search as blocks of text: the best layouts, the front as chart and table, the rejections."""

from __future__ import annotations

from planner.show.text import Block
from planner.specs.documents.plan import describe
from planner.specs.documents.search import Search
from planner.units import percent, show

_FRONT_ROWS = 20  # of the front, in a terminal; --json and --html have all
_CHART = (64, 14)  # columns and rows of characters


def search_blocks(found: Search) -> list[Block]:
    """Counts, the best layouts, the front as chart and table, and the rejections."""
    head = Block(
        "Search",
        [
            f"{found.evaluated:,} of {found.enumerated:,} layouts evaluated in"
            f" {show(found.seconds, 's')}, {found.feasible:,} fit"
        ],
    )
    front = Block("Front of time against memory", header=[">step", ">memory", "stack", "layout"])
    points = found.pareto
    if len(points) > 1:
        front.text = chart(
            [a.step_seconds for a in points],
            [a.device_bytes / 2**30 for a in points],
            "s per step",
            "GiB",
        )
    shown = points[:: -(-len(points) // _FRONT_ROWS)] if points else []
    for a in shown:
        front.rows.append(
            [show(a.step_seconds, "s"), show(a.device_bytes, "B"), a.stack, describe(a.layout)]
        )
    if len(shown) < len(points):
        front.text.append(
            f"{len(shown)} of {len(points)} layouts on the front (--json and --html have all)"
        )
    return [head, *([best_block(found), front] if found.feasible else []), *reason_blocks(found)]


def best_block(found: Search) -> Block:
    """The best layouts by the objective, and what a million tokens cost."""
    block = Block(f"Best layouts that fit, by {found.objective.replace('-', ' ')}")
    block.header = [">#", ">step", ">MFU", ">memory", ">USD/Mtoken", ">Wh/Mtoken", "stack"]
    block.header.append("layout")
    for i, r in enumerate(found.top):
        price = r.per_token.usd_per_million_tokens
        block.rows.append(
            [
                str(i + 1),
                show(r.step.seconds, "s"),
                percent(r.throughput.mfu),
                show(r.memory.device_bytes, "B"),
                "-" if price is None else f"{price:.4g}",
                f"{1000 * r.per_token.kwh_per_million_tokens:.4g}",
                r.stack.id,
                describe(r.layout),
            ]
        )
    return block


def reason_blocks(found: Search) -> list[Block]:
    """Why layouts were rejected, and what offloading would make fit."""
    why = Block("Rejected", header=["reason", ">layouts"])
    why.rows = [
        [reason, f"{count:,}"]
        for reason, count in sorted(found.rejected.items(), key=lambda x: -x[1])
    ]
    if found.shortfall is not None:
        least, median = (
            show(found.shortfall.least_bytes, "B"),
            show(found.shortfall.median_bytes, "B"),
        )
        why.text.append(
            f"of those that do not fit memory, the nearest is {least} short, the median {median}"
        )
    if not found.advice:
        return [why]
    help_ = Block("With offloading", header=["change", ">step", ">memory", "command"])
    help_.rows = [
        [a.change, show(a.step_seconds, "s"), show(a.device_bytes, "B"), a.command]
        for a in found.advice
    ]
    return [why, help_]


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
