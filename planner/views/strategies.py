"""View of `dpplan strategies`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.specs.documents.strategies import BucketTimeline, Strategies, Strategy
from planner.units import show
from planner.views.cells import Cell, Column
from planner.views.chart import Chart, Trace
from planner.views.figures import BLUE, OCHRE, ROSE, axis, rows_figure, spans
from planner.views.view import Block, Caption, Fixed, Link, View

_WIDTH = 68  # characters of a timeline
_MOST_BUCKETS = 12  # listed one by one
_HEADER = [
    *("strategy", "by", "memory|B", "fits", "compute|s", "exposed|s", "step|s", "forward|traffic"),
    *("backward|traffic", "optimizer|traffic", "between nodes|traffic", "per token|s"),
]
_DROP = ("optimizer", "forward", "backward", "by", "between nodes", "compute", "exposed")


def view(r: Strategies) -> View:
    """One table of all strategies; in full where one is named."""
    answered = [strategy for strategy in r.strategies if strategy.statistics is not None]
    exact = [strategy for strategy in answered if strategy.statistics and strategy.statistics.exact]
    others = [strategy for strategy in answered if strategy not in exact]
    refused = [strategy for strategy in r.strategies if strategy.refused is not None]
    alone = len(r.strategies) == 1
    parts: list[Block | Chart] = [] if alone else [_chart(r)]
    parts += [_exact(r, exact), *([_assumed(r, others)] if others else [])]
    if refused:
        rows = [[strategy.name, strategy.refused] for strategy in refused]
        parts.append(Block("Left out", header=["strategy", "why"], rows=rows, order="as above"))
    elif alone:
        parts += _in_full(r.strategies[0])
    return View(
        f"{r.model} on {r.cluster.gpus:,} x {r.cluster.gpu}: {r.global_batch:,} x {r.seq_len:,}"
        f" tokens per step, {r.precision}",
        _verdict(r, exact, alone),
        "yes" if r.fits else "no",
        parts=parts,
        notes=r.assumptions,
    )


def _verdict(r: Strategies, exact: Sequence[Strategy], alone: bool) -> str:
    if alone:
        return f"{r.strategies[0].title}: {'fits' if r.fits else 'does not fit'}"
    best = next((strategy for strategy in exact if strategy.name == r.best), None)
    if best is None:
        return "no strategy with the result of one large synchronous batch fits"
    return f"least time per token of what fits: {best.name}, {best.title}"


def _linked(r: Strategies, block: Block, listed: Sequence[Strategy]) -> Block:
    """A table with a row per strategy, which leads to that strategy in full."""
    several = len(r.strategies) > 1
    links = [Link(changes={"strategy": strategy.name}, word="In full") for strategy in listed]
    return replace(
        block,
        drop=_DROP,
        marks=[
            "here" if strategy.name == r.best else "" if strategy.fits else "no"
            for strategy in listed
        ],
        links=links if several else (),
    )


def _exact(r: Strategies, exact: Sequence[Strategy]) -> Block:
    block = Block(
        "The result of one large synchronous batch",
        [
            f"capacity {show(r.cluster.capacity_bytes, 'B')} per GPU; bytes are what a GPU sends"
            " per step in each phase",
            "each with the micro-batch and recompute that are fastest for it",
        ],
        _HEADER if exact else [],
        [_row(strategy) for strategy in exact],
        order="by family: replicas, sharded, frameworks, servers" if exact else "",
        lead=True,
    )
    return _linked(r, block, exact)


def _assumed(r: Strategies, others: Sequence[Strategy]) -> Block:
    """Strategies whose number of steps is an assumption: what they may cost in steps."""
    statistics = [(strategy, strategy.statistics) for strategy in others if strategy.statistics]
    block = Block(
        "Not the result of one large batch: codes, averages, stale or dropped gradients",
        [
            "steps assumed: to the same loss over those of exact training, x 1 by default: a bound"
            " from each method's paper and no prediction (--strategy NAME --steps-factor F)",
            "pays up to: as many steps more cost what the step saves against the fastest exact"
            " strategy that fits; below x 1 it is slower whatever it needs",
        ],
        [*_HEADER[:-1], "steps assumed|x", "pays up to|x"],
        [[*_row(strategy)[:-1], s.steps_factor, s.break_even_steps] for strategy, s in statistics],
        order="as above",
    )
    return _linked(r, block, others)


def _row(strategy: Strategy) -> list[Cell]:
    """Cells under `_HEADER` of a strategy that is not refused."""
    step, sent = strategy.step, strategy.sent_bytes
    if step is None or sent is None:
        raise ValueError(f"{strategy.name} is refused: {strategy.refused}")
    return [
        strategy.name,
        f"plan {strategy.stack}" if strategy.evaluated else f"formulas, {strategy.stack}",
        strategy.device_bytes,
        strategy.fits,
        *(step.compute_s, step.exposed_s, step.seconds),
        *(sent.forward, sent.backward, sent.optimizer, sent.between_nodes),
        strategy.seconds_per_token,
    ]


def _in_full(strategy: Strategy) -> list[Block]:
    layout, step, statistics = strategy.layout, strategy.step, strategy.statistics
    if layout is None or step is None or statistics is None:
        return []
    block = Block(
        strategy.title,
        [
            f"what differs   {strategy.differs}",
            f"source         {strategy.source}",
            f"layout         dp {layout.dp}, zero {layout.zero}, recompute {layout.recompute},"
            f" micro-batch {layout.micro_batch} x {layout.grad_accum}",
            f"step           {show(step.seconds, 's')}, {show(step.hidden_s, 's')} of communication"
            " beside compute",
            f"to the same loss  x {statistics.steps_factor:.3g} steps: {statistics.source}",
        ],
    )
    if statistics.break_even_steps is not None:
        block.text.append(
            f"pays up to     x {statistics.break_even_steps:.3g} steps, against the fastest exact"
            " strategy that fits"
        )
    if strategy.break_even_bytes_per_s is not None:
        block.text.append(
            f"break-even     pays below {show(strategy.break_even_bytes_per_s, 'B/s')} per GPU,"
            " where"
            " nothing hides the reduction"
        )
    return [block] if strategy.timeline is None else [block, _timeline(strategy.timeline)]


def _timeline(line: BucketTimeline) -> Block:
    """Backward above, reductions below; a digit is the last one of the bucket's number."""
    buckets = line.buckets
    end = max(line.backward_s, buckets[-1].end_s)
    busy = [" "] * _WIDTH
    for i, entry in enumerate(buckets):
        low, high = round(_WIDTH * entry.start_s / end), round(_WIDTH * entry.end_s / end)
        for column in range(min(low, _WIDTH - 1), max(high, low + 1)):
            busy[min(column, _WIDTH - 1)] = str(i % 10)
    count = len(buckets)
    listed = range(count) if count <= _MOST_BUCKETS else (0, 1, 2, count // 2, count - 2, count - 1)
    block = Block(
        "Buckets of the last backward pass",
        [
            f"{count} buckets; exposed {show(line.exposed_s, 's')}: {show(line.tail_s, 's')} after"
            f" backward, {show(line.contention_s, 's')} of slower backward beside them",
            Fixed("backward  " + "=" * round(_WIDTH * line.backward_s / end)),
            Fixed("reduce    " + "".join(busy).rstrip()),
            Caption(f"          0 to {show(end, 's')}"),
        ],
        [">bucket", ">gradients", "bytes|B", "ready|s", "start|s", "end|s"],
        [
            [
                str(i),
                str(bucket.tensors),
                bucket.bytes,
                bucket.ready_s,
                bucket.start_s,
                bucket.end_s,
            ]
            for i, bucket in enumerate(buckets)
            if i in listed
        ],
        order="in the order of backward",
        chart=_buckets(line),
    )
    if len(listed) < count:
        block.below.append(f"{len(listed)} of {count} buckets (--json lists all)")
    return block


def _buckets(line: BucketTimeline) -> Chart:
    """Backward above, the reduction of each bucket below."""
    plain = {"showlegend": False, "textposition": "none"}
    backward = spans(
        "backward",
        ["backward"],
        [(0.0, line.backward_s)],
        {"color": BLUE},
        [show(line.backward_s, "s")],
        **plain,
    )
    reduced = spans(
        "reduce",
        ["reduce"] * len(line.buckets),
        [(bucket.start_s, bucket.end_s - bucket.start_s) for bucket in line.buckets],
        {"color": [(ROSE, OCHRE)[i % 2] for i in range(len(line.buckets))]},
        [
            f"bucket {i}, {show(bucket.bytes, 'B')}, ready at {show(bucket.ready_s, 's')}"
            for i, bucket in enumerate(line.buckets)
        ],
        **plain,
    )
    return Chart(
        "buckets",
        "Buckets of the last backward pass",
        "",
        rows_figure([backward, reduced], ["backward", "reduce"], axis("seconds")),
        caption="Each bucket is reduced once its gradients are there and the link is free.",
    )


def _chart(document: Strategies) -> Chart:
    """Computing and exposed communication of every strategy that is answered, the fastest first."""
    answered = sorted(
        (strategy for strategy in document.strategies if strategy.step is not None),
        key=lambda strategy: (not strategy.fits, strategy.step.seconds if strategy.step else 0.0),
    )
    names = [strategy.name for strategy in answered]
    steps = [strategy.step for strategy in answered if strategy.step is not None]
    fits = [1.0 if strategy.fits else 0.35 for strategy in answered]

    def traced(name: str, color: str, ends: list[tuple[float, float]]) -> Trace:
        texts = [f"{name} {show(length, 's')}" for _, length in ends]
        return spans(
            name, names, ends, {"color": color, "opacity": fits}, texts, textposition="none"
        )

    data = [
        traced("computing", BLUE, [(0.0, step.compute_s) for step in steps]),
        traced("exposed communication", ROSE, [(s.compute_s, s.exposed_s) for s in steps]),
    ]
    return Chart(
        "strategies",
        "A step by strategy",
        f"{sum(strategy.fits for strategy in answered)} of {len(answered)} strategies fit.",
        rows_figure(data, names, axis("seconds")),
        (
            Column("strategy"),
            Column("computing", "s"),
            Column("exposed", "s"),
            Column("step", "s"),
            Column("memory", "B"),
            Column("fits"),
        ),
        [
            [
                strategy.name,
                step.compute_s,
                step.exposed_s,
                step.seconds,
                strategy.device_bytes,
                strategy.fits,
            ]
            for strategy, step in zip(answered, steps, strict=True)
        ],
        "Pale bars do not fit the memory. A step is one optimizer step; strategies of the second"
        " table need another number of them.",
        order="what fits first, the shortest step first",
    )
