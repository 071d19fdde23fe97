"""A step of reinforcement learning as phases: generation by a roofline, and passes over what was
generated that are parts of one estimate of training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from planner.estimate import Estimates, inference
from planner.estimate.communicate import all_gather_s, place
from planner.estimate.generation import CHUNK_TOKENS, Engine, pass_s, step_s, weight_bytes
from planner.estimate.machine import Machine, machine
from planner.formulas import generation as formulas
from planner.formulas import pipeline
from planner.formulas.params import parameter_count
from planner.formulas.stragglers import cut_moment
from planner.ledger import Array, first, firsts, section
from planner.rl.specs import Job
from planner.specs.plan import Plan

_BELOW, _ABOVE = 48, 96  # points of the quadrature below and above the median length
_REACH = 7.0  # standard deviations beyond the median after which no response is left: 1e-12
_SHARDED = 3  # ZeRO stage from which on a GPU holds a share of the weights
_WEIGHT_BYTES = 2.0  # of the weights that are sent: bf16
_STATES = ("parameters", "gradients", "optimizer")
_HELD = (*_STATES, "gradient_copies", "low_precision_copies", "communication_buckets")
_LOGIT_BYTES = 4.0
OF_ENGINE = ("generation", "reward")  # phases of the GPUs that generate
_STEPS = 60  # halvings of the search for a mean


@dataclass(frozen=True)
class Pools:
    """GPUs for training and for generation. generation: GPUs of the engines, all if `colocated`."""

    training: int
    generation: int
    colocated: bool
    scoring: int = 0  # of only frozen models

    @property
    def gpus(self) -> int:
        """GPUs that receive new weights."""
        return self.generation if self.colocated else self.training + self.generation


@dataclass(frozen=True)
class Keeps:
    """Memory that stays on a GPU between phases, by framework."""

    sleeps: bool
    moves: tuple[str, ...]


@dataclass(frozen=True)
class Loop:
    """Overhead of a loop over its parts: seconds on the host beside each token of an engine, a
    factor of passes over responses, the most bytes per second at which a GPU receives new weights,
    seconds on the host for each response between generation and passes, and bytes of each token of
    padded rows that one process hands to the trainers before a pass, at a rate."""

    token_s: float = 0.0
    passes: float = 1.0
    refit_rate: float = math.inf
    response_s: float = 0.0
    row_bytes: float = 0.0
    row_rate: float = math.inf


_PARTS_ALONE = Loop()


@dataclass(frozen=True)
class Generation:
    """The responses of a step on all engines; bytes of one GPU."""

    seconds: float
    prompts_s: float
    full_s: float
    drain_s: float
    engines: int
    slots: float  # sequences that the memory of one engine holds
    running: float  # that it begins with
    longest: float  # expected longest response
    done_fracs: tuple[float, ...]  # of its time, after which each part of the responses is done
    token_s: float  # one token of the sequences that run at first
    weight_bytes: float
    cache_bytes: float
    device_bytes: float  # its whole share, which it allocates when it starts


@dataclass(frozen=True)
class Phase:
    """Work between two waits. pool: whose GPUs it takes."""

    name: str
    pool: str
    seconds: float
    device_bytes: float


@dataclass(frozen=True)
class RlStep:
    """A step of reinforcement learning."""

    seconds: float
    phases: tuple[Phase, ...]
    generation: Generation
    fits: bool
    shortfall_bytes: float  # of the phase that needs most
    beside: bool  # generation runs beside training

    @property
    def generates(self) -> bool:
        """Whether an engine has room for a sequence; without, no time has a meaning."""
        return self.generation.slots >= 1

    def together(self, seconds: Mapping[str, float]) -> float:
        """The step whose phases take these seconds."""
        return _together(seconds, self.beside, self.generation.done_fracs)


def _together(seconds: Mapping[str, float], beside: bool, done: tuple[float, ...]) -> float:
    refit = seconds.get("refit", 0.0)
    generating = sum(s for name, s in seconds.items() if name in OF_ENGINE)
    training = sum(seconds.values()) - generating - refit
    if len(done) > 1 and not beside:
        left = 1 - np.arange(len(done)) / len(done)
        ends = formulas.trained_by_s(generating * np.array(done), training, left)
        return float(np.max(ends)) + refit
    return float(formulas.reinforcement_step_s(generating, training, refit, float(beside)))


def median_length(job: Job) -> float:
    """Median of the log-normal length of a response, with the mean after the longest are cut."""
    return mean_before_cut(job) * math.exp(-(job.sigma**2) / 2)


def mean_before_cut(job: Job) -> float:
    """Mean of that length if none were cut."""
    if job.sigma <= 0 or job.response >= job.longest:
        return min(job.response, job.longest)
    low, high = job.response, job.longest * math.exp(_REACH * job.sigma)
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        mean = float(cut_moment(middle / job.longest, job.sigma, 1.0)) * job.longest
        low, high = (middle, high) if mean < job.response else (low, middle)
    return math.sqrt(low * high)


def _points(median: float, job: Job) -> tuple[Array, Array]:
    """Lengths, and the tokens that each stands for: even below the median, in proportion above."""
    end = min(job.longest, median * math.exp(_REACH * job.sigma))
    below = min(median, end)
    low = (np.arange(_BELOW) + 0.5) / _BELOW * below
    ratio = math.log(max(end / below, 1.0)) / _ABOVE
    high = below * np.exp(ratio * (np.arange(_ABOVE) + 0.5))
    wide = below * np.exp(ratio * np.arange(_ABOVE)) * math.expm1(ratio)
    return np.concatenate([low, high]), np.concatenate([np.full(_BELOW, below / _BELOW), wide])


def generate(plan: Plan, m: Machine, engine: Engine, job: Job, pools: Pools) -> Generation:
    """Time and memory of the responses of a step."""
    engines = max(pools.generation // engine.tp, 1)
    each = job.sequences / engines
    fixed_bytes, per_sequence, weights = _memory(plan, engine, job)
    share = engine.budget_frac * float(plan.cluster.gpu.usable_memory)
    slots = max((share - fixed_bytes) / per_sequence, 0.0)
    running = min(each, float(engine.most_sequences), max(slots, 1.0))
    with section("responses"):
        median = median_length(job)
        tokens, weight = _points(median, job)
        alive = formulas.running_frac(tokens, median, job.sigma, job.longest)
        whole = formulas.any_running_frac(alive, running * engines)
        running_frac = formulas.any_running_frac(alive, running)
        left = np.maximum(running * alive / np.maximum(running_frac, 1e-12), 1.0)
        later = step_s(plan, m, engine, left, job.prompt + tokens)
        draining = formulas.drain_s(weight, whole, later)
        drain = draining.sum()
        half = job.prompt + job.response / 2
        token = step_s(plan, m, engine, running, half)
        full = formulas.full_s(each, running, job.response, token)
        # ahead of training the prompts of this many steps are under way at once
        under_way = min(max(job.ahead, 1) * each, float(engine.most_sequences), max(slots, 1.0))
        pace = step_s(plan, m, engine, under_way, half)
        steady = formulas.full_s(each + under_way, under_way, job.response, pace)
        seconds = formulas.ahead_s(full + drain, steady, float(job.ahead))
        if job.partial:
            seconds = formulas.steady_s(each, under_way, job.response, pace)
        waited = np.concatenate([[0.0, full], full + np.cumsum(draining)])
        ended = np.concatenate([[0.0, each - running], each - running * alive]) / each
        parts = np.arange(1, job.parts + 1) / job.parts
        done = np.interp(parts[:-1], ended, waited / waited[-1])
    with section("prompts"):
        read = job.sequences if engine.in_process else job.prompts
        prompts = read / engines * job.prompt
        chunk = min(CHUNK_TOKENS, max(prompts, 1.0))
        last = max(chunk / job.prompt, 1.0)
        reading = prompts / chunk * first(pass_s(plan, m, engine, chunk, chunk, last))
    cache = running * per_sequence
    return Generation(
        seconds=float(seconds) + reading,
        prompts_s=reading,
        full_s=float(full),
        drain_s=float(drain),
        engines=engines,
        slots=slots,
        running=running,
        longest=float((weight * whole).sum()),
        done_fracs=(*map(float, done), 1.0),
        token_s=first(token),
        weight_bytes=weights,
        cache_bytes=cache,
        device_bytes=fixed_bytes + cache if engine.in_process else max(share, fixed_bytes + cache),
    )


def _memory(plan: Plan, engine: Engine, job: Job) -> tuple[float, float, float]:
    """Bytes of one GPU without any sequence, of a sequence of the mean length, and of weights."""
    per_sequence = float(inference.sequence_bytes(plan.model, job.prompt + job.response, engine.tp))
    work = float(inference.device_bytes(plan, engine.tp, 0.0, 1.0))
    weights = weight_bytes(plan, engine)
    usual = inference.BYTES * parameter_count(plan.model) / engine.tp
    return work - usual + weights * (not engine.shares_weights), per_sequence, weights


def forward_s(train: Estimates) -> float:
    """Seconds of the forward passes of the batch of one optimizer step, from the estimate."""
    c, ranks = train.table, train.time.ranks
    stage = ranks.slowest().forward
    microbatches = c.microbatches(train.plan.training.global_batch)
    return first(pipeline.forward_only_s(stage, microbatches, c.pp))


def refit_s(train: Estimates, m: Machine, pools: Pools, loop: Loop = _PARTS_ALONE) -> float:
    """Seconds in which every GPU receives the new weights once."""
    whole = _WEIGHT_BYTES * parameter_count(train.plan.model)
    group = place(float(pools.gpus), 1.0, train.plan.cluster.tiers)
    linked = float(all_gather_s(m, whole, group)) if pools.gpus > 1 else 0.0
    return max(linked, whole / loop.refit_rate)


def rl_step(
    train: Estimates,
    engine: Engine,
    job: Job,
    pools: Pools,
    keeps: Keeps,
    loop: Loop = _PARTS_ALONE,
) -> RlStep:
    """A step with this training layout (a table of one row), engine and split of GPUs."""
    plan = train.plan
    m = machine(plan)
    if engine.in_process:
        stays = _staying(train, job, pools, keeps)
        free = max(0.0, 1 - stays / float(plan.cluster.gpu.usable_memory))
        whole = first(train.table.zero) < _SHARDED
        engine = replace(engine, budget_frac=free, shares_weights=whole)
    else:
        engine = replace(engine, step_s=engine.step_s + loop.token_s)
    generation = generate(plan, m, engine, job, pools)
    with section("passes over the responses"):
        updates = job.epochs * job.trained / job.batch
        padded = job.trained * (job.prompt + job.longest)
        handed = float(formulas.handed_s(padded, loop.row_bytes, loop.row_rate))
        passes = loop.passes * job.trained / job.batch * forward_s(train) + handed
        training = loop.passes * updates * first(train.time.seconds) + handed
    memory = _phase_bytes(train, generation, job, pools, keeps)
    here = "all" if pools.colocated else "training"
    generating = "all" if pools.colocated else "generation"
    timed_phases = [
        ("generation", generating, generation.seconds),
        ("reward", generating, _reward_s(job, loop)),
        ("old log-probabilities", here, passes * job.old_logprobs),
        *_scored(job, pools, passes, generation.seconds),
        ("values", here, passes * job.critic),
        ("training", here, training),
        ("training of the critic", here, training * job.critic),
        ("moves", here, 0.0 if engine.in_process else _moved_s(train, m, generation, pools, keeps)),
        ("refit", "all", 0.0 if engine.in_process else refit_s(train, m, pools, loop)),
    ]
    phases = tuple(
        Phase(name, pool, seconds, memory.get(name, memory["log-probabilities"]))
        for name, pool, seconds in timed_phases
        if seconds > 0
    )
    beside = not pools.colocated and job.ahead > 0
    usable = float(plan.usable_bytes)
    most = max(memory.values())
    return RlStep(
        seconds=_together(
            {name: seconds for name, _, seconds in timed_phases}, beside, generation.done_fracs
        ),
        phases=phases,
        generation=generation,
        fits=bool(train.fits[0]) and most <= usable and generation.slots >= 1,
        shortfall_bytes=max(most - usable, 0.0),
        beside=beside,
    )


def _reward_s(job: Job, loop: Loop) -> float:
    """Seconds of rewards and advantages: the stated time, else rules on the host."""
    return loop.response_s * job.sequences if job.reward_s is None else job.reward_s


def _bytes_of(train: Estimates, names: tuple[str, ...]) -> float:
    """Bytes of these components of one GPU's peak."""
    return sum(firsts(train.memory.components).get(name, 0.0) for name in names)


def _phase_bytes(
    train: Estimates, generation: Generation, job: Job, pools: Pools, keeps: Keeps
) -> dict[str, float]:
    """Bytes of one GPU while each phase runs."""
    memory, plan = train.memory, train.plan
    extra = _extra_bytes(train, job, keeps)
    asleep = 0.0 if keeps.sleeps or not pools.colocated else generation.device_bytes
    peak = first(memory.device) + extra + asleep
    outside = first(memory.context) + first(memory.communicators)
    c = train.table
    logits = _LOGIT_BYTES * first(
        c.micro_batch * plan.training.seq_len / c.cp * plan.model.padded_vocab / c.tp
    )
    scoring = (
        _bytes_of(train, _HELD) + first(memory.layer_bytes) + logits + outside + extra + asleep
    )
    states = _staying(train, job, pools, keeps)
    frozen = _WEIGHT_BYTES * parameter_count(plan.model)
    alone = {s.name: outside + frozen * s.size / s.gpus for s in job.scorers if s.gpus}
    return {
        **alone,
        "training": peak,
        "log-probabilities": min(scoring, peak),
        "generation": generation.device_bytes + states,
    }


def _frozen_bytes(train: Estimates, job: Job) -> float:
    """Weights of frozen models on a GPU that trains, sharded like the policy."""
    weights = _bytes_of(train, ("parameters",))
    return sum(weights * scorer.size for scorer in job.scorers if not scorer.gpus)


def _staying(train: Estimates, job: Job, pools: Pools, keeps: Keeps) -> float:
    """Bytes that training keeps on a GPU while it generates."""
    if not pools.colocated:
        return 0.0
    stays = tuple(name for name in _HELD if name not in keeps.moves)
    extra = _extra_bytes(train, job, keeps)
    return _bytes_of(train, stays) + extra * (not keeps.moves)


def _extra_bytes(train: Estimates, job: Job, keeps: Keeps) -> float:
    """Bytes of frozen models and of the critic beside the policy while it trains."""
    # where parameters leave between phases, frozen ones come for their own phase
    beside = "parameters" not in keeps.moves
    return _frozen_bytes(train, job) * beside + _bytes_of(train, _HELD) * job.critic


def _scored(
    job: Job, pools: Pools, passes: float, generation_s: float
) -> Iterator[tuple[str, str, float]]:
    """Phases of the frozen models. On GPUs of their own, which they fill as well as training does
    its own, only what they take longer than the phase beside them is waited for."""
    hidden = {"generation": generation_s, "old log-probabilities": passes * job.old_logprobs}
    for scorer in job.scorers:
        seconds = passes * scorer.size
        if scorer.gpus:
            alone = seconds * pools.training / scorer.gpus
            yield scorer.name, "its own", max(0.0, alone - hidden[scorer.beside])
        else:
            yield scorer.name, "all" if pools.colocated else "training", seconds


def _moved_s(
    train: Estimates, m: Machine, generation: Generation, pools: Pools, keeps: Keeps
) -> float:
    """Seconds of moving states off the GPUs between phases and back; 0 where pools differ."""
    if not pools.colocated:
        return 0.0
    moved = _bytes_of(train, tuple(keeps.moves)) + generation.weight_bytes * keeps.sleeps
    return float(formulas.there_and_back_s(moved, m.host_copy_bandwidth))
