"""The searched layouts as pictures: the front of time against memory, and the best step for each tp
and pp."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.api import Options
from planner.estimate import Outline
from planner.inputs.scenario import resolve
from planner.ledger import Array
from planner.report.layout import summary
from planner.search import pareto
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.show.figures import BLUE, GIB, GREY, GRID, RED, Chart, Column
from planner.show.text import layout_text
from planner.specs.layout import LayoutRequest
from planner.units import show

_MOST_POINTS = 600  # of the cloud behind the front; more paint slowly and show nothing new
_STATE = (
    "tp",
    "pp",
    "vpp",
    "dp",
    "cp",
    "ep",
    "zero",
    "shard_group",
    "sequence_parallel",
    "schedule",
    "recompute",
    "micro_batch",
    "offload",
    "placement",
)


def state_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Options that fix one layout of a search."""
    layout = entry["layout"]
    fixed = {name: layout[name] for name in _STATE if name in LayoutRequest.model_fields}
    if layout["pp"] == 1:
        fixed.pop("schedule")
    if layout["offload"] == "none":
        fixed.pop("offload")
    return {**fixed, "stack": entry["stack"]}


def charts(options: Options) -> list[Chart]:
    """Both charts from one search of all layouts that the request leaves open."""
    scenario = resolve(options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    evaluated = [found.estimates for found in answer.found if found.estimates is not None]
    price = evaluated[0].plan.cluster.usd_per_gpu_hour
    tokens = evaluated[0].plan.training.global_batch * evaluated[0].plan.training.seq_len
    usd = (
        None if price is None else float(price) * options.gpus / tokens * 1e12
    )  # a price is in US dollars per second
    return [_front(evaluated, usd), _heat_map(evaluated)]


def _columns(evaluated: list[Outline]) -> tuple[Array, Array, Array, Array, Array]:
    """(index of the estimates, row, seconds, bytes, fits) of every evaluated layout."""
    which = np.concatenate([np.full(len(e.fits), i) for i, e in enumerate(evaluated)])
    row = np.concatenate([np.arange(len(e.fits)) for e in evaluated])
    seconds = np.concatenate([e.time.seconds for e in evaluated])
    memory = np.concatenate([e.memory.device for e in evaluated])
    return which, row, seconds, memory, np.concatenate([e.fits for e in evaluated])


def _front(evaluated: list[Outline], usd_per_s: float | None) -> Chart:
    which, row, seconds, memory, fits = _columns(evaluated)
    usable = np.flatnonzero(fits)
    if not len(usable):
        usable = np.arange(len(seconds))
    front = usable[pareto(seconds[usable], memory[usable])]
    entries = [summary(*evaluated[which[i]].some([int(row[i])])[0]) for i in front]
    cost = [None if usd_per_s is None else usd_per_s * entry["step_seconds"] for entry in entries]
    rows = [
        [
            layout_text(e["layout"]),
            e["stack"],
            e["step_seconds"],
            e["tokens_per_s"],
            e["device_bytes"],
            c,
        ]
        for e, c in zip(entries, cost, strict=True)
    ]
    columns = (
        Column("layout"),
        Column("software"),
        Column("step", "s"),
        Column("throughput", "tokens/s"),
        Column("memory per GPU", "B"),
        Column("cost per 1 T tokens", "USD"),
    )
    seen = _thinned(usable, seconds)
    capacity = evaluated[0].plan.usable_bytes
    hover = [
        f"{r[0]}<br>{show(r[2], 's')}, {show(r[4], 'B')}"
        + ("" if r[5] is None else f", {r[5]:,.0f} USD per 1 T tokens")
        for r in rows
    ]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "fits",
            "x": seconds[seen].tolist(),
            "y": (memory[seen] / GIB).tolist(),
            "marker": {"color": GREY, "size": 4, "opacity": 0.35},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "no other is faster and smaller",
            "x": [r[2] for r in rows],
            "y": [r[4] / GIB for r in rows],
            "line": {"color": BLUE, "shape": "hv"},
            "marker": {"color": BLUE, "size": 10},
            "text": hover,
            "customdata": [state_of(e) for e in entries],
            "hovertemplate": "%{text}<extra></extra>",
        },
    ]
    layout = {
        "xaxis": {**GRID, "type": "log", "title": {"text": "step (s)"}},
        "yaxis": {**GRID, "title": {"text": "GiB per GPU"}, "rangemode": "tozero"},
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": capacity / GIB,
                "y1": capacity / GIB,
                "line": {"color": RED, "dash": "dash", "width": 2},
            }
        ],
        "legend": {"orientation": "h", "y": -0.25},
        "margin": {"t": 20, "r": 20},
        "hovermode": "closest",
    }
    none = "" if fits.any() else " None fits; the nearest are drawn."
    text = (
        f"{len(seconds):,} layouts evaluated, {int(fits.sum()):,} fit, {len(rows)} of them on the"
        f" front: from {show(rows[0][2], 's')} with {show(rows[0][4], 'B')} to"
        f" {show(rows[-1][2], 's')} with {show(rows[-1][4], 'B')}.{none}"
    )
    return Chart(
        "pareto",
        "Time against memory of all layouts",
        text,
        {"data": data, "layout": layout},
        columns,
        list(rows),
        "Select a point, or a row of the table, to fix that layout.",
        extra={"states": [state_of(e) for e in entries], "select": "layout"},
    )


def _thinned(rows: Array, seconds: Array) -> Array:
    """At most so many rows, evenly over their order by time: the same ones every time."""
    order = rows[np.argsort(seconds[rows], kind="stable")]
    return order[
        np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST_POINTS)).astype(int))
    ]


def _heat_map(evaluated: list[Outline]) -> Chart:
    which, row, seconds, memory, fits = _columns(evaluated)
    tp = np.concatenate([e.space.outer["tp"][e.space.row] for e in evaluated])
    pp = np.concatenate([e.space.outer["pp"][e.space.row] for e in evaluated])
    tps, pps = sorted(set(tp.tolist())), sorted(set(pp.tolist()))
    cells: list[list[float | None]] = []
    texts: list[list[str]] = []
    states: list[list[dict[str, Any] | None]] = []
    rows: list[list[Any]] = []
    for t in tps:
        line: list[float | None] = []
        text: list[str] = []
        state: list[dict[str, Any] | None] = []
        for p in pps:
            here = np.flatnonzero((tp == t) & (pp == p))
            fitting = here[fits[here]]
            if len(fitting):
                i = fitting[seconds[fitting].argmin()]
                entry = summary(*evaluated[which[i]].some([int(row[i])])[0])
                line.append(float(seconds[i]))
                text.append(show(float(seconds[i]), "s"))
                state.append(state_of(entry))
                rows.append(
                    [
                        t,
                        p,
                        len(here),
                        True,
                        float(seconds[i]),
                        float(memory[i]),
                        layout_text(entry["layout"]),
                    ]
                )
                continue
            line.append(None)
            state.append(None)
            least = float(memory[here].min()) if len(here) else None
            text.append("" if least is None else f"{least / GIB:,.0f} GiB")
            if least is not None:
                rows.append([t, p, len(here), False, None, least, "no layout fits"])
        cells.append(line)
        texts.append(text)
        states.append(state)
    known = [value for line in cells for value in line if value is not None]
    best = min((r for r in rows if r[3]), key=lambda r: r[4], default=None)
    columns = (
        Column("tp", "number"),
        Column("pp", "number"),
        Column("layouts", "number"),
        Column("fits"),
        Column("best step", "s"),
        Column("memory per GPU", "B"),
        Column("layout"),
    )
    data = [
        {
            "type": "heatmap",
            "x": [f"pp {p:.0f}" for p in pps],
            "y": [f"tp {t:.0f}" for t in tps],
            "z": cells,
            "text": texts,
            "customdata": states,
            "texttemplate": "%{text}" if len(pps) <= 12 else "",
            "colorscale": "Cividis",
            "reversescale": True,
            "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
            "hoverongaps": False,
            "xgap": 2,
            "ygap": 2,
            "colorbar": {"title": {"text": "seconds"}, "thickness": 12},
        }
    ]
    # where nothing fits there is no color; the need in bytes stands in the cell
    notes = [
        {
            "x": f"pp {p:.0f}",
            "y": f"tp {t:.0f}",
            "text": word,
            "showarrow": False,
            "font": {"size": 10, "color": GREY},
        }
        for t, known_, said_ in zip(tps, cells, texts, strict=True)
        for p, value, word in zip(pps, known_, said_, strict=True)
        if value is None and word and len(pps) <= 12
    ]
    layout = {
        "margin": {"t": 20, "r": 20},
        "annotations": notes,
        "xaxis": {"type": "category"},
        "yaxis": {"type": "category"},
    }
    told = (
        f"Best is tp {best[0]:.0f}, pp {best[1]:.0f} with {show(best[4], 's')}."
        if best
        else "No combination fits."
    )
    said = (
        f"{sum(1 for r in rows if r[3])} of {len(rows)} combinations of tp and pp have a layout"
        f" that fits. {told}"
    )
    if len(known) > 1 and best:
        said += f" The slowest of them takes {max(known) / best[4]:.1f} times as long."
    return Chart(
        "heat-map",
        "Best step for each tp and pp",
        said,
        {"data": data, "layout": layout},
        columns,
        rows,
        "The fastest layout that fits for each pair, all else searched; without color, the least"
        " memory that any would need. Select a cell to fix it.",
        extra={"select": "layout", "states": [s for line in states for s in line if s]},
    )
