"""Options of `dpplan rl` only."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.specs.options.record import Record
from planner.specs.options.row import Group


@dataclass(frozen=True, kw_only=True)
class RlOptions(Record):
    GROUP: ClassVar = Group("reinforcement", "Reinforcement learning")

    algorithm: Literal["ppo", "grpo", "dapo", "rloo"] = "grpo"
    framework: str = "verl"
    prompts: int = 128
    responses: int = 8
    prompt_length: int = 256
    response_length: int = 1024
    response_max: int | None = None
    response_sigma: float = 0.7
    update_batch: int | None = None
    updates: int = 1
    kept: float | str = 1.0
    reference: Literal["yes", "no"] | None = None
    old_logprobs: Literal["yes", "no"] | None = None
    partial_rollout: bool = False
    stream: int = 1
    reward_model: str | None = None
    scoring_gpus: int | None = None
    reward_time: str | None = None
    ahead: int = 0
    generation_engine: Literal["vllm", "sglang", "transformers"] | None = None
    generation_gpus: int | None = None
    generation_tp: int | None = None
    generation_precision: Literal["bf16", "fp8"] = "bf16"
    generation_memory: float | str | None = None
    generation_offload: Literal["none", "parameters", "optimizer", "both"] | None = None
    explain: bool = False
