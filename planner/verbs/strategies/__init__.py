"""The verb `strategies`: every way of keeping replicas in step, each evaluated on the same model,
cluster and batch."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.estimate import buckets, evaluate
from planner.estimate.machine import machine
from planner.estimate.ties import fastest
from planner.formulas.rules import check
from planner.inputs.scenario import doubts_of, resolve
from planner.ledger import Array, Call, Sourced, recording, section
from planner.search import layouts
from planner.search.room import room
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION
from planner.specs.documents.strategies import (
    BucketLine,
    BucketTimeline,
    Phases,
    SentBytes,
    Statistics,
    Strategies,
    StrategiesCluster,
    StrategyLayout,
)
from planner.specs.documents.strategies import Strategy as StrategyDocument
from planner.specs.options import Options, refuse, rows
from planner.specs.options.numbers import number
from planner.specs.options.parallel import StrategySettings
from planner.specs.plan import Plan
from planner.verbs.strategies import base, compressed, ddp, frameworks, local, server, zero
from planner.verbs.strategies.base import Context, Cost, Steps, Strategy, with_overlap

_FAMILIES = {
    module.__name__.rpartition(".")[2]: module
    for module in (base, ddp, zero, frameworks, compressed, local, server)
}
_FUNCTIONS = ("cost", "change", "numbers", "steps", "refuses")


def _strategy(name: str, row: dict[str, Any]) -> Strategy:
    """A row of strategies.json, in which a function is "module.function" of this package."""
    functions = {}
    for key in _FUNCTIONS:
        if key in row:
            module, function = row[key].split(".")
            functions[key] = getattr(_FAMILIES[module], function)
    return Strategy(name, **{**row, **functions})


BY_NAME = {
    name: _strategy(name, row)
    for name, row in json.loads(
        Path(__file__).with_name("strategies.json").read_text(encoding="utf-8")
    ).items()
}
STRATEGIES = tuple(BY_NAME.values())


@dataclass(frozen=True)
class Chosen:
    """A strategy with its plan evaluated, and the layout that was chosen for it."""

    strategy: Strategy
    context: Context
    cost: Cost
    row: int
    device_bytes: float
    fits: bool


def _evaluate(plan: Plan, strategy: Strategy, given: StrategySettings) -> Chosen | str:
    """The fastest layout that fits, else the smallest; a sentence where the strategy cannot run."""
    refused = strategy.refuses(plan)
    if refused is not None:
        return refused
    changed = strategy.changed(plan)
    numbers = strategy.numbers(changed, machine(changed))
    table = layouts(changed)
    if changed.request.shard_group is None:  # hybrid sharding is a strategy of its own
        table = table.pick(np.flatnonzero(table.shard_group == table.replicas))
    if not len(table):
        return "no layout is allowed: batch divides by GPUs"
    rules = check(changed, table)
    allowed = np.flatnonzero(np.logical_and.reduce(list(rules.values())))
    if not len(allowed):
        broken = [name for name, holds in rules.items() if not np.any(holds)]
        return f"no layout is allowed: {'; '.join(broken) or 'the rules together'}"
    estimates = evaluate(changed, table.pick(allowed), numbers=numbers)
    local_steps = given.local_steps or strategy.local_steps
    context = Context(changed, estimates, numbers, given, local_steps)
    cost = strategy.cost(context)
    device = estimates.memory.device + cost.extra_bytes
    fits = (device <= changed.usable_bytes) & estimates.host_fits
    if fits.any():
        rows = np.arange(len(estimates.table))
        enough = fits & room(estimates, rows, cost.extra_bytes).enough
        among = enough if enough.any() else fits
        row = fastest(np.where(among, cost.step_s, np.inf), estimates.time.components["recompute"])
    else:
        row = int(device.argmin())
    return Chosen(strategy, context, cost, row, float(device[row]), bool(fits[row]))


def _plan(
    options: Options, strategy: Strategy, given: StrategySettings
) -> tuple[Plan, tuple[str, ...]]:
    changes = {
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "ep": 1,
        "zero": strategy.zero,
        "stack": strategy.stack,
        "offload": strategy.offload,
        "stack_defaults": True,  # strategies are compared with the same kernels
    }
    scenario = resolve(options.changed(**changes))
    plan = scenario.plans[0]
    if strategy.shard == "node":
        inside = min(plan.cluster.nvlink_domain, options.gpus)
        plan = plan.model_copy(
            update={"request": plan.request.model_copy(update={"shard_group": inside})}
        )
    bucket = number(given, "bucket")
    if bucket is not None and plan.stack.overlap.bucket is not None:
        plan = with_overlap(plan, bucket=Sourced(bucket, "B", "assumed", "stated in the request"))
    return plan, scenario.assumptions


def _best(results: Iterable[Chosen | str]) -> Chosen | None:
    """The exact strategy of least time per token that fits. Others would win by the steps that they
    are assumed not to need."""
    fitting = (result for result in results if isinstance(result, Chosen) and result.fits)
    return min(
        (result for result in fitting if result.strategy.is_exact), key=_seconds, default=None
    )


def _seconds(chosen: Chosen) -> float:
    return float(np.broadcast_to(chosen.cost.step_s, chosen.cost.compute_s.shape)[chosen.row])


def answer(options: Options, given: StrategySettings, name: str | None = None) -> Strategies:
    """All strategies, or the one named, as one document; `fits` is true where any fits. Raises
    PlanError for wrong requests."""
    chosen = _selected(options, name)
    _refuse_others(options, given, {strategy.name for strategy in chosen})
    if given.steps_factor is not None and name is None:
        raise PlanError(
            "--steps-factor", given.steps_factor, "belongs to one strategy: name it with --strategy"
        )
    results: dict[str, Chosen | str] = {}
    measure = [strategy for strategy in STRATEGIES if strategy.is_exact and strategy not in chosen]
    for strategy in (
        *(measure if not all(candidate.is_exact for candidate in chosen) else ()),
        *chosen,
    ):
        plan, assumptions = _plan(options, strategy, given)
        results[strategy.name] = _evaluate(plan, strategy, given)
    best = _best(results.values())
    rows = [
        _refused(strategy, result, given)
        if isinstance(result := results[strategy.name], str)
        else _answered(result, best, in_full=name is not None)
        for strategy in chosen
    ]
    training, cluster = plan.training, plan.cluster
    return Strategies(
        schema_version=SCHEMA_VERSION,
        model=plan.model.name,
        cluster=StrategiesCluster(
            title=cluster.title,
            gpu=cluster.gpu.id,
            gpus=cluster.gpus,
            nodes=cluster.nodes,
            capacity_bytes=plan.usable_bytes,
        ),
        global_batch=training.global_batch,
        seq_len=training.seq_len,
        precision=training.precision,
        best=None if name is not None or best is None else best.strategy.name,
        strategies=rows,
        fits=any(row.fits for row in rows),
        assumptions=list(assumptions),
        doubts=doubts_of(options),
    )


def explain(options: Options, given: StrategySettings, name: str) -> Call:
    """The formulas of one strategy on its chosen layout, as they were called; `estimate --explain`
    has the formulas of the plan."""
    (strategy,) = _selected(options, name)
    result = _evaluate(_plan(options, strategy, given)[0], strategy, given)
    if isinstance(result, str):
        raise PlanError("--strategy", name, result)
    x = result.context
    context = Context(
        x.plan,
        evaluate(x.plan, x.estimates.table.pick(np.array([result.row])), numbers=x.m),
        x.m,
        given,
        x.local_steps,
    )
    _ = context.plain, context.slower  # cached: not part of what is recorded
    with recording(strategy.title) as tree:
        strategy.cost(context)
        if strategy.name in compressed.CODECS:
            with section("break-even"):
                compressed.break_even(context, compressed.CODECS[strategy.name](context))
    return tree


def _selected(options: Options, name: str | None) -> tuple[Strategy, ...]:
    refuse(options, "strategies")
    if options.gpus < 2:
        raise PlanError(
            "--gpus", options.gpus, "one GPU has no replicas to keep in step; take at least 2"
        )
    if name is None:
        return STRATEGIES
    if name not in BY_NAME:
        near = difflib.get_close_matches(name, BY_NAME, 3)
        known = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(BY_NAME)}"
        raise PlanError("--strategy", name, f"is not a strategy; {known}")
    return (BY_NAME[name],)


def _refuse_others(options: Options, given: StrategySettings, chosen: set[str]) -> None:
    """Refuse settings of strategies that are not compared."""
    for record in (options, given):
        for name, value in record.given().items():
            row = rows(type(record))[name]
            if row.says.strategies and chosen.isdisjoint(row.says.strategies):
                which, known = ", ".join(chosen), " or ".join(row.says.strategies)
                raise PlanError(
                    row.flag,
                    value,
                    f"does nothing in {which}: leave it out, or take --strategy {known}",
                )


def _document(
    strategy: Strategy, refused: str | None, fits: bool, given: StrategySettings, **fields: Any
) -> StrategyDocument:
    return StrategyDocument(
        name=strategy.name,
        title=strategy.title,
        family=strategy.family,
        differs=strategy.differs_with(given),
        source=strategy.source,
        stack=strategy.stack,
        evaluated=strategy.is_plan,
        refused=refused,
        fits=fits,
        **fields,
    )


def _refused(strategy: Strategy, reason: str, given: StrategySettings) -> StrategyDocument:
    keys = StrategyDocument.__struct_fields__
    fields = keys[keys.index("layout") :]
    return _document(strategy, reason, fits=False, given=given, **dict.fromkeys(fields))


def _answered(chosen: Chosen, best: Chosen | None, *, in_full: bool) -> StrategyDocument:
    x, row, cost = chosen.context, chosen.row, chosen.cost
    layout = x.estimates.table.layout(row)
    steps = chosen.strategy.steps_of(x)
    if x.settings.steps_factor is not None:
        steps = Steps(x.settings.steps_factor, "stated in the request")
    tokens = x.plan.training.global_batch * x.plan.training.seq_len
    codec = compressed.CODECS.get(chosen.strategy.name)

    def at(column: Array | float) -> float:
        return float(np.broadcast_to(column, cost.compute_s.shape)[row])

    return _document(
        chosen.strategy,
        None,
        chosen.fits,
        x.settings,
        layout=StrategyLayout(**layout.model_dump(), grad_accum=round(at(x.microbatches))),
        device_bytes=chosen.device_bytes,
        host_bytes=at(x.estimates.memory.host),
        step=Phases(
            seconds=at(cost.step_s),
            compute_s=at(cost.compute_s),
            exposed_s=at(cost.exposed_s),
            hidden_s=at(cost.hidden_s),
        ),
        sent_bytes=SentBytes(
            forward=at(cost.forward_bytes),
            backward=at(cost.backward_bytes),
            optimizer=at(cost.optimizer_bytes),
            between_nodes=at(cost.leaving_bytes),
        ),
        statistics=Statistics(
            exact=chosen.strategy.is_exact,
            steps_factor=steps.factor,
            source=steps.source,
            break_even_steps=None
            if chosen.strategy.is_exact or best is None
            else _seconds(best) / at(cost.step_s),
        ),
        seconds_per_token=at(cost.step_s) * steps.factor / tokens,
        break_even_bytes_per_s=None if codec is None else compressed.break_even(x, codec(x)),
        timeline=_timeline(chosen) if in_full else None,
    )


def _timeline(chosen: Chosen) -> BucketTimeline | None:
    """The last backward pass of an evaluated DDP plan, bucket by bucket."""
    x = chosen.context
    cap = x.plan.stack.overlap.bucket
    if cap is None or not chosen.strategy.is_plan or chosen.strategy.zero:
        return None
    table = x.estimates.table.pick(np.array([chosen.row]))
    alone = evaluate(x.plan, table, numbers=x.m)
    line = buckets.of_estimate(x.plan, x.m, table, alone.time, float(cap))
    return BucketTimeline(
        backward_s=line.backward_s,
        tail_s=line.tail_s,
        contention_s=line.contention_s,
        exposed_s=line.exposed_s,
        buckets=[
            BucketLine(
                tensors=b.tensors,
                bytes=b.bytes,
                ready_s=b.ready_s,
                start_s=b.start_s,
                end_s=b.end_s,
            )
            for b in line.buckets
        ],
    )
