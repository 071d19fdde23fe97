"""Truths of files of further programs that pre-train and fine-tune: configurations in Python whose
constants are worked out here, notebooks, and YAML of Levanter, Automodel, Primus and picotron."""

from __future__ import annotations

import ast
import json
import operator
import re
from typing import Any

import yaml

from benchmarks.corpus.fetch import File
from benchmarks.corpus.fine_tuning import adapters, trainer
from benchmarks.corpus.given import Given, Truth, command_of, flags, on

_OPERATORS = {ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub}
_OPERATORS |= {ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow}


def _constant(node: ast.AST, known: dict[str, Any]) -> Any:
    """The value of literals, of known names and of arithmetic of both; else None."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        sides = _constant(node.left, known), _constant(node.right, known)
        if all(isinstance(side, int | float) for side in sides):
            return _OPERATORS[type(node.op)](*sides)
    return None


def _constants(tree: ast.AST) -> dict[str, Any]:
    """Constants at the top of a module, the last assignment of each."""
    known: dict[str, Any] = {}
    for node in tree.body if isinstance(tree, ast.Module) else []:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known[node.targets[0].id] = _constant(node.value, known)
    return {name: value for name, value in known.items() if value is not None}


def _calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """Calls of a function by the last part of its name."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == name]


def _keywords(call: ast.Call, known: dict[str, Any]) -> dict[str, Any]:
    return {k.arg: _constant(k.value, known) for k in call.keywords if k.arg}


def olmo_core(file: File) -> list[Truth]:
    """A script of OLMo-core: constants at its top and the configuration of its train module."""
    tree = ast.parse(file.cached.read_text("utf-8"))
    known = _constants(tree)
    given = Given({})
    length = known.get("SEQUENCE_LENGTH", known.get("DEFAULT_SEQUENCE_LENGTH"))
    given.say("seq_len", length, "the constant of the sequence's length")
    batch = known.get("GLOBAL_BATCH_SIZE")
    if length and isinstance(batch, int):
        given.say("global_batch", batch // length, "GLOBAL_BATCH_SIZE, tokens")
    modules = _calls(tree, "TransformerTrainModuleConfig")
    if len(modules) != 1 or length is None:
        return given.out
    known |= {"sequence_length": length}
    micro = _keywords(modules[0], known).get("rank_microbatch_size")
    if isinstance(micro, int):
        given.say("micro_batch", micro // length, "rank_microbatch_size, tokens")
    text = ast.unparse(modules[0])
    if re.search(r"optim=\w*AdamW\w*Config\(", text):
        given.say("optimizer", "adam", "optim")
    eight = "Float8Config(" in text and "enabled=False" not in text  # on by default
    if re.search(r"param_dtype=DType\.bfloat16", text) and not eight:
        given.say("precision", "bf16", "dp_config.param_dtype")
    if re.search(r"DataParallelType\.[hf]sdp", text):
        given.say("zero", 3, "dp_config.name")
    if "ac_config" not in text:
        given.say("recompute", "none", "no ac_config")
    elif "CheckpointingMode.full" in text:
        given.say("recompute", "full", "ac_config.mode")
    for option in ("tp", "pp", "cp"):
        if f"{option}_config" not in text:
            given.say(option, 1, f"no {option}_config")
    return given.out


def xtuner(file: File) -> list[Truth]:
    """XTuner's configuration of mmengine: variables at the top, the model in nested dicts."""
    text = file.cached.read_text("utf-8")
    tree = ast.parse(text)
    known = _constants(tree)
    given = Given(known)
    if "accumulative_counts" not in known:
        return []  # the later XTuner, whose model is in another file
    given.number("micro_batch", "batch_size")
    given.number("grad_accum", "accumulative_counts")
    given.number("seq_len", "max_length")
    path = known.get("pretrained_model_name_or_path")
    given.say("model", path, "pretrained_model_name_or_path")
    rank = re.search(r"type=LoraConfig,\s*r=(\d+)", text)
    given.say("lora", int(rank[1]) if rank else 0, "model.lora")
    if re.search(r"load_in_4bit=True", text):
        given.say("frozen_bits", 4, "quantization_config")
    if known.get("optim_type") is None and re.search(r"optim_type = AdamW\b", text):
        given.say("optimizer", "adam", "optim_type")
    given.say("recompute", "full", "SupervisedFinetune: use_activation_checkpointing=True")
    if known.get("sequence_parallel_size"):
        given.say("cp", known["sequence_parallel_size"], "sequence_parallel_size")
    return given.out


def nanogpt(file: File) -> list[Truth]:
    given = Given(_constants(ast.parse(file.cached.read_text("utf-8"))))
    program = "nanoGPT train.py"
    given.number("micro_batch", "batch_size", 12, program)
    given.number("seq_len", "block_size", 1024, program)
    if "init_from" not in given.values:
        given.number("model.layers", "n_layer", 12, program)
        given.number("model.hidden", "n_embd", 768, program)
    given.say("optimizer", "adam", "AdamW of model.py")
    given.say("recompute", "none", "no checkpointing in model.py")
    return given.out


def internevo(file: File) -> list[Truth]:
    """InternEvo: data and parallel as dicts of constants."""
    tree = ast.parse(file.cached.read_text("utf-8"))
    known = _constants(tree)
    given = Given(known)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        name, values = ast.unparse(node.targets[0]), _keywords(node.value, known)
        if name == "data":
            given.say("seq_len", values.get("seq_len"), "data.seq_len")
            given.say("micro_batch", values.get("micro_bsz"), "data.micro_bsz")
            given.say("grad_accum", values.get("micro_num"), "data.micro_num")
        elif name == "model":
            given.say("model.layers", values.get("num_layers"), "model.num_layers")
            given.say("model.hidden", values.get("hidden_size"), "model.hidden_size")
            given.say("model.heads", values.get("num_attention_heads"), "num_attention_heads")
    return given.out


def notebook(file: File) -> list[Truth]:
    """A notebook: keywords of the configuration of its trainer, and of its adapters."""
    cells = json.loads(file.cached.read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    code = "\n".join(text for text in sources if not text.startswith(("%%bash", "%%sh")))
    lines = (line for line in code.split("\n") if not re.match(r"\s*[!%]", line))
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return []
    known = _constants(tree)
    given = Given({})
    for name in ("SFTConfig", "GRPOConfig", "DPOConfig", "ORPOConfig", "TrainingArguments"):
        for call in _calls(tree, name)[-1:]:
            values = _keywords(call, known)
            micro = values.get("per_device_train_batch_size")
            if isinstance(micro, int):
                pairs = 2 if name in ("DPOConfig", "ORPOConfig") else 1
                given.say("micro_batch", micro * pairs, "per_device_train_batch_size")
            count = values.get("gradient_accumulation_steps")
            given.say("grad_accum", count, "gradient_accumulation_steps")
    for name in ("get_peft_model", "LoraConfig"):
        ranks = [_keywords(call, known).get("r") for call in _calls(tree, name)]
        if ranks and isinstance(ranks[-1], int):
            given.say("lora", ranks[-1], f"r of {name}")
            break
    loads = [_keywords(c, known).get("load_in_4bit") for c in _calls(tree, "from_pretrained")]
    if True in loads and "get_peft_model" in code:
        given.say("frozen_bits", 4, "load_in_4bit")
    return given.out


def levanter(file: File) -> list[Truth]:
    text = re.sub(r"!include \S+", "included", file.cached.read_text("utf-8"))
    values = yaml.safe_load(text)
    trainer, model = values["trainer"], values.get("model") or {}
    given = Given(trainer)
    program = "src/levanter/trainer.py"
    given.number("global_batch", "train_batch_size", 512, program)
    given.number("tp", "model_axis_size", 1, program)
    given.say("precision", {"p=f32,c=bfloat16": "bf16"}.get(trainer.get("mp")), "trainer.mp")
    if values.get("use_hf_model_config"):
        return given.out
    kind = model.get("type")
    if kind not in ("gpt2", "llama", "mistral", "mixtral"):
        return given.out
    given.say("seq_len", model.get("seq_len", 1024 if kind == "gpt2" else None), "model.seq_len")
    given.say("model.layers", model.get("num_layers"), "model.num_layers")
    given.say("model.hidden", model.get("hidden_dim"), "model.hidden_dim")
    given.say("model.heads", model.get("num_heads"), "model.num_heads")
    given.say("model.kv_heads", model.get("num_kv_heads"), "model.num_kv_heads")
    checkpoints = model.get("gradient_checkpointing", True)
    if isinstance(checkpoints, bool):
        given.say("recompute", "full" if checkpoints else "none", "gradient_checkpointing, on")
    optimizer = values.get("optimizer") or {}
    kind = optimizer.get("type", "adam") if isinstance(optimizer, dict) else None
    given.say("optimizer", "adam" if kind == "adam" else None, "optimizer.type, adam")
    return given.out


def automodel(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    steps = values["step_scheduler"]
    given = Given(steps)
    given.number("global_batch", "global_batch_size")
    given.number("micro_batch", "local_batch_size")
    model = values["model"]
    given.say("model", model.get("pretrained_model_name_or_path"), "model")
    peft = values.get("peft")
    given.say("lora", peft.get("dim", 8) if peft else 0, "peft.dim, no adapters without")
    for option in ("tp", "cp", "pp", "ep"):
        size = (values.get("distributed") or {}).get(f"{option}_size")
        given.say(option, size if isinstance(size, int) else None, f"distributed.{option}_size")
    return given.out


def primus(file: File) -> list[Truth]:
    """An experiment of Primus: overrides of its trainer of Megatron-LM, torchtitan or MaxText."""
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    outer = next(iter(values["modules"].values()))
    theirs = {
        name: re.sub(r"^\$\{\w+:(.*)\}$", r"\1", value) if isinstance(value, str) else value
        for name, value in outer["overrides"].items()
    }
    given = Given(theirs)
    if outer["framework"] == "megatron":
        if "diffusion" in file.path:
            return []
        given.number("micro_batch", "micro_batch_size")
        given.number("global_batch", "global_batch_size")
        given.number("seq_len", "seq_length")
        given.number("tp", "tensor_model_parallel_size")
        given.number("pp", "pipeline_model_parallel_size")
        given.number("ep", "expert_model_parallel_size")
        if theirs.get("recompute_granularity") == "full":
            count = theirs.get("recompute_num_layers")
            if theirs.get("recompute_method") == "block":
                given.say("recompute", f"block:{count}" if count else "none", "recompute_method")
    elif outer["framework"] == "torchtitan":
        training = theirs.get("training") or {}
        given.say("micro_batch", training.get("local_batch_size"), "training.local_batch_size")
        given.say("seq_len", training.get("seq_len"), "training.seq_len")
        mode = (theirs.get("activation_checkpoint") or {}).get("mode")
        given.say("recompute", mode if mode in ("none", "full") else None, "mode")
    else:
        given.number("seq_len", "max_target_length")
        given.number("micro_batch", "per_device_batch_size")
        policy = theirs.get("remat_policy")
        given.say("recompute", policy if policy == "full" else None, "remat_policy")
    return given.out


def picotron(file: File) -> list[Truth]:
    values = json.loads(file.cached.read_text("utf-8"))
    degrees, training = values["distributed"], values["training"]
    given = Given(training)
    given.number("micro_batch", "micro_batch_size")
    given.number("grad_accum", "gradient_accumulation_steps")
    given.number("seq_len", "seq_length")
    gpus = 1
    for option in ("tp", "cp", "pp", "dp"):
        gpus *= degrees[f"{option}_size"]
        if option != "dp":
            given.say(option, degrees[f"{option}_size"], f"distributed.{option}_size")
    given.say("gpus", gpus, "product of the degrees")
    given.say("model", values["model"]["name"], "model.name")
    return given.out


_SHORT = {"c": "config", "p": "plugin", "b": "batch_size", "g": "grad_checkpoint"}
_LLAMAS = {"7b": "llama-2-7b", "13b": "llama-2-13b", "70b": "llama-2-70b"}
_PAIRS = ("dpo", "rm", "orpo", "simpo")


def colossalai(file: File) -> list[Truth]:
    """A command of `colossalai run`. examples/language/llama/benchmark.py names Llama 2 by its size
    and has bf16, ZeRO 3 by Gemini and a sequence of 4096 by default; of the "3d" plugin a batch is
    cut into micro-batches of --mbs where there is a pipeline. opt_train_demo.py repeats activations
    and has tp 2, pp 2 and two micro-batches in its hybrid_parallel plugin."""
    words = command_of(file, "train") or command_of(file, "benchmark.py")
    words = [f"-{word}" if re.fullmatch("-[a-z]", word) else word for word in words]
    given = Given({_SHORT.get(name, name): value for name, value in flags(words).items()})
    get = given.get
    if not words:
        return []
    script = next(word for word in words if word.endswith(".py"))
    llama, opt = script.endswith("/benchmark.py") or script == "benchmark.py", "opt_" in script
    pairs = 2 if any(f"_{name}." in file.path for name in _PAIRS) else 1
    size = get("batch_size", "train_batch_size", "micro_batch_size")
    size = 2 if size is None and llama else size
    plugin = str(get("plugin", default="gemini"))
    hybrid = plugin in ("3d", "hybrid_parallel")
    if hybrid:
        tp, pp = (2, 2) if opt else (get("tp", default=1), get("pp", default=1))
        given.say("tp", tp, "--tp")
        given.say("pp", pp, "--pp")
        if pp > 1 and isinstance(size, int):
            each = size // 2 if opt else get("mbs", "microbatch_size", default=1)
            given.say("grad_accum", size // each, "micro-batches of a batch")
            size = each
    else:
        given.number("grad_accum", "accumulation_steps")
    if isinstance(size, int) and "ppo" not in file.path and "grpo" not in file.path:
        given.say("micro_batch", size * pairs, "--batch_size")
    given.number("seq_len", "max_length max_len")
    if llama:
        given.say("seq_len", get("max_length", default=4096), "--max_length, 4096")
        given.say("model", _LLAMAS.get(str(get("config", default="7b"))), "--config, 7b")
    checkpoints = on(get("grad_checkpoint", "use_grad_checkpoint")) or opt
    given.say("recompute", "full" if checkpoints else "none", "--grad_checkpoint, off")
    stages = {"zero2": 2, "zero2_cpu": 2, "ddp": 0, "gemini": 3, "gemini_auto": 3}
    stage = get("zero", "zero_stage", default=0) if hybrid else stages.get(plugin)
    given.say("zero", stage, "--plugin")
    usual = "bf16" if llama or script.endswith("train_sft.py") else "fp16"
    given.say("precision", get("mixed_precision", default=usual), f"--mixed_precision, {usual}")
    given.say("gpus_per_node", given_gpus(words), "--nproc_per_node")
    return given.out


def given_gpus(words: list[str]) -> int | None:
    """--nproc_per_node of a launcher."""
    at = words.index("--nproc_per_node") if "--nproc_per_node" in words else -1
    return int(words[at + 1]) if at >= 0 and words[at + 1].isdecimal() else None


def firefly(file: File) -> list[Truth]:
    """Firefly's JSON: TrainingArguments beside its own train_mode, qlora where it is left out."""
    given = Given(json.loads(file.cached.read_text("utf-8")))
    get = given.get
    dpo = get("task_type") == "dpo"
    trainer(given)
    if dpo:
        given.say("task", "dpo", "task_type")
        given.out = [
            (option, value * 2 if option == "micro_batch" else value, why)
            for option, value, why in given.out
        ]
    given.say("seq_len", get("max_seq_length"), "max_seq_length")
    mode = get("train_mode", default="qlora")
    adapters(given, mode != "full", "lora_rank", 64)
    if mode == "qlora":
        given.say("frozen_bits", 4, "train_mode, default qlora")
    return given.out


def deepspeed(file: File) -> list[Truth]:
    values = json.loads(file.cached.read_text("utf-8"))
    given = Given(values)
    given.say("zero", values["zero_optimization"]["stage"], "zero_optimization.stage")
    for name in ("bf16", "fp16"):
        if on(values.get(name, {}).get("enabled")):
            given.say("precision", name, f"{name}.enabled")
    return given.out


def accelerate(file: File) -> list[Truth]:
    values = yaml.safe_load(file.cached.read_text("utf-8"))
    given = Given(values)
    given.number("gpus", "num_processes")
    stage = (values.get("deepspeed_config") or {}).get("zero_stage")
    given.say("zero", stage, "deepspeed_config.zero_stage")
    precision = values.get("mixed_precision")
    given.say("precision", precision if precision in ("bf16", "fp16") else None, "mixed_precision")
    return given.out
