"""Primus of AMD: an experiment's YAML with overrides of Megatron-LM's arguments, and the files of
its models. Names and defaults: primus/configs of AMD-AGI/Primus (2026-08)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
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
_OF_TYPE = re.compile(r"[-_](?:fp8|bf16)$")
IRRELEVANT = (
    "work_group",
    "user_name",
    "exp_name",
    "workspace",
    "framework",
    "config",
    "*sink_level",
)
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


def experiment_of(framework: str, name: str, text: str) -> bool:
    """Whether a text is an experiment on a framework."""
    named = re.compile(rf"^\s+framework:\s*{framework}\s*(#.*)?$", re.M)
    is_yaml = name.endswith((".yaml", ".yml"))
    return bool(is_yaml and re.search(r"^modules:", text, re.M) and named.search(text))


def overrides(text: str) -> dict[str, Value]:
    """Arguments of the module that trains by their path; its framework's stand without
    `overrides.`, with the defaults of `${NAME:default}` put in."""
    out: dict[str, Value] = {}
    for path, (key, line) in yaml_places(text).items():
        inside = _MODULE.match(path)
        value, unknown = _put_in(key)
        name = (inside[2] if inside else path).removeprefix("overrides.")
        out[name] = Value(value, line, unknown)
    return out


def on(framework: str, base: Format, title: str) -> Format:
    """Experiments of Primus that override the arguments of another framework, of whose format they
    are read."""

    def read_more(values: Mapping[str, Value], answer: Answer) -> None:
        base.read_more(values, answer)
        read_model(answer)

    return replace(
        base,
        kind=f"primus-{framework}",
        title=title,
        detect=lambda name, text: experiment_of(framework, name, text),
        parse=overrides,
        read_more=read_more,
        irrelevant=(*base.irrelevant, *IRRELEVANT),
        writable=lambda values: False,
        whole=True,
    )


def read_model(answer: Answer) -> None:
    """The model that an experiment names by a file of Primus."""
    named = str(answer.get(_MODEL, "")).rsplit("/", 1)[-1].removesuffix(".yaml").lower()
    if named and answer.option("model") is None:
        name_model(answer, _MODEL, _OF_TYPE.sub("", named))


def _detect(name: str, text: str) -> bool:
    if not name.endswith((".yaml", ".yml")):
        return False
    experiment = experiment_of("megatron", name, text)
    model = re.search(r"^bases:", text, re.M) and re.search(
        r"^(?:num_layers|hidden_size|num_attention_heads):", text, re.M
    )
    return bool(experiment or model)


def _parse(text: str) -> Mapping[str, Value]:
    """Arguments of the module that trains, with the defaults of `${NAME:default}` put in."""
    return {plain(name).lower(): value for name, value in overrides(text).items()}


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
