"""The verb `tune`: which methods of fine-tuning fit these cards, with which context and
micro-batch, how long the run takes and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.formulas.params import parameter_count
from planner.inputs import tables
from planner.inputs.cluster import price_of
from planner.inputs.doubts import unflagged
from planner.inputs.fine_tuning import (
    ALONE,
    BESIDE,
    BESIDE_ALONE,
    PERSONAL,
    TRAINERS,
    each_of,
    replicas,
)
from planner.inputs.model import language_models
from planner.inputs.scenario import doubts_of
from planner.inputs.usual import STACKS, trainers
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, UNSET, changed
from planner.specs.documents.batch import SizedModel
from planner.specs.documents.estimate import Figures
from planner.specs.documents.tune import FittingModel, TuneData, TuneMethod, Tuning
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.options.recommend import Limits
from planner.specs.options.tune import ANY, FEW_CARDS, RANK, TuneOptions
from planner.units import show
from planner.verbs.recommend.limits import DAY_S, checked
from planner.verbs.requests import Point, answer
from planner.verbs.tune import cards, sizes
from planner.verbs.tune.card import Attempt, Card, card_of
from planner.verbs.tune.data import Data
from planner.verbs.tune.methods import METHODS, Method
from planner.verbs.tune.rows import row_of, run_of
from planner.verbs.workers import Progress, workers

__all__ = ["answered", "csv_text", "tune"]

_MOST = 1000  # runs of a request: some minutes of two cores
_USUAL = "full+lora+qlora"  # methods of more cards, where none is named: what most people use
_ALIKE = 0.02  # relative: the plainest of trainers that are faster by less


def tune(
    request: TuneOptions,
    given: Mapping[str, Any],
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Tuning:
    """Every requested method with the largest micro-batch and context that fit, and the time and
    the cost of the run.

    given: `gpu` may be several kinds, or `any`. limits: days and dollars of the run, and the most
    GPUs, up to which 1, 2, 4 and so on are tried. Raises PlanError for a wrong request.
    """
    limits = checked(limits or Limits(), request.examples)
    each_given, notes = cards.every(given, limits)
    if len(each_given) > FEW_CARDS and request.method == ANY:
        request = request.changed(method=_USUAL)
        notes = [*notes, f"of more than {FEW_CARDS} cards the methods {_USUAL} (set --method)"]
    every = [card_of(request, on_card) for on_card in each_given]
    runs = sum(len(card.methods) for card in every)
    if runs > _MOST:
        raise PlanError(
            "--gpu",
            f"{len(every):,} cards",
            f"and their methods are {runs:,} runs, more than {_MOST:,}; name fewer kinds or"
            " methods, or lower --max-gpus",
        )
    with workers(request.jobs or 1):
        if len(every) <= FEW_CARDS:
            answers = _answers(request, every, limits, progress, detailed=True)
        else:
            answers = _answers(request, every, limits, progress, detailed=False)
            places = sorted({place for place, _ in cards.best(answers, limits).values()})
            for place, answer_there in zip(
                places,
                _answers(request, [every[i] for i in places], limits, None, detailed=True),
                strict=True,
            ):
                answers[place] = answer_there
    first, *others = [changed(each, notes=[*notes, *each.notes]) for each in answers]
    if others or cards.are_limits(limits):
        first = changed(
            first, answers=cards.answers(answers, limits), limits=cards.document_of(limits)
        )
    return changed(first, others=others) if others else first


def answered(document: Tuning) -> bool:
    """Whether a method fits, within the limits where there are some."""
    if document.answers is UNSET:
        return document.fastest is not None
    return document.answers.fastest is not None


def _answers(
    request: TuneOptions,
    every: Sequence[Card],
    limits: Limits,
    progress: Progress | None,
    *,
    detailed: bool,
) -> list[Tuning]:
    """The answer of each card. detailed: with the largest contexts, micro-batches and models, and
    with what the fastest method takes on other stacks."""
    jobs, rounds = request.jobs or 1, 3 + request.largest

    def tick(done: int) -> None:
        if progress:
            progress(done, rounds)

    tried = _on_trainers([each for card in every for each in card.attempts()], jobs)
    contexts: list[sizes.Rung | None] = [None] * len(tried)
    models: list[tuple[FittingModel, ...]] = [()] * len(tried)
    if detailed:
        contexts = sizes.largest([each.with_context for each in tried], sizes.CONTEXTS, jobs)
        contexts = sizes.spread(contexts, sizes.CONTEXTS, lambda _, n: {"seq_len": n}, jobs)
    tick(1)
    micro = _micro_batches(tried, contexts if detailed else None, jobs)
    if detailed:
        micro = sizes.spread(micro, sizes.MICRO_BATCHES, _micro_batch, jobs)
    tick(2)
    requests = [each.run(rung) for each, rung in zip(tried, micro, strict=True)]
    points = _timed(tried, answer(requests, jobs=jobs), jobs)
    tick(3)
    if request.largest and detailed:
        models = _models(tried, jobs)
        tick(4)
    if not detailed:
        micro = [None] * len(tried)
    rows = [
        row_of(*each, limits) for each in zip(tried, points, contexts, micro, models, strict=True)
    ]
    count = len(every[0].methods)
    of_card = [slice(i * count, (i + 1) * count) for i in range(len(every))]
    return [
        _of_card(card, rows[part], points[part], jobs if detailed else None)
        for card, part in zip(every, of_card, strict=True)
    ]


def _of_card(
    card: Card, rows: list[TuneMethod], points: Sequence[Point], jobs: int | None
) -> Tuning:
    """The answer of one card. jobs: None leaves out what the fastest takes on other stacks."""
    base, data, model = card.base, card.data, card.model
    fastest = min(cards.surest(rows), key=lambda row: row.run_s or 0.0, default=None)
    on_trainer, elsewhere = None, []
    named = fastest or max(
        (row for row in rows if row.memory is not None),
        key=lambda row: row.memory.headroom_bytes if row.memory else 0.0,
        default=None,
    )
    if named is not None and base.stack is None and jobs is not None:
        on_trainer = _on_trainer(named, points[rows.index(named)].options, data, jobs)
        elsewhere = _elsewhere(rows, points, data, jobs)
    variant = None
    if named is not None and fastest is None and jobs is not None:
        variant = _variant(card, card.methods[rows.index(named)], jobs)
    return Tuning(
        schema_version=SCHEMA_VERSION,
        model=SizedModel(model.name, model.title or model.name, parameter_count(model)),
        gpus=base.gpus,
        gpu_title=card.gpu_title,
        data=_data_of(data),
        global_batch=base.global_batch or 0,
        methods=rows,
        fastest=None if fastest is None else fastest.name,
        on_trainer=on_trainer,
        variant=variant,
        notes=[*card.sentences, *elsewhere, *_common(points), f"price: {price_of(base).sentence}"],
        doubts=doubts_of(base),
    )


def _variant(card: Card, method: Method, jobs: int) -> str | None:
    """The fastest method that fits of those that do what this one does and more, such as
    offloading, and are not requested; None where there is none."""
    requested = {each.name for each in card.methods}
    rank = method.pairs.get("lora", RANK)
    more = [
        each
        for each in (each.of_rank(rank) for each in METHODS)
        if each.name not in requested and method.pairs.items() < each.pairs.items()
    ]
    tried = _on_trainers(card.attempts(more), jobs)
    points = answer([each.run(None) for each in tried], jobs=jobs)
    fitting = [
        (run_of(card.data, point.report)[0] or 0.0, each.method, point.report.memory.verdict)
        for each, point in zip(tried, points, strict=True)
        if point.report is not None and point.report.memory.fits
    ]
    if not fitting:
        return None
    seconds, other, verdict = min(fitting, key=lambda each: each[0])
    return f"--method {other.name} {verdict} ({other.title}): {show(seconds / DAY_S, 'days')}"


def _on_trainers(tried: Sequence[Attempt], jobs: int) -> list[Attempt]:
    """Gives each method without a stack a trainer that people fine-tune with: of the ways of TRL
    the fastest in which a micro-batch of one example fits; on one GPU else Unsloth or torchtune, if
    it fits there; else the trainer that is the least short. A method that no trainer has runs on
    the fastest of the usual stacks in which it fits."""
    out = _on_first(list(tried), trainers, jobs)
    out = _on_first(out, lambda options: ALONE if options.gpus == 1 else (), jobs)
    return _on_first(_on_nearest(out, jobs), lambda _: STACKS, jobs)


def _on_nearest(tried: list[Attempt], jobs: int) -> list[Attempt]:
    """Each method without a stack on the first way of TRL, or on one GPU of the other stacks of a
    person, that its expected need fits, else on the one that is the least short of memory; without
    one where none has what the request states."""
    out = list(tried)
    for i, each in enumerate(tried):
        if each.base.stack is None:
            options = each.with_micro(1)
            alone = ALONE if options.gpus == 1 else ()
            points = _on_each(options, (*trainers(options), *alone), jobs)
            ran = (point.report for point in points if point.report is not None)
            near = next((figures for figures in ran if figures.memory.fits), _nearest(points))
            stack = None if near is None else near.stack
            out[i] = replace(each, base=each.base.changed(stack=stack))
    return out


def _on_each(options: Options, stacks: Sequence[str], jobs: int) -> list[Point]:
    return answer([options.changed(stack=stack) for stack in stacks], jobs=jobs)


def _nearest(points: Sequence[Point]) -> Figures | None:
    """The answer that is the least short of memory, None where all are refused."""
    ran = [point.report for point in points if point.report is not None]
    return max(ran, key=lambda figures: figures.memory.headroom_bytes, default=None)


def _on_first(
    tried: list[Attempt], stacks: Callable[[Options], Sequence[str]], jobs: int
) -> list[Attempt]:
    """Each method without a stack on the plainest of the fastest of these in which it fits; without
    one where there is none."""
    out, places = list(tried), []
    for i, each in enumerate(tried):
        if each.base.stack is None:
            options = each.with_micro(1)
            places += [(i, options.changed(stack=stack)) for stack in stacks(options)]
    points = answer([options for _, options in places], jobs=jobs, reasons=False)
    fitting: dict[int, list[tuple[float, str]]] = {}
    for (i, _), point in zip(places, points, strict=True):
        if point.report is not None and point.roomy:
            fitting.setdefault(i, []).append((point.report.step.seconds, point.report.stack))
    for i, runs in fitting.items():
        least = min(runs)[0] * (1 + _ALIKE)
        stack = next(stack for seconds, stack in runs if seconds <= least)
        out[i] = replace(out[i], base=out[i].base.changed(stack=stack))
    return out


def _fits_on(options: Options, data: Data, jobs: int) -> tuple[float, str] | None:
    """The shortest run of a request on the usual stacks of pre-training, in seconds, and its stack;
    None where it fits on none."""
    ran = [each.report for each in _on_each(options, STACKS, jobs) if each.report is not None]
    fitting = [figures for figures in ran if figures.memory.fits]
    return min(((run_of(data, each)[0] or 0.0, each.stack) for each in fitting), default=None)


def _elsewhere(
    rows: Sequence[TuneMethod], points: Sequence[Point], data: Data, jobs: int
) -> list[str]:
    """That methods run on the stacks of people who fine-tune, and what the fastest takes on others,
    and those that do not fit."""
    fastest = min(cards.surest(rows), key=lambda row: row.run_s or 0.0, default=None)
    words = []
    for row, point in zip(rows, points, strict=True):
        if row.stack not in PERSONAL or (row.fits and row is not fastest):
            continue
        other = _fits_on(point.options, data, jobs)
        if other is not None and (not row.fits or other[0] < (row.run_s or 0.0)):
            does = "takes" if row.fits else "fits and takes"
            words.append(f"{row.name} {does} {show(other[0] / DAY_S, 'days')} with {_flag(other)}")
    lead = (
        "methods run on TRL (1.16; earlier trainers where it lacks a loss or an objective), on one"
        " GPU on Unsloth or torchtune where they fit only there (set --stack)"
    )
    return ["; ".join([lead, *words]), *_beside(rows, points, data, jobs)]


def _beside(
    rows: Sequence[TuneMethod], points: Sequence[Point], data: Data, jobs: int
) -> list[str]:
    """Time and memory of the fastest method with other programs, as a note."""
    fastest = min(cards.surest(rows), key=lambda row: row.run_s or 0.0, default=None)
    if fastest is None or fastest.stack not in PERSONAL:
        return []
    options = points[rows.index(fastest)].options
    programs = BESIDE_ALONE if options.gpus == 1 else BESIDE
    others = [stack for stack in programs if stack != fastest.stack]
    words = [
        f"{figures.stack} {show((run_of(data, figures)[0] or 0.0) / DAY_S, 'days')} with"
        f" {show(figures.memory.device_bytes, 'B')}"
        + ("" if figures.memory.verdict == "fits" else f" ({figures.memory.verdict})")
        for figures in (point.report for point in _on_each(options, others, jobs))
        if figures is not None
    ]
    return [f"{fastest.name} with other programs: {', '.join(words)}"] if words else []


def _flag(run: tuple[float, str]) -> str:
    return f"--stack {run[1]}"


def _on_trainer(row: TuneMethod, options: Options, data: Data, jobs: int) -> str | None:
    """A method on another stack than its own: one that TRL does not run, with TRL; one that does
    not fit there, with the usual stacks of pre-training."""
    if row.stack in TRAINERS:
        if row.fits or (other := _fits_on(options, data, jobs)) is None:
            return None
        return f"{row.name} fits with {_flag(other)}: {show(other[0] / DAY_S, 'days')}"
    points = _on_each(options, trainers(options), jobs)
    runs = f"{row.name} runs on {row.stack}"
    near = _nearest(points)
    if near is None:
        return f"{runs}, which TRL does not: {points[0].refused}"
    if near.memory.fits:
        seconds = run_of(data, near)[0] or 0.0
        doubt = "" if near.memory.verdict == "fits" else f" and {near.memory.verdict}"
        return f"{runs}; with --stack {near.stack} it takes {show(seconds / DAY_S, 'days')}{doubt}"
    short = show(-near.memory.headroom_bytes, "B")
    return f"{runs}; TRL does not fit: --stack {near.stack} is {short} short"


def _micro_batches(
    tried: Sequence[Attempt], contexts: Sequence[sizes.Rung | None] | None, jobs: int
) -> list[sizes.Rung | None]:
    """The largest micro-batch of each method: none where not even one sequence fits, or where the
    request says it. contexts: the longest of each method; None asks only methods whose step is one
    micro-batch."""
    out: list[sizes.Rung | None] = [None] * len(tried)
    places = [
        i
        for i, attempt in enumerate(tried)
        if attempt.base.micro_batch is None
        and (
            not attempt.method.accumulates
            if contexts is None
            else (most := contexts[i]) is not None and most.size >= attempt.data.seq_len
        )
    ]
    rungs = sizes.largest([tried[i].with_micro for i in places], sizes.MICRO_BATCHES, jobs)
    for i, rung in zip(places, rungs, strict=True):
        out[i] = rung
    return out


def _micro_batch(options: Options, count: int) -> dict[str, Any]:
    """Micro-batches of this many examples on the replicas of a request, one a step."""
    each = count * each_of(options)
    return {"micro_batch": each, "global_batch": each * replicas(options)}


def _models(tried: Sequence[Attempt], jobs: int) -> list[tuple[FittingModel, ...]]:
    """The largest model of the catalogue that each method fits, and those that the layout of that
    fits with less of a chance; nothing where none fits."""
    known, seq_len = language_models(), tried[0].data.seq_len

    def taken(_: Options, place: int) -> dict[str, Any]:
        model = known[place]
        return {"model": model.name, "seq_len": min(seq_len, model.max_positions)}

    rungs = sizes.largest_models([each.with_model for each in tried], known, jobs)
    rungs = sizes.spread(rungs, range(len(known)), taken, jobs)
    return [
        tuple(_model(known[fit.size], fit.point) for fit in (rung, *rung.larger)) if rung else ()
        for rung in rungs
    ]


def _timed(tried: Sequence[Attempt], points: Sequence[Point], jobs: int) -> list[Point]:
    """The tuning, where the micro-batch of an answer shows how many tokens are padding, with the
    tokens of all epochs: that micro-batch is kept."""
    out, places, requests = list(points), [], []
    for i, (each, point) in enumerate(zip(tried, points, strict=True)):
        if point.report is not None and each.data.is_of_micro_batches:
            micro = point.report.layout.micro_batch
            places.append(i)
            requests.append(
                point.options.changed(micro_batch=micro, tokens=each.data.tokens(micro))
            )
    for i, point in zip(places, answer(requests, jobs=jobs), strict=True):
        out[i] = point
    return out


def _model(model: ModelSpec, point: Point) -> FittingModel:
    return FittingModel(
        name=model.name,
        title=model.title or model.name,
        parameters=parameter_count(model),
        command=point.command,
    )


def _data_of(data: Data) -> TuneData:
    lengths = data.lengths
    return TuneData(
        examples=data.examples,
        epochs=data.epochs,
        seq_len=data.seq_len,
        mean_tokens=None if lengths is None else lengths.mean_tokens,
        sigma=None if lengths is None else lengths.sigma,
        packing=None if lengths is None else lengths.packing,
        dropped_frac=data.dropped_frac,
        excess=None if lengths is None else lengths.excess,
        sequences=data.sequences,
        useful_tokens=data.useful_tokens,
    )


def _common(points: Sequence[Point]) -> list[str]:
    """Assumptions of all answers."""
    assumed = [point.report.assumptions for point in points if point.report is not None]
    return [
        sentence
        for sentence in (assumed[0] if assumed else ())
        if not unflagged([sentence]) and all(sentence in each for each in assumed)
    ]


_COLUMNS = (
    "name",
    "title",
    "fits",
    "why",
    "useful_frac",
    "step_seconds",
    "step_low",
    "step_high",
    "run_s",
    "run_low_s",
    "run_high_s",
    "cost_usd",
    "cost_low_usd",
    "cost_high_usd",
    "chance",
    "largest_micro_batch",
    "even_micro_batch",
    "most_micro_batch",
    "longest_context",
    "even_context",
    "most_context",
    "stack",
    "command",
)
_MODELS = ("largest_model", "even_model", "most_model")
_OF_MEMORY = ("verdict", "fit_chance", "device_bytes", "capacity_bytes")


def csv_text(document: Tuning) -> str:
    """One line per GPU and method: figures, and the command for this line."""
    lines = []
    for card in document.cards:
        for row in card.methods:
            memory = [None if row.memory is None else getattr(row.memory, n) for n in _OF_MEMORY]
            models = [getattr(row, name) for name in _MODELS]
            names = [None if model is None else model.name for model in models]
            figures = (getattr(row, name) for name in _COLUMNS)
            lines.append([card.gpu_title, card.gpus, *figures, *memory, *names])
    return tables.csv_text(["gpu", "gpus", *_COLUMNS, *_OF_MEMORY, *_MODELS], lines)
