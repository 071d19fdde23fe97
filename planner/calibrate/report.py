"""A verification as Markdown and as one HTML page with plots, which opens without a network."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from planner.calibrate.quiet import SLACK
from planner.inputs import catalog
from planner.units import show

_HEADER = (
    "decoder",
    "predicted",
    "measured",
    "error",
    "forward and backward",
    "optimizer",
    "communication",
    "bytes of states",
    "exact",
    "tokens/s",
    "quiet",
)


def rows(out: dict[str, Any]) -> list[list[str]]:
    """One line of text per decoder: step, parts as predicted / measured, bytes, tokens per
    second."""
    found = []
    for row in out["cases"]:
        said, took = row["predicted_parts"], row["measured_parts"]
        found.append(
            [
                row["name"],
                show(row["predicted_step_s"], "s"),
                show(row["measured_step_s"], "s"),
                f"{100 * row['error']:+.1f} %",
                (
                    f"{show(said['forward and backward'], 's')} /"
                    f" {show(took['forward'] + took['backward'], 's')}"
                ),
                f"{show(said['optimizer'], 's')} / {show(took['optimizer'], 's')}",
                show(said["communication"], "s"),
                f"{row['predicted_bytes']:,.0f} / {row['measured_bytes']:,.0f}",
                "yes" if row["states_exact"] else "no",
                f"{row['measured_tokens_per_s']:,.0f}",
                "yes" if row["quiet"] else "no",
            ]
        )
    return found


def headline(out: dict[str, Any]) -> str:
    s = out["summary"]
    if not s["n"]:
        return "no decoder was trained"
    quiet = "" if out["quiet"] else "; the machine was not quiet, so errors hold noise"
    if abs(out["speed"] - 1) > SLACK - 1:
        quiet += (
            f"; the machine runs at {out['speed']:.2f} times the speed of its calibration, times"
            " are scaled to that"
        )
    errors = (
        f"mean error {100 * s['mape']:.1f} %, worst {100 * s['worst']:.1f} %, bias"
        f" {100 * s['bias']:+.1f} %"
    )
    states = f"bytes of states {'exact' if s['states_exact'] else 'differ'}"
    return (
        f"{s['n']} decoders on {out['gpu']}, {out['ranks']} ranks, {out['precision']}: {errors};"
        f" {states}{quiet}"
    )


def markdown(out: dict[str, Any]) -> str:
    lines = [
        "# Predicted against measured",
        "",
        headline(out) + ".",
        "",
        (
            f"Calibration: {out['calibration'] or 'shipped profile'}. Parts are predicted /"
            " measured; measured backward holds the communication that runs beside it."
        ),
        "",
        "| " + " | ".join(_HEADER) + " |",
        "|" + " --- |" * len(_HEADER),
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows(out)]
    lines += ["", "| parallel | decoders | mean error | worst |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {name} | {e['n']} | {100 * e['mape']:.1f} % | {100 * e['worst']:.1f} % |"
        for name, e in out["summary"]["parallel"].items()
    ]
    return "\n".join(lines) + "\n"


def figure(out: dict[str, Any]) -> dict[str, Any]:
    """Predicted against measured step on logarithmic axes, and error per decoder."""
    names = [row["name"] for row in out["cases"]]
    measured, predicted = (
        [row[key] for row in out["cases"]] for key in ("measured_step_s", "predicted_step_s")
    )
    ends = [
        0.8 * min(measured + predicted, default=1.0),
        1.25 * max(measured + predicted, default=1.0),
    ]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "x": ends,
                "y": ends,
                "name": "equal",
                "line": {"color": "#999999"},
            },
            {
                "type": "scatter",
                "mode": "markers",
                "x": measured,
                "y": predicted,
                "text": names,
                "name": "decoders",
                "marker": {"color": "#4477aa", "size": 10},
            },
            {
                "type": "bar",
                "x": names,
                "y": [100 * row["error"] for row in out["cases"]],
                "xaxis": "x2",
                "yaxis": "y2",
                "name": "error",
                "marker": {"color": "#cc6677"},
            },
        ],
        "layout": {
            "showlegend": False,
            "plot_bgcolor": "#ffffff",
            "xaxis": {
                "type": "log",
                "title": {"text": "measured step (s)"},
                "domain": [0, 0.42],
                "gridcolor": "#e6e6e6",
            },
            "yaxis": {
                "type": "log",
                "title": {"text": "predicted step (s)"},
                "gridcolor": "#e6e6e6",
            },
            "xaxis2": {"domain": [0.52, 1], "anchor": "y2", "showticklabels": len(names) <= 12},
            "yaxis2": {
                "title": {"text": "error (%), negative is too fast"},
                "anchor": "x2",
                "gridcolor": "#e6e6e6",
            },
        },
    }


def page(out: dict[str, Any]) -> str:
    """The HTML page: headline, plots, table."""
    from plotly.io import to_html

    plot = to_html(figure(out), include_plotlyjs=True, full_html=False)

    def line(cells: Any, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(c)}</{tag}>" for c in cells) + "</tr>"

    table = f"<table><thead>{line(_HEADER, 'th')}</thead><tbody>{''.join(line(cells, 'td') for cells in rows(out))}</tbody></table>"
    style = (
        "body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.3em"
        " .7em;border:1px solid #ccc}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Predicted against'
        f" measured</title><style>{style}"
        "</style></head><body><h1>Predicted against"
        f" measured</h1><p>{escape(headline(out))}.</p>{plot}"
        f"<div style='overflow-x:auto'>{table}</div></body></html>\n"
    )


def write(out: dict[str, Any], folder: Path) -> None:
    """report.md, report.html and report.json, each whole or not at all."""
    for name, text in (
        ("report.md", markdown(out)),
        ("report.html", page(out)),
        ("report.json", json.dumps(out, indent=1) + "\n"),
    ):
        catalog.write_text(folder / name, "--report", text)
