"""From a report to what the answer says: cards with full digits behind them, the bottleneck,
advice, families."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from planner.specs.base import PlanError
from planner.specs.components import BOTTLENECKS
from planner.specs.document import plain
from planner.specs.documents.advice import Advice
from planner.specs.documents.estimate import Alternative, Estimate, Step
from planner.specs.documents.memory import Memory
from planner.specs.documents.plan import describe
from planner.specs.documents.run import Run
from planner.units import chance_text, percent, show, span
from planner.views.estimate import active, requirement_sentences
from planner.views.explain import machine_value
from planner.views.remarks import border_rows
from web.state import State
from web.texts import text

_WORTH_SAYING = 2**20  # bytes of a GPU's memory that a change moves, from which they are said
# icon and colour of an answer: amber within the error of memory, on either side; others: no
_MARKS = {"fits": "yes", "may not fit": "maybe", "probably does not fit": "maybe"}
_MORE_IS_BETTER = ("throughput", "mfu")
_IN_BAR = ("step.seconds", "run.days", "run.cost_usd")  # what stays in sight


def answer(report: Estimate, state: State) -> dict[str, Any]:
    """Contents of the block of the answer."""
    memory, step = report.memory, report.step
    fixed = _picked(state, report.pick)
    return {
        "title": (
            f"{report.model.title} {text('with')} {report.cluster.gpus:,} x"
            f" {report.cluster.gpu_title}"
        ),
        "mark": _mark(report),
        "verdict": _verdict(report),
        "detail": _detail(memory),
        "requirements": [
            {"mark": "yes" if holds else "no", "text": sentence}
            for holds, sentence in requirement_sentences(report)
        ],
        "doubts": report.doubts,
        "both_ways": [f"{sentence[0].upper()}{sentence[1:]}." for sentence in report.both_ways],
        "tighter": _tighter(report),
        "border": [sentence for _, sentence in border_rows(report)],
        "chance": text("chance_basis", basis=memory.fit_evidence),
        "fill": min(memory.device_bytes / memory.capacity_bytes, 1.0),
        "cards": (shown := cards(report)),
        "bar": [card for card in shown if card["key"] in _IN_BAR and card["value"] is not None],
        "bottleneck": bottleneck(report.step),
        "layout": describe(report.layout),
        "stack": report.stack.title,
        "parameters": show(report.model.parameters, "count"),
        "active": active(report.model),
        "basis": text("band_basis", basis=step.confidence),
        "convention": text("convention", convention=report.throughput.flop_convention),
        "assumptions": report.assumptions,
        "conflicts": state.conflicts,
        "command": report.command,
        "fixed": fixed.query if fixed else state.query,
        "query": state.query,
    }


def _failing(report: Estimate) -> int:
    return sum(not requirement.holds for requirement in report.requirements)


def _mark(report: Estimate) -> str:
    """Icon and colour: of the memory, and red where a requirement does not hold."""
    return "no" if _failing(report) else _MARKS.get(report.memory.verdict, "no")


def _verdict(report: Estimate) -> str:
    sentence = text(f"verdict_{report.memory.verdict.replace(' ', '_')}")
    failing, total = _failing(report), len(report.requirements)
    return (
        text("requirements_fail", said=sentence, failing=failing, of=total) if failing else sentence
    )


def _detail(memory: Memory) -> str:
    sizes = memory.device_bytes, memory.capacity_bytes, abs(memory.headroom_bytes)
    used, capacity, free = (show(size, "B") for size in sizes)
    chance = chance_text(memory.fit_chance)
    if memory.headroom_bytes < 0:
        return text("short_detail", used=used, capacity=capacity, short=free, chance=chance)
    if not memory.host_fits:
        return text("host_short", need=show(memory.host_bytes, "B"))
    if not memory.nvme_fits:
        return text("nvme_short", need=show(memory.nvme_bytes, "B"))
    return text("fits_detail", used=used, capacity=capacity, free=free, chance=chance)


def _tighter(report: Estimate) -> str:
    """Speed that more risk would buy; empty where nothing that fits is faster."""
    tighter = report.tighter
    if tighter is None:
        return ""
    return text(
        "tighter",
        faster=percent(tighter.faster_frac),
        layout=describe(tighter.layout),
        chance=chance_text(tighter.fit_chance),
    )


def card(
    key: str, label: str, value: float | None, shown: str, sub: str, part: str
) -> dict[str, Any]:
    """One figure: `value` keeps every digit. A range of its own is added to what this gives."""
    words = shown.split(" ")
    split = (
        2 if len(words) > 1 and words[1] in ("K", "M", "B", "T") else 1
    )  # the multiplier belongs to the number
    return {
        "key": key,
        "label": text(label),
        "value": value,
        "shown": shown,
        "number": " ".join(words[:split]),
        "unit": " ".join(words[split:]),
        "range": "",
        "sub": sub,
        "part": part,
        "better": "more" if part in _MORE_IS_BETTER else "less",
    }


@dataclass(frozen=True)
class Rate:
    """Throughput: tokens or samples per second."""

    key: str  # of the document
    what: str
    value: float
    each: float  # of a GPU

    @classmethod
    def of(cls, report: Estimate) -> Rate:
        """The rate of an answer."""
        speed, gpus = report.throughput, report.cluster.gpus
        if speed.samples == "sequences":
            key, per_s, each = "tokens_per_s", speed.tokens_per_s, speed.tokens_per_s_per_gpu
            return cls(f"throughput.{key}", "tokens", per_s, each)
        each = speed.samples_per_s / gpus
        return cls("throughput.samples_per_s", speed.samples, speed.samples_per_s, each)


def cards(report: Estimate) -> list[dict[str, Any]]:
    """The figures of the answer."""
    step, speed, memory, run = report.step, report.throughput, report.memory, report.run
    rate = Rate.of(report)
    out = [
        card("step.seconds", "card_step", step.seconds, show(step.seconds, "s"), "", "time")
        | {"range": text("card_band", range=span(step.low, step.high, "s"))},
        card(
            rate.key,
            "card_tokens",
            rate.value,
            f"{show(rate.value, 'count')} {rate.what}/s",
            text("card_per_gpu", value=show(rate.each, ""), what=rate.what),
            "throughput",
        ),
        card(
            "throughput.mfu",
            "card_mfu",
            speed.mfu,
            percent(speed.mfu),
            text("card_hfu", value=percent(speed.hfu)),
            "mfu",
        ),
        card(
            "memory.device_bytes",
            "card_memory",
            memory.device_bytes,
            show(memory.device_bytes, "B"),
            text("card_worst", stage=memory.worst_stage, phase=memory.worst_phase),
            "memory",
        ),
    ]
    if run.days is None:
        out.append(card("run.days", "card_days", None, "–", text("card_days_none"), "days"))
        return out
    out.append(
        card(
            "run.days",
            "card_days",
            run.days,
            show(run.days, "days"),
            text("card_days_sub", tokens=show(run.tokens, "count"), goodput=percent(run.goodput)),
            "days",
        )
        | {"range": _range(run, run.days, "days")}
    )
    if run.cost_usd is None:
        none = text("card_cost_none", why=report.cluster.price)
        out.append(card("run.cost_usd", "card_cost", None, "–", none, "cost"))
    else:
        price = report.cluster
        usd = f"{price.usd_per_gpu_hour:,.2f}"
        sub = text("card_cost_sub", usd=usd, source=price.price_source)
        out.append(
            card("run.cost_usd", "card_cost", run.cost_usd, show(run.cost_usd, "USD"), sub, "cost")
            | {"range": _range(run, run.cost_usd, "USD")}
        )
    out.append(
        card(
            "run.energy_kwh",
            "card_energy",
            run.energy_kwh,
            show(run.energy_kwh, "kWh"),
            "",
            "energy",
        )
        | {"range": "" if run.energy_kwh is None else _range(run, run.energy_kwh, "kWh")}
    )
    return out


def _range(run: Run, value: float, unit: str) -> str:
    """The 80 % band of something that grows with the time of the run."""
    return text("card_band", range=span(value * run.low, value * run.high, unit))


def bottleneck(step: Step) -> str:
    """One sentence with the share of the step."""
    return BOTTLENECKS[step.bottleneck].format(share=percent(step.bottleneck_frac, 0))


def _picked(state: State, command: str, chosen: Collection[str] = ()) -> State | None:
    """The state of a pick; None where it has none here, such as one of more GPUs than allowed."""
    try:
        return state.picked(command, chosen)
    except PlanError:
        return None


def _family(entry: Alternative, state: State) -> dict[str, Any]:
    fixed = _picked(state, entry.command) if entry.fits else None
    return {
        "family": entry.family,
        "stack": entry.stack,
        "fits": entry.fits,
        "step": show(entry.step_seconds, "s") if entry.fits else text("family_not_fits"),
        "memory": show(entry.device_bytes, "B"),
        "why": entry.reason or describe(entry.layout),
        "query": fixed.query if fixed else None,
    }


def late(report: Estimate, state: State) -> dict[str, Any]:
    """Advice, the best of each family, and what the answer rests on: what takes work of its own."""
    rests = report.provenance
    return {
        "advice": [a for entry in report.advice if (a := advised(entry, report, state))],
        "families": [_family(entry, state) for entry in report.alternatives if entry.family],
        "advice_none": text("advice_none" if report.memory.fits else "advice_none_fits"),
        "rests": text(
            "rests_share",
            measured=percent(rests.measured_frac),
            vendor=percent(rests.vendor_frac),
            assumed=percent(rests.assumed_frac),
        ),
        "assumed": text("assumed_share", assumed=percent(rests.assumed_frac, 0)),
        "machine": [
            {**plain(n), "shown": machine_value(n)}
            for n in sorted(report.machine, key=lambda n: -abs(n.elasticity))
        ],
    }


def advised(entry: Advice, report: Estimate, state: State) -> dict[str, Any] | None:
    """One piece of advice and the state it leads to; None for a change that has no state here, such
    as more GPUs than allowed."""
    to = _picked(state, entry.command, entry.changes)
    if to is None:
        return None
    saved, seconds = entry.bytes_saved, show(entry.step_seconds, "s")
    change = percent(entry.step_change_frac, 0, sign=True)
    effect = [
        text("advice_step", step=seconds, change=change)
        if report.memory.fits
        else text("advice_fits_step", step=seconds)
    ]
    if report.memory.fits:
        tokens = percent(entry.tokens_change_frac, 0, sign=True)
        effect.insert(0, text("advice_tokens", change=tokens))
    if abs(saved) >= _WORTH_SAYING:
        moved = "advice_saved" if saved > 0 else "advice_more"
        effect.append(text(moved, bytes=show(abs(saved), "B")))
    return {
        "change": entry.change,
        "effect": ", ".join(effect),
        "query": to.query,
        "command": entry.command,
    }
