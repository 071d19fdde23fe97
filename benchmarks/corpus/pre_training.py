"""Truths of files of programs that pre-train, and of verl."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from benchmarks.corpus.fetch import File
from benchmarks.corpus.given import Given, Truth, command_of, flags, gpus_of, on

_VARIED = "arguments.py of the fork"


def megatron(file: File) -> list[Truth]:
    words = command_of(file)
    if not words:
        return []
    given = Given(flags(words, "_"))
    get = given.get
    given.out += gpus_of(words, file)
    given.number("tp", "tensor_model_parallel_size model_parallel_size", 1, _VARIED)
    given.number("pp", "pipeline_model_parallel_size", 1, _VARIED)
    given.number("cp", "context_parallel_size ds_sequence_parallel_size", 1, _VARIED)
    given.number("micro_batch", "micro_batch_size batch_size")
    given.number("global_batch", "global_batch_size")
    given.number("seq_len", "seq_length encoder_seq_length")
    if get("num_experts") is not None:
        given.number("ep", "expert_model_parallel_size moe_expert_parallel_size", 1, _VARIED)
    precision = "bf16" if get("bf16") else "fp16" if get("fp16") else "fp32"
    if not (get("fp8_format") or (get("deepspeed_config") and precision == "fp32")):
        given.say("precision", precision, "--bf16, --fp16, else params_dtype is fp32")
    _megatron_zero(given)
    _megatron_recompute(given)
    if get("optimizer") in (None, "adam"):
        given.say("optimizer", "adam", "--optimizer, default adam")
    given.number("model.layers", "num_layers")
    given.number("model.hidden", "hidden_size")
    given.number("model.heads", "num_attention_heads")
    given.number("model.ffn_hidden", "ffn_hidden_size")
    gated = bool(get("swiglu", "quick_geglu")) or get("glu_activation") is not None
    given.say("model.mlp", "gated" if gated else "plain", "--swiglu, --glu-activation")
    heads = get("num_attention_heads")
    if get("group_query_attention"):
        given.number("model.kv_heads", "num_query_groups")
    elif get("attention_head_type") == "multiquery":
        given.say("model.kv_heads", 1, "--attention-head-type multiquery")
    elif get("num_key_value_heads", "num_attention_heads_kv") is None:
        given.say("model.kv_heads", heads, "no grouped queries")
    else:
        given.number("model.kv_heads", "num_key_value_heads num_attention_heads_kv")
    return given.out


def _megatron_zero(given: Given) -> None:
    get = given.get
    if get("use_megatron_fsdp", "use_torch_fsdp2", "use_custom_fsdp"):
        return
    if get("deepspeed"):
        stage = get("zero_stage", default=1)
        if stage == 0 and get("bf16"):
            given.say("zero", 1, "BF16_Optimizer of DeepSpeed shards the fp32 states")
        elif stage != "":
            given.say("zero", stage, "--zero-stage, default 1.0")
    else:
        sharded = bool(get("use_distributed_optimizer"))
        given.say("zero", int(sharded), "--use-distributed-optimizer")


def _megatron_recompute(given: Given) -> None:
    get = given.get
    kind = get("recompute_granularity") or ("selective" if get("recompute_activations") else None)
    count = get("recompute_num_layers", "checkpoint_num_layers", default=1)
    if get("recompute_modules"):
        return
    if kind == "full" and get("recompute_method") == "block":
        given.say("recompute", f"block:{count}", "--recompute-method block")
    elif kind == "full":
        text = "full" if count == 1 else f"group:{count}"
        given.say("recompute", text, "--recompute-granularity full")
    elif kind:
        given.say("recompute", kind, "--recompute-granularity")
    elif get("activations_checkpoint_method", "checkpoint_activations_method") == "block":
        count = get("activations_checkpoint_num_layers", default=count)
        given.say("recompute", f"block:{count}", "--activations-checkpoint-method block")
    elif get("checkpoint_activations", "activations_checkpoint_method"):
        count = get("activations_checkpoint_num_layers", default=count)
        text = "full" if count == 1 else f"group:{count}"
        given.say("recompute", text, "--checkpoint-activations")
    else:
        given.say("recompute", "none", "neither --recompute-* nor --checkpoint-activations")


def litgpt(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    train = values["train"]
    given = Given(train)
    program = "litgpt/args.py TrainArgs"
    given.number("global_batch", "global_batch_size", 64, program)
    given.number("micro_batch", "micro_batch_size", 4, program)
    given.number("seq_len", "max_seq_length")
    if isinstance(values.get("devices"), int):
        gpus = values["devices"] * values.get("num_nodes", 1)
        given.say("gpus", gpus, "devices x num_nodes")
    rank = values.get("lora_r")
    given.say("lora", rank if rank else 0, "lora_r; full.yaml trains all weights")
    precision = {"bf16-true": "bf16", "16-true": "fp16", "bf16-mixed": "bf16"}
    given.say("precision", precision.get(str(values.get("precision"))), "precision")
    if str(values.get("quantize")).startswith("bnb.nf4"):
        given.say("frozen_bits", 4, "quantize")
    if values.get("devices") == 1:
        given.say("zero", 0, "one device: no FSDP")
        given.say("recompute", "none", "one device: only the FSDP strategy checkpoints blocks")
    elif rank is None and "/finetune/" in file.path:
        given.say("zero", 3, "FSDPStrategy of finetune/full.py")
        given.say("recompute", "full", "activation_checkpointing_policy={Block} of full.py")
    given.say("optimizer", "adam", "optimizer: AdamW")
    checkpoint = str(values.get("checkpoint_dir", ""))
    if checkpoint.startswith("checkpoints/"):
        given.say("model", checkpoint.removeprefix("checkpoints/"), "checkpoint_dir")
    return given.out


def olmo(file: File) -> list[Truth]:
    text = re.sub(r"\$\{path\.choose:[^}]*\}", "chosen", file.cached.read_text("utf-8"))
    values = yaml.safe_load(text)
    given = Given(values)
    program = "olmo/config.py TrainConfig"
    given.number("global_batch", "global_train_batch_size", 512, program)
    given.number("micro_batch", "device_train_microbatch_size", 16, program)
    model = values["model"]
    given.say("seq_len", model.get("max_sequence_length", 1024), "model.max_sequence_length")
    precision = {"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"}
    given.say("precision", precision.get(str(values.get("precision"))), "precision")
    checkpoints = values.get("activation_checkpointing")
    if checkpoints in (None, "whole_layer"):
        given.say("recompute", "full" if checkpoints else "none", "activation_checkpointing, none")
    fsdp = values.get("fsdp") or {}
    if values.get("distributed_strategy", "fsdp") == "fsdp":
        stage = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3}
        strategy = str(fsdp.get("sharding_strategy", "FULL_SHARD"))
        given.say("zero", stage.get(strategy), "fsdp.sharding_strategy, FULL_SHARD")
    else:
        given.say("zero", 0, "distributed_strategy")
    given.say("model.layers", model["n_layers"], "model.n_layers")
    given.say("model.hidden", model["d_model"], "model.d_model")
    given.say("model.heads", model["n_heads"], "model.n_heads")
    if values["optimizer"].get("name") == "adamw":
        given.say("optimizer", "adam", "optimizer.name")
    if model.get("mlp_hidden_size") and model.get("activation_type") == "swiglu":
        given.say("model.ffn_hidden", model["mlp_hidden_size"] // 2, "mlp_hidden_size: both gates")
    return given.out


def llm_foundry(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    variables = values.get("variables") or {}

    def plain(value: Any) -> Any:
        match = re.fullmatch(r"\$\{(?:variables\.)?(\w+)\}", str(value))
        return variables.get(match[1], values.get(match[1])) if match else value

    values = {name: plain(value) for name, value in values.items()}
    given = Given(values)
    given.number("global_batch", "global_train_batch_size")
    given.number("micro_batch", "device_train_microbatch_size")
    given.number("seq_len", "max_seq_len")
    precision = {"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"}
    given.say("precision", precision.get(str(values.get("precision", "amp_bf16"))), "precision")
    fsdp = values.get("fsdp_config")
    if fsdp:
        stage = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3}
        given.say("zero", stage.get(fsdp.get("sharding_strategy", "FULL_SHARD")), "fsdp_config")
        checkpoints = on(fsdp.get("activation_checkpointing"))
        given.say("recompute", "full" if checkpoints else "none", "activation_checkpointing, off")
    model = {name: plain(value) for name, value in values["model"].items()}
    if model["name"] == "mpt_causal_lm" and "d_model" in model:
        given.say("model.layers", model["n_layers"], "model.n_layers")
        given.say("model.hidden", model["d_model"], "model.d_model")
        given.say("model.heads", model["n_heads"], "model.n_heads")
    elif isinstance(model.get("pretrained_model_name_or_path"), str):
        given.say("model", model["pretrained_model_name_or_path"], "pretrained_model_name_or_path")
    peft = model.get("peft_config")
    given.say("lora", peft["r"] if peft else 0, "model.peft_config.r, no adapters without")
    if values["optimizer"]["name"] in ("decoupled_adamw", "adamw"):
        given.say("optimizer", "adam", "optimizer.name")
    return given.out


def kempnerforge(file: File) -> list[Truth]:
    values = tomllib.loads(file.cached.read_text("utf-8"))
    train, distributed, model = values["train"], values.get("distributed", {}), values["model"]
    given = Given({**train, **distributed})
    program = "kempnerforge/config"
    given.number("micro_batch", "batch_size", 8, program)
    given.number("seq_len", "seq_len", 2048, program)
    given.number("grad_accum", "grad_accum_steps", 1, program)
    for name in ("tp", "pp", "cp"):
        given.number(name, name, 1, program)
    precision = train.get("mixed_precision", "bf16")
    if precision != "fp8":
        given.say("precision", precision, "mixed_precision, bf16")
    checkpoints = train.get("activation_checkpointing", "none")
    given.say("recompute", checkpoints, "activation_checkpointing, none")
    given.say("model.layers", model["n_layers"], "model.n_layers")
    given.say("model.hidden", model["dim"], "model.dim")
    given.say("model.heads", model["n_heads"], "model.n_heads")
    names = {"adamw": "adam", "muon": "muon"}
    given.say("optimizer", names.get(values.get("optimizer", {}).get("name", "adamw")), "optimizer")
    degrees = [distributed.get(name, 1) for name in ("dp_replicate", "tp", "pp", "cp", "ep")]
    if distributed.get("dp_shard", -1) > 0:
        whole = distributed["dp_shard"]
        for degree in degrees:
            whole *= degree
        given.say("gpus", whole, "product of the degrees, which must be the world size")
    return given.out


def nemo(file: File) -> list[Truth]:
    """NeMo 1's YAML; NeMo-Aligner's is without the configuration of the checkpoint."""
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    model, outer = values["model"], values["trainer"]
    given = Given(model)
    pairs = 2 if "dpo" in file.path else 1
    if "kto" not in file.path:
        given.say("micro_batch", model.get("micro_batch_size", 1) * pairs, "model.micro_batch_size")
    if isinstance(outer.get("num_nodes"), int) and isinstance(outer.get("devices"), int):
        given.say("gpus", outer["num_nodes"] * outer["devices"], "trainer.num_nodes x devices")
    named = {"bf16-mixed": "bf16", "16-mixed": "fp16", 16: "fp16", "16": "fp16"}
    precision = outer["precision"]
    eight = "fp8" if model.get("fp8") else named.get(precision, precision)
    given.say("precision", eight, "model.fp8, trainer.precision")
    scheme = (model.get("peft") or {}).get("peft_scheme")
    given.say("lora", 0 if scheme in ("none", None) else None, "model.peft.peft_scheme")
    if "num_layers" not in model:
        return given.out
    given.number("global_batch", "global_batch_size")
    given.number("seq_len", "encoder_seq_length")
    given.number("tp", "tensor_model_parallel_size")
    given.number("pp", "pipeline_model_parallel_size")
    given.number("vpp", "virtual_pipeline_model_parallel_size")
    given.number("cp", "context_parallel_size")
    given.number("model.layers", "num_layers")
    given.number("model.hidden", "hidden_size")
    given.number("model.heads", "num_attention_heads")
    given.number("model.ffn_hidden", "ffn_hidden_size")
    given.number("model.kv_heads", "num_query_groups", model["num_attention_heads"], "NeMo")
    gated = "swiglu" in str(model.get("activation"))
    given.say("model.mlp", "gated" if gated else "plain", "model.activation")
    kind = model.get("activations_checkpoint_granularity")
    given.say("recompute", "none" if kind is None else None, "activations_checkpoint_granularity")
    if "distributed" in str((model.get("optim") or {}).get("name")):
        given.say("zero", 1, "model.optim.name")
    return given.out


def gpt_neox(file: File) -> list[Truth]:
    text = file.cached.read_text("utf-8")
    values = {str(k).replace("-", "_"): v for k, v in yaml.safe_load(text).items()}
    given = Given(values)
    get = given.get
    program = "megatron/neox_arguments"
    given.say("pp", get("pipe_parallel_size", default=1) or 1, "pipe_parallel_size")
    given.number("tp", "model_parallel_size", 1, program)
    given.number("micro_batch", "train_micro_batch_size_per_gpu")
    if get("train_micro_batch_size_per_gpu") and not get("train_batch_size"):
        given.number("grad_accum", "gradient_accumulation_steps gas", 1, program)
    given.number("seq_len", "seq_length")
    given.number("model.layers", "num_layers")
    given.number("model.hidden", "hidden_size")
    given.number("model.heads", "num_attention_heads")
    given.number("model.kv_heads", "num_kv_heads", get("num_attention_heads"), program)
    if get("zero_optimization"):
        given.say("zero", get("zero_optimization").get("stage", 0), "zero_optimization.stage")
    if "checkpoint_activations" in values:
        checkpoints = on(get("checkpoint_activations"))
        count = get("checkpoint_num_layers", default=1)
        text = "none" if not checkpoints else "full" if count == 1 else f"group:{count}"
        given.say("recompute", text, "checkpoint_activations")
    fp16, bf16 = get("fp16") or {}, get("bf16") or {}
    named = {"bfloat16": "bf16", "fp16": "fp16", "fp32": "fp32"}.get(str(get("precision")))
    if on(bf16.get("enabled")) or fp16.get("type") == "bfloat16":
        named = "bf16"
    elif on(fp16.get("enabled")) or on(fp16.get("fp16")):
        named = named or "fp16"
    given.say("precision", named, "precision, fp16, bf16")
    kind = str((get("optimizer") or {}).get("type", "")).lower()
    if kind in ("adam", "onebitadam") and kind == "adam":
        given.say("optimizer", "adam", "optimizer.type")
    return given.out


def nanotron(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    tokens, degrees = values["tokens"], values["parallelism"]
    given = Given({**tokens, **degrees})
    given.number("micro_batch", "micro_batch_size")
    given.number("grad_accum", "batch_accumulation_per_replica", 1, "nanotron TokensArgs")
    given.number("seq_len", "sequence_length")
    given.number("tp", "tp")
    given.number("pp", "pp")
    given.say(
        "gpus",
        degrees["dp"] * degrees["tp"] * degrees["pp"] * degrees.get("context_parallel_size", 1),
        "product of the degrees",
    )
    zero = (values.get("optimizer") or {}).get("zero_stage")
    given.say("zero", zero, "optimizer.zero_stage")
    config = values["model"]["model_config"]
    if "hidden_size" not in config:
        return given.out
    given.say("model.layers", config["num_hidden_layers"], "num_hidden_layers")
    given.say("model.hidden", config["hidden_size"], "hidden_size")
    dtype = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    given.say("precision", dtype.get(values["model"]["dtype"]), "model.dtype")
    return given.out


def verl(file: File) -> list[Truth]:
    if not file.path.endswith(".sh") and "skypilot" not in file.path:
        return []
    given = Given(flags(command_of(file, "verl")))
    get = given.get
    if not given.values:
        return []
    each, nodes = get("trainer.n_gpus_per_node"), get("trainer.nnodes", default=1)
    if isinstance(each, int) and isinstance(nodes, int):
        given.say("gpus", each * nodes, "trainer.n_gpus_per_node x nnodes")
    if any(name.startswith("worker.actor.") for name in given.values):
        return _easy_r1(given)
    actor = "actor_rollout_ref.actor."
    if "lora" in file.path:
        given.number("lora", "actor_rollout_ref.model.lora_rank")
    if not on(get(f"{actor}use_dynamic_bsz")):
        given.number("micro_batch", f"{actor}ppo_micro_batch_size_per_gpu")
    strategy = get(f"{actor}strategy", default="fsdp")
    if strategy != "megatron" and "megatron" not in file.path:
        on_it = get("actor_rollout_ref.model.enable_gradient_checkpointing")
        if on_it is not None:
            given.say("recompute", "full" if on(on_it) else "none", "enable_gradient_checkpointing")
    given.number("tp", f"{actor}megatron.tensor_model_parallel_size")
    given.number("pp", f"{actor}megatron.pipeline_model_parallel_size")
    given.say("model", get("actor_rollout_ref.model.path"), "actor_rollout_ref.model.path")
    return given.out


def _easy_r1(given: Given) -> list[Truth]:
    """EasyR1's names; its defaults lie in a file beside the script."""
    actor = "worker.actor."
    given.number("micro_batch", f"{actor}micro_batch_size_per_device_for_update")
    given.number("lora", f"{actor}model.lora.rank")
    given.say("model", given.get(f"{actor}model.model_path"), "worker.actor.model.model_path")
    return given.out


def maxtext(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    given = Given(values)
    if isinstance(values.get("model_name"), str):
        given.say("model", values["model_name"], "model_name")
    given.number("seq_len", "max_target_length")
    return given.out
