"""ROLL's YAML: preferences and supervised fine-tuning, and of reinforcement learning the policy.

Names and defaults: roll/configs of alibaba/ROLL@8eb27cc2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from planner.formats import sharding, trainer
from planner.formats.record import Answer, Argument, Format, Value, unread

_DETECT = (
    re.compile(r"(?m)^(?:actor_train|sft_train|student)[ \t]*:"),
    re.compile(r"(?m)^[ \t]+strategy_args[ \t]*:"),
)
_POLICY = ("actor_train.", "sft_train.", "student.")
_RANGE = re.compile(r"list\(range\((\d{1,6}), ?(\d{1,6})\)\)")
_STAGE = re.compile(r"deepspeed_zero([0-3])")
_TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
_CONFIG = "strategy_args.strategy_config."
_NAME = "strategy_args.strategy_name"
_DEGREES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}
_PAIR = 2  # sequences of an example of preferences
_TABLE = (
    Argument("training_args.per_device_train_batch_size", "micro_batch", meaning=trainer.whole),
    Argument("training_args.gradient_accumulation_steps", "grad_accum", meaning=trainer.whole),
    Argument("model_args.dtype", "precision", words=_TYPES),
    Argument("pretrain", "model", meaning=trainer.model_name),
)


def _parse(text: str) -> Mapping[str, Value]:
    """The policy's arguments without its name before them, the others by their path."""
    out: dict[str, Value] = {}
    for path, value in trainer.resolved(trainer.parse(text)).items():
        before = next((word for word in _POLICY if path.startswith(word)), "")
        out[path.removeprefix(before)] = value
    return out


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    spread = _RANGE.fullmatch(str(answer.get("device_mapping", "")))
    if spread:
        gpus = int(spread[2]) - int(spread[1])
        answer.state("gpus", gpus, "device_mapping")
        each = answer.get("num_gpus_per_node")
        if isinstance(each, int) and 0 < each <= gpus:
            answer.imply("gpus_per_node", each, "GPUs of a node", "num_gpus_per_node")
    answer.mark("num_gpus_per_node", "irrelevant", "of the cluster")
    _length(answer)
    kind = str(answer.get(_NAME, ""))
    if kind.startswith("megatron"):
        _of_megatron(answer)
    elif kind.startswith(("deepspeed", "fsdp")):
        _of_torch(values, answer, kind)
    else:
        answer.mark(_NAME, "not understood", "is not a training strategy")
    answer.mark(_NAME, "read")
    _adapters(answer)
    if "chosen_key" in values:
        answer.imply("task", "dpo", "its keys of pairs", "chosen_key")
        stated = answer.options.get("micro_batch")
        if stated is not None:
            answer.options["micro_batch"] = replace(stated, value=stated.value * _PAIR)
    if trainer.is_on(answer, "use_dynamic_batching_in_train"):
        name = "use_dynamic_batching_in_train"
        answer.drop("micro_batch")
        answer.mark(name, "not understood", "micro-batches of as many tokens: --micro-batch")
    trainer.mark_empty(answer)


def _length(answer: Answer) -> None:
    prompt, response = answer.get("prompt_length"), answer.get("response_length")
    if isinstance(answer.get("sequence_length"), int):
        answer.state("seq_len", answer.get("sequence_length"), "sequence_length")
    elif isinstance(prompt, int) and isinstance(response, int):
        names = ("prompt_length", "response_length")
        answer.imply("seq_len", prompt + response, "the longest prompt and answer", *names)


def _of_megatron(answer: Answer) -> None:
    answer.imply("stack", "megatron-core", "its Megatron strategy")
    for option, word in _DEGREES.items():
        name = f"{_CONFIG}{word}"
        if isinstance(answer.get(name), int) and (answer.get(name) > 1 or option in ("tp", "pp")):
            answer.state(option, answer.get(name), name)
        answer.mark(name, "implied", "1")
    for option in ("tp", "pp", "cp"):
        answer.imply(option, 1, "1 where it is not given")
    if (answer.option("pp") or 1) > 1:
        chunks = (answer.option("vpp") or 1) > 1
        answer.imply("schedule", "interleaved" if chunks else "1f1b", "by its chunks per rank")
    name = f"{_CONFIG}sequence_parallel"
    if (answer.option("tp") or 1) > 1:
        answer.imply("sequence_parallel", trainer.is_on(answer, name), "off by default", name)
    answer.mark(name, "irrelevant", "no tensor parallelism")
    name = f"{_CONFIG}use_distributed_optimizer"
    answer.imply("zero", int(trainer.is_on(answer, name)), "off by default", name)
    granularity, method = f"{_CONFIG}recompute_granularity", f"{_CONFIG}recompute_method"
    count = f"{_CONFIG}recompute_num_layers"
    experts = f"{_CONFIG}moe_layer_recompute"
    layers = answer.get(count, 1)
    if answer.get(granularity) == "full":
        block = answer.get(method) == "block"
        word = f"block:{layers}" if block else "full" if layers == 1 else f"group:{layers}"
        answer.imply("recompute", word, "as Megatron-Core has it", granularity, method, count)
    elif answer.get(granularity) == "selective":
        answer.state("recompute", "selective", granularity)
    elif trainer.is_on(answer, experts):
        answer.mark(experts, "not understood", "repeats layers of experts: --recompute")
    else:
        answer.imply("recompute", "none", "off by default")
    answer.mark(experts, "implied", "off, or whole layers are repeated")
    answer.mark("model_args.disable_gradient_checkpointing", "irrelevant", "not of Megatron")


def _of_torch(values: Mapping[str, Value], answer: Answer, kind: str) -> None:
    whole = _CONFIG.rstrip(".")
    if kind.startswith("deepspeed"):
        answer.imply("stack", "hf-deepspeed", "its DeepSpeed strategy")
        stage = _STAGE.search(str(values[whole].value)) if whole in values else None
        inside = f"{_CONFIG}zero_optimization.stage"
        if stage:
            answer.values = {**answer.values, whole: Value(stage[0], values[whole].line)}
            answer.state("zero", int(stage[1]), whole, "by its name")
        elif isinstance(answer.get(inside), int):
            answer.state("zero", answer.get(inside), inside)
    else:
        answer.imply("stack", "hf-fsdp", "its FSDP 2 strategy")
        answer.imply("zero", sharding.PARAMETERS, "fully_shard of every layer", whole)
    for option in ("tp", "pp"):
        answer.imply(option, 1, "every GPU computes whole layers")
    answer.imply("cp", answer.get("model_args.ulysses_size", 1), "Ulysses, 1 by default")
    answer.mark("model_args.ulysses_size", "read")
    name = "model_args.disable_gradient_checkpointing"
    kept = not trainer.is_on(answer, name)
    answer.imply("recompute", "full" if kept else "none", "on by default", name)


def _adapters(answer: Answer) -> None:
    rank = "model_args.lora_rank"
    if isinstance(answer.get(rank), int):
        answer.state("lora", answer.get(rank), rank)
        targets = "model_args.lora_target"
        every = "all" in str(answer.get(targets, "all"))
        if every:
            answer.imply("lora_targets", "all-linear", "all matrices", targets)
        else:
            words = [word.strip() for word in str(answer.get(targets)).split(",")]
            answer.imply("lora_targets", "+".join(words), "", targets)


FORMAT = Format(
    kind="roll",
    title="ROLL YAML",
    detect=trainer.detector(*_DETECT),
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("roll"),
)
