"""The answer of `dpplan rl`: a step of reinforcement learning."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import UNSET, Document, Doubted, Unset, key
from planner.specs.documents.advice import Value
from planner.specs.documents.batch import SizedModel
from planner.specs.documents.explain import Explained
from planner.specs.documents.plan import Layout

ANSWERS = {"rl": "Reinforcement"}


class RlWork(Document):
    """Sequences and tokens that a step generates and trains on."""

    algorithm: Annotated[str, key("ppo, grpo, dapo or rloo")]
    sequences: Annotated[float, key("responses that are generated", "sequences")]
    trained: Annotated[float, key("those that are trained on", "sequences")]
    optimizer_steps: Annotated[float, key("updates of the policy in a step")]
    prompt_tokens: Annotated[float, key("mean length of a prompt", "tokens")]
    response_tokens: Annotated[float, key("mean length of a response", "tokens")]
    response_sigma: Annotated[float, key("of the logarithm of its length")]
    longest_tokens: Annotated[float, key("longest response that is allowed", "tokens")]
    expected_longest_tokens: Annotated[
        float, key("expected longest response of those that run at a time", "tokens")
    ]
    steps_ahead: Annotated[int, key("steps that generation may be ahead of training")]


class RlPhase(Document):
    """Work between two waits."""

    name: Annotated[str, key("what is done")]
    gpus: Annotated[str, key("which GPUs do it: all, training or generation")]
    seconds: Annotated[float | None, key("expected time; null where the step does not fit", "s")]
    low: Annotated[float | None, key("lower end of the band", "s")]
    high: Annotated[float | None, key("upper end of the band", "s")]
    device_bytes: Annotated[float, key("memory of a GPU while it is done", "B")]


class RlGeneration(Document):
    """How the responses of a step are generated."""

    engine: Annotated[str, key("name for people")]
    precision: Annotated[str, key("of the weights")]
    tp: Annotated[int, key("GPUs of one engine", "GPUs")]
    engines: Annotated[int, key("engines")]
    slots: Annotated[float, key("sequences that the memory of one engine holds", "sequences")]
    running: Annotated[float, key("sequences that it begins with", "sequences")]
    prompts_s: Annotated[float, key("reading the prompts", "s")]
    full_s: Annotated[float, key("with all slots taken while sequences wait", "s")]
    drain_s: Annotated[float, key("from full slots until the longest response ends", "s")]
    token_s: Annotated[float, key("one token of the sequences that run at first", "s")]
    tokens_per_s_per_gpu: Annotated[
        float, key("generated tokens over the phase and its GPUs", "tokens/s")
    ]
    weight_bytes: Annotated[float, key("weights of the engine on a GPU", "B")]
    cache_bytes: Annotated[float, key("keys and values of the sequences that run on a GPU", "B")]


class RlTraining(Document):
    """The step of training that all passes but generation are parts of."""

    stack: Annotated[str, key("id of the stack that trains")]
    layout: Annotated[Layout, key("its layout")]
    gpus: Annotated[int, key("GPUs that train", "GPUs")]
    command: Annotated[str, key("the command that estimates exactly this step")]
    layouts: Annotated[int, key("layouts of this stack that were compared")]
    seq_len: Annotated[int, key("tokens of a packed row", "tokens")]
    rows: Annotated[int, key("packed rows of an optimizer step", "sequences")]
    step_s: Annotated[float, key("one optimizer step", "s")]
    forward_s: Annotated[float, key("only its forward passes", "s")]


class RlSplit(Document):
    """A way to share the GPUs between generation and training."""

    generation_gpus: Annotated[int, key("GPUs that generate", "GPUs")]
    training_gpus: Annotated[int, key("GPUs that train", "GPUs")]
    shared: Annotated[bool, key("all GPUs do both in turn")]
    generation_tp: Annotated[int | None, key("GPUs of one engine; null: nothing fits", "GPUs")]
    step_s: Annotated[float | None, key("time of a step; null where it does not fit", "s")]
    generation_s: Annotated[float | None, key("of it generation", "s")]
    training_s: Annotated[float | None, key("passes and training", "s")]
    fits: Annotated[bool, key("every phase fits the memory")]
    taken: Annotated[bool, key("whether the answer uses this split")]
    why: Annotated[str | None, key("why it cannot be")]


class RlChange(Document):
    """A change of the request that was evaluated."""

    change: Annotated[str, key("in words")]
    options: Annotated[dict[str, Value], key("options that were changed, with their new values")]
    step_s: Annotated[float, key("time of a step", "s")]
    step_change_frac: Annotated[
        float | None, key("relative change of the step; negative is faster", "1")
    ]
    fits: Annotated[bool, key("every phase fits the memory")]
    command: Annotated[str, key("the command that requests it")]


class Reinforcement(Doubted):
    """A step of reinforcement learning as phases."""

    schema_version: Annotated[int, key("1")]
    model: Annotated[SizedModel, key("the policy")]
    gpus: Annotated[int, key("GPUs in all", "GPUs")]
    gpu_title: Annotated[str, key("the GPU by its name for people")]
    framework: Annotated[str, key("name for people")]
    work: Annotated[RlWork, key("what a step generates and trains on")]
    step_s: Annotated[float | None, key("expected time of a step; null where it does not fit", "s")]
    step_low_s: Annotated[float | None, key("lower end of the band", "s")]
    step_high_s: Annotated[float | None, key("upper end of the band", "s")]
    rests_on: Annotated[
        str | None, key("the default that the step rests on, and the step without it")
    ]
    fits: Annotated[bool, key("every phase fits the memory")]
    shortfall_bytes: Annotated[float, key("of the phase that needs most, 0 where it fits", "B")]
    phases: Annotated[list[RlPhase], key("in the order of a step")]
    generation: Annotated[RlGeneration, key("the engines")]
    training: Annotated[RlTraining, key("the training step")]
    splits: Annotated[list[RlSplit], key("ways to share the GPUs that were tried")]
    changes: Annotated[
        list[RlChange], key("what makes it fit or faster by 2 % or more, the fastest first")
    ]
    usd_per_1000_steps: Annotated[
        float | None, key("rental of all GPUs for 1,000 steps; null without a price", "USD")
    ]
    notes: Annotated[list[str], key("what the answer rests on")]
    explain: Annotated[
        Explained | Unset,
        key("with `--explain`: formulas of generation and of the phases, as in a report"),
    ] = UNSET
