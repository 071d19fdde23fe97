"""An estimate as one HTML page: the answer, its charts, the table behind each, the assumptions.
Opens without a network.

Everything on the page comes from the report dict of the contract (docs/contract.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from planner.show.text import layout_text, limit_text
from planner.specs.base import PlanError
from planner.units import show

Report = dict[str, Any]
Figure = dict[str, Any]

CONFIG = {"displaylogo": False, "showSendToCloud": False, "responsive": True}
# a color-blind safe set (Paul Tol, "muted" and "bright"); a part keeps its color on every chart
_COLORS = (
    "#332288",
    "#4477aa",
    "#88ccee",
    "#228833",
    "#44aa99",
    "#999933",
    "#ddcc77",
    "#cc6677",
    "#ee6677",
    "#882255",
    "#aa4499",
    "#66ccee",
    "#ccbb44",
)
_OUTSIDE = {"fragmentation": "#bbbbbb", "context": "#888888", "communicators": "#555555"}
_GRID = {"gridcolor": "#e6e6e6", "zerolinecolor": "#888888"}
_GIB = 2.0**30
_MOST_LABELS = 24  # bars that still have room for their names side by side

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1080px; margin: 0 auto; padding: 1.5em; }
h1 { font-size: 1.5em; margin: 0 0 .2em; } h2 { font-size: 1.2em; margin: 2em 0 .3em; }
table { border-collapse: collapse; margin: .6em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2em .8em .2em 0; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th { border-bottom: 1px solid #888; } .n { text-align: right; } .wide { overflow-x: auto; }
.yes { color: #117733; font-weight: 600; } .no { color: #aa2233; font-weight: 600; }
summary { cursor: pointer; color: #446; } figure { margin: 0; } figcaption { color: #555; }
""".strip()


def page(report: Report) -> str:
    """The report as one HTML page with plotly's script inside. Raises PlanError where plotly is not
    installed."""
    drawn = drawing()
    title = (
        f"{report['model']['title']} on {report['cluster']['gpus']:,} x"
        f" {report['cluster']['gpu_title']}"
    )
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p><code>{escape(report['command'])}</code></p>",
        table(("", ""), _answer(report), ()),
        *_requirements(report),
        "<h2>Memory of each pipeline stage</h2>",
        drawn(
            "memory-stages",
            stage_figure(report),
            "The fullest phase of each stage, with what is reserved beyond it and what "
            "lies outside the allocator. Dashed: what a framework can allocate on this GPU.",
        ),
        _folded("Bytes of each stage", _stage_table(report)),
        "<h2>Memory through the step</h2>",
        drawn(
            "memory-phases",
            phase_figure(report),
            "Allocated at the fullest moment of each phase; choose the stage above.",
        ),
        _folded("Bytes of each stage and phase", _phase_table(report)),
        "<h2>Step time</h2>",
        drawn(
            "step-time",
            time_figure(report),
            "Parts that add up to the step. Hatched: communication that runs beside compute "
            "and adds nothing. The line on the step is the 80 % band.",
        ),
        _folded("Seconds of each part", _time_table(report)),
        _folded("Seconds of each operator, slowest stage", _operator_table(report)),
        _folded("Communication", _communication_table(report)),
        *_advice(report),
        "<h2>Assumptions</h2>",
        "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in report["assumptions"]) + "</ul>",
        f"<p>{escape(_rests_on(report))}</p>",
        _folded("Numbers of the machine, with sources", _machine_table(report)),
    ]
    return whole(title, body)


def drawing() -> Callable[[str, Figure, str], str]:
    """A function that makes HTML of a figure and its caption. Raises PlanError where plotly is not
    installed."""
    try:
        from plotly.io import to_html
    except ImportError:
        raise PlanError(
            "--html", None, "needs plotly, which this environment lacks: pip install 'plotly>=6'"
        ) from None

    def drawn(name: str, figure: Figure, caption: str) -> str:
        text: str = to_html(
            figure,
            config=CONFIG,
            include_plotlyjs=False,
            full_html=False,
            validate=True,
            div_id=name,
            default_height="460px",
        )
        return f"<figure>{text}<figcaption>{escape(caption)}</figcaption></figure>"

    return drawn


def whole(title: str, body: Sequence[str]) -> str:
    """A page with its style and plotly's script inside."""
    from plotly.offline import get_plotlyjs

    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f"<script>{get_plotlyjs()}</script>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>",
            "",
        ]
    )


def search_page(found: Report) -> str:
    """What a search found as one HTML page: the front of time against memory, the best layouts,
    what was rejected."""
    drawn = drawing()
    title = "Layouts"
    if found["top"]:
        first = found["top"][0]
        title = (
            f"Layouts of {first['model']['title']} on {first['cluster']['gpus']:,} x"
            f" {first['cluster']['gpu_title']}"
        )
    header = (
        "",
        "step",
        "memory per GPU",
        "USD per million tokens",
        "Wh per million tokens",
        "stack",
        "layout",
    )
    best = [
        (
            str(i + 1),
            show(r["step"]["seconds"], "s"),
            show(r["memory"]["device_bytes"], "B"),
            *_per_token(r["per_token"]),
            r["stack"]["id"],
            layout_text(r["layout"]),
        )
        for i, r in enumerate(found["top"])
    ]
    front = [
        (
            "",
            show(a["step_seconds"], "s"),
            show(a["device_bytes"], "B"),
            *_per_token(a),
            a["stack"],
            layout_text(a["layout"]),
        )
        for a in found["pareto"]
    ]
    why = sorted(found["rejected"].items(), key=lambda x: -x[1])
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p><code>{escape(found['command'])}</code></p>",
        (
            f"<p>{found['evaluated']:,} of {found['enumerated']:,} layouts evaluated,"
            f" {found['feasible']:,} fit.</p>"
        ),
    ]
    if front:
        body += [
            "<h2>Front of time against memory</h2>",
            drawn(
                "front",
                front_figure(found),
                "Layouts that fit and that no other beats in both; point at one to see it. At a "
                "fixed number of GPUs money and energy are the step time times a constant.",
            ),
            _folded("Layouts of the front", table(header, front, (1, 2, 3, 4))),
            f"<h2>Best layouts, by {escape(found['objective'])}</h2>",
            table(header, best, (0, 1, 2, 3, 4)),
        ]
    body += [
        "<h2>Rejected</h2>",
        table(("reason", "layouts"), [(reason, f"{count:,}") for reason, count in why], (1,)),
    ]
    return whole(title, body)


def front_figure(found: Report) -> Figure:
    """Seconds per step against GiB per GPU, one colour per stack, one step line over all."""
    points = found["pareto"]
    stacks = sorted({a["stack"] for a in points})
    line = {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "color": "#bbbbbb"},
        "hoverinfo": "skip",
        "showlegend": False,
        "x": [a["step_seconds"] for a in points],
        "y": [a["device_bytes"] / _GIB for a in points],
    }
    data = [line]
    for i, stack in enumerate(stacks):
        own = [a for a in points if a["stack"] == stack]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": stack,
                "marker": {"size": 9, "color": _COLORS[i % len(_COLORS)]},
                "x": [a["step_seconds"] for a in own],
                "y": [a["device_bytes"] / _GIB for a in own],
                "text": [layout_text(a["layout"]) for a in own],
                "hovertemplate": (
                    "%{text}<br>%{x:.4g} s, %{y:.1f} GiB<extra>%{fullData.name}</extra>"
                ),
            }
        )
    return {
        "data": data,
        "layout": {
            "plot_bgcolor": "#ffffff",
            "margin": {"t": 30, "r": 20},
            "hovermode": "closest",
            "xaxis": {**_GRID, "title": {"text": "seconds per step"}},
            "yaxis": {**_GRID, "title": {"text": "GiB per GPU"}},
        },
    }


def _per_token(of: Report) -> tuple[str, str]:
    dollars = of["usd_per_million_tokens"]
    return (
        "-" if dollars is None else f"{dollars:.4g}",
        f"{1000 * of['kwh_per_million_tokens']:.4g}",
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _colors(report: Report) -> dict[str, str]:
    return {
        name: _COLORS[i % len(_COLORS)] for i, name in enumerate(report["memory"]["components"])
    }


# -------------------------------------------------------------------------------------------------


def stage_bytes(report: Report) -> dict[str, list[float]]:
    """Bytes per GPU by part, one value per stage: components of the worst phase, what is reserved
    beyond them, and outside."""
    memory = report["memory"]
    stages = memory["per_stage"]
    out = {name: [stage["components"][name] for stage in stages] for name in memory["components"]}
    out["fragmentation"] = [stage["reserved_bytes"] - stage["peak_bytes"] for stage in stages]
    for name in ("context", "communicators"):
        out[name] = [memory["outside"][name]] * len(stages)
    return {name: values for name, values in out.items() if any(value > 0 for value in values)}


def stage_figure(report: Report) -> Figure:
    """Memory of every stage as stacked bars, against what the GPU can allocate."""
    memory = report["memory"]
    colors = _colors(report) | _OUTSIDE
    names = [f"stage {stage['stage']}" for stage in memory["per_stage"]]
    data = [
        {
            "type": "bar",
            "name": _words(part),
            "x": names,
            "y": [value / _GIB for value in values],
            "marker": {"color": colors[part]},
            "text": [show(value, "B") for value in values],
            "textposition": "none",
            "hovertemplate": "%{x}, %{fullData.name}: %{text}<extra></extra>",
        }
        for part, values in stage_bytes(report).items()
    ]
    line = {"color": "#aa2233", "width": 2, "dash": "dash"}
    capacity = memory["capacity_bytes"]
    return {
        "data": data,
        "layout": {
            "barmode": "stack",
            "plot_bgcolor": "#ffffff",
            "margin": {"t": 30, "r": 20},
            "xaxis": {"showticklabels": len(names) <= _MOST_LABELS},
            "yaxis": {
                **_GRID,
                "title": {"text": "GiB per GPU"},
                "rangemode": "tozero",
                "range": [0, 1.08 * max(capacity, memory["device_bytes"]) / _GIB],
            },
            "shapes": [
                {
                    "type": "line",
                    "xref": "paper",
                    "x0": 0,
                    "x1": 1,
                    "y0": capacity / _GIB,
                    "y1": capacity / _GIB,
                    "line": line,
                }
            ],
            "annotations": [
                {
                    "text": f"capacity {show(capacity, 'B')}",
                    "xref": "paper",
                    "x": 1,
                    "xanchor": "right",
                    "y": capacity / _GIB,
                    "yanchor": "bottom",
                    "showarrow": False,
                    "font": {"color": line["color"]},
                }
            ],
        },
    }


def phase_figure(report: Report) -> Figure:
    """Allocated bytes through the phases of a step as stacked bars; a menu chooses the stage, at
    first the worst."""
    memory = report["memory"]
    stages = memory["per_stage"]
    shown = [
        part
        for part in memory["components"]
        if any(p["components"][part] > 0 for s in stages for p in s["phases"])
    ]
    colors, worst = _colors(report), memory["worst_stage"]

    def values(stage: Report, part: str) -> list[float]:
        return [phase["components"][part] for phase in stage["phases"]]

    def texts(stage: Report, part: str) -> list[str]:
        return [show(value, "B") for value in values(stage, part)]

    def heights(stage: Report, part: str) -> list[float]:
        return [value / _GIB for value in values(stage, part)]

    first = next(stage for stage in stages if stage["stage"] == worst)
    data = [
        {
            "type": "bar",
            "name": _words(part),
            "x": [phase["name"] for phase in first["phases"]],
            "y": heights(first, part),
            "marker": {"color": colors[part]},
            "text": texts(first, part),
            "textposition": "none",
            "hovertemplate": "%{x}, %{fullData.name}: %{text}<extra></extra>",
        }
        for part in shown
    ]
    buttons = [
        {
            "label": f"stage {stage['stage']}",
            "method": "restyle",
            "args": [
                {
                    "y": [heights(stage, part) for part in shown],
                    "text": [texts(stage, part) for part in shown],
                }
            ],
        }
        for stage in stages
    ]
    menu = {
        "buttons": buttons,
        "active": stages.index(first),
        "x": 0,
        "xanchor": "left",
        "y": 1.18,
        "showactive": True,
    }
    top = max(memory["capacity_bytes"], *(stage["peak_bytes"] for stage in stages))
    return {
        "data": data,
        "layout": {
            "barmode": "stack",
            "plot_bgcolor": "#ffffff",
            "margin": {"t": 70, "r": 20},
            "yaxis": {
                **_GRID,
                "title": {"text": "GiB allocated per GPU"},
                "range": [0, 1.05 * top / _GIB],
            },
            "updatemenus": [menu] if len(stages) > 1 else [],
        },
    }


def time_figure(report: Report) -> Figure:
    """Step time as a waterfall of its parts; what is hidden beside compute in hatched bars of their
    own, from zero."""
    step = report["step"]
    rows: list[tuple[str, float, float, bool]] = []  # name, start, seconds, hidden
    before = 0.0
    for part, seconds in step["components"].items():
        hidden = step["hidden"].get(part, 0.0)
        if seconds > 0:
            rows.append((_words(part), before, seconds, False))
        if hidden > 0:
            rows.append((f"{_words(part)}, hidden", 0.0, hidden, True))
        before += seconds

    def bars(name: str, chosen: Sequence[tuple[str, float, float, bool]], marker: Report) -> Report:
        return {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [row[0] for row in chosen],
            "base": [row[1] for row in chosen],
            "x": [row[2] for row in chosen],
            "marker": marker,
            "text": [show(row[2], "s") for row in chosen],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertemplate": "%{y}: %{text}<extra></extra>",
        }

    hatched = {
        "color": "#dddddd",
        "line": {"color": "#666666", "width": 1},
        "pattern": {"shape": "/", "fgcolor": "#666666", "solidity": 0.3},
    }
    data = [bars("adds to the step", [row for row in rows if not row[3]], {"color": "#4477aa"})]
    if any(row[3] for row in rows):
        data.append(bars("hidden beside compute", [row for row in rows if row[3]], hatched))
    whole = bars("step", [("step", 0.0, step["seconds"], False)], {"color": "#332288"})
    below, above = step["seconds"] - step["low"], step["high"] - step["seconds"]
    whole["error_x"] = {
        "type": "data",
        "symmetric": False,
        "array": [above],
        "arrayminus": [below],
        "color": "#222222",
    }
    whole["textposition"] = "inside"
    order = [*(row[0] for row in rows), "step"]
    longest = max(step["high"], *(row[1] + row[2] for row in rows))
    return {
        "data": [*data, whole],
        "layout": {
            "barmode": "overlay",
            "plot_bgcolor": "#ffffff",
            "margin": {"t": 30, "r": 20},
            "xaxis": {**_GRID, "title": {"text": "seconds"}, "range": [0, 1.1 * longest]},
            "yaxis": {
                "autorange": "reversed",
                "categoryorder": "array",
                "categoryarray": order,
                "automargin": True,
            },
            "legend": {"orientation": "h", "y": -0.15},
        },
    }


# -------------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table of text cells; columns in `numbers` are right-aligned."""

    def line(cells: Sequence[str], tag: str) -> str:
        marks = [' class="n"' if i in numbers else "" for i in range(len(cells))]
        return (
            "<tr>"
            + "".join(f"<{tag}{m}>{escape(c)}</{tag}>" for m, c in zip(marks, cells, strict=True))
            + "</tr>"
        )

    head = f"<thead>{line(header, 'th')}</thead>" if any(header) else ""
    text = (
        "<div"
        f' class="wide"><table>{head}<tbody>{"".join(line(row, "td") for row in rows)}</tbody></table></div>'
    )
    for verdict, mark in (
        ("fits", "yes"),
        ("does not fit", "no"),
        ("holds", "yes"),
        ("does not hold", "no"),
    ):
        text = text.replace(f"<td>{verdict}</td>", f'<td class="{mark}">{verdict}</td>')
    return text


def _folded(title: str, table: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{table}</details>"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _answer(report: Report) -> list[list[str]]:
    memory, step, speed, run = (report[key] for key in ("memory", "step", "throughput", "run"))
    free = memory["headroom_bytes"]
    rows = [
        ["answer", "fits" if memory["fits"] else "does not fit"],
        ["layout", f"{layout_text(report['layout'])} ({report['stack']['title']})"],
        [
            "memory per GPU",
            (
                f"{show(memory['device_bytes'], 'B')} of {show(memory['capacity_bytes'], 'B')},"
                f" {show(abs(free), 'B')} {'free' if free >= 0 else 'short'}; fullest is stage"
                f" {memory['worst_stage']}, {memory['worst_phase']}:"
                f" {show(memory['peak_bytes'], 'B')} allocated,"
                f" {show(memory['reserved_bytes'], 'B')} reserved"
            ),
        ],
        [
            "host memory per GPU",
            (
                f"{show(memory['host_bytes'], 'B')}"
                f" offloaded{'' if memory['host_fits'] else ', more than there is'};"
                f" {show(memory['host_saving_bytes'], 'B')} to save a checkpoint,"
                f" {show(memory['host_loading_bytes'], 'B')} to load one"
            ),
        ],
        *(
            [
                [
                    "NVMe drives per GPU",
                    (
                        f"{show(memory['nvme_bytes'], 'B')} offloaded"
                        f"{'' if memory['nvme_fits'] else ', more than there is'}"
                    ),
                ]
            ]
            if memory["nvme_bytes"]
            else []
        ),
        [
            "step time",
            (
                f"{show(step['seconds'], 's')}, 80 % band {show(step['low'], 's')} to"
                f" {show(step['high'], 's')} ({step['confidence']})"
            ),
        ],
        ["bottleneck", step["bottleneck"]],
        [
            "throughput",
            f"{speed['tokens_per_s']:,.0f} tokens/s, {speed['tokens_per_s_per_gpu']:,.0f} per GPU",
        ],
        [
            "MFU",
            f"{_percent(speed['mfu'])}; HFU {_percent(speed['hfu'])}; {speed['flop_convention']}",
        ],
    ]
    if run["days"] is not None:
        cost = "no price known" if run["cost_usd"] is None else f"{run['cost_usd']:,.0f} USD"
        rows.append(
            [
                "run",
                (
                    f"{show(run['tokens'], 'count')} tokens in {run['days']:,.1f} days,"
                    f" {run['gpu_hours']:,.0f} GPU-hours, {cost}, {run['energy_kwh']:,.0f} kWh"
                ),
            ]
        )
    return rows


def _stage_table(report: Report) -> str:
    stages, parts = report["memory"]["per_stage"], stage_bytes(report)
    header = ["stage", "layers", "fullest phase", *(_words(part) for part in parts), "sum"]
    rows = [
        [
            str(stage["stage"]),
            f"{stage['layers']:g}",
            stage["worst_phase"],
            *(show(values[i], "B") for values in parts.values()),
            show(sum(values[i] for values in parts.values()), "B"),
        ]
        for i, stage in enumerate(stages)
    ]
    return table(header, rows, (0, 1, *range(3, len(header))))


def _phase_table(report: Report) -> str:
    parts = list(report["memory"]["components"])
    header = ["stage", "phase", *(_words(part) for part in parts), "sum"]
    rows = [
        [
            str(stage["stage"]),
            phase["name"],
            *(show(phase["components"][part], "B") for part in parts),
            show(phase["bytes"], "B"),
        ]
        for stage in report["memory"]["per_stage"]
        for phase in stage["phases"]
    ]
    return table(header, rows, (0, *range(2, len(header))))


def _time_table(report: Report) -> str:
    step = report["step"]
    rows = [
        [
            _words(part),
            show(value, "s"),
            _percent(value / step["seconds"]),
            show(step["hidden"].get(part, 0.0), "s"),
        ]
        for part, value in step["components"].items()
    ]
    return table(
        ["part", "time", "share", "hidden beside it"],
        [*rows, ["step", show(step["seconds"], "s"), "", ""]],
        (1, 2, 3),
    )


def _operator_table(report: Report) -> str:
    rows = [[name, show(value, "s")] for name, value in report["step"]["operators"].items()]
    return table(["operator", "time"], rows, (1,))


def _communication_table(report: Report) -> str:
    rows = [
        [
            c["operation"],
            c["group"],
            c["what"],
            c["link"],
            f"{c['count']:,.4g}",
            show(c["bytes"], "traffic"),
            show(c["seconds"], "s"),
            show(c["hidden_seconds"], "s"),
        ]
        for c in report["communication"]
    ]
    return table(
        ["operation", "group", "what", "link", "calls", "bytes each", "time", "hidden"],
        rows,
        (4, 5, 6, 7),
    )


def _requirements(report: Report) -> list[str]:
    if not report["requirements"]:
        return []
    rows = [
        [
            one["text"],
            limit_text(one, "value"),
            limit_text(one, "limit"),
            "holds" if one["holds"] else "does not hold",
        ]
        for one in report["requirements"]
    ]
    return [
        "<h2>Requirements</h2>",
        table(["requirement", "value", "limit", "verdict"], rows, (1, 2)),
    ]


def _advice(report: Report) -> list[str]:
    if not report["advice"]:
        return []
    rows = [
        [
            a["change"],
            show(a["step_seconds"], "s"),
            f"{100 * a['step_change_frac']:+.1f} %",
            f"{100 * a['tokens_change_frac']:+.1f} %",
            f"{'-' if a['bytes_saved'] > 0 else '+'}{show(abs(a['bytes_saved']), 'B')}",
            "fits" if a["fits"] else "does not fit",
            a["command"],
        ]
        for a in report["advice"]
    ]
    header = ["change", "step", "of the step", "tokens/s", "memory", "", "command"]
    return ["<h2>Changes, each evaluated</h2>", table(header, rows, (1, 2, 3, 4))]


def _machine_table(report: Report) -> str:
    rows = [
        [
            n["name"],
            f"{n['value']:.6g} {'' if n['unit'] == '1' else n['unit']}".strip(),
            n["kind"],
            f"{n['elasticity']:+.2f}",
            n["source"],
            n["date"],
        ]
        for n in report["machine"]
    ]
    return table(
        ["number", "value", "kind", "elasticity of the step", "source", "date"], rows, (1, 3)
    )


def _rests_on(report: Report) -> str:
    shares = report["provenance"]
    told = ", ".join(
        f"{_percent(shares[f'{kind}_frac'])} {kind}" for kind in ("measured", "vendor", "assumed")
    )
    return f"Of the step time's sensitivity to the numbers of the machine, {told}."
