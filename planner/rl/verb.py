"""The verb `rl`: a step of reinforcement learning as phases, its memory, the best split of GPUs and
what 1,000 steps cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.formulas import run_level
from planner.formulas.params import parameter_count
from planner.inputs.options import read_options
from planner.ledger import Call, first, recording
from planner.rl import step as estimate
from planner.rl.changes import evaluated
from planner.rl.documents import Reinforcement, RlGeneration, RlPhase, RlSplit, RlTraining, RlWork
from planner.rl.evidence import BAND
from planner.rl.frameworks import loop
from planner.rl.options import RlOptions
from planner.rl.request import REFERENCE, Request, check_frozen, doubts_of, request_of
from planner.rl.splits import Step, Tried, keeps_of, splits, try_split
from planner.rl.step import Pools, RlStep
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, changed
from planner.specs.documents.batch import SizedModel
from planner.specs.documents.estimate import Figures
from planner.specs.options import Options
from planner.units import show
from planner.views.explain import nested

_STEPS = 1000  # for which a cost is quoted


def rl(settings: RlOptions, given: Mapping[str, Any]) -> Reinforcement:
    """A step with the GPUs split as requested, or as the framework shares them. Raises PlanError
    for a wrong request or if no layout trains."""
    return answer(settings, given)[0]


def answer(settings: RlOptions, given: Mapping[str, Any]) -> tuple[Reinforcement, Call | None]:
    """The answer with the tree of its formulas, if requested; without the formulas of the training
    step, which `dpplan estimate --explain` prints."""
    request = request_of(settings, read_options(given))
    check_frozen(request)
    tried = [try_split(request, pools) for pools in splits(request)]
    shared = [split for split in tried if split.pools.colocated]
    takes = request.framework.colocated and shared and shared[0].chosen is not None
    taken = shared[0] if takes else min(tried, key=lambda split: split.order)
    if taken.chosen is None:
        raise PlanError("--gpus", request.options.gpus, f"has no split that trains: {taken.why}")
    document = changed(
        _document(request, taken.pools, taken.chosen, tried),
        changes=evaluated(request, taken, tried),
    )
    if not settings.explain:
        return document, None
    with recording("step of reinforcement learning") as tree:
        train, engine = taken.chosen.training.estimates, taken.chosen.engine
        keeps, overhead = keeps_of(request), loop(request.framework)
        estimate.rl_step(train, engine, request.job, taken.pools, keeps, overhead)
    return changed(document, explain=nested(tree)), tree


def step_of(settings: RlOptions, options: Options) -> Step:
    """The step of a request, on all GPUs in turn where it names none that only generate. Raises
    PlanError where it is wrong or no layout trains."""
    tried = try_split(request := request_of(settings, options), splits(request)[0])
    if tried.chosen is None:
        raise PlanError("--gpus", options.gpus, f"has no layout that trains: {tried.why}")
    return tried.chosen


def _document(request: Request, pools: Pools, best: Step, tried: list[Tried]) -> Reinforcement:
    step, engine, training = best.step, best.engine, best.training
    train, figures = training.estimates, training.figures
    job, generation, plan = request.job, step.generation, train.plan
    price = plan.cluster.price.usd_per_gpu_hour
    gpu_s = _STEPS * step.seconds * request.options.gpus
    phases = [_phase(phase, figures) for phase in step.phases]
    low, high = (_band(step, phases, end) for end in ("low", "high"))
    generating_s = next(phase.seconds for phase in step.phases if phase.name == "generation")
    generated = job.sequences * job.response / (generating_s * pools.generation)
    timed = step.fits  # the time of a step that cannot run has no meaning
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
        step_s=step.seconds if timed else None,
        step_low_s=low if timed else None,
        step_high_s=high if timed else None,
        rests_on=_otherwise(request, pools, step),
        fits=step.fits,
        shortfall_bytes=step.shortfall_bytes,
        phases=phases if timed else [_untimed(phase) for phase in phases],
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
        splits=[_split(split, split.chosen is best) for split in tried],
        changes=[],
        usd_per_1000_steps=None
        if price is None or not timed
        else float(run_level.machines_usd(gpu_s, float(price))),
        notes=[*_notes(request), *training.scenario.assumptions],
        doubts=[*doubts_of(request), *training.scenario.doubts],
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


def _untimed(phase: RlPhase) -> RlPhase:
    return changed(phase, seconds=None, low=None, high=None)


def _band(step: RlStep, phases: list[RlPhase], end: str) -> float:
    """An end of the band of a step: all phases at theirs, which is wider than they are likely to be
    together."""
    ends = {phase.name: float(getattr(phase, end)) for phase in phases}
    return step.together(ends)


def _split(split: Tried, taken: bool) -> RlSplit:
    pools, best = split.pools, split.chosen
    step = None if best is None else best.step
    timed = step is not None and step.fits
    parts = (
        {} if step is None or not timed else {phase.name: phase.seconds for phase in step.phases}
    )
    training = sum(s for name, s in parts.items() if name not in (*estimate.OF_ENGINE, "refit"))
    too_large = "does not fit the memory of a GPU" if step and not step.fits else None
    return RlSplit(
        generation_gpus=pools.generation,
        training_gpus=pools.training,
        shared=pools.colocated,
        generation_tp=None if best is None else best.engine.tp,
        step_s=step.seconds if step is not None and timed else None,
        generation_s=parts.get("generation"),
        training_s=training if timed else None,
        fits=step is not None and step.fits,
        taken=taken,
        why=split.why or too_large,
    )


def _otherwise(request: Request, pools: Pools, step: RlStep) -> str | None:
    """The step with responses half as long as the longest, where their mean is a default."""
    job = request.job
    longer = round(job.longest / 2)
    if not request.assumed or longer <= job.response or not step.fits:
        return None
    decides = f"The default mean of {job.response:,.0f} tokens decides: with"
    flag = f"--response-length {longer}"
    other = try_split(replace(request, job=job.of_lengths(longer, job.longest)), pools)
    if other.chosen is None:
        return f"{decides} {flag} no layout trains ({other.why})."
    if not other.chosen.step.fits:
        return f"{decides} {flag} it does not fit."
    return f"{decides} {flag} a step takes {show(other.chosen.step.seconds, 's')}."


def _notes(request: Request) -> list[str]:
    """Notes on assumptions of the answer."""
    settings, job, taken = request.own, request.job, loop(request.framework)
    referred = any(scorer.name == REFERENCE for scorer in job.scorers)
    longest = f"{job.longest:,.0f} tokens at most"
    moved = f"{', '.join(request.moves)} leave" if request.moves else "nothing leaves"
    sentences = [
        f"responses: log-normal, mean {job.response:,.0f} tokens, sigma {job.sigma:g}, {longest}"
        " (--response-length, --response-sigma, --response-max)",
        f"framework: {request.framework.title}; its engine"
        f" {'sleeps' if request.framework.sleeps else 'stays on the GPU'} while others work,"
        f" {moved} the GPU during generation ({request.framework.source})",
        f"reference policy: {'scores every response' if referred else 'none'} (--reference)",
        f"loop: a token takes {show(taken.token_s, 's')} more on the host than a server's, passes"
        f" {taken.passes:g} times those of pre-training (measured with NeMo RL,"
        " planner/rl/reinforcement.toml)",
        "prompts: read once for all responses to them, as engines with prefix caching do",
    ]
    if settings.reward_time is None:
        sentences.append(
            f"reward: by rules on the host, {show(taken.response_s, 's')} a response"
            " (--reward-time)"
        )
    if job.partial:
        sentences.append("responses that are not done go on in the next step (--partial-rollout)")
    if job.parts > 1:
        sentences.append(f"each of {job.parts} parts of the responses trains once done (--stream)")
    for scorer in job.scorers:
        if scorer.name != REFERENCE:
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
