"""Step time and throughput over the number of GPUs, everything else as asked: where more GPUs stop
paying."""

from __future__ import annotations

from typing import Any

from planner import api
from planner.api import Options, PlanError
from planner.show.figures import BLUE, GREEN, GREY, RED, Chart, Column
from planner.units import show

_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
SATURATED = 0.7  # efficiency below which the chart says that more GPUs no longer pay
_PER_GPU = ("dp", "shard_group")  # follow from the number of GPUs


def counts(gpus: int, most: int) -> list[int]:
    """Numbers of GPUs around the asked one, by factors of two."""
    return sorted(
        {
            int(gpus * f)
            for f in _FACTORS
            if gpus * f >= 1 and gpus * f <= most and float(gpus * f).is_integer()
        }
    )


def chart(options: Options, most: int) -> Chart:
    """Sweep of estimates with the same global batch; dp follows the number of GPUs."""
    base = api.estimate(options, brief=True)
    batch = base["training"].global_batch
    free = dict.fromkeys(_PER_GPU)
    rows: list[list[Any]] = []
    refused: list[tuple[int, str]] = []
    for gpus in counts(options.gpus, most):
        try:
            one = (
                base
                if gpus == options.gpus
                else api.estimate(
                    options.changed(gpus=gpus, global_batch=batch, **free), brief=True
                )
            )
        except PlanError as error:
            refused.append((gpus, error.remedy))
            continue
        speed, run = one["throughput"], one["run"]
        rows.append(
            [
                gpus,
                one["memory"]["fits"],
                one["step"]["seconds"],
                speed["tokens_per_s"],
                speed["mfu"],
                None,
                run["days"],
                run["cost_usd"],
            ]
        )
    return _drawn(rows, refused, options.gpus, batch)


def _drawn(rows: list[list[Any]], refused: list[tuple[int, str]], asked: int, batch: int) -> Chart:
    fitting = [row for row in rows if row[1]] or rows
    if not rows:
        raise PlanError(
            "--gpus",
            asked,
            "no number of GPUs around it can run this:"
            f" {refused[0][1] if refused else 'none is legal'}",
        )
    first = max(
        fitting, key=lambda row: row[3] / row[0]
    )  # the best throughput per GPU is the yardstick
    for row in rows:
        row[5] = row[3] / row[0] / (first[3] / first[0])
    saturated = next((row[0] for row in fitting if row[0] > first[0] and row[5] < SATURATED), None)
    columns = (
        Column("GPUs", "number"),
        Column("fits"),
        Column("step", "s"),
        Column("throughput", "tokens/s"),
        Column("MFU", "%"),
        Column("efficiency", "%"),
        Column("days", "number"),
        Column("cost", "USD"),
    )
    fastest = max(fitting, key=lambda row: row[3])
    told = (
        f"Saturates at {saturated:,} GPUs: below {100 * SATURATED:.0f} % of the best throughput per"
        " GPU."
        if saturated
        else f"No saturation up to {rows[-1][0]:,} GPUs."
    )
    summary = (
        f"Global batch {batch:,}: from {rows[0][0]:,} to {rows[-1][0]:,} GPUs the fastest step is"
        f" {show(fastest[2], 's')} on {fastest[0]:,}, at {100 * fastest[5]:.0f} % efficiency."
        f" {told}"
    )
    if refused:
        summary += (
            " Not possible: " + "; ".join(f"{gpus:,} ({why})" for gpus, why in refused[:2]) + "."
        )
    x = [row[0] for row in rows]
    ideal = [first[3] / first[0] * gpus for gpus in x]
    marker = {
        "size": 9,
        "color": [BLUE if row[1] else RED for row in rows],
        "symbol": ["circle" if row[1] else "x" for row in rows],
    }
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "perfect scaling",
            "x": x,
            "y": ideal,
            "line": {"color": GREY, "dash": "dot"},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "tokens/s",
            "x": x,
            "y": [row[3] for row in rows],
            "marker": marker,
            "line": {"color": BLUE},
            "customdata": x,
            "text": [
                f"{row[0]:,} GPUs: {row[3]:,.0f} tokens/s, {'fits' if row[1] else 'does not fit'}"
                for row in rows
            ],
            "hovertemplate": "%{text}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "efficiency",
            "x": x,
            "y": [100 * row[5] for row in rows],
            "yaxis": "y2",
            "line": {"color": GREEN, "dash": "dash"},
            "marker": {"symbol": "diamond", "color": GREEN},
            "hovertemplate": "%{x:,} GPUs: %{y:.0f} %<extra></extra>",
        },
    ]
    layout: dict[str, Any] = {
        "xaxis": {
            "type": "log",
            "title": {"text": "GPUs"},
            "tickvals": x,
            "ticktext": [f"{gpus:,}" for gpus in x],
        },
        "yaxis": {"type": "log", "title": {"text": "tokens/s"}},
        "yaxis2": {
            "overlaying": "y",
            "side": "right",
            "range": [0, 110],
            "tickmode": "linear",
            "dtick": 20,
            "title": {"text": "efficiency (%)"},
            "showgrid": False,
        },
        "legend": {"orientation": "h", "y": -0.25},
        "margin": {"t": 20, "r": 60},
    }
    if saturated:
        layout["shapes"] = [
            {
                "type": "line",
                "x0": saturated,
                "x1": saturated,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": RED, "dash": "dash", "width": 1},
            }
        ]
    return Chart(
        "scaling",
        "Scaling over GPUs",
        summary,
        {"data": data, "layout": layout},
        columns,
        rows,
        "Same global batch, layout as asked. Efficiency is throughput per GPU over the best of"
        f" these; saturation is below {100 * SATURATED:.0f} %.",
        extra={"select": "gpus"},
    )
