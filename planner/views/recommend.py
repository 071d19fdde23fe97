"""View of `dpplan recommend`, a function per question."""

from __future__ import annotations

from collections.abc import Sequence

from planner.specs.documents.plan import describe
from planner.specs.documents.recommend import (
    BandwidthSweep,
    ClusterRow,
    Family,
    LargestModel,
    MachineKind,
    ModelRow,
    Recommendation,
    SaturatingBatch,
    SmallestCluster,
    SwapOrRecompute,
    TriedCount,
    Wire,
    Without,
)
from planner.units import chance_text, in_unit, percent, show, span
from planner.views.cells import Cell
from planner.views.chart import Chart
from planner.views.figures import BLUE, FROM_ZERO, axis, counted, figure, line
from planner.views.frontier import Offer, frontier
from planner.views.prices import elsewhere_lines, prices_block
from planner.views.swap import swap_blocks
from planner.views.view import Block, Command, Link, View

_MOST_RIVALS = 4  # kinds that could as well be the best
_MOST_MODELS = 12  # models of the catalogue that are listed
_ABOVE_FIRST = 3  # of them, those that are larger than the first that fits


def view(document: Recommendation) -> View:
    """The answer first, then what was tried and why the rest fell."""
    verdict, answers = "", True
    match document:
        case SmallestCluster():
            blocks, verdict = _cluster(document), _no_cluster(document)
            answers = not verdict
        case BandwidthSweep():
            blocks, answers = _bandwidth(document), document.memory.fits
        case SaturatingBatch():
            blocks = _batch(document)
        case LargestModel():
            blocks = _model(document)
            answers = any(part.answer for part in (document.catalogue, document.family) if part)
        case SwapOrRecompute():
            blocks = swap_blocks(document)
    return View.of(blocks, verdict=verdict, mark="yes" if answers else "no", notes=document.notes)


# which cluster


def _no_cluster(document: SmallestCluster) -> str:
    """Sentence if the goal has no answer; else empty."""
    if document.answers.by_goal[document.goal] is not None:
        return ""
    if not document.tried:
        return f"No cluster was tried: {document.types[0].reason}"
    return f"No cluster of {document.tried:,} tried is within the limits"


def _cluster(document: SmallestCluster) -> list[Block]:
    by_goal = document.answers.by_goal
    rows = {document.goal: by_goal[document.goal], **by_goal}
    commands = dict.fromkeys(row.command for row in rows.values() if row is not None)
    head = Block(
        f"{document.model.title}: {_limits(document) or 'the clusters it fits'}",
        text=[
            *(
                f"{goal:<10}  {_sentence(row) if row else _none(goal, document)}"
                for goal, row in rows.items()
            ),
            *_undecided(document),
            *(Command(f"            {command}") for command in commands),
            *elsewhere_lines(document.prices),
            (
                f"tried       {document.tried:,} clusters of"
                f" {len(document.types) - document.excluded} kinds: whole nodes over which the"
                f" batch, heads and layers divide{_excluded(document.excluded)}"
            ),
        ],
    )
    blocks = [head]
    if document.without:
        blocks.append(_without(document.without))
    answered = [(kind, kind.answer) for kind in document.types if kind.answer is not None]
    if answered:
        blocks.append(_kinds(answered, document))
    if document.prices.machines:
        blocks.append(prices_block(document.prices))
    fell = [kind for kind in document.types if kind.answer is None]
    if fell:
        blocks.append(
            Block(
                "Why the others fell",
                header=["kind", "reason"],
                order="as requested",
                rows=[[kind.machine, kind.reason or ""] for kind in fell],
            )
        )
    return blocks


def _undecided(document: SmallestCluster) -> list[str]:
    """Kinds that could as well be the best."""
    first, more = document.undecided[:_MOST_RIVALS], len(document.undecided) - _MOST_RIVALS
    others = ", ".join(first) + (f" and {more} more" if more > 0 else "")
    return [f"order       within their bands {document.goal}, too: {others}"] if first else []


def _without(options: Sequence[Without]) -> Block:
    """Answers without a default, and the commands that request them."""
    block = Block("Without a default")
    for without in options:
        block.text.append(without.sentence)
        if without.answer is not None:
            block.text.append(Command(f"    {without.answer.command}"))
    return block


def _limits(document: SmallestCluster) -> str:
    limits = document.limits
    parts = [
        None if document.tokens is None else f"{show(document.tokens, 'count')} tokens",
        None if limits.days is None else f"within {limits.days:g} days",
        None if limits.budget_usd is None else f"for {show(limits.budget_usd, 'USD')}",
        None if limits.power_kw is None else f"with {limits.power_kw} kW",
    ]
    return ", ".join(part for part in parts if part is not None)


def _band(row: ClusterRow) -> str:
    return span(row.days_low, row.days_high, "days")


def _how_likely(row: ClusterRow) -> str:
    if row.verdict is None:
        return ""
    return f", {row.verdict}" + (f" ({chance_text(row.chance)})" if row.chance is not None else "")


def _excluded(kinds: int) -> str:
    if not kinds:
        return ""
    return f"; {kinds} more kind{'' if kinds == 1 else 's'} ruled out by bounds or a first look"


def _none(goal: str, document: SmallestCluster) -> str:
    """Why a goal has no answer, if the reason is a missing price."""
    priced = document.prices.markets or not document.prices.machines
    if priced or (goal != "cheapest" and document.limits.budget_usd is None):
        return "none"
    return "none: no kind that fits has a price of this market"


def _sentence(row: ClusterRow) -> str:
    sentence = f"{row.gpus:,} x {row.machine}"
    if row.days is None:
        return sentence
    cost = (
        "no price known"
        if row.cost_usd is None
        else f"{show(row.cost_usd, 'USD')} ({row.price_source})"
    )
    thin = "" if row.thin is None else f"; rests on {row.thin}"
    return f"{sentence}: {show(row.days, 'days')} ({_band(row)}), {cost}{_how_likely(row)}{thin}"


def _kinds(answered: Sequence[tuple[MachineKind, ClusterRow]], document: SmallestCluster) -> Block:
    """The best cluster of each kind; with days where the length of the run is known."""
    goal, days = document.goal, document.tokens is not None
    best = document.answers.by_goal[goal]
    return Block(
        f"The {goal} of each kind",
        header=[
            *("kind", "GPUs|,", "step|s"),
            *(("days|days", "80 % band|days", "within") if days else ()),
            *("USD|number", "kWh|number" if days else "USD/h|number", "free|B", "limited by"),
        ],
        rows=[
            [
                *(kind.machine, row.gpus, row.step_seconds),
                *((row.days, (row.days_low, row.days_high), row.verdict) if days else ()),
                *(row.cost_usd, row.energy_kwh if days else row.usd_per_hour),
                *(row.headroom_bytes, row.bottleneck),
            ]
            for kind, row in answered
        ],
        order="as requested",
        drop=("kWh" if days else "USD/h", "free", "step", "limited by"),
        marks=["here" if row == best else "" for _, row in answered],
        links=[Link(row.command) for _, row in answered],
        chart=frontier(
            "recommend-kinds",
            "Cost against days",
            _offers(answered),
            "One cluster of each kind with its GPUs",
        ),
        below=[
            f"{kind.machine}: {describe(row.layout)} [{row.stack}]; {_sizes(kind, row)}"
            for kind, row in answered
        ],
    )


def _offers(answered: Sequence[tuple[MachineKind, ClusterRow]]) -> list[Offer]:
    """The cluster of each kind with its other sizes within the limits; those without a price are
    left out."""
    out = []
    for kind, row in answered:
        if row.days is None or row.cost_usd is None:
            continue
        sizes = [
            (f"{count.gpus:,} GPUs", count.days, count.cost_usd)
            for count in kind.tried
            if count.within and count.days is not None and count.cost_usd is not None
        ]
        out.append(
            Offer(
                kind.machine,
                f"{row.gpus:,}",
                row.days,
                row.cost_usd,
                (row.days_low, row.days_high),
                (row.cost_usd_low, row.cost_usd_high),
                _sentence(row),
                row.command,
                thin=row.thin is not None,
                sizes=sizes if len(sizes) > 1 else (),
            )
        )
    return out


def _curve(
    name: str, label: str, points: Sequence[tuple[float, float]], titles: tuple[str, str, str]
) -> Chart:
    """A quantity over what was tried. titles: of the axes, and the unit."""
    across, up, unit = titles
    x, y = [at for at, _ in points], [value for _, value in points]
    hover = [f"{at:,.4g}: {show(value, unit)}" for at, value in points]
    drawn = line(label, x, y, BLUE, hover, symbol="circle", showlegend=False)
    return Chart(
        f"recommend-{name}", up, "", figure([drawn], counted(across, x), axis(up, FROM_ZERO))
    )


def _sizes(kind: MachineKind, row: ClusterRow) -> str:
    """The sizes of this kind next to the row that are within the limits, too; then the smallest,
    and why fewer GPUs are not enough."""
    within = [count for count in kind.tried if count.within]
    smaller = [count for count in within if count.gpus < row.gpus]
    larger = [count for count in within if count.gpus > row.gpus]
    near = [_size(count) for count in (*smaller[1:][-1:], *larger[:1])]
    text = f"within the limits, too: {'; '.join(near)}; " if near else ""
    if smaller:
        text += f"smallest within the limits: {_size(smaller[0])}; "
    if kind.below:
        return f"{text}one size smaller: {kind.below.gpus:,} GPUs, {kind.below.why}"
    return f"{text}one size smaller: {kind.left_out or 'none'}"


def _size(count: TriedCount) -> str:
    run = None if count.days is None else show(count.days, "days")
    cost = None if count.cost_usd is None else show(count.cost_usd, "USD")
    return ", ".join(part for part in (f"{count.gpus:,} GPUs", run, cost) if part)


# how much bandwidth


def _bandwidth(document: BandwidthSweep) -> list[Block]:
    cluster, fits = document.cluster, document.memory.fits
    head = Block(
        f"{document.model} on {cluster.gpus:,} x {cluster.gpu_title}: bandwidth per GPU that makes"
        " communication free",
        text=[
            f"layout    {describe(document.layout)} [{document.stack}]"
            + ("" if fits else " - DOES NOT FIT"),
            f"step      {show(document.step.seconds, 's')}",
        ],
    )
    for name, wire in document.wires.items():
        head.text.append(
            f"{name}: {_speed(wire.bytes_per_s_per_gpu)} per GPU, waits"
            f" {show(wire.exposed_s, 's')}, {percent(wire.exposed_frac)} of the step; without a"
            f" limit the step takes {show(wire.step_unlimited_s, 's')}"
        )
        head.text += [
            f"  below {_share(share)}: {_needed(need, wire)}" for share, need in wire.free.items()
        ]
    if not document.searched:
        return [head]
    table = Block(
        "Each bandwidth between nodes with its own layout",
        text=[
            f"exposed traffic between nodes below {_share(share)} of the step: "
            + ("no bandwidth tried" if need is None else f"from {_speed(need)} per GPU on")
            for share, need in (document.searched_free or {}).items()
        ],
        header=["times|.4g", ">per GPU", "step|s", "exposed|%", "layout"],
        rows=[
            [
                *(row.times, _speed(row.bytes_per_s_per_gpu), row.step_seconds),
                *(row.exposed_frac, describe(row.layout)),
            ]
            for row in document.searched
        ],
        order="least bandwidth first",
        links=[Link(row.command) for row in document.searched],
        chart=_curve(
            "bandwidth",
            "step",
            [
                (in_unit(row.bytes_per_s_per_gpu, "Gbit/s"), row.step_seconds)
                for row in document.searched
            ],
            ("bandwidth between nodes per GPU (Gbit/s)", "step (s)", "s"),
        ),
    )
    return [head, table]


def _share(share: str) -> str:
    """A key of `free`, `searched_free` or `saturates` in per cent."""
    return f"{100 * float(share):g} %"


def _speed(bytes_per_s: float) -> str:
    return f"{show(bytes_per_s, 'B/s')} ({show(in_unit(bytes_per_s, 'Gbit/s'), 'Gbit/s')})"


def _needed(need: float | None, wire: Wire) -> str:
    if need is None:
        return f"no bandwidth suffices, since the latency keeps {percent(wire.latency_frac)}"
    if need == 0:
        return "at any bandwidth"
    return f"{_speed(need)} per GPU, {show(need / wire.bytes_per_s_per_gpu, '')} times as much"


# how large a batch


def _batch(document: SaturatingBatch) -> list[Block]:
    best = f"best at {document.best:,}"
    if document.best == document.rows[-1].global_batch:
        best += ", the largest tried"
    return [
        Block(
            f"{document.model.title} on {document.gpus:,} x {document.gpu_title}: global batch,"
            f" sequences of {document.seq_len:,} tokens",
            text=[
                *(
                    f"within {_share(share)} of the best from {size:,} sequences on,"
                    f" {show(size * document.seq_len, 'count')} tokens"
                    for share, size in document.saturates.items()
                ),
                f"{best}; {document.tried} batches tried, {len(document.rows)} with a layout that"
                " fits",
            ],
            header=[
                *("batch|,", "tokens|count", "step|s", "tokens/s/GPU|number", "of the best|%"),
                *("MFU|%", "bottleneck", "layout"),
            ],
            rows=[
                [
                    *(row.global_batch, row.tokens_per_step, row.step.seconds),
                    *(row.throughput.tokens_per_s_per_gpu, row.of_best_frac, row.throughput.mfu),
                    *(row.step.bottleneck, describe(row.layout)),
                ]
                for row in document.rows
            ],
            order="smallest first",
            drop=("MFU", "tokens", "bottleneck"),
            links=[Link(row.command) for row in document.rows],
            chart=_curve(
                "batch",
                "throughput",
                [(row.global_batch, row.throughput.tokens_per_s_per_gpu) for row in document.rows],
                ("global batch", "tokens/s per GPU", "tokens/s"),
            ),
        )
    ]


# how large a model


def _model(document: LargestModel) -> list[Block]:
    limits, best = document.limits, document.catalogue.answer
    title = f"Largest model on {document.gpus:,} x {document.gpu_title}"
    if limits.days is not None:
        title += f" within {limits.days:g} days"
    if limits.budget_usd is not None:
        title += f" for {show(limits.budget_usd, 'USD')}"
    head = Block(title, [f"catalogue  {_largest(best) if best else 'none of the models'}"])
    if document.family:
        head.text += _family(document.family)
    rows = document.catalogue.rows
    first = next((i for i, row in enumerate(rows) if row.within), 0)
    start = max(0, min(first - _ABOVE_FIRST, len(rows) - _MOST_MODELS))
    shown = rows[start : start + _MOST_MODELS]
    table = Block(
        "Models of the catalogue",
        text=[f"{len(shown)} of {len(rows)} shown; smaller ones are not tried"],
        order="largest first",
        drop=("memory", "USD", "step"),
        header=[
            *("model", "parameters|count", "fits", "memory|B", "step|s", "days|days", "USD|number"),
            "layout",
        ],
        rows=[_model_cells(row) for row in shown],
    )
    return [head, table]


def _largest(row: ModelRow) -> str:
    assert row.step is not None
    assert row.memory is not None  # it is within the limits
    days = "" if row.days is None else f", {show(row.days, 'days')}"
    return (
        f"{row.title}, {show(row.parameters, 'count')} parameters: step"
        f" {show(row.step.seconds, 's')}, {show(row.memory.headroom_bytes, 'B')} free{days}"
    )


def _family(family: Family) -> list[str]:
    above, shape = family.above, family.shape
    lines, commands = ["scaled     no scaled shape"], []
    if family.answer is not None and shape is not None:
        commands = [
            f"           after --model-out {shape['name']}.toml:",
            Command(f"           {family.answer.command}"),
        ]
        lines = [
            f"scaled     {_largest(family.answer)}: {shape['layers']} layers, hidden"
            f" {shape['hidden']:,}, {shape['heads']} heads"
        ]
    if above is not None:
        slow = f"takes {show(above.days, 'days')}" if above.days else "fits with too little room"
        why = above.refused or (slow if above.fits else "does not fit")
        lines.append(
            f"           the next, {show(above.parameters, 'count')} with {above.layers} layers,"
            f" {why}"
        )
    return [*lines, f"           rule: {family.rule}", *commands]


def _model_cells(row: ModelRow) -> list[Cell]:
    if row.memory is None or row.step is None or row.layout is None:
        return [row.model, row.parameters, "no", *[None] * 4, row.refused or ""]
    return [
        *(row.model, row.parameters, row.fits, row.memory.device_bytes, row.step.seconds),
        *(row.days, row.cost_usd, describe(row.layout)),
    ]
