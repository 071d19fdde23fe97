"""Advice: for a plan that does not fit or is slow, evaluated changes, best first.

Two kinds: "keep" changes one thing (or two) of the chosen layout or of the request and leaves
everything else as it is, so that its numbers mean only this change; "search" leaves options open
and takes the best layout of what is then possible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.advise import host_link
from planner.advise.changes import (
    WORTH,
    Change,
    Promise,
    by_cost,
    chunked_loss,
    difference,
    fewer_nodes,
    fixed_layout,
    freed,
    layout_changes,
    more_gpus,
    more_room,
    on_request,
    other_stacks,
    request_changes,
    sharded,
    shorter,
)
from planner.advise.deciding import deciding
from planner.advise.weigh import (
    Base,
    Weighed,
    beside_the_layout,
    first_that_fit,
    one_change,
    searched,
    two_changes,
)
from planner.estimate import Estimates
from planner.estimate.stages import layout_document
from planner.inputs.scenario import Scenario
from planner.search.pick import pick_command
from planner.specs.documents.advice import Advice, OffloadChoices
from planner.specs.options import LAYOUT, command_line

__all__ = ["advice", "best_layout", "deciding", "offload_or_recompute"]

_SHOWN_FAST, _SHOWN_FIT = (
    5,
    6,
)  # entries without --advice: for a plan that fits, for one that does not
# of the memory that logits take, from which a chunked loss is searched where the plan fits: other
# layouts may fit then. A choice
_LOGITS = 0.1
# what grows with the tokens of a sequence
_OF_TOKENS = ("activations", "recompute_working_set", "backward_temporaries", "logits")
# options beside the columns of a layout that fix a part of it
_OF_LAYOUT = ("pipeline_layout", "grad_accum")
_ENOUGH_SIZES = 2  # numbers of GPUs that are reported where more of them help


def advice(scenario: Scenario, chosen: Estimates, row: int) -> list[Advice]:
    """Evaluated changes of the chosen plan, best first; `--advice N` evaluates every candidate and
    tells N.

    Without --advice: where the plan fits, what makes it at least 1 % faster per token; where not,
    what makes it fit.
    """
    requested = scenario.options.advice
    if requested == 0:
        return []
    base = Base(scenario, chosen.plan, chosen.table.layout(row))
    here = Weighed("", "keep", base.options, {}, chosen, row)
    candidates = (
        _when_it_fits(base, here, requested is not None)
        if here.fits
        else _when_it_does_not(base, here, requested is not None)
    )
    ranked = _ranked(here, candidates, requested is not None)
    count = requested if requested is not None else _SHOWN_FAST if here.fits else _SHOWN_FIT
    return [_entry(base, here, candidate) for candidate in ranked[:count]]


def offload_or_recompute(scenario: Scenario, chosen: Estimates, row: int) -> OffloadChoices | None:
    """Recompute against offloading over this and other host links, for the chosen layout; see
    host_link."""
    return host_link.offload_or_recompute(Base(scenario, chosen.plan, chosen.table.layout(row)))


def best_layout(
    scenario: Scenario, chosen: Estimates, row: int, others: Mapping[str, Mapping[str, Any]]
) -> Advice | None:
    """The fastest layout that fits for the same model, GPUs and batch, with every degree free, on
    the same stack; if none fits there, on the other stacks. None if no layout that fits is faster.

    others: other stacks, each with the options that it changes.
    """
    base = Base(scenario, chosen.plan, chosen.table.layout(row))
    here = Weighed("", "keep", base.options, {}, chosen, row)
    stated = [name for name in (*LAYOUT, *_OF_LAYOUT) if getattr(base.options, name) is not None]
    stack, fixed = {"stack": chosen.plan.stack.id}, dict.fromkeys(stated)
    candidates = searched(base, [Change("", {**fixed, **stack})])
    if not (candidates or here.fits):
        asks = [{**more, **fixed, "stack": stack_id} for stack_id, more in others.items()]
        candidates = searched(base, [Change("", update) for update in asks])
    best = min(
        candidates, key=lambda candidate: (not candidate.has_room, candidate.seconds), default=None
    )
    if best is None:
        return None
    gains = best.seconds < (1 - WORTH) * here.seconds and best.has_room >= here.has_room
    words = difference(base.layout, best.estimates.table.layout(best.row))
    if best.update["stack"] != stack["stack"]:
        words = ", ".join(word for word in (f"stack {best.update['stack']}", words) if word)
    return _entry(base, here, replace(best, text=words)) if gains or not here.fits else None


def _when_it_fits(base: Base, here: Weighed, everything: bool) -> list[Weighed]:
    options = base.options
    candidates: list[Weighed] = []
    if everything or fixed_layout(options) or options.stack:  # else the search has tried them
        candidates += one_change(base, layout_changes(base.plan, base.layout))
    # what gains less than is reported need not be found
    least = here.tokens_per_s / (1 - WORTH) if here.has_room and not everything else 0.0
    changes = request_changes(base.plan, True, everything, _promise(here))
    for change in [*changes, *by_cost(base.plan, base.layout)]:
        candidates += beside_the_layout(base, change)
    candidates += searched(
        base,
        [
            *freed(options, True),
            *fewer_nodes(base.plan),
            *more_room(options, base.plan, base.layout),
            *on_request(options, base.scenario.plans),
        ],
        least,
    )
    if base.plan.training.loss_chunks == 1 and _share(here, "logits") >= _LOGITS:
        candidates += searched(base, [chunked_loss(base.plan)], least)
    if everything:
        candidates += searched(base, [*other_stacks(options), *more_gpus(options)[:1]])
    return candidates


def _when_it_does_not(base: Base, here: Weighed, everything: bool) -> list[Weighed]:
    options = base.options
    changes = layout_changes(base.plan, base.layout)
    candidates = one_change(base, changes)
    for change in request_changes(base.plan, False, everything, _promise(here)):
        candidates += beside_the_layout(base, change, changes)
    if any(
        candidate.fits and "gpus" not in candidate.update
        for candidate in candidates
        if candidate.changes == 1
    ):
        candidates = [candidate for candidate in candidates if candidate.changes == 1]
    else:
        candidates += two_changes(base, changes)
    candidates += searched(
        base,
        [*freed(options, False), *sharded(options), *(other_stacks(options) if everything else ())],
    )
    if _share(here, *_OF_TOKENS) >= 1 - here.estimates.plan.usable_bytes / here.device_bytes:
        candidates += first_that_fit(base, shorter(options, base.plan), 1)
    candidates += first_that_fit(
        base, more_gpus(options), math.inf if everything else _ENOUGH_SIZES
    )
    return candidates


def _share(here: Weighed, *names: str) -> float:
    """Share of the memory that some components take."""
    parts = here.estimates.memory.components
    return sum(float(parts[name][here.row]) for name in names) / here.device_bytes


def _promise(here: Weighed) -> Promise:
    """Twice the batch halves at most what a step pays once; a faster fabric saves at most what
    is waited for."""
    time, row = here.estimates.time, here.row
    once = sum(
        float(time.components[name][row])
        for name in ("bubble", "data_parallel", "optimizer", "overhead")
    )
    waited = sum(float(t.exposed[row] * t.across_nodes[row]) for t in time.traffic)
    return Promise(once / 2 / here.seconds, waited / here.seconds)


def _ranked(here: Weighed, candidates: list[Weighed], everything: bool) -> list[Weighed]:
    """Advice worth its change, each change once; see `advice` for the order."""
    gpus = here.estimates.plan.cluster.gpus

    def per_token(candidate: Weighed) -> float:
        return here.tokens_per_s / candidate.tokens_per_s

    def size(candidate: Weighed) -> int:
        return candidate.estimates.plan.cluster.gpus

    def saves(candidate: Weighed) -> bool:
        """Memory, or GPU-time where there are fewer GPUs."""
        if size(candidate) < gpus:
            return per_token(candidate) * size(candidate) < (1 - WORTH) * gpus
        return size(candidate) == gpus and candidate.device_bytes < (1 - WORTH) * here.device_bytes

    sure = here.has_room  # then nothing that leaves too little is an improvement

    def faster(candidate: Weighed) -> bool:
        return (
            candidate.fits and (candidate.has_room or not sure) and per_token(candidate) < 1 - WORTH
        )

    def surer(candidate: Weighed) -> bool:
        return candidate.has_room and not sure

    if here.fits:
        first = [
            candidate
            for candidate in candidates
            if (faster(candidate) and size(candidate) <= gpus)
            or (surer(candidate) and size(candidate) == gpus)
        ]
        rest = [
            candidate
            for candidate in candidates
            if candidate.fits
            and candidate not in first
            and (size(candidate) != gpus or not faster(candidate))
            and (faster(candidate) or saves(candidate))
        ]
        order = sorted(
            first, key=lambda candidate: (not surer(candidate) and not sure, per_token(candidate))
        )
        order += (
            sorted(rest, key=lambda candidate: (size(candidate) != gpus, per_token(candidate)))
            if everything
            else []
        )
    else:
        fitting = sorted((candidate for candidate in candidates if candidate.fits), key=per_token)
        first = [  # more GPUs than another change needs are worth telling where they are faster
            candidate
            for i, candidate in enumerate(fitting)
            if size(candidate) <= gpus
            or all(size(other) > size(candidate) for other in fitting[:i])
        ]
        rest = [
            candidate
            for candidate in candidates
            if not candidate.fits and saves(candidate) and candidate.changes == 1
        ]
        order = sorted(
            first,
            key=lambda candidate: (
                size(candidate) > gpus,
                size(candidate) if size(candidate) > gpus else 0,
                per_token(candidate),
            ),
        )
        order += sorted(rest, key=lambda candidate: candidate.device_bytes) if everything else []
    seen: set[str] = set()
    out = []
    for candidate in order:
        exactly = pick_command(candidate.options, candidate.estimates, candidate.row)
        if exactly not in seen:
            seen.add(exactly)
            out.append(candidate)
    return out


def _entry(base: Base, here: Weighed, candidate: Weighed) -> Advice:
    plan, layout = candidate.estimates.plan, candidate.estimates.table.layout(candidate.row)
    away = layout.offload != "none"
    return Advice(
        change=candidate.text,
        kind=candidate.kind,
        command=command_line(candidate.options),
        pick=pick_command(candidate.options, candidate.estimates, candidate.row),
        changes=candidate.update,
        fits=candidate.fits,
        gpus=plan.cluster.gpus,
        step_seconds=candidate.seconds,
        step_change_s=candidate.seconds - here.seconds,
        step_change_frac=candidate.seconds / here.seconds - 1,
        tokens_per_s=candidate.tokens_per_s,
        tokens_change_frac=candidate.tokens_per_s / here.tokens_per_s - 1,
        bytes_saved=here.device_bytes - candidate.device_bytes,
        device_bytes=candidate.device_bytes,
        layout=layout_document(plan, layout),
        stack=plan.stack.id,
        link=plan.cluster.host_link.id if away else None,
        transfer_s=host_link.waiting_s(candidate.estimates, candidate.row) if away else None,
        recompute_s=host_link.recompute_s(plan, layout) if away else None,
    )
