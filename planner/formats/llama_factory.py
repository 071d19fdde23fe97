"""LLaMA-Factory's YAML: of `llamafactory-cli train`, of its second version (`dist_config`), and
with Megatron-Core behind it.

Names and defaults: llamafactory/hparams/*.py and llamafactory/v1/config/*.py at 2026-08.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.formats import adapted, sharding, trainer, trainer_script
from planner.formats.packed import Rows, read_rows
from planner.formats.record import Answer, Argument, Format, Value, unread
from planner.specs.names import BITSANDBYTES

STACK = "llama-factory"
_FLASH = {"fa2": "flash2", "fa3": "flash3", "disabled": "eager", **trainer.ATTENTIONS}
_DISTRIBUTED = {"fsdp2": sharding.FSDP, "fsdpturbo": sharding.FSDP, "deepspeed": STACK}
_MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "use_mca")
_DEGREES = (*_MEGATRON[:2], "context_parallel_size", "expert_model_parallel_size")


def _flash(value: Any) -> str | None:
    if str(value).lower() == "auto":
        return None
    kernel = _FLASH.get(str(value).lower().removeprefix("attentionfunction."))
    if kernel is None:
        raise ValueError(f"{value!r} is not modelled; the estimate assumes the stack's own kernel")
    return kernel


def _undone(value: Any) -> str | None:
    on = trainer.switch(value)
    return None if on is None else trainer.RECOMPUTE[not on]


_FROZEN = adapted.Frozen(
    stack="llama-factory-ddp",
    four="",
    eight="",
    bits="quantization_bit",
    method="quantization_method",
    kind="quantization_type",
    doubled="double_quantization",
)
_ADAPTERS = adapted.Names(
    rank="lora_rank",
    targets=("lora_target",),
    saved="additional_target",
    default_rank=8,
    default_targets="all-linear",
)
_SECOND = adapted.Names(
    rank="peft_config.r",
    targets=("peft_config.target_modules",),
    dropout="peft_config.lora_dropout",
    scaled="peft_config.use_rslora",
    parted="peft_config.use_dora",
    saved="peft_config.modules_to_save",
    default_rank=8,
    default_targets="all-linear",
)
_USUAL = trainer.BATCH[0].default
TABLE = (
    *trainer.BATCH,
    trainer.MAX_STEPS,
    *(row for row in trainer.TABLE if row.name in ("optim", "torch_compile", "model_name_or_path")),
    Argument("model", "model", meaning=trainer.model_name, note=trainer.COPIES),
    Argument("micro_batch_size", "micro_batch", meaning=trainer.whole),
    Argument("global_batch_size", "global_batch", meaning=trainer.whole),
    Argument("cutoff_len", "seq_len", default=2048, meaning=trainer.whole, also=("max_length",)),
    Argument("flash_attn", "attention", meaning=_flash, writes=trainer.name_of(_FLASH)),
    Argument(
        "disable_gradient_checkpointing",
        "recompute",
        default=False,
        meaning=_undone,
        writes=lambda ours: {"full": False, "none": True}.get(ours),
    ),
    Argument("tensor_model_parallel_size", "tp", meaning=trainer.whole),
    Argument("pipeline_model_parallel_size", "pp", meaning=trainer.whole),
    Argument("virtual_pipeline_model_parallel_size", "vpp", meaning=trainer.whole),
    Argument("context_parallel_size", "cp", meaning=trainer.whole, also=("cp_size",)),
    Argument(
        "expert_model_parallel_size", "ep", meaning=trainer.whole, also=("dist_config.ep_size",)
    ),
    Argument("sequence_parallel", "sequence_parallel", meaning=trainer.switch),
    Argument(
        "moe_token_dispatcher_type",
        "dispatcher",
        words={"alltoall": "alltoall", "allgather": "allgather", "flex": "deepep"},
    ),
)
UNREAD = unread("llama_factory")


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    stage = answer.get("stage", "sft")
    _sharding(answer)
    _precision(answer)
    _optimizer(answer)
    trainer.read_liger(answer, "enable_liger_kernel")
    if answer.get("kernel_config.name") == "liger_kernel":
        answer.state("loss_kernel", "fused-linear", "kernel_config.name")
        answer.imply("fused_kernels", True, "of Liger")
    elif answer.get("kernel_config.name") == "auto":
        answer.mark("kernel_config.name", "implied", "kernels are taken as the stack has them")
    usual = "" if stage == "pt" else "longest"  # texts of pre-training are joined
    read_rows(answer, Rows(packed=("neat_packing",), joined=("packing",), usual=usual))
    for name in ("batching_strategy", "use_packed_sequences"):
        answer.mark(name, "implied", "every sequence is taken as full")
    if "model" in values or "micro_batch_size" in values:
        answer.imply("micro_batch", 1, "the default of this version")
        answer.imply("precision", "bf16", "bf16 is on by default")
        answer.mark("mixed_precision", "implied", "follows from bf16")
        answer.mark("cp_mode", "implied", "as it is taken to be")
    loss = str(answer.get("pref_loss", "sigmoid")).lower()
    if stage == "dpo" and loss in ("orpo", "simpo"):
        answer.state("task", loss, "pref_loss")
        answer.mark("stage", "read")
        trainer.read_pairs(answer, _USUAL)
    elif stage in ("dpo", "kto", "rm"):
        trainer.read_task(answer, "stage", _USUAL)
        if stage == "rm":  # AutoModelForCausalLMWithValueHead
            answer.notes.append(
                "stage rm: logits that its value head makes and leaves are not counted"
            )
    elif stage == "ppo":
        note = "only the training step is estimated: no generation, no reference model"
        answer.mark("stage", "not understood", note)
    _trained(answer)
    trainer.read_degrees(answer)
    trainer.mark_empty(answer)
    trainer.mark_off(answer, UNREAD["lacks"])


def _trained(answer: Answer) -> None:
    """Adapters, or only the last layers."""
    if "model" in answer.values:
        adapted.read(answer, _SECOND, "peft_config.name")
        return
    if answer.get("finetuning_type") == "freeze":
        count = trainer.number(answer, "freeze_trainable_layers", 2)
        if count > 0:
            answer.mark("finetuning_type", "read")
            if "freeze_trainable_layers" in answer.values:
                answer.state("trainable_layers", count, "freeze_trainable_layers")
            else:
                answer.imply("trainable_layers", count, "the layers by default")
            answer.mark("freeze_trainable_modules", "implied", "whole layers")
            return
    adapted.read(answer, _ADAPTERS, "finetuning_type", "lora")
    adapted.read_frozen(answer, _FROZEN)
    _kept_wide(answer)


def _kept_wide(answer: Answer) -> None:
    """Norms in fp32, and checkpoints of Unsloth, which go to host memory."""
    name, offloaded = "upcast_layernorm", "use_unsloth_gc"
    if trainer.is_on(answer, name):
        if answer.option("base_precision") in BITSANDBYTES:
            answer.state("base_upcast", "norms", name)
        else:
            answer.mark(name, "implied", "the matrices behind cast back what they read")
    if trainer.is_on(answer, offloaded) and answer.option("stack") == trainer.DDP:
        answer.state("offload", "activations", offloaded)


def _sharding(answer: Answer) -> None:
    named = answer.get("dist_config.name")
    if any(name in answer.values for name in _MEGATRON):
        on = answer.get("use_distributed_optimizer", False)
        answer.imply("zero", int(bool(on)), "of the optimizer", "use_distributed_optimizer")
        answer.imply("stack", "megatron-core", "Megatron-Core's parallelism", *_MEGATRON[2:])
        granularity = answer.get("recompute_granularity")
        if granularity is not None:
            answer.state("recompute", granularity, "recompute_granularity")
            answer.mark("recompute_method", "implied", "of whole layers")
            answer.mark("recompute_num_layers", "implied", "of whole layers")
        else:
            answer.imply("recompute", "none", "Megatron-Core's default")
        answer.mark("moe_grouped_gemm", "implied", "as it is taken to be")
    elif named in _DISTRIBUTED:
        answer.state("stack", _DISTRIBUTED[named], "dist_config.name")
        file = "dist_config.config_file"
        if named == "deepspeed":
            sharding.read_deepspeed(answer, file, STACK)
        else:
            answer.imply("zero", 3, "FSDP shards parameters by default")
            answer.mark(file, "irrelevant", "not of FSDP")
        if (answer.option("cp") or 1) > 1 or (answer.option("ep") or 1) > 1:
            note = "torch's own parallelism, as torchtitan runs it"
            answer.options.pop("stack")
            answer.imply("stack", "torchtitan", note)
            if answer.option("cp"):
                answer.imply("cp_comm_type", "ulysses", "cp_mode")
    else:
        sharding.read_sharding(answer, STACK)
    for name in ("gradient_checkpointing", "enable_activation_checkpointing"):
        if answer.get(name) is not None:
            answer.state("recompute", trainer.recompute(answer.get(name)), name)


def _precision(answer: Answer) -> None:
    trainer.read_precision(answer, ())
    if answer.get("pure_bf16") is True:
        answer.state("precision", "bf16", "pure_bf16")
        if answer.option("stack") == trainer.DDP:
            answer.state("state_precision", "bf16", "pure_bf16")
    if answer.get("fp8") is True:
        backend = answer.get("fp8_backend", "auto")
        kinds = {"torchao": "fp8-tensorwise", "te": "fp8-delayed"}
        answer.options.pop("precision", None)
        answer.state("precision", kinds.get(backend, "fp8"), "fp8")
        gather = "fp8_enable_fsdp_float8_all_gather"
        if answer.get(gather) is True:
            answer.state("low_precision", "weights", gather)
    for name in ("pure_bf16", "fp8", "fp8_enable_fsdp_float8_all_gather"):
        answer.mark(name, "implied", "off")
    if answer.option("precision") is None and "model" not in answer.values:
        answer.imply("precision", "fp32", "neither bf16 nor fp16 is on")


def _optimizer(answer: Answer) -> None:
    trainer.read_subspace(answer)
    for ours in ("galore", "apollo", "muon"):
        if answer.get(f"use_{ours}") is not True:
            continue
        narrow = ours == "galore" and "8bit" in str(answer.get("optim", ""))
        tensor = ours == "apollo" and answer.get("apollo_scale_type") == "tensor"
        tensor = tensor and trainer.number(answer, "apollo_rank", 16) == 1
        kind = "galore8bit" if narrow else "apollo-mini" if tensor else ours
        answer.options.pop("optimizer", None)  # optim sets only the moments
        answer.state("optimizer", kind, f"use_{ours}")
        if tensor:
            answer.mark("apollo_rank", "implied", "of APOLLO-Mini")
        elif f"{ours}_rank" in answer.values:
            rank = trainer.number(answer, f"{ours}_rank", 16)
            answer.state("optimizer_rank", rank, f"{ours}_rank")
        elif ours != "muon":
            answer.imply("optimizer_rank", 16, "the rank by default")
        if trainer.is_on(answer, f"{ours}_layerwise"):
            answer.state("optimizer_in_backward", True, f"{ours}_layerwise")
        for name in ("scale", "proj_type", "update_interval", "scale_type", "proj", "scale_front"):
            answer.mark(f"{ours}_{name}", "irrelevant")
        if answer.get(f"{ours}_target") == "all":
            answer.mark(f"{ours}_target", "implied", "every matrix of a layer is projected")
    named = answer.get("optim_config.name")
    if named in ("muon", "adamw"):
        answer.state("optimizer", {"adamw": "adam"}.get(named, named), "optim_config.name")


def _subspace(options: Mapping[str, Any]) -> dict[str, Any]:
    """GaLore and APOLLO by switches of their own, under plain AdamW."""
    kind = str(options.get("optimizer"))
    if kind not in ("galore", "galore8bit", "apollo", "apollo-mini"):
        return {}
    ours = "galore" if kind.startswith("galore") else "apollo"
    rank = 1 if kind == "apollo-mini" else options.get("optimizer_rank")
    base = "adamw_8bit" if kind == "galore8bit" else "adamw_torch"
    return (
        {"optim": base, f"use_{ours}": True, f"{ours}_target": "all"}
        | ({"apollo_scale_type": "tensor"} if kind == "apollo-mini" else {})
        | ({f"{ours}_rank": rank} if rank else {})
        | ({f"{ours}_layerwise": True} if options.get("optimizer_in_backward") else {})
    )


def _stage(options: Mapping[str, Any]) -> dict[str, Any]:
    """The objective: ORPO and SimPO are losses of its stage of DPO."""
    task = options.get("task")
    if task in ("orpo", "simpo"):
        return {"stage": "dpo", "pref_loss": task}
    word = {"dpo": "dpo", "kto": "kto", "reward": "rm"}.get(str(task))
    return {"stage": word} if word else {}


def write(options: Mapping[str, Any]) -> str:
    """The YAML of a plan for `llamafactory-cli train`."""
    rows = [
        row for row in TABLE if row.name not in ("model", "micro_batch_size", "global_batch_size")
    ]
    config = {
        name: theirs
        for name, theirs in trainer.written(rows, trainer.of_examples(options)).items()
        if name not in _DEGREES or theirs != 1  # its parser knows them only beside Megatron-Core
    } | _subspace(options)
    config |= trainer.types(options, "")
    if options.get("state_precision") == "bf16":
        config["pure_bf16"] = True
    for backend, kind in (("torchao", "fp8-tensorwise"), ("te", "fp8-delayed")):
        if options.get("precision") == kind:
            config |= {"fp8": True, "fp8_backend": backend, "bf16": True}
    config |= trainer.liger_of(options, "enable_liger_kernel")
    config |= {"stage": "sft", "finetuning_type": "full", "do_train": True}
    config |= _stage(options)
    if options.get("lora"):
        config |= {"finetuning_type": "lora"} | adapted.written(options, _ADAPTERS)
        words = config["lora_target"]
        config["lora_target"] = "all" if words == "all-linear" else ",".join(words)
        if "additional_target" in config:
            config["additional_target"] = ",".join(config["additional_target"])
        config |= adapted.written_frozen(options, _FROZEN)
        if options.get("base_upcast") == "norms":
            config["upcast_layernorm"] = True
    elif options.get("trainable_layers"):
        layers = options["trainable_layers"]
        config |= {"finetuning_type": "freeze", "freeze_trainable_layers": layers}
    if options.get("offload") == "activations":
        config["use_unsloth_gc"] = True
    return trainer.as_yaml(config | sharding.written(options))


_has_own_keys = trainer.has_key("finetuning_type", "cutoff_len", "dist_config", "sample_backend")
FORMAT = Format(
    kind="llama-factory",
    title="LLaMA-Factory YAML",
    detect=lambda name, text: (
        _has_own_keys(name, text) or trainer_script.is_of(trainer_script.LLAMA_FACTORY, name, text)
    ),
    parse=trainer_script.parse,
    table=TABLE,
    read_more=read_more,
    **UNREAD,
)
