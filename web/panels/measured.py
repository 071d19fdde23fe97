"""Predicted against measured step time of the shipped runs, with those most like the request
marked."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from functools import cache
from typing import Any

from planner.api import Options
from planner.inputs.scenario import resolve
from planner.report.band import RESIDUALS
from planner.show.figures import BLUE, GREY, GRID, RED, Chart, Column
from planner.units import show
from planner.verbs.validate.files import read_all

_GUIDES = (-0.2, 0.2)


@cache
def runs() -> tuple[dict[str, Any], ...]:
    """The shipped runs with a time: measured, and predicted by the numbers that ship
    (planner/data/residuals.csv)."""
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        ratio = {row["run_id"]: float(row["measured_over_default"]) for row in csv.DictReader(file)}
    out = []
    for row in read_all(()):
        if row["run_id"] in ratio and row.get("step_s"):
            measured = float(row["step_s"])
            out.append(
                {
                    "run_id": row["run_id"],
                    "suite": row["suite"],
                    "gpu": row["gpu"],
                    "gpus": int(float(row["gpus"])),
                    "stack": row["stack"],
                    "measured_s": measured,
                    "predicted_s": measured / ratio[row["run_id"]],
                }
            )
    return tuple(out)


def _errors(rows: Iterable[dict[str, Any]]) -> list[float]:
    return sorted(abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows)


def chart(options: Options) -> Chart:
    """All validated runs; those on the GPU of the request stand out."""
    gpu = resolve(options).parts[1].gpu
    found = runs()
    alike = [row for row in found if row["gpu"] == gpu.id]
    errors = _errors(found)
    mean = sum(errors) / len(errors)
    summary = (
        f"{len(found):,} measured runs: mean error {mean:.1%}, median"
        f" {errors[len(errors) // 2]:.1%}. "
    )
    mine = _errors(alike)
    summary += (
        f"{len(alike)} of them on {gpu.title}: median {mine[len(mine) // 2]:.1%}."
        if alike
        else f"None on {gpu.title}."
    )
    ends = [0.7 * min(r["measured_s"] for r in found), 1.4 * max(r["measured_s"] for r in found)]
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "equal" if not share else f"{share:+.0%}",
            "x": ends,
            "y": [end * (1 + share) for end in ends],
            "line": {"color": GREY, "width": 1, "dash": "solid" if not share else "dot"},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        for share in (0.0, *_GUIDES)
    ]
    for name, color, size, rows in (
        ("other GPUs", BLUE, 5, [r for r in found if r["gpu"] != gpu.id]),
        (gpu.title, RED, 9, alike),
    ):
        if rows:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{name} ({len(rows):,})",
                    "x": [r["measured_s"] for r in rows],
                    "y": [r["predicted_s"] for r in rows],
                    "marker": {
                        "color": color,
                        "size": size,
                        "opacity": 0.6,
                        "symbol": "circle" if size < 9 else "diamond",
                    },
                    "text": [
                        f"{r['run_id']}: {r['gpus']:,} x {r['gpu']}, measured"
                        f" {show(r['measured_s'], 's')}, predicted {show(r['predicted_s'], 's')}"
                        for r in rows
                    ],
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    layout = {
        "xaxis": {**GRID, "type": "log", "title": {"text": "measured step (s)"}},
        "yaxis": {**GRID, "type": "log", "title": {"text": "predicted step (s)"}},
        "legend": {"orientation": "h", "y": -0.25},
        "margin": {"t": 20, "r": 20},
        "hovermode": "closest",
    }
    suites: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found:
        suites.setdefault((row["suite"], row["gpu"]), []).append(row)
    table: list[list[Any]] = []
    for (suite, card), rows in sorted(suites.items()):
        off = _errors(rows)
        table.append([suite, card, len(rows), sum(off) / len(off), off[len(off) // 2], off[-1]])
    columns = (
        Column("suite"),
        Column("GPU"),
        Column("runs", "number"),
        Column("mean error", "%"),
        Column("median error", "%"),
        Column("worst", "%"),
    )
    return Chart(
        "measured",
        "Predicted against measured",
        summary,
        {"data": data, "layout": layout},
        columns,
        table,
        "Every validated run that has a time; dotted lines are 20 % off. docs/accuracy.md lists"
        " them all.",
    )
