"""Targets of a trace: functions, classes of transformers, timm, torchvision or diffusers.

Runs in the process of the trace, which has no network and a limit of memory and time.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from planner.trace import libraries
from planner.trace.aggregate import TraceError
from planner.trace.inputs import Inputs, inputs_of, with_placeholders
from planner.trace.kernels import WORDS, register
from planner.trace.mamba import with_kernels
from planner.trace.target import Target

_LENGTH = 1024  # tokens, where a function has no default
_SHORTEST = 8  # that are divided into sizes


def target(text: str, trust: bool) -> Target:
    """The target that a text names. Raises TraceError with what it may be."""
    head, _, rest = text.partition(":")
    if head in _LIBRARIES and rest:
        return _LIBRARIES[head](rest)
    path = Path(text)
    if path.is_dir() or path.suffix == ".json":
        return _transformers(path, trust)
    if rest:
        return _function(head, rest)
    raise TraceError(
        f"{text!r} must be file.py:function, package.module:function, a config.json or its folder,"
        " timm:NAME, torchvision:NAME, or diffusers:CLASS:CONFIG.json"
    )


# ------------------------------------------------------------------------------------ functions


def _function(place: str, name: str) -> Target:
    function = getattr(_module(place), name, None)
    if not callable(function):
        raise TraceError(f"{place} has no function {name!r}")
    known = {"batch", "length"}
    parameters = inspect.signature(function).parameters
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.name not in known]
    if needed:
        raise TraceError(
            f"{name} needs {needed[0]!r}; it may take batch and length, and all else by default"
        )
    takes = known & set(parameters)

    def call(batch: int, length: int) -> tuple[nn.Module, Any]:
        sizes = {"batch": batch, "length": length}
        result = function(**{key: value for key, value in sizes.items() if key in takes})
        if not (
            isinstance(result, tuple) and len(result) == _PAIR and isinstance(result[0], nn.Module)
        ):
            raise TraceError(f"{name} must return a module and its inputs: (module, inputs)")
        return result[0], _resized(result[1], batch if "batch" not in takes else None, None)

    source = f"traced from {place}:{name}"
    if "length" in takes:
        default = parameters["length"].default
        length = default if isinstance(default, int) else _LENGTH
        return Target(call, True, length=length, positions=length, source=source)
    _, inputs = call(1, 1)
    tokens = _tokens(inputs)
    if tokens is None or tokens < _SHORTEST:
        return Target(call, "batch" in takes, source=source)

    def resized(batch: int, length: int) -> tuple[nn.Module, Any]:
        module, inputs = call(batch, length)
        return module, _resized(inputs, None, (tokens, length))

    return Target(resized, "batch" in takes, length=tokens, positions=tokens, source=source)


_PAIR = 2


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise TraceError(f"there is no file {place}")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"traced_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise TraceError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _tokens(inputs: Any) -> int | None:
    """Tokens of the first whole numbers in rows."""
    tensors: list[torch.Tensor] = []
    tree_map(lambda x: tensors.append(x) if isinstance(x, torch.Tensor) else None, inputs)
    rows = (x.shape[1] for x in tensors if not x.is_floating_point() and x.dim() == _ROWS)
    return next(rows, None)


_ROWS = 2  # dimensions of token ids


def _resized(inputs: Any, batch: int | None, tokens: tuple[int, int] | None) -> Any:
    """Inputs of another batch, their first dimension, or of other tokens."""

    if batch is None and tokens is None:
        return inputs

    def change(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dim() == 0:
            return x
        shape = [*x.shape]
        if batch is not None:
            shape[0] = batch
        if tokens is not None and not x.is_floating_point():
            shape = [shape[0], *(tokens[1] if n == tokens[0] else n for n in shape[1:])]
        if x.is_floating_point():
            return torch.empty(shape, dtype=x.dtype)
        return torch.zeros(shape, dtype=x.dtype)

    return tree_map(change, inputs)


# --------------------------------------------------------------------------------- transformers


def _transformers(path: Path, trust: bool) -> Target:
    transformers = libraries.imported("transformers")
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise TraceError(f"there is no file {file}")
    stated = json.loads(file.read_text(encoding="utf-8"))
    kind = stated.get("model_type")
    if trust:
        config = transformers.AutoConfig.from_pretrained(
            str(file.parent), trust_remote_code=True, local_files_only=True
        )
    elif not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        remedy = "; its own code runs with --trust-remote-code" if "auto_map" in stated else ""
        raise TraceError(
            f"model_type {kind!r} of {file.name} is not a model type of transformers{remedy}"
        )
    else:
        fields = {name: value for name, value in stated.items() if name != "model_type"}
        config = transformers.AutoConfig.for_model(kind, **fields)
    return of_config(config, trust=trust, source=f"traced from transformers, {file.name}")


def of_config(config: Any, trust: bool = False, source: str = "") -> Target:
    """The model of a configuration of transformers, by the class that it names."""
    transformers = libraries.imported("transformers")
    named = [x for x in config.architectures or () if hasattr(transformers, x)]
    _for_training(config)
    if named:
        model_class = getattr(transformers, named[0])
    else:
        mappings = (
            transformers.AutoModelForCausalLM,
            transformers.AutoModelForSeq2SeqLM,
            transformers.AutoModelForMaskedLM,
            transformers.AutoModelForImageClassification,
            transformers.AutoModel,
        )
        choice = next((m for m in mappings if type(config) in m._model_mapping), None)
        if choice is None and not trust:
            raise TraceError(f"transformers has no class for {type(config).__name__}")
        model_class = None if choice is None else choice._model_mapping[type(config)]

    its_config = getattr(model_class, "config_class", None)
    if its_config is not None and not isinstance(config, its_config):
        parts = (
            getattr(config, name, None) for name in ("text_config", "decoder", "vision_config")
        )
        config = next((x for x in parts if isinstance(x, its_config)), config)  # of a single part
    register()
    module, given = _running(config, model_class)
    return Target(
        lambda batch, tokens: (module, given.make(batch, tokens)),
        length=given.length,
        positions=given.positions,
        least=given.least,
        stride=given.stride,
        title=model_class.__name__ if model_class is not None else config.model_type,
        source=source or f"traced from transformers {transformers.__version__}",
        sample=given.sample,
        images=given.images,
    )


def _for_training(config: Any) -> None:
    """Counts layers that are left out by chance, here and in parts, draws no masks of sound, which
    cost nothing beside a layer, and keeps no keys for words that are not trained on."""
    config.use_cache = False
    for key, value in list(vars(config).items()):
        if key.endswith("layerdrop"):
            setattr(config, key, 0.0)
        elif key in ("apply_spec_augment", "mask_time_prob"):
            config.apply_spec_augment = False
        elif hasattr(value, "sub_configs"):
            _for_training(value)


def _running(config: Any, model_class: Any) -> tuple[nn.Module, Inputs]:
    """The module of a configuration and inputs that it runs with, by the first attention and
    experts that it has; of its own code where no class is known."""
    transformers = libraries.imported("transformers")
    from transformers.initialization import no_init_weights

    error: Exception | None = None
    for attention in (WORDS, "sdpa", "eager"):
        for experts in ({"experts_implementation": "grouped_mm"}, {}):
            dtype = torch.get_default_dtype()
            words = {"attn_implementation": attention, "dtype": dtype, **experts}
            written = copy.deepcopy(config)  # words are written into it
            with_placeholders(written)
            if model_class is None:
                auto = transformers.AutoModelForCausalLM
                make = functools.partial(auto.from_config, written, trust_remote_code=True)
            else:
                make = functools.partial(model_class._from_config, written)
            try:
                with no_init_weights():
                    module = make(**words)
            except (ValueError, ImportError, KeyError) as refused:  # words that it does not have
                error = refused
                continue
            module.tie_weights()
            with_kernels(module)
            try:
                return module, inputs_of(module, written)
            except Exception as refused:
                error = refused
                break  # other experts would not help
    assert error is not None
    raise error


_LIBRARIES: dict[str, Callable[[str], Target]] = {
    "timm": libraries.timm,
    "torchvision": libraries.torchvision,
    "diffusers": libraries.diffusers,
}


def _line(error: BaseException | None) -> str:
    """The first line of an error."""
    text = str(error).strip().splitlines()
    return text[0][:200] if text else type(error).__name__


def shortened(given: Target, length: int | None) -> Target:
    """The target with another longest length."""
    if length is None:
        return given
    if given.length is None:
        raise TraceError("--length: the inputs have no length, only samples; leave it out")
    return replace(given, length=length, positions=max(length, given.positions))
