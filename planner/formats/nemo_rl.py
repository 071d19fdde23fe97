"""NeMo-RL's YAML: supervised fine-tuning, preferences, and of reinforcement learning the policy.

Names: nemo_rl/models/policy and examples/configs of NVIDIA/NeMo-RL@54bec9d1. A file with `defaults`
stands on another one, whose values it leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.formats import rl, trainer
from planner.formats.record import STEPS, Answer, Argument, Format, Value, unread

_DETECT = (
    re.compile(r"(?m)^policy[ \t]*:"),
    re.compile(r"(?m)^[ \t]+max_total_sequence_length[ \t]*:"),
)
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_PAIR = 2  # sequences of an example of preferences
_ALGORITHMS = ("sft", "dpo", "grpo", "rm", "distillation")
_TORCH, _MEGATRON = "policy.dtensor_cfg", "policy.megatron_cfg"
_COLOCATED, _ASYNC = "policy.generation.colocated", "grpo.async_grpo"
_DEGREES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}


def _optimizer(value: Any) -> str:
    return trainer.optimizer(str(value).rpartition(".")[2].lower())


_TABLE = (
    Argument("policy.model_name", "model", meaning=trainer.model_name),
    Argument("policy.train_global_batch_size", "global_batch", meaning=trainer.whole),
    Argument("policy.train_micro_batch_size", "micro_batch", meaning=trainer.whole),
    Argument("policy.max_total_sequence_length", "seq_len", meaning=trainer.whole),
    Argument("policy.precision", "precision", words=_PRECISIONS),
    Argument("policy.optimizer.name", "optimizer", meaning=_optimizer),
    *(Argument(f"{name}.max_num_steps", STEPS, meaning=trainer.steps) for name in ("sft", "dpo")),
)
_WHOLE_STEP = {
    "prompts": "grpo.num_prompts_per_step",
    "responses": "grpo.num_generations_per_prompt",
    "response_max": "policy.generation.max_new_tokens",
    "generation_tp": "policy.generation.vllm_cfg.tensor_parallel_size",
    "generation_memory": "policy.generation.vllm_cfg.gpu_memory_utilization",
}


def _parse(text: str) -> Mapping[str, Value]:
    return trainer.resolved(trainer.parse(text))


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.is_part = "defaults" in values or "defaults.0" in values
    if answer.is_part:
        name = "defaults" if "defaults" in values else "defaults.0"
        answer.mark(name, "not understood", "is another file, which says the rest: give it, too")
    each, nodes = answer.get("cluster.gpus_per_node"), answer.get("cluster.num_nodes", 1)
    if isinstance(each, int) and isinstance(nodes, int):
        names = ("cluster.num_nodes", "cluster.gpus_per_node")
        answer.imply("gpus", nodes * each, "nodes x GPUs", *names)
        answer.imply("gpus_per_node", each, "GPUs of a node", names[1])
    if trainer.is_on(answer, f"{_MEGATRON}.enabled"):
        _of_megatron(answer)
    elif trainer.is_on(answer, f"{_TORCH}.enabled") or f"{_TORCH}.enabled" not in values:
        _of_torch(answer)
    else:
        _of_fsdp(answer)
    for name in values:
        if name.startswith((f"{_TORCH}.", f"{_MEGATRON}.")):
            answer.mark(name, "irrelevant", "of another backend, or as it is by default")
    for name in values:
        if name.startswith(("policy.dynamic_batching.", "policy.sequence_packing.")):
            answer.mark(name, "irrelevant", "as many tokens as the stated sequences have")
    _objective(answer)
    trainer.mark_empty(answer)


def _of_torch(answer: Answer) -> None:
    """DTensor: FSDP 2 beside tensor parallelism; only the MLP is checkpointed."""
    answer.imply("stack", "automodel", "its DTensor backend")
    answer.imply("zero", 3, "fully_shard of every layer")
    for option, word in (("tp", "tensor"), ("cp", "context")):
        name = f"{_TORCH}.{word}_parallel_size"
        answer.imply(option, answer.get(name, 1), "1 where it is not given", name)
    answer.imply("pp", 1, "no pipeline")
    name = f"{_TORCH}.sequence_parallel"
    if (answer.option("tp") or 1) > 1:
        answer.imply("sequence_parallel", trainer.is_on(answer, name), "off by default", name)
    name = f"{_TORCH}.activation_checkpointing"
    answer.imply("recompute", "mlp" if trainer.is_on(answer, name) else "none", "of MLPs", name)
    name = f"{_TORCH}.cpu_offload"
    if trainer.is_on(answer, name):
        answer.state("offload", "params", name)
    for name in ("policy.activation_checkpointing_enabled", "policy.fsdp_offload_enabled"):
        answer.mark(name, "irrelevant", "of its FSDP 1 backend")


def _of_fsdp(answer: Answer) -> None:
    answer.imply("stack", "hf-fsdp", "its FSDP 1 backend")
    answer.imply("zero", 3, "FULL_SHARD")
    trainer.read_degrees(answer)
    name = "policy.activation_checkpointing_enabled"
    kept = trainer.is_on(answer, name)
    answer.imply("recompute", "full" if kept else "none", "off by default", name)
    name = "policy.fsdp_offload_enabled"
    if trainer.is_on(answer, name):
        answer.state("offload", "params", name)
    answer.mark(name, "implied", "off")


def _of_megatron(answer: Answer) -> None:
    answer.imply("stack", "megatron-core", "its Megatron backend")
    for option, word in _DEGREES.items():
        name = f"{_MEGATRON}.{word}"
        answer.imply(option, answer.get(name, 1), "1 where it is not given", name)
    name = f"{_MEGATRON}.sequence_parallel"
    if (answer.option("tp") or 1) > 1:
        answer.imply("sequence_parallel", trainer.is_on(answer, name), "off by default", name)
    name = f"{_MEGATRON}.distributed_data_parallel_config.use_distributed_optimizer"
    answer.imply("zero", int(trainer.is_on(answer, name, True)), "on by default", name)
    name = f"{_MEGATRON}.activation_checkpointing"
    kept = trainer.is_on(answer, name)
    answer.imply("recompute", "full" if kept else "none", "off by default", name)


def _objective(answer: Answer) -> None:
    """The algorithm by the name of its table; examples of preferences are pairs."""
    tables = {name.partition(".")[0] for name in answer.values}
    algorithm = next((name for name in _ALGORITHMS if name in tables), "")
    named = next((n for n in answer.values if n.startswith(f"{algorithm}.")), "")
    if algorithm in ("dpo", "rm") and named:
        answer.imply("task", {"rm": "reward"}.get(algorithm, algorithm), "its table", named)
        for option in ("micro_batch", "global_batch"):
            stated = answer.options.get(option)
            if stated is not None:
                answer.options[option] = replace(stated, value=stated.value * _PAIR)
    elif algorithm == "grpo":
        whole_step: dict[str, Any] = {"framework": "nemo-rl", "algorithm": "grpo"}
        for option, name in _WHOLE_STEP.items():
            value = answer.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                whole_step[option] = value
        whole_step |= _apart(answer)
        numbers = {option: (name,) for option, name in _WHOLE_STEP.items()}
        rl.say(answer, whole_step, "this is the policy's optimizer step", numbers)
    elif algorithm == "distillation":
        answer.mark(named, "not understood", "a teacher is not part of the estimate of a step")


def _apart(answer: Answer) -> dict[str, Any]:
    """Options of engines on nodes of their own, beside training where it is asynchronous."""
    out: dict[str, Any] = {}
    if not trainer.is_on(answer, f"{_COLOCATED}.enabled", True):
        each = answer.get(f"{_COLOCATED}.resources.gpus_per_node")
        nodes = answer.get(f"{_COLOCATED}.resources.num_nodes") or 1
        if isinstance(each, int) and isinstance(nodes, int):
            out["generation_gpus"] = nodes * each
    if trainer.is_on(answer, f"{_ASYNC}.enabled"):
        out["ahead"] = trainer.number(answer, f"{_ASYNC}.max_trajectory_age_steps", 1)
        out["partial_rollout"] = trainer.is_on(answer, f"{_ASYNC}.in_flight_weight_updates")
    if trainer.is_on(answer, "loss_fn.force_on_policy_ratio"):
        out["old_logprobs"] = "no"
    return out


FORMAT = Format(
    kind="nemo-rl",
    title="NeMo-RL YAML",
    detect=trainer.detector(*_DETECT),
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("nemo_rl"),
)
