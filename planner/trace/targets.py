"""Targets of a trace: functions, classes of transformers, timm, torchvision or diffusers.

Runs in the process of the trace, which has no network and a limit of memory and time.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from planner.trace.aggregate import TraceError

_LENGTH = 1024  # tokens, where a function has no default
_LONGEST = 2048  # that are traced of a class of transformers
_SHORTEST = 8  # that are divided into sizes
Inputs = Callable[[int, int], Any]


@dataclass(frozen=True)
class Target:
    """A module, and inputs of it for a number of samples and tokens."""

    build: Callable[[int, int], tuple[nn.Module, Any]]
    rebuilds: bool = False  # the module belongs to the inputs of one size
    length: int | None = None  # tokens that are traced at most; None: there are none
    positions: int = 1  # tokens that it reads at most
    title: str = ""
    source: str = ""
    sample: str = ""


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
        return Target(call, True, length, length, source=source)
    _, inputs = call(1, 1)
    tokens = _tokens(inputs)
    if tokens is None or tokens < _SHORTEST:
        return Target(call, "batch" in takes, source=source)

    def resized(batch: int, length: int) -> tuple[nn.Module, Any]:
        module, inputs = call(batch, length)
        return module, _resized(inputs, None, (tokens, length))

    return Target(resized, "batch" in takes, tokens, tokens, source=source)


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

    def change(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dim() == 0:
            return x
        shape = [*x.shape]
        if batch is not None:
            shape[0] = batch
        if tokens is not None and not x.is_floating_point():
            shape = [shape[0], *(tokens[1] if n == tokens[0] else n for n in shape[1:])]
        return torch.zeros(shape, dtype=x.dtype)

    return tree_map(change, inputs)


# --------------------------------------------------------------------------------- transformers


def _transformers(path: Path, trust: bool) -> Target:
    transformers = _imported("transformers")
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
        raise TraceError(f"model_type {kind!r} of {file.name} is no type of transformers{remedy}")
    else:
        fields = {name: value for name, value in stated.items() if name != "model_type"}
        config = transformers.AutoConfig.for_model(kind, **fields)
    return of_config(config, trust=trust, source=f"traced from transformers, {file.name}")


def of_config(config: Any, trust: bool = False, source: str = "") -> Target:
    """The model of a configuration of transformers, by the class that it names."""
    transformers = _imported("transformers")
    named = [x for x in config.architectures or () if hasattr(transformers, x)]
    config.use_cache = False
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

    def built() -> nn.Module:
        error: Exception | None = None
        for attention in (WORDS, "sdpa", "eager"):
            try:
                if model_class is None:
                    auto = transformers.AutoModelForCausalLM
                    return auto.from_config(
                        config,
                        attn_implementation=attention,
                        dtype=torch.bfloat16,
                        trust_remote_code=True,
                    )
                return model_class._from_config(
                    config, attn_implementation=attention, dtype=torch.bfloat16
                )
            except (ValueError, ImportError) as refused:  # of an attention that it does not have
                error = refused
        raise TraceError(f"{config.model_type}: {_line(error)}")

    sub_config = getattr(config, "text_config", None) or config
    main = getattr(model_class, "main_input_name", "input_ids")
    inputs, length = _inputs_of(config, main)
    positions = getattr(sub_config, "max_position_embeddings", None) or _LONGEST
    if main in ("pixel_values",):
        length = None
    kept: list[nn.Module] = []

    def build(batch: int, tokens: int) -> tuple[nn.Module, Any]:
        if not kept:
            kept.append(built())
        return kept[0], inputs(batch, tokens)

    return Target(
        build,
        False,
        None if length is None else min(length, int(positions), _LONGEST),
        1 if length is None else int(positions),
        title=model_class.__name__ if model_class is not None else config.model_type,
        source=source or f"traced from transformers {transformers.__version__}",
        sample={"pixel_values": "image"}.get(main, ""),
    )


WORDS = "dpplan"  # the attention that is registered with transformers


def _inputs_of(config: Any, main: str) -> tuple[Inputs, int | None]:
    """Inputs of a class of transformers by the name of the main one, and the longest length."""

    def tokens(batch: int, length: int) -> torch.Tensor:
        return torch.zeros(batch, length, dtype=torch.long)

    decoder = getattr(config, "is_encoder_decoder", False)
    if main == "pixel_values":
        vision = getattr(config, "vision_config", None) or config
        side = getattr(vision, "image_size", 224)
        height, width = side if isinstance(side, Sequence) else (side, side)
        channels = getattr(vision, "num_channels", 3)
        return lambda b, s: {"pixel_values": torch.randn(b, channels, height, width)}, None
    if main == "input_features":
        mels = getattr(config, "num_mel_bins", 80)
        frames = 2 * getattr(config, "max_source_positions", 1500)
        return (
            lambda b, s: {
                "input_features": torch.randn(b, mels, frames),
                **({"decoder_input_ids": tokens(b, s)} if decoder else {}),
            },
            getattr(config, "max_target_positions", None) if decoder else None,
        )
    if main == "input_values":
        return lambda b, s: {"input_values": torch.randn(b, 10 * 16_000)}, None
    if decoder:
        return (
            lambda b, s: {"input_ids": tokens(b, s), "decoder_input_ids": tokens(b, s)},
            _LONGEST,
        )
    return lambda b, s: {"input_ids": tokens(b, s)}, _LONGEST


# ------------------------------------------------------------------------------ other libraries


def _timm(name: str) -> Target:
    timm = _imported("timm")
    module = timm.create_model(name, pretrained=False)
    size = getattr(module, "pretrained_cfg", {}).get("input_size", (3, 224, 224))
    return _of_images(module, size, f"traced from timm {timm.__version__}, {name}")


def _torchvision(name: str) -> Target:
    vision = _imported("torchvision")
    module = vision.models.get_model(name, weights=None)
    source = f"traced from torchvision {vision.__version__}, {name}"
    return _of_images(module, (3, 224, 224), source)


def _of_images(module: nn.Module, size: Sequence[int], source: str) -> Target:
    return Target(lambda b, s: (module, torch.randn(b, *size)), source=source, sample="image")


def _diffusers(text: str) -> Target:
    diffusers = _imported("diffusers")
    name, _, file = text.partition(":")
    kind = getattr(diffusers, name, None)
    if kind is None or not file:
        raise TraceError(
            f"diffusers:{text} must be a class of diffusers and the file of its config:"
            " diffusers:UNet2DConditionModel:unet/config.json"
        )
    config = json.loads(Path(file).read_text(encoding="utf-8"))
    module = kind.from_config(config)
    side, channels = config.get("sample_size", 64), config.get("in_channels", 4)
    width = config.get("cross_attention_dim", config.get("joint_attention_dim", 768))

    def build(batch: int, length: int) -> tuple[nn.Module, Any]:
        text = torch.randn(batch, 77, width if isinstance(width, int) else width[0])
        return module, {
            "sample": torch.randn(batch, channels, side, side),
            "timestep": torch.zeros(batch, dtype=torch.long),
            "encoder_hidden_states": text,
        }

    source = f"traced from diffusers {diffusers.__version__}, {name}"
    return Target(build, source=source, sample="image")


_LIBRARIES: dict[str, Callable[[str], Target]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "diffusers": _diffusers,
}


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TraceError(f"{name} is not installed: pip install {name} ({_line(error)})") from None


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
