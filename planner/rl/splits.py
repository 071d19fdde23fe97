"""Splits of the GPUs, each with the fastest layout and engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.estimate import Estimates
from planner.estimate.generation import DRAWN_BYTES, Engine
from planner.inputs.cluster import cluster_spec
from planner.inputs.scenario import Scenario, resolve
from planner.ledger import first
from planner.report import layout as report
from planner.rl import step as estimate
from planner.rl.frameworks import loop
from planner.rl.request import ALONE, WEIGHT_BYTES, Request
from planner.rl.rows import training_requests
from planner.rl.step import Keeps, Pools, RlStep
from planner.search.answer import answer_of
from planner.search.pick import pick_command
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Figures
from planner.specs.layers import shared_heads
from planner.specs.options import Options
from planner.specs.options.numbers import number

_MOST_FREE = 0.9  # of a GPU, that a layout can be asked to leave
_NODE, _NODES = 8, 4  # GPUs of a usual node; nodes from which on splits take whole nodes
SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)  # of the GPUs that generate, in splits that are tried


@dataclass(frozen=True)
class Training:
    """The estimate of a training step of a split."""

    estimates: Estimates
    command: str
    figures: Figures
    scenario: Scenario
    layouts: int  # that were compared


@dataclass(frozen=True)
class Step:
    """A step with a training layout and an engine."""

    training: Training
    engine: Engine
    step: RlStep


@dataclass(frozen=True)
class Tried:
    """A split with its step, or why there is none."""

    pools: Pools
    chosen: Step | None = None
    why: str | None = None

    @property
    def order(self) -> tuple[bool, float]:
        """Sort key: splits that fit first, then by time."""
        return _order(self.chosen)


def _order(step: Step | None) -> tuple[bool, float]:
    if step is None:
        return True, math.inf
    return not step.step.fits, step.step.seconds


def splits(request: Request) -> list[Pools]:
    """Candidate splits: colocated, then disaggregated; only the requested one if given."""
    settings = request.own
    scoring = sum(scorer.gpus for scorer in request.job.scorers)
    gpus = request.options.gpus - scoring
    if settings.generation_gpus is not None:
        return [Pools(gpus - settings.generation_gpus, settings.generation_gpus, False, scoring)]
    node = request.options.gpus_per_node or _NODE
    unit = node if gpus >= _NODES * node else max(1, node // 2) if gpus > node else 1
    counts = {max(unit, round(share * gpus / unit) * unit) for share in SHARES}
    apart = [Pools(gpus - n, n, False, scoring) for n in sorted(counts) if n < gpus]
    together = Pools(gpus, gpus, True, scoring)
    if request.engine.in_process:
        return [together]
    return apart if settings.ahead else [together, *apart]


def try_split(request: Request, pools: Pools) -> Tried:
    """The fastest layout and engine of a split, on any of the framework's stacks that can train
    it."""
    steps: list[Step] = []
    refused: list[str] = []
    for stack in _stacks(request):
        try:
            steps.append(with_engine(request, pools, _trained(request, pools, stack)))
        except PlanError as error:
            refused.append(str(error))
    if not steps:
        return Tried(pools, why="; ".join(dict.fromkeys(refused)))
    return Tried(pools, min(steps, key=_order))


def _stacks(request: Request) -> tuple[str, ...]:
    stack = request.options.stack
    return request.framework.stacks if stack is None else (stack,)


def _trained(request: Request, pools: Pools, stack: str) -> Training:
    """The training step: packed rows of prompts and responses. Raises PlanError."""
    options = request.options.changed(stack=stack)
    if "stack_defaults" not in options.given():
        # loops of reinforcement learning offer few of the kernels that a search would choose from
        options = options.changed(stack_defaults=True)
    stays = pools.colocated and not request.framework.sleeps and not request.engine.in_process
    if stays and options.headroom is None:
        beside = min(_share(request, pools), _MOST_FREE)
        options = options.changed(headroom=beside)  # for the engine
    options = options.changed(gpus_per_node=options.gpus_per_node or _node(options, pools))
    pads = request.framework.pads
    requests = training_requests(options, request.model, request.job, pools.training, pads=pads)
    trained, refused = [], []
    for options in requests:
        try:
            trained.append(_estimated(options))
        except PlanError as error:
            refused.append(error)
    if not trained:
        raise refused[0]
    return min(trained, key=_training_order)


def _node(options: Options, pools: Pools) -> int | None:
    """GPUs of a node as a pool has to know it: where the pools share nodes unevenly."""
    if pools.colocated:
        return None
    node = cluster_spec(options.changed(gpus=pools.gpus, nodes=None))[0].gpus_per_node
    return node if pools.training > node and pools.training % node else None


def _training_order(training: Training) -> tuple[bool, float]:
    train = training.estimates
    return not train.fits[0], first(train.time.seconds)


def _estimated(options: Options) -> Training:
    """The best layout of a training step. Raises PlanError if there is none."""
    scenario = resolve(options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    train = report.evaluate_row(answer.chosen, answer.row)
    figures = report.figures(train, scenario.sentences)
    layouts = sum(
        searched.estimates.space.count
        for searched in answer.searches
        if searched.estimates is not None
    )
    command = pick_command(options, train)
    return Training(train, command, figures, scenario, layouts)


def with_engine(request: Request, pools: Pools, training: Training) -> Step:
    """A split with the requested engine, else with the one of the shortest step. Raises
    PlanError."""
    settings = request.own
    heads = shared_heads(request.model)
    usual = [1] if request.engine.in_process else _degrees(pools.generation)
    degrees = [n for n in usual if heads % n == 0] or [1]
    if settings.generation_tp is not None:
        if pools.generation % settings.generation_tp:
            remedy = f"does not divide the {pools.generation:,} GPUs that generate"
            raise PlanError("--generation-tp", settings.generation_tp, remedy)
        degrees = [settings.generation_tp]
    keeps, overhead = keeps_of(request), loop(request.framework)
    steps = []
    for tp in degrees:
        engine = _engine(request, tp, pools)
        step = estimate.rl_step(training.estimates, engine, request.job, pools, keeps, overhead)
        steps.append(Step(training, engine, step))
    return min(steps, key=_order)


def keeps_of(request: Request) -> Keeps:
    return Keeps(request.framework.sleeps or request.engine.in_process, request.moves)


def _degrees(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length()) if most % 2**i == 0]


def _share(request: Request, pools: Pools) -> float:
    """Share of a GPU's memory that an engine takes."""
    usual = request.framework.memory_frac if pools.colocated else ALONE
    stated = number(request.own, "generation_memory")
    return usual if stated is None else stated


def _engine(request: Request, tp: int, pools: Pools) -> Engine:
    layers = request.model.layers
    return Engine(
        tp=tp,
        weight_bytes=WEIGHT_BYTES[request.own.generation_precision],
        budget_frac=_share(request, pools),
        most_sequences=request.engine.most_sequences or request.framework.most_sequences,
        step_s=float(request.engine.step) + layers * float(request.engine.layer or 0.0),
        sequence_s=float(request.engine.sequence),
        sample_bytes=DRAWN_BYTES,
        in_process=request.engine.in_process,
    )
