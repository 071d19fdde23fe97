"""Primus of AMD: an experiment's YAML with overrides of Megatron-LM's arguments, and the files of
its models. Names and defaults: primus/configs of AMD-AGI/Primus (2026-08)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats import megatron_table as names
from planner.formats.megatron import plain, scalar
from planner.formats.megatron_around import name_model, read_with
from planner.formats.record import Answer, Argument, Format, Value, unread
from planner.inputs.readers import yaml_places
from planner.specs.options.aliases import words

_MODULE = re.compile(r"^modules\.(\w+)\.(.+)$")
_VARIABLE = re.compile(r"\$\{(\w+)(?::([^{}]*))?\}")
_MODEL = "model"
# of a file that Primus's own files start from: modules/megatron/trainer_base.yaml and
# models/megatron/language_model.yaml
_DEFAULTS = {"bf16": True, "swiglu": True, "add-bias-linear": False}

TABLE = (
    *names.TABLE,
    Argument("pp-algorithm", "schedule", words=words("schedules", "primus")),
    Argument("turbo-deepep-num-cu", "dispatcher_sms"),
    Argument("lora.dim", "lora"),
    Argument("torch-compile.enable", "compile"),
)


def _detect(name: str, text: str) -> bool:
    if not name.endswith((".yaml", ".yml")):
        return False
    experiment = re.search(r"^modules:", text, re.M) and re.search(
        r"^\s+framework:\s*megatron\s*(#.*)?$", text, re.M
    )
    model = re.search(r"^bases:", text, re.M) and re.search(
        r"^(?:num_layers|hidden_size|num_attention_heads):", text, re.M
    )
    return bool(experiment or model)


def _parse(text: str) -> Mapping[str, Value]:
    """Arguments of the module that trains, with the defaults of `${NAME:default}` put in."""
    out: dict[str, Value] = {}
    for path, (key, line) in yaml_places(text).items():
        inside = _MODULE.match(path)
        name = inside[2] if inside else path
        value, unknown = _put_in(key)
        out[plain(name.removeprefix("overrides.")).lower()] = Value(value, line, unknown)
    return out


def _put_in(value: Any) -> tuple[Any, tuple[str, ...]]:
    """A value with its variables put in, and those that have no default."""
    if not isinstance(value, str) or "$" not in value:
        return value, ()
    unknown = tuple(match[1] for match in _VARIABLE.finditer(value) if match[2] is None)
    return scalar(_VARIABLE.sub(lambda match: match[2] or "", value)), unknown


def _read_more(values: Mapping[str, Value], answer: Answer) -> None:
    read_with(answer, _DEFAULTS, "of Primus")
    answer.drop("stack")
    if not any(name.startswith("overlap-") for name in values):
        answer.drop("dp_overlap")  # its own defaults have both on
    answer.imply("stack", "primus", "Primus")
    named = str(answer.get(_MODEL, "")).rsplit("/", 1)[-1].removesuffix(".yaml")
    if named and not answer.model.get("layers"):
        answer.drop(*(f"model.{key}" for key in list(answer.model)))
        name_model(answer, _MODEL, named)
    elif _MODEL in values:
        answer.mark(_MODEL, "implied", "its widths are in the files")
    if not answer.get("lora.enabled", True):
        answer.drop("lora")
    if answer.get("use-turbo-grouped-gemm"):
        answer.state("expert_kernels", "grouped", "use-turbo-grouped-gemm")
    if answer.get("use-turbo-deepep"):
        answer.drop("dispatcher")
        answer.state("dispatcher", "deepep", "use-turbo-deepep")
    for name in ("use-turbo-grouped-gemm", "use-turbo-deepep", "turbo-deepep-use-comm-stream"):
        if not answer.get(name):
            answer.mark(name, "irrelevant", "is off")
    _experts_of_the_catalogue(answer)


def _experts_of_the_catalogue(answer: Answer) -> None:
    """If the file names a catalogue model without widths, arguments on experts act only if the
    model has experts."""
    if "model" in answer.options:
        for name in answer.values:
            if name.startswith("moe-") and answer.arguments.get(name) is not None:
                del answer.arguments[name]


FORMAT = Format(
    kind="primus",
    title="Primus experiments and models (YAML of Megatron-LM's arguments)",
    detect=_detect,
    parse=_parse,
    table=TABLE,
    read_more=_read_more,
    written_as="megatron",
    spelled=lambda name: name.replace("-", "_"),
    **unread("primus"),
)
