"""A verification as text, as Markdown, and as one HTML page with plots, which opens without a
network."""

from __future__ import annotations

from pathlib import Path

from planner.calibrate.documents import Verification, VerifiedCase
from planner.calibrate.quiet import SLACK
from planner.inputs import files
from planner.specs.document import to_json
from planner.units import percent, show
from planner.views.chart import Chart
from planner.views.figures import BLUE, LOG, ROSE, axis, bars, figure, guides, markers
from planner.views.page import page
from planner.views.view import Block, View

_TITLE = "Predicted against measured"
_MOST_NAMES = 12  # of decoders that fit below the bars


def blocks(out: Verification) -> list[Block]:
    """Every decoder, and errors by parallelism."""
    decoders = Block(
        "Decoders that were trained",
        text=[headline(out)],
        header=[
            "decoder",
            ">predicted",
            ">measured",
            ">error",
            ">forward and backward",
            ">optimizer",
            ">communication",
            ">bytes of states",
            "exact",
            ">tokens/s",
            "quiet steps",
        ],
        rows=[_row(case) for case in out.cases],
    )
    kinds = Block(
        "By parallelism",
        text=[
            f"tolerance {out.summary.tolerance:.1%} of the mean error:"
            f" {'within' if out.summary.within else 'beyond'}",
            steadiness(out),
        ],
        header=["parallel", ">decoders", ">mean error", ">worst", ">bias", ">8 of 10 further ones"],
        rows=[
            [
                name,
                str(e.n),
                percent(e.mape),
                percent(e.worst),
                percent(e.bias, sign=True),
                "-" if e.low is None or e.high is None else f"{e.low:.2f} .. {e.high:.2f}",
            ]
            for name, e in out.summary.parallel.items()
        ],
    )
    return [decoders, kinds]


def _row(case: VerifiedCase) -> list[str]:
    """Step, parts as predicted / measured, bytes, tokens per second."""
    said, took = case.predicted_parts, case.measured_parts
    passes_s = took.forward + took.backward
    return [
        case.name,
        show(case.predicted_step_s, "s"),
        show(case.measured_step_s, "s"),
        f"{100 * case.error:+.1f} %",
        f"{show(said.forward_and_backward, 's')} / {show(passes_s, 's')}",
        f"{show(said.optimizer, 's')} / {show(took.optimizer, 's')}",
        show(said.communication, "s"),
        f"{case.predicted_bytes:,.0f} / {case.measured_bytes:,.0f}",
        "yes" if case.states_exact else "no",
        f"{case.measured_tokens_per_s:,.0f}",
        f"{case.repeats} of {case.tried}" if case.quiet else f"no: {case.why}",
    ]


def headline(out: Verification) -> str:
    s = out.summary
    if s.mape is None or s.worst is None or s.bias is None:
        return "no decoder was trained"
    said = (
        f"{s.n} decoders on {out.gpu}, {out.ranks} ranks, {out.precision}: mean error"
        f" {100 * s.mape:.1f} %, worst {100 * s.worst:.1f} %, bias {100 * s.bias:+.1f} %; bytes of"
        f" states {'exact' if s.states_exact else 'differ'}"
    )
    if s.unquiet and len(s.unquiet) == len(out.cases):
        said += "; none was quiet, so errors hold noise"
    elif s.unquiet:
        said += f"; not quiet and left out: {', '.join(s.unquiet)}"
    if abs(out.speed - 1) > SLACK - 1:
        said += (
            f"; the machine runs at {out.speed:.2f} times the speed of its calibration, times are"
            " scaled to that"
        )
    return said


def steadiness(out: Verification) -> str:
    """How far one decoder's own steps differ, in words."""
    s = out.summary.steadiness
    said = (
        f"steps of one decoder differ by {percent(s.repeats)}, its moments by {percent(s.moments)}"
        f" (middle decoder; worst {percent(s.moments_worst)})"
    )
    if s.others_most is not None:
        said += (
            f", while other programs had {percent(s.others_least)} to {percent(s.others_most)} of"
            " the cores"
        )
    said += "; the last column is measured over predicted"
    return f"{said}; bands of estimates with the file do not get narrower" if out.kept else said


def markdown(out: Verification) -> str:
    decoders, kinds = blocks(out)
    lines = [
        f"# {_TITLE}",
        *(f"{sentence}." for sentence in (*decoders.text, _parts_said(out), *kinds.text)),
        _markdown_table(decoders),
        _markdown_table(kinds),
    ]
    return "\n\n".join(lines) + "\n"


def _parts_said(out: Verification) -> str:
    return (
        f"Calibration: {out.calibration or 'shipped profile'}. Parts are predicted / measured;"
        " measured backward holds the communication that runs beside it"
    )


def _markdown_table(block: Block) -> str:
    names = [name.lstrip(">") for name in block.header]
    sides = ["---:" if name.startswith(">") else "---" for name in block.header]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, sides, *block.rows))


def chart(out: Verification) -> Chart:
    """Predicted against measured step on logarithmic axes, and error per decoder."""
    names = [case.name for case in out.cases]
    measured = [case.measured_step_s for case in out.cases]
    predicted = [case.predicted_step_s for case in out.cases]
    errors = [100 * case.error for case in out.cases]
    said = [
        f"{case.name}: predicted {show(case.predicted_step_s, 's')}, measured"
        f" {show(case.measured_step_s, 's')}"
        for case in out.cases
    ]
    heights = [f"{error:+.1f} %" for error in errors]
    return Chart(
        "verification",
        "Steps and their errors",
        "",
        figure(
            [
                *guides([*measured, *predicted], ()),
                markers("decoders", measured, predicted, BLUE, said),
                bars("error", names, errors, ROSE, heights, xaxis="x2", yaxis="y2"),
            ],
            axis("measured step (s)", LOG, domain=[0, 0.42]),
            axis("predicted step (s)", LOG),
            xaxis2=axis(domain=[0.52, 1], anchor="y2", showticklabels=len(names) <= _MOST_NAMES),
            yaxis2=axis("error (%), negative is too fast", anchor="x2"),
            showlegend=False,
        ),
    )


NAMES = ("report.md", "report.html", "report.json")


def write(out: Verification, folder: Path) -> None:
    """report.md, report.html and report.json, each whole or not at all."""
    decoders, kinds = blocks(out)
    texts = (
        markdown(out),
        page(View(_TITLE, parts=[decoders, chart(out), kinds]), option="--report"),
        to_json(out, indent=1) + "\n",
    )
    for name, text in zip(NAMES, texts, strict=True):
        files.write_text(folder / name, "--report", text)
