"""What a search found as one HTML page: the front of time against memory, the best layouts, what
was rejected."""

from __future__ import annotations

from typing import Any

from planner.show.figures import CYCLE, GIB, SILVER, Chart, Column, figure, line, markers
from planner.show.page import Part
from planner.show.page import page as whole
from planner.show.text import Block, layout_text
from planner.units import show

Report = Any  # until it reads attributes


def page(found: Report) -> str:
    """The document of a search as one HTML page. Raises PlanError where plotly is not installed."""
    title = "Layouts"
    if found["top"]:
        first = found["top"][0]
        title = (
            f"Layouts of {first['model']['title']} on {first['cluster']['gpus']:,} x"
            f" {first['cluster']['gpu_title']}"
        )
    parts: list[Part] = [
        Block(
            "",
            [
                f"{found['evaluated']:,} of {found['enumerated']:,} layouts evaluated,"
                f" {found['feasible']:,} fit."
            ],
        )
    ]
    if found["pareto"]:
        parts += [front(found), _best(found)]
    why = sorted(found["rejected"].items(), key=lambda x: -x[1])
    rejected = [[reason, f"{count:,}"] for reason, count in why]
    parts.append(Block("Rejected", header=["reason", ">layouts"], rows=rejected))
    return whole(title, parts, found["command"])


def _best(found: Report) -> Block:
    return Block(
        f"Best layouts, by {found['objective']}",
        header=[
            ">",
            ">step",
            ">memory per GPU",
            ">USD per million tokens",
            ">Wh per million tokens",
            "stack",
            "layout",
        ],
        rows=[
            [
                str(i + 1),
                show(r["step"]["seconds"], "s"),
                show(r["memory"]["device_bytes"], "B"),
                *_per_token(r["per_token"]),
                r["stack"]["id"],
                layout_text(r["layout"]),
            ]
            for i, r in enumerate(found["top"])
        ],
    )


def _per_token(of: Report) -> tuple[str, str]:
    dollars = of["usd_per_million_tokens"]
    return (
        "-" if dollars is None else f"{dollars:.4g}",
        f"{1000 * of['kwh_per_million_tokens']:.4g}",
    )


def front(found: Report) -> Chart:
    """Seconds per step against GiB per GPU, one color per stack, one step line over all."""
    points = found["pareto"]
    data = [
        line(
            "front",
            [a["step_seconds"] for a in points],
            [a["device_bytes"] / GIB for a in points],
            SILVER,
            line={"shape": "hv", "color": SILVER},
            showlegend=False,
        )
    ]
    for i, stack in enumerate(sorted({a["stack"] for a in points})):
        own = [a for a in points if a["stack"] == stack]
        data.append(
            markers(
                stack,
                [a["step_seconds"] for a in own],
                [a["device_bytes"] / GIB for a in own],
                CYCLE[i % len(CYCLE)],
                [
                    f"{layout_text(a['layout'])} [{stack}]<br>{show(a['step_seconds'], 's')},"
                    f" {show(a['device_bytes'], 'B')}"
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
                a["step_seconds"],
                a["device_bytes"],
                a["usd_per_million_tokens"],
                1000 * a["kwh_per_million_tokens"],
                a["stack"],
                layout_text(a["layout"]),
            ]
            for a in points
        ],
        "Layouts that fit and that no other beats in both; point at one to see it. At a fixed"
        " number of GPUs money and energy are the step time times a constant.",
    )
