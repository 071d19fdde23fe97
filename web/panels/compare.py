"""Several answers side by side: the figures that people compare, with the difference to the
first."""

from __future__ import annotations

from typing import Any

from planner.show.figures import BLUE, GREEN, PURPLE, RED, Chart, Column
from planner.show.text import layout_text

Report = Any  # until it reads attributes

MOST = 4
_COLORS = (BLUE, PURPLE, GREEN, RED)

# (key, title, unit, path in the report, whether less is better; None where neither is)
_FIGURES: tuple[tuple[str, str, str, tuple[str, ...], bool | None], ...] = (
    ("step", "step", "s", ("step", "seconds"), True),
    ("low", "80 % band, low", "s", ("step", "low"), True),
    ("high", "80 % band, high", "s", ("step", "high"), True),
    ("tokens_per_s", "throughput", "tokens/s", ("throughput", "tokens_per_s"), False),
    ("per_gpu", "throughput per GPU", "tokens/s", ("throughput", "tokens_per_s_per_gpu"), False),
    ("mfu", "MFU", "%", ("throughput", "mfu"), False),
    ("hfu", "HFU", "%", ("throughput", "hfu"), None),
    ("memory", "memory per GPU", "B", ("memory", "device_bytes"), True),
    ("headroom", "memory left", "B", ("memory", "headroom_bytes"), False),
    ("days", "days", "number", ("run", "days"), True),
    ("gpu_hours", "GPU-hours", "number", ("run", "gpu_hours"), True),
    ("cost", "cost", "USD", ("run", "cost_usd"), True),
    ("energy", "energy (kWh)", "number", ("run", "energy_kwh"), True),
    ("gpus", "GPUs", "number", ("cluster", "gpus"), None),
)


def document(reports: list[Report]) -> Report:
    """Figures of each report, and how much each differs from the first (value over the first's,
    minus one)."""
    rows = []
    for key, title, unit, path, less in _FIGURES:
        values = [report[path[0]][path[1]] for report in reports]
        if all(value is None for value in values):
            continue
        first = values[0]
        rows.append(
            {
                "key": key,
                "title": title,
                "unit": unit,
                "less_is_better": less,
                "values": values,
                "change_frac": [
                    None if value is None or not first else value / first - 1 for value in values
                ],
            }
        )
    return {
        "schema_version": reports[0]["schema_version"],
        "scenarios": [
            {
                "title": (
                    f"{r['model']['title']} on {r['cluster']['gpus']:,} x"
                    f" {r['cluster']['gpu_title']}"
                ),
                "layout": layout_text(r["layout"]),
                "stack": r["stack"]["title"],
                "fits": r["memory"]["fits"],
                "bottleneck": r["step"]["bottleneck"],
                "command": r["command"],
            }
            for r in reports
        ],
        "figures": rows,
    }


def chart(reports: list[Report], names: list[str]) -> Chart:
    """Parts of the step of each scenario, side by side."""
    parts = list(
        dict.fromkeys(
            part for r in reports for part, value in r["step"]["components"].items() if value > 0
        )
    )
    data = [
        {
            "type": "bar",
            "name": name,
            "x": [part.replace("_", " ") for part in parts],
            "y": [report["step"]["components"].get(part, 0.0) for part in parts],
            "marker": {"color": color},
            "hovertemplate": "%{x}: %{y:.4g} s<extra>%{fullData.name}</extra>",
        }
        for report, name, color in zip(reports, names, _COLORS, strict=False)
    ]
    layout = {
        "barmode": "group",
        "yaxis": {"title": {"text": "seconds"}},
        "legend": {"orientation": "h", "y": -0.3},
        "margin": {"t": 20, "r": 20},
    }
    rows: list[list[Any]] = [
        [part.replace("_", " "), *(r["step"]["components"].get(part, 0.0) for r in reports)]
        for part in parts
    ]
    fastest = min(range(len(reports)), key=lambda i: reports[i]["step"]["seconds"])
    return Chart(
        "compare-step",
        "Step time by part",
        f"The fastest step is that of {names[fastest]}.",
        {"data": data, "layout": layout},
        (Column("part"), *(Column(name, "s") for name in names)),
        rows,
    )
