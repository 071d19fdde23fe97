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
from planner.specs.options import rows

_WORTH = 0.02  # least share of a step that a listed change gains
_MOST_CHANGES = 5
_TIMES = (2, 4, 8)  # as many GPUs, where a step does not fit
_RANK = 16  # of adapters
_OF_STEP = frozenset(rows(RlOptions))


def evaluated(request: Request, best: Tried, tried: list[Tried]) -> list[RlChange]:
    """Changes of the request that make the step fit, or faster. All but more GPUs keep the layout
    that trains."""
    assert best.chosen is not None
    here, out = best.chosen.step, list[RlChange]()
    grown = set[bool]()  # whether with adapters: the fewest GPUs that hold it
    for words, update, pools, training in _candidates(request, best, tried):
        if "gpus" in update and ("lora" in update) in grown:
            continue
        of_step = {n: v for n, v in update.items() if n in _OF_STEP}
        settings = request.own.changed(**of_step)
        rest = {n: v for n, v in update.items() if n not in of_step}
        options = request.options.changed(**rest)
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
        if "gpus" in update:
            grown.add("lora" in update)
        frac = step.step.seconds / here.seconds - 1 if here.fits else None
        if here.fits and (frac or 0.0) > -_WORTH:
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
    plain = [c for c in kinds.values() if not any(_adds(c, other) for other in kinds.values())]
    return plain[:_MOST_CHANGES]


def _adds(change: RlChange, other: RlChange) -> bool:
    """Whether a change does more than another one and gains nothing by it."""
    more = other.options.items() < change.options.items()
    return more and change.step_s > (1 - _WORTH) * other.step_s


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
    if not best.chosen.step.fits:
        yield from _smaller(request, pools)
    if not best.chosen.step.fits and not settings.generation_gpus:
        for times in _TIMES:
            gpus = times * request.options.gpus
            left = gpus - pools.scoring
            whole = Pools(left, left, colocated=True, scoring=pools.scoring)
            yield f"{gpus:,} GPUs", {"gpus": gpus}, whole, None
            if request.options.lora is None:
                update = {"gpus": gpus, "lora": _RANK}
                yield f"{gpus:,} GPUs and adapters of rank {_RANK}", update, whole, None


def _smaller(request: Request, pools: Pools) -> Iterator[_Candidate]:
    """States that are smaller, or on the host in all phases; beside what else leaves the GPU while
    engines generate."""
    options = request.options
    ways: list[tuple[str, dict[str, Any]]] = []
    if options.optimizer == "adam":
        ways.append(("states of the optimizer in 8 bit", {"optimizer": "adam8bit"}))
    if options.offload is None:
        ways.append(("states of the optimizer on the host", {"offload": "optimizer"}))
    if options.lora is None:
        ways.append((f"adapters of rank {_RANK} in place of all weights", {"lora": _RANK}))
    for words, update in ways:
        yield words, update, pools, None
        if pools.colocated and request.own.generation_offload is None:
            moved: dict[str, Any] = {"generation_offload": "both", **update}
            if request.framework.sleeps:
                yield f"{words}, the rest there while engines generate", moved, pools, None


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
