"""The head of the page of an answer: figures with all their digits, verdict and remarks; and the
blocks of its view that follow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from planner.specs.base import PlanError
from planner.specs.components import BOTTLENECKS
from planner.specs.documents.estimate import Estimate, Step
from planner.specs.documents.plan import describe
from planner.specs.documents.run import Run
from planner.units import percent, show, span
from planner.views.advice import advice_blocks
from planner.views.conditions import condition_blocks
from planner.views.estimate import (
    active,
    basis_block,
    communication_block,
    family_blocks,
    memory_text,
    requirement_sentences,
    short_of,
)
from planner.views.full import machine_block, operator_block
from planner.views.picture import pictures
from planner.views.remarks import border_rows, ties_text, tighter_text
from planner.views.screen import layout_words
from planner.views.view import Block, Link
from web.state import State
from web.texts import text

# icon and colour of an answer: amber within the error of memory, on either side; others: no
_MARKS = {"fits": "yes", "may not fit": "maybe", "probably does not fit": "maybe"}
_MORE_IS_BETTER = ("throughput", "mfu")
_IN_BAR = ("step.seconds", "run.days", "run.cost_usd")  # what stays in sight, and comes first


def answer(report: Estimate, state: State) -> dict[str, Any]:
    """Contents of the block of the answer."""
    memory, step = report.memory, report.step
    on_node = memory.host_fits and memory.nvme_fits
    fixed = _picked(state, report.pick)
    tighter = [tighter_text(t, memory.capacity_bytes) for t in [report.tighter] if t is not None]
    return {
        "title": (
            f"{report.model.title} {text('with')} {report.cluster.gpus:,} x"
            f" {report.cluster.gpu_title}"
        ),
        "mark": _mark(report),
        "verdict": _verdict(report),
        "detail": memory_text(memory) if on_node else short_of(report),
        "requirements": [
            {"mark": "yes" if holds else "no", "text": sentence}
            for holds, sentence in requirement_sentences(report)
        ],
        "doubts": report.doubts,
        "remarks": [*tighter, *(sentence for _, sentence in border_rows(report))],
        "chance": text("chance_basis", basis=memory.fit_evidence),
        "cards": (shown := cards(report)),
        "pictures": pictures(report),
        "bar": [card for card in shown if card["key"] in _IN_BAR and card["value"] is not None],
        "bottleneck": bottleneck(report.step),
        "layout": layout_words(report.layout),
        "degrees": describe(report.layout, with_layers=False),
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
        "first": key in _IN_BAR,
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


def late(report: Estimate) -> dict[str, list[Block]]:
    """Blocks of the view of an estimate that take work of their own, by their place on the page."""
    basis = basis_block(report, with_assumptions=False)
    return {
        "advice": advice_blocks(report)[:1],  # rows lead to what the commands ask for
        "families": family_blocks(report),
        "rests": [
            replace(basis, text=[*_without(report), *basis.text]),
            *condition_blocks(report),
            replace(communication_block(report), folded=True),
            operator_block(report),
            machine_block(report),
        ],
    }


def tip(report: Estimate, to: Callable[[Link], str | None]) -> dict[str, str | None] | None:
    """The first change in a sentence, and where it leads; None where nothing helps."""
    if not report.advice:
        return None
    first = report.advice[0]
    key_ = "tip_fits" if not report.memory.fits else "tip_faster"
    sentence = text(
        key_,
        change=first.change,
        step=show(first.step_seconds, "s"),
        tokens=percent(first.tokens_change_frac, sign=True),
    )
    return {"text": sentence, "href": to(Link(first.command, tuple(first.changes)))}


def _without(report: Estimate) -> list[str]:
    """The answer without the defaults that it rests on, and layouts that take as long."""
    ties = [ties_text(report)] if report.near_ties else []
    return [*report.both_ways, *report.without, *ties]


def addressed(state: State) -> Callable[[Link], str | None]:
    """Addresses of the estimates that links ask for."""

    def to(link: Link) -> str | None:
        picked = _picked(state, link.command, link.chosen)
        return None if picked is None else f"/?{picked.query}"

    return to
