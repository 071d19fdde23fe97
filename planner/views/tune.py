"""View of `dpplan tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.specs.documents.tune import TuneMethod, Tuning
from planner.units import show, span
from planner.views.cells import Cell
from planner.views.chart import Chart
from planner.views.figures import BLUE, FROM_ZERO, INK, axis, rows_figure, spans
from planner.views.frontier import Offer, frontier
from planner.views.view import Block, Command, Link, View

_DAY_S, _HOUR_S = 86400.0, 3600.0
_ALL = 0.999  # of the tokens: padding of the last row of packed ones is none


def view(r: Tuning) -> View:
    """Which methods fit, what they take, the command of each, and what all rests on; of several
    kinds of GPU the cheapest and fastest first."""
    return _of_cards(r) if r.others else _of_card(r)


_Choice = tuple[Tuning, TuneMethod]


def _of_cards(r: Tuning) -> View:
    """Cards by methods, cost against time, then each card by itself."""
    fitting = [(card, row) for card in r.cards for row in card.methods if row.fits and row.run_s]
    priced = [pair for pair in fitting if pair[1].cost_usd is not None]
    best = {
        "fastest": min(fitting, key=lambda pair: pair[1].run_s or 0.0, default=None),
        "cheapest": min(priced, key=lambda pair: pair[1].cost_usd or 0.0, default=None),
    }
    answers = [f"{word}: {_choice(*pair)}" for word, pair in reversed(best.items()) if pair]
    return View(
        f"Fine-tuning of {r.model.title}: {r.gpus:,} of each of {len(r.cards)} cards",
        "; ".join(answers) or "nothing fits on any card",
        "yes" if fitting else "no",
        parts=(
            replace(_matrix(r, best), chart=_offers(r, priced)),
            *(
                replace(
                    _methods(card), lead=False, title=_card(card), text=[], folded=True, chart=None
                )
                for card in r.cards
            ),
        ),
        notes=_notes(r.cards),
        noted="Notes",
    )


def _notes(cards: Sequence[Tuning]) -> list[str]:
    """Common notes once, then the notes that differ, each with the name of its card."""
    common = [note for note in cards[0].notes if all(note in card.notes for card in cards)]
    apart = [
        f"{card.gpu_title}: {note}" for card in cards for note in card.notes if note not in common
    ]
    return [*common, *apart]


def _card(r: Tuning) -> str:
    return f"{r.gpus:,} x {r.gpu_title}"


def _choice(card: Tuning, row: TuneMethod) -> str:
    cost = "" if row.cost_usd is None else f", {show(row.cost_usd, 'USD')}"
    return f"{row.name} on {_card(card)}, {_shown(row.run_s)}{cost}"


def _matrix(r: Tuning, best: Mapping[str, _Choice | None]) -> Block:
    """Time and cost of every method on every card, or why it does not fit."""
    names = [row.name for row in r.methods]
    cheapest = [
        min(
            (row for row in card.methods if row.fits and row.cost_usd is not None),
            key=lambda row: row.cost_usd or 0.0,
            default=next((row for row in card.methods if row.memory), None),
        )
        for card in r.cards
    ]
    return Block(
        "Cards by methods",
        _data(r),
        ["card", *names],
        [[card.gpu_title, *(_cell(card, row, best) for row in card.methods)] for card in r.cards],
        order="as asked",
        lead=True,
        marks=["yes" if card.fastest else "no" for card in r.cards],
        links=[None if row is None else Link(row.command) for row in cheapest],
        below=["each cell: the whole run; what is short of GPU memory where it does not fit"],
    )


def _cell(card: Tuning, row: TuneMethod, best: Mapping[str, _Choice | None]) -> str:
    """Time and cost of a run."""
    if not row.fits or row.run_s is None:
        room = None if row.memory is None else row.memory.headroom_bytes
        return f"{show(-room, 'B')} short" if room is not None and room < 0 else "no"
    cost = "" if row.cost_usd is None else f", {show(row.cost_usd, 'USD')}"
    named = " and ".join(word for word, pair in best.items() if pair == (card, row))
    return f"{_shown(row.run_s)}{cost}" + (f": {named}" if named else "")


def _offers(r: Tuning, priced: Sequence[_Choice]) -> Chart | None:
    """Cost against time of every method on every card that fits."""
    offers = [
        Offer(
            card.gpu_title,
            row.name,
            row.run_s / _DAY_S,
            row.cost_usd,
            (_days(row.run_low_s), _days(row.run_high_s)),
            (row.cost_low_usd, row.cost_high_usd),
            _choice(card, row),
            row.command,
        )
        for card, row in priced
        if row.run_s is not None and row.cost_usd is not None
    ]
    return frontier("tune-cards", "Cost against time", offers, "One method on one card")


def _of_card(r: Tuning) -> View:
    """Which methods fit, what they take, the command of each, and what all rests on."""
    count = sum(row.fits for row in r.methods)
    verdict = f"{count} of {len(r.methods)} methods fit" if count else "no method fits"
    return View(
        f"Fine-tuning of {r.model.title} on {r.gpus:,} x {r.gpu_title}",
        f"{verdict}{_best(r)}" + (f". {r.on_trainer}" if r.on_trainer else ""),
        "no" if r.fastest is None else "yes",
        parts=(_methods(r), _commands(r)),
        notes=[*r.notes, *_merged(r), *_before(r)],
        noted="Notes",
    )


def _merged(r: Tuning) -> list[str]:
    """Cost and size of merged adapters, alike for all methods with adapters of the same
    matrices."""
    merges = [(row.name, row.merge) for row in r.methods if row.merge is not None]
    return [
        f"merging adapters of {name} into weights of 16 bit: {show(merge.seconds, 's')} with"
        f" {show(merge.device_bytes, 'B')} of GPU memory; a file of"
        f" {show(merge.adapter_bytes, 'B')}"
        f" becomes one of {show(merge.merged_bytes, 'B')}"
        for i, (name, merge) in enumerate(merges)
        if merge not in [other for _, other in merges[:i]]
    ]


def _before(r: Tuning) -> list[str]:
    """Work before the run, where the reference is precomputed."""
    return [
        f"run: {_shown(row.before_s)} of that of {row.name} are passes of the reference, made once"
        for row in r.methods
        if row.before_s and row.name == r.fastest
    ]


def _methods(r: Tuning) -> Block:
    sized = any(row.largest_model for row in r.methods)
    return Block(
        "Methods",
        _data(r),
        [
            *("method", "what it trains", "verdict", "memory|B", ">micro-batch", ">context"),
            *("useful|%", "run|days", "80 % band|days", "cost|USD"),
            *(["largest model"] if sized else []),
        ],
        [[*_cells(row), *([_model(row)] if sized else [])] for row in r.methods],
        order="most states first",
        drop=("what it trains", "80 % band", "memory"),
        below=[
            "micro-batch: the largest power of two at this length, context: the longest sequence"
            " with one per micro-batch, model: the largest of the catalogue, each with a chance of"
            " 95 and of 5 % to fit; useful: tokens computed that are not padding"
        ],
        lead=True,
        marks=["yes" if row.fits else "no" for row in r.methods],
        links=[None if row.memory is None else Link(row.command) for row in r.methods],
        chart=_hours(r) if r.fastest else None,
    )


def _hours(r: Tuning) -> Chart:
    """The run of each method that fits, with its band."""
    rows = [(row, row.run_s, row.run_low_s, row.run_high_s) for row in r.methods if row.fits]
    known = [(row.name, s, low, high) for row, s, low, high in rows if s and low and high]
    names = [name for name, *_ in known]
    texts = [
        f"{_shown(s)} ({span(low / _DAY_S, high / _DAY_S, 'days')})" for _, s, low, high in known
    ]
    band = {
        "type": "data",
        "symmetric": False,
        "array": [(high - s) / _HOUR_S for _, s, _, high in known],
        "arrayminus": [(s - low) / _HOUR_S for _, s, low, _ in known],
        "color": INK,
    }
    lengths = [(0.0, s / _HOUR_S) for _, s, _, _ in known]
    plain = {"textposition": "none", "showlegend": False}
    data = spans("run", names, lengths, {"color": BLUE}, texts, error_x=band, **plain)
    return Chart(
        "tune-run",
        "Run of each method that fits",
        "",
        rows_figure([data], names, axis("hours", FROM_ZERO)),
        caption="Hours of the whole run; the line is the 80 % band.",
    )


def _best(r: Tuning) -> str:
    """The fastest that fits, or how far the nearest is from it."""
    row = next((row for row in r.methods if row.name == r.fastest), None)
    if row is None:
        known = [(row.memory.headroom_bytes, row.name) for row in r.methods if row.memory]
        if not known:
            return ""
        room, name = max(known)
        return f"; the nearest, {name}, is {show(-room, 'B')} short"
    cost = "" if row.cost_usd is None else f", {show(row.cost_usd, 'USD')}"
    band = span(_days(row.run_low_s), _days(row.run_high_s), "days")
    return f"; the fastest is {row.name}: {_shown(row.run_s)} ({band}){cost}"


def _shown(seconds: float | None) -> str:
    return show(_days(seconds), "days")


def _data(r: Tuning) -> list[str]:
    d = r.data
    passes = "1 epoch" if d.epochs == 1 else f"{d.epochs:g} epochs"
    each = f"of {d.seq_len:,} tokens"
    if d.mean_tokens is not None:
        each = f"of {d.mean_tokens:,.0f} tokens on average, cut at {d.seq_len:,}, {d.packing}"
    return [
        f"data    {d.examples:,} examples {each}; {passes}",
        f"epoch   {d.sequences:,} sequences, {show(d.useful_tokens, 'count')} tokens without"
        " padding",
    ]


def _days(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / _DAY_S


def _cells(row: TuneMethod) -> list[Cell]:
    memory, useful = row.memory, row.useful_frac
    band = (_days(row.run_low_s), _days(row.run_high_s))
    return [
        row.name,
        row.title,
        "no layout" if memory is None else memory.verdict,
        None if memory is None else memory.device_bytes,
        _range(row.largest_micro_batch, row.most_micro_batch),
        _range(row.longest_context, row.most_context),
        None if useful is None or useful > _ALL else useful,  # the column goes where all is
        *((_days(row.run_s), band, row.cost_usd) if row.fits else (None, None, None)),
    ]


def _range(sure: int | None, most: int | None) -> str:
    """The largest size that surely fits, and the largest that may."""
    if sure is None or most is None:
        return "-"
    return f"{sure:,}" if sure == most else f"{sure:,} .. {most:,}"


def _model(row: TuneMethod) -> str:
    sure, most = row.largest_model, row.most_model
    if sure is None or most is None:
        return "-"
    return sure.title if sure == most else f"{sure.title} .. {most.title}"


def _commands(r: Tuning) -> Block:
    """A command per method; why not, where it does not fit."""
    block = Block("Each method by itself", part=True, folded=True)
    for row in r.methods:
        block.text.append(f"{row.name}{'' if row.why is None else f': {row.why}'}")
        block.text.append(Command(row.command))
    return block
