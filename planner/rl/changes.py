"""Changes of a request that make a step fit, or faster, each evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.rl.documents import RlChange
from planner.rl.options import RlOptions
from planner.rl.request import ALONE, OFFLOADS, Request, command_of, request_of
from planner.rl.splits import Training, Tried, try_split, with_engine
from planner.rl.step import Pools
from planner.specs.base import PlanError

_WORTH = 0.02  # least share of a step that a listed change gains
_MOST_CHANGES = 5


def evaluated(request: Request, best: Tried, tried: list[Tried]) -> list[RlChange]:
    """Changes of the request that make the step fit, or faster. All but more GPUs keep the layout
    that trains."""
    assert best.chosen is not None
    here, out = best.chosen.step, list[RlChange]()
    for words, update, pools, training in _candidates(request, best, tried):
        settings = request.own.changed(**{n: v for n, v in update.items() if n != "gpus"})
        options = request.options.changed(gpus=update.get("gpus", request.options.gpus))
        try:
            other = request_of(settings, options)
            step = (
                try_split(other, pools).chosen
                if training is None
                else with_engine(other, pools, training)
            )
        except PlanError:  # not with this framework, model or number of GPUs
            continue
        if step is None or not step.step.fits:
            continue
        frac = step.step.seconds / here.seconds - 1
        if here.fits and frac > -_WORTH:
            continue
        out.append(
            RlChange(
                change=words,
                options=update,
                step_s=step.step.seconds,
                step_change_frac=frac,
                fits=True,
                command=command_of(settings, options),
            )
        )
    kinds: dict[tuple[str, ...], RlChange] = {}  # of several splits the fastest
    for change in sorted(out, key=lambda change: change.step_s):
        kinds.setdefault(tuple(change.options), change)
    return list(kinds.values())[:_MOST_CHANGES]


_Candidate = tuple[str, dict[str, Any], Pools, Training | None]


def _candidates(request: Request, best: Tried, tried: list[Tried]) -> Iterator[_Candidate]:
    """Changes in words and as options, their split, and the training that they keep; None where
    training is searched again."""
    assert best.chosen is not None
    settings, pools, training = request.own, best.pools, best.chosen.training
    if request.engine.in_process:
        yield "vLLM in place of transformers", {"generation_engine": "vllm"}, pools, None
    else:
        yield from _ahead(settings, tried)
        for words, update in _of_engines(settings):
            yield words, update, pools, training
    for words, update in _of_phases(request, colocated=pools.colocated):
        yield words, update, pools, training
    if not best.chosen.step.fits and not settings.generation_gpus:
        gpus = 2 * request.options.gpus
        left = gpus - pools.scoring
        whole = Pools(left, left, colocated=True, scoring=pools.scoring)
        yield f"{gpus:,} GPUs", {"gpus": gpus}, whole, None


def _ahead(settings: RlOptions, tried: list[Tried]) -> Iterator[_Candidate]:
    """Each split with generation one step ahead."""
    for split in tried if not settings.ahead else ():
        if split.chosen is not None and not split.pools.colocated:
            words = f"one step ahead on {split.pools.generation:,} GPUs that generate"
            update = {"ahead": 1, "generation_gpus": split.pools.generation}
            yield words, update, split.pools, split.chosen.training


def _of_engines(settings: RlOptions) -> Iterator[tuple[str, dict[str, Any]]]:
    if not settings.partial_rollout:
        yield "responses that are not done go on in the next step", {"partial_rollout": True}
    if settings.generation_precision == "bf16":
        yield "weights of the engine in fp8", {"generation_precision": "fp8"}


def _of_phases(request: Request, *, colocated: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Phases left out, and memory moved between phases."""
    if request.job.old_logprobs and request.own.updates == 1:
        yield "log-probabilities from the engine", {"old_logprobs": "no"}
    if colocated and set(request.moves) != set(OFFLOADS["both"]):
        moved: dict[str, Any] = {"generation_offload": "both"}
        yield "states on the host while engines generate", moved
        if request.framework.sleeps and not request.engine.in_process:
            words = f"states on the host meanwhile, and engines with {ALONE:.0%} of the memory"
            yield words, {**moved, "generation_memory": ALONE}
