"""An estimate as one HTML page: the answer, its charts, the table behind each, the assumptions."""

from __future__ import annotations

from typing import Any

from planner.show.estimate_figures import charts
from planner.show.page import Folded, Part
from planner.show.page import page as whole
from planner.show.text import Block, layout_text, limit_text
from planner.units import show

Report = Any  # until it reads attributes


def page(report: Report) -> str:
    """The report as one HTML page. Raises PlanError where plotly is not installed."""
    title = (
        f"{report['model']['title']} on {report['cluster']['gpus']:,} x"
        f" {report['cluster']['gpu_title']}"
    )
    parts: list[Part] = [
        _answer(report),
        *_requirements(report),
        *charts(report),
        Folded(_operators(report)),
        Folded(_communication(report)),
        *_advice(report),
        Block("Assumptions", report["assumptions"]),
        Block("", [_rests_on(report)]),
        Folded(_machine(report)),
    ]
    return whole(title, parts, report["command"])


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _answer(report: Report) -> Block:
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
    ]
    if memory["nvme_bytes"]:
        more = "" if memory["nvme_fits"] else ", more than there is"
        rows.append(["NVMe drives per GPU", f"{show(memory['nvme_bytes'], 'B')} offloaded{more}"])
    rows += [
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
    return Block("", header=["", ""], rows=rows)


def _operators(report: Report) -> Block:
    rows = [[name, show(value, "s")] for name, value in report["step"]["operators"].items()]
    return Block("Seconds of each operator, slowest stage", [], ["operator", ">time"], rows)


def _communication(report: Report) -> Block:
    return Block(
        "Communication",
        header=["operation", "group", "what", "link", ">calls", ">bytes each", ">time", ">hidden"],
        rows=[
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
        ],
    )


def _requirements(report: Report) -> list[Block]:
    if not report["requirements"]:
        return []
    rows = [
        [
            one["text"],
            limit_text(one["value"], one["unit"]),
            limit_text(one["limit"], one["unit"]),
            "holds" if one["holds"] else "does not hold",
        ]
        for one in report["requirements"]
    ]
    return [Block("Requirements", [], ["requirement", ">value", ">limit", "verdict"], rows)]


def _advice(report: Report) -> list[Block]:
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
    header = ["change", ">step", ">of the step", ">tokens/s", ">memory", "", "command"]
    return [Block("Changes, each evaluated", [], header, rows)]


def _machine(report: Report) -> Block:
    return Block(
        "Numbers of the machine, with sources",
        header=["number", ">value", "kind", ">elasticity of the step", "source", "date"],
        rows=[
            [
                n["name"],
                f"{n['value']:.6g} {'' if n['unit'] == '1' else n['unit']}".strip(),
                n["kind"],
                f"{n['elasticity']:+.2f}",
                n["source"],
                n["date"],
            ]
            for n in report["machine"]
        ],
    )


def _rests_on(report: Report) -> str:
    shares = report["provenance"]
    told = ", ".join(
        f"{_percent(shares[f'{kind}_frac'])} {kind}" for kind in ("measured", "vendor", "assumed")
    )
    return f"Of the step time's sensitivity to the numbers of the machine, {told}."
