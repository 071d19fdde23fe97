"""The verbs `input` and `batchnorm`: loading at a stated rate of samples, and synchronised batch
norm, without a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.estimate import batch_norm, loading
from planner.inputs import workload as conditions
from planner.inputs.options import read_options
from planner.report.layout import SCHEMA_VERSION, Report
from planner.specs.base import PlanError
from planner.specs.options import refuse
from planner.specs.options.parallel import InputOptions
from planner.verbs import allreduce as reductions

_NONE = "-"  # in place of a model
_MOST_LAYERS, _MOST_CHANNELS = 10_000, 1_000_000
_ELEMENT_BYTES = 4.0  # statistics are fp32 also in mixed precision: torch accumulates them so


def input_answer(given: Mapping[str, Any], asked: InputOptions) -> Report:
    """What storage and workers need for a rate of samples on so many GPUs, one replica each. Raises
    PlanError.

    given: input options by name, sample_bytes among them.
    """
    batch, gpus = asked.batch, asked.gpus
    if given.get("sample_bytes") is None:
        raise PlanError(
            "--sample-bytes", None, "is needed: bytes read per sample, such as '115 kB'"
        )
    nodes = -(-gpus // asked.gpus_per_node)
    options = read_options({"model": _NONE, **given})
    refuse(options, "input", "model")
    spec = conditions.input_spec(options, nodes)
    assert spec is not None
    one = loading.sample(spec, 1.0, 1)
    samples = float(batch * gpus)
    found = loading.times(spec, one, samples, float(gpus), math.inf)
    needs = loading.document(
        spec,
        one,
        found,
        samples=samples,
        step_s=samples / asked.samples_per_s,
        replicas=float(gpus),
        nodes=nodes,
        batch=float(batch),
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "gpus": gpus,
        "nodes": nodes,
        "batch": batch,
        "input": needs,
    }


def batch_norm_answer(given: Mapping[str, Any], channels: str | None) -> Report:
    """Bytes and seconds of synchronised batch norm in one step; channels: "64,64,256", default
    ResNet-50's."""
    widths = batch_norm.resnet50() if channels is None else _channels(channels)
    cluster, m, assumed = reductions.links(given, "batchnorm")
    found = batch_norm.traffic(m, widths, cluster.gpus, cluster.nvlink_domain, _ELEMENT_BYTES)
    return {
        "schema_version": SCHEMA_VERSION,
        "cluster": {"gpu": cluster.gpu.id, "gpus": cluster.gpus, "nodes": cluster.nodes},
        "layers": found.layers,
        "channels": found.channels,
        "forward": {"bytes": found.forward_bytes, "seconds": found.forward_s},
        "backward": {"bytes": found.backward_bytes, "seconds": found.backward_s},
        "bytes": found.forward_bytes + found.backward_bytes,
        "seconds": found.forward_s + found.backward_s,
        "assumptions": assumed,
    }


def _channels(text: str) -> list[int]:
    """Widths of layers, each possibly repeated: "64,256x3"."""
    out: list[int] = []
    for word in text.split(","):
        width, _, times = word.strip().partition("x")
        try:
            each, count = int(width), int(times or 1)
        except ValueError:
            raise PlanError(
                "--channels", text, "must read numbers, or NUMBERxTIMES, such as 64,256x3"
            ) from None
        if (
            not 1 <= each <= _MOST_CHANNELS
            or not 1 <= count <= _MOST_LAYERS
            or len(out) + count > _MOST_LAYERS
        ):
            raise PlanError(
                "--channels",
                text,
                f"takes 1 to {_MOST_CHANNELS:,} channels and at most {_MOST_LAYERS:,} layers",
            )
        out += [each] * count
    return out
