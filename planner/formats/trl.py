"""TRL's YAML: SFTConfig, DPOConfig, GRPOConfig and others, beside ModelConfig and the arguments of
a script, as `trl sft --config` reads them; alignment-handbook's and open-r1's recipes too.

Names and defaults: trl/trainer/*_config.py and model_config.py of TRL at 2026-07.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.formats import (
    adapted,
    dialects,
    rl,
    sharding,
    taught,
    trainer,
    trainer_script,
    written,
)
from planner.formats.packed import Rows, read_rows
from planner.formats.record import Answer, Argument, Format, Value, unread
from planner.formats.target import PlanToWrite
from planner.specs.options import PerGpu

LENGTH = Argument(
    "max_length",
    "seq_len",
    default=1024,
    meaning=trainer.whole,
    also=("max_seq_length", "model_max_length", "max_seq_len", "block_size"),
)
TABLE = (
    *trainer.TABLE,
    replace(trainer.CHECKPOINTING, default=True),
    LENGTH,
    Argument("activation_offloading", "offload", words={True: "activations", False: None}),
)
UNREAD = unread("trl")
_GENERATES = "generation is not part of the estimate, which covers only a training step"
_FROZEN = adapted.Frozen(stack="trl", doubled="use_bnb_nested_quant", default_doubled=False)
_GENERATING = ("num_generations", "reward_funcs", "max_completion_length")
_PAIRED = ("max_prompt_length", "precompute_ref_log_probs", "beta", "rpo_alpha")
# of DPO, ORPO, CPO and KTO alike: the name that the run has among them says which
_SHARED = ("beta", "max_prompt_length")
_RUNS = ("output_dir", "hub_model_id", "run_name")
_NAMED = re.compile(r"(?<![a-z])(dpo|orpo|kto)(?![a-z])")
_WEIGHTED = ("desirable_weight", "undesirable_weight")
_OF_REWARDS = "center_rewards_coefficient"  # of only RewardConfig
_TEACHER = taught.Names()


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    sharding.read_sharding(answer)
    trainer.read_precision(answer)
    trainer.read_subspace(answer)
    switches = ("bf16", "fp16", trainer_script.UNSLOTH)  # Unsloth's is what the card has
    if not any(name in values for name in switches):
        answer.imply("precision", "bf16", "bf16 is on by default")
    _task(answer)
    _lengths(answer)
    trainer.read_liger(answer, "use_liger_kernel")
    if answer.option("task") in _FUSED_HEAD and not answer.option("loss_kernel"):
        answer.notes.append(
            "TRL 1.16 and later compute the loss in tiles of the head and hold no logits, which are"
            " counted here: --loss-kernel tiled leaves them out"
        )
    wrapped = answer.get("packing_strategy") == "wrapped"
    read_rows(answer, Rows(packed=(), joined=("packing",)) if wrapped else Rows())
    answer.mark("padding_free", "implied", "as long as the documents are: --seq-len says how long")
    trainer.read_degrees(answer)
    adapted.read(answer, adapted.Names(), "use_peft")
    adapted.read_frozen(answer, _FROZEN)
    trainer_script.read(answer)
    _loaded(answer)
    if answer.option("teacher") and (base := answer.option("base_precision")):
        answer.imply("teacher_precision", base, "gkd.py loads the teacher as its student")
    trainer.mark_off(answer, UNREAD["lacks"])


# objectives whose trainers have add_fused_lm_head of trl/trainer/utils.py
_FUSED_HEAD = (None, "sft", "dpo", "kto")
_OBJECTIVES = {"dpo": "dpo", "kto": "kto", "orpo": "orpo", "reward": "reward", "gkd": "distil"}


def _task(answer: Answer) -> None:
    """The objective: by the trainer that a script starts, or by arguments that only it has.
    Trainers that generate are not read."""
    given, name = answer.values, trainer_script.OBJECTIVE
    word = str(answer.get(name, "")).lower()
    task = _OBJECTIVES.get(word, "")
    if word and not task:
        generates = word in trainer_script.TASKS and word != "sft"
        answer.mark(name, "not understood" if generates else "read", _GENERATES * generates)
    if taught.read(answer, _TEACHER):
        return
    if any(name in given for name in _GENERATING) or word in _ALGORITHMS:
        _whole_step(answer, _ALGORITHMS.get(word, "grpo"))
        return
    weights = [name for name in _WEIGHTED if name in given]
    pairs = [name for name in _PAIRED if name in given]
    if task:
        answer.state("task", task, name)
    elif _OF_REWARDS in given:
        task = "reward"
        answer.imply("task", task, "an argument of models of rewards", _OF_REWARDS)
    elif weights or pairs:
        task = "kto" if weights else _of_pairs(answer, pairs)
        if task:
            answer.imply("task", task, "arguments of preference tuning", *weights, *pairs)
    if task in ("dpo", "kto"):
        answer.arguments.pop("precompute_ref_log_probs", None)
    if task:
        trainer.read_pairs(answer, trainer.BATCH[0].default)


# trainers that generate with this policy's weights, by the word of a script
_ALGORITHMS = {"grpo": "grpo", "rloo": "rloo"}
_RESPONSES = {"grpo": 8, "rloo": 2}  # num_generations by default
_LONGEST = 512  # max_completion_length by default
_BETA = {"grpo": 0.0, "rloo": 0.05}  # weight of the reference by default
_ENGINES = {False: "transformers", True: "vllm"}


_NUMBERS = {  # arguments that state an option of `dpplan rl`
    "prompts": (
        *("generation_batch_size", "per_device_train_batch_size"),
        *("gradient_accumulation_steps", "steps_per_generation"),
    ),
    "responses": ("num_generations",),
    "response_max": ("max_completion_length",),
    "updates": ("num_iterations",),
    "generation_tp": ("vllm_tensor_parallel_size",),
}


def _whole_step(answer: Answer, algorithm: str) -> None:
    """Generation beside the policy's optimizer step, in options of `dpplan rl`: sequences are
    counted for each GPU (grpo_trainer.py: generation_batch_size)."""
    each = trainer.number(answer, "per_device_train_batch_size", 8)
    accumulated = trainer.number(answer, "gradient_accumulation_steps", 1)
    steps = trainer.number(answer, "steps_per_generation", accumulated)
    responses = trainer.number(answer, "num_generations", _RESPONSES[algorithm])
    whole = trainer.number(answer, "generation_batch_size", 0)
    by_server = str(answer.get("vllm_mode", "")).lower() == "server"
    by_vllm = trainer.is_on(answer, "use_vllm")
    rl.say(
        answer,
        {
            "framework": "trl",
            "algorithm": algorithm,
            "prompts": max(1, whole // responses) if whole else PerGpu(each * steps / responses),
            "responses": responses,
            "response_max": trainer.number(answer, "max_completion_length", _LONGEST),
            "updates": trainer.number(answer, "num_iterations", 1),
            "update_batch": PerGpu(each * accumulated),
            "reference": "yes" if _positive(answer.get("beta", _BETA[algorithm])) else "no",
            "generation_engine": _ENGINES[by_vllm],
            "generation_tp": trainer.number(answer, "vllm_tensor_parallel_size", 1),
            "generation_memory": answer.get("vllm_gpu_memory_utilization") if by_vllm else None,
            "micro_batch": None,  # sequences, not packed rows
            "grad_accum": None,
        },
        "this is the policy's optimizer step",
        _NUMBERS,
    )
    if by_vllm and by_server:
        answer.notes.append("vllm_mode server: --generation-gpus says how many GPUs it has")


def _positive(number: object) -> bool:
    return isinstance(number, int | float) and number > 0


_LOADED = ("dtype", "torch_dtype", "model_init_kwargs.dtype", "model_init_kwargs.torch_dtype")


def _loaded(answer: Answer) -> None:
    """The type of frozen weights where nothing says it: ModelConfig of TRL loads float32, which
    only DeepSpeed converts; what a script loads itself depends on the release of transformers."""
    is_stated = any(answer.get(name) is not None for name in (*_LOADED, trainer_script.UNSLOTH))
    converts = answer.option("stack") in sharding.BY_DEEPSPEED
    if not answer.option("lora") or answer.option("base_precision") or is_stated or converts:
        return
    if any(value.file.endswith((".py", ".ipynb")) for value in answer.values.values()):
        answer.notes.append(
            "no dtype: transformers 5 loads the frozen weights as the checkpoint has them, and"
            " transformers 4 in float32, twice the memory: --base-precision fp32"
        )
    else:
        note = "no dtype: TRL loads the frozen weights in float32; dtype: bfloat16 halves them"
        answer.imply("base_precision", "fp32", note)
        answer.notes.append(note)


def _of_pairs(answer: Answer, pairs: list[str]) -> str:
    """DPO by arguments that only it has, else what the name of the run says, "" where it does
    not."""
    runs = " ".join(str(answer.get(name, "")) for name in _RUNS).lower()
    named = set(_NAMED.findall(runs))
    if len(named) == 1:
        return named.pop()
    if any(pair not in _SHARED for pair in pairs) or "loss_type" in answer.values:
        return "dpo"
    for pair in pairs:
        answer.mark(pair, "not understood", "DPO, ORPO and KTO have it: --task says which")
    return ""


def _lengths(answer: Answer) -> None:
    """Length of prompt and completion together, where these two are stated."""
    prompt, completion = (
        trainer.number(answer, f"max_{name}_length", 0) for name in ("prompt", "completion")
    )
    if completion and answer.get("max_length") is None:
        length = prompt + completion
        note = "prompt and completion together"
        answer.imply("seq_len", length, note, "max_prompt_length", "max_completion_length")


def write(options: Mapping[str, Any]) -> str:
    config = trainer.written(TABLE, trainer.of_examples(options)) | trainer.types(options, "dtype")
    config |= trainer.subspace_of(options) | _objective(options)
    config |= sharding.written(options)
    config |= trainer.liger_of(options, "use_liger_kernel")
    if options.get("lora"):
        config |= {"use_peft": True} | adapted.written(options, adapted.Names())
        config |= adapted.written_frozen(options, _FROZEN)
        if options.get("base_precision") is None:  # which the default, float32, is not
            config.setdefault("dtype", "bfloat16")
    return trainer.as_yaml(config)


def _objective(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that only one objective has; its script tells the rest."""
    usual: dict[str, dict[str, Any]] = {
        "dpo": {"beta": 0.1, "loss_type": "sigmoid"},  # the loss of its paper, 2305.18290
        "kto": {"beta": 0.1, "desirable_weight": 1.0},
        "reward": {_OF_REWARDS: 0.01},
    }
    task = trainer.task_of(options, "")
    task.pop("", None)
    return usual.get(str(options.get("task")), {}) | task | taught.written(options, _TEACHER)


_CHECKOUT = "${TRL:?where the checkout of TRL is}"  # of which it has no module


def starts(request: PlanToWrite) -> str:
    """The script of an objective."""
    task = request.get("task")
    if task == "distil":
        return f'"{_CHECKOUT}/examples/scripts/gkd.py" --config "$RECIPE/train.yaml"'
    script = task if task in ("dpo", "kto", "reward") else "sft"
    return f'-m trl.scripts.{script} --config "$RECIPE/train.yaml"'


_has_own_keys = trainer.has_key(
    *("max_length", "max_prompt_length", "max_completion_length", "num_generations", "use_peft"),
    *("dataset_mixture", "dataset_mixer", "dataset_text_field", "reward_funcs", "packing"),
    *("dataset_name", "dataset_num_proc", "completion_only_loss", "dataset_train_split"),
)
_is_trainer = trainer.has_key("per_device_train_batch_size", "model_name_or_path")
_OTHERS = re.compile(
    r"^\s*\"?(finetuning_type|cutoff_len|base_model|dist_config|distributed_type|tuner_type|"
    r"template)\"?\s*:",
    re.MULTILINE,
)
FORMAT = Format(
    kind="trl",
    title="TRL and Unsloth (YAML, commands, Python)",
    detect=lambda name, text: (
        (_is_trainer(name, text) and _has_own_keys(name, text) and not _OTHERS.search(text))
        or trainer_script.is_of(trainer_script.TRL, name, text)
    ),
    parse=trainer_script.parse,
    table=TABLE,
    read_more=read_more,
    added=dialects.added,
    left=dialects.irrelevant,
    **UNREAD,
)

TARGET = written.target("trl", "TRL", write, "-m trl.scripts.sft --config {}", starts=starts)
