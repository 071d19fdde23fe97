"""Axolotl's YAML. What it hands to transformers' Trainer is in its own names.

Names and defaults: axolotl/utils/schemas/*.py at 2026-07.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.formats import adapted, sharding, trainer
from planner.formats.packed import Rows, read_rows
from planner.formats.record import Answer, Argument, Format, Value, unread

_KERNEL_FLAGS = {"flash_attention": "flash2", "sdp_attention": "flash2", "eager_attention": "eager"}
_LIGER = ("liger_rms_norm", "liger_rope", "liger_glu_activation", "liger_swiglu")
_LOSS = ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy")
_DISTILS = "axolotl.integrations.kd.KDPlugin"
_TEACHER_WORDS = 64  # per token: a choice
_FROZEN = adapted.Frozen(
    stack="axolotl",
    kind="bnb_config_kwargs.bnb_4bit_quant_type",
    doubled="bnb_config_kwargs.bnb_4bit_use_double_quant",
)
_ADAPTERS = adapted.Names(
    targets=("lora_target_linear", "lora_target_modules"),
    scaled="peft_use_rslora",
    parted="peft_use_dora",
)


TABLE = (
    trainer.MAX_STEPS,
    Argument(
        "base_model",
        "model",
        meaning=trainer.model_name,
        note=trainer.COPIES,
        also=("base_model_config",),
    ),
    Argument("micro_batch_size", "micro_batch", default=1, meaning=trainer.whole),
    Argument("gradient_accumulation_steps", "grad_accum", default=1, meaning=trainer.whole),
    Argument("sequence_len", "seq_len", default=512, meaning=trainer.whole),
    Argument(
        "excess_length_strategy",
        "excess_length",
        words={"drop": "drop", "truncate": "truncate", "raise": None},
        default="drop",
    ),
    Argument("min_sample_len", "short_length", meaning=trainer.whole),
    Argument(
        "optimizer",
        "optimizer",
        default="adamw_torch_fused",
        meaning=trainer.optimizer,
        writes=trainer.name_of(trainer.OPTIMIZERS),
    ),
    Argument(
        "attn_implementation",
        "attention",
        meaning=trainer.attention,
        writes=trainer.name_of(trainer.ATTENTIONS),
        note="sdpa is taken as FlashAttention 2, which torch chooses",
    ),
    Argument("torch_compile", "compile", default=False, meaning=trainer.switch),
    Argument("tensor_parallel_size", "tp", meaning=trainer.whole),
    Argument(
        "context_parallel_size", "cp", meaning=trainer.whole, also=("sequence_parallel_degree",)
    ),
    Argument("expert_parallel_size", "ep", meaning=trainer.whole),
    Argument("gpu_count", "gpus", meaning=trainer.whole),
    Argument("gpu", "gpu"),
    Argument("node_count", "nodes", meaning=trainer.whole),
)
_STARTED = ("gpus", "gpu", "nodes")  # options that services around Axolotl name in its file
UNREAD = unread("axolotl")


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    _sharding(answer)
    _precision(answer)
    trainer.read_subspace(answer, "optimizer")
    _attention(answer)
    _checkpointing(answer)
    trainer.read_task(answer, "rl", 1)
    if trainer.is_on(answer, "reward_model"):
        answer.state("task", "reward", "reward_model")
        trainer.read_pairs(answer, 1)
    _teacher(answer)
    adapted.read_lisa(answer, "lisa_n_layers", "lisa_step_interval")
    _kernels(answer)
    adapted.read(answer, _ADAPTERS, "adapter")
    adapted.read_frozen(answer, _FROZEN)
    fused = ("lora_qkv_kernel", "lora_o_kernel", "lora_mlp_kernel")
    if all(answer.get(name) is True for name in fused):
        for name in fused:
            answer.state("fused_lora", True, name)
    read_rows(answer, Rows(packed=("sample_packing",), padded=("pad_to_sequence_len",)))
    trainer.read_degrees(answer)
    trainer.mark_empty(answer)
    trainer.mark_off(answer, UNREAD["lacks"])


def _teacher(answer: Answer) -> None:
    """Distillation from words that lie beside the data, or come from a server."""
    if not trainer.is_on(answer, "kd_trainer"):
        answer.mark("kd_trainer", "implied", "off")
        return
    answer.state("task", "distil", "kd_trainer")
    answer.imply("reference", "precomputed", "the words of the teacher lie beside the data")
    if answer.get("kd_online_topk"):
        words = trainer.number(answer, "kd_online_topk", _TEACHER_WORDS)
        answer.state("teacher_top_k", words, "kd_online_topk")
    answer.imply("teacher_top_k", _TEACHER_WORDS, "as many words as data sets usually have")
    answer.imply("loss_kernel", "fused-linear", "its loss is Liger's, in chunks of 1,024 tokens")


def _sharding(answer: Answer) -> None:
    sharding.read_sharding(answer)
    answer.mark("fsdp_version", "implied", "shards are kept alike by both")
    shards = trainer.number(answer, "dp_shard_size", 1)
    copies = trainer.number(answer, "dp_replicate_size", 1)
    if shards > 1:
        if answer.option("stack") != sharding.DEEPSPEED:
            answer.imply("zero", 3, "shards of the parameters", "dp_shard_size")
        if copies > 1:
            answer.state("shard_group", shards, "dp_shard_size")
            answer.state("dp", shards * copies, "dp_replicate_size")
    for name in ("dp_shard_size", "dp_replicate_size"):
        answer.mark(name, "implied", "follows from the GPUs")
    ring = answer.get("ring_attn_func")
    answer.mark("ring_attn_func", "read" if ring else "implied")
    answer.mark("heads_k_stride", "irrelevant")
    if (answer.option("cp") or 1) > 1:
        answer.imply("cp_comm_type", "ring", "ring attention shares the sequence")
    stack = answer.option("stack")
    degrees = [answer.option(name) or 1 for name in ("tp", "cp", "ep")]
    if (stack == trainer.DDP and max(degrees) > 1) or (stack == sharding.FSDP and degrees[-1] > 1):
        answer.imply("stack", "torchtitan", "torch's own parallelism, as torchtitan runs it")


def _precision(answer: Answer) -> None:
    """Weights are loaded in the type of the kernels (utils/config/__init__.py)."""
    wide = answer.get("fp16") in (True, "true")
    kind = answer.get("bf16", "auto")
    if answer.get("fp8") is True:
        answer.state("precision", "fp8-tensorwise", "fp8")
        gather = "fp8_enable_fsdp_float8_all_gather"
        if answer.get(gather) is True:
            answer.state("low_precision", "weights", gather)
        answer.mark(gather, "implied", "off")
    elif kind == "auto" and not wide:
        answer.imply("precision", "bf16", "auto: where the GPU has it", "bf16")
    elif kind in (True, "true", "full"):
        answer.state("precision", "bf16", "bf16")
    elif wide:
        answer.state("precision", "fp16", "fp16")
    elif answer.get("bfloat16") is True:
        answer.state("precision", "bf16", "bfloat16")
    elif answer.get("tf32") is True:
        answer.state("precision", "tf32", "tf32")
    else:
        answer.imply("precision", "fp32", "neither bf16 nor fp16 is on", "bf16", "fp16")
    for name in ("bf16", "fp16", "tf32", "bfloat16", "float16", "float32", "torch_dtype"):
        answer.mark(name, "implied", "follows from the other types of the file")
    if answer.option("precision") == "bf16" and answer.option("stack") == trainer.DDP:
        note = "without sharding, weights stay in the type in which they are loaded"
        answer.imply("state_precision", "bf16", note)


def _attention(answer: Answer) -> None:
    for name, kernel in _KERNEL_FLAGS.items():
        if answer.get(name) is True:
            answer.state("attention", kernel, name)
        answer.mark(name, "implied", "off")


def _checkpointing(answer: Answer) -> None:
    """Checkpoints keep inputs of layers; activation offloading without them does not checkpoint."""
    name, away = "gradient_checkpointing", "activation_offloading"
    value, moved = answer.get(name, False), answer.get(away, False)
    repeats = value if isinstance(value, bool) else str(value).lower() not in ("false", "none")
    offloads = moved not in (False, "false") or value in ("offload", "offload_disk")
    if "disk" in (moved, value) or value == "offload_disk":
        answer.mark(away, "not understood", "activations are offloaded only to host memory")
    elif offloads:
        answer.state("offload", "activations", away if away in answer.values else name)
    if moved is True:
        repeats = False
    answer.mark(away, "implied", "off")
    if name in answer.values or repeats:
        answer.state("recompute", "full" if repeats else "none", name)
    else:
        answer.imply("recompute", "none", "off by default")


def _kernels(answer: Answer) -> None:
    """Kernels of Liger and of others, each by its own switch."""
    on = [name for name in _LIGER if answer.get(name) is True]
    for name in on:
        answer.state("fused_kernels", True, name, "norm, RoPE and gate are taken all as one kernel")
    for name in ("liger_layer_norm", "liger_rms_norm_gated", "liger_cross_entropy"):
        answer.mark(name, "implied", "with the other kernels of Liger")
    for name in _LOSS:
        if answer.get(name) is True:
            answer.state("loss_kernel", "fused-linear", name)
    if answer.get("liger_cross_entropy") is True:
        answer.state("loss_kernel", "fused", "liger_cross_entropy")
    for flag in _LIGER + _LOSS:
        answer.mark(flag, "implied", "off")
    plugins = answer.get("plugins", [])
    known = ("liger.LigerPlugin", "cut_cross_entropy.CutCrossEntropyPlugin", "spectrum", "KDPlugin")
    for plugin in plugins if isinstance(plugins, list) else []:
        if str(plugin).endswith(known[1]) and answer.get("cut_cross_entropy") is not False:
            answer.state("loss_kernel", "fused-linear", "plugins")
    if isinstance(plugins, list) and all(str(plugin).endswith(known) for plugin in plugins):
        answer.mark("plugins", "implied", "its own arguments say what it does")


def _adapted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Adapters of a plan: of all matrices by a switch, of some by a list."""
    if not options.get("lora"):
        return {}
    config = {"adapter": "lora", **adapted.written(options, _ADAPTERS)}
    every, some = _ADAPTERS.targets
    words = config.pop(every)
    config |= {every: True} if words == "all-linear" else {some: words}
    if not refuses_frozen(options):
        config |= adapted.written_frozen(options, _FROZEN)
    if config.get(_FROZEN.four):
        config["adapter"] = "qlora"
    return config


def _objective(options: Mapping[str, Any]) -> dict[str, Any]:
    """The objective, and the layers that train."""
    out: dict[str, Any] = {}
    task = options.get("task")
    if task == "reward":
        out["reward_model"] = True
    elif task == "distil" and options.get("reference") == "precomputed":
        out |= {"plugins": [_DISTILS], "kd_trainer": True, "kd_alpha": 0.9, "kd_ce_alpha": 0.1}
    elif task == "kto":
        out["remove_unused_columns"] = False  # which its schema asks for
    if options.get("lisa"):
        out |= {"lisa_n_layers": options["lisa"], "lisa_step_interval": 20}
    return out


def refuses_frozen(options: Mapping[str, Any]) -> bool:
    """Whether its schema takes no weights in 4 or 8 bit: shards of FSDP 2 under preferences."""
    shards = options.get("zero") in (sharding.GRADIENTS, sharding.PARAMETERS)
    return shards and options.get("task") in ("dpo", "kto", "orpo", "ipo")


def write(options: Mapping[str, Any]) -> str:
    """The YAML of a plan, without the GPUs: Axolotl's schema leaves them to the launcher."""
    rows = [row for row in TABLE if row.option not in _STARTED]
    config = trainer.written(rows, trainer.of_examples(options)) | trainer.task_of(options, "rl")
    config |= _objective(options)
    subspace = trainer.subspace_of(options)
    if subspace:
        config |= {"optimizer": subspace.pop("optim"), **subspace}
        config["optim_target_modules"] = "all_linear"  # with the schema's own dash
    kind = options.get("precision") or "bf16"
    config["bf16"] = kind == "bf16"
    if kind in ("fp16", "tf32"):
        config[kind] = True
    if kind == "fp8-tensorwise":
        config["fp8"] = True
        config["bf16"] = True
    config["gradient_checkpointing"] = options.get("recompute") == "full"
    if options.get("offload") == "activations":
        config["activation_offloading"] = (
            "hidden_states" if options.get("recompute") == "full" else True
        )
    group, dp = options.get("shard_group"), options.get("dp")
    if group and dp and group != dp:
        config |= {"dp_shard_size": group, "dp_replicate_size": dp // group}
    if options.get("fused_kernels"):
        own_plugins = config.get("plugins", [])
        config["plugins"] = [*own_plugins, "axolotl.integrations.liger.LigerPlugin"]
        config |= dict.fromkeys(_LIGER[:3], True)
    if not config.get("kd_trainer"):  # whose loss is one of Liger's, too
        config |= trainer.liger_of(options, _LOSS[0])
    config |= _adapted(options)
    config |= sharding.written(options, "optimizer")
    if config.pop("fsdp", False):
        config["fsdp_version"] = config.pop("fsdp_config.version")
        config["fsdp_config.offload_params"] = config.pop("fsdp_config.cpu_offload", False)
    return trainer.as_yaml(config)


FORMAT = Format(
    kind="axolotl",
    title="Axolotl YAML",
    detect=trainer.has_key("base_model"),
    parse=trainer.parse,
    table=TABLE,
    read_more=read_more,
    **UNREAD,
)
