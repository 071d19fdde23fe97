"""Images and sounds as the processor of a class of transformers makes them: sizes and whole numbers
of a grey image or of silence, where inputs of the configuration's sizes do not run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

_SIDE = 448  # pixels of an image
_SECONDS = 10  # of sound
_SIZES = ("patch_size", "temporal_patch_size", "merge_size")  # that a tower and its processor share
MASKS = ("feature_attention_mask", "input_features_mask")  # of sound, as models call them
Given = dict[str, Any]


def of_image(config: Any, tower: Any, names: set[str]) -> Callable[[int], Given]:
    """Inputs among `names` of samples with an image. tower: the configuration of its tower."""
    processed = functools.lru_cache(functools.partial(_image, config, tower))
    return functools.partial(_without_data, processed, names)


def of_sound(config: Any, names: set[str]) -> Callable[[int], Given]:
    """Inputs among `names` of samples with a sound."""
    processed = functools.lru_cache(functools.partial(_sound, config))
    return functools.partial(_without_data, processed, names)


def _image(config: Any, tower: Any, batch: int) -> Given:
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING

    kind = IMAGE_PROCESSOR_MAPPING[type(config)]["torchvision"]
    sizes = {x: getattr(tower, x) for x in _SIZES if isinstance(getattr(tower, x, None), int)}
    with unset_fake_temporarily():
        processor = kind(**{x: n for x, n in sizes.items() if hasattr(kind, x)})
        image = torch.zeros(3, _SIDE, _SIDE, dtype=torch.uint8)
        return dict(processor([image] * batch, return_tensors="pt"))


def _sound(config: Any, batch: int) -> Given:
    import numpy
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING

    with unset_fake_temporarily():
        processor = FEATURE_EXTRACTOR_MAPPING[type(config)]()
        sound = numpy.zeros(_SECONDS * processor.sampling_rate, dtype=numpy.float32)
        words = {"sampling_rate": processor.sampling_rate, "return_tensors": "pt"}
        return dict(processor([sound] * batch, **words))


def _without_data(make: Callable[[int], Given], names: set[str], batch: int) -> Given:
    """Pixels and spectra of the same sizes, and whole numbers as they are. A mask of sound has the
    name that the model gives it."""
    mask = next((name for name in MASKS if name in names), "")
    out = Given()
    for name, value in make(batch).items():
        name = mask if name == "attention_mask" else name
        if name in names and isinstance(value, torch.Tensor):
            real = value.is_floating_point()
            out[name] = torch.randn(value.shape) if real else torch.tensor(value.tolist())
    return out
