"""Truths of files of programs of reinforcement learning: the optimizer step of the policy."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from benchmarks.corpus.fetch import File
from benchmarks.corpus.given import Given, Truth, command_of, flags, on

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def _inside(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _resolved(values: dict[str, Any], path: str) -> Any:
    """A value below dotted names, of another place where it is ${a.b}."""
    value = _inside(values, path)
    for _ in range(5):
        match = _REFERENCE.fullmatch(str(value))
        if match is None:
            break
        value = _inside(values, match[1])
    return value


def nemo_rl(file: File) -> list[Truth]:
    """NeMo-RL's YAML, which stands whole where it has no `defaults`, another file."""
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    complete = "defaults" not in values
    policy = values["policy"]
    given = Given(policy)
    pairs = 2 if "dpo" in values else 1  # algorithms/dpo.py: gbs and mbs * 2
    micro = policy.get("train_micro_batch_size")
    if isinstance(micro, int) and not on(_inside(policy, "dynamic_batching.enabled")):
        given.say("micro_batch", micro * pairs, "policy.train_micro_batch_size")
    given.say("seq_len", policy.get("max_total_sequence_length"), "max_total_sequence_length")
    given.say("model", policy.get("model_name"), "policy.model_name")
    cluster = values.get("cluster") or {}
    if complete:
        sharded = policy["dtensor_cfg"]
        given.say("gpus", cluster["gpus_per_node"] * cluster["num_nodes"], "cluster")
        tensors = sharded["tensor_parallel_size"] if on(sharded["enabled"]) else 1
        given.say("tp", tensors, "policy.dtensor_cfg.tensor_parallel_size")
        given.say("zero", 3, "fully_shard and FSDP(FULL_SHARD) of the two workers")
        given.say("precision", {"bfloat16": "bf16"}.get(policy["precision"]), "policy.precision")
        given.say("lora", 0, "no adapters in this release")
        if not on(sharded["enabled"]):
            kept = on(policy["activation_checkpointing_enabled"])
            given.say("recompute", "full" if kept else "none", "activation_checkpointing_enabled")
        else:
            kept = on(sharded["activation_checkpointing"])
            given.say("recompute", "mlp" if kept else "none", "of the MLP, parallelize.py")
    if "torch.optim.AdamW" in str(policy.get("optimizer")):
        given.say("optimizer", "adam", "policy.optimizer.name")
    return given.out


def slime(file: File) -> list[Truth]:
    """slime's script: Megatron-LM's arguments, and the GPUs of the actor."""
    given = Given(flags(command_of(file, "train")))
    get = given.get
    for option, name in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context")):
        suffix = "" if name == "context" else "_model"
        given.number(option, f"{name}{suffix}_parallel_size", 1, "Megatron-LM")
    given.number("ep", "expert_model_parallel_size", 1, "Megatron-LM")
    nodes, each = get("actor_num_nodes"), get("actor_num_gpus_per_node")
    if isinstance(nodes, int) and isinstance(each, int):
        given.say("gpus", nodes * each, "--actor-num-nodes x --actor-num-gpus-per-node")
    given.say("zero", 1, "backends/megatron_utils/arguments.py: use_distributed_optimizer = True")
    given.say("precision", "bf16", "backends/megatron_utils/arguments.py: bf16 unless --fp16")
    if get("recompute_granularity") == "full" and get("recompute_method") == "uniform":
        count = get("recompute_num_layers", default=1)
        given.say("recompute", "full" if count == 1 else f"group:{count}", "--recompute-*")
    elif get("recompute_granularity") is None:
        given.say("recompute", "none", "no --recompute-granularity")
    if get("optimizer") == "adam":
        given.say("optimizer", "adam", "--optimizer")
    return given.out


def roll(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    actor = values["actor_train"]
    given = Given(actor["training_args"])
    pairs = 2 if "chosen_key" in values else 1  # dpo_config.py: *= 2
    micro = given.get("per_device_train_batch_size")
    if isinstance(micro, int) and not on(actor.get("use_dynamic_batching_in_train")):
        given.say("micro_batch", micro * pairs, "per_device_train_batch_size")
    given.number("grad_accum", "gradient_accumulation_steps")
    given.say("model", values.get("pretrain"), "pretrain")
    length = _resolved(values, "sequence_length")
    if length is None and isinstance(values.get("response_length"), int):
        length = values["response_length"] + values["prompt_length"]
    given.say("seq_len", length, "sequence_length, or prompt_length + response_length")
    spread = re.fullmatch(r"list\(range\((\d+), ?(\d+)\)\)", str(actor.get("device_mapping")))
    if spread:
        given.say("gpus", int(spread[2]) - int(spread[1]), "actor_train.device_mapping")
    config = actor["strategy_args"].get("strategy_config")
    if actor["strategy_args"]["strategy_name"] == "megatron_train":
        for option, name in (("tp", "tensor_model"), ("pp", "pipeline_model"), ("cp", "context")):
            given.say(option, config.get(f"{name}_parallel_size", 1), f"{name}_parallel_size")
        given.say("ep", config.get("expert_model_parallel_size", 1), "expert_model_parallel_size")
        sharded = on(config.get("use_distributed_optimizer"))
        given.say("zero", int(sharded), "use_distributed_optimizer")
        if config.get("recompute_granularity") == "full":
            given.say("recompute", "full", "recompute_granularity")
    dtype = (actor.get("model_args") or {}).get("dtype")
    given.say("precision", dtype if dtype in ("bf16", "fp16") else None, "actor_train.dtype")
    rank = (actor.get("model_args") or {}).get("lora_rank")
    given.say("lora", rank or 0, "actor_train.model_args.lora_rank")
    return given.out


def areal(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    actor = values.get("actor") or values.get("rw") or values.get("model")
    given = Given(actor)
    given.say("model", actor.get("path"), "actor.path")
    checkpoints = on(actor.get("gradient_checkpointing"))
    given.say("recompute", "full" if checkpoints else "none", "gradient_checkpointing, off")
    if _inside(actor, "archon.fp8_config.mode") is None:
        given.say("precision", {"bfloat16": "bf16"}.get(actor.get("dtype")), "actor.dtype")
    switch = _resolved(values, "actor.use_lora")
    given.say("lora", actor.get("lora_rank", 32) if on(switch) else 0, "actor.use_lora")
    name, _, degrees = str(actor.get("backend", "")).partition(":")
    if degrees and "(" not in degrees:
        sizes = {letter: int(n) for letter, n in re.findall(r"([a-z])(\d+)", degrees)}
        gpus = 1
        for letter in "dtpc":
            gpus *= sizes.get(letter, 1)
        given.say("gpus", gpus, "actor.backend: product of d, t, p and c")
        for option, letter in (("tp", "t"), ("pp", "p"), ("cp", "c")):
            given.say(option, sizes.get(letter, 1), "actor.backend")
        if name == "fsdp":
            given.say("zero", 3, "fully_shard of the FSDP engine")
    if _inside(actor, "optimizer.type") in ("adam", "adamw"):
        given.say("optimizer", "adam", "actor.optimizer.type")
    return given.out


def skyrl(file: File) -> list[Truth]:
    given = Given(flags(command_of(file, "skyrl") or command_of(file)))
    get = given.get
    if get("trainer.policy.model.path") is None:
        return []
    program = "skyrl/train/config/config.py"
    given.say("model", get("trainer.policy.model.path"), "trainer.policy.model.path")
    each = get("trainer.placement.policy_num_gpus_per_node", default=1)
    nodes = get("trainer.placement.policy_num_nodes", default=1)
    if isinstance(each, int) and isinstance(nodes, int):
        given.say("gpus", each * nodes, "trainer.placement.policy_num_*")
    given.number("micro_batch", "trainer.micro_train_batch_size_per_gpu", 1, program)
    given.number("lora", "trainer.policy.model.lora.rank", 0, program)
    given.say("precision", "bf16" if get("trainer.bf16") is None else None, f"default of {program}")
    if get("trainer.strategy", default="fsdp") == "megatron":
        for option, name in (("tp", "tensor_model"), ("pp", "pipeline_model"), ("cp", "context")):
            given.number(option, f"trainer.policy.megatron_config.{name}_parallel_size", 1, program)
    else:
        given.say("zero", 3, "trainer.strategy: FSDP2")
        checkpoints = get("trainer.gradient_checkpointing", default=True)
        given.say("recompute", "full" if on(checkpoints) else "none", f"on in {program}")
    return given.out


def prime_rl(file: File) -> list[Truth]:
    values = tomllib.loads(file.cached.read_text("utf-8"))
    given = Given({})
    data = values.get("data") or {}
    given.say("seq_len", data.get("seq_len", values.get("seq_len")), "seq_len")
    given.say("global_batch", data.get("batch_size"), "data.batch_size")
    given.say("model", _inside(values, "model.name"), "model.name")
    gpus = _inside(values, "deployment.num_train_gpus")
    given.say("gpus", gpus, "deployment.num_train_gpus")
    return given.out
