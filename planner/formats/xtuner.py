"""XTuner's configurations of mmengine: Python that is read as a text, never run.

Names and defaults: xtuner/configs and xtuner/model/sft.py of InternLM/xtuner@b934f462. Its later
configurations (xtuner.v1), whose model is a class, are not read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from planner.formats import adapted, trainer
from planner.formats.packed import Rows, read_rows
from planner.formats.python_text import constant, named, tree
from planner.formats.record import Answer, Argument, Format, Value, unread

_DETECT = re.compile(r"(?m)^from xtuner\.|^from mmengine\.")
_OWN = re.compile(r"(?m)^accumulative_counts\b")
_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_READ = ("model", "optim_wrapper", "train_dataloader", "train_cfg", "strategy")
_Q = "model.llm.quantization_config."
_OPTIMIZER = "optim_wrapper.optimizer.type"
_ADAPTED = adapted.Names(
    rank="model.lora.r",
    targets=("model.lora.target_modules",),
    dropout="model.lora.lora_dropout",
    scaled="model.lora.use_rslora",
    parted="model.lora.use_dora",
    saved="model.lora.modules_to_save",
    default_rank=8,
    default_targets="all-linear",  # find_all_linear_names of its model
)
_FROZEN = adapted.Frozen(
    four=f"{_Q}load_in_4bit",
    eight=f"{_Q}load_in_8bit",
    kind=f"{_Q}bnb_4bit_quant_type",
    doubled=f"{_Q}bnb_4bit_use_double_quant",
    default_doubled=False,
)
_TABLE = (
    Argument("batch_size", "micro_batch", meaning=trainer.whole),
    Argument("accumulative_counts", "grad_accum", meaning=trainer.whole),
    Argument("max_length", "seq_len", meaning=trainer.whole),
    Argument("pretrained_model_name_or_path", "model", meaning=trainer.model_name),
)
_SHOWN = 40


class _Read:
    """Names that a module gives plain values, and the keywords of nested dicts by their path."""

    def __init__(self, module: ast.Module) -> None:
        self.out: dict[str, Value] = {}
        self.constants: dict[str, Any] = {}
        for node in module.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assigned(node, node.targets[0].id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self._times(node, node.target.id)

    def _assigned(self, node: ast.Assign, name: str) -> None:
        for given, value in named(node, self.constants):
            self.constants[given] = value
            self.out[given] = Value(value, node.lineno)
        if isinstance(node.value, ast.Call) and name in _READ:
            self._nested(name, node.value)
        elif isinstance(node.value, ast.Name | ast.Attribute):  # optim_type = AdamW
            self.constants.setdefault(name, ast.unparse(node.value).rpartition(".")[2])

    def _times(self, node: ast.AugAssign, name: str) -> None:
        product = ast.BinOp(ast.Name(name, ast.Load()), node.op, node.value)
        value = constant(product, self.constants)
        if value is not None:
            self.constants[name] = value
            self.out[name] = Value(value, node.lineno)

    def _nested(self, path: str, call: ast.Call) -> None:
        for keyword in call.keywords:
            if keyword.arg is None:
                continue
            inner = f"{path}.{keyword.arg}"
            if isinstance(keyword.value, ast.Call):
                self._nested(inner, keyword.value)
                continue
            text = ast.unparse(keyword.value)
            value = constant(keyword.value, self.constants)
            if value is None and isinstance(keyword.value, ast.Name | ast.Attribute):
                value = text.rpartition(".")[2]
            if value is None:
                try:
                    value = ast.literal_eval(keyword.value)
                except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    self.out[inner] = Value(None, keyword.value.lineno, (text[:_SHOWN],))
                    continue
            self.out[inner] = Value(value, keyword.value.lineno)


def _parse(text: str) -> Mapping[str, Value]:
    return _Read(tree(text)).out


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    by_deepspeed = str(answer.get("strategy.type", "")).startswith("DeepSpeed")
    answer.imply("stack", "hf-deepspeed" if by_deepspeed else "hf-trainer", "its strategy")
    for name in ("model.llm.pretrained_model_name_or_path", "train_dataloader.batch_size"):
        answer.mark(name, "implied", "the same by another name")
    if "model.lora.type" in values:
        adapter = "model.lora.type"
        answer.values = {**answer.values, adapter: Value("lora", values[adapter].line)}
        adapted.read(answer, _ADAPTED, adapter)
        adapted.read_frozen(answer, _FROZEN)
    for name in values:
        if name.startswith(_Q):
            answer.mark(name, "implied", "how frozen weights are kept")
    answer.mark("model.llm.quantization_config", "implied", "off")
    word = _TYPES.get(str(answer.get("optim_wrapper.dtype")))
    if word:
        answer.state("precision", word, "optim_wrapper.dtype")
    answer.mark("model.llm.torch_dtype", "implied", "the type in which weights are loaded")
    if answer.get(_OPTIMIZER) is not None:
        try:
            answer.state("optimizer", _optimizer(str(answer.get(_OPTIMIZER))), _OPTIMIZER)
        except ValueError as error:
            answer.mark(_OPTIMIZER, "not understood", str(error))
    answer.mark("optim_wrapper.accumulative_counts", "implied", "the same by another name")
    kept = "model.use_activation_checkpointing"
    on = trainer.is_on(answer, kept, True)
    answer.imply("recompute", "full" if on else "none", "on by default", kept)
    shared = answer.get("sequence_parallel_size", 1)
    answer.imply("cp", shared, "1 by default", "sequence_parallel_size")
    if isinstance(shared, int) and shared > 1:
        answer.imply("cp_comm_type", "ulysses", "its way to share sequences")
    for name in ("tp", "pp"):
        answer.imply(name, 1, "every GPU computes whole layers")
    read_rows(answer, Rows(packed=("pack_to_max_length",), grouped=()))
    trainer.mark_empty(answer)


def _optimizer(name: str) -> str:
    """Our optimizer by a class of torch or bitsandbytes. Raises ValueError."""
    known = {"adamw": "adam", "pagedadamw": "paged-adam", "pagedadamw32bit": "paged-adam"}
    return known.get(name.lower()) or trainer.optimizer(name.lower())


def _detect(name: str, text: str) -> bool:
    return name.endswith(".py") and all(p.search(text) for p in (_DETECT, _OWN))


FORMAT = Format(
    kind="xtuner",
    title="XTuner configurations (Python of mmengine)",
    detect=_detect,
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("xtuner"),
)
