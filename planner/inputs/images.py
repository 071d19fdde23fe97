"""Images of a sample of a vision-language model: its file has the counts of one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from planner.error import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.parts import Part, Traced
from planner.specs.parts.traced import Moves, Share
from planner.specs.polynomial import Polynomial

_COUNTS = (
    *("enters", "saved", "saved_bytes", "fused_saved", "fused_saved_bytes"),
    *("frozen_saved", "frozen_saved_bytes", "working"),
)


_WORDS = "operators", "ranks", "kernels", "kernels_backward"
_BYTES, _SHARED = (
    tuple(name for name in spec.model_fields if name not in _WORDS) for spec in (Moves, Share)
)


def with_images(options: Options, model: ModelSpec) -> tuple[ModelSpec, list[str]]:
    """The model of samples with as many images as a request says, on average, and how many tokens
    they are. Raises PlanError where the file of a model counts none."""
    images = options.images_per_sample
    if images is None:
        return model, []
    if model.image_tokens is None:
        remedy = (
            f"the file of {model.name} counts no images beside text: `dpplan trace` of its"
            " config.json makes one that does; leave it out"
        )
        raise PlanError("--images-per-sample", images, remedy)
    times = Fraction(images).limit_denominator(1000)
    parts = tuple(_part(part, times) for part in model.parts)
    tokens = float(times * model.image_tokens)
    sentence = f"images: {images:g} per sample, {tokens:,.0f} of its tokens (--images-per-sample)"
    return model.model_copy(update={"parts": parts, "image_tokens": round(tokens)}), [sentence]


def check_images(options: Options, model: ModelSpec, seq_len: int) -> None:
    """Raises PlanError where images have more tokens than a sequence."""
    if options.images_per_sample is None or model.image_tokens is None:
        return
    if model.image_tokens > seq_len:
        remedy = f"are {model.image_tokens:,} tokens of {seq_len:,}: fewer, or a longer --seq-len"
        raise PlanError("--images-per-sample", options.images_per_sample, remedy)


def _part(part: Part, times: Fraction) -> Part:
    """A block with the images of a sample side by side in its batch: what does not grow with the
    length belongs to the images."""
    if not isinstance(part, Traced):
        return part

    def scaled(count: Polynomial | None) -> Polynomial | None:
        if count is None:
            return None
        return Polynomial.of(
            {(i, j): value * (times**i if j == 0 else 1) for i, j, value in count.terms}
        )

    def row(each: Any, *names: str) -> Any:
        return each.model_copy(update={name: scaled(getattr(each, name)) for name in names})

    def attention(each: Any) -> Any:  # groups are per sample
        queries = each.queries
        if any(power for _, power, _ in queries.terms):
            return each
        groups = {(i, j): value * times for i, j, value in each.groups.terms}
        return each.model_copy(update={"groups": Polynomial.of(groups)})

    return part.model_copy(
        update={
            **{name: scaled(getattr(part, name)) for name in _COUNTS},
            "gemms": tuple(row(each, "rows", "read") for each in part.gemms),
            "multiplied": tuple(row(each, "batch", "m", "k", "n") for each in part.multiplied),
            "attention": tuple(attention(each) for each in part.attention),
            "moves": tuple(row(each, *_BYTES) for each in part.moves),
            "shares": tuple(row(each, *_SHARED) for each in part.shares),
        }
    )
