"""How large a model fits a cluster: of the catalogue, and of one model's family scaled in width and
depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import tomli_w

from planner.formulas.params import active_parameter_count, parameter_count
from planner.inputs import catalog
from planner.inputs.cluster import price_of
from planner.inputs.model import language_models, model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import doubts_of, resolve, searched
from planner.inputs.training import sequence_length
from planner.specs.base import PlanError
from planner.specs.decoder import Decoder, decoder_of
from planner.specs.document import SCHEMA_VERSION, extended
from planner.specs.documents.recommend import (
    Catalogue,
    Family,
    LargestModel,
    ModelLimits,
    ModelRow,
    ScaledRow,
)
from planner.specs.model import NAMING, ModelSpec, stated
from planner.specs.options import Options, refuse
from planner.specs.options.recommend import Limits
from planner.specs.plan import Plan
from planner.verbs.recommend.bound import least_flop
from planner.verbs.recommend.kinds import bare_bytes
from planner.verbs.recommend.limits import DAY_S, checked
from planner.verbs.requests import Point, answer
from planner.verbs.workers import Progress

# scaled models have a multiple of this many heads, and of their key-value heads: tensor parallel
# divides them
_HEADS = 8
_LAYERS = 4  # and a multiple of this many layers: pipelines divide them
# layers over heads may leave the model's own by this factor, so that shapes lie close enough to
# each other
_ASPECT = 1.15
_WIDTH = 128  # widths of MLPs are rounded to a multiple of this
_TOGETHER = 4  # models evaluated at a time, from the largest down
_PATIENCE = 100  # shapes that fail before some are left out: a choice
_BELOW = 8  # models of the catalogue that are listed below the largest
_MOST_HEADS = 512  # of a scaled model


def largest(
    limits: Limits, given: Mapping[str, Any], *, jobs: int = 1, progress: Progress | None = None
) -> LargestModel:
    """The largest model of the catalogue, and the largest scaled `--model` if one is given, that
    train within the limits."""
    limits = checked(limits, given.get("tokens"))
    base = read_options({"model": _deepest(), **given})
    refuse(base, "recommend model")
    price = price_of(base)
    if limits.budget is not None and price.missing is not None:
        raise PlanError(
            "--budget", limits.budget, f"{price.missing}; give --price or another --market"
        )
    room = _room(base, limits)
    rows = _catalogue(base, limits, room, jobs, progress)
    notes = searched(base)
    if base.seq_len is None:
        notes.append("each model with the sequences of its own pre-training (set --seq-len)")
    if base.global_batch is None:
        notes.append(
            "each model with the global batch of its own training, else near 4 Mi tokens (set"
            " --global-batch)"
        )
    if base.tokens is not None:
        notes.append(f"price: {price.sentence} (--market, --price, --capex)")
    return LargestModel(
        schema_version=SCHEMA_VERSION,
        question="model",
        gpus=base.gpus,
        gpu_title=room.gpu_title,
        limits=ModelLimits(limits.days, limits.budget, limits.sure),
        catalogue=Catalogue(next((row for row in rows if row.within), None), rows),
        family=None if given.get("model") is None else _family(base, limits, room, progress),
        notes=notes,
        doubts=doubts_of(base, of_model="model" in given),
    )


def _deepest() -> str:
    """The model that a request is read with before any is chosen: of many layers, and sequences of
    any length."""

    def depth(name: str) -> tuple[bool, int]:
        model = catalog.load("models", ModelSpec, name)
        return model.positions == "rotary", model.layers

    return max(catalog.ids("models"), key=depth)


@dataclass(frozen=True)
class _Room:
    """Memory and compute of all GPUs, and the least that a model takes of both."""

    gpu_title: str
    bytes: float
    bytes_per_parameter: float  # parameters and optimizer states, wherever they are
    flop: float  # of the peak rate within the days; infinite without such a limit
    plan: Plan
    base: Options

    def ruled_out(self, model: ModelSpec) -> str | None:
        """Why no layout needs to be tried, if none does."""
        if self.bytes_per_parameter * parameter_count(model) > self.bytes:
            return "parameters and optimizer states already do not fit"
        tokens, seq_len = self.plan.training.tokens or 0.0, sequence_length(self.base, model)
        if least_flop(model, tokens, self.plan, seq_len) > self.flop:
            return "even the peak rate takes more days"
        return None


def _room(base: Options, limits: Limits) -> _Room:
    plans = resolve(base).plans
    if not plans:
        raise PlanError("--zero", base.zero, "no stack runs this; name one with --stack")
    gpu = plans[0].cluster.gpu
    on_gpu = base.offload in (None, "none")  # offloaded states need no GPU memory
    peak = float(gpu.rate(plans[0].training.precision) or math.inf)
    return _Room(
        gpu_title=gpu.title,
        bytes=float(gpu.usable_memory) * base.gpus,
        bytes_per_parameter=bare_bytes(plans) if on_gpu else 0.0,
        flop=math.inf if limits.days is None else limits.days * DAY_S * peak * base.gpus,
        plan=plans[0],
        base=base,
    )


def _catalogue(
    base: Options, limits: Limits, room: _Room, jobs: int, progress: Progress | None
) -> list[ModelRow]:
    """Language models of the catalogue, largest first, down to the first within the limits and a
    few more. Encoders answer another question than "how large a model can I train"."""
    rows: list[ModelRow] = []
    waiting = []
    models = language_models()
    for model in reversed(models):
        reason = room.ruled_out(model)
        if reason is None:
            waiting.append(model)
        else:
            rows.append(_row(model, Point(_named(base, model), None, reason), limits))
    first = None
    while waiting and (first is None or len(rows) - first < _BELOW):
        block, waiting = waiting[:_TOGETHER], waiting[_TOGETHER:]
        points = answer([_named(base, model) for model in block], jobs=jobs, reasons=False)
        rows += [_row(model, point, limits) for model, point in zip(block, points, strict=True)]
        first = next((i for i, row in enumerate(rows) if row.within), None)
        if progress:
            progress(len(rows), len(models))
    return sorted(rows, key=lambda row: -row.parameters)


def _named(base: Options, model: ModelSpec) -> Options:
    return base.changed(model=model.name)


def _row(model: ModelSpec, point: Point, limits: Limits) -> ModelRow:
    figures = point.report
    of_answer: dict[str, Any] = {
        name: None if figures is None else getattr(figures, name)
        for name in ("layout", "stack", "memory", "step", "throughput")
    }
    return ModelRow(
        model=model.name,
        title=model.title or model.name,
        parameters=parameter_count(model),
        active_parameters=active_parameter_count(model),
        fits=point.fits,
        within=point.roomy and _within(point, limits),
        refused=point.refused,
        gpu_title=None if figures is None else figures.cluster.gpu_title,
        days=None if figures is None else figures.run.days,
        cost_usd=None if figures is None else figures.run.cost_usd,
        command=point.command,
        pick=point.pick,
        **of_answer,
    )


def _within(point: Point, limits: Limits) -> bool:
    """Whether days and dollars of an answered request are likely within the limits; very likely
    where they have to be sure."""
    if point.report is None:
        return False
    run = point.report.run
    slow = run.high if limits.sure else 1.0  # the median
    return all(
        limit is None or (value is not None and value * slow <= limit)
        for limit, value in ((limits.days, run.days), (limits.budget, run.cost_usd))
    )


# a family


def scaled(model: ModelSpec, heads: int, layers: int) -> ModelSpec:
    """The model with this many heads and layers: hidden and MLP widths in proportion to the heads;
    head width, key-value heads (where fewer than heads), vocabulary, experts and positions as they
    are."""
    plain = _plain(model)
    times = heads / plain.heads

    def width(value: int) -> int:
        return max(_WIDTH, _WIDTH * round(value * times / _WIDTH)) if value else 0

    update: dict[str, Any] = {
        "name": f"{model.name}-{layers}x{heads}",
        "title": f"{model.title or model.name} scaled to {layers} layers of {heads} heads",
        "aliases": (),
        "source": f"{model.name}, width times {times:.4g}, depth times {layers / model.layers:.4g}",
        "heads": heads,
        "kv_heads": heads if plain.kv_heads == plain.heads else min(plain.kv_heads, heads),
        "hidden": max(1, round(model.hidden / plain.heads * heads)),
        "ffn_hidden": width(plain.ffn_hidden),
        "layers": layers,
    }
    if plain.moe:
        experts = {
            "ffn_hidden": width(plain.moe.ffn_hidden),
            "dense_layers": min(plain.moe.dense_layers, layers),
            "shared_ffn_hidden": width(plain.moe.shared_ffn_hidden),
        }
        update["moe"] = {**plain.moe.model_dump(), **experts}
    if plain.latent:
        latent = plain.latent.model_dump()
        ranks = {n: width(v) for n, v in latent.items() if n.endswith("_rank") and v}
        update["latent"] = {**latent, **ranks}
    return ModelSpec.model_validate({**stated(model), **update})


def _plain(model: ModelSpec) -> Decoder:
    plain = decoder_of(model)
    if plain is None:
        raise PlanError(
            "--model",
            model.name,
            "is a stack of layers that differ, which is not scaled to other sizes; start from a"
            " plain decoder, or leave out the search for sizes",
        )
    return plain


def ladder(model: ModelSpec) -> list[tuple[int, int]]:
    """(heads, layers) that scaled shapes may have: the ratio of layers to heads stays near the
    model's."""
    plain = _plain(model)
    step = _HEADS if plain.kv_heads == plain.heads else math.lcm(_HEADS, plain.kv_heads)
    rungs = []
    for heads in range(step, max(_MOST_HEADS, step) + 1, step):
        even = model.layers * heads / plain.heads
        low, high = (
            _LAYERS * max(1, round(even * share / _LAYERS)) for share in (1 / _ASPECT, _ASPECT)
        )
        rungs += [(heads, layers) for layers in range(low, high + 1, _LAYERS)]
    return rungs


def _family(base: Options, limits: Limits, room: _Room, progress: Progress | None) -> Family:
    """The largest scaled shape that fits: from the largest whose bare states fit down to the first
    that does."""
    model, _ = model_spec(base.model)
    possible = sorted(_possible(model, room), key=parameter_count, reverse=True)
    tried: dict[int, ModelRow] = {}

    def attempt(positions: Iterable[int]) -> int | None:
        """The first of these shapes that is within the limits."""
        some = [i for i in positions if i < len(possible)]
        files = [base.changed(model=f"{possible[i].name}.toml") for i in some]
        points = answer(files, shapes=[possible[i] for i in some], reasons=False)
        tried.update(
            (i, _row(possible[i], point, limits)) for i, point in zip(some, points, strict=True)
        )
        if progress:
            progress(len(tried), len(possible))
        return next((i for i in some if tried[i].within), None)

    first = _first(len(possible), attempt)
    taken = None if first is None else (possible[first], tried[first])
    rows = [
        extended(ScaledRow, tried[i], layers=possible[i].layers, hidden=possible[i].hidden)
        for i in sorted(tried)
    ]
    larger = [row for row in rows if taken and row.parameters > taken[1].parameters]
    return Family(
        of=model.name,
        rule=(
            f"heads, hidden and MLP widths in proportion, layers within {_ASPECT - 1:.0%} of it;"
            " head width, key-value heads, experts and vocabulary kept"
        ),
        answer=taken[1] if taken else None,
        shape=stated(taken[0], exclude_none=True, exclude=NAMING) if taken else None,
        above=larger[-1] if larger else None,
        tried=rows,
    )


def _possible(model: ModelSpec, room: _Room) -> Iterator[ModelSpec]:
    """The shapes that are worth a try. More layers, or more heads, need more of everything: the
    first that is ruled out rules out those beyond."""
    for _, rungs in itertools.groupby(ladder(model), key=itemgetter(0)):
        shapes = (scaled(model, heads, layers) for heads, layers in rungs)
        some = list(itertools.takewhile(lambda shape: room.ruled_out(shape) is None, shapes))
        if not some:
            return
        yield from some


def _first(count: int, attempt: Callable[[Iterable[int]], int | None]) -> int | None:
    """The first position that an attempt finds: one block after the other; once many have failed,
    ever farther apart, and then by halves between the last that failed and the one found."""
    start, gap, failed = 0, 0, -1
    while start < count:
        position = attempt(range(start, start + _TOGETHER))
        if position is not None:
            break
        failed = min(start + _TOGETHER, count) - 1
        gap = 0 if failed < _PATIENCE else 2 * gap + _TOGETHER
        start = max(failed + 1, min(failed + 1 + gap, count - _TOGETHER))
    else:
        return None
    while position is not None and position == start and start - failed > 1:
        middle = (failed + start) // 2
        if attempt([middle]) is None:
            failed = middle
        else:
            start = position = middle
    return position


def model_toml(shape: Mapping[str, Any]) -> str:
    """A shape as a model TOML that `--model` reads."""
    return tomli_w.dumps(dict(shape))
