"""A step of reinforcement learning: what is generated, which passes it needs, and what a framework
keeps and moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from pydantic import Field

from planner.ledger import Sourced
from planner.specs.base import BytesPerSecond, Names, Number, Quantity, Spec

Algorithm = Literal["ppo", "grpo", "dapo", "rloo"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
HAS_CRITIC: frozenset[Algorithm] = frozenset({"ppo"})
# that have no penalty on the distance from a reference policy (DAPO, arXiv 2503.14476 section 2.3)
NO_REFERENCE: frozenset[Algorithm] = frozenset({"dapo"})

_Seconds = Annotated[Sourced, Quantity("s", exclusive=False)]


class EngineSpec(Spec):
    """An engine of generation: what its host does between two tokens."""

    title: str
    step: _Seconds
    sequence: _Seconds
    layer: _Seconds | None = None  # of the host, for each layer of a token
    in_process: bool = False  # with the weights of the trainer, and what memory it leaves
    most_sequences: int | None = Field(
        default=None, ge=1
    )  # that it runs at a time, if not by framework


class LoopSpec(Spec):
    """Overheads of a training loop: time on the host beside each token of an engine, passes over
    their counterparts in pre-training, the rate at which every GPU receives new weights, time on
    the host for each response, and the rate at which one process hands rows to workers."""

    token: _Seconds
    passes: Number
    refit: BytesPerSecond
    response: _Seconds
    rows: BytesPerSecond


class FrameworkSpec(Spec):
    """Memory and transfers of a framework; shares are fractions of a GPU's memory."""

    title: str
    engine: str
    stacks: Names  # that train
    colocated: bool  # by default
    memory_frac: float = Field(gt=0, le=1)  # of the engine where it shares its GPUs
    most_sequences: int = Field(ge=1)  # that an engine runs at a time
    pads: bool = False  # a row holds one longest sequence, and has its length in a pipeline
    row_bytes: float = Field(default=0.0, ge=0)  # of a padded token, handed over for each pass
    sleeps: bool  # the engine leaves the GPU while others work on it
    moves: Names  # components of memory that leave the GPU during generation
    old_logprobs: bool  # a pass of its own for the policy that generated
    reference: bool  # a reference policy by default, where the algorithm has one
    source: str


class FrameworksSpec(Spec):
    """The table of frameworks and engines, and what their loops have in common."""

    loop: LoopSpec
    engines: dict[str, EngineSpec]
    frameworks: dict[str, FrameworkSpec]


@dataclass(frozen=True)
class Scorer:
    """A frozen model that scores every response. size: relative to the parameters of the policy;
    gpus: its own, 0 where it takes turns on the GPUs of training; beside: the phase that runs at
    the same time on other GPUs."""

    name: str
    size: float
    gpus: int
    beside: str


@dataclass(frozen=True)
class Job:
    """A step: its sequences, their lengths and the passes over them. Lengths in tokens."""

    sequences: float  # generated in a step
    kept_frac: float  # that are trained on
    batch: float  # sequences of one optimizer step
    epochs: float  # over the sequences of a step
    prompts: float  # distinct ones
    prompt: float  # mean length
    response: float  # mean length, cut ones included
    sigma: float  # of the logarithm of a response's length
    longest: float  # response that is allowed
    old_logprobs: bool
    critic: bool
    reward_s: float | None  # None: of rules on the host
    ahead: int  # steps that generation may be ahead of training
    partial: bool = False  # responses that are not done go on in the next step
    parts: int = 1  # each trained on as soon as it is generated
    scorers: tuple[Scorer, ...] = ()

    def of_lengths(self, mean: float, longest: float) -> Job:
        """The job with responses of another mean and longest length."""
        return replace(self, response=mean, longest=longest)

    @property
    def trained(self) -> float:
        """Sequences that are trained on."""
        return self.sequences * self.kept_frac
