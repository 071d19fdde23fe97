"""The formulas behind a report, as nested plain data: time, memory, and the rates and the run that
follow from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.api import Options
from planner.inputs.scenario import resolve
from planner.ledger import Call, Sourced, recording
from planner.report import layout as report
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.units import show

_MOST = 6  # values of an array that are worth showing
_TITLES = {"time": "Step time", "memory": "Memory", "rates": "Throughput and the run"}


def document(options: Options) -> dict[str, Any]:
    """Three trees of formulas of the layout that an estimate answers with, and the numbers of the
    machine with their sources."""
    scenario = resolve(options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    with recording() as tree:
        said = report.report(answer.chosen, answer.row, scenario.assumptions, sensitivities=False)
    sections = {call.formula.name: call for call in tree.calls if not call.formula.equation}
    loose = [call for call in tree.calls if call.formula.equation]
    parts = []
    for key, calls in (
        ("time", _inner(sections, "step time")),
        ("memory", _inner(sections, "memory")),
        ("rates", loose),
    ):
        parts.append(
            {
                "key": key,
                "title": _TITLES[key],
                "leaves": leaves(said, key),
                "calls": [node(c) for c in merged(calls)],
            }
        )
    return {"schema_version": said["schema_version"], "parts": parts}


def _inner(sections: dict[str, Call], name: str) -> list[Call]:
    return sections[name].calls if name in sections else []


def merged(calls: list[Call]) -> list[Call]:
    """Calls without exact repetitions: the same formula with the same numbers says nothing
    twice."""
    seen: set[str] = set()
    out = []
    for call in calls:
        key = (
            f"{call.formula.name} {call.inputs!r} {[c.formula.name for c in call.calls]}"
            if call.formula.equation
            else f"{id(call)}"
        )
        if key not in seen:
            seen.add(key)
            out.append(call)
    return out


def leaves(said: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """What the number is the sum of, or made of."""
    if key == "time":
        return [
            {"name": n.replace("_", " "), "shown": show(v, "s"), "value": v}
            for n, v in said["step"]["components"].items()
            if v > 0
        ]
    if key == "memory":
        memory = said["memory"]
        found = {**memory["components"], **memory["outside"]}
        return [
            {"name": n.replace("_", " "), "shown": show(v, "B"), "value": v}
            for n, v in found.items()
            if v > 0
        ]
    speed, run = said["throughput"], said["run"]
    out = [
        {
            "name": "model FLOP per step",
            "shown": show(speed["model_flop_per_step"], "FLOP"),
            "value": speed["model_flop_per_step"],
        },
        {
            "name": "tokens per step",
            "shown": f"{said['training']['global_batch'] * said['training']['seq_len']:,}",
            "value": said["training"]["global_batch"] * said["training"]["seq_len"],
        },
        {"name": "goodput", "shown": f"{100 * run['goodput']:.2f} %", "value": run["goodput"]},
    ]
    if said["cluster"]["usd_per_gpu_hour"] is not None:
        price = said["cluster"]["usd_per_gpu_hour"]
        out.append(
            {
                "name": f"price per GPU-hour ({said['cluster']['price_source']})",
                "shown": f"{price:,.2f} USD",
                "value": price,
            }
        )
    return out


def node(call: Call) -> dict[str, Any]:
    """One call with its inputs, output and inner calls."""
    formula = call.formula
    out: dict[str, Any] = {"name": formula.name.replace("_", " ")}
    if formula.equation:
        out.update(
            equation=formula.equation,
            source=formula.source,
            unit=formula.unit,
            module=formula.module,
            doc=formula.doc,
            output=_text(call.output, formula.unit),
            inputs=[_input(name, value) for name, value in call.inputs.items()],
        )
    if call.calls:
        out["calls"] = [node(inner) for inner in merged(call.calls)]
    return out


def _input(name: str, value: Any) -> dict[str, Any]:
    out = {"name": name, "shown": _text(value, "")}
    if isinstance(value, Sourced):
        out.update(kind=value.kind, source=value.source, date=value.date)
    return out


def _text(value: Any, unit: str) -> str:
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "US":
        return str(value)[:200]
    flat = array.reshape(-1)
    said = [show(float(x), unit) if unit else f"{float(x):.6g}" for x in flat[:_MOST]]
    more = f", … ({flat.size})" if flat.size > _MOST else ""
    return said[0] if flat.size == 1 else "[" + ", ".join(said) + more + "]"
