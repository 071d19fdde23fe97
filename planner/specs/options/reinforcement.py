"""Options of `dpplan rl` alone."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from planner.specs.options.own import OUTPUT
from planner.specs.options.record import Record
from planner.specs.options.row import Group, option

_GENERATION = Group("generation", "Generation")


@dataclass(frozen=True, kw_only=True)
class RlOptions(Record):
    GROUP: ClassVar = Group("reinforcement", "Reinforcement learning")

    algorithm: Annotated[
        Literal["ppo", "grpo", "dapo", "rloo"],
        option(
            "Algorithm: ppo trains a critic, dapo has no reference policy",
            label="Algorithm",
            example="ppo",
        ),
    ] = "grpo"
    framework: Annotated[
        str,
        option(
            "Framework: verl, nemo-rl, trl, openrlhf or slime; sets what is kept and moved",
            label="Framework",
            length=100,
            example="nemo-rl",
        ),
    ] = "verl"
    prompts: Annotated[
        int,
        option(
            "Prompts of a step", label="Prompts of a step", least=1, most=1_000_000, example="64"
        ),
    ] = 128
    responses: Annotated[
        int,
        option(
            "Responses to each prompt",
            label="Responses to each",
            least=1,
            most=100_000,
            example="16",
        ),
    ] = 8
    prompt_length: Annotated[
        int,
        option(
            "Mean length of a prompt",
            label="Prompt (tokens)",
            reads="tokens",
            least=1,
            most=100_000_000,
            example="1000",
        ),
    ] = 256
    response_length: Annotated[
        int,
        option(
            "Mean length of a response, those cut at --response-max included",
            label="Response (tokens)",
            reads="tokens",
            least=1,
            most=100_000_000,
            example="2000",
        ),
    ] = 1024
    response_max: Annotated[
        int | None,
        option(
            "Longest response that is allowed",
            label="Longest response",
            reads="context",
            least=1,
            most=100_000_000,
            example="8k",
            unset="4 times the mean, as far as the model has positions",
        ),
    ] = None
    response_sigma: Annotated[
        float,
        option(
            "Sigma of the log-normal length of responses: how long their tail is",
            label="Spread of lengths",
            least=1e-4,
            most=4,
            or_zero=True,
            example="1.2",
        ),
    ] = 0.7
    update_batch: Annotated[
        int | None,
        option(
            "Sequences of one optimizer step",
            label="Sequences per update",
            least=1,
            most=1_000_000_000,
            example="256",
            unset="all of the step",
        ),
    ] = None
    updates: Annotated[
        int,
        option(
            "Passes of training over the responses of a step",
            label="Passes over a step",
            least=1,
            most=100,
            example="2",
        ),
    ] = 1
    kept: Annotated[
        float | str,
        option(
            "Share of prompts that are trained on: DAPO leaves out those whose responses are all"
            " right or all wrong",
            label="Prompts kept",
            unit="1",
            least=0.01,
            most=1,
            example="60%",
        ),
    ] = 1.0
    reference: Annotated[
        Literal["yes", "no"] | None,
        option(
            "Whether a reference policy scores the responses",
            label="Reference policy",
            example="yes",
            unset="as the framework and the algorithm do",
        ),
    ] = None
    reward_time: Annotated[
        str | None,
        option(
            "Time of rewards that no other phase hides: verifiers, sandboxes, judges",
            label="Time of rewards",
            unit="s",
            needs_unit=("ms", "s"),
            least=1e-6,
            most=1e6,
            or_zero=True,
            example="5 s",
            unset="0 s",
        ),
    ] = None
    ahead: Annotated[
        int,
        option(
            "Steps that generation may be ahead of training (off policy), on GPUs of its own",
            label="Steps ahead",
            least=0,
            most=1000,
            example="1",
        ),
    ] = 0
    generation_gpus: Annotated[
        int | None,
        option(
            "GPUs that only generate",
            label="GPUs that generate",
            least=1,
            most=10_000_000,
            example="2",
            unset="none where the framework shares all GPUs, else the best split",
            group=_GENERATION,
        ),
    ] = None
    generation_tp: Annotated[
        int | None,
        option(
            "GPUs of one engine (tensor parallel)",
            label="GPUs of an engine",
            least=1,
            most=1024,
            example="2",
            unset="the fastest that fits",
            group=_GENERATION,
        ),
    ] = None
    generation_precision: Annotated[
        Literal["bf16", "fp8"],
        option(
            "Number format of the engine's weights",
            label="Engine precision",
            example="fp8",
            group=_GENERATION,
        ),
    ] = "bf16"
    generation_memory: Annotated[
        float | str | None,
        option(
            "Share of a GPU's memory that an engine takes (gpu_memory_utilization)",
            label="Engine memory share",
            unit="1",
            least=0.01,
            most=1,
            example="40%",
            unset="as the framework has it; 0.9 on GPUs that only generate",
            group=_GENERATION,
        ),
    ] = None
    explain: Annotated[
        bool, option("Print the formulas of the phases with numbers and sources", group=OUTPUT)
    ] = False
