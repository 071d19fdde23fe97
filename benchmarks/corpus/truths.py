"""Truths of the corpus: what each file plans, worked out from the file by its own program's rules,
without the readers of this project.

    python -m benchmarks.corpus.truths

Shell scripts are run by bash itself in a jail (sandbox.py) and their commands taken apart; YAML and
TOML are loaded by PyYAML and tomllib. What a file leaves out is the default of the program at the
commit that `sources` names. Written to truths.csv: repository, path, option, value, why.

Long: the rules of each program are a function, and reading them side by side is what they are for.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from benchmarks.corpus import sandbox
from benchmarks.corpus.fetch import HERE, File, listed

Truth = tuple[str, Any, str]
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def scalar(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return {"true": True, "false": False, "none": None, "null": None}.get(text.lower(), text)


class Given:
    """Arguments of a file by name, and truths that are collected from them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.out: list[Truth] = []

    def get(self, *names: str, default: Any = None) -> Any:
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        return default

    def say(self, option: str, value: Any, why: str) -> None:
        if value is not None and not (isinstance(value, str) and "$" in value):
            self.out.append((option, value, why))

    def number(self, option: str, names: str, default: Any = None, program: str = "") -> None:
        """A number of the file under one of its names, else the program's default."""
        for name in names.split():
            value = self.values.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                self.say(option, value, name)
                return
            if value is not None:
                return
        if default is not None:
            self.say(option, default, f"default of {program}: {names.split()[0]} {default}")


# ----- command lines -----


def flags(words: list[str], joined: str = "_") -> dict[str, Any]:
    """Flags of a command with their values; a flag alone is True. name=value words too."""
    out: dict[str, Any] = {}
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if word.startswith("--") and len(word) > len("--"):
            name, equals, text = word[2:].partition("=")
            values = [text] if equals else []
            while not equals and i < len(words) and not re.match(r"--?[A-Za-z]", words[i]):
                values.append(words[i])
                i += 1
            known = [scalar(value) for value in values]
            value = True if not known else known[0] if len(known) == 1 else known
            out[name.replace("-", joined)] = value
        elif re.match(r"[+~]*[\w.]+=", word):
            name, _, text = word.lstrip("+~").partition("=")
            out[name] = scalar(text)
    return out


def command_of(file: File, mark: str = "") -> list[str]:
    """The command of a script with most flags; mark: what it has to name."""
    text = file.cached.read_text("utf-8", "replace")
    recorded = [
        words for words in sandbox.commands(text) if not mark or any(mark in word for word in words)
    ]
    return max(recorded, key=lambda words: sum(word.startswith("--") for word in words), default=[])


def gpus_of(words: list[str], file: File) -> list[Truth]:
    """Nodes and GPUs of a launcher in front of a program."""
    program = next((i for i, w in enumerate(words) if re.search(r"\w\.py$", w)), len(words))
    front = flags(words[:program])
    text = file.cached.read_text("utf-8", "replace")
    slurm = dict(re.findall(r"(?m)^#SBATCH\s+--([\w-]+)[= ](\S+)", text))
    each = front.get("nproc_per_node", front.get("num_gpus"))
    nodes = front.get("nnodes", front.get("num_nodes", 1))
    if slurm.get("nodes", "").isdecimal() and not isinstance(nodes, int):
        nodes = int(slurm["nodes"])
    included = re.search(r"--include[= ]\S*localhost:([\d,]+)", " ".join(words))
    if included and words[0] == "deepspeed":
        return [("gpus", len(included[1].split(",")), "--include")]
    if isinstance(each, int) and isinstance(nodes, int) and words[0] in ("torchrun", "deepspeed"):
        return [("gpus", each * nodes, "GPUs of a node x nodes of the launcher")]
    if isinstance(front.get("num_processes"), int):
        return [("gpus", front["num_processes"], "--num_processes of accelerate")]
    return []


# ----- Megatron-LM and its forks -----

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


# ----- transformers' Trainer and its kin -----

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


def on(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes")


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


_PREFERENCE = re.compile(r"dpo|orpo|kto|simpo", re.I)


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
        given.say("recompute", "none", "one device: the FSDP strategy alone checkpoints blocks")
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
    """NeMo 1's YAML of NeMo-Aligner: without the base configuration of the checkpoint."""
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    model, outer = values["model"], values["trainer"]
    given = Given(model)
    pairs = 2 if "dpo" in file.path else 1
    if "kto" not in file.path:
        given.say("micro_batch", model.get("micro_batch_size", 1) * pairs, "model.micro_batch_size")
    given.say("gpus", outer["num_nodes"] * outer["devices"], "trainer.num_nodes x devices")
    given.say("precision", outer["precision"], "trainer.precision")
    scheme = (model.get("peft") or {}).get("peft_scheme")
    given.say("lora", 0 if scheme in ("none", None) else None, "model.peft.peft_scheme")
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


def nanotron(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    tokens, degrees = values["tokens"], values["parallelism"]
    given = Given({**tokens, **degrees})
    given.number("micro_batch", "micro_batch_size")
    given.number("grad_accum", "batch_accumulation_per_replica", 1, "nanotron TokensArgs")
    given.number("seq_len", "sequence_length")
    given.number("tp", "tp")
    given.number("pp", "pp")
    given.say("gpus", degrees["dp"] * degrees["tp"] * degrees["pp"], "dp x tp x pp")
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


def verl(file: File) -> list[Truth]:
    if not file.path.endswith(".sh"):
        return []
    given = Given(flags(command_of(file, "verl")))
    get = given.get
    if not given.values:
        return []
    each, nodes = get("trainer.n_gpus_per_node"), get("trainer.nnodes", default=1)
    if isinstance(each, int) and isinstance(nodes, int):
        given.say("gpus", each * nodes, "trainer.n_gpus_per_node x nnodes")
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


def maxtext(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    given = Given(values)
    if isinstance(values.get("model_name"), str):
        given.say("model", values["model_name"], "model_name")
    given.number("seq_len", "max_target_length")
    return given.out


PROGRAMS: dict[str, Callable[[File], list[Truth]]] = {
    "megatron": megatron,
    "megatron-deepspeed": megatron,
    "gpt-neox": gpt_neox,
    "litgpt": litgpt,
    "trl": trl,
    "openrlhf": openrlhf,
    "open-instruct": open_instruct,
    "lmflow": lmflow,
    "llm-foundry": llm_foundry,
    "olmo": olmo,
    "oumi": oumi,
    "verl": verl,
    "axolotl": axolotl,
    "llama-factory": llama_factory,
    "torchtune": torchtune,
    "nanotron": nanotron,
    "kempnerforge": kempnerforge,
    "nemo-aligner": nemo,
    "ms-swift": ms_swift,
    "hf-trainer": hf_trainer,
    "deepspeed-chat": deepspeed_chat,
    "maxtext": maxtext,
}


def main() -> None:
    counts: dict[str, int] = {}
    with (HERE / "truths.csv").open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["repository", "path", "option", "value", "why"])
        for file in listed():
            truths = PROGRAMS[file.program](file) if file.program in PROGRAMS else []
            counts[file.program] = counts.get(file.program, 0) + len(truths)
            for option, value, why in truths:
                writer.writerow([file.repository, file.path, option, value, why])
    print(counts, sum(counts.values()))


if __name__ == "__main__":
    main()
