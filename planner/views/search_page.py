"""What a search found as one HTML page: the front of time against memory, the best layouts, what
was rejected."""

from __future__ import annotations

from planner.specs.documents.plan import describe
from planner.specs.documents.search import Search
from planner.units import show
from planner.views.cells import Column
from planner.views.estimate import title_of
from planner.views.figures import CYCLE, GIB, SILVER, Chart, figure, line, markers
from planner.views.page import Part
from planner.views.page import page as whole
from planner.views.search import best_block, reason_blocks
from planner.views.view import Block


def page(found: Search) -> str:
    """The document of a search as one HTML page. Raises PlanError where plotly is not installed."""
    title = f"Layouts of {title_of(found.top[0])}" if found.top else "Layouts"
    counts = (
        f"{found.evaluated:,} of {found.enumerated:,} layouts evaluated, {found.feasible:,} fit."
    )
    best: list[Part] = [front(found), best_block(found)] if found.pareto else []
    return whole(title, [Block("", [counts]), *best, *reason_blocks(found)], found.command)


def front(found: Search) -> Chart:
    """Seconds per step against GiB per GPU, one color per stack, one step line over all."""
    points = found.pareto
    data = [
        line(
            "front",
            [a.step_seconds for a in points],
            [a.device_bytes / GIB for a in points],
            SILVER,
            line={"shape": "hv", "color": SILVER},
            showlegend=False,
        )
    ]
    for i, stack in enumerate(sorted({a.stack for a in points})):
        own = [a for a in points if a.stack == stack]
        data.append(
            markers(
                stack,
                [a.step_seconds for a in own],
                [a.device_bytes / GIB for a in own],
                CYCLE[i % len(CYCLE)],
                [
                    f"{describe(a.layout)} [{stack}]<br>{show(a.step_seconds, 's')},"
                    f" {show(a.device_bytes, 'B')}"
                    for a in own
                ],
            )
        )
    return Chart(
        "front",
        "Front of time against memory",
        "",
        figure(data, "seconds per step", "GiB per GPU"),
        (
            Column("step", "s"),
            Column("memory per GPU", "B"),
            Column("USD per million tokens", "number"),
            Column("Wh per million tokens", "number"),
            Column("stack"),
            Column("layout"),
        ),
        [
            [
                a.step_seconds,
                a.device_bytes,
                a.usd_per_million_tokens,
                1000 * a.kwh_per_million_tokens,
                a.stack,
                describe(a.layout),
            ]
            for a in points
        ],
        "Layouts that fit and that no other beats in both; point at one to see it. At a fixed"
        " number of GPUs money and energy are the step time times a constant.",
        order="fastest first",
    )
