"""Predicted against measured step times as a chart."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from planner.studies.documents.validate import Run, Summary, Validation
from planner.views.chart import Chart
from planner.views.figures import (
    CYCLE,
    LOG,
    SILVER,
    SLATE,
    SYMBOLS,
    axis,
    figure,
    guides,
    hline,
    markers,
    note,
)
from planner.views.view import View

_GUIDES = (0.05, 0.10, 0.20)
_SHARES = tuple(sign * share for share in _GUIDES for sign in (1, -1))
_BESIDE = {"gpus": "GPUs", "measured_step_s": "measured step (s)"}  # what errors are shown against


def view(document: Validation) -> View:
    """The figure without the tables."""
    return View("Predicted against measured step time", parts=(chart(document),))


def chart(document: Validation) -> Chart:
    """Predicted over measured step time, and the error against GPUs or against the step."""
    suites: dict[str, list[Run]] = defaultdict(list)
    for run in document.rows:
        if run.time_error is not None and not (run.not_expressed or run.not_printed):
            suites[run.suite].append(run)
    timed = (run.measured_step_s or 0.0 for runs in suites.values() for run in runs)
    data = guides(timed, _SHARES)
    second, beside = [], []
    for i, (suite, runs) in enumerate(sorted(suites.items())):
        common: dict[str, Any] = {
            "color": CYCLE[i % len(CYCLE)],
            "text": [_hover(run) for run in runs],
            "size": 6,
            "symbol": SYMBOLS[i // len(CYCLE) % len(SYMBOLS)],
            "opacity": 0.75,
            "legendgroup": suite,
        }
        name = f"{suite} ({len(runs)})"
        beside.append({key: [getattr(run, key) for run in runs] for key in _BESIDE})
        predicted = [run.predicted_step_s or 0.0 for run in runs]
        data.append(markers(name, beside[-1]["measured_step_s"], predicted, **common))
        second.append(len(data))
        errors = [100 * (run.time_error or 0.0) for run in runs]
        marks = markers(name, beside[-1]["gpus"], errors, **common)
        data.append({**marks, "showlegend": False, "xaxis": "x2", "yaxis": "y2"})
    buttons = [
        {
            "label": f"error against {title}",
            "method": "update",
            "args": [{"x": [point[key] for point in beside]}, {"xaxis2.title.text": title}, second],
        }
        for key, title in _BESIDE.items()
    ]
    return Chart(
        "validate",
        "Step times",
        _summary(document.summary),
        figure(
            data,
            axis("measured step (s)", LOG, domain=[0, 0.47]),
            axis("predicted step (s)", LOG),
            xaxis2=axis("GPUs", LOG, domain=[0.54, 1], anchor="y2"),
            yaxis2=axis("error (%), negative is too fast", anchor="x2"),
            shapes=[
                hline(100 * share, SILVER, "dot", xref="x2 domain", yref="y2") for share in _SHARES
            ],
            annotations=[
                note(
                    f"{share:+.0%}",
                    1,
                    100 * share,
                    SLATE,
                    **{"xref": "x2 domain", "yref": "y2", "xanchor": "left"},
                )
                for share in _SHARES
            ],
            updatemenus=[
                {"buttons": buttons, "x": 1, "y": 1.12, "xanchor": "right", "showactive": True}
            ],
            margin={"t": 60, "r": 50},
            height=760,
        ),
        caption="Left: dotted lines are 5, 10 and 20 % off. Right: the error of the same runs.",
    )


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


def _summary(summary: Summary) -> str:
    time, noise = summary.time, summary.noise.mean
    if not time.n:
        return "No run has a time."
    repeats = "" if noise is None else f"; repeats of one run lie {noise:.1%} from their median"
    return (
        f"{time.n:,} runs: mean error {time.mape:.1%}, median {time.median_ape:.1%}, bias"
        f" {time.bias:+.1%}{repeats}."
    )
