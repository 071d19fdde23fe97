"""View of `dpplan search`: the best layouts, the front of time against memory, the rejections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planner.specs.documents.plan import describe
from planner.specs.documents.search import FrontPoint, Pair, Ranked, Search
from planner.units import show
from planner.views.cells import Cell, Column
from planner.views.characters import points_lines
from planner.views.chart import Chart, Trace
from planner.views.estimate import room, software_words, title_of
from planner.views.figures import (
    CYCLE,
    FROM_ZERO,
    GIB,
    GRID_LINE,
    INK,
    LOG,
    SILVER,
    axis,
    figure,
    hline,
    line,
    markers,
)
from planner.views.view import Block, Command, View, words

_MOST_LABELS = 12  # columns of the heat map that have room for their numbers
_FRONT_ROWS = 20  # of the front, in a terminal; --json and --html have all


def view(document: Search, full: bool = False) -> View:
    """The best layouts, the front as a chart, the rejections; full: the front as a table, too."""
    counts = (
        f"{document.evaluated:,} of {document.enumerated:,} layouts evaluated in"
        f" {show(document.seconds, 's')}, {document.feasible:,} fit{excluded(document.excluded)}"
    )
    notes = [*document.assumptions, *left_out(document.not_searched)]
    fitting = [_best(document), _front(document, full)] if document.feasible else []
    parts = [*fitting, pairs_block(document.by_tp_pp), *_reasons(document)]
    if not document.top:
        return View("Search", f"NOTHING FITS: {counts}", "no", parts=parts, notes=notes)
    best = document.top[0]
    return View(
        f"Layouts of {title_of(best)}",
        f"best by {words(document.objective)}: {show(best.step.seconds, 's')} per step,"
        f" {room(best.memory)}: {describe(best.layout)}  [{best.stack.title}]",
        "yes",
        [counts],
        parts,
        notes=notes,
    )


def excluded(count: int) -> str:
    """The end of a sentence that counts layouts, about those that were left out by a bound."""
    return f"; {count:,} more are slower by a bound" if count else ""


def left_out(names: list[str]) -> list[str]:
    """Options that no search tries, as one sentence."""
    return [f"not searched: {'; '.join(names)}"] if names else []


def _front(document: Search, full: bool) -> Block:
    """Layouts that no other beats in both time and memory."""
    points = document.pareto
    front = Block("Front of time against memory", chart=_drawn(document))
    if len(points) > 1:
        seconds, gib = [a.step_seconds for a in points], [a.device_bytes / GIB for a in points]
        front.text = points_lines(seconds, gib, "s per step", "GiB")
    if not full:
        front.text.append(f"{len(points)} layouts, which --full lists")
        return front
    shown = points[:: -(-len(points) // _FRONT_ROWS)]
    front.header = ["step|s", "memory|B", "to fit|chance", "stack", "layout"]
    front.order = "fastest first"
    front.drop = ("stack",)
    front.rows = [
        [a.step_seconds, a.device_bytes, a.fit_chance, a.stack, describe(a.layout)] for a in shown
    ]
    if len(shown) < len(points):
        front.below = [
            f"{len(shown)} of {len(points)} layouts on the front (--json and --html have all)"
        ]
    return front


def _best(document: Search) -> Block:
    """The best layouts by the objective, and what a million tokens cost."""
    alone = document.top and document.top[0].training.seq_len == 1
    each = f"M {document.top[0].throughput.samples if alone else 'tokens'}"
    block = Block(
        f"Best layouts that fit, by {words(document.objective)}",
        header=[
            *(">#", "step|s", "MFU|%", "memory|B", "to fit|chance"),
            *(f"USD per {each}|number", f"Wh per {each}|number", "stack", "layout"),
        ],
        order="best first",
        drop=(f"Wh per {each}", "stack", f"USD per {each}", "MFU"),
    )
    block.text += [f"USD at {r.cluster.price}" for r in document.top[:1]]
    block.rows = [[str(i + 1), *_best_cells(r)] for i, r in enumerate(document.top)]
    chosen = {(r.stack.id, software_words(r.software)): None for r in document.top if r.software}
    block.below += [f"{stack} with {flags}" for stack, flags in chosen]
    return block


def _best_cells(r: Ranked) -> list[Cell]:
    return [
        *(r.step.seconds, r.throughput.mfu, r.memory.device_bytes, r.memory.fit_chance),
        *(r.per_token.usd_per_million_tokens, 1000 * r.per_token.kwh_per_million_tokens),
        *(r.stack.id, describe(r.layout)),
    ]


def pairs_block(pairs: Sequence[Pair], states: Sequence[Any] = ()) -> Block:
    """The best step for each tp and pp. states: where choosing each pair leads."""
    pps = sorted({pair.pp for pair in pairs})
    fitting = [pair for pair in pairs if pair.best is not None]
    at = {(pair.tp, pair.pp): pair for pair in pairs}
    return Block(
        "Best step for each tp and pp",
        [
            f"{len(fitting)} of {len(pairs)} combinations of tp and pp have a layout that fits."
            f" {_best_pair(fitting)}"
        ],
        header=[">tp", *(f">pp {pp}" for pp in pps)],
        rows=[
            [f"{tp}", *(_pair_text(at.get((tp, pp)), "needs ") for pp in pps)]
            for tp in sorted({pair.tp for pair in pairs})
        ],
        order="all else searched",
        below=[
            *(
                ["the fastest expected to fit; the best layouts above leave room, too"]
                * bool(fitting)
            ),
            *(["needs: none fits, the least memory per GPU"] * (len(fitting) < len(pairs))),
        ],
        chart=_heat_map(pairs, pps, at, states),
    )


def _pair_text(pair: Pair | None, needs: str = "") -> str:
    if pair is None:
        return ""
    if pair.best is None:
        return f"{needs}{show(pair.least_bytes, 'B', 2)}"
    return show(pair.best.step_seconds, "s")


def _heat_map(
    pairs: Sequence[Pair],
    pps: Sequence[int],
    at: Mapping[tuple[int, int], Pair],
    states: Sequence[Any],
) -> Chart:
    tps = sorted({pair.tp for pair in pairs})
    leads = {(p.tp, p.pp): s for p, s in zip(pairs, states, strict=True)} if states else {}
    grid = [[at.get((tp, pp)) for pp in pps] for tp in tps]

    def drawn(value_of: Callable[[Pair | None], Any]) -> list[list[Any]]:
        return [[value_of(pair) for pair in line] for line in grid]

    shared = {
        "type": "heatmap",
        "x": [f"pp {pp}" for pp in pps],
        "y": [f"tp {tp}" for tp in tps],
        "text": drawn(_pair_text),
        "xgap": 2,
        "ygap": 2,
        **({"texttemplate": "%{text}"} if len(pps) <= _MOST_LABELS else {}),
    }
    trace = {
        **shared,
        "z": drawn(lambda pair: pair.best.step_seconds if pair and pair.best else None),
        "customdata": drawn(lambda pair: pair and leads.get((pair.tp, pair.pp))),
        "colorscale": "Cividis",
        "reversescale": True,
        "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
        "colorbar": {"title": {"text": "seconds"}, "thickness": 12},
    }
    # where nothing fits: the least that any layout needs, on plain ground
    needs = {
        **shared,
        "z": drawn(lambda pair: 0 if pair and pair.best is None else None),
        "colorscale": [[0, GRID_LINE], [1, GRID_LINE]],
        "showscale": False,
        "textfont": {"color": INK},
        "hovertemplate": "%{y}, %{x}: does not fit, needs %{text}<extra></extra>",
    }
    category = axis(type="category")
    return Chart(
        "heat-map",
        "Best step for each tp and pp",
        "",
        figure([needs, trace], category, category),
        (
            *(Column(name, "number") for name in ("tp", "pp", "layouts")),
            *(Column("fits"), Column("best step", "s"), Column("memory per GPU", "B")),
            Column("layout"),
        ),
        [_pair_row(pair) for pair in pairs],
        "The fastest layout that fits for each pair, all else searched; grey: none fits,"
        " and the least memory that any needs.",
        states=states,
        order="by tp, then by pp",
    )


def _best_pair(fitting: Sequence[Pair]) -> str:
    seconds = {(p.tp, p.pp): p.best.step_seconds for p in fitting if p.best is not None}
    if not seconds:
        return "No combination fits."
    tp, pp = min(seconds, key=seconds.__getitem__)
    least, most = min(seconds.values()), max(seconds.values())
    times = f" The slowest of them takes {most / least:.1f} times as long."
    return f"Best is tp {tp}, pp {pp} with {show(least, 's')}." + times * (len(seconds) > 1)


def _pair_row(pair: Pair) -> list[Cell]:
    best = pair.best
    if best is None:
        least = pair.least_bytes
        return [pair.tp, pair.pp, pair.layouts, False, None, least, "no layout fits"]
    layout = describe(best.layout)
    return [pair.tp, pair.pp, pair.layouts, True, best.step_seconds, best.device_bytes, layout]


def _reasons(document: Search) -> list[Block]:
    """Why layouts were rejected, and what offloading would make fit."""
    why = Block("Rejected", header=["reason", "layouts|,"], order="most layouts first")
    why.rows = [
        [reason, count] for reason, count in sorted(document.rejected.items(), key=lambda x: -x[1])
    ]
    if document.shortfall is not None:
        least, median = (
            show(document.shortfall.least_bytes, "B"),
            show(document.shortfall.median_bytes, "B"),
        )
        why.text.append(
            f"of those that do not fit memory, the nearest is {least} short, the median {median}"
        )
    if not document.advice:
        return [why]
    help_ = Block("The fastest with offloading", header=[">#", "change", "step|s", "memory|B"])
    help_.rows = [
        [str(i + 1), a.change, a.step_seconds, a.device_bytes]
        for i, a in enumerate(document.advice)
    ]
    help_.below = [Command(f"{i + 1}: {a.command}") for i, a in enumerate(document.advice)]
    return [why, help_]


def _drawn(document: Search) -> Chart:
    capacity = document.top[0].memory.capacity_bytes if document.top else None
    return front_chart(document.pareto, capacity)


def front_chart(
    points: Sequence[FrontPoint],
    capacity_bytes: float | None,
    states: Sequence[Any] = (),
    cloud: Sequence[Trace] = (),
) -> Chart:
    """GiB per GPU over seconds per step, one color per stack, one step line over all.

    capacity_bytes: of a GPU, drawn as a limit; states: what selecting each point leads to; cloud:
    traces behind the front.
    """
    seconds = [a.step_seconds for a in points]
    gib = [a.device_bytes / GIB for a in points]
    step: dict[str, Any] = {"line": {"shape": "hv", "color": SILVER}, "showlegend": False}
    data = [*cloud, line("front", seconds, gib, SILVER, **step)]
    for i, stack in enumerate(sorted({a.stack for a in points})):
        of_stack = [at for at, a in enumerate(points) if a.stack == stack]
        leads: dict[str, Any] = {"customdata": [states[at] for at in of_stack]} if states else {}
        data.append(
            markers(
                stack,
                [seconds[at] for at in of_stack],
                [gib[at] for at in of_stack],
                CYCLE[i % len(CYCLE)],
                [_point_text(points[at]) for at in of_stack],
                **leads,
            )
        )
    limit = [] if capacity_bytes is None else [hline(capacity_bytes / GIB)]
    return Chart(
        "front",
        "Front of time against memory",
        "",
        figure(data, axis("seconds per step", LOG), axis("GiB per GPU", FROM_ZERO), shapes=limit),
        (
            Column("step", "s"),
            Column("memory per GPU", "B"),
            Column("throughput", "tokens/s"),
            Column("USD per million tokens", "number"),
            Column("Wh per million tokens", "number"),
            Column("stack"),
            Column("layout"),
        ),
        [
            [
                *(a.step_seconds, a.device_bytes, a.tokens_per_s, a.usd_per_million_tokens),
                *(1000 * a.kwh_per_million_tokens, a.stack, describe(a.layout)),
            ]
            for a in points
        ],
        "Layouts that fit and that no other beats in both; point at one to see it. At a fixed"
        " number of GPUs money and energy are the step time times a constant.",
        order="fastest first",
    )


def _point_text(a: FrontPoint) -> str:
    usd = a.usd_per_million_tokens
    cost = "" if usd is None else f", {usd:.3g} USD per million tokens without failures"
    figures = f"{show(a.step_seconds, 's')}, {show(a.device_bytes, 'B')}{cost}"
    return f"{describe(a.layout)} [{a.stack}]<br>{figures}"
