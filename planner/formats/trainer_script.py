"""Arguments of transformers' Trainer and of TRL that stand in no file of their own: behind the
command of a shell script, and in the calls of a Python script or notebook, which is read as a text
and never run.

Both come out by the names of TRL's YAML, in which LoraConfig's and BitsAndBytesConfig's arguments
are lora_* and load_in_*. Names of calls: transformers 5.23, TRL and PEFT at 2026-07,
unslothai/unsloth@015bdef0 models/loader.py.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from planner.formats import megatron, trainer
from planner.formats.python_text import constant, named, tree
from planner.formats.record import Answer, Value
from planner.formats.shell import Command, script
from planner.specs.names import BITSANDBYTES

HF, TRL, LLAMA_FACTORY = "hf-trainer", "trl", "llama-factory"
OBJECTIVE = "script"  # which trainer is started: sft, dpo, ...
UNSLOTH = "FastLanguageModel"
KBIT = "prepare_model_for_kbit_training"
TASKS = ("sft", "dpo", "kto", "orpo", "cpo", "reward", "gkd", "grpo", "rloo", "ppo", "online_dpo")

# ----- commands -----

_TRAINS = ("per_device_train_batch_size", "model_name_or_path")
_OF_LLAMA_FACTORY = ("finetuning_type", "cutoff_len")
_OF_TRL = (
    *("use_peft", "max_length", "packing", "lora_target_modules", "load_in_4bit"),
    *("num_generations", "max_completion_length", "max_prompt_length", "reward_funcs"),
)
_IN_SHELL = re.compile(rf"--(?:{'|'.join(_TRAINS)})\b".replace("_", "[_-]"))
_SCRIPT = re.compile(
    rf"(?:^|/)(?:run_|train_)?({'|'.join(TASKS)})(?:_\w+)?\.py$|\.(?P<module>{'|'.join(TASKS)})$"
)


def _of_command(command: Command) -> dict[str, Value]:
    """The arguments of a command that starts a trainer, none of another."""
    words = [word.text for word in command.words]
    script_words = megatron.of_words(megatron.own_words(command.words))
    out = {name.replace("-", "_"): value for name, value in script_words.items()}
    if not any(name in out for name in _TRAINS):
        return {}
    line = command.words[0].line
    if words[0] == TRL and len(words) > 1:
        out[OBJECTIVE] = Value(words[1], line)
    elif match := next((m for word in words if (m := _SCRIPT.search(word))), None):
        out[OBJECTIVE] = Value(match[1] or match["module"], line)
    elif task := _in_name(words):
        out[OBJECTIVE] = Value(task, line)
    return out


_IN_NAME = {**{task: task for task in TASKS if task != "sft"}, "rm": "reward"}


def _in_name(words: list[str]) -> str:
    """The one objective beside sft that the name of a script has as a word; "" for none."""
    scripts = [word.rpartition("/")[2].lower() for word in words if word.endswith(".py")]
    names = [re.split(r"[^a-z]+", script) for script in scripts]
    tasks = {_IN_NAME[part] for parts in names for part in parts[:-1] if part in _IN_NAME}
    return tasks.pop() if len(tasks) == 1 else ""


# ----- Python -----

_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
_CONFIGS = re.compile(r"(?:SFT|DPO|KTO|ORPO|CPO|Reward|GKD|GRPO|RLOO|PPO|OnlineDPO)Config")
_TRAINERS = re.compile(r"(SFT|DPO|KTO|ORPO|CPO|Reward|GKD|GRPO|RLOO|PPO|OnlineDPO)Trainer")
_MODELS = re.compile(r"AutoModel\w*|\w+For(?:CausalLM|ConditionalGeneration)|Fast\w*Model")
_IN_PYTHON = re.compile(
    rf"\b(?:{'|'.join(_ARGUMENTS)}|{_CONFIGS.pattern}|{_TRAINERS.pattern}|Fast\w*Model\.\w+)\s*\("
)
_LORA = {
    "r": "lora_r",
    "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
    "bias": "",
    "task_type": "lora_task_type",
}
_QUANTISED = {"bnb_4bit_use_double_quant": "use_bnb_nested_quant"}
_LOADED = {
    "pretrained_model_name_or_path": "model_name_or_path",
    "model_name": "model_name_or_path",
    "torch_dtype": "dtype",
    "max_seq_length": "max_length",
    "device_map": "",
    "quantization_config": "",
    "config": "",
}
_UNSLOTH_LOADS = ("load_in_4bit", "use_bnb_nested_quant")
_HANDED = {"max_seq_length": "max_length"}
# what a trainer is handed besides numbers: objects
_OBJECTS = re.compile(
    r"model|ref_model|args|tokenizer|processing_class|.*dataset|peft_config|data_collator|"
    r"callbacks|formatting_func|optimizers|compute_metrics|reward_funcs|teacher_model"
)
_TORCH_TYPES = ("bfloat16", "float16", "float32", "half")
_OF_THE_CARD = ("is_bfloat16_supported", "is_bf16_supported")  # bf16 where the card has it


class _Read:
    """Calls of a module in order; the last of several counts."""

    def __init__(self, module: ast.Module) -> None:
        self.out: dict[str, Value] = {}
        self.constants: dict[str, Any] = {}
        for node in ast.walk(module):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                for name, value in named(node, self.constants):
                    self.constants.setdefault(name, value)
        calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            self._call(call)

    def _call(self, call: ast.Call) -> None:
        path = _path(call.func)
        name, _, last = path.rpartition(".")
        kind = name.rpartition(".")[2]
        if last in _ARGUMENTS or _CONFIGS.fullmatch(last):
            self._put_all(call)
            if last in _ARGUMENTS:  # not TRL's, whose own are on
                self.out.setdefault("gradient_checkpointing", Value(False, call.lineno))
        elif last == "LoraConfig":
            self._put_all(call, _LORA, "lora_")
            self._put("use_peft", Value(True, call.lineno))
        elif last == "BitsAndBytesConfig":
            self._put_all(call, _QUANTISED)
            self.out.setdefault("bnb_4bit_quant_type", Value("fp4", call.lineno))  # its default
        elif last == "from_pretrained" and _MODELS.fullmatch(kind):
            self._loaded(call, kind)
        elif last == "get_peft_model" and kind.startswith("Fast"):
            self._of_unsloth(call)
        elif last == KBIT:
            self._put(KBIT, Value(True, call.lineno))
            self._put("gradient_checkpointing", Value(True, call.lineno))
        elif last == "gradient_checkpointing_enable":
            self._put("gradient_checkpointing", Value(True, call.lineno))
        elif match := _TRAINERS.fullmatch(last):
            self._handed(call, match[1].lower().replace("onlinedpo", "online_dpo"))

    def _loaded(self, call: ast.Call, kind: str) -> None:
        """The model; Unsloth loads in 4 bit by default."""
        if call.args:
            self._put("model_name_or_path", self._value("model_name_or_path", call.args[0]))
        if kind.startswith("Fast"):
            self._put(UNSLOTH, Value(True, call.lineno))
            self.out |= dict.fromkeys(_UNSLOTH_LOADS, Value(True, call.lineno))
        self._put_all(call, _LOADED)

    def _of_unsloth(self, call: ast.Call) -> None:
        self._put_all(call, {**_LORA, "use_gradient_checkpointing": "gradient_checkpointing"}, "")
        self._put("use_peft", Value(True, call.lineno))
        self.out.setdefault("lora_target_modules", Value("all-linear", call.lineno))
        value = self.out.get("gradient_checkpointing")
        if value is None or value.value == "unsloth":
            self.out["gradient_checkpointing"] = Value(True, call.lineno)
            self.out["activation_offloading"] = Value(True, call.lineno)

    def _handed(self, call: ast.Call, objective: str) -> None:
        self._put(OBJECTIVE, Value(objective, call.lineno))
        for entry in call.keywords:
            if entry.arg == "model" and isinstance(constant(entry.value, self.constants), str):
                self._put("model_name_or_path", self._value("model", entry.value))
        kept = [
            keyword
            for keyword in call.keywords
            if keyword.arg and not _OBJECTS.fullmatch(keyword.arg)
        ]
        self._put_all(ast.Call(call.func, [], kept), _HANDED)

    def _put_all(
        self, call: ast.Call, names: Mapping[str, str] | None = None, prefix: str = ""
    ) -> None:
        """Arguments by keyword, under other names; "" leaves one out."""
        for keyword in call.keywords:
            if keyword.arg is None:
                continue
            name = (names or {}).get(keyword.arg, keyword.arg)
            if prefix and name == keyword.arg and not name.startswith(("use_", prefix)):
                name = prefix + name
            if name:
                self._put(name, self._value(keyword.arg, keyword.value))

    def _put(self, name: str, value: Value | None) -> None:
        if value is None:
            return
        old = self.out.get(name)
        if old is not None and old.value != value.value and old.line != value.line:
            self.out[f"{name} (line {old.line})"] = old
        self.out[name] = value

    def _value(self, name: str, node: ast.expr) -> Value | None:
        """A literal value; None if it depends only on the GPU."""
        text = ast.unparse(node)
        if any(f"{name}()" in text for name in _OF_THE_CARD):
            return None
        if text.rpartition(".")[2] in _TORCH_TYPES:
            return Value(text.rpartition(".")[2], node.lineno)
        known = constant(node, self.constants)
        if known is None:
            try:
                known = ast.literal_eval(node)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return Value(None, node.lineno, (text.splitlines()[0][:_SHOWN],))
        return Value(known, node.lineno)


_SHOWN = 40  # characters of an expression that is not worked out


def _path(node: ast.expr) -> str:
    """The name that is called, with its module: "transformers.TrainingArguments"."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def without_outputs(text: str) -> str:
    """The code of a notebook, without pictures and prints. Raises ValueError."""
    cells = [{"cell_type": "code", "source": source} for source in _sources(text)]
    return json.dumps({"cells": cells}, indent=1)


def _sources(text: str) -> list[Any]:
    """Code cells of a notebook."""
    notebook = json.loads(text)
    cells = notebook.get("cells", []) if isinstance(notebook, dict) else []
    return [cell.get("source", "") for cell in cells if _is_code(cell)]


def _code(text: str) -> str:
    """The Python of a text; for a notebook its code cells without magic commands."""
    if not text.lstrip().startswith("{"):
        return text
    sources = _sources(text)
    texts = ("".join(text) if isinstance(text, list) else str(text) for text in sources)
    lines = "\n".join(text for text in texts if not _OF_ANOTHER.match(text))
    return _TO_NOTEBOOK.sub(r"\1pass  #", lines)


_OF_ANOTHER = re.compile(r"\s*%%(?:bash|sh|script|writefile|html|javascript|markdown)\b")
_TO_NOTEBOOK = re.compile(r"^(\s*)[!%]", re.M)


def _is_code(cell: Any) -> bool:
    return isinstance(cell, dict) and cell.get("cell_type") == "code"


# ----- both -----


def read(answer: Answer) -> None:
    """Calls of a script besides configurations, after adapters have been read."""
    if UNSLOTH in answer.values:
        answer.state("stack", "unsloth", UNSLOTH)
        answer.imply("gpus", 1, "Unsloth trains on one GPU", UNSLOTH)
    if answer.option("base_precision") in BITSANDBYTES:
        if KBIT in answer.values:
            answer.state("base_upcast", "all", KBIT)
        elif any(value.file.endswith((".py", ".ipynb")) for value in answer.values.values()):
            answer.imply("base_upcast", "none", f"the script does not call {KBIT}")
    answer.mark(KBIT, "implied", "weights are in 16 bit")
    if trainer.is_off(answer.get("full_finetuning")):
        answer.mark("full_finetuning", "implied", "off")
    if not trainer.is_on(answer, "load_in_4bit"):
        answer.mark("use_bnb_nested_quant", "implied", "weights are in 16 bit")


def parse(text: str) -> Mapping[str, Value]:
    """Arguments by name, of a script or of YAML and JSON. Raises ValueError where it is broken."""
    if _IN_PYTHON.search(text) or _IN_SHELL.search(text):
        return _of_script(text)
    return trainer.parse(text)


def _of_script(text: str) -> Mapping[str, Value]:
    if _IN_PYTHON.search(text):
        return _Read(tree(_code(text))).out
    shell = script(text)
    for commands in (shell.commands, shell.possible):
        kinds = (_of_command(command) for command in commands)
        if best := max(kinds, key=len, default={}):
            return best
    return {}


def kind_of(name: str, text: str) -> str:
    """Which format reads the arguments of a script: HF, TRL or LLAMA_FACTORY; "" where it holds
    none."""
    if name.endswith((".py", ".ipynb")):
        if not _IN_PYTHON.search(text) or "ConfigContainer" in text:
            return ""
        is_trainer = _CONFIGS.search(text) or _TRAINERS.search(text) or UNSLOTH in text
        return TRL if is_trainer else HF
    if name.endswith((".yaml", ".yml", ".json", ".jsonc", ".toml")) or not _IN_SHELL.search(text):
        return ""
    if megatron.STARTS_SWIFT.search(text):
        return ""
    return _kind_of_command(text)


@lru_cache(8)
def _kind_of_command(text: str) -> str:
    try:
        kind = _of_script(text)
    except ValueError:
        return HF  # whose parser says what is broken
    if any(name in kind for name in _OF_LLAMA_FACTORY):
        return LLAMA_FACTORY
    if OBJECTIVE in kind or any(name in kind for name in _OF_TRL):
        return TRL
    return HF if kind else ""


def is_of(kind: str, name: str, text: str) -> bool:
    """Whether a script has arguments of this format."""
    return kind_of(name, text) == kind
