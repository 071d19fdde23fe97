"""Blocks of text for `dpplan strategies`."""

from __future__ import annotations

from planner.specs.documents.strategies import BucketTimeline, Strategies, Strategy
from planner.units import show
from planner.views.view import Block, Fixed

_WIDTH = 68  # characters of a timeline
_MOST_BUCKETS = 12  # listed one by one


def strategy_blocks(r: Strategies) -> list[Block]:
    """One table of all strategies; in full where one was asked for."""
    answered = [strategy for strategy in r.strategies if strategy.statistics is not None]
    exact = [one for one in answered if one.statistics and one.statistics.exact]
    others = [one for one in answered if one not in exact]
    blocks = [_table(r, exact)]
    if others:
        blocks.append(_assumed(others))
    refused = [
        [strategy.name, strategy.refused]
        for strategy in r.strategies
        if strategy.refused is not None
    ]
    if refused:
        blocks.append(Block("Left out", header=["strategy", "why"], rows=refused, order="as above"))
    elif len(r.strategies) == 1:
        blocks += _in_full(r.strategies[0])
    return blocks


_HEADER = [
    "strategy",
    "by",
    ">memory",
    "fits",
    ">compute",
    ">exposed",
    ">step",
    ">forward",
    ">backward",
    ">optimizer",
    ">between nodes",
    ">per token",
]


def _table(r: Strategies, exact: list[Strategy]) -> Block:
    best = next((strategy for strategy in exact if strategy.name == r.best), None)
    none = "no strategy with the result of one large synchronous batch fits"
    named = f"least time per token of what fits: {best.name}, {best.title}" if best else none
    return Block(
        f"{r.model} on {r.cluster.gpus:,} x {r.cluster.gpu}: {r.global_batch:,} x {r.seq_len:,}"
        f" tokens per step, {r.precision}",
        [
            *([named] if len(r.strategies) > 1 else []),
            f"capacity {show(r.cluster.capacity_bytes, 'B')} per GPU; bytes are what a GPU sends"
            " per step in each phase",
            "each with the micro-batch and recompute that are fastest for it",
        ],
        _HEADER if exact else [],
        [_row(strategy) for strategy in exact],
        order="by family: replicas, sharded, frameworks, servers" if exact else "",
        drop=("optimizer", "forward", "backward", "by", "between nodes", "compute", "exposed"),
    )


def _assumed(others: list[Strategy]) -> Block:
    """Strategies whose number of steps is an assumption: what they may cost in steps."""
    header = _HEADER[: _HEADER.index(">per token")]
    return Block(
        "Not the result of one large batch: codes, averages, stale or dropped gradients",
        [
            "steps assumed: to the same loss over those of exact training, x 1 by default: a bound"
            " from each method's paper and no prediction (--strategy NAME --steps-factor F)",
            "pays up to: as many steps more cost what the step saves against the fastest exact"
            " strategy that fits; below x 1 it is slower whatever it needs",
        ],
        [*header, ">steps assumed", ">pays up to"],
        [[*_row(other)[: len(header)], *_steps(other)] for other in others],
        order="as above",
        drop=("optimizer", "forward", "backward", "by", "between nodes", "compute", "exposed"),
    )


def _steps(one: Strategy) -> list[str]:
    assert one.statistics is not None  # it is answered
    even = one.statistics.break_even_steps
    return [f"x {one.statistics.steps_factor:.3g}", "-" if even is None else f"x {even:.3g}"]


def _row(one: Strategy) -> list[str]:
    """Cells under `_HEADER` of a strategy that is not refused."""
    step, sent, memory = one.step, one.sent_bytes, one.device_bytes
    if step is None or sent is None or memory is None:
        raise ValueError(f"{one.name} is refused: {one.refused}")
    return [
        one.name,
        f"plan {one.stack}" if one.evaluated else f"formulas, {one.stack}",
        show(memory, "B"),
        "yes" if one.fits else "no",
        *(show(seconds, "s") for seconds in (step.compute_s, step.exposed_s, step.seconds)),
        *(
            show(size, "traffic")
            for size in (sent.forward, sent.backward, sent.optimizer, sent.between_nodes)
        ),
        show(one.seconds_per_token, "s"),
    ]


def _in_full(one: Strategy) -> list[Block]:
    layout, step, statistics = one.layout, one.step, one.statistics
    if layout is None or step is None or statistics is None:
        return []
    block = Block(
        one.title,
        [
            f"what differs   {one.differs}",
            f"source         {one.source}",
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
    if one.break_even_bytes_per_s is not None:
        block.text.append(
            f"break-even     pays below {show(one.break_even_bytes_per_s, 'B/s')} per GPU, where"
            " nothing hides the reduction"
        )
    return [block] if one.timeline is None else [block, _timeline(one.timeline)]


def _timeline(line: BucketTimeline) -> Block:
    """Backward above, reductions below; a digit is the last one of the bucket's number."""
    found = line.buckets
    end = max(line.backward_s, found[-1].end_s)
    busy = [" "] * _WIDTH
    for i, one in enumerate(found):
        low, high = round(_WIDTH * one.start_s / end), round(_WIDTH * one.end_s / end)
        for column in range(min(low, _WIDTH - 1), max(high, low + 1)):
            busy[min(column, _WIDTH - 1)] = str(i % 10)
    count = len(found)
    listed = range(count) if count <= _MOST_BUCKETS else (0, 1, 2, count // 2, count - 2, count - 1)
    block = Block(
        "Buckets of the last backward pass",
        [
            f"{count} buckets; exposed {show(line.exposed_s, 's')}: {show(line.tail_s, 's')} after"
            f" backward, {show(line.contention_s, 's')} of slower backward beside them",
            Fixed("backward  " + "=" * round(_WIDTH * line.backward_s / end)),
            Fixed("reduce    " + "".join(busy).rstrip()),
            f"          0 to {show(end, 's')}",
        ],
        [">bucket", ">gradients", ">bytes", ">ready", ">start", ">end"],
        [
            [
                str(i),
                str(found[i].tensors),
                show(found[i].bytes, "B"),
                *(show(at, "s") for at in (found[i].ready_s, found[i].start_s, found[i].end_s)),
            ]
            for i in listed
        ],
        order="in the order of backward",
    )
    if len(listed) < count:
        block.below.append(f"{len(listed)} of {count} buckets (--json lists all)")
    return block
