"""Which cluster: of every kind of GPU the smallest, cheapest and fastest number that trains the
model within the limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.formulas.params import parameter_count
from planner.inputs.batch import default_batch
from planner.inputs.cluster import price_of
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import doubts_of, searched
from planner.inputs.training import (
    precision_sentence,
    sequence_length,
    sequence_sentence,
    states_length,
)
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, extended
from planner.specs.documents.batch import SizedModel
from planner.specs.documents.prices import Prices
from planner.specs.documents.recommend import (
    Answers,
    Below,
    ClusterLimits,
    ClusterRow,
    MachineKind,
    SmallestCluster,
    TriedCount,
)
from planner.specs.options import refuse
from planner.specs.options.numbers import number
from planner.specs.options.recommend import GOALS, Limits
from planner.units import chance_text, show
from planner.verbs.prices import Bill, PriceAt, prices
from planner.verbs.recommend import ladder
from planner.verbs.recommend.bound import Least
from planner.verbs.recommend.counts import ORDER, Count, cost_of, judged, rows_of, undecided
from planner.verbs.recommend.examples import of_examples
from planner.verbs.recommend.kinds import MOST_GPUS, Kind, kinds
from planner.verbs.recommend.limits import checked
from planner.verbs.recommend.without import Asked, without
from planner.verbs.requests import Point
from planner.verbs.workers import Progress

_LONG_DAYS = 365  # of a run; published ones take months
_BEATEN = "by the time of its layers no number of them is the cheapest, smallest or fastest"


def cluster(
    limits: Limits,
    given: Mapping[str, Any],
    gpus: Sequence[str] = (),
    clusters: Sequence[str] = (),
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> SmallestCluster:
    """Every count of every kind of GPU over which the batch divides, compared with the limits.

    given: options of a request without gpu, gpus and cluster. gpus, clusters: the kinds to try; by
    default every GPU of the catalogue in its usual node. Raises PlanError for a wrong request,
    such as adapters without a limit on GPUs.
    """
    base = read_options(given)
    if base.lora and limits.max_gpus is None:
        raise PlanError(
            "--lora",
            base.lora,
            f"trains adapters, for which up to {MOST_GPUS:,} GPUs would be tried: state --max-gpus,"
            f" or ask `{of_examples(base, limits, gpus)}`",
        )
    limits = checked(limits, given.get("tokens"))
    refuse(base, "recommend cluster")
    model, _ = model_spec(base.model)
    tokens = number(base, "tokens")
    default, batch = None, base.global_batch
    if batch is None:
        default = default_batch(base, model, sequence_length(base, model))
        batch = default.sequences
    tried_kinds = kinds(gpus, clusters, base.changed(global_batch=batch), model, tokens, limits)
    tries = ladder.points(tried_kinds, limits, jobs=jobs, progress=progress)
    answered = tries.points
    counts = [
        [judged(kind.name, point, limits, price_of(point.options)) for point in tried]
        for kind, tried in zip(tried_kinds, answered, strict=True)
    ]
    request = Asked(base, default, model, tokens, limits, jobs)
    within = [row for row in rows_of(count for tried in counts for count in tried) if row.within]
    answers = Answers(**{aim: _best(within, aim) for aim in GOALS})
    best = [answers.cheapest, answers.smallest, answers.fastest]
    types = [
        _type(kind, tried, looked, limits, best)
        for kind, tried, looked in zip(tried_kinds, counts, tries.looked, strict=True)
    ]
    return SmallestCluster(
        schema_version=SCHEMA_VERSION,
        question="cluster",
        model=SizedModel(model.name, model.title or model.name, parameter_count(model)),
        limits=ClusterLimits(
            days=limits.days,
            budget_usd=limits.budget,
            max_gpus=limits.max_gpus or MOST_GPUS,
            power_kw=limits.power_kw,
            sure=limits.sure,
        ),
        tokens=tokens,
        global_batch=batch,
        goal=limits.goal,
        tried=sum(map(len, answered)),
        excluded=sum(not points for points in answered),
        answers=answers,
        undecided=undecided([row.answer for row in types if row.answer], limits.goal),
        types=sorted(types, key=lambda kind: _rank(kind.answer, limits.goal)),
        prices=_prices(tried_kinds, answered, limits, "hour" if tokens is None else "run"),
        without=without(request, tried_kinds, counts),
        notes=_notes(request, within or [row for tried in counts for row in rows_of(tried)]),
        doubts=[
            *doubts_of(*(kind.requests[-1] for kind in tried_kinds if kind.requests)),
            *_doubts(limits),
        ],
    )


def _doubts(limits: Limits) -> list[str]:
    if limits.days is None or limits.days <= _LONG_DAYS:
        return []
    years = limits.days / _LONG_DAYS
    return [f"--days {limits.days:,g} are {years:.1f} years, longer than any published run"]


def _notes(request: Asked, rows: Sequence[ClusterRow]) -> list[str]:
    """Every default that the answer rests on, and the run that was published."""
    options, model = request.given, request.model
    notes = []
    if not states_length(options):
        notes.append(sequence_sentence(options, model, sequence_length(options, model)))
    if request.batch is not None:
        notes.append(request.batch.sentence)
    if options.precision is None:
        notes.append(precision_sentence("bf16", model))
    if request.limits.max_gpus is None:
        notes.append(f"clusters of up to {MOST_GPUS:,} GPUs (set --max-gpus)")
    notes += searched(options)
    shares = sorted(row.goodput for row in rows)
    if request.tokens is not None and shares:
        notes.append(
            f"goodput {shares[0]:.1%} to {shares[-1]:.1%}: failures, checkpoints and restarts (set"
            " --mtbf, --checkpoint-interval, --restart)"
        )
    run = model.published.run
    if run is not None and run.gpu is not None and request.tokens is not None:
        notes.append(run.sentence)
    return notes


def _prices(
    tried: Sequence[Kind], answered: Sequence[Sequence[Point]], limits: Limits, per: str
) -> Prices:
    """Prices of the kinds of which some count fits, and the cheapest within the limits at any."""
    fitting = [
        (kind, [point for point in points if point.fits])
        for kind, points in zip(tried, answered, strict=True)
    ]

    def cheapest(price: PriceAt) -> tuple[str, Bill, float] | None:
        rows = [
            (row, point)
            for kind, points in fitting
            for point in points
            if (row := judged(kind.name, point, limits, price(kind.requests[0])).row) and row.within
        ]
        row, point = min(rows, key=lambda pair: ORDER["cheapest"](pair[0]), default=(None, None))
        if row is None or point is None or math.isinf(cost_of(row)):
            return None
        label = f"{row.gpus:,} x {row.machine}"
        return label, Bill(label, point.options, 0.0), cost_of(row)

    clusters_of = (
        (kind.requests[0], points[0].report.cluster)
        for kind, points in fitting
        if points and points[0].report is not None
    )
    return prices(clusters_of, per, cheapest)


def _rank(row: ClusterRow | None, goal: str) -> tuple[bool, tuple[float, ...]]:
    """Kinds with an answer first."""
    return row is None, () if row is None else ORDER[goal](row)


def _best(rows: Sequence[ClusterRow], goal: str) -> ClusterRow | None:
    """The best row; None where the best has no price."""
    best = min(rows, key=ORDER[goal], default=None)
    return best if best is not None and ORDER[goal](best)[0] < math.inf else None


def _type(
    kind: Kind,
    counts: Sequence[Count],
    looked: ClusterRow | None,
    limits: Limits,
    best: Sequence[ClusterRow | None],
) -> MachineKind:
    """One kind: its best count, or why there is none; and the obstacle to the count below its
    smallest. best: of all kinds, by each goal."""
    within = [row for row in rows_of(counts) if row.within]
    reason = None if within else kind.reason or _reason(kind, counts, looked, limits)
    if within and len(counts) == 1 < len(kind.requests) and within[0] not in best:
        # a count beyond the others, which is not the best of its kind
        reason, within = f"{_BEATEN}; {counts[0].gpus:,} GPUs fit within the limits", []
    smallest = _best(within, "smallest")
    smaller = [count for count in counts if smallest and count.gpus < smallest.gpus]
    return MachineKind(
        machine=kind.name,
        answer=min(within, key=ORDER[limits.goal], default=None),
        smallest_gpus=smallest.gpus if smallest else None,
        below=Below(smaller[-1].gpus, smaller[-1].why) if smaller else None,
        left_out=_left_out(kind, len(counts)),
        reason=reason,
        tried=[_tried(count) for count in counts],
    )


def _left_out(kind: Kind, tried: int) -> str | None:
    """Which counts of a kind are not tried, and why."""
    some = (
        f"{tried} of {len(kind.requests)} numbers of GPUs that divide the work are tried: a ladder,"
        " and those next to what answers, without those that no bound lets be the best by any goal,"
        " or that are behind with the kernels and overlap of a pick of another number"
    )
    reasons = [kind.left_out, some if tried < len(kind.requests) else None]
    return "; ".join(reason for reason in reasons if reason) or None


def _tried(count: Count) -> TriedCount:
    row = count.row
    if row is None:
        return TriedCount(count.gpus, False, False, None, None, count.why, None, None, None)
    return extended(TriedCount, row)


def _reason(kind: Kind, counts: Sequence[Count], looked: ClusterRow | None, limits: Limits) -> str:
    """Why no count of a kind is within the limits: the nearest miss, or a bound where none was
    tried."""
    if not counts and kind.least is not None:
        return _ruled_out(kind, kind.least) if looked is None else _behind(looked)
    most, rows = counts[-1].gpus, rows_of(counts)
    larger = "" if most == kind.requests[-1].gpus else "; no larger one could be the best"
    fitting = [row for row in rows if row.fits]
    if not rows:
        return f"no layout divides the batch at any count up to {most:,} GPUs"
    if not fitting:
        nearest = max(rows, key=lambda row: row.headroom_bytes)
        return f"{nearest.why} at best, up to {most:,} GPUs{larger}"
    if any(row.verdict == "unknown" for row in fitting):
        return next(row.why for row in fitting if row.verdict == "unknown") or ""

    def days(row: ClusterRow) -> float:
        return math.inf if row.days is None else row.days

    in_time = [row for row in fitting if limits.days is None or days(row) <= limits.days]
    if not in_time:
        fastest = min(fitting, key=days)
        return f"{fastest.why} at best, on {fastest.gpus:,} GPUs{_odds(fastest)}{larger}"
    cheapest = min(in_time, key=ORDER["cheapest"])
    return f"{cheapest.why} at least, on {cheapest.gpus:,} GPUs{_odds(cheapest)}"


def _ruled_out(kind: Kind, least: Least) -> str:
    """A bound of what a kind takes that is beyond the best kinds by every goal."""
    few, many = kind.requests[0].gpus, kind.requests[-1].gpus
    usd, per = least.cost(few), "" if least.run_gpu_s is not None else " an hour"
    cost = "" if math.isinf(usd) else f" and cost {show(usd, 'USD')}{per}"
    return (
        f"not searched: GEMMs take {show(least.step_s(many), 's')} a step on {many:,} GPUs{cost};"
        f" with {few:,} or more GPUs others are cheaper, faster and smaller"
    )


def _behind(row: ClusterRow) -> str:
    """Time and cost of the best count of a kind, with the software of another kind's pick."""
    cost = "" if row.cost_usd is None else f" and {show(row.cost_usd, 'USD')}"
    takes = show(row.step_seconds, "s") + " a step" if row.days is None else f"{row.days:.3g} days"
    return (
        f"not searched: with the kernels and overlap of another kind's pick {row.gpus:,} GPUs take"
        f" {takes}{cost}; others are cheaper, faster and smaller"
    )


def _odds(row: ClusterRow) -> str:
    """How far from certain a miss is."""
    return "" if row.chance is None else f", within with chance {chance_text(row.chance)}"
