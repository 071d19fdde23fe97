"""The verb `rl`: a step of reinforcement learning as phases, its memory, the best split of GPUs and
what 1,000 steps cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.estimate import Estimates
from planner.estimate.generation import DRAWN_BYTES, Engine
from planner.formulas import run_level
from planner.formulas.params import parameter_count
from planner.inputs.cluster import cluster_spec
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import Scenario, resolve
from planner.ledger import Call, first, recording
from planner.report import layout as report
from planner.rl import step as estimate
from planner.rl.documents import (
    Reinforcement,
    RlChange,
    RlGeneration,
    RlPhase,
    RlSplit,
    RlTraining,
    RlWork,
)
from planner.rl.evidence import BAND
from planner.rl.frameworks import framework, loop
from planner.rl.options import RlOptions
from planner.rl.rows import training_requests
from planner.rl.specs import HAS_CRITIC, NO_REFERENCE, EngineSpec, FrameworkSpec, Job, Scorer
from planner.rl.step import Keeps, Pools, RlStep
from planner.search.answer import answer_of
from planner.search.pick import pick_command
from planner.search.why_none import why_none
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, changed
from planner.specs.documents.batch import SizedModel
from planner.specs.documents.estimate import Figures
from planner.specs.layers import attended_of, of_samples, shared_heads
from planner.specs.model import ModelSpec
from planner.specs.options import Options, command_line, flag, refuse
from planner.specs.options.numbers import number
from planner.units import show
from planner.views.explain import nested

_VERB = "rl"
_TIMES_MEAN = 4  # of the mean response, the longest where it is not stated
_MOST_FREE = 0.9  # of a GPU, that a layout can be asked to leave
_ALONE = 0.9  # of the memory of a GPU that only generates: gpu_memory_utilization of vLLM
_NODE, _NODES = 8, 4  # GPUs of a usual node; nodes from which on splits are of whole nodes
SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)  # of the GPUs that generate, in splits that are tried
_WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0}
_OF_ENGINES = ("generation_gpus", "ahead", "partial_rollout")  # only engines beside a trainer
_WORTH = 0.02  # of a step, from which on a change is said
_MOST_CHANGES = 5
_REFERENCE = "reference log-probabilities"
_STEPS = 1000  # for which a cost is quoted
# components of memory that leave the GPU during generation, by word of --generation-offload
_OFFLOADS = {
    "none": (),
    "parameters": ("parameters", "gradients"),
    "optimizer": ("optimizer",),
    "both": ("parameters", "gradients", "optimizer"),
}


@dataclass(frozen=True)
class _Asked:
    """A request with all that is open in it settled, but for the split."""

    own: RlOptions
    options: Options
    model: ModelSpec
    framework: FrameworkSpec
    engine: EngineSpec
    job: Job
    assumed: bool = False  # the mean length of a response

    @property
    def moves(self) -> tuple[str, ...]:
        """Components of memory that leave the GPU during generation."""
        word = self.own.generation_offload
        return self.framework.moves if word is None else _OFFLOADS[word]


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
class _Tried:
    """A split with its step, or why there is none."""

    pools: Pools
    found: Step | None = None
    why: str | None = None

    @property
    def order(self) -> tuple[bool, float]:
        """Sort key: splits that fit first, then by time."""
        return _order(self.found)


def _order(step: Step | None) -> tuple[bool, float]:
    if step is None:
        return True, math.inf
    return not step.step.fits, step.step.seconds


def rl(settings: RlOptions, given: Mapping[str, Any]) -> Reinforcement:
    """A step with the GPUs split as requested, or as the framework shares them. Raises PlanError
    for a wrong request or if no layout trains."""
    return answer(settings, given)[0]


def answer(settings: RlOptions, given: Mapping[str, Any]) -> tuple[Reinforcement, Call | None]:
    """The same with the tree of its formulas, if requested; without the formulas of the training
    step, which `dpplan estimate --explain` prints."""
    request = _request_of(settings, read_options(given))
    _hold(request)
    tried = [_try(request, pools) for pools in _splits(request)]
    shared = [split for split in tried if split.pools.colocated]
    takes = request.framework.colocated and shared and shared[0].found is not None
    taken = shared[0] if takes else min(tried, key=lambda split: split.order)
    if taken.found is None:
        raise PlanError("--gpus", request.options.gpus, f"has no split that trains: {taken.why}")
    document = changed(
        _document(request, taken.pools, taken.found, tried), changes=_changes(request, taken, tried)
    )
    if not settings.explain:
        return document, None
    with recording("step of reinforcement learning") as tree:
        train, engine = taken.found.training.estimates, taken.found.engine
        estimate.rl_step(train, engine, request.job, taken.pools, _keeps(request), loop())
    return changed(document, explain=nested(tree)), tree


def _changes(request: _Asked, best: _Tried, tried: list[_Tried]) -> list[RlChange]:
    """Changes of the request that make the step fit, or faster. All but more GPUs keep the layout
    that trains."""
    assert best.found is not None
    here, out = best.found.step, list[RlChange]()
    for words, update, pools, training in _candidates(request, best, tried):
        settings = request.own.changed(**{n: v for n, v in update.items() if n != "gpus"})
        options = request.options.changed(gpus=update.get("gpus", request.options.gpus))
        try:
            asked = _request_of(settings, options)
            step = (
                _try(asked, pools).found
                if training is None
                else _with_engine(asked, pools, training)
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


def _candidates(
    request: _Asked, best: _Tried, tried: list[_Tried]
) -> Iterator[tuple[str, dict[str, Any], Pools, Training | None]]:
    """Changes in words and as options, the split that they have and the training that they keep;
    None: that is searched again."""
    assert best.found is not None
    own, pools, training = request.own, best.pools, best.found.training
    here = best.found.step

    def keeping(words: str, **update: Any) -> tuple[str, dict[str, Any], Pools, Training]:
        return words, update, pools, training

    if not own.ahead and not request.engine.in_process:
        for split in tried:
            if split.found is not None and not split.pools.colocated:
                words = f"one step ahead on {split.pools.generation:,} GPUs that generate"
                update = {"ahead": 1, "generation_gpus": split.pools.generation}
                yield words, update, split.pools, split.found.training
    if not own.partial_rollout and not request.engine.in_process:
        yield keeping("responses that are not done go on in the next step", partial_rollout=True)
    if own.generation_precision == "bf16" and not request.engine.in_process:
        yield keeping("weights of the engine in fp8", generation_precision="fp8")
    if request.job.old_logprobs and own.updates == 1:
        yield keeping("log-probabilities from the engine", old_logprobs="no")
    if pools.colocated and set(request.moves) != set(_OFFLOADS["both"]):
        moved = {"generation_offload": "both"}
        yield keeping("states on the host while engines generate", **moved)
        if request.framework.sleeps:
            words = f"the same, and engines with {_ALONE:.0%} of the memory"
            yield keeping(words, **moved, generation_memory=_ALONE)
    if request.engine.in_process:
        yield "vLLM in place of transformers", {"generation_engine": "vllm"}, pools, None
    if not here.fits and not own.generation_gpus:
        gpus = 2 * request.options.gpus
        scoring = pools.scoring
        whole = Pools(gpus - scoring, gpus - scoring, colocated=True, scoring=scoring)
        yield f"{gpus:,} GPUs", {"gpus": gpus}, whole, None


def step_of(settings: RlOptions, options: Options) -> Step:
    """The step of a request, on all GPUs in turn where it names none that only generate. Raises
    PlanError where it is wrong or no layout trains."""
    tried = _try(request := _request_of(settings, options), _splits(request)[0])
    if tried.found is None:
        raise PlanError("--gpus", options.gpus, f"has no layout that trains: {tried.why}")
    return tried.found


def command_of(settings: RlOptions, options: Options) -> str:
    """The command of a request."""
    plain = command_line(options, _VERB).removeprefix(f"dpplan {_VERB} ")
    return f"{command_line(settings, _VERB)} {plain}"


def _request_of(settings: RlOptions, options: Options) -> _Asked:
    refuse(options, _VERB)
    model, _ = model_spec(options.model)
    whole = any(core.mask == "full" for core, _ in attended_of(model))
    if model.towers or whole or of_samples(model):
        raise PlanError("--model", options.model, "generates no text, one word after another")
    kept, engine = framework(settings.framework, settings.generation_engine)
    assumed = "response_length" not in settings.given()
    if assumed and settings.response_max:
        usual = max(1, settings.response_max // _TIMES_MEAN)
        settings = settings.changed(response_length=min(settings.response_length, usual))
    longest = settings.response_max or _longest(settings, model)
    if settings.response_length > longest:
        remedy = f"is shorter than the mean response of {settings.response_length:,} tokens"
        raise PlanError("--response-max", settings.response_max, remedy)
    if settings.prompt_length >= model.max_positions:
        remedy = f"{model.name} has positions for {model.max_positions:,} tokens; take shorter ones"
        raise PlanError("--prompt-length", settings.prompt_length, remedy)
    if model.positions == "learned" and settings.prompt_length + longest > model.max_positions:
        remedy = f"{model.name} has positions for {model.max_positions:,} tokens; take shorter ones"
        raise PlanError("--response-length", settings.response_length, remedy)
    apart = {
        "--generation-gpus": settings.generation_gpus or 0,
        "--reward-gpus": settings.reward_gpus or 0,
        "--reference-gpus": settings.reference_gpus or 0,
    }
    if sum(apart.values()) >= options.gpus:
        most = max(apart, key=lambda name: apart[name])
        remedy = f"leaves none of {options.gpus:,} GPUs to train; take fewer"
        raise PlanError(most, apart[most], remedy)
    if engine.in_process and any(getattr(settings, n) for n in _OF_ENGINES):
        name = next(n for n in _OF_ENGINES if getattr(settings, n))
        remedy = f"needs an engine with GPUs of its own, which {engine.title} has not: take vllm"
        raise PlanError(flag(name), getattr(settings, name), remedy)
    if settings.ahead and options.gpus == 1:
        raise PlanError(
            "--ahead", settings.ahead, "needs GPUs that only generate: take --gpus 2 or more"
        )
    sequences, share = float(settings.prompts * settings.responses), number(settings, "kept") or 1.0
    batch = float(settings.update_batch or sequences * share)
    usual = kept.reference and settings.algorithm not in NO_REFERENCE
    referred = usual if settings.reference is None else settings.reference == "yes"
    scored = kept.old_logprobs or batch < sequences * share or settings.updates > 1
    job = Job(
        sequences=sequences,
        kept_frac=share,
        batch=min(batch, sequences * share),
        epochs=float(settings.updates),
        prompts=float(settings.prompts),
        prompt=float(settings.prompt_length),
        response=float(settings.response_length),
        sigma=settings.response_sigma,
        longest=float(longest),
        old_logprobs=scored if settings.old_logprobs is None else settings.old_logprobs == "yes",
        critic=settings.algorithm in HAS_CRITIC,
        reward_s=number(settings, "reward_time") or 0.0,
        ahead=settings.ahead,
        partial=settings.partial_rollout,
        scorers=tuple(_scorers(settings, model, referred=referred)),
    )
    return _Asked(settings, options, model, kept, engine, job, assumed)


def _scorers(settings: RlOptions, model: ModelSpec, *, referred: bool) -> Iterator[Scorer]:
    """The frozen models that score every response. Raises PlanError where one has no GPUs that
    hold it, or GPUs without a model."""
    if settings.reference_gpus and not referred:
        raise PlanError(
            "--reference-gpus", settings.reference_gpus, "has no reference policy: --reference yes"
        )
    if referred:
        yield Scorer(_REFERENCE, 1.0, settings.reference_gpus or 0, "old log-probabilities")
    if settings.reward_model is None:
        if settings.reward_gpus:
            raise PlanError(
                "--reward-gpus", settings.reward_gpus, "has no model that scores: --reward-model"
            )
        return
    rewards = model_spec(settings.reward_model)[0]
    size = parameter_count(rewards) / parameter_count(model)
    yield Scorer("reward model", size, settings.reward_gpus or 0, "generation")


def _hold(request: _Asked) -> None:
    """Raise PlanError where the GPUs of a frozen model do not hold its weights."""
    gpu = cluster_spec(request.options)[0].gpu
    for scorer in request.job.scorers:
        weights, room = _frozen_bytes(scorer, request), _ALONE * float(gpu.usable_memory)
        if scorer.gpus and weights > room * scorer.gpus:
            name = "--reference-gpus" if scorer.name == _REFERENCE else "--reward-gpus"
            remedy = (
                f"hold {show(room * scorer.gpus, 'B')} of the {show(weights, 'B')} of its weights;"
                f" take {math.ceil(weights / room):,} or more"
            )
            raise PlanError(name, scorer.gpus, remedy)


def _frozen_bytes(scorer: Scorer, request: _Asked) -> float:
    return scorer.size * parameter_count(request.model) * _WEIGHT_BYTES["bf16"]


def _longest(settings: RlOptions, model: ModelSpec) -> int:
    """A few times the mean, as far as the model has positions."""
    left = model.max_positions - settings.prompt_length
    return max(settings.response_length, min(_TIMES_MEAN * settings.response_length, left))


def _splits(request: _Asked) -> list[Pools]:
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


def _try(request: _Asked, pools: Pools) -> _Tried:
    """The fastest layout and engine of a split, on any of the framework's stacks that can train
    it."""
    steps: list[Step] = []
    refused: list[str] = []
    for stack in _stacks(request):
        try:
            steps.append(_with_engine(request, pools, _trained(request, pools, stack)))
        except PlanError as error:
            refused.append(str(error))
    if not steps:
        return _Tried(pools, why="; ".join(dict.fromkeys(refused)))
    return _Tried(pools, min(steps, key=_order))


def _stacks(request: _Asked) -> tuple[str, ...]:
    stack = request.options.stack
    return request.framework.stacks if stack is None else (stack,)


def _trained(request: _Asked, pools: Pools, stack: str) -> Training:
    """The training step: packed rows of prompts and responses. Raises PlanError."""
    options = request.options.changed(stack=stack)
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


def _with_engine(request: _Asked, pools: Pools, training: Training) -> Step:
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
    keeps = _keeps(request)
    steps = []
    for tp in degrees:
        engine = _engine(request, tp, pools)
        step = estimate.rl_step(training.estimates, engine, request.job, pools, keeps, loop())
        steps.append(Step(training, engine, step))
    return min(steps, key=_order)


def _keeps(request: _Asked) -> Keeps:
    return Keeps(request.framework.sleeps or request.engine.in_process, request.moves)


def _degrees(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length()) if most % 2**i == 0]


def _share(request: _Asked, pools: Pools) -> float:
    """Of a GPU's memory, what an engine takes."""
    usual = request.framework.memory_frac if pools.colocated else _ALONE
    stated = number(request.own, "generation_memory")
    return usual if stated is None else stated


def _engine(request: _Asked, tp: int, pools: Pools) -> Engine:
    layers = request.model.layers
    return Engine(
        tp=tp,
        weight_bytes=_WEIGHT_BYTES[request.own.generation_precision],
        budget_frac=_share(request, pools),
        most_sequences=request.engine.most_sequences or request.framework.most_sequences,
        step_s=float(request.engine.step) + layers * float(request.engine.layer or 0.0),
        sequence_s=float(request.engine.sequence),
        sample_bytes=DRAWN_BYTES,
        in_process=request.engine.in_process,
    )


def _document(request: _Asked, pools: Pools, best: Step, tried: list[_Tried]) -> Reinforcement:
    step, engine, training = best.step, best.engine, best.training
    train, figures = training.estimates, training.figures
    job, generation, plan = request.job, step.generation, train.plan
    price = plan.cluster.price.usd_per_gpu_hour
    gpu_s = _STEPS * step.seconds * request.options.gpus
    phases = [_phase(phase, figures) for phase in step.phases]
    low, high = (_band(step, phases, end) for end in ("low", "high"))
    generating_s = next(phase.seconds for phase in step.phases if phase.name == "generation")
    generated = job.sequences * job.response / (generating_s * pools.generation)
    return Reinforcement(
        schema_version=SCHEMA_VERSION,
        model=SizedModel(
            request.model.name,
            request.model.title or request.model.name,
            parameter_count(request.model),
        ),
        gpus=request.options.gpus,
        gpu_title=plan.cluster.gpu.title,
        framework=request.framework.title,
        work=RlWork(
            algorithm=request.own.algorithm,
            sequences=job.sequences,
            trained=job.trained,
            optimizer_steps=job.epochs * job.trained / job.batch,
            prompt_tokens=job.prompt,
            response_tokens=job.response,
            response_sigma=job.sigma,
            longest_tokens=job.longest,
            expected_longest_tokens=generation.longest,
            steps_ahead=job.ahead,
        ),
        step_s=step.seconds,
        step_low_s=low,
        step_high_s=high,
        rests_on=_otherwise(request, pools, step),
        fits=step.fits,
        shortfall_bytes=step.shortfall_bytes,
        phases=phases,
        generation=RlGeneration(
            engine=request.engine.title,
            precision=request.own.generation_precision,
            tp=engine.tp,
            engines=generation.engines,
            slots=generation.slots,
            running=generation.running,
            prompts_s=generation.prompts_s,
            full_s=generation.full_s,
            drain_s=generation.drain_s,
            token_s=generation.token_s,
            tokens_per_s_per_gpu=generated,
            weight_bytes=generation.weight_bytes,
            cache_bytes=generation.cache_bytes,
        ),
        training=RlTraining(
            stack=figures.stack,
            layout=figures.layout,
            gpus=pools.training,
            layouts=training.layouts,
            seq_len=plan.training.seq_len,
            rows=plan.training.global_batch,
            step_s=first(train.time.seconds),
            command=training.command,
            forward_s=estimate.forward_s(train),
        ),
        splits=[_split(split, split.found is best) for split in tried],
        changes=[],
        usd_per_1000_steps=None
        if price is None
        else float(run_level.machines_usd(gpu_s, float(price))),
        notes=[*_notes(request), *training.scenario.assumptions],
        doubts=list(training.scenario.doubts),
    )


def _phase(phase: estimate.Phase, figures: Figures) -> RlPhase:
    """A phase with its band: of training, or of generation."""
    of_training = (figures.step.low, figures.step.high)
    ends = tuple(end / figures.step.seconds for end in of_training)
    low, high = BAND if phase.name in estimate.OF_ENGINE else ends
    return RlPhase(
        name=phase.name,
        gpus=phase.pool,
        seconds=phase.seconds,
        low=phase.seconds * low,
        high=phase.seconds * high,
        device_bytes=phase.device_bytes,
    )


def _band(step: RlStep, phases: list[RlPhase], end: str) -> float:
    """An end of the band of a step: all phases at theirs, which is wider than they are likely to be
    together."""
    ends = {phase.name: float(getattr(phase, end)) for phase in phases}
    return step.together(ends)


def _split(split: _Tried, taken: bool) -> RlSplit:
    pools, best = split.pools, split.found
    step = None if best is None else best.step
    parts = {} if step is None else {phase.name: phase.seconds for phase in step.phases}
    training = sum(s for name, s in parts.items() if name not in (*estimate.OF_ENGINE, "refit"))
    too_large = "does not fit the memory of a GPU" if step and not step.fits else None
    return RlSplit(
        generation_gpus=pools.generation,
        training_gpus=pools.training,
        shared=pools.colocated,
        generation_tp=None if best is None else best.engine.tp,
        step_s=None if step is None else step.seconds,
        generation_s=parts.get("generation"),
        training_s=None if step is None else training,
        fits=step is not None and step.fits,
        taken=taken,
        why=split.why or too_large,
    )


def _otherwise(request: _Asked, pools: Pools, step: RlStep) -> str | None:
    """The step with responses half as long as the longest, where their mean is a default."""
    job = request.job
    longer = round(job.longest / 2)
    if not request.assumed or longer <= job.response:
        return None
    decides = f"The default mean of {job.response:,.0f} tokens decides: with"
    flag = f"--response-length {longer}"
    other = _try(replace(request, job=job.of_lengths(longer, job.longest)), pools)
    if other.found is None:
        return f"{decides} {flag} no layout trains ({other.why})."
    fits = " and does not fit" if step.fits and not other.found.step.fits else ""
    return f"{decides} {flag} a step takes {show(other.found.step.seconds, 's')}{fits}."


def _notes(request: _Asked) -> list[str]:
    """Notes on assumptions of the answer."""
    settings, job, taken = request.own, request.job, loop()
    referred = any(scorer.name == _REFERENCE for scorer in job.scorers)
    longest = f"{job.longest:,.0f} tokens at most"
    moved = f"{', '.join(request.moves)} leave" if request.moves else "nothing leaves"
    sentences = [
        f"responses: log-normal, mean {job.response:,.0f} tokens, sigma {job.sigma:g}, {longest}"
        " (--response-length, --response-sigma, --response-max)",
        f"framework: {request.framework.title}; its engine"
        f" {'sleeps' if request.framework.sleeps else 'stays on the GPU'} while others work,"
        f" {moved} the GPU during generation ({request.framework.source})",
        f"reference policy: {'scores every response' if referred else 'none'} (--reference)",
        f"loop: generation takes {taken.generation:g} times a server's, passes {taken.passes:g}"
        " times those of pre-training (measured with NeMo RL, planner/rl/reinforcement.toml)",
        "prompts: read once for all responses to them, as engines with prefix caching do",
    ]
    if settings.reward_time is None:
        sentences.append("reward: no time of its own (--reward-time)")
    if job.partial:
        sentences.append("responses that are not done go on in the next step (--partial-rollout)")
    for scorer in job.scorers:
        if scorer.name != _REFERENCE:
            sentences.append(
                f"{scorer.name}: {scorer.size:.3g} times the policy's passes, by its parameters"
            )
    if job.critic:
        sentences.append("critic: as large as the policy, trained alike")
    if job.ahead:
        sentences.append(
            f"off policy: generation is up to {job.ahead} step{'s' * (job.ahead > 1)} ahead and"
            " drains its batch once in as many steps and one (--ahead)"
        )
    return sentences
