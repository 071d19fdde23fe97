"""A convolutional network: ResNet-50 as a table of its convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest

from planner import api
from planner.estimate import evaluate
from planner.estimate.memory import PHASES
from planner.formulas.flops import matmul_weights
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.ledger import total
from planner.specs.base import PlanError
from planner.specs.layers import parts_of
from planner.specs.model import ModelSpec
from planner.specs.parts import Convolution, Stream

RESNET = catalog.load("models", ModelSpec, "resnet-50")
GIVEN = {"model": "resnet-50", "gpu": "a100-80gb", "gpus": 8, "advice": 0}


def test_counts_are_those_of_torch() -> None:
    """ResNetForImageClassification of transformers 5.23, which is torchvision's resnet50, with
    1,000 classes: its parameters, and FlopCounterMode on two images of 224 pixels forward."""
    assert parameter_count(RESNET) == 25_557_032
    assert 2 * 2 * total(matmul_weights(RESNET)) == 16_348_545_024 + 8_192_000
    assert len(RESNET.convolutions) == 53


def test_elements_kept_are_those_that_torch_saves() -> None:
    """Two images keep 42,205,056 elements in 32 bit and 3,211,264 B of places of the largest
    pixels. Among them are means and deviations of the norms and what the classes read (here the
    input of a layer), and not what the classes say."""
    kept: dict[str, int] = {}
    for part, count in parts_of(RESNET):
        for entry in part.kept(Stream(2048)):
            kept[entry.name] = kept.get(entry.name, 0) + count * entry.elements.elements
    places, text = kept.pop("pooling/places"), kept.pop("projection/output")
    norms = sum(part.outputs for part in RESNET.convolutions)
    assert 2 * sum(kept.values()) + 2 * norms + 2 * 2048 == 42_205_056
    assert (2 * places * 2, text) == (3_211_264, 1000)


def _evaluated(batch: int, **change: Any) -> Any:
    plan = plans.plan(RESNET, software="pytorch-ddp", seq_len=1, global_batch=batch, gpus=1)
    return evaluate(plan, plans.rows(1, {"micro_batch": batch, **change}))


def test_memory_and_time_are_of_the_images() -> None:
    first, two = _evaluated(128), _evaluated(256)
    forward = PHASES.index("forward")
    kept = [float(value.memory.timeline[0][forward]["activations"][0]) for value in (first, two)]
    assert kept[1] == pytest.approx(2 * kept[0], rel=0.001)
    assert 1.7 < float(two.time.seconds[0] / first.time.seconds[0]) < 2.1
    again = _evaluated(256, recompute="full")
    assert np.all(again.memory.peak < two.memory.peak)
    assert np.all(again.time.seconds > two.time.seconds)


def test_a_convolution_reads_a_pixel_once() -> None:
    named = {part.name: part for part, _ in parts_of(RESNET)}
    middle, stem, bypass = (named[name] for name in ("middle1", "stem", "bypass2"))
    assert isinstance(middle, Convolution)
    assert isinstance(stem, Convolution)
    assert isinstance(bypass, Convolution)
    (product,) = middle.products(Stream(2048))
    assert (product.k, product.taps, product.source_tokens) == (64 * 9, 9, 56 * 56)
    assert (middle.read, stem.read) == (64 * 56 * 56, 3 * 224 * 224)
    assert bypass.read == 256 * 28 * 28  # every second pixel of every second row


# images/s that NVIDIA prints: DeepLearningExamples, PyTorch/Classification/ConvNets/resnet50v1.5,
# README of 2021 (pytorch:21.03), mixed precision; 256 images a GPU, channels last as its scripts
# have it. Of eight A100 it prints 16,621, for which it reads images by workers of torch
PRINTED = {("a100-80gb", 1): 2470, ("v100-16gb", 1): 1200, ("v100-16gb", 8): 8322}


@pytest.mark.parametrize(("gpu", "gpus"), PRINTED)
def test_printed_throughput_is_within_a_sixth(gpu: str, gpus: int) -> None:
    """No fit used this run. Its scripts recompute nothing and use unmodified torch."""
    given = {**GIVEN, "gpu": gpu, "gpus": gpus, "stack": "pytorch-ddp", "precision": "fp16"}
    given |= {"optimizer": "sgd-momentum", "micro_batch": 256, "global_batch": 256 * gpus}
    given |= {"recompute": "none", "stack_defaults": True, "channels_last": True}
    estimate = api.estimate(api.read_options(given))
    assert estimate.memory.fits
    assert estimate.throughput.samples_per_s == pytest.approx(PRINTED[gpu, gpus], rel=1 / 6)


def test_images_are_counted_and_data_parallelism_alone_divides_them() -> None:
    estimate = api.estimate(api.read_options(GIVEN))
    assert estimate.throughput.samples == "images"
    assert (estimate.layout.tp, estimate.layout.pp, estimate.layout.cp) == (1, 1, 1)
    assert estimate.stack.id in ("pytorch-ddp", "pytorch-fsdp", "deepspeed")
    assert any(
        "global batch 256 images: as resnet-50 was" in assumption
        for assumption in estimate.assumptions
    )
    for change, words in (
        (
            {"tp": 2, "stack": "torchtitan"},
            "runs transformer layers of its own|cannot be shared by tp 2",
        ),
        ({"pp": 2, "stack": "deepspeed"}, "does not have --pp 2"),
        ({"pp": 2, "stack": "torchtitan"}, "planned whole on every rank"),
        ({"stack": "megatron-core"}, "take --stack deepspeed, pytorch-ddp or pytorch-fsdp"),
        ({"seq_len": 4}, "an image of resnet-50 is one token"),
        (
            {"loss_kernel": "fused-linear"},
            "applies to logits over a vocabulary, and resnet-50 has none",
        ),
    ):
        with pytest.raises(PlanError, match=words):
            api.estimate(api.read_options({**GIVEN, **change}))
