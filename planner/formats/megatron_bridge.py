"""Megatron-Bridge and NeMo: a ConfigContainer as YAML, overrides of it on a command line, and the
Python function of one recipe, which is read as a text and never run.

Names: megatron/bridge/training/config.py of NVIDIA-NeMo/Megatron-Bridge (2026-08).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner.formats import megatron_table as names
from planner.formats.megatron import own_words, scalar
from planner.formats.megatron_around import name_model, read_with, typed
from planner.formats.python_text import constant, named, tree
from planner.formats.record import Answer, Argument, Format, Value, of_mechanisms, unread
from planner.formats.shell import script
from planner.inputs.readers import yaml_places
from planner.specs.options.aliases import words

# tables of a ConfigContainer whose keys are arguments of Megatron-LM by other roofs
_SAME = (
    "model",
    "train",
    "optimizer",
    "ddp",
    "mixed_precision",
    "comm_overlap",
    "dist",
    "cuda_graph",
)
_OVERRIDE = re.compile(
    r"\+{0,2}((?:model|train|optimizer|ddp|dataset|mixed_precision|comm_overlap|checkpoint|logger|"
    r"scheduler|tokenizer|rng|validation|dist|peft|profiling)(?:\.\w+)+|mixed_precision)=(.*)",
    re.S,
)
_OVERRIDDEN = re.compile(r"(?:model|train|ddp|mixed_precision)\.\w+=\S")
_HUB = re.compile(r"from_hf_pretrained\(\s*[\"']([\w.-]+/[\w.-]+)[\"']")
_MODEL, _PRECISION, _BASE = "model", "mixed-precision", "cfg"
_RECIPE = re.compile(r"^(\w+?)_(?:pretrain|sft|peft|lora|finetune)")
_SIZE = re.compile(r"_(\d{1,6})gpu_([a-z]+\d+\w*?)(?:_|$)")
_DEFAULTS = {"bf16": True, "use-distributed-optimizer": True, "add-bias-linear": False}

TABLE = (
    *names.TABLE,
    Argument(_PRECISION, "precision", words=words("precisions", "megatron-bridge")),
    Argument("grad-reduce-in-fp32", "grad_reduce_precision", words={True: None, False: "bf16"}),
    Argument("share-embeddings-and-output-weights", "model.tied_embeddings"),
    *of_mechanisms("megatron-bridge"),
    Argument("peft.dim", "lora"),
    Argument("gated-linear-unit", "model.mlp", words={True: "gated", False: "plain"}),
)


def _detect(name: str, text: str) -> bool:
    if ".py" in name:
        return "ConfigContainer" in text and "cfg." in text
    if name.endswith((".yaml", ".yml")):
        tables = [name for name in ("model", "train", "ddp", "optimizer") if _has(name, text)]
        words = r"_target_:\s*megatron\.bridge|micro_batch_size:|global_batch_size:|train_iters:"
        return "train" in tables and len(tables) > 1 and re.search(words, text) is not None
    return _OVERRIDDEN.search(text) is not None and (
        "run_recipe" in text or "megatron" in text.lower()
    )


def _has(table: str, text: str) -> bool:
    return re.search(rf"^{table}:", text, re.M) is not None


def _parse(text: str) -> Mapping[str, Value]:
    if "ConfigContainer" in text and re.search(r"^\s*cfg\.", text, re.M):
        return _of_python(text)
    if _has("train", text):
        places = yaml_places(text).items()
        return {_plain(path): Value(typed(value), line) for path, (value, line) in places}
    return dict(_of_commands(text))


def _plain(path: str) -> str:
    """The name of an argument: "model.tensor_model_parallel_size" is Megatron-LM's own."""
    table, _, rest = path.partition(".")
    return (rest if table in _SAME and rest else path).replace("_", "-")


def _of_commands(text: str) -> Iterator[tuple[str, Value]]:
    """Overrides among the words of commands."""
    for command in script(text).commands:
        words = own_words(command.words)
        for i, word in enumerate(words):
            match = _OVERRIDE.fullmatch(word.text)
            if match:
                value = typed(scalar(match[2]))
                yield _plain(match[1]), Value(value, word.line, word.unknown)
            elif word.text == "--recipe" and i + 1 < len(words):
                yield "recipe", Value(words[i + 1].text, word.line, words[i + 1].unknown)


# ----- the function of a recipe -----


def _of_python(text: str) -> dict[str, Value]:
    """Assignments of literals to `cfg` in a function."""
    module = tree(text)
    constants = dict(_constants(module))
    recipes = [node for node in module.body if isinstance(node, ast.FunctionDef) and _assigns(node)]
    if len(recipes) > 1:
        listed = ", ".join(recipe.name for recipe in recipes)
        raise ValueError(f"holds {len(recipes)} recipes ({listed}); name one: FILE:NAME")
    out: dict[str, Value] = {}
    for recipe in recipes:
        out["recipe"] = Value(recipe.name, recipe.lineno)
        for node in recipe.body:
            constants.update(named(node, constants))
            out.update(_assigned(node, constants))
    return out


def recipes_in(text: str) -> dict[str, str]:
    """Each recipe of a Python file by its name, with the constants of the file before it. Raises
    ValueError where it does not parse."""
    module = tree(text)
    lines = text.splitlines()
    plain = [node for node in module.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    head = [line for node in plain for line in lines[node.lineno - 1 : node.end_lineno]]
    functions = [
        node for node in module.body if isinstance(node, ast.FunctionDef) and _assigns(node)
    ]
    return {
        function.name: "\n".join([*head, "", *lines[function.lineno - 1 : function.end_lineno], ""])
        for function in functions
    }


def _assigns(function: ast.FunctionDef) -> bool:
    """Whether a function creates a configuration, instead of taking one as an argument."""
    is_recipe = any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == _BASE
        for node in function.body
    )
    return is_recipe and not function.args.args and "ConfigContainer" in ast.unparse(function)


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        yield from named(node, {})


def _assigned(node: ast.stmt, constants: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Names and values of one statement."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = ast.unparse(node.value)
        yield called.partition("(")[0], Value(None, node.lineno, ("what it sets",))
    if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try):
        test = ast.unparse(getattr(node, "test", node)).splitlines()[0]
        yield f"{type(node).__name__.lower()} {test}", Value(None, node.lineno, (test,))
    if not isinstance(node, ast.Assign):
        return
    path = ast.unparse(node.targets[0])
    if path == _BASE:
        text = ast.unparse(node.value)
        if text.partition("(")[0].lstrip("_") not in _EMPTY:
            yield "cfg", Value(text, node.lineno)
        return
    if not path.startswith(f"{_BASE}."):
        return
    name = _plain(path.removeprefix(f"{_BASE}."))
    match = _HUB.search(ast.unparse(node.value))
    if match:
        yield name, Value(match[1], node.lineno)
    else:
        yield from _of_value(name, node.value, constants)


# functions that make a configuration with only defaults (recipes/common.py)
_EMPTY = ("pretrain_common", "sft_common", "peft_common")


def _of_value(
    name: str, node: ast.expr, constants: Mapping[str, Any]
) -> Iterator[tuple[str, Value]]:
    """A value that is written out: a constant, a type, a list, or the arguments of a call."""
    text = ast.unparse(node)
    if isinstance(node, ast.Call):
        inside = [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
        words = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if name == _PRECISION:
            called = words[0] if words else text.partition("(")[0]
            yield name, Value(called, node.lineno)
        elif inside:
            for key, value in inside:
                section = f"{name}." if name.replace("-", "_") not in _SAME else ""
                yield from _of_value(section + key.replace("_", "-"), value, constants)
        else:
            yield name, Value(text, node.lineno, (text.partition("(")[0],))
        return
    if (known := constant(node, constants)) is not None:
        yield name, Value(known, node.lineno)
        return
    try:
        yield name, Value(ast.literal_eval(node), node.lineno)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        known = typed(text)
        unknown = () if known != text else (text.splitlines()[0],)
        yield name, Value(known, node.lineno, unknown)


# what perf_recipes set for all that they time, in a file of their own
_BENCHMARKS = {"_benchmark_common", "_llama_benchmark_common"}
_OVERLAPS = {"overlap-grad-reduce", "overlap-param-gather"}  # set by comm_overlap, too


def _read_more(values: Mapping[str, Value], answer: Answer) -> None:
    whole = answer.model.get("layers") or isinstance(answer.get(_MODEL), str)
    answer.is_part = _BASE in values or not whole
    usual = {} if answer.is_part else {**_DEFAULTS}
    if _PRECISION in values:  # says more than both switches
        usual["bf16"] = False
    if answer.is_part:
        answer.notes.append("what the recipe sets in other files is not known: it is searched here")
    precision = answer.options.get("precision")
    read_with(answer, usual, "of Megatron-Bridge")
    if precision is not None:
        answer.options["precision"] = precision
    answer.drop("stack", *([] if _OVERLAPS & answer.values.keys() else ["dp_overlap"]))
    answer.is_part = False
    answer.imply("stack", "nemo", "Megatron-Bridge")
    answer.is_part = not whole or _BASE in values
    for called in _BENCHMARKS & values.keys():
        note = "steps that are timed reduce gradients in 16 bit"
        answer.imply("grad_reduce_precision", "bf16", note, called)
    answer.mark("warn_deprecated_model", "irrelevant")
    _name(values, answer)
    size = _SIZE.search(str(answer.get("recipe", "")))
    if size:
        answer.imply("gpus", int(size[1]), "the name of the recipe", "recipe")
        answer.imply("gpu", size[2], "the name of the recipe", "recipe")


def _name(values: Mapping[str, Value], answer: Answer) -> None:
    """The model: by its id on the Hugging Face Hub, by its widths, or by the recipe's name."""
    if isinstance(answer.get(_MODEL), str):
        answer.drop(*(f"model.{key}" for key in list(answer.model)))
        answer.state("model", answer.get(_MODEL), _MODEL)
        return
    if answer.model.get("layers"):
        return
    answer.drop(*(f"model.{key}" for key in list(answer.model)))
    for argument in (_BASE, "recipe"):
        value = _RECIPE.match(str(answer.get(argument, "")))
        if value and name_model(answer, argument, value[1].replace("_", "-"), "by its name"):
            break
    if _BASE in values:
        answer.mark(_BASE, "not understood", "what it sets is in another file")


FORMAT = Format(
    kind="megatron-bridge",
    title="Megatron-Bridge and NeMo (ConfigContainer YAML, overrides, a recipe's Python)",
    detect=_detect,
    parse=_parse,
    table=TABLE,
    read_more=_read_more,
    written_as="megatron",
    spelled=lambda name: name.replace("-", "_"),
    **unread("megatron_bridge"),
)
