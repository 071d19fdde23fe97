"""Programs around Megatron-LM: what they set before a file says anything, and models that their
files name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner.formats.megatron_more import read_more
from planner.formats.record import Answer, Used, Value
from planner.inputs import catalog
from planner.specs.base import PlanError

# types as torch writes them, and as Megatron-LM's command line does
_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "fp8"}
_TYPE = re.compile(r"(?:torch\.)?(float32|bfloat16|float16|uint8)")
_SUFFIX = re.compile(r"[-_](?:v\d.*|instruct|base|hf)$", re.I)


def read_with(answer: Answer, usual: Mapping[str, Any], why: str) -> None:
    """Read Megatron's arguments with the defaults of another program.

    own: values by name, which act where the file does not state one; why: whose they are.
    """
    stated = answer.values
    left = {name: Value(value) for name, value in usual.items() if _is_left(stated, name)}
    answer.values = {**stated, **left}
    read_more(answer.values, answer)
    answer.values = stated
    for name, value in left.items():
        if name in answer.arguments:
            answer.arguments[name] = Used(value.value, "implied", f"not given: the default {why}")


def _is_left(values: Mapping[str, Value], name: str) -> bool:
    return name not in values or values[name].value is None


def typed(value: Any) -> Any:
    """A type as Megatron-LM's command line names it; any other value as it is."""
    match = _TYPE.fullmatch(value) if isinstance(value, str) else None
    return _TYPES[match[1]] if match else value


_FAMILY = re.compile(r"^(llama|qwen|glm)(\d)(\d)(?=-|$)")
_MILLIONS = re.compile(r"(?<=-)(\d)00m(?=-|$)")
_ALIKE = {"nemotronh": "nemotron-h", "glm4.5-355b": "glm-4.5", "glm4.5-air-106b": "glm-4.5-air"}


def _spellings(name: str) -> Iterator[str]:
    """A model's name as it stands, and with the points that names of functions cannot have."""
    for word in (name, _SUFFIX.sub("", name)):
        yield word
        pointed = _FAMILY.sub(r"\1\2.\3", word)
        pointed = re.sub(r"(?<=\d)p(?=\d)", ".", _MILLIONS.sub(r"0.\1b", pointed))
        family, _, rest = pointed.partition("-")
        yield _ALIKE.get(pointed, f"{_ALIKE[family]}-{rest}" if family in _ALIKE else pointed)


def name_model(answer: Answer, argument: str, name: str, note: str = "") -> bool:
    """State the catalogue's model of this name; False where it has none."""
    for word in _spellings(name):
        try:
            stem = catalog.find("models", word).stem
        except PlanError:
            continue
        answer.state("model", stem, argument, note)
        return True
    answer.mark(argument, "not understood", "no model of the catalogue has this name: give --model")
    return False
