"""Tokens of an image or a clip, from pixels and frames."""

from __future__ import annotations

import re

from planner.error import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options import Options

_SIDES = re.compile(r"(\d{1,5})(?:\s*[xX*]\s*(\d{1,5}))?(?:\s*px)?")


def image_tokens(options: Options, model: ModelSpec) -> int:
    """Tokens of a sample at --resolution and, of clips, --frames. Raises PlanError naming either
    where the model has no such unit, or a token does not divide the image."""
    if model.pixels is None:
        field = "--frames" if options.resolution is None else "--resolution"
        remedy = f"{model.name} has no size in pixels: its file counts tokens, say --seq-len"
        raise PlanError(field, options.resolution or options.frames, remedy)
    if options.resolution is None:
        remedy = "says how many frames, not how large: give --resolution beside it"
        raise PlanError("--frames", options.frames, remedy)
    tokens = _sides(options.resolution, model) * _frames(options, model)
    if options.seq_len not in (None, tokens):
        remedy = f"is {tokens:,} tokens, and --seq-len says {options.seq_len:,}: leave one out"
        raise PlanError("--resolution", options.resolution, remedy)
    return tokens


def _sides(text: str, model: ModelSpec) -> int:
    """Tokens of a frame."""
    matched = _SIDES.fullmatch(text.strip())
    if matched is None:
        remedy = "must be the pixels of a side, or width x height: 512, 832x480"
        raise PlanError("--resolution", text, remedy)
    width = int(matched[1])
    height = int(matched[2] or width)
    assert model.pixels is not None
    if width % model.pixels or height % model.pixels or not width * height:
        remedy = f"a token of {model.name} is {model.pixels} pixels wide: give multiples of it"
        raise PlanError("--resolution", text, remedy)
    return (width // model.pixels) * (height // model.pixels)


def _frames(options: Options, model: ModelSpec) -> int:
    """Tokens of a clip along time: its first frame, and the others by this many."""
    if model.frames is None:
        if options.frames is not None:
            remedy = f"{model.name} counts no frames: leave it out"
            raise PlanError("--frames", options.frames, remedy)
        return 1
    if options.frames is None:
        remedy = f"{model.name} counts clips: give --frames beside it"
        raise PlanError("--resolution", options.resolution, remedy)
    more, rest = divmod(options.frames - 1, model.frames)
    if rest:
        remedy = f"a token of {model.name} is {model.frames} frames after the first: give 1 more"
        raise PlanError("--frames", options.frames, f"{remedy} than a multiple of {model.frames}")
    return 1 + more
