"""Which cards, and how many of each, `dpplan tune` compares, and which of them it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.inputs import catalog
from planner.inputs.cluster import node_size, price_of
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.documents.tune import TuneAnswers, TuneChoice, TuneLimits, TuneMethod, Tuning
from planner.specs.hardware import GpuSpec
from planner.specs.options import Given
from planner.specs.options.recommend import GOALS, Goal, Limits, least_chance
from planner.specs.options.tune import ANY

_TWO = 2  # kinds that one box may have
Place = tuple[int, TuneMethod]  # a card and a method on it


def every(given: Mapping[str, Any], limits: Limits) -> tuple[list[Given], list[str]]:
    """The requests of all cards, each of one kind and number of GPUs, and what was left out.
    Raises PlanError."""
    words = given.get("gpu")
    kinds = list(dict.fromkeys(words if isinstance(words, list) else [words]))
    left_out: list[str] = []
    if ANY in kinds:
        if len(kinds) > 1:
            raise PlanError("--gpu", ", ".join(map(str, kinds)), f"names {ANY} beside a kind")
        if given.get("cluster"):
            raise PlanError(
                "--gpu", ANY, "goes with no --cluster, which has its own; leave one out"
            )
        kinds, left_out = _priced(given)
    if limits.max_gpus is None:
        if len(kinds) == _TWO and int(given.get("gpus") or 1) >= _TWO:
            left_out.append(
                "each kind of GPU by itself; of both in one box, ask for --gpu"
                f" {kinds[0]} --other-gpu {kinds[1]} --other-share 50%"
            )
        return [_on(given, gpu=kind) for kind in kinds], left_out
    if given.get("nodes") is not None:
        raise PlanError("--nodes", given["nodes"], "goes with no --max-gpus; give --gpus")
    counts = [(kind, count) for kind in kinds for count in _counts(given, kind, limits.max_gpus)]
    return [_on(given, gpu=kind, gpus=count) for kind, count in counts], left_out


def _on(given: Mapping[str, Any], **update: Any) -> Given:
    out = Given(given)
    out.update({name: value for name, value in update.items() if value is not None})
    return out


def _priced(given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The kinds of the catalogue with a price in the market of the request, and a sentence on the
    others."""
    ids = [gpu.id for gpu in catalog.load_all("gpus", GpuSpec)]
    prices = {name: price_of(read_options(_on(given, gpu=name))) for name in ids}
    kinds = [name for name, price in prices.items() if price.usd_per_gpu_hour is not None]
    if not kinds:
        missing = next(iter(prices.values())).missing
        raise PlanError(
            "--gpu", ANY, f"tries what has a price: {missing}; give --price or --market"
        )
    left_out = len(ids) - len(kinds)
    sentence = f"{left_out} kinds of GPU without a price there are not tried (name them by --gpu)"
    return kinds, [sentence] if left_out else []


def _counts(given: Mapping[str, Any], kind: str | None, most: int) -> list[int]:
    """1, 2, 4 and so on GPUs up to a node, then whole nodes, doubled; from --gpus on."""
    least = int(given.get("gpus") or 1)
    if least > most:
        raise PlanError("--max-gpus", most, f"is below --gpus {least:,}, from which on it tries")
    node = node_size(read_options(_on(given, gpu=kind, gpus=None)))
    parts = [2**i for i in range(node.bit_length()) if 2**i < node]
    nodes = [node * 2**i for i in range((most // node).bit_length())]
    return [n for n in (*parts, *nodes) if least <= n <= most] or [least]


def surest(rows: Iterable[TuneMethod]) -> list[TuneMethod]:
    """The methods that fit at 95 %, else those that may."""
    fitting = [row for row in rows if row.fits]
    return [row for row in fitting if row.memory and row.memory.verdict == "fits"] or fitting


def are_limits(limits: Limits) -> bool:
    """Whether the run has a limit of days or of dollars."""
    return limits.days is not None or limits.budget is not None


def best(cards: Sequence[Tuning], limits: Limits) -> dict[Goal, Place]:
    """The cheapest, the fastest and the smallest choice that is likely within the limits; of those
    that fit at 95 % where any does. Without the goals that nothing reaches."""
    fitting = [(i, row) for i, card in enumerate(cards) for row in card.methods if row.fits]
    sure = surest(row for _, row in fitting)
    least = least_chance(limits.sure)
    places = [
        (i, row)
        for i, row in fitting
        if row in sure and row.run_s is not None
        if not are_limits(limits) or (row.chance or 0.0) >= least
    ]
    priced = [place for place in places if place[1].cost_usd is not None]
    orders = {
        "cheapest": (priced, lambda place: (place[1].cost_usd, place[1].run_s)),
        "smallest": (places, lambda place: (cards[place[0]].gpus, place[1].cost_usd or 0.0)),
        "fastest": (places, lambda place: (place[1].run_s, place[1].cost_usd or 0.0)),
    }
    return {goal: min(orders[goal][0], key=orders[goal][1]) for goal in GOALS if orders[goal][0]}


def answers(cards: Sequence[Tuning], limits: Limits) -> TuneAnswers:
    """The choices of `best`, as a document."""
    named = best(cards, limits)

    def choice(goal: Goal) -> TuneChoice | None:
        if goal not in named:
            return None
        place, row = named[goal]
        return TuneChoice(
            place=place,
            gpus=cards[place].gpus,
            gpu_title=cards[place].gpu_title,
            method=row.name,
            command=row.command,
        )

    return TuneAnswers(**{goal: choice(goal) for goal in GOALS})


def document_of(limits: Limits) -> TuneLimits:
    """The limits, as a document."""
    return TuneLimits(
        days=limits.days, budget_usd=limits.budget, max_gpus=limits.max_gpus, sure=limits.sure
    )
