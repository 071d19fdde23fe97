"""The answer of `dpplan batch`: time to a target over GPUs and batches."""

from __future__ import annotations

from typing import Annotated, Any

from planner.specs.document import UNSET, Document, Doubted, key
from planner.specs.documents.compare import Amdahl
from planner.specs.documents.plan import Layout

_ABSENT: Any = UNSET  # absent where `fits` is false


class NamedModel(Document):
    """A model by name."""

    name: Annotated[str, key("catalogue name, or where the shape was read")]
    title: Annotated[str, key("name for people")]


class SizedModel(NamedModel):
    """A model by name and size."""

    parameters: Annotated[int, key("exact number of parameters", "parameters")]


class Reference(Document):
    """The run that is known to reach its target."""

    global_batch: Annotated[int, key("sequences of its batch", "sequences")]
    tokens_per_step: Annotated[float, key("tokens of its batch", "tokens")]
    tokens: Annotated[float, key("tokens that it takes, as requested", "tokens")]
    steps: Annotated[float, key("optimizer steps that it takes")]


class CriticalBatch(Document):
    """The batch at which both tokens and steps to the target are twice their least."""

    tokens: Annotated[float, key("critical batch", "tokens")]
    sequences: Annotated[float, key("the same in sequences", "sequences")]
    source: Annotated[str, key("where it comes from")]
    measured: Annotated[bool, key("from gradient norms")]
    loss_nats: Annotated[
        float | None, key("the loss it belongs to; null where it was stated or measured", "nats")
    ]


class Least(Document):
    """The two limits of a run to the target."""

    tokens: Annotated[float, key("with a tiny batch", "tokens")]
    steps: Annotated[float, key("with an endless batch")]


class RegimePoint(Document):
    """One number of GPUs; keys from `step_seconds` on are there where it fits."""

    value: Annotated[int, key("GPUs", "GPUs")]
    global_batch: Annotated[int, key("sequences per optimizer step", "sequences")]
    tokens_per_step: Annotated[float, key("tokens of one optimizer step", "tokens")]
    of_critical: Annotated[float, key("batch over the critical one", "1")]
    steps: Annotated[float, key("optimizer steps to the target")]
    tokens: Annotated[float, key("steps times tokens of a step", "tokens")]
    fits: Annotated[bool, key("there is a layout, and memory suffices")]
    command: Annotated[str, key("the command for this point")]
    why: Annotated[str, key("why it does not fit; only where it does not")] = _ABSENT
    step_seconds: Annotated[float, key("expected step time", "s")] = _ABSENT
    tokens_per_s: Annotated[float, key("throughput of the whole cluster", "tokens/s")] = _ABSENT
    days: Annotated[float, key("to the target, failures and restarts included", "days")] = _ABSENT
    cost_usd: Annotated[float | None, key("to the target; null without a price", "USD")] = _ABSENT
    goodput: Annotated[float, key("share of the time that advances the run", "1")] = _ABSENT
    useful_tokens_per_s: Annotated[
        float, key("`least.tokens` over the days in seconds", "tokens/s")
    ] = _ABSENT
    exposed_s: Annotated[float, key("communication that adds to the step", "s")] = _ABSENT
    exposed_frac: Annotated[float, key("its share of the step", "1")] = _ABSENT
    communication_ratio: Annotated[
        float, key("communication, hidden and exposed, over computation", "1")
    ] = _ABSENT
    bottleneck: Annotated[str, key("what takes most of the step")] = _ABSENT
    gpu_seconds_per_token: Annotated[
        dict[str, float],
        key(
            "by part: compute, memory_bandwidth, launch, pipeline_bubble, overhead, host_link,"
            " communication",
            "s",
        ),
    ] = _ABSENT
    smallest_batch: Annotated[
        int,
        key(
            "batch that keeps every replica of this layout busy: one micro-batch each", "sequences"
        ),
    ] = _ABSENT
    layout: Annotated[Layout, key("as `layout` of a report")] = _ABSENT
    stack: Annotated[str, key("profile id of the stack")] = _ABSENT
    speed_up: Annotated[float, key("days of the first point that fits over these", "1")] = _ABSENT
    efficiency: Annotated[float, key("the same over the growth in GPUs", "1")] = _ABSENT
    marginal_frac: Annotated[
        float | None,
        key("what each added GPU brings, as a share of one at the first point; null there", "1"),
    ] = _ABSENT
    gpu_time_factors: Annotated[
        dict[str, float],
        key(
            "GPU-time to the target over that at the first point, as factors: tokens, failures and"
            " the parts above; their product is one over the efficiency",
            "1",
        ),
    ] = _ABSENT


class Why(Document):
    """Causes of growing GPU-time to the target."""

    at: Annotated[int, key("`stops_at`, or the last count", "GPUs")]
    stops: Annotated[bool, key("an added GPU there brings less than `stop_below`")]
    gpu_time_factor: Annotated[float, key("product of the factors", "1")]
    factors: Annotated[dict[str, float], key("`gpu_time_factors` there, the largest first", "1")]
    main: Annotated[str, key("name of the largest factor")]
    sentence: Annotated[str, key("the same as a sentence")]


class Regime(Document):
    """One way to choose the batch, over GPUs; null from `pays_until` on where nothing fits."""

    title: Annotated[str, key("what becomes of the batch")]
    points: Annotated[list[RegimePoint], key("by ascending number of GPUs")]
    pays_until: Annotated[
        int | None, key("GPUs up to which each added one brings `stop_below`", "GPUs")
    ]
    stops_at: Annotated[int | None, key("the first count that does not", "GPUs")]
    critical_crossed_at: Annotated[
        int | None, key("the first count whose batch is beyond the critical one", "GPUs")
    ]
    accumulation_gone_at: Annotated[
        int | None, key("the first count with one micro-batch per replica and step", "GPUs")
    ]
    floor_days: Annotated[
        float | None,
        key(
            "weak: the least steps, each as the shortest of the points without its exposed"
            " communication",
            "days",
        ),
    ]
    amdahl: Annotated[Amdahl | None, key("strong: as `curves[].amdahl` of `compare`")]
    why: Annotated[Why | None, key("what makes GPU-time to the target grow")]


class Rates(Document):
    """Learning rates by three rules; factors of the reference's rate where none was given."""

    linear: Annotated[float, key("in proportion to the batch")]
    root: Annotated[float, key("with the square root of the batch")]
    saturating: Annotated[float, key("in proportion below the critical batch, level beyond it")]


class BatchNeeds(Document):
    """Steps, tokens and time to the target at one batch size."""

    global_batch: Annotated[int, key("sequences per optimizer step", "sequences")]
    tokens_per_step: Annotated[float, key("tokens of one optimizer step", "tokens")]
    of_critical: Annotated[float, key("batch over the critical one", "1")]
    steps: Annotated[int, key("optimizer steps to the target")]
    tokens: Annotated[int, key("tokens to the target", "tokens")]
    tokens_factor: Annotated[float, key("tokens over those of the reference run", "1")]
    least_tokens_factor: Annotated[float, key("tokens over `least.tokens`", "1")]
    least_steps_factor: Annotated[float, key("steps over `least.steps`", "1")]
    rates: Annotated[Rates, key("learning rates")]
    warmup_steps: Annotated[int | None, key("steps of warm-up; null without `--warmup`")]
    warmup_frac: Annotated[float | None, key("warm-up over the run; null without `--warmup`", "1")]


class LearningRate(Document):
    """The learning rate from which the rates of other batches are scaled."""

    reference: Annotated[float | None, key("of the reference batch, as requested")]
    rule: Annotated[str, key("linear or root, for this optimizer")]
    source: Annotated[str, key("paper of the rule")]
    warmup_tokens: Annotated[float | None, key("tokens of warm-up, as requested", "tokens")]


class RegimeEnd(Document):
    """A regime at the most GPUs that fit; null where nothing does."""

    pays_until: Annotated[
        int | None, key("GPUs up to which each added one brings `stop_below`", "GPUs")
    ]
    value: Annotated[int | None, key("the most GPUs that fit", "GPUs")]
    global_batch: Annotated[int | None, key("sequences per optimizer step there", "sequences")]
    days: Annotated[float | None, key("to the target", "days")]
    cost_usd: Annotated[float | None, key("to the target; null also without a price", "USD")]
    efficiency: Annotated[float | None, key("GPU-time at the first point over that here", "1")]


class Sensitivity(Document):
    """The answer, were the critical batch another one."""

    factor: Annotated[float, key("times the critical batch", "1")]
    critical_tokens: Annotated[float, key("critical batch", "tokens")]
    weak: Annotated[RegimeEnd, key("batch grown with the GPUs")]
    best: Annotated[RegimeEnd, key("batch with the shortest time")]


class Published(Document):
    """A large batch that was trained, as its paper states it."""

    model: Annotated[str, key("model and data set")]
    optimizer: Annotated[str, key("optimizer, with what it adds for large batches")]
    batch: Annotated[int, key("images or sequences")]
    how: Annotated[str, key("what made it train")]
    source: Annotated[str, key("the paper")]


class TimeToTarget(Doubted):
    """Time to a target over the number of GPUs, with the batch kept, grown, and best."""

    schema_version: Annotated[int, key("1")]
    model: Annotated[SizedModel, key("the model that is trained")]
    gpu_title: Annotated[str, key("name of the GPU for people")]
    seq_len: Annotated[int, key("tokens per sequence", "tokens")]
    reference: Annotated[Reference, key("the run that is known to reach its target")]
    critical_batch: Annotated[CriticalBatch, key("the critical batch")]
    least: Annotated[Least, key("least tokens and least steps to the target")]
    stop_below: Annotated[
        float,
        key(
            "share of the throughput per GPU at the first count below which more GPUs stop paying",
            "1",
        ),
    ]
    regimes: Annotated[
        dict[str, Regime],
        key("`strong` (batch kept), `weak` (grown with the GPUs), `best` (shortest time)"),
    ]
    batches: Annotated[list[BatchNeeds], key("each batch once, ascending")]
    learning_rate: Annotated[LearningRate, key("where the rates of the batches start from")]
    sensitivity: Annotated[list[Sensitivity], key("other critical batches")]
    published: Annotated[list[Published], key("large batches that were trained")]
    notes: Annotated[list[str], key("what this rests on, as sentences")]
