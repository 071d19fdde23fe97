"""Models of timm, torchvision and diffusers, and their inputs at several resolutions."""

from __future__ import annotations

import importlib
import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from planner.trace.aggregate import TraceError
from planner.trace.target import Target

_UNIT = 32  # pixels of a side that the stages of most networks of images divide by
_ROWS = 8  # units of a side of the images that are traced
_MOST = 1 << 14  # units of an image that is planned
_LATENT = 8  # pixels of a side of a latent of most autoencoders
_WORDS = 77  # of CLIP
_CLIP = 3, 16, 224, 224  # channels, frames, height and width of a clip
Given = dict[str, Any]


def timm(name: str) -> Target:
    """A model of timm; one of patches at other resolutions than it was made for, where it can."""
    library = imported("timm")
    source = f"traced from timm {library.__version__}, {name}"
    try:
        module = library.create_model(name, pretrained=False, dynamic_img_size=True)
        patch = int(module.patch_embed.patch_size[0])
    except (TypeError, AttributeError):
        module, patch = library.create_model(name, pretrained=False), _UNIT
    size = getattr(module, "pretrained_cfg", {}).get("input_size", (3, 224, 224))
    return of_images(module, size, patch, source)


def torchvision(name: str) -> Target:
    """A model of torchvision."""
    library = imported("torchvision")
    if name not in library.models.list_models():
        raise TraceError(f"torchvision has no model {name!r}")
    builder = library.models.get_model_builder(name)
    takes = {"weights", "weights_backbone"} & set(inspect.signature(builder).parameters)
    module = builder(**dict.fromkeys(takes))
    source = f"traced from torchvision {library.__version__}, {name}"
    if ".video" in type(module).__module__:
        clips = _CLIP
        return Target(lambda b, s: (module, torch.randn(b, *clips)), source=source, sample="clip")
    return of_images(module, (3, 224, 224), _UNIT, source)


def of_images(module: nn.Module, size: Sequence[int], unit: int, source: str) -> Target:
    """A network of images, whose tokens are squares of `unit` pixels; of images of one size where
    it runs with no other."""
    channels, height, width = size
    fixed = Target(
        lambda b, s: (module, torch.randn(b, channels, height, width)),
        source=source,
        sample="image",
    )

    def build(batch: int, tokens: int) -> tuple[nn.Module, Any]:
        rows, columns = _grid(tokens)
        return module, torch.randn(batch, channels, unit * rows, unit * columns)

    if height % unit or width % unit or not _runs(module.eval(), build(2, _ROWS * _ROWS)[1]):
        return fixed
    return Target(
        build,
        length=_ROWS * _ROWS * _ROWS,
        positions=_MOST,
        source=source,
        sample="image",
        pixels=unit,
        native=(height // unit) * (width // unit),
        otherwise=fixed,
    )


def _grid(tokens: int) -> tuple[int, int]:
    """Rows and columns of an image: of the largest one that is traced as many, so that counts
    which know of sides and not of their product are seen."""
    side = 2 * _ROWS
    return (side, side) if tokens == side * side else (_ROWS, tokens // _ROWS)


def _runs(module: nn.Module, *args: Any) -> bool:
    try:
        with torch.no_grad():
            module(*args)
    except Exception:  # whatever its code raises
        return False
    return True


# ------------------------------------------------------------------------------------ diffusers


def diffusers(text: str) -> Target:
    """CLASS:CONFIG.json of a pipeline's denoiser."""
    name, _, file = text.partition(":")
    if name not in DIFFUSERS or not file:
        raise TraceError(
            f"diffusers:{text} must be one of {', '.join(DIFFUSERS)} and the file of its config:"
            " diffusers:UNet2DConditionModel:unet/config.json"
        )
    return of_diffusers(name, json.loads(Path(file).read_text(encoding="utf-8")))


def of_diffusers(name: str, config: Given) -> Target:
    """A denoiser of diffusers by its class and the keys of its config.json."""
    library = imported("diffusers")
    kind = getattr(library, name)
    module = kind.from_config(config)
    denoiser = DIFFUSERS[name](dict(module.config))

    def build(batch: int, tokens: int) -> tuple[nn.Module, Given]:
        given = denoiser.make(batch, tokens)
        with torch.no_grad():
            module(**given)  # tables of positions are kept from then on, as from a first step
        return module, given

    fixed = Target(
        lambda batch, tokens: build(batch, denoiser.native),
        title=name,
        source=f"traced from diffusers {library.__version__}, {name}",
        sample="image" if denoiser.frames is None else "clip",
    )
    if not denoiser.oblong:
        return fixed
    return replace(
        fixed,
        build=build,
        length=_ROWS * _ROWS * _ROWS,
        positions=1 << 20,
        pixels=denoiser.pixels,
        frames=denoiser.frames,
        native=denoiser.native,
    )


@dataclass(frozen=True)
class Denoiser:
    """Inputs by samples and tokens; the pixels and frames of a token, the tokens of a sample in
    training, and whether images need not be square."""

    make: Callable[[int, int], Given]
    pixels: int
    native: int
    frames: int | None = None
    oblong: bool = True


def _time(batch: int) -> torch.Tensor:
    return torch.ones(batch, dtype=torch.long)


def _first(value: Any) -> int:
    return int(value[-1] if isinstance(value, list | tuple) else value)


def _unet(config: Given) -> Denoiser:
    """A token is one position at the lowest resolution."""
    step = 2 ** (len(config["block_out_channels"]) - 1)
    width = _first(config["cross_attention_dim"])
    side = (config.get("sample_size") or 64) // step

    def make(batch: int, tokens: int) -> Given:
        rows, columns = _grid(tokens)
        shape = batch, config["in_channels"], step * rows, step * columns
        out: Given = {
            "sample": torch.randn(*shape),
            "timestep": _time(batch),
            "encoder_hidden_states": torch.randn(batch, _WORDS, width),
        }
        if config.get("addition_embed_type") == "text_time":
            ids = 6 * config["addition_time_embed_dim"]
            pooled = config["projection_class_embeddings_input_dim"] - ids
            out["added_cond_kwargs"] = {
                "text_embeds": torch.randn(batch, pooled),
                "time_ids": torch.randn(batch, 6),
            }
        return out

    return Denoiser(make, _LATENT * step, side * side)


def _patches(config: Given, text: int, **words: str) -> Denoiser:
    """Inputs of latents in patches, with text beside them. words: key of a width by an input's
    name."""
    patch = _first(config["patch_size"])
    side = (config.get("sample_size") or 128) // patch

    def make(batch: int, tokens: int) -> Given:
        rows, columns = _grid(tokens)
        shape = batch, config["in_channels"], patch * rows, patch * columns
        out: Given = {"hidden_states": torch.randn(*shape), "timestep": _time(batch)}
        for name, key in words.items():
            sizes = (config[key],) if name.startswith("pooled") else (text, config[key])
            out[name] = torch.randn(batch, *sizes)
        return out

    return Denoiser(make, _LATENT * patch, side * side)


def _classes(config: Given) -> Denoiser:
    plain = _patches(config, 0)
    side = math.isqrt(plain.native) * int(config["patch_size"])

    def make(batch: int, tokens: int) -> Given:
        given = plain.make(batch, _ROWS) | {"class_labels": _time(batch)}
        return given | {"hidden_states": torch.randn(batch, config["in_channels"], side, side)}

    return replace(plain, make=make, oblong=False)


def _pixart(config: Given) -> Denoiser:
    config["sample_size"] = config.get("sample_size") or 128
    plain = _patches(config, 120, encoder_hidden_states="caption_channels")

    def make(batch: int, tokens: int) -> Given:
        sizes = {"resolution": torch.randn(batch, 2), "aspect_ratio": torch.randn(batch, 1)}
        return plain.make(batch, tokens) | {"added_cond_kwargs": sizes}

    return replace(plain, make=make)


def _flux(config: Given) -> Denoiser:
    def make(batch: int, tokens: int) -> Given:
        out: Given = {
            "hidden_states": torch.randn(batch, tokens, config["in_channels"]),
            "encoder_hidden_states": torch.randn(batch, 512, config["joint_attention_dim"]),
            "pooled_projections": torch.randn(batch, config["pooled_projection_dim"]),
            "timestep": torch.randn(batch),
            "img_ids": torch.randn(tokens, 3),
            "txt_ids": torch.randn(512, 3),
        }
        return out | ({"guidance": torch.randn(batch)} if config["guidance_embeds"] else {})

    return Denoiser(make, 2 * _LATENT, 64 * 64)


def _qwen_image(config: Given) -> Denoiser:
    def make(batch: int, tokens: int) -> Given:
        rows, columns = _grid(tokens)
        return {
            "hidden_states": torch.randn(batch, tokens, config["in_channels"]),
            "encoder_hidden_states": torch.randn(batch, 256, config["joint_attention_dim"]),
            "timestep": torch.randn(batch),
            "img_shapes": [[(1, rows, columns)]] * batch,
        }

    return Denoiser(make, 2 * _LATENT, 64 * 64)


def _clip(config: Given, text: int, width: str, native: int, **more: str) -> Denoiser:
    """Inputs of a video's latents: frames, rows and columns."""
    patch = _first(config["patch_size"])
    side = 4  # tokens of a side of a frame that is traced

    def make(batch: int, tokens: int) -> Given:
        frames = tokens // (side * side)
        shape = batch, config["in_channels"], frames, side * patch, side * patch
        out: Given = {
            "hidden_states": torch.randn(*shape),
            "timestep": _time(batch),
            "encoder_hidden_states": torch.randn(batch, text, config[width]),
        }
        for name, key in more.items():
            out[name] = torch.randn(batch, *((config[key],) if key in config else ()))
        if "guidance" in more:
            out["encoder_attention_mask"] = torch.ones(batch, text, dtype=torch.bool)
        return out

    return Denoiser(make, _LATENT * patch, native, frames=4)


def _wan(config: Given) -> Denoiser:
    return _clip(config, 512, "text_dim", 21 * 30 * 52)  # 81 frames of 480 x 832


def _hunyuan(config: Given) -> Denoiser:
    more = {"pooled_projections": "pooled_projection_dim", "guidance": "none"}
    return _clip(config, 256, "text_embed_dim", 33 * 45 * 80, **more)  # 129 frames of 720 x 1280


def _ltx(config: Given) -> Denoiser:
    def make(batch: int, tokens: int) -> Given:
        return {
            "hidden_states": torch.randn(batch, tokens, config["in_channels"]),
            "encoder_hidden_states": torch.randn(batch, 128, config["caption_channels"]),
            "timestep": _time(batch),
            "encoder_attention_mask": torch.ones(batch, 128),
            "num_frames": tokens // (_ROWS * _ROWS),
            "height": _ROWS,
            "width": _ROWS,
        }

    return Denoiser(make, 32, 21 * 16 * 24, frames=8)  # its latents are patches already


# classes whose inputs are known
DIFFUSERS: dict[str, Callable[[Given], Denoiser]] = {
    "UNet2DConditionModel": _unet,
    "DiTTransformer2DModel": _classes,
    "PixArtTransformer2DModel": _pixart,
    "SanaTransformer2DModel": lambda c: _patches(c, 300, encoder_hidden_states="caption_channels"),
    "SD3Transformer2DModel": lambda c: _patches(
        c,
        333,
        encoder_hidden_states="joint_attention_dim",
        pooled_projections="pooled_projection_dim",
    ),
    "FluxTransformer2DModel": _flux,
    "QwenImageTransformer2DModel": _qwen_image,
    "WanTransformer3DModel": _wan,
    "HunyuanVideoTransformer3DModel": _hunyuan,
    "LTXVideoTransformer3DModel": _ltx,
}


def imported(name: str) -> Any:
    """A library that is installed. Raises TraceError where it is not."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        line = str(error).splitlines()[0]
        raise TraceError(f"{name} is not installed: pip install {name} ({line})") from None
