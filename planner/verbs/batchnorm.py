"""The verb `batchnorm`: what synchronized batch norm costs in one training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.estimate import batch_norm
from planner.inputs import catalog
from planner.inputs.options import read_without_model
from planner.inputs.scenario import doubts_of
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION
from planner.specs.documents.batchnorm import BatchNorm, BatchNormCluster, Exchange
from planner.specs.model import ModelSpec
from planner.specs.options import rows
from planner.specs.options.numbers import within
from planner.specs.options.parallel import BatchNormOptions
from planner.units import parse_whole
from planner.verbs.allreduce import links

_MODEL = "resnet-50"
_MOST_LAYERS = 10_000
_ELEMENT_BYTES = 4.0  # statistics are fp32 also in mixed precision: torch accumulates them so


def answer(given: Mapping[str, Any], channels: str | None) -> BatchNorm:
    """Bytes and seconds of all layers. Raises PlanError naming the option.

    given: cluster options by name; channels: "64,64,256x3", by default the channels of ResNet-50.
    """
    widths = model_channels(_MODEL) if channels is None else _channels(channels)
    options = read_without_model(given, "batchnorm")
    cluster, m, assumed = links(options)
    traffic = batch_norm.traffic(m, widths, cluster.gpus, cluster.tiers, _ELEMENT_BYTES)
    return BatchNorm(
        schema_version=SCHEMA_VERSION,
        cluster=BatchNormCluster(gpu=cluster.gpu.id, gpus=cluster.gpus, nodes=cluster.nodes),
        layers=traffic.layers,
        channels=traffic.channels,
        forward=Exchange(bytes=traffic.forward_bytes, seconds=traffic.forward_s),
        backward=Exchange(bytes=traffic.backward_bytes, seconds=traffic.backward_s),
        bytes=traffic.forward_bytes + traffic.backward_bytes,
        seconds=traffic.forward_s + traffic.backward_s,
        assumptions=assumed,
        doubts=doubts_of(options, of_model=False),
    )


def model_channels(name: str) -> list[int]:
    """Channels of the batch norms of a convolutional network of the catalogue."""
    model = catalog.load("models", ModelSpec, name)
    return [part.outputs for part in model.convolutions if part.norm]


def _channels(text: str) -> list[int]:
    """Widths of layers, each possibly repeated: "64,256x3"."""
    out: list[int] = []
    for word in text.split(","):
        width, _, times = word.strip().partition("x")
        try:
            each, count = int(parse_whole(width)), int(parse_whole(times or 1))
            within(rows(BatchNormOptions)["channels"], each)
        except ValueError as error:
            raise PlanError(
                "--channels", text, f"{error}; must read numbers, or NUMBERxTIMES, such as 64,256x3"
            ) from None
        if not 1 <= count <= _MOST_LAYERS or len(out) + count > _MOST_LAYERS:
            raise PlanError("--channels", text, f"takes at most {_MOST_LAYERS:,} layers")
        out += [each] * count
    return out
