"""How large a model fits a cluster: of the catalogue, and of one model's family scaled in width and
depth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w

from planner.estimate.memory import state_ledger
from planner.formulas import flops
from planner.formulas.params import active_parameter_count, parameter_count
from planner.inputs import catalog
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.ledger import total
from planner.report.layout import SCHEMA_VERSION, Report
from planner.specs.base import PlanError
from planner.specs.model import Experts, LatentAttention, ModelSpec
from planner.specs.options import Options, refuse
from planner.specs.options.recommend import Limits
from planner.verbs.recommend.clusters import checked
from planner.verbs.requests import Point, Progress, answer, document

# scaled models have a multiple of so many heads, and of their key-value heads: tensor parallel
# divides them
_HEADS = 8
_LAYERS = 4  # and a multiple of so many layers: pipelines divide them
# layers over heads may leave the model's own by this factor, so that shapes lie close enough to
# each other
_ASPECT = 1.15
_WIDTH = 128  # widths of MLPs are rounded to a multiple of this
_TOGETHER = 4  # models evaluated at a time, from the largest down
_BELOW = 8  # models of the catalogue that are listed below the largest
_DAY_S = 86400.0
_MOST_HEADS = 512  # of a scaled model


def largest(
    limits: Limits, given: Mapping[str, Any], *, jobs: int = 1, progress: Progress | None = None
) -> Report:
    """The largest model of the catalogue, and the largest scaled `--model` if one is given, that
    train within the limits."""
    limits = checked(limits, given.get("tokens"))
    base = read_options({"model": catalog.ids("models")[0], **given})
    refuse(base, "recommend model")
    room = _room(base, limits)
    rows = _catalogue(base, limits, room, jobs, progress)
    notes = (
        ["each model with its own training context (set --seq-len)"] if base.seq_len is None else []
    )
    notes += (
        ["global batch near 4 Mi tokens (set --global-batch)"] if base.global_batch is None else []
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "question": "model",
        "gpus": base.gpus,
        "gpu_title": room.gpu_title,
        "limits": {"days": limits.days, "budget_usd": limits.budget, "sure": limits.sure},
        "catalogue": {"answer": next((row for row in rows if row["within"]), None), "rows": rows},
        "family": None if given.get("model") is None else _family(base, limits, room, progress),
        "notes": notes,
    }


@dataclass(frozen=True)
class _Room:
    """What the GPUs hold and compute together, and the least that a model takes of both."""

    gpu_title: str
    bytes: float
    bytes_per_parameter: float  # parameters and optimizer states, wherever they are
    flop: float  # of the peak rate within the days; infinite without such a limit
    tokens: float

    def ruled_out(self, model: ModelSpec) -> str | None:
        """Why no layout needs to be tried, if none does."""
        if self.bytes_per_parameter * parameter_count(model) > self.bytes:
            return "parameters and optimizer states alone do not fit"
        if (
            float(
                flops.model_flop(float(total(flops.matmul_weights(model))), 0.0, self.tokens, 0.0)
            )
            > self.flop
        ):
            return "even the peak rate takes more days"
        return None


def _room(base: Options, limits: Limits) -> _Room:
    plans = resolve(base).plans
    if not plans:
        raise PlanError("--zero", base.zero, "no stack runs this; name one with --stack")
    gpu = plans[0].cluster.gpu
    kept = 0.0
    if base.offload in (None, "none"):  # offloaded states need no GPU memory
        kept = min(
            total({k: v for k, v in state_ledger(plan).items() if k != "gradients"})
            for plan in plans
        )
    training = plans[0].training
    limit = (
        math.inf
        if limits.days is None
        else limits.days * _DAY_S * float(gpu.rate(training.precision) or math.inf) * base.gpus
    )
    return _Room(
        gpu.title, float(gpu.usable_memory) * base.gpus, kept, limit, training.tokens or 0.0
    )


def _catalogue(
    base: Options, limits: Limits, room: _Room, jobs: int, progress: Progress | None
) -> list[Report]:
    """Models of the catalogue, largest first, down to the first within the limits and a few
    more."""
    models = sorted(catalog.load_all("models", ModelSpec), key=parameter_count, reverse=True)
    rows: list[Report] = []
    left = []
    for model in models:
        reason = room.ruled_out(model)
        if reason is None:
            left.append(model)
        else:
            rows.append(_row(model, Point(base.changed(model=model.name), None, reason), limits))
    first = None
    while left and (first is None or len(rows) - first < _BELOW):
        some, left = left[:_TOGETHER], left[_TOGETHER:]
        points = answer(
            [base.changed(model=model.name) for model in some], jobs=jobs, reasons=False
        )
        rows += [_row(model, point, limits) for model, point in zip(some, points, strict=True)]
        first = next((i for i, row in enumerate(rows) if row["within"]), None)
        if progress:
            progress(len(rows), len(models))
    return sorted(rows, key=lambda row: -row["parameters"])


def _row(model: ModelSpec, point: Point, limits: Limits) -> Report:
    found = document(point)
    report = point.report
    days, cost = (
        (None, None) if report is None else (report["run"]["days"], report["run"]["cost_usd"])
    )
    slow = (
        1.0
        if report is None or not limits.sure
        else report["step"]["high"] / report["step"]["seconds"]
    )
    asked = ((limits.days, days), (limits.budget, cost))
    within = point.fits and all(
        limit is None or (value is not None and value * slow <= limit) for limit, value in asked
    )
    return {
        "model": model.name,
        "title": model.title or model.name,
        "parameters": parameter_count(model),
        "active_parameters": active_parameter_count(model),
        "fits": point.fits,
        "within": within,
        "refused": point.refused,
        "gpu_title": None if report is None else report["cluster"]["gpu_title"],
        "days": days,
        "cost_usd": cost,
        **{
            key: found.get(key)
            for key in ("command", "layout", "stack", "memory", "step", "throughput")
        },
    }


# ------------------------------------------------------------------------------------------------ a


def scaled(model: ModelSpec, heads: int, layers: int) -> ModelSpec:
    """The model with so many heads and layers: hidden and MLP widths in proportion to the heads;
    head width, key-value heads (where fewer than heads), vocabulary, experts and positions as they
    are."""
    times = heads / model.heads
    kv_heads = heads if model.kv_heads == model.heads else min(model.kv_heads, heads)

    def width(value: int) -> int:
        return max(_WIDTH, _WIDTH * round(value * times / _WIDTH)) if value else 0

    changed: dict[str, Any] = {
        "name": f"{model.name}-{layers}x{heads}",
        "title": f"{model.title or model.name} scaled to {layers} layers of {heads} heads",
        "aliases": (),
        "source": f"{model.name}, width times {times:.4g}, depth times {layers / model.layers:.4g}",
        "heads": heads,
        "kv_heads": kv_heads,
        "hidden": max(1, round(model.hidden / model.heads * heads)),
        "ffn_hidden": width(model.ffn_hidden),
        "layers": layers,
    }
    if model.moe:
        dense = min(model.moe.dense_layers, layers)
        changed["moe"] = Experts(
            **{
                **model.moe.model_dump(),
                "ffn_hidden": width(model.moe.ffn_hidden),
                "dense_layers": dense,
                "shared_ffn_hidden": width(model.moe.shared_ffn_hidden),
            }
        )
    if model.latent:
        ranks = {
            name: width(value)
            for name, value in model.latent.model_dump().items()
            if name.endswith("_rank") and value
        }
        changed["latent"] = LatentAttention(**{**model.latent.model_dump(), **ranks})
    return ModelSpec(
        **{**{name: getattr(model, name) for name in ModelSpec.model_fields}, **changed}
    )


def ladder(model: ModelSpec) -> list[tuple[int, int]]:
    """(heads, layers) that scaled shapes may have: layers over heads stay near those of the
    model."""
    step = _HEADS if model.kv_heads == model.heads else math.lcm(_HEADS, model.kv_heads)
    out = []
    for heads in range(step, max(_MOST_HEADS, step) + 1, step):
        even = model.layers * heads / model.heads
        low, high = (
            _LAYERS * max(1, round(even * share / _LAYERS)) for share in (1 / _ASPECT, _ASPECT)
        )
        out += [(heads, layers) for layers in range(low, high + 1, _LAYERS)]
    return out


def _family(base: Options, limits: Limits, room: _Room, progress: Progress | None) -> Report:
    """The largest scaled shape that fits: from the largest whose bare states fit down to the first
    that does."""
    model, _ = model_spec(base.model)
    rungs = sorted(
        (scaled(model, heads, layers) for heads, layers in ladder(model)), key=parameter_count
    )
    possible = [shape for shape in rungs if room.ruled_out(shape) is None]
    tried: list[Report] = []
    whole = len(possible)
    answered, shape_taken = None, None
    while possible and answered is None:
        some, possible = possible[-_TOGETHER:][::-1], possible[:-_TOGETHER]
        points = answer([base] * len(some), shapes=some, reasons=False)
        for shape, point in zip(some, points, strict=True):
            row = _row(shape, point, limits)
            tried.append(
                {
                    **{
                        key: row[key]
                        for key in ("model", "parameters", "fits", "within", "refused", "days")
                    },
                    "layers": shape.layers,
                    "hidden": shape.hidden,
                }
            )
            if answered is None and row["within"]:
                answered, shape_taken = row, shape
        if progress:
            progress(len(tried), whole)
    return {
        "of": model.name,
        "rule": (
            f"heads, hidden and MLP widths in proportion, layers within {_ASPECT - 1:.0%} of it;"
            " head width, key-value heads, experts and vocabulary kept"
        ),
        "answer": answered,
        "shape": (
            None
            if shape_taken is None
            else shape_taken.model_dump(exclude_none=True, exclude={"aliases"})
        ),
        "above": next(
            (
                one
                for one in reversed(tried)
                if answered and one["parameters"] > answered["parameters"]
            ),
            None,
        ),
        "tried": tried,
    }


def model_toml(shape: Mapping[str, Any]) -> str:
    """A shape as a model TOML that `--model` reads."""
    return tomli_w.dumps(_without_none(shape))


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null: what is not set is left out."""
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }
