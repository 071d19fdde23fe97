"""Truths of files of programs that fine-tune: transformers' Trainer and what is built on it."""

from __future__ import annotations

import re

import yaml

from benchmarks.corpus.fetch import File
from benchmarks.corpus.given import Given, Truth, command_of, flags, gpus_of, on

_HF = "transformers.TrainingArguments"
_OPTIMIZERS = {
    "adamw_torch": "adam",
    "adamw_torch_fused": "adam",
    "adamw_hf": "adam",
    "adamw_bnb_8bit": "adam8bit",
    "adamw_8bit": "adam8bit",
    "paged_adamw_8bit": "paged-adam8bit",
    "paged_adamw_32bit": "paged-adam",
    "rmsprop": None,
    "sgd": "sgd",
    "adafactor": "adafactor",
}


def trainer(
    given: Given, program: str = _HF, micro: int = 8, recompute: bool = False, bf16: bool = False
) -> None:
    get = given.get
    given.number("micro_batch", "per_device_train_batch_size", micro, program)
    given.number("grad_accum", "gradient_accumulation_steps", 1, program)
    switch = get("gradient_checkpointing")
    checkpoints = recompute if switch is None else on(switch)
    why = "gradient_checkpointing" if switch is not None else f"default of {program}"
    given.say("recompute", "full" if checkpoints else "none", why)
    if on(get("bf16")):
        given.say("precision", "bf16", "bf16")
    elif on(get("fp16")):
        given.say("precision", "fp16", "fp16")
    elif get("bf16") is None and get("fp16") is None and bf16:
        given.say("precision", "bf16", f"default of {program}: bf16")
    name = str(get("optim", default="adamw_torch"))
    if _OPTIMIZERS.get(name):
        given.say("optimizer", _OPTIMIZERS[name], "optim, default AdamW")
    model = get("model_name_or_path", "model")
    if isinstance(model, str) and re.fullmatch(r"[\w-]+/[\w.-]+", model):
        given.say("model", model, "model_name_or_path")


def adapters(given: Given, switch: bool, rank: str = "lora_r", default: int = 16) -> None:
    """Rank of adapters, 0 where all weights are trained."""
    if switch:
        given.number("lora", rank, default, "PEFT as the program sets it up")
    else:
        given.say("lora", 0, "no adapters")


def trl(file: File) -> list[Truth]:
    """TRL's YAML: alignment-handbook, open-r1, SimPO, notus."""
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    given = Given(values)
    get = given.get
    trainer(given, "TRL", recompute="open-r1" in file.repository)
    if get("gradient_checkpointing") is None:  # differs by release of TRL
        given.out = [truth for truth in given.out if truth[0] != "recompute"]
    adapters(given, on(get("use_peft")))
    if on(get("load_in_4bit")):
        given.say("frozen_bits", 4, "load_in_4bit")
    length = get("max_length", "max_seq_length")
    generates = "/grpo/" in file.path
    if generates:
        length = None
    given.say("seq_len", length, "max_length or max_seq_length")
    kind = next((k for k in ("dpo", "orpo", "simpo", "kto") if k in file.path.lower()), "")
    if kind in ("dpo", "orpo"):
        given.say("task", kind, "the script that the recipe is for, by its folder")
        given.out = [
            (option, value * 2 if option == "micro_batch" else value, why)
            for option, value, why in given.out
        ]
    elif kind:  # SimPO's own trainer: pairs as well
        given.out = [truth for truth in given.out if truth[0] != "micro_batch"]
    elif not generates and "/sft/" in file.path:
        given.say("task", "sft", "the script that the recipe is for, by its folder")
    return given.out


# scripts whose examples are two sequences
_PAIRED = re.compile(r"(?:^|_)(?:dpo|orpo|rm|reward)(?:_|\.)")


def hf_trainer(file: File) -> list[Truth]:
    words = command_of(file)
    if not words:
        return []
    given = Given(flags(words, "_"))
    get = given.get
    if get("per_device_train_batch_size") is None:
        return gpus_of(words, file)
    given.out += gpus_of(words, file)
    default = file.repository == "artidoro/qlora"  # its own TrainingArguments: micro 1, on
    accum = 16 if default else 1
    if file.repository == "jzhang38/TinyLlama":  # its own TrainingArguments
        given.values.setdefault("gradient_checkpointing", True)
    if "grad_checkpoint" in given.values:  # InternVL's own, beside the trainer's
        given.values["gradient_checkpointing"] = given.values["grad_checkpoint"]
    trainer(given, micro=1 if default else 8, recompute=default)
    if default and get("gradient_accumulation_steps") is None:
        given.out = [t for t in given.out if t[0] != "grad_accum"]
        given.say("grad_accum", accum, "default of qlora.py")
    if default and get("optim") is None:
        given.out = [t for t in given.out if t[0] != "optimizer"]
        given.say("optimizer", "paged-adam", "default of qlora.py: paged_adamw_32bit")
    given.number("seq_len", "model_max_length max_seq_length block_size")
    rank = {"FastChat": "lora_r", "LLaVA": "lora_r", "Qwen": "lora_r"}
    name = file.repository.split("/")[1]
    trains = (
        on(get("lora_enable"))
        or on(get("use_lora"))
        or bool(get("use_llm_lora"))
        or file.path.endswith("train_lora.sh")
        or (default and not on(get("full_finetune")))
        or ("lora_rank" in given.values and "Chinese" in name)
    )
    if name in ("Qwen",) and get("use_lora"):
        given.say("lora", 64, "--use_lora, default of finetune.py: lora_r 64")
    elif trains and "Chinese" in name:
        adapters(given, True, "lora_rank", 8)
    elif trains and get("use_llm_lora"):
        given.say("lora", get("use_llm_lora"), "--use_llm_lora")
    elif trains:
        adapters(given, True, rank.get(name, "lora_r"), 64)
    elif get("lora_dim"):
        given.say("lora", get("lora_dim"), "--lora_dim")
    elif get("use_peft") is not None:
        adapters(given, on(get("use_peft")), "lora_rank" if get("lora_rank") else "lora_r", 8)
    elif name not in ("Chinese-LLaMA-Alpaca-2", "MiniCPM", "MedicalGPT"):
        given.say("lora", 0, "no adapters")
    if _PAIRED.search(file.path.rpartition("/")[2]):
        given.out = [
            (option, value * 2 if option == "micro_batch" else value, why)
            for option, value, why in given.out
        ]
    if default:
        given.say("frozen_bits", get("bits", default=4), "--bits, default 4")
    return given.out


def lmflow(file: File) -> list[Truth]:
    words = command_of(file, "examples/")
    if not words or "dpo" in file.path:
        return []
    given = Given(flags(words))
    get = given.get
    given.out += gpus_of(words, file)
    trainer(given)
    if get("use_customized_optim"):
        given.out = [truth for truth in given.out if truth[0] != "optimizer"]
    given.number("seq_len", "block_size")
    adapters(given, on(get("use_lora")) or on(get("use_qlora")), "lora_r", 8)
    if on(get("use_qlora")):
        given.say("frozen_bits", get("quant_bit", default=4), "--use_qlora, quant_bit 4")
    if on(get("use_lisa")):
        given.say("lisa", get("lisa_activated_layers", default=2), "--use_lisa")
    return given.out


def deepspeed_chat(file: File) -> list[Truth]:
    words = command_of(file)
    given = Given(flags(words))
    get = given.get
    given.out += gpus_of(words, file)
    program = "DeepSpeed-Chat step 1 main.py"
    given.number("micro_batch", "per_device_train_batch_size", 16, program)
    given.number("grad_accum", "gradient_accumulation_steps", 1, program)
    given.number("seq_len", "max_seq_len", 512, program)
    given.number("zero", "zero_stage", 0, program)
    given.say("precision", get("dtype", default="fp16"), "--dtype, default fp16")
    on_it = bool(get("gradient_checkpointing"))
    given.say("recompute", "full" if on_it else "none", "--gradient_checkpointing")
    given.say("lora", get("lora_dim", default=0), "--lora_dim, default 0: off")
    given.say("model", get("model_name_or_path"), "--model_name_or_path")
    return given.out


def open_instruct(file: File) -> list[Truth]:
    given = Given(yaml.safe_load(file.cached.read_text("utf-8")))
    get = given.get
    program = "open_instruct/finetune.py FlatArguments"
    dpo = "dpo" in file.path
    given.number("grad_accum", "gradient_accumulation_steps", 1, program)
    size = get("per_device_train_batch_size", default=8)
    given.say("micro_batch", size * 2 if dpo else size, "per_device_train_batch_size")
    given.number("seq_len", "max_seq_length")
    switch = get("gradient_checkpointing")
    if not dpo or switch is not None:
        given.say("recompute", "full" if on(switch) else "none", f"default of {program}: off")
    adapters(given, on(get("use_lora")), "lora_rank", 64)
    if dpo:
        given.say("task", "dpo", "the script that the recipe is for, by its folder")
    model = get("model_name_or_path")
    if isinstance(model, str) and re.fullmatch(r"[\w-]+/[\w.-]+", model):
        given.say("model", model, "model_name_or_path")
    return given.out


def oumi(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    training, model = values.get("training", {}), values.get("model", {})
    peft, fsdp = values.get("peft") or {}, values.get("fsdp") or {}
    given = Given({**training, "gradient_checkpointing": None})
    program = "oumi TrainingParams"
    given.number("grad_accum", "gradient_accumulation_steps", 1, program)
    given.number("micro_batch", "per_device_train_batch_size", 8, program)
    kind = str(training.get("trainer_type")).rpartition("_")[2].lower()
    if kind in ("kto", "dpo"):
        given.say("task", kind, "trainer_type")
        given.out = [truth for truth in given.out if truth[0] != "micro_batch"]
        if kind == "dpo":
            pairs = training.get("per_device_train_batch_size", 8) * 2
            given.say("micro_batch", pairs, "pairs of per_device_train_batch_size")
    checkpoints = on(training.get("enable_gradient_checkpointing"))
    given.say("recompute", "full" if checkpoints else "none", "enable_gradient_checkpointing, off")
    given.say("model", model.get("model_name"), "model.model_name")
    given.say("seq_len", model.get("model_max_length"), "model.model_max_length")
    name = str(training.get("optimizer", "adamw_torch"))
    given.say("optimizer", _OPTIMIZERS.get(name), "training.optimizer, adamw_torch")
    uses = on(training.get("use_peft"))
    given.values = peft
    adapters(given, uses, "lora_r", 8)
    if uses and on(peft.get("q_lora")):
        given.say("frozen_bits", peft.get("q_lora_bits", 4), "peft.q_lora")
    if on(fsdp.get("enable_fsdp")):
        stage = {"FULL_SHARD": 3, "HYBRID_SHARD": 3, "SHARD_GRAD_OP": 2}
        strategy = str(fsdp.get("sharding_strategy", "FULL_SHARD"))
        given.say("zero", stage.get(strategy), "fsdp.sharding_strategy")
    dtype = str(model.get("torch_dtype_str"))
    if dtype == "bfloat16":
        given.say("precision", "bf16", "model.torch_dtype_str: weights are loaded in it")
    return given.out


def axolotl(file: File) -> list[Truth]:
    given = Given(yaml.safe_load(file.cached.read_text("utf-8")))
    get = given.get
    kind = str(get("rl", default="") or ("reward" if get("reward_model") else ""))
    program = "axolotl"
    if not kind:
        given.number("micro_batch", "micro_batch_size", 1, program)
    given.number("grad_accum", "gradient_accumulation_steps", 1, program)
    given.number("seq_len", "sequence_len", 512, program)
    fsdp = (get("fsdp_config") or {}) if isinstance(get("fsdp_config"), dict) else {}
    within = fsdp.get("fsdp_activation_checkpointing", fsdp.get("activation_checkpointing"))
    checkpoints = get("gradient_checkpointing", default=bool(within))
    offloads = get("activation_offloading") is True  # wraps layers to offload, not to repeat them
    if checkpoints in (True, False, "true", "false") and not offloads:
        checkpoints = on(checkpoints)
        given.say("recompute", "full" if checkpoints else "none", "gradient_checkpointing, off")
    if get("adapter") in ("lora", "qlora"):
        given.number("lora", "lora_r", 16, program)
        if get("adapter") == "qlora" and on(get("load_in_4bit")):
            given.say("frozen_bits", 4, "load_in_4bit")
    elif not get("adapter"):
        given.say("lora", 0, "no adapter")
    given.say("model", get("base_model"), "base_model")
    if get("bf16") in (True, "true", "auto"):
        given.say("precision", "bf16", "bf16; auto is bf16 on these GPUs")
    given.say("optimizer", _OPTIMIZERS.get(str(get("optimizer"))), "optimizer")
    return given.out


def llama_factory(file: File) -> list[Truth]:
    given = Given(yaml.safe_load(file.cached.read_text("utf-8")))
    get = given.get
    kind = str(get("finetuning_type", default="lora"))
    trainer(given, "LLaMA-Factory", recompute=not on(get("disable_gradient_checkpointing")))
    given.number("seq_len", "cutoff_len", 2048, "LLaMA-Factory")
    if kind in ("full", "lora"):
        adapters(given, kind == "lora", "lora_rank", 8)
    given.say("frozen_bits", get("quantization_bit"), "quantization_bit")
    if get("use_adam_mini") or get("use_muon"):
        given.out = [truth for truth in given.out if truth[0] != "optimizer"]
        ours = "muon" if get("use_muon") else "adam-mini"
        given.say("optimizer", ours, "use_muon, use_adam_mini")
    for name in ("galore", "apollo"):
        if get(f"use_{name}"):
            given.out = [truth for truth in given.out if truth[0] != "optimizer"]
            given.say("optimizer", name, f"use_{name}")
    if get("fp8"):
        given.out = [truth for truth in given.out if truth[0] != "precision"]
    return given.out


def torchtune(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    given = Given(values)
    given.number("micro_batch", "batch_size")
    given.number("grad_accum", "gradient_accumulation_steps", 1, "torchtune recipes")
    length = (values.get("tokenizer") or {}).get("max_seq_len")
    given.say("seq_len", length, "tokenizer.max_seq_len")
    if "enable_activation_checkpointing" in values:
        checkpoints = on(values["enable_activation_checkpointing"])
        given.say("recompute", "full" if checkpoints else "none", "enable_activation_checkpointing")
    given.say("lora", values["model"].get("lora_rank", 0), "model.lora_rank")
    given.say("precision", values.get("dtype"), "dtype")
    kind = str((values.get("optimizer") or {}).get("_component_", "")).rpartition(".")[2]
    names = {"AdamW": "adam", "PagedAdamW8bit": "paged-adam8bit", "AdamW8bit": "adam8bit"}
    given.say("optimizer", names.get(kind), "optimizer._component_")
    if "single_device" in file.path:
        given.say("gpus", 1, "a recipe of one device")
    return given.out


def ms_swift(file: File) -> list[Truth]:
    words = command_of(file)
    if words[:2] != ["swift", "sft"]:
        return []
    given = Given(flags(words))
    get = given.get
    trainer(given, "ms-swift", micro=1, recompute=True)
    given.number("seq_len", "max_length")
    kind = get("train_type", "tuner_type", default="lora")
    if kind in ("full", "lora"):
        adapters(given, kind == "lora", "lora_rank", 8)
    zero = re.fullmatch(r"zero([0-3])", str(get("deepspeed")))
    given.say("zero", int(zero[1]) if zero else None, "--deepspeed")
    dtype = {"bfloat16": "bf16", "float16": "fp16"}.get(str(get("torch_dtype")))
    given.say("precision", dtype, "--torch_dtype")
    return given.out


def openrlhf(file: File) -> list[Truth]:
    words = command_of(file, "openrlhf")
    script = next((w for w in words if "openrlhf.cli." in w), "")
    kind = script.rpartition("train_")[2]
    if kind not in ("sft", "dpo", "rm"):
        return []
    given = Given(flags(words))
    program = f"openrlhf/cli/train_{kind}.py"
    pairs = 2 if kind in ("dpo", "rm") else 1
    get = given.get
    given.say(
        "micro_batch", get("train.micro_batch_size", default=8) * pairs, "train.micro_batch_size"
    )
    given.say("zero", get("ds.zero_stage", default=2), "--ds.zero_stage, default 2")
    given.number("seq_len", "data.max_len", 2048 if kind == "sft" else 512, program)
    on_it = bool(get("model.gradient_checkpointing_enable"))
    given.say("recompute", "full" if on_it else "none", "gradient_checkpointing_enable")
    given.say("lora", get("ds.lora.rank", default=0), "--ds.lora.rank, default 0")
    given.say("model", get("model.model_name_or_path"), "--model.model_name_or_path")
    precision = get("ds.param_dtype", default="bf16")
    given.say("precision", precision, "--ds.param_dtype, default bf16")
    if get("ds.load_in_4bit"):
        given.say("frozen_bits", 4, "--ds.load_in_4bit")
    given.say("task", {"dpo": "dpo", "rm": "reward"}.get(kind), script)
    return given.out
