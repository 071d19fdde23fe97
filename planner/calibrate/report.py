"""A verification as Markdown and as one HTML page with plots, which opens without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.calibrate.quiet import SLACK
from planner.inputs import catalog
from planner.show.figures import BLUE, LOG, ROSE, Chart, axis, bars, figure, guides, markers
from planner.show.page import Part
from planner.show.page import page as whole
from planner.show.text import Block
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

_MOST_LABELS = 12  # decoders whose names have room under their bars


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


def chart(out: dict[str, Any]) -> Chart:
    """Predicted against measured step on logarithmic axes, and error per decoder."""
    names = [row["name"] for row in out["cases"]]
    measured, predicted = (
        [row[key] for row in out["cases"]] for key in ("measured_step_s", "predicted_step_s")
    )
    said = [
        f"{name}: predicted {show(a, 's')}, measured {show(b, 's')}"
        for name, a, b in zip(names, predicted, measured, strict=True)
    ]
    errors = [100 * row["error"] for row in out["cases"]]
    data = [
        *guides([*measured, *predicted], ()),
        markers("decoders", measured, predicted, BLUE, said, size=10),
        bars("error", names, errors, ROSE, [f"{e:+.1f} %" for e in errors], xaxis="x2", yaxis="y2"),
    ]
    return Chart(
        "verify",
        "Step times",
        "",
        figure(
            data,
            axis("measured step (s)", LOG, domain=[0, 0.42]),
            axis("predicted step (s)", LOG),
            xaxis2=axis(domain=[0.52, 1], anchor="y2", showticklabels=len(names) <= _MOST_LABELS),
            yaxis2=axis("error (%), negative is too fast", anchor="x2"),
            showlegend=False,
        ),
    )


def page(out: dict[str, Any]) -> str:
    """The HTML page: headline, chart, table."""
    parts: list[Part] = [
        Block("", [f"{headline(out)}."]),
        chart(out),
        Block("Decoders", header=list(_HEADER), rows=rows(out)),
    ]
    return whole("Predicted against measured", parts, option="--report")


def write(out: dict[str, Any], folder: Path) -> None:
    """report.md, report.html and report.json, each whole or not at all."""
    for name, text in (
        ("report.md", markdown(out)),
        ("report.html", page(out)),
        ("report.json", json.dumps(out, indent=1) + "\n"),
    ):
        catalog.write_text(folder / name, "--report", text)
