"""OLMo-core's scripts: Python whose constants and configurations are read as a text, never run.

Names and defaults: src/olmo_core/train/train_module/transformer/config.py of
allenai/OLMo-core@fa6c5014.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from planner.formats import trainer
from planner.formats.megatron_around import name_model
from planner.formats.python_text import constant, named, tree
from planner.formats.record import Answer, Format, Value, unread

_DETECT = re.compile(r"\bolmo_core\b")
_CONFIG = re.compile(r"\w*Config")
_MODEL = "TransformerConfig"
_MODULE = "TransformerTrainModuleConfig"
_DATA = "TransformerDataParallelConfig"
_KEPT = "TransformerActivationCheckpointingConfig"
_LENGTHS = ("SEQUENCE_LENGTH", "DEFAULT_SEQUENCE_LENGTH")
_BATCHES = ("GLOBAL_BATCH_SIZE", "DEFAULT_GLOBAL_BATCH_SIZE")
_BATCH, _LENGTH = "global_batch_size", "max_sequence_length"
_DEGREES = {
    "tp": "TransformerTensorParallelConfig",
    "pp": "TransformerPipelineParallelConfig",
    "cp": "TransformerContextParallelConfig",
    "ep": "TransformerExpertParallelConfig",
}
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_OPTIMIZERS = re.compile(r"(?:SkipStep)?(AdamW|Adam|Lion|Muon)Config")
_SHARDS = {"fsdp": 3, "hsdp": 3, "ddp": 0}
_FAMILY = re.compile(r"(olmo|llama)(\d)_")
_FEED_FORWARD = re.compile(r"blocks\.\*\.feed_forward")
_SHOWN = 40


class _Read:
    """Constants of a module, and the keywords of the configurations that it calls: the last of
    several of a name counts."""

    def __init__(self, module: ast.Module) -> None:
        self.out: dict[str, Value] = {}
        self.constants: dict[str, Any] = {}
        for node in ast.walk(module):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                self._assigned(node)
        calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            self._called(call)

    def _assigned(self, node: ast.Assign | ast.AnnAssign) -> None:
        for name, value in named(node, self.constants):
            self.constants.setdefault(name, value)
            if name in (*_LENGTHS, *_BATCHES):
                self.out[name] = Value(value, node.lineno)
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        text = ast.unparse(target)
        if isinstance(target, ast.Name) and isinstance(node.value, ast.BoolOp):
            usual = constant(node.value.values[-1], self.constants)  # given on a command line, or
            if usual is not None:
                self.constants.setdefault(target.id, usual)
        elif text.startswith(("model_config.", "config.model.")):
            shown = ast.unparse(node.value)[:_SHOWN] if node.value else ""
            self.out[text] = Value(shown, node.lineno, (shown,))

    def _called(self, call: ast.Call) -> None:
        """Keywords of a configuration, and of one of its functions, whose name is `of`."""
        *above, name = ast.unparse(call.func).split(".")
        function = ""
        if above and _CONFIG.fullmatch(above[-1]):
            name, function = above[-1], name
        if name != "partial" and not _CONFIG.fullmatch(name):
            return
        if name != "partial":
            self.out[f"{name}.of"] = Value(function, call.lineno)
        for keyword in call.keywords:
            if keyword.arg:
                path = keyword.arg if name == "partial" else f"{name}.{keyword.arg}"
                self.out[path] = self._value(keyword.value)

    def _value(self, node: ast.expr) -> Value:
        text = ast.unparse(node)
        last = text.rpartition(".")[2]
        if isinstance(node, ast.Attribute) and re.match(r"[A-Z]\w+\.", text):
            return Value(last, node.lineno)  # of an enumeration
        known = constant(node, self.constants)
        if known is None and last in ("sequence_length", _LENGTH):
            known = next((self.constants[n] for n in _LENGTHS if n in self.constants), None)
        if known is None:
            try:
                known = ast.literal_eval(node)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                shown = text.splitlines()[0][:_SHOWN]
                return Value(shown, node.lineno, (shown,))
        return Value(known, node.lineno)


def _parse(text: str) -> Mapping[str, Value]:
    return _Read(tree(text)).out


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.imply("stack", "pytorch-fsdp", "FSDP 2 of torch")
    _batch(answer)
    _module(values, answer)
    _recompute(values, answer)
    _model(values, answer)
    for name, value in values.items():
        if name.endswith(".of") or (isinstance(value.value, str) and "Config(" in value.value):
            answer.mark(name, "irrelevant", "a configuration, whose arguments are beside it")


def _first(answer: Answer, *names: str) -> str:
    return next((name for name in names if isinstance(answer.get(name), int)), "")


def _batch(answer: Answer) -> None:
    """Lengths and batches, which it counts in tokens."""
    length = _first(answer, f"{_MODULE}.{_LENGTH}", _LENGTH, *_LENGTHS)
    if not length:
        return
    tokens = answer.get(length)
    answer.state("seq_len", tokens, length)
    batch = _first(answer, f"NumpyDataLoaderConfig.{_BATCH}", _BATCH, *_BATCHES)
    if batch:
        answer.state("global_batch", answer.get(batch) // tokens, batch, "tokens")
    micro = f"{_MODULE}.rank_microbatch_size"
    if isinstance(answer.get(micro), int):
        answer.state("micro_batch", answer.get(micro) // tokens, micro, "tokens")
    for name in (*_LENGTHS, *_BATCHES, _LENGTH, _BATCH):
        answer.mark(name, "implied", "what the configurations have")


def _module(values: Mapping[str, Value], answer: Answer) -> None:
    """Sharding and degrees of the train module."""
    kind = answer.get(f"{_DATA}.name")
    if kind in _SHARDS:
        answer.state("zero", _SHARDS[kind], f"{_DATA}.name")
        if kind == "ddp":
            answer.imply("stack", "pytorch-ddp", "of its data parallelism", f"{_DATA}.name")
    shard = answer.get(f"{_DATA}.shard_degree")
    if isinstance(shard, int):
        answer.state("shard_group", shard, f"{_DATA}.shard_degree")
    answer.mark(f"{_DATA}.num_replicas", "implied", "follows from the GPUs")
    for option, config in _DEGREES.items():
        name = f"{config}.degree"
        if isinstance(answer.get(name), int) and answer.get(name) > 0:
            answer.state(option, answer.get(name), name)
        elif not any(given.startswith(f"{config}.") for given in values) and option != "ep":
            answer.imply(option, 1, f"no {config}")
        else:
            answer.mark(name, "not understood", f"all that there are, or unknown: --{option}")
    if answer.get(f"{_DEGREES['cp']}.of") == "ulysses":
        answer.imply("cp_comm_type", "ulysses", "its way to share sequences")
    answer.mark(f"{_DEGREES['cp']}.of", "read")
    _types(values, answer)


def _types(values: Mapping[str, Value], answer: Answer) -> None:
    """Types, optimizer and compilation of the train module."""
    word = _TYPES.get(str(answer.get(f"{_DATA}.param_dtype")))
    eight = "Float8Config.of" in values and answer.get("Float8Config.enabled", True)
    if eight:
        answer.imply("precision", "fp8", "Float8Config is on", "Float8Config.enabled")
    elif word:
        answer.state("precision", word, f"{_DATA}.param_dtype")
    answer.mark(f"{_DATA}.param_dtype", "implied", "FP8 of weights in it")
    answer.mark("Float8Config.enabled", "implied", "off")
    kinds = [match for name in values if (match := _OPTIMIZERS.fullmatch(name.partition(".")[0]))]
    if kinds:
        named = f"{kinds[-1][0]}.of"
        answer.imply("optimizer", trainer.optimizer(kinds[-1][1]), "its configuration", named)
    compiled = f"{_MODULE}.compile_model"
    if isinstance(answer.get(compiled), bool):
        answer.state("compile", answer.get(compiled), compiled)


def _recompute(values: Mapping[str, Value], answer: Answer) -> None:
    name = f"{_KEPT}.mode"
    mode, modules = answer.get(name), f"{_KEPT}.modules"
    if not any(given.startswith(f"{_KEPT}.") for given in values):
        answer.imply("recompute", "none", "no ac_config")
    elif mode == "full":
        answer.state("recompute", "full", name)
    elif mode == "selected_modules" and _FEED_FORWARD.search(str(answer.get(modules))):
        answer.imply("recompute", "mlp", "of feed_forward", name, modules)
    else:
        answer.mark(name, "not understood", f"{mode} of the activations: --recompute")


def _model(values: Mapping[str, Value], answer: Answer) -> None:
    """A model by the name of its function; one that the script then changes is not known."""
    name = f"{_MODEL}.of"
    changed = [given for given in values if given.startswith(("model_config.", "config.model."))]
    if changed or answer.get(name) is None:
        answer.mark(name, "not understood", "the script changes the model: give --model")
    elif answer.get(name):
        name_model(answer, name, _FAMILY.sub(r"\1-\2-", str(answer.get(name)).lower()))


def _detect(name: str, text: str) -> bool:
    return name.endswith(".py") and _DETECT.search(text) is not None and _MODULE in text


FORMAT = Format(
    kind="olmo-core",
    title="OLMo-core scripts (Python)",
    detect=_detect,
    parse=_parse,
    table=(),
    whole=True,
    read_more=_more,
    **unread("olmo_core"),
)
