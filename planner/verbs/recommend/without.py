"""Answers without the defaults that `recommend cluster` took: each replaced in turn, for the kinds
of GPU that come nearest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from planner.formulas import critical_batch as laws
from planner.formulas.params import active_parameter_count
from planner.inputs.batch import Batch, largest_published
from planner.inputs.cluster import price_of
from planner.inputs.training import sequence_length
from planner.specs.documents.recommend import ClusterRow, Without
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.options.own import BatchOptions
from planner.specs.options.recommend import Limits
from planner.units import show
from planner.verbs.batch.critical import read
from planner.verbs.recommend.counts import ORDER, Count, judged, rows_of
from planner.verbs.recommend.kinds import MOST_GPUS, Kind, expected_days, kind
from planner.verbs.recommend.limits import in_reach
from planner.verbs.requests import answer

# choices: kinds that are tried again where none is within the limits, numbers of GPUs of each that
# are tried, and how many times the most GPUs
_NEAREST = 2
_COUNTS = 8
_MORE_GPUS = 8
_FEWER = 0.9  # a larger batch is mentioned where it needs at most this share of the GPUs


@dataclass(frozen=True)
class Asked:
    """A question: what was given, the batch that was taken for it, None where it was given."""

    given: Options
    batch: Batch | None
    model: ModelSpec
    tokens: float | None
    limits: Limits
    jobs: int


@dataclass(frozen=True)
class _Instead:
    """One default replaced: the request and the limits that then hold."""

    default: str
    instead: str
    options: dict[str, object]
    limits: Limits
    above: int = 0  # numbers of GPUs tried, up to the limits
    batch: int | None = None


def without(
    request: Asked, kinds: Sequence[Kind], counts: Sequence[Sequence[Count]]
) -> list[Without]:
    """Where no kind is within the limits: each default without which one is, or how near it comes.
    Where some are: with which of them replaced fewer GPUs are."""
    if request.limits.days is None and request.limits.budget is None:
        return []
    if any(row.within for tried in counts for row in rows_of(tried)):
        return _fewer(request, kinds, counts)
    near = sorted(
        zip(kinds, counts, strict=True), key=lambda pair: _excess(pair[1], request.limits)
    )
    nearest = [candidate for candidate, _ in near[:_NEAREST]]
    ladders = [_batches(request, request.limits), _precisions(request), _sizes(request)]
    results = [result for ladder in ladders for result in _first(request, ladder, nearest)]
    if not any(result.answer for result in results):
        results += _first(request, _together(request), nearest)
    return [*results, *_goodput(request.limits, counts)]


def _fewer(
    request: Asked, kinds: Sequence[Kind], counts: Sequence[Sequence[Count]]
) -> list[Without]:
    """Fewer GPUs of the kinds that need fewest, with a larger batch if the batch is not a published
    one, and in fp8 if the model was trained in fp8."""
    smallest = {
        kind.name: min((row.gpus for row in rows_of(tried) if row.within), default=0)
        for kind, tried in zip(kinds, counts, strict=True)
    }
    results = []
    for few in sorted(kinds, key=lambda kind: smallest[kind.name] or math.inf)[:_NEAREST]:
        most = int(smallest[few.name] * _FEWER)
        if most < 1:
            continue
        less = replace(request, limits=request.limits.changed(max_gpus=most))
        if request.batch is not None and not request.batch.published:
            results += _first(less, _batches(less, less.limits), [few])
        if _trained_in_fp8(request.model):
            results += _first(less, _precisions(less), [few])
    return [result for result in results if result.answer is not None]


def _excess(counts: Sequence[Count], limits: Limits) -> float:
    """Distance of the nearest count of a kind from its limits; infinite if none fits."""
    return min((_over(row, limits) for row in rows_of(counts) if row.fits), default=math.inf)


def _over(row: ClusterRow, limits: Limits) -> float:
    taken = ((row.days, limits.days), (row.cost_usd, limits.budget))
    return max(
        (math.inf if value is None else value / limit for value, limit in taken if limit),
        default=1.0,
    )


# --------------------------------------------------------------------------------- what is replaced


def _batches(request: Asked, limits: Limits) -> Iterator[_Instead]:
    """Twice the default batch, four times, up to the largest that was published."""
    batch = request.batch
    if batch is None:
        return
    most = max(largest_published()[1], 2 * batch.tokens)
    times = 2
    while times * batch.tokens <= most:
        size = times * batch.sequences
        tokens = show(size * batch.seq_len, "count")
        yield _Instead(
            "global batch",
            f"a global batch of {size:,} sequences ({tokens} tokens, {times} x the default)",
            {"global_batch": size},
            limits,
            batch=size,
        )
        times *= 2


def _precisions(request: Asked) -> Iterator[_Instead]:
    """fp8, if the request states no precision."""
    if request.given.precision is not None:
        return
    trained = " as it was trained" if _trained_in_fp8(request.model) else ""
    yield _Instead("precision", f"precision fp8{trained}", {"precision": "fp8"}, request.limits)


def _trained_in_fp8(model: ModelSpec) -> bool:
    return model.published.precision is not None and model.published.precision.name == "fp8"


def _sizes(request: Asked) -> Iterator[_Instead]:
    """More GPUs than are tried by default."""
    if request.limits.max_gpus is not None:
        return
    most = _MORE_GPUS * MOST_GPUS
    limits = request.limits.changed(max_gpus=most)
    yield _Instead("most GPUs", f"up to {most:,} GPUs", {}, limits, above=MOST_GPUS)


def _together(request: Asked) -> Iterator[_Instead]:
    """All of them at once, the batch the largest."""
    *_, batch = None, *_batches(request, request.limits)
    parts = [batch, *_precisions(request), *_sizes(request)]
    known = [part for part in parts if part is not None]
    if len(known) > 1:
        yield _Instead(
            "all of these",
            " and ".join(part.instead for part in known),
            {name: value for part in known for name, value in part.options.items()},
            known[-1].limits,
            batch=batch.batch if batch else None,
        )


# --------------------------------------------------------------------------------- what then holds


def _first(request: Asked, ladder: Iterator[_Instead], kinds: Sequence[Kind]) -> list[Without]:
    """The first of a ladder with which some kind is within the limits, else its last; empty where
    nothing of it fits any kind."""
    last: list[Without] = []
    for instead in ladder:
        counts = _tried(request, instead, kinds)
        if not any(row.fits for row in rows_of(counts)):
            continue
        last = [_without(request, instead, rows_of(counts))]
        if last[0].answer is not None:
            break
    return last


def _tried(request: Asked, instead: _Instead, kinds: Sequence[Kind]) -> list[Count]:
    """Some numbers of GPUs of each kind, one default replaced: from the largest down, as far as
    memory and days allow."""
    counts: list[Count] = []
    for base in kinds:
        options = base.base.changed(**instead.options)
        again = kind(base.name, options, request.model, request.tokens, instead.limits)
        requests = [r for r in again.requests if r.gpus > instead.above]
        days, least = expected_days(instead.limits), again.nearest
        in_time = [r for r in requests if least is None or least.days(r.gpus) <= days]
        requests = _spread(in_time or requests[-1:])
        together = max(request.jobs, 1)
        for end in range(len(requests), 0, -together):
            some = requests[max(end - together, 0) : end]
            points = answer(some, jobs=request.jobs, reasons=False)
            tried = [judged(base.name, p, instead.limits, price_of(p.options)) for p in points]
            counts += tried
            if not in_reach(rows_of(tried[:1]), instead.limits):
                break
    return counts


def _without(request: Asked, instead: _Instead, rows: Sequence[ClusterRow]) -> Without:
    best = min((row for row in rows if row.within), key=ORDER["smallest"], default=None)
    nearest = min((row for row in rows if row.fits), key=lambda row: _over(row, instead.limits))
    says = f"still none, {_words(nearest)} at best" if best is None else _words(best)
    critical, factor = _critical(request, instead.batch)
    cost = (
        f"; {critical:.2g} critical batches, {factor:.2f} x the tokens to the same loss by the law"
        " of dpplan batch"
        if critical is not None
        else ""
    )
    return Without(
        default=instead.default,
        instead=instead.instead,
        answer=best,
        of_critical=critical,
        tokens_factor=factor,
        sentence=f"with {instead.instead}: {says}{cost}",
    )


def _spread(requests: Sequence[Options]) -> list[Options]:
    """Some of the requests, from the first to the last by even ratios of their GPUs."""
    if len(requests) <= _COUNTS:
        return list(requests)
    first, last = requests[0].gpus, requests[-1].gpus
    wanted = [first * (last / first) ** (i / (_COUNTS - 1)) for i in range(_COUNTS)]
    nearest = [min(requests, key=lambda options: abs(options.gpus - gpus)) for gpus in wanted]
    return list(dict.fromkeys(nearest))


def _words(row: ClusterRow) -> str:
    taken = [
        None if row.days is None else show(row.days, "days"),
        None if row.cost_usd is None else show(row.cost_usd, "USD"),
    ]
    return f"{row.gpus:,} x {row.machine} in {', '.join(text for text in taken if text)}"


def _critical(request: Asked, batch: int | None) -> tuple[float | None, float | None]:
    """A batch over the critical one, and the tokens to the same loss over those with the default
    batch; None where no batch is replaced."""
    if batch is None or request.batch is None or request.tokens is None:
        return None, None
    seq_len = sequence_length(request.given, request.model)
    parameters = float(active_parameter_count(request.model))
    critical = read(BatchOptions(), seq_len=seq_len, parameters=parameters, tokens=request.tokens)
    larger, default = (
        float(laws.tokens_to_target(1.0, float(size * seq_len), critical.tokens))
        for size in (batch, request.batch.sequences)
    )
    return batch * seq_len / critical.tokens, larger / default


def _goodput(limits: Limits, counts: Sequence[Sequence[Count]]) -> list[Without]:
    """Whether a run would be within the limits if nothing failed and no checkpoint was written."""
    if limits.days is None:
        return []
    rows = (_undisturbed(row) for tried in counts for row in rows_of(tried) if row.fits)
    within = [row for row in rows if _over(row, limits) <= 1]
    best = min(within, key=lambda row: row.days or math.inf, default=None)
    if best is None:
        return []
    says = f"without failures and checkpoints (goodput {best.goodput:.1%}): {_words(best)}"
    return [Without("failures", "no failures and no checkpoints", None, None, None, says)]


def _undisturbed(row: ClusterRow) -> ClusterRow:
    """The run without failures and checkpoints."""
    days, cost = (
        None if value is None else value * row.goodput for value in (row.days, row.cost_usd)
    )
    return structs.replace(row, days=days, cost_usd=cost)
