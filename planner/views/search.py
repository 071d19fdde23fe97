"""A search as blocks of text: the best layouts, the front as chart and table, the rejections."""

from __future__ import annotations

from planner.specs.documents.plan import describe
from planner.specs.documents.search import Search
from planner.units import chance_text, percent, show
from planner.views.estimate import room, title_of
from planner.views.view import Block, Fixed, words

_FRONT_ROWS = 20  # of the front, in a terminal; --json and --html have all
_CHART = (64, 14)  # columns and rows of characters


def search_blocks(found: Search, full: bool = False) -> list[Block]:
    """The best layouts, the front as a chart, the rejections; full: the front as a table, too."""
    fitting = [best_block(found), _front(found, full)] if found.feasible else []
    rests = Block("What this rests on", text=list(found.assumptions))
    return [_head(found), *fitting, *reason_blocks(found), rests]


def _head(found: Search) -> Block:
    counts = (
        f"{found.evaluated:,} of {found.enumerated:,} layouts evaluated in"
        f" {show(found.seconds, 's')}, {found.feasible:,} fit"
    )
    if not found.top:
        return Block("Search", [f"NOTHING FITS: {counts}"])
    best = found.top[0]
    return Block(
        f"Layouts of {title_of(best)}",
        [
            f"best by {words(found.objective)}: {show(best.step.seconds, 's')} per step,"
            f" {room(best.memory)}: {describe(best.layout)}  [{best.stack.title}]",
            counts,
        ],
    )


def _front(found: Search, full: bool) -> Block:
    """Layouts that no other beats in both time and memory."""
    points = found.pareto
    front = Block("Front of time against memory")
    if len(points) > 1:
        front.text = chart(
            [a.step_seconds for a in points],
            [a.device_bytes / 2**30 for a in points],
            "s per step",
            "GiB",
        )
    if not full:
        front.text.append(f"{len(points)} layouts, which --full lists")
        return front
    shown = points[:: -(-len(points) // _FRONT_ROWS)]
    front.header = [">step", ">memory", ">to fit", "stack", "layout"]
    front.order = "fastest first"
    front.drop = ("stack",)
    front.rows = [
        [
            show(a.step_seconds, "s"),
            show(a.device_bytes, "B"),
            chance_text(a.fit_chance),
            a.stack,
            describe(a.layout),
        ]
        for a in shown
    ]
    if len(shown) < len(points):
        front.below = [
            f"{len(shown)} of {len(points)} layouts on the front (--json and --html have all)"
        ]
    return front


def best_block(found: Search) -> Block:
    """The best layouts by the objective, and what a million tokens cost."""
    alone = found.top and found.top[0].training.seq_len == 1
    each = f"M {found.top[0].throughput.samples if alone else 'tokens'}"
    block = Block(
        f"Best layouts that fit, by {words(found.objective)}",
        header=[
            *(">#", ">step", ">MFU", ">memory", ">to fit"),
            *(f">USD per {each}", f">Wh per {each}", "stack", "layout"),
        ],
        order="best first",
        drop=(f"Wh per {each}", "stack", f"USD per {each}", "MFU"),
    )
    block.text += [f"USD at {r.cluster.price}" for r in found.top[:1]]
    for i, r in enumerate(found.top):
        price = r.per_token.usd_per_million_tokens
        block.rows.append(
            [
                str(i + 1),
                show(r.step.seconds, "s"),
                percent(r.throughput.mfu),
                show(r.memory.device_bytes, "B"),
                chance_text(r.memory.fit_chance),
                show(price, ""),
                show(1000 * r.per_token.kwh_per_million_tokens, ""),
                r.stack.id,
                describe(r.layout),
            ]
        )
    return block


def reason_blocks(found: Search) -> list[Block]:
    """Why layouts were rejected, and what offloading would make fit."""
    why = Block("Rejected", header=["reason", ">layouts"], order="most layouts first")
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
    help_ = Block("The fastest with offloading", header=[">#", "change", ">step", ">memory"])
    help_.rows = [
        [str(i + 1), a.change, show(a.step_seconds, "s"), show(a.device_bytes, "B")]
        for i, a in enumerate(found.advice)
    ]
    help_.below = [Fixed(f"{i + 1}: {a.command}") for i, a in enumerate(found.advice)]
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
    return [Fixed(line) for line in lines]
