"""Adapters and frozen weights, by the names of PEFT's arguments in each trainer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.formats.record import Answer
from planner.formats.trainer import is_off, is_on, number
from planner.inputs.calibration import stack_spec
from planner.specs.adapters import WORDS, target_words
from planner.specs.names import BITSANDBYTES

_FOUR, _EIGHT = 4, 8  # bits of a frozen weight
_ALL = ("all-linear", "all", "*")
_MODULES = re.compile(r"\(([\w|?:]{1,80})\)_proj|(\w+_proj)")  # of a pattern of modules
_EMBEDDINGS = {"embed_tokens", "lm_head", "wte", "output"}
_WHOLE = ("full", "none", "false", "")
_OF_LORA = ("lora", "qlora", "dora", "true")


@dataclass(frozen=True)
class Names:
    """Names of a trainer's arguments of adapters, "" for those that it lacks."""

    rank: str = "lora_r"
    targets: tuple[str, ...] = ("lora_target_modules",)
    dropout: str = "lora_dropout"
    scaled: str = "use_rslora"
    parted: str = "use_dora"
    saved: str = "lora_modules_to_save"
    default_rank: int = 16
    default_targets: str = "q_proj+v_proj"  # of PEFT, for most models


@dataclass(frozen=True)
class Frozen:
    """Names of a trainer's arguments of frozen weights in 4 and 8 bit. bits: the argument for their
    number; method: the one for bitsandbytes or another library."""

    four: str = "load_in_4bit"
    eight: str = "load_in_8bit"
    bits: str = ""
    method: str = ""
    kind: str = "bnb_4bit_quant_type"
    doubled: str = "bnb_4bit_use_double_quant"
    default_doubled: bool = True
    stack: str = ""  # the program's own on one GPU, which says what it leaves in fp32 beside them


def read_frozen(answer: Answer, names: Frozen) -> None:
    """Frozen weights as bitsandbytes keeps them, after what is trained has been read."""
    bits = number(answer, names.bits, 0)
    four = names.bits if bits == _FOUR else names.four if is_on(answer, names.four) else ""
    eight = names.bits if bits == _EIGHT else names.eight if is_on(answer, names.eight) else ""
    wanted = four or eight
    if not wanted:
        for name in (names.four, names.eight):
            answer.mark(name, "implied", "off")
        return
    method = str(answer.get(names.method, "bnb")).lower().rpartition(".")[2]
    if answer.option("lora") is None or method not in ("bnb", "hqq"):
        answer.mark(wanted, "not understood", "of frozen weights beside adapters, by bitsandbytes")
        return
    kind = str(answer.get(names.kind, "nf4")).lower()
    doubled = is_on(answer, names.doubled, names.default_doubled)
    narrow = f"{kind}-double" if doubled else kind
    base = "hqq" if method == "hqq" else narrow if four else "int8"
    answer.state("base_precision", base, wanted)
    if names.stack and base in BITSANDBYTES:
        program = stack_spec(names.stack)
        answer.imply("base_upcast", program.state.prepared, f"as {program.title} leaves them")
    for name in (names.four, names.eight, names.method, names.kind, names.doubled):
        answer.mark(name, "implied", "how frozen weights are kept")


def written_frozen(options: Mapping[str, Any], names: Frozen) -> dict[str, Any]:
    """Arguments of frozen weights as bitsandbytes and HQQ keep them; none of other formats."""
    base = str(options.get("base_precision"))
    kind, _, doubled = base.partition("-")
    out: dict[str, Any] = {}
    if base == "int8":
        out = {names.bits: _EIGHT, names.method: "bnb"} if names.bits else {names.eight: True}
    elif base == "hqq":
        out = {names.bits: _FOUR, names.method: "hqq"}
    elif kind in ("nf4", "fp4") and doubled in ("", "double"):
        out = {names.bits: _FOUR, names.method: "bnb"} if names.bits else {names.four: True}
        out |= {names.kind: kind, names.doubled: bool(doubled)}
    return {name: value for name, value in out.items() if name}


def read(answer: Answer, names: Names, adapter: str, default: str = "") -> None:
    """The trained weights. asked: the argument for the method, of whose words lora and dora are
    read; default: its word if left out."""
    word = str(answer.get(adapter, default)).lower()
    if word in _OF_LORA:
        _read_lora(answer, names, word, adapter)
    elif word in _WHOLE:
        answer.mark(adapter, "implied", "all weights are trained")
        every = (names.rank, *names.targets, names.dropout, names.scaled, names.parted, names.saved)
        for name in every:
            answer.mark(name, "irrelevant", "adapters are off")
    else:
        answer.mark(adapter, "not understood", "is not modelled: all weights are taken as trained")


def _read_lora(answer: Answer, names: Names, kind: str, adapter: str) -> None:
    """Low-rank adapters. asked: the argument that requests them; kind: its word for the method."""
    answer.mark(adapter, "read")
    rank = answer.get(names.rank)
    if rank is not None:
        answer.state("lora", number(answer, names.rank, names.default_rank), names.rank)
    else:
        answer.imply("lora", names.default_rank, "the rank by default", adapter)
    if kind == "dora" or is_on(answer, names.parted):
        named = names.parted if names.parted in answer.values else adapter
        answer.state("lora_method", "dora", named)
    elif is_on(answer, names.scaled):
        answer.state("lora_method", "rslora", names.scaled)
    read_targets(answer, names)
    _dropout(answer, names.dropout)
    saved = set(targets(answer.get(names.saved) or []))
    if saved and saved <= _EMBEDDINGS:
        answer.state("train_embeddings", True, names.saved)
    for name in (names.scaled, names.parted, names.saved):
        if is_off(answer.get(name)):
            answer.mark(name, "implied", "off")


def _dropout(answer: Answer, name: str) -> None:
    value = answer.get(name)
    if value is None:
        answer.mark(name, "implied", "off")
        return
    try:
        answer.state("lora_dropout", float(value) or None, name)
    except (TypeError, ValueError):
        answer.mark(name, "not understood", f"{value!r} is not a share")


def read_targets(answer: Answer, names: Names) -> None:
    """The matrices that have adapters."""
    for name in names.targets:
        value = answer.get(name)
        if value is None or value is False:
            answer.mark(name, "implied", "off")
            continue
        words = ["all-linear"] if value is True else list(targets(value))
        unknown = [word for word in words if word not in WORDS]
        if unknown or not words:
            answer.mark(name, "not understood", "it names unknown matrices")
        elif answer.option("lora_targets") is None:
            answer.state("lora_targets", "+".join(words), name)
        else:
            answer.mark(name, "implied", "others say it")
    if answer.option("lora_targets") is None:
        answer.imply("lora_targets", names.default_targets, "the matrices by default")


def read_lisa(answer: Answer, layers: str, interval: str) -> None:
    """Random layers in turn, whose moments all of these trainers keep."""
    count = number(answer, layers, 0)
    if count > 0:
        answer.state("lisa", count, layers)
        answer.imply("lisa_states", "visited", "moments of layers that had their turn stay")
    for name in (layers, interval):
        answer.mark(name, "implied", "how often layers change moves neither memory nor time")


def targets(value: Any) -> Iterable[str]:
    """Words for matrices of a list, of words with commas between them, or of a pattern."""
    listed = value if isinstance(value, list) else str(value).split(",")
    out: dict[str, None] = {}
    for word in listed:
        text = str(word).strip()
        if text in _ALL:
            out["all-linear"] = None
        elif re.fullmatch(r"[\w-]+", text):
            out[text] = None
        elif re.fullmatch(r"[\w.-]+", text):  # a path such as self_attn.q_proj
            out[text.rpartition(".")[2]] = None
        else:
            out |= dict.fromkeys(_of_pattern(text))
    return out


def _of_pattern(text: str) -> Iterable[str]:
    """Matrices that a regular expression names, which is not run."""
    for joined, single in _MODULES.findall(text):
        if single:
            yield single
        else:
            yield from (f"{part}_proj" for part in joined.replace("?:", "").split("|"))


def written(options: Mapping[str, Any], names: Names, list_targets: bool = True) -> dict[str, Any]:
    """Arguments of the adapters of a plan."""
    if options.get("lora") is None:
        return {}
    words = target_words(str(options.get("lora_targets") or "all-linear"))
    out: dict[str, Any] = {names.rank: options["lora"]}
    method = options.get("lora_method")
    if words == ["all-linear"] or not list_targets:
        out[names.targets[0]] = "all-linear"
    else:
        out[names.targets[0]] = words
    if options.get("lora_dropout"):
        out[names.dropout] = options["lora_dropout"]
    if method == "dora" and names.parted:
        out[names.parted] = True
    if method == "rslora" and names.scaled:
        out[names.scaled] = True
    if options.get("train_embeddings"):
        out[names.saved] = ["embed_tokens", "lm_head"]
    return out
