"""A request of `dpplan rl` with its framework, engine, lengths and frozen models settled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from planner.formulas.params import parameter_count
from planner.inputs.cluster import cluster_spec
from planner.inputs.model import model_spec
from planner.rl.frameworks import framework
from planner.rl.options import RlOptions
from planner.rl.specs import HAS_CRITIC, NO_REFERENCE, EngineSpec, FrameworkSpec, Job, Scorer
from planner.specs.base import PlanError
from planner.specs.layers import attended_of, of_samples
from planner.specs.model import ModelSpec
from planner.specs.options import Options, command_line, flag, refuse
from planner.specs.options.numbers import number
from planner.units import show

VERB = "rl"
_TIMES_MEAN = 4  # of the mean response, the longest where it is not stated
ALONE = 0.9  # of the memory of a GPU that only generates: gpu_memory_utilization of vLLM
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0}
_OF_ENGINES = ("generation_gpus", "ahead", "partial_rollout")  # only engines beside a trainer
REFERENCE = "reference log-probabilities"
# components of memory that leave the GPU during generation, by word of --generation-offload
OFFLOADS = {
    "none": (),
    "parameters": ("parameters", "gradients"),
    "optimizer": ("optimizer",),
    "both": ("parameters", "gradients", "optimizer"),
}


@dataclass(frozen=True)
class Request:
    """A request with all that is open in it settled, except for the split."""

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
        return self.framework.moves if word is None else OFFLOADS[word]


def command_of(settings: RlOptions, options: Options) -> str:
    """The command of a request."""
    plain = command_line(options, VERB).removeprefix(f"dpplan {VERB} ")
    return f"{command_line(settings, VERB)} {plain}"


def request_of(settings: RlOptions, options: Options) -> Request:
    refuse(options, VERB)
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
        mean = f"the mean response of {settings.response_length:,} tokens"
        remedy = f"is shorter than {mean}: raise it, or lower --response-length"
        raise PlanError("--response-max", settings.response_max, remedy)
    if settings.prompt_length >= model.max_positions:
        remedy = f"{model.name} has positions for {model.max_positions:,} tokens; take shorter ones"
        raise PlanError("--prompt-length", settings.prompt_length, remedy)
    if model.positions == "learned" and settings.prompt_length + longest > model.max_positions:
        remedy = f"{model.name} has positions for {model.max_positions:,} tokens; take shorter ones"
        raise PlanError("--response-length", settings.response_length, remedy)
    apart = {
        "--generation-gpus": settings.generation_gpus or 0,
        "--scoring-gpus": settings.scoring_gpus or 0,
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
    if settings.stream > 1 and not settings.generation_gpus:
        remedy = "needs GPUs that only generate while others train: take --generation-gpus"
        raise PlanError("--stream", settings.stream, remedy)
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
        reward_s=number(settings, "reward_time"),
        ahead=settings.ahead,
        partial=settings.partial_rollout,
        parts=settings.stream,
        scorers=tuple(_scorers(settings, model, referred=referred)),
    )
    return Request(settings, options, model, kept, engine, job, assumed)


def _scorers(settings: RlOptions, model: ModelSpec, *, referred: bool) -> Iterator[Scorer]:
    """The frozen models that score every response. Raises PlanError for GPUs without such a
    model."""
    gpus = settings.scoring_gpus or 0
    if gpus and not referred and settings.reward_model is None:
        raise PlanError("--scoring-gpus", gpus, "need --reward-model, or --reference yes")
    if referred:
        alone = 0 if settings.reward_model else gpus
        yield Scorer(REFERENCE, 1.0, alone, "old log-probabilities")
    if settings.reward_model is not None:
        rewards = _named(settings.reward_model)
        size = parameter_count(rewards) / parameter_count(model)
        yield Scorer("reward model", size, gpus, "generation")


def _named(name: str) -> ModelSpec:
    """The reward model of a request. Raises PlanError."""
    try:
        return model_spec(name)[0]
    except PlanError as error:
        raise PlanError("--reward-model", error.value, error.remedy) from None


def check_frozen(request: Request) -> None:
    """Raise PlanError where the GPUs of a frozen model do not hold its weights."""
    gpu = cluster_spec(request.options)[0].gpu
    for scorer in request.job.scorers:
        weights, room = _frozen_bytes(scorer, request), ALONE * float(gpu.usable_memory)
        if scorer.gpus and weights > room * scorer.gpus:
            remedy = (
                f"hold {show(room * scorer.gpus, 'B')} of the {show(weights, 'B')} of the weights"
                f" of the {scorer.name}; take {math.ceil(weights / room):,} or more"
            )
            raise PlanError("--scoring-gpus", scorer.gpus, remedy)
        gpus = request.options.gpus
        if scorer.name != REFERENCE and not scorer.gpus and weights > room * gpus:
            remedy = (
                f"has {show(weights, 'B')} of weights, of which the {gpus:,} GPUs that train hold"
                f" {show(room * gpus, 'B')}; take a smaller one, or more --gpus of"
                f" which --scoring-gpus {math.ceil(weights / room):,} only score"
            )
            raise PlanError("--reward-model", request.own.reward_model, remedy)


def _frozen_bytes(scorer: Scorer, request: Request) -> float:
    return scorer.size * parameter_count(request.model) * WEIGHT_BYTES["bf16"]


def doubts_of(request: Request) -> list[str]:
    """Lengths beyond the positions of the model, as a sentence."""
    longest = request.own.prompt_length + round(request.job.longest)
    most = request.model.max_positions
    if longest <= most:
        return []
    left = most - request.own.prompt_length
    return [
        f"--response-max: a prompt and the longest response have {longest:,} tokens, and"
        f" {request.model.name} has positions for {most:,}; engines refuse that unless its"
        f" configuration is changed. Take --response-max {left}."
    ]


def _longest(settings: RlOptions, model: ModelSpec) -> int:
    """A few times the mean, as far as the model has positions."""
    left = model.max_positions - settings.prompt_length
    return max(settings.response_length, min(_TIMES_MEAN * settings.response_length, left))
