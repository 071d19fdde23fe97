"""View of `dpplan tune`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.specs.document import UNSET
from planner.specs.documents.tune import TuneMethod, Tuning
from planner.specs.options.recommend import GOALS, Goal, least_chance
from planner.specs.options.tune import FEW_CARDS
from planner.units import chance_text, percent, show, span
from planner.views.cells import Cell
from planner.views.chart import Chart
from planner.views.figures import BLUE, FROM_ZERO, INK, axis, rows_figure, spans
from planner.views.frontier import Offer, frontier
from planner.views.view import Block, Command, Link, Mark, View

_DAY_S, _HOUR_S = 86400.0, 3600.0
_ALL = 0.999  # share of useful tokens: padding of the last packed row is not shown


def view(r: Tuning) -> View:
    """Which methods fit, what they take, the command of each, and what all rests on; of several
    cards the cheapest, smallest and fastest first."""
    return _of_cards(r) if r.others else _of_card(r)


_Choice = tuple[Tuning, TuneMethod]


def _named(r: Tuning) -> dict[Goal, _Choice]:
    """The answers that there are."""
    if r.answers is UNSET:
        return {}
    choices = {goal: getattr(r.answers, goal) for goal in GOALS}
    return {
        goal: (
            r.cards[choice.place],
            next(row for row in r.cards[choice.place].methods if row.name == choice.method),
        )
        for goal, choice in choices.items()
        if choice is not None
    }


def _of_cards(r: Tuning) -> View:
    """Cards by methods, cost against time, then each card whose contexts are known by itself."""
    best = _named(r)
    fitting = [(card, row) for card in r.cards for row in card.methods if row.fits and row.run_s]
    words: dict[str, list[str]] = {}
    for goal, choice in best.items():
        words.setdefault(_choice(*choice), []).append(goal)
    named_choices = [f"{_joined(goals)}: {choice}" for choice, goals in words.items()]
    within = _within(r)
    none = f"nothing is likely {within}" if fitting and within else "nothing fits on any card"
    titles = list(dict.fromkeys(card.gpu_title for card in r.cards))
    on = f"of each of {len(titles)} cards" if len(titles) > 1 else f"x {titles[0]}"
    # the cards of which more than the run is known
    named = [card for card in r.cards if len(r.cards) <= FEW_CARDS or _is_detailed(card)]
    return View(
        f"Fine-tuning of {r.model.title} on {_count(r)} {on}",
        "; ".join(named_choices) or none,
        "yes" if best else "no",
        parts=(
            replace(_matrix(r, best), chart=_offers(r, fitting)),
            *(
                replace(
                    _methods(card), lead=False, title=_card(card), text=[], folded=True, chart=None
                )
                for card in named
            ),
        ),
        notes=_notes(named or r.cards[:1]),
        noted="Notes",
    )


def _is_detailed(card: Tuning) -> bool:
    return any(row.longest_context for row in card.methods)


def _joined(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _count(r: Tuning) -> str:
    """The numbers of GPUs that were tried."""
    if r.limits is UNSET or r.limits.max_gpus is None:
        return f"{r.gpus:,}"
    return f"up to {r.limits.max_gpus:,}"


def _within(r: Tuning) -> str:
    """The limits of the run in words."""
    if r.limits is UNSET:
        return ""
    days, usd = r.limits.days, r.limits.budget_usd
    words = [] if days is None else [f"{days:g} day{'s' if days != 1 else ''}"]
    words += [] if usd is None else [f"{usd:g} USD"]
    return f"within {' and '.join(words)}" if words else ""


def _notes(cards: Sequence[Tuning]) -> list[str]:
    """Common notes once, then the notes that differ, each with the name of its card."""
    common = [note for note in cards[0].notes if all(note in card.notes for card in cards)]
    apart = [
        f"{_card(card)}: {note}" for card in cards for note in card.notes if note not in common
    ]
    return [*common, *apart]


def _card(r: Tuning) -> str:
    return f"{r.gpus:,} x {r.gpu_title}"


def _choice(card: Tuning, row: TuneMethod) -> str:
    cost = "" if row.cost_usd is None else f", {show(row.cost_usd, 'USD')}"
    program = f" with {row.stack}" if row.stack else ""
    return f"{row.name}{program} on {_card(card)}, {_shown(row.run_s)}{cost}{_doubt(row)}"


def _doubt(row: TuneMethod) -> str:
    """Chances that are not near one: to fit, and to end within the limits."""
    fit = row.memory is not None and row.memory.verdict != "fits"
    words = [f"{row.memory.verdict}"] if fit and row.memory is not None else []
    if row.chance is not None:
        words.append(f"{chance_text(row.chance)} within the limits")
    return f" ({', '.join(words)})" if words else ""


def _matrix(r: Tuning, best: Mapping[Goal, _Choice]) -> Block:
    """Time and cost of every method on every kind of card, or why it does not fit; of several
    numbers of GPUs the cheapest that is likely within the limits."""
    are_many = len({card.gpu_title for card in r.cards}) > 1
    kinds: dict[str, list[Tuning]] = {}
    for card in r.cards:
        kinds.setdefault(card.gpu_title if are_many else _card(card), []).append(card)
    rows: list[list[Cell]] = []
    marks: list[Mark] = []
    links: list[Link | None] = []
    bare: list[str] = []
    for title, cards in kinds.items():
        cells = [_best_of(cards, i, _least(r)) for i in range(len(r.methods))]
        fitting = [pair for pair in cells if pair[1].fits]
        if not fitting and len(kinds) > FEW_CARDS:
            bare.append(title)
            continue
        known = [pair for pair in fitting or cells if pair[1].memory]
        rows.append([title, *(_cell(*pair, best, many=len(cards) > 1) for pair in cells)])
        marks.append("yes" if fitting else "no")
        links.append(Link(min(known, key=_cost)[1].command) if known else None)
    below = ["each cell: the whole run; what is short of GPU memory where it does not fit"]
    if are_many and r.limits is not UNSET and r.limits.max_gpus is not None:
        within = f" likely {_within(r)}" if _within(r) else ""
        below[0] += f"; of the numbers of GPUs the cheapest{within}"
    if bare:
        below.append(f"no method fits on {', '.join(bare)}")
    return Block(
        "Cards by methods",
        _data(r),
        ["card", *(row.name for row in r.methods)],
        rows,
        order="as requested" if len(kinds) <= FEW_CARDS else "",
        lead=True,
        marks=marks,
        links=links,
        below=below,
    )


def _least(r: Tuning) -> float:
    """The chance from which a run counts as within the limits."""
    return least_chance(r.limits is not UNSET and r.limits.sure)


def _cost(pair: _Choice) -> tuple[bool, float]:
    return not pair[1].fits, math.inf if pair[1].cost_usd is None else pair[1].cost_usd


def _best_of(cards: Sequence[Tuning], method: int, least: float) -> _Choice:
    """A method on the number of GPUs that is the cheapest within the limits, else the likeliest to
    be, else the one that is the least short of memory. least: the chance that is likely."""

    def order(pair: _Choice) -> tuple[float, ...]:
        row = pair[1]
        chance = 1.0 if row.chance is None else row.chance
        room = -math.inf if row.memory is None else row.memory.headroom_bytes
        likely = row.fits and chance >= least
        return (
            not row.fits,
            not likely,
            (_cost(pair)[1] if likely else -chance) if row.fits else -room,
        )

    return min(((card, card.methods[method]) for card in cards), key=order)


def _cell(card: Tuning, row: TuneMethod, best: Mapping[Goal, _Choice], *, many: bool) -> str:
    """Time and cost of a run."""
    if not row.fits or row.run_s is None:
        room = None if row.memory is None else row.memory.headroom_bytes
        return f"{show(-room, 'B')} short" if room is not None and room < 0 else "no"
    cost = "" if row.cost_usd is None else f", {show(row.cost_usd, 'USD')}"
    goals = [goal for goal, pair in best.items() if pair == (card, row)]
    count = f"{card.gpus:,} x " if many else ""
    doubt = "" if row.memory is None or row.memory.verdict == "fits" else f" ({row.memory.verdict})"
    return f"{count}{_shown(row.run_s)}{cost}{doubt}" + (f": {_joined(goals)}" if goals else "")


def _offers(r: Tuning, fitting: Sequence[_Choice]) -> Chart | None:
    """Cost against time of every method on every card that fits; of one kind and method its
    numbers of GPUs along a line."""
    lines: dict[tuple[str, str], list[_Choice]] = {}
    for card, row in fitting:
        if row.run_s is not None and row.cost_usd is not None:
            lines.setdefault((card.gpu_title, row.name), []).append((card, row))
    offers = []
    for pairs in lines.values():
        card, row = min(pairs, key=_cost)
        sizes = [
            (f"{other.gpus:,} GPUs", run.run_s / _DAY_S, run.cost_usd)
            for other, run in pairs
            if run.run_s is not None
            and run.cost_usd is not None
            and (run.chance is None or run.chance >= _least(r))
        ]
        assert row.run_s is not None  # as in all pairs of lines
        assert row.cost_usd is not None
        offers.append(
            Offer(
                card.gpu_title,
                row.name,
                row.run_s / _DAY_S,
                row.cost_usd,
                (_days(row.run_low_s), _days(row.run_high_s)),
                (row.cost_low_usd, row.cost_high_usd),
                _choice(card, row),
                row.command,
                sizes=sizes if len(sizes) > 1 else (),
            )
        )
    return frontier("tune-cards", "Cost against time", offers, "One method on one card")


def _of_card(r: Tuning) -> View:
    """Which methods fit, what they take, the command of each, and what all rests on."""
    count = sum(row.fits for row in r.methods)
    verdict = f"{count} of {len(r.methods)} methods fit" if count else "no method fits"
    best, within = _named(r), _within(r)
    if within and count and not best:
        verdict += f"; nothing is likely {within}"
    cheapest = best.get("cheapest")
    if cheapest is not None and cheapest[1].name != r.fastest:
        verdict += f"; the cheapest is {_choice(*cheapest)}"
    return View(
        f"Fine-tuning of {r.model.title} on {r.gpus:,} x {r.gpu_title}",
        ". ".join(filter(None, (f"{verdict}{_best(r)}", r.variant, r.on_trainer))),
        "no" if r.fastest is None or (within and not best) else "yes",
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
        drop=("what it trains", "80 % band", "useful"),
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
        known = [
            (row.memory.headroom_bytes, row.name, f" on {row.stack}" if row.stack else "")
            for row in r.methods
            if row.memory
        ]
        if not known:
            return ""
        room, name, stack = max(known)
        return f"; the nearest, {name}, is {show(-room, 'B')} short{stack}"
    cost = "" if row.cost_usd is None else f", {show(row.cost_usd, 'USD')}"
    band = span(_days(row.run_low_s), _days(row.run_high_s), "days")
    named = f"{row.name} on {row.stack}" if row.stack else row.name
    return f"; the fastest is {named}: {_shown(row.run_s)} ({band}){cost}{_doubt(row)}"


def _shown(seconds: float | None) -> str:
    return show(_days(seconds), "days")


def _data(r: Tuning) -> list[str]:
    d = r.data
    passes = "1 epoch" if d.epochs == 1 else f"{d.epochs:g} epochs"
    each = f"of {d.seq_len:,} tokens"
    if d.mean_tokens is not None:
        fate = "split" if d.excess == "split" else "cut"
        cut = f"{fate} at {d.seq_len:,}"
        if d.dropped_frac:
            left = f"{percent(d.dropped_frac, 2)} left out"
            cut = f"{left} as longer than {d.seq_len:,}" if d.excess == "drop" else f"{cut}, {left}"
        each = f"of {d.mean_tokens:,.0f} tokens on average, {cut}, {d.packing}"
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
