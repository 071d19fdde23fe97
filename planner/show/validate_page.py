"""Predicted against measured as one HTML page: plotly with its script embedded, so that it opens
without a network."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from planner.specs.base import PlanError
from planner.specs.documents.validate import Run, Validation

_GUIDES = (0.05, 0.10, 0.20)
# a color-blind safe cycle (Paul Tol, "bright" and "muted"), then again with another marker
_COLORS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#332288",
    "#ddcc77",
    "#117733",
    "#88ccee",
    "#882255",
    "#44aa99",
    "#999933",
)
_MARKERS = ("circle", "diamond", "square", "triangle-up")
_CONFIG = {"displaylogo": False, "showSendToCloud": False, "responsive": True}
_BESIDE = {"gpus": "GPUs", "seconds": "measured step (s)"}  # what errors are shown against


def figure(document: Validation) -> dict[str, Any]:
    """A plotly figure as plain data: predicted over measured step time, and the error against GPUs
    or against the step."""
    suites: dict[str, list[Run]] = defaultdict(list)
    for run in document.rows:
        if run.time_error is not None:
            suites[run.suite].append(run)
    measured = [run.measured_step_s or 0.0 for runs in suites.values() for run in runs]
    ends = [0.7 * min(measured), 1.4 * max(measured)] if measured else [0.1, 10.0]
    data = [trace for guide in _GUIDES for trace in _guide(guide, ends)]
    data.append(_line("equal", ends, ends, {"color": "#888888", "width": 1}))
    for i, (suite, runs) in enumerate(sorted(suites.items())):
        marker = {
            "color": _COLORS[i % len(_COLORS)],
            "size": 6,
            "opacity": 0.75,
            "symbol": _MARKERS[i // len(_COLORS) % len(_MARKERS)],
        }
        common = {
            "type": "scatter",
            "mode": "markers",
            "name": f"{suite} ({len(runs)})",
            "legendgroup": suite,
            "marker": marker,
            "text": [_hover(run) for run in runs],
            "hovertemplate": "%{text}<extra></extra>",
        }
        data.append(
            {
                **common,
                "x": [run.measured_step_s for run in runs],
                "y": [run.predicted_step_s for run in runs],
            }
        )
        percent = [100 * (run.time_error or 0.0) for run in runs]
        data.append(
            {
                **common,
                "showlegend": False,
                "xaxis": "x2",
                "yaxis": "y2",
                "x": [run.gpus for run in runs],
                "y": percent,
                "meta": {
                    "gpus": [run.gpus for run in runs],
                    "seconds": [run.measured_step_s for run in runs],
                },
            }
        )
    return {"data": data, "layout": _layout(document, data, ends)}


def _line(name: str, x: list[float], y: list[float], style: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": style,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _guide(share: float, ends: list[float]) -> list[dict[str, Any]]:
    style = {"color": "#bbbbbb", "width": 1, "dash": "dot"}
    return [
        _line(f"{sign * share:+.0%}", ends, [end * (1 + sign * share) for end in ends], style)
        for sign in (1, -1)
    ]


def _hover(run: Run) -> str:
    words = run.layout.split(" ")
    lines = [" ".join(words[i : i + 6]) for i in range(0, len(words), 6)]
    text = [
        run.run_id,
        f"{run.model} on {run.gpus:,} x {run.gpu}, {run.stack}",
        *lines,
        f"predicted {run.predicted_step_s:.4g} s, measured {run.measured_step_s:.4g} s",
        f"error {run.time_error:+.1%}",
    ]
    return "<br>".join(str(line).replace("&", "&amp;").replace("<", "&lt;") for line in text)


def _layout(document: Validation, data: list[dict[str, Any]], ends: list[float]) -> dict[str, Any]:
    time, noise = document.summary.time, document.summary.noise
    told = "no run has a time"
    if time.n:
        told = (
            f"{time.n:,} runs: mean error {time.mape:.1%}, median {time.median_ape:.1%},"
            f" bias {time.bias:+.1%}"
        )
        if noise.mean is not None:
            told += f"; repeats of one run lie {noise.mean:.1%} from their median"
    grid = {"gridcolor": "#e6e6e6", "zerolinecolor": "#888888"}
    second = [i for i, trace in enumerate(data) if trace.get("xaxis") == "x2"]
    buttons = [
        {
            "label": f"error against {title}",
            "method": "update",
            "args": [
                {"x": [data[i]["meta"][key] for i in second]},
                {"xaxis2.title.text": title},
                second,
            ],
        }
        for key, title in _BESIDE.items()
    ]
    bands = [
        {
            "type": "line",
            "xref": "x2 domain",
            "yref": "y2",
            "x0": 0,
            "x1": 1,
            "y0": 100 * sign * guide,
            "y1": 100 * sign * guide,
            "line": {"color": "#bbbbbb", "width": 1, "dash": "dot"},
        }
        for guide in _GUIDES
        for sign in (1, -1)
    ]
    return {
        "title": {"text": f"Predicted against measured step time<br><sub>{told}</sub>"},
        "xaxis": {
            **grid,
            "type": "log",
            "title": {"text": "measured step (s)"},
            "domain": [0, 0.47],
        },
        "yaxis": {**grid, "type": "log", "title": {"text": "predicted step (s)"}},
        "xaxis2": {
            **grid,
            "type": "log",
            "title": {"text": "GPUs"},
            "domain": [0.54, 1],
            "anchor": "y2",
        },
        "yaxis2": {**grid, "title": {"text": "error (%), negative is too fast"}, "anchor": "x2"},
        "shapes": bands,
        "annotations": [
            {
                "text": f"{sign * guide:+.0%}",
                "xref": "x2 domain",
                "yref": "y2",
                "x": 1,
                "y": 100 * sign * guide,
                "xanchor": "left",
                "showarrow": False,
                "font": {"size": 10, "color": "#666666"},
            }
            for guide in _GUIDES
            for sign in (1, -1)
        ],
        "updatemenus": [
            {"buttons": buttons, "x": 1, "y": 1.12, "xanchor": "right", "showactive": True}
        ],
        "plot_bgcolor": "#ffffff",
        "hovermode": "closest",
        "height": 760,
        "legend": {"orientation": "h", "y": -0.15},
    }


def page(document: Validation) -> str:
    """The figure as one HTML page. Raises PlanError where plotly is not installed."""
    try:
        from plotly.io import to_html
    except ImportError:
        raise PlanError(
            "--plot", None, "needs plotly, which this environment lacks: pip install 'plotly>=6'"
        ) from None
    text: str = to_html(
        figure(document), config=_CONFIG, include_plotlyjs=True, full_html=True, validate=True
    )
    return text.replace("<head>", "<head><title>Predicted against measured step time</title>", 1)
