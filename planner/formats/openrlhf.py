"""OpenRLHF: its commands for supervised fine-tuning, preferences, models of rewards and PPO, of
which the optimizer step of the policy is read.

Names and defaults: openrlhf/cli/train_*.py of OpenRLHF/OpenRLHF@3c3be623; names without dots belong
to releases up to 0.9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import adapted, megatron, rl, sharding, trainer
from planner.formats.packed import Rows, read_rows
from planner.formats.record import Answer, Argument, Format, Value, unread
from planner.formats.shell import script

_PROGRAM = re.compile(r"openrlhf\.cli\.train_(\w+)|openrlhf/cli/train_(\w+)\.py")
_WHICH = "script"  # sft, dpo, rm, kd, ppo_ray
_TASKS = {"dpo": "dpo", "rm": "reward", "kto": "kto", "kd": "distil"}
_PAIRED = ("dpo", "rm")
_GENERATES = ("ppo", "ppo_ray")
_ONE_EACH = ("rm", *_GENERATES)  # whose micro-batches have one example by default
_TYPES = {"bf16": "bf16", "fp16": "fp16"}
_NAMES = adapted.Names(
    rank="ds.lora.rank",
    targets=("ds.lora.target_modules",),
    dropout="ds.lora.dropout",
    default_targets="all-linear",
)
# names of releases up to 0.9, and of today's
_SAME = {
    "micro_train_batch_size": "train.micro_batch_size",
    "train_batch_size": "train.batch_size",
    "pretrain": "model.model_name_or_path",
    "actor.model_name_or_path": "model.model_name_or_path",
    "max_len": "data.max_len",
    "prompt_max_len": "data.prompt_max_len",
    "generate_max_len": "rollout.generate_max_len",
    "rollout_batch_size": "rollout.batch_size",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt",
    "max_epochs": "train.max_epochs",
    "advantage_estimator": "algo.advantage.estimator",
    "init_kl_coef": "algo.kl.init_coef",
    "vllm_num_engines": "vllm.num_engines",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "colocate_all_models": "train.colocate_all",
    "async_train": "train.async_enable",
    "zero_stage": "ds.zero_stage",
    "param_dtype": "ds.param_dtype",
    "model_name_or_path": "model.model_name_or_path",
    "gradient_checkpointing_enable": "model.gradient_checkpointing_enable",
    "gradient_checkpointing": "model.gradient_checkpointing_enable",
    "actor.gradient_checkpointing_enable": "model.gradient_checkpointing_enable",
    "lora_rank": "ds.lora.rank",
    "lora_alpha": "ds.lora.alpha",
    "lora_dropout": "ds.lora.dropout",
    "target_modules": "ds.lora.target_modules",
    "load_in_4bit": "ds.load_in_4bit",
    "adam_offload": "ds.adam_offload",
    "packing_samples": "ds.packing_samples",
    "attn_implementation": "ds.attn_implementation",
    "use_liger_kernel": "ds.use_liger_kernel",
    "ring_attn_size": "ds.ring_attn_size",
    "ds_tensor_parallel_size": "ds.tensor_parallel_size",
    "overlap_comm": "ds.overlap_comm",
    "actor_num_nodes": "actor.num_nodes",
    "actor_num_gpus_per_node": "actor.num_gpus_per_node",
    "teacher_model": "model.teacher_model_name_or_path",
}
_TABLE = (
    Argument("model.model_name_or_path", "model", meaning=trainer.model_name, note=trainer.COPIES),
    Argument("train.micro_batch_size", "micro_batch", default=8, meaning=trainer.whole),
    Argument("train.batch_size", "global_batch", default=128, meaning=trainer.whole),
    Argument("data.max_len", "seq_len", meaning=trainer.whole),
    Argument("ds.zero_stage", "zero", default=2, meaning=trainer.whole),
    Argument("ds.param_dtype", "precision", words=_TYPES, default="bf16"),
    Argument("ds.tensor_parallel_size", "tp", default=1, meaning=trainer.whole),
    Argument("ds.ring_attn_size", "cp", default=1, meaning=trainer.whole),
    Argument("ds.attn_implementation", "attention", meaning=trainer.attention),
    Argument(
        "model.gradient_checkpointing_enable", "recompute", default=False, meaning=trainer.recompute
    ),
)
_LENGTHS = {"sft": 2048, "dpo": 512, "rm": 512, "kto": 512, "kd": 2048}


def _parse(text: str) -> Mapping[str, Value]:
    """Arguments of the command with most of them, by today's names."""
    best: dict[str, Value] = {}
    shell = script(text)
    for command in (*shell.commands, *shell.possible):
        named = next((m for word in command.words if (m := _PROGRAM.search(word.text))), None)
        if named is None:
            continue
        at = next(i for i, word in enumerate(command.words) if _PROGRAM.search(word.text))
        words = command.words[at + 1 :]
        out = {name.replace("-", "_"): value for name, value in megatron.of_words(words).items()}
        out = {_SAME.get(name, name): value for name, value in out.items()}
        out[_WHICH] = Value(named[1] or named[2], command.words[at].line)
        best = max(best, out, key=len)
    return best


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    which = str(answer.get(_WHICH))
    task = _TASKS.get(which)
    if which in _ONE_EACH and "train.micro_batch_size" not in values:
        answer.imply("micro_batch", 1, "of this program by default")
    if which in _GENERATES:
        why = "generation is not part of the estimate, which covers the policy's optimizer step"
        answer.mark(_WHICH, "not understood", why)
        lengths = ("data.prompt_max_len", "rollout.generate_max_len")
        both = [trainer.number(answer, name, 1024) for name in lengths]
        answer.imply("seq_len", sum(both), "prompt and answer together", *lengths)
        _gpus(answer)
        _whole_step(answer)
    elif task:
        answer.state("task", task, _WHICH)
        if which in _PAIRED:
            trainer.read_pairs(answer, 8)
    answer.mark(_WHICH, "implied", "every word of the answer is trained")
    if answer.option("seq_len") is None and which in _LENGTHS:
        answer.imply("seq_len", _LENGTHS[which], "--data.max_len by default")
    answer.imply("stack", sharding.DEEPSPEED, "DeepSpeed")
    if trainer.is_on(answer, "ds.adam_offload"):
        answer.state("offload", "optimizer", "ds.adam_offload")
    if trainer.is_on(answer, "bf16"):
        answer.state("precision", "bf16", "bf16")
    if trainer.is_on(answer, "flash_attn"):
        answer.state("flash_attention", True, "flash_attn")
    _adapters(answer)
    trainer.read_liger(answer, "ds.use_liger_kernel")
    read_rows(answer, Rows(packed=("ds.packing_samples",), grouped=()))
    trainer.read_degrees(answer)


# estimators of the advantage; all but `gae` train no critic
_ALGORITHMS = {"gae": "ppo", "rloo": "rloo"}
_OLD_LONGEST = 1024  # tokens, --generate_max_len of releases up to 0.9
_MEMORY = "vllm.gpu_memory_utilization"


# arguments that state an option of `dpplan rl`
_NUMBERS = {
    "prompts": ("rollout.batch_size",),
    "responses": ("rollout.n_samples_per_prompt",),
    "response_max": (
        *("rollout.max_new_tokens", "rollout.generate_max_len"),
        *("data.max_len", "data.prompt_max_len"),
    ),
    "updates": ("train.max_epochs",),
    "update_batch": ("train.batch_size",),
}


def _whole_step(answer: Answer) -> None:
    """Generation beside the policy's optimizer step, in options of `dpplan rl`."""
    estimator = str(answer.get("algo.advantage.estimator", "gae")).lower()
    penalty = answer.get("algo.kl.init_coef", 0.01)
    kept = not isinstance(penalty, int | float) or penalty > 0
    engines, tp = (
        trainer.number(answer, name, usual)
        for name, usual in (("vllm.num_engines", 0), ("vllm.tensor_parallel_size", 1))
    )
    ahead = trainer.is_on(answer, "train.async_enable")
    shared = (trainer.is_on(answer, "train.colocate_all") and not ahead) or not engines
    memory = answer.get(_MEMORY)
    whole_step: dict[str, Any] = {
        "framework": "openrlhf",
        "algorithm": _ALGORITHMS.get(estimator, "grpo"),
        "prompts": trainer.number(answer, "rollout.batch_size", 1024),
        "responses": trainer.number(answer, "rollout.n_samples_per_prompt", 1),
        "response_max": _longest(answer),
        "updates": trainer.number(answer, "train.max_epochs", 1),
        "update_batch": trainer.number(answer, "train.batch_size", 128),
        "reference": "yes" if kept else "no",
        "ahead": int(ahead and not shared),
        "generation_tp": tp,
        "generation_gpus": None if shared else engines * tp,
        "generation_memory": memory if isinstance(memory, int | float) else None,
        "micro_batch": None,  # sequences, or tokens at a time: not packed rows
    }
    if not shared and (training := answer.option("gpus")):
        whole_step["gpus"] = training + engines * tp
    answer.mark(_MEMORY, "irrelevant", "of generation")
    rl.say(answer, whole_step, "this is the policy's optimizer step", _NUMBERS)


def _longest(answer: Answer) -> int:
    """Tokens of the longest response: stated, or what the longest prompt leaves of a sequence."""
    stated = trainer.number(answer, "rollout.max_new_tokens", 0)
    stated = stated or trainer.number(answer, "rollout.generate_max_len", 0)
    whole = trainer.number(answer, "data.max_len", 0)
    prompt = trainer.number(answer, "data.prompt_max_len", 0)
    return stated or (max(whole - prompt, 1) if whole else _OLD_LONGEST)


def _adapters(answer: Answer) -> None:
    """Adapters, where their rank is above 0."""
    rank = trainer.number(answer, _NAMES.rank, 0)
    if rank > 0:
        answer.state("lora", rank, _NAMES.rank)
        adapted.read_targets(answer, _NAMES)
        if trainer.is_on(answer, "ds.load_in_4bit"):
            answer.state("base_precision", "nf4-double", "ds.load_in_4bit")
    else:
        for name in (_NAMES.rank, *_NAMES.targets, _NAMES.dropout, "ds.load_in_4bit"):
            answer.mark(name, "implied", "no adapters: all weights are trained")


def _gpus(answer: Answer) -> None:
    nodes, each = answer.get("actor.num_nodes"), answer.get("actor.num_gpus_per_node")
    if isinstance(nodes, int) and isinstance(each, int) and nodes > 0 and each > 0:
        names = ("actor.num_nodes", "actor.num_gpus_per_node")
        answer.imply("gpus", nodes * each, "GPUs of the policy", *names)


FORMAT = Format(
    kind="openrlhf",
    title="OpenRLHF commands",
    detect=lambda name, text: (
        not name.endswith((".py", ".ipynb")) and _PROGRAM.search(text) is not None
    ),
    parse=_parse,
    table=_TABLE,
    read_more=_more,
    **unread("openrlhf"),
)
