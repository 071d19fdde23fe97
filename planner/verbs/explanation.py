"""The formulas behind each figure of an estimate: time, memory, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs

from planner.inputs.scenario import resolve
from planner.ledger import Call, Sourced, recording
from planner.report import layout as report
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.specs.document import UNSET
from planner.specs.documents.estimate import Report
from planner.specs.documents.explanation import Explanation, Input, Leaf, Node, Part
from planner.specs.options import Options
from planner.units import percent, show

_MOST = 6  # values of an array that are worth showing
_TITLES = {
    "time": "Step time",
    "memory": "Memory",
    "throughput": "Throughput",
    "mfu": "FLOP utilisation",
    "days": "Training time",
    "cost": "Cost",
    "energy": "Energy",
}
# figures that follow from the step time: the formulas that make them
_FIGURES = {
    "throughput": ("tokens_per_s",),
    "mfu": ("causal_pairs", "attention_forward_flop", "model_flop", "utilisation"),
    "days": (
        "job_mtbf_s",
        "checkpoint_bytes",
        "checkpoint_stop_s",
        "checkpoint_interval_s",
        "goodput",
        "spares_suffice_frac",
        "tokens_per_s",
        "run_s",
    ),
    "cost": ("run_s", "owned_usd", "machines_usd"),
    "energy": ("drawn_frac", "energy_j", "run_s"),
}


def document(options: Options) -> Explanation:
    """A tree of formulas for each figure of the layout that an estimate answers with."""
    scenario = resolve(options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    with recording() as tree:
        estimate = report.report(
            scenario.options, answer.chosen, answer.row, scenario.assumptions, sensitivities=False
        )
    sections = {call.formula.name: call for call in tree.calls if not call.formula.equation}
    loose = [call for call in tree.calls if call.formula.equation]
    loose = _inner(sections, "the whole run") + loose
    trees = {"time": _inner(sections, "step time"), "memory": _inner(sections, "memory")}
    for figure, names in _FIGURES.items():
        trees[figure] = [call for call in loose if call.formula.name in names]
    parts = [
        Part(key, _TITLES[key], leaves(estimate, key), [node(call) for call in merged(calls)])
        for key, calls in trees.items()
    ]
    return Explanation(estimate.schema_version, parts)


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


def leaves(estimate: Report, key: str) -> list[Leaf]:
    """Terms of a sum, or factors of a figure."""
    if key == "time":
        return _parts(estimate.step.components, "s")
    if key == "memory":
        return _parts(
            {**estimate.memory.components, **structs.asdict(estimate.memory.outside)}, "B"
        )
    return _made_of(estimate)[key]


def _made_of(estimate: Report) -> dict[str, list[Leaf]]:
    """Factors of the figures that follow from the step time."""
    speed, run, price = estimate.throughput, estimate.run, estimate.cluster.usd_per_gpu_hour
    tokens = estimate.training.global_batch * estimate.training.seq_len
    name = "tokens per step"
    if speed.samples != "sequences":
        name, tokens = f"{speed.samples} per step", estimate.training.global_batch
    flop, step = speed.model_flop_per_step, estimate.step.seconds
    steps = Leaf("step", show(step, "s"), step)
    leaves_of = {
        "throughput": [Leaf(name, f"{tokens:,}", tokens), steps],
        "mfu": [Leaf("model FLOP per step", show(flop, "FLOP"), flop), steps],
        "days": [Leaf("goodput", percent(run.goodput, 2), run.goodput)],
        "cost": [],
        "energy": [Leaf("mean power at the wall plug", show(run.power_w, "W"), run.power_w)],
    }
    if run.gpu_hours is not None:
        hours = Leaf("GPU-hours", f"{run.gpu_hours:,.0f}", run.gpu_hours)
        leaves_of["days"].insert(
            0, Leaf("tokens", f"{run.tokens or 0:,.0f}", float(run.tokens or 0))
        )
        leaves_of["cost"].append(hours)
    if price is not None:
        name = f"price per GPU-hour ({estimate.cluster.price_source})"
        leaves_of["cost"].append(Leaf(name, f"{price:,.2f} USD", price))
    return leaves_of


def _parts(ledger: dict[str, float], unit: str) -> list[Leaf]:
    return [
        Leaf(name.replace("_", " "), show(value, unit), value)
        for name, value in ledger.items()
        if value > 0
    ]


def node(call: Call) -> Node:
    """One call with its inputs, output and inner calls."""
    formula, name = call.formula, call.formula.name.replace("_", " ")
    calls = [node(inner) for inner in merged(call.calls)] or UNSET
    if not formula.equation:
        return Node(name, calls=calls)
    return Node(
        name=name,
        equation=formula.equation,
        source=formula.source,
        unit=formula.unit,
        module=formula.module,
        doc=formula.doc,
        output=_text(call.output, formula.unit),
        inputs=[_input(name, value) for name, value in call.inputs.items()],
        calls=calls,
    )


def _input(name: str, value: Any) -> Input:
    if not isinstance(value, Sourced):
        return Input(name, _text(value, ""))
    return Input(name, _text(value, ""), value.kind, value.source, value.date)


def _text(value: Any, unit: str) -> str:
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "US":
        return str(value)[:200]
    flat = array.reshape(-1)
    texts = [show(float(x), unit) if unit else f"{float(x):.6g}" for x in flat[:_MOST]]
    more = f", … ({flat.size})" if flat.size > _MOST else ""
    return texts[0] if flat.size == 1 else "[" + ", ".join(texts) + more + "]"
