"""The verb `tune`: which methods of fine-tuning fit these cards, with which context and
micro-batch, how long the run takes and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.formulas.params import parameter_count
from planner.inputs import tables
from planner.inputs.cluster import cluster_spec, price_of
from planner.inputs.doubts import unflagged
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import active, doubts_of
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, changed
from planner.specs.documents.batch import SizedModel
from planner.specs.documents.estimate import Figures
from planner.specs.documents.tune import FittingModel, TuneData, TuneMethod, Tuning
from planner.specs.model import ModelSpec
from planner.specs.options import Given, Options, refuse, rows
from planner.specs.options.adapters import AdapterOptions
from planner.specs.options.tune import TuneOptions
from planner.units import show
from planner.verbs.requests import Point, answer
from planner.verbs.tune import sizes
from planner.verbs.tune.data import Data, data_of, each_of, replicas, sized, with_longest
from planner.verbs.tune.methods import Method, methods_named
from planner.verbs.workers import Progress, workers

__all__ = ["csv_text", "tune"]

_DAY_S = 86400.0
# how transformers' Trainer runs, with which most people fine-tune
_TRAINERS = ("hf-trainer", "hf-fsdp", "hf-deepspeed")
_ALIKE = 0.02  # relative: the plainest of trainers that are faster by less


def tune(
    request: TuneOptions, given: Mapping[str, Any], progress: Progress | None = None
) -> Tuning:
    """Every requested method with the largest micro-batch and context that fit, and the time and
    the cost of the run. given: `gpu` may be several kinds, of which each is answered by itself.
    Raises PlanError for a wrong request."""
    kinds = given.get("gpu")
    if not isinstance(kinds, list):
        return _of_card(request, given, progress)
    answers = []
    for i, kind in enumerate(dict.fromkeys(kinds)):
        of_kind = Given(given)
        of_kind["gpu"] = kind
        tick = progress and _part(progress, i, len(kinds))
        answers.append(_of_card(request, of_kind, tick))
    first, *others = answers
    return changed(first, others=others) if others else first


def _part(progress: Progress, place: int, count: int) -> Progress:
    """The progress of one kind of GPU as a share of the progress of all kinds."""
    return lambda done, rounds: progress(place * rounds + done, count * rounds)


def _of_card(request: TuneOptions, given: Mapping[str, Any], progress: Progress | None) -> Tuning:
    """The answer of one kind of GPU."""
    base = read_options(given)
    methods = methods_named(request.method, request.rank)
    adapted = any(method.has_adapters for method in methods)
    refuse(base.changed(lora=request.rank) if adapted else base, "tune", "lora" if adapted else "")
    model, _ = model_spec(base.model)
    if model.sample:
        why = f"learns from {model.sample}s, which have no lengths; ask `dpplan estimate`"
        raise PlanError("--model", base.model, why)
    active(base, model)  # what is wrong with a teacher is wrong for every method
    base, sentences = sized(request, base, model)
    base, more = with_longest(request, base, model)
    data = data_of(request, base, model)
    cluster, _ = cluster_spec(base)
    rounds = 3 + request.largest

    def tick(done: int) -> None:
        if progress:
            progress(done, rounds)

    jobs = request.jobs or 1
    with workers(jobs):
        tried = [_Tried(method, _for(method, base), data) for method in methods]
        if base.stack is None:
            tried = _on_trainers(tried, jobs)
        contexts = sizes.largest([each.with_context for each in tried], sizes.CONTEXTS, jobs)
        contexts = sizes.spread(contexts, sizes.CONTEXTS, lambda _, n: {"seq_len": n}, jobs)
        tick(1)
        micro = _micro_batches(tried, contexts, jobs)
        micro = sizes.spread(micro, sizes.MICRO_BATCHES, _micro_batch, jobs)
        tick(2)
        requests = [each.run(rung) for each, rung in zip(tried, micro, strict=True)]
        points = answer(requests, jobs=jobs)
        if data.is_of_micro_batches:
            points = _timed(points, data, jobs)
        tick(3)
        models: list[tuple[FittingModel, ...]] = [()] * len(tried)
        if request.largest:
            models = _models(tried, data, jobs)
            tick(4)
    rows = [
        _row(data, *each) for each in zip(methods, points, contexts, micro, models, strict=True)
    ]
    fitting = [row for row in rows if row.fits]
    sure = [row for row in fitting if row.memory and row.memory.verdict == "fits"] or fitting
    fastest = min(sure, key=lambda row: row.run_s or 0.0, default=None)
    on_trainer, elsewhere = None, []
    if fastest is not None and base.stack is None:
        of_fastest = points[rows.index(fastest)].options
        if fastest.stack in _TRAINERS:
            elsewhere = _elsewhere(of_fastest, fastest, data, jobs)
        else:
            on_trainer = _on_trainer(of_fastest, fastest, data, jobs)
    return Tuning(
        schema_version=SCHEMA_VERSION,
        model=SizedModel(model.name, model.title or model.name, parameter_count(model)),
        gpus=base.gpus,
        gpu_title=cluster.gpu.title,
        data=_data_of(data),
        global_batch=base.global_batch or 0,
        methods=rows,
        fastest=None if fastest is None else fastest.name,
        on_trainer=on_trainer,
        notes=[
            *sentences,
            *more,
            *elsewhere,
            *_common(points),
            f"price: {price_of(base).sentence}",
        ],
        doubts=doubts_of(base),
    )


def _on_trainers(tried: Sequence[_Tried], jobs: int) -> list[_Tried]:
    """Each method on transformers' Trainer, with which most people fine-tune: of its ways those in
    which a micro-batch of one example fits, of these the fastest; else on any stack."""
    makers = [(each, stack) for each in tried for stack in _TRAINERS]
    requests = [each.with_micro(1).changed(stack=stack) for each, stack in makers]
    points = iter(answer(requests, jobs=jobs, reasons=False))
    out = []
    for each in tried:
        fitting = [
            (point.report.step.seconds, stack)
            for stack, point in zip(_TRAINERS, points, strict=False)
            if point.report is not None and point.roomy
        ]
        least = min(fitting, default=(0.0, None))[0] * (1 + _ALIKE)
        stack = next((stack for seconds, stack in fitting if seconds <= least), None)
        out.append(replace(each, base=each.base.changed(stack=stack)))
    return out


def _elsewhere(options: Options, fastest: TuneMethod, data: Data, jobs: int) -> list[str]:
    """That methods run on transformers' Trainer, and what the fastest takes on any stack."""
    (point,) = answer([options.changed(stack=None)], jobs=jobs)
    figures, other = point.report, ""
    if figures is not None and figures.stack not in _TRAINERS and figures.memory.fits:
        seconds = _run(data, figures)[0] or 0.0
        other = (
            f"; {fastest.name} takes {show(seconds / _DAY_S, 'days')} with --stack {figures.stack}"
        )
    return [
        "methods run on transformers' Trainer where they fit there, else on the fastest of the"
        f" usual stacks (set --stack){other}"
    ]


def _on_trainer(options: Options, fastest: TuneMethod, data: Data, jobs: int) -> str:
    """The fastest method with transformers' Trainer, which a person without a stack would take."""
    points = answer([options.changed(stack=name) for name in _TRAINERS], jobs=jobs)
    ran = [point.report for point in points if point.report is not None]
    fitting = [figures for figures in ran if figures.memory.fits]
    runs = f"{fastest.name} runs on {fastest.stack}"
    if fitting:
        times = {figures.stack: _run(data, figures)[0] or 0.0 for figures in fitting}
        best = min(times, key=lambda name: times[name])
        return f"{runs}; with --stack {best} it takes {show(times[best] / _DAY_S, 'days')}"
    if ran:
        near = max(ran, key=lambda figures: figures.memory.headroom_bytes)
        short = show(-near.memory.headroom_bytes, "B")
        return f"{runs}; transformers' Trainer does not fit: --stack {near.stack} is {short} short"
    return f"{runs}, which transformers' Trainer does not: {points[0].refused}"


def _micro_batches(
    tried: Sequence[_Tried], contexts: Sequence[sizes.Rung | None], jobs: int
) -> list[sizes.Rung | None]:
    """The largest micro-batch of each method: none where not even one sequence fits, or where the
    request says it."""
    out: list[sizes.Rung | None] = [None] * len(tried)
    places = [
        i
        for i, (attempt, most) in enumerate(zip(tried, contexts, strict=True))
        if attempt.base.micro_batch is None
        and most is not None
        and most.size >= attempt.data.seq_len
    ]
    rungs = sizes.largest([tried[i].with_micro for i in places], sizes.MICRO_BATCHES, jobs)
    for i, rung in zip(places, rungs, strict=True):
        out[i] = rung
    return out


def _micro_batch(options: Options, count: int) -> dict[str, Any]:
    """Micro-batches of so many examples on the replicas of a request, one a step."""
    each = count * each_of(options)
    return {"micro_batch": each, "global_batch": each * (options.dp or 1)}


def _models(tried: Sequence[_Tried], data: Data, jobs: int) -> list[tuple[FittingModel, ...]]:
    """The largest model of the catalogue that each method fits, and those that the layout of that
    fits with less of a chance; nothing where none fits."""
    known = sizes.models()

    def taken(_: Options, place: int) -> dict[str, Any]:
        model = known[place]
        return {"model": model.name, "seq_len": min(data.seq_len, model.max_positions)}

    rungs = sizes.largest_models([each.with_model for each in tried], known, jobs)
    rungs = sizes.spread(rungs, range(len(known)), taken, jobs)
    return [
        tuple(_model(known[fit.size], fit.point) for fit in (rung, *rung.larger)) if rung else ()
        for rung in rungs
    ]


def _for(method: Method, base: Options) -> Options:
    """The request without what is of adapters, where a method has none."""
    if method.has_adapters:
        return base
    return base.changed(**{name: row.default for name, row in rows(AdapterOptions).items()})


@dataclass(frozen=True)
class _Tried:
    """A method on the model, cards and data of the request, as requests of its sizes."""

    method: Method
    base: Options
    data: Data

    def _alone(self, micro_batch: int, **more: Any) -> Options:
        """One micro-batch a step, on every replica."""
        batch = replicas(self.base) * micro_batch
        fixed = {"global_batch": batch, "micro_batch": micro_batch, "grad_accum": None}
        return self.base.changed(**{**self.method.pairs, **fixed, **more})

    def with_context(self, tokens: int) -> Options:
        return self._alone(each_of(self.base), seq_len=tokens, longest_row=None)

    def with_micro(self, micro_batch: int) -> Options:
        return self._alone(micro_batch * each_of(self.base))

    def with_model(self, model: ModelSpec) -> Options:
        longest = min(self.data.seq_len, model.max_positions)
        return self._alone(each_of(self.base), model=model.name, seq_len=longest)

    def run(self, most: sizes.Rung | None) -> Options:
        """The step of the run, with the largest micro-batch that fits where a step has but one."""
        batch, known = self.base.global_batch or 1, not self.data.is_of_micro_batches
        tokens = {"tokens": self.data.tokens(1)} if known else {}
        if self.method.accumulates:
            return self.base.changed(**self.method.pairs, **tokens)
        fits = self.base.micro_batch or each_of(self.base) * (1 if most is None else most.size)
        return self._alone(min(fits, max(1, batch // replicas(self.base))), **tokens)


def _timed(points: Sequence[Point], data: Data, jobs: int) -> list[Point]:
    """The same with the tokens of all epochs, of which the micro-batch of an answer tells how many
    are padding: it is kept."""
    requests = []
    for point in points:
        if point.report is None:
            requests.append(point.options)
            continue
        micro = point.report.layout.micro_batch
        requests.append(point.options.changed(micro_batch=micro, tokens=data.tokens(micro)))
    return answer(requests, jobs=jobs)


def _row(
    data: Data,
    method: Method,
    point: Point,
    context: sizes.Rung | None,
    micro: sizes.Rung | None,
    models: tuple[FittingModel, ...],
) -> TuneMethod:
    figures = point.report
    step, run = (None, None) if figures is None else (figures.step, figures.run)
    low, high = (1.0, 1.0) if run is None else (run.low, run.high)
    run_s, before, cost = _run(data, figures)
    each = each_of(point.options)
    return TuneMethod(
        name=method.name,
        title=method.title,
        options=method.pairs,
        fits=point.fits,
        why=_why(point),
        memory=None if figures is None else figures.memory,
        stack=None if figures is None else figures.stack,
        layout=None if figures is None else figures.layout,
        useful_frac=None if run is None else data.useful_tokens * data.epochs / (run.tokens or 1.0),
        step_seconds=None if step is None else step.seconds,
        step_low=None if step is None else step.low,
        step_high=None if step is None else step.high,
        before_s=before,
        run_s=run_s,
        run_low_s=None if run_s is None else run_s * low,
        run_high_s=None if run_s is None else run_s * high,
        cost_usd=cost,
        cost_low_usd=None if cost is None else cost * low,
        cost_high_usd=None if cost is None else cost * high,
        largest_micro_batch=None if micro is None else micro.size * each,
        even_micro_batch=None if micro is None else micro.larger[0].size * each,
        most_micro_batch=None if micro is None else micro.larger[1].size * each,
        micro_batch_command=None if micro is None else micro.point.command,
        longest_context=None if context is None else context.size,
        even_context=None if context is None else context.larger[0].size,
        most_context=None if context is None else context.larger[1].size,
        context_command=None if context is None else context.point.command,
        largest_model=models[0] if models else None,
        even_model=models[1] if models else None,
        most_model=models[2] if models else None,
        merge=None if figures is None else figures.merge,
        command=point.command,
        pick=point.pick,
    )


def _run(data: Data, figures: Figures | None) -> tuple[float | None, float | None, float | None]:
    """Seconds of a run including passes over its examples before it, the seconds of these passes,
    and the cost."""
    if figures is None or figures.run.days is None:
        return None, None, None
    steps = data.sequences / figures.layout.global_batch
    run_s, before = figures.run.days * _DAY_S, figures.step.before_seconds * steps
    cost = figures.run.cost_usd
    more = 1 + before / run_s
    return run_s + before, before, None if cost is None else cost * more


def _why(point: Point) -> str | None:
    """Why a method does not fit, None where it does."""
    if point.report is None:
        return point.refused
    if point.fits:
        return None
    memory = point.report.memory
    if memory.headroom_bytes < 0:
        return f"{show(-memory.headroom_bytes, 'B')} short of GPU memory"
    return "host memory does not suffice"


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
            lines.append([card.gpu_title, *figures, *memory, *names])
    return tables.csv_text(["gpu", *_COLUMNS, *_OF_MEMORY, *_MODELS], lines)
