"""Inputs of a class of transformers: names from its forward, sizes from its configuration."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from planner.trace.processors import MASKS, of_image, of_sound
from planner.trace.values import tensors_of

LONGEST = 2048  # tokens that are traced of a class of transformers
_SECONDS, _RATE = 10, 16_000  # of sound, where no configuration says how much
_FRAMES, _MOST_FRAMES = 1000, 3000  # of a spectrum in 10 and 30 s
_HOP = _SECONDS * _RATE // _FRAMES  # values of sound per frame
_SIDE = 448  # pixels of an image, where no configuration says how many
_TILES = 5  # of an image cut into tiles: a whole one and four quarters
_ROOM = 256  # least number of text tokens traced beside image tokens
_IMAGE = ("image_token_id", "image_token_index", "img_token_id", "image_patch_id")
_AUDIO = ("audio_token_id", "audio_token_index", "audio_tok_id")
_STARTS = {"image": ("vision_start_token_id",), "audio": ("audio_start_token_id",)}
Given = dict[str, Any]
Words = Callable[[int, int], torch.Tensor]  # token ids of samples and tokens


@dataclass(frozen=True)
class Inputs:
    """Inputs of a model: `make(samples, tokens)`.

    length: the longest sequence that is traced; None: there is none. positions: tokens that the
    model reads at most. least: tokens of a sample's images and sounds, which any length has.
    """

    make: Callable[[int, int], Given]
    length: int | None
    positions: int
    least: int = 0
    sample: str = ""
    images: int | None = None  # tokens of the image that a sample has beside its text
    stride: int | None = None  # tokens of a turn of a loop over the sequence


def inputs_of(module: nn.Module, config: Any) -> Inputs:
    """Inputs that a module of transformers runs with. Raises what it raises without any."""
    names = _names(module)
    main = getattr(module, "main_input_name", "input_ids")
    media = [*_media(config, names, main)] or [lambda batch: {}]
    decoder = "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False)
    text = "input_ids" in names and main != "input_values" and _reads_words(config, main)
    if not text and not decoder:
        first = _suits(module, media, [lambda given: (lambda b, s: given(b), 1)])
        kind = {"pixel_values": "image", "pixel_values_videos": "clip"}.get(main, "sample")
        return Inputs(first[0], None, 1, sample=kind)
    sub = getattr(config, "text_config", None) or config
    pair = (getattr(config, name, None) for name in ("encoder", "decoder"))
    known = [_number(x, "max_position_embeddings", "max_target_positions") for x in (sub, *pair)]
    positions = min((x for x in known if x), default=LONGEST)

    def words(
        given: Callable[[int], Given], ids: Words | None, framed: bool = False, mask: bool = False
    ) -> tuple[Callable[[int, int], Given], int]:
        reads = names if mask else names - {"attention_mask", "image_attention_mask"}
        text_of = ids if text else None
        places = _places(module, config, given, framed)
        return _with_words(config, reads, given, text_of, decoder, places), len(places)

    ways = [functools.partial(words, ids=ids) for ids in _ids(config)]
    ways += [functools.partial(words, ids=_words, framed=True)]
    ways += [functools.partial(words, ids=_words, mask=True)]
    ways += [functools.partial(words, ids=None)] * decoder  # features in place of words
    make, least = _suits(module, media, ways, min(positions, _ROOM))
    length = min(positions, max(LONGEST, least + _ROOM))
    pictured = text and "pixel_values" in make(1, length)
    images = least if pictured else None
    stride = _stride(module, make, least) if length >= least + _PROBED[-1] else None
    return Inputs(make, length, positions, least, images=images, stride=stride)


_PROBED = 128, 256  # tokens beside an image: whole chunks of most scans, and twice as many
_CHUNK, _TURN = 64, 8  # tokens of a stride where operators are run for chunks, and for tokens


class _Counted(TorchDispatchMode):
    """Counts operators with floating-point results."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += any(x.is_floating_point() for x in tensors_of(result))
        return result


def _stride(module: nn.Module, make: Callable[[int, int], Given], least: int) -> int | None:
    """Tokens by which lengths may differ where code loops over tokens or chunks of them, whose
    operators grow with the length; None where it does not."""
    counts = list[int]()
    for tokens in _PROBED:
        with torch.no_grad(), _Counted() as counted:
            module(**make(2, least + tokens))
        counts.append(counted.count)
    more = counts[1] - counts[0]
    if more >= _PROBED[1] - _PROBED[0]:
        return _TURN
    chunk = getattr(getattr(module, "config", None), "chunk_size", None)  # of a scan
    return None if more <= 0 else max(_CHUNK, chunk if isinstance(chunk, int) else 0)


def _suits(
    module: nn.Module,
    media: Sequence[Callable[[int], Given]],
    ways: Sequence[Callable[[Callable[[int], Given]], tuple[Callable[[int, int], Given], int]]],
    room: int = 0,
) -> tuple[Callable[[int, int], Given], int]:
    """The first inputs that a module runs with. Raises the error of the first ones."""
    error: Exception | None = None
    for given, whole in itertools.product(media, ways):
        try:
            make, least = whole(given)
            with torch.no_grad():
                module(**make(2, least + room))
            return make, least
        except Exception as raised:
            if error is None:
                error = raised
            else:
                error.add_note(f"{raised}"[:200])
    assert error is not None
    raise error


def with_placeholders(config: Any) -> None:
    """A token for images where a configuration has a name for it and no number."""
    for name in (*_IMAGE, *_AUDIO):
        if getattr(config, name, 0) is None:
            setattr(config, name, 1)


def _names(module: nn.Module) -> set[str]:
    """Names of the inputs of a module, and of the modules that take what it hands on."""
    names = set(inspect.signature(module.forward).parameters)
    inner = getattr(module, getattr(module, "base_model_prefix", "") or "model", None)
    if "kwargs" in names and isinstance(inner, nn.Module):
        names |= set(inspect.signature(inner.forward).parameters)
    return names


def _reads_words(config: Any, main: str) -> bool:
    """Whether a sample has text: a model of images alone may take the words of a caption, too."""
    if main not in ("pixel_values", "input_features"):
        return True
    return hasattr(config, "text_config") or _number(config, *_IMAGE, *_AUDIO) is not None


def _number(config: Any, *names: str) -> int | None:
    """The first of a configuration's whole numbers that is stated."""
    values = (getattr(config, name, None) for name in names)
    return next((int(x) for x in values if isinstance(x, int)), None)


def _words(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.long)


def _ids(config: Any) -> Iterator[Words]:
    """Token ids in the forms that classes have: a row per sample, or one per codebook of sound."""
    yield _words
    codes = _number(config, "num_codebooks")
    if codes is not None:
        yield lambda batch, length: _words(batch * codes, length)
        yield lambda batch, length: torch.zeros(batch, length, codes + 1, dtype=torch.long)


def _places(
    module: nn.Module, config: Any, media: Callable[[int], Given], framed: bool
) -> list[int]:
    """Token ids of a sample's images and sounds. framed: a token of their start before the
    placeholders, and a word after them."""
    places = list[int]()
    for kind, ids in (("image", _IMAGE), ("audio", _AUDIO)):
        token = _number(config, *ids)
        given = media(1)
        if token is not None and given and (count := _features(module, kind, given)):
            start = _number(config, *_STARTS[kind]) if framed else None
            places += [token] * count if start is None else [start, *[token] * count, 0]
    return places


def _with_words(
    config: Any,
    names: set[str],
    media: Callable[[int], Given],
    text: Words | None,
    decoder: bool,
    places: list[int],
) -> Callable[[int, int], Given]:
    """Inputs with token ids: placeholders of a sample's images and sounds, then words."""

    def make(batch: int, length: int) -> Given:
        row = places + [0] * (length - len(places))
        kinds = [0 if x == 0 else 1 for x in row]
        out = _as_long(config, media(batch), batch, length)
        if text:
            ids = torch.tensor([row] * batch) if places else text(batch, length)
            out["input_ids"] = ids
            for name in ("token_type_ids", "mm_token_type_ids"):
                if places and name in names:
                    out[name] = torch.tensor([kinds] * batch)
        if decoder:
            out["decoder_input_ids"] = _words(batch, length)
        if "attention_mask" in names:
            out["attention_mask"] = torch.ones(batch, length, dtype=torch.long)
        if "image_attention_mask" in names:
            out["image_attention_mask"] = torch.ones(batch, length, 1, dtype=torch.long)
        if "bbox" in names and text:
            out["bbox"] = torch.zeros(batch, length, 4, dtype=torch.long)
        return out

    return make


def _as_long(config: Any, given: Given, batch: int, length: int) -> Given:
    """Features that grow with the text, for a model that sums both."""
    frames = _number(config, "audio_length_per_tok")
    if frames is None or "input_features" not in given:
        return given
    bands = given["input_features"].shape[1]
    return given | {"input_features": torch.randn(batch, bands, frames * length)}


def _by_length(module: nn.Module, given: Given) -> int:
    """Tokens of a sample's sounds, as the tower's rule says."""
    rules = (getattr(x, "_get_feat_extract_output_lengths", None) for x in module.modules())
    rule = next((x for x in rules if x is not None), None)
    mask = next((given[x] for x in MASKS if x in given), None)
    if rule is None or mask is None:
        return 0
    counts = rule(mask.sum(-1))
    return int((counts[-1] if isinstance(counts, tuple) else counts).sum())


def _features(module: nn.Module, kind: str, given: Given) -> int:
    """Tokens of a sample's images or sounds, as the model's own tower gives them."""
    get, words = next(
        (
            (function, taken)
            for owner in (getattr(module, "model", None), module)
            if (function := getattr(owner, f"get_{kind}_features", None)) is not None
            and (taken := _taken(function, given))
        ),
        (None, {}),
    )
    if get is None or "input_ids" in _needed(get):
        return _by_length(module, given) if kind == "audio" else 0
    with torch.no_grad():
        out = get(**words)
    # several layers of the language model read features: count a single layer's
    stacked = getattr(out, "deepstack_features", None) or [None]
    pooled = getattr(out, "pooler_output", None)
    pooled = stacked[0] if pooled is None else pooled
    out = out if pooled is None else pooled
    out = getattr(out, "last_hidden_state", out)
    tensors = [x for x in tree_iter(out) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return sum(x.numel() // x.shape[-1] for x in tensors)


def _taken(function: Callable[..., Any], given: Given) -> Given:
    """Inputs that are parameters of a function, by name."""
    takes = inspect.signature(function).parameters
    return {name: value for name, value in given.items() if name in takes}


def _needed(function: Callable[..., Any]) -> set[str]:
    """Parameters of a function without a default."""
    parameters = inspect.signature(function).parameters.values()
    return {x.name for x in parameters if x.default is x.empty}


# ---------------------------------------------------------------------------- images and sounds


def _media(config: Any, names: set[str], main: str) -> Iterator[Callable[[int], Given]]:
    """Images and sounds in the forms that classes have, the likeliest first."""
    if "pixel_values_videos" in names and main == "pixel_values_videos":
        yield from _clips(config)
    elif "pixel_values" in names:
        yield from _images(config, names)
        yield of_image(config, _tower(config), names)
    elif of_sounds := {"input_features", "audio_features", "input_values"} & names:
        if of_sounds != {"input_values"}:
            yield from _spectra(config, names)
        if "input_values" in names:
            yield from _sounds(config, names)
        yield of_sound(config, names)


def _part(config: Any, *names: str) -> Any:
    """The configuration of a tower; the whole one where there is none."""
    for name in names:
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, dict):
            return getattr(part, "vision_config", None) or part
    return config


def _tower(config: Any) -> Any:
    """The configuration of the images' tower."""
    return _part(config, "vision_config", "vision_encoder_config", "backbone_config", "encoder")


def _sides(config: Any) -> tuple[int, int]:
    names = ("image_size", "img_size", "input_size")
    side = next((x for name in names if (x := getattr(config, name, None))), _SIDE)
    if isinstance(side, dict):
        side = [side.get("height", _SIDE), side.get("width", _SIDE)]
    height, width = side if isinstance(side, Sequence) else (side, side)
    return int(height), int(width)


def _images(config: Any, names: set[str]) -> Iterator[Callable[[int], Given]]:
    vision = _tower(config)
    height, width = _sides(vision)
    channels = _number(vision, "num_channels", "in_channels", "in_chans") or 3
    patch = getattr(vision, "model_patch_size", None) or getattr(vision, "patch_size", None) or 16
    patch = patch[-1] if isinstance(patch, Sequence) else int(patch)
    merge = _number(vision, "spatial_merge_size", "merge_kernel_size", "downsample_ratio") or 1
    merge = max(merge, _number(config, "downsample_factor", "spatial_merge_size") or 1)
    step = patch * max(merge, 1)
    rows, columns = (max(n // step, 1) * step // patch for n in (height, width))
    time = _number(vision, "temporal_patch_size", "patch_temporal") or 1
    if grids := [x for x in _GRIDS if x in names]:
        rows, columns = (max(_SIDE // step, 1) * step // patch for _ in range(2))
        grid = [1, rows, columns] if "thw" in grids[0] else [rows, columns]
        merged = merge if "image_merge_sizes" in names else None
        for width_of_patch in (channels * time * patch * patch, channels * patch * patch):
            shape = (rows * columns, width_of_patch)
            yield _of_patches(shape, grids[0], grid, merged)
        yield _of_patches((rows * columns, channels, patch, patch), grids[0], grid, merged)
    positions = [x for x in ("image_position_ids", "pixel_position_ids") if x in names]
    if positions:
        pooled = _number(vision, "pooling_kernel_size") or 1
        each = max(math.isqrt(280) // pooled, 1) * pooled if pooled > 1 else rows
        places = [[x, y] for y in range(each) for x in range(each)]
        yield lambda b: {
            "pixel_values": torch.randn(b, each * each, channels * patch * patch),
            positions[0]: torch.tensor([places] * b),
        }
    if "spatial_shapes" in names:
        yield lambda b: {
            "pixel_values": torch.randn(b, rows * columns, channels * patch * patch),
            "spatial_shapes": torch.tensor([[rows, columns]] * b),
            "pixel_attention_mask": torch.ones(b, rows * columns, dtype=torch.long),
        }
    if "aspect_ratio_ids" in names:
        tiles = _number(vision, "max_num_tiles") or 4
        yield lambda b: {
            "pixel_values": torch.randn(b, 1, tiles, channels, height, width),
            "aspect_ratio_ids": torch.ones(b, 1, dtype=torch.long),
            "aspect_ratio_mask": torch.ones(b, 1, tiles, dtype=torch.long),
        }
    if "image_sizes" in names:
        for scale in (2, 1):
            sizes = [scale * height, scale * width]
            yield _in_tiles((_TILES, channels, height, width), sizes)
        yield lambda b: {
            "pixel_values": torch.randn(b, channels, height, width),
            "image_sizes": torch.tensor([[height, width]] * b),
        }
    if "pixel_attention_mask" in names or "pixel_mask" in names:
        yield lambda b: {"pixel_values": torch.randn(b, 1, channels, height, width)}
    yield lambda b: {"pixel_values": torch.randn(b, channels, height, width)}
    yield lambda b: {"pixel_values": torch.randn(b, 1, channels, height, width)}
    frames = _number(config, "num_frames", "frames_per_clip") or 8
    yield lambda b: {"pixel_values": torch.randn(b, frames, channels, height, width)}
    flat = rows * columns, channels * patch * patch  # what a linear layer embeds
    yield lambda b: {"pixel_values": torch.randn(b, *flat)}
    yield lambda b: {"pixel_values": torch.randn(b * flat[0], flat[1])}


_GRIDS = ("image_grid_thw", "grid_thw", "image_grid_hws", "image_grid_hw")


def _of_patches(
    shape: tuple[int, ...], name: str, grid: list[int], merged: int | None
) -> Callable[[int], Given]:
    """Patches of all images in a row. name: of the input with a grid per image; merged: patches of
    a token in a row and in a column, where the model asks for them."""

    def make(b: int) -> Given:
        out = {
            "pixel_values": torch.randn(b * shape[0], *shape[1:]),
            name: torch.tensor([grid] * b),
        }
        return out if merged is None else out | {"image_merge_sizes": torch.tensor([merged] * b)}

    return make


def _in_tiles(shape: tuple[int, ...], sizes: list[int]) -> Callable[[int], Given]:
    """Images cut into tiles. sizes: height and width of a whole one."""
    return lambda b: {
        "pixel_values": torch.randn(b, *shape),
        "image_sizes": torch.tensor([sizes] * b),
    }


def _clips(config: Any) -> Iterator[Callable[[int], Given]]:
    vision = _part(config, "vision_config")
    height, width = _sides(vision)
    frames = _number(vision, "num_frames", "frames_per_clip") or 16
    channels = _number(vision, "num_channels", "in_channels", "in_chans") or 3
    yield lambda b: {"pixel_values_videos": torch.randn(b, frames, channels, height, width)}


# configurations' names of the bands of a spectrum
_BANDS = (
    "num_mel_bins",
    "feature_projection_input_dim",
    "input_feat_per_channel",
    "input_feat_size",
    "input_dim",
    "mel_bins",
    "n_mels",
    "input_size",
    "num_mels",
)


def _spectra(config: Any, names: set[str]) -> Iterator[Callable[[int], Given]]:
    audio = _part(config, "audio_config", "encoder_config", "audio_encoder_config", "speech_config")
    bands = _number(audio, *_BANDS)
    bands = bands or 80
    channels = _number(audio, "input_channels") or 1
    frames = min(2 * (_number(audio, "max_source_positions") or _FRAMES // 2), _MOST_FRAMES)
    name = "input_features" if "input_features" in names else "audio_features"
    masks = [x for x in MASKS if x in names]

    def of(*shape: int, masked: bool = True) -> Callable[[int], Given]:
        def make(b: int) -> Given:
            out = {name: torch.randn(b, *shape)}
            for mask in masks if masked else ():
                out[mask] = torch.ones(b, frames, dtype=torch.long)
            if "padding_mask" in names:
                out["padding_mask"] = torch.ones(b, frames * _HOP, dtype=torch.long)
            return out

        return make

    yield of(bands, frames)
    yield of(frames, bands * channels)
    yield of(_FRAMES, bands)
    yield of(frames, bands * channels, masked=False)
    yield of(frames, 4 * bands)  # two frames and their differences side by side
    side = _number(audio, "spec_size")
    if side is not None:
        yield of(1, 1001, _number(audio, "num_mel_bins") or 64)


def _sounds(config: Any, names: set[str]) -> Iterator[Callable[[int], Given]]:
    length = _SECONDS * _RATE
    yield lambda b: {"input_values": torch.randn(b, length)}
    yield lambda b: {"input_values": torch.randn(b, 1, length)}
    bands, frames = _number(config, "num_mel_bins"), _number(config, "max_length") or _FRAMES
    if bands is not None:
        yield lambda b: {"input_values": torch.randn(b, frames, bands)}
