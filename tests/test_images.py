"""Models of images: rows that were published, and the laws of their convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest

from benchmarks.studies import images
from planner.estimate.layer.convolution import convolution_s
from planner.estimate.layer.gemm import Gemm
from planner.estimate.machine import machine
from planner.formulas import convolutions
from planner.inputs import catalog
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan
from planner.verbs.estimate import estimate

ROWS = images.read()
RESNET = catalog.load("models", ModelSpec, "resnet-50")


def _plan(**training: Any) -> Plan:
    plan = plans.plan(RESNET, software="pytorch-ddp", seq_len=1, global_batch=64, gpus=1)
    return plan.model_copy(update={"training": plan.training.model_copy(update=training)})


def _seconds(plan: Plan, **change: Any) -> tuple[float, float]:
    """Forward and backward of 64 images of 56 x 56 pixels and 256 channels, kernels of 3 x 3."""
    shape: dict[str, Any] = {"m": 64.0 * 56**2, "k": 256.0 * 9, "n": 256.0, "taps": 9.0}
    shape |= {"read": 64.0 * 56**2 * 256}
    both = convolution_s(plan, machine(plan), Gemm("convolution", **shape | change))
    return float(both.forward), float(both.backward)


def test_rows_say_where_they_are_from() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert len({row.suite for row in ROWS}) >= 5
    for row in ROWS:
        assert all((row.source, row.printed, row.quoted))
        assert row.step_s > 0
        assert row.tier == "A" or row.assumed


def test_every_model_is_of_a_row() -> None:
    files = {path.stem for path in (images.FOLDER / "models").glob("*.toml")}
    models = {row.model for row in ROWS}
    assert files <= models
    for name in models - files:
        catalog.load("models", ModelSpec, name)


# of each suite the first row, and one of another kind of model
FEW = (
    *("timm-nhwc-01", "timm-nhwc-11", "timm-nchw-01", "nvidia-examples-01", "nvidia-examples-34"),
    *("flagperf-01", "flagperf-09", "dlperf-01", "mlperf-images-01", "mosaic-diffusion-01"),
    *("mlperf-flux-06", "mlperf-sd-08", "dfm-wan-01"),
)


def test_few_rows_of_each_suite_are_near() -> None:
    rows = [row for row in ROWS if row.id in FEW]
    assert len(rows) == len(FEW)
    scored = list(images.scores(rows))
    assert np.mean([abs(each.error) for each in scored]) < 0.2
    assert images.summary(scored).rows


def test_channels_first_are_converted_around_each_pass() -> None:
    """Three passes, each with its tensors read and written once more."""
    first, last = (_seconds(_plan(channels_last=value)) for value in (False, True))
    plan = _plan()
    m = machine(plan)
    read = 64.0 * 56**2 * 256
    moved = convolutions.conversion_bytes(read, read, 2.0)
    assert moved == 2 * 2 * 2 * read
    each = moved / float(m.memory_bandwidth * m.stream_frac)
    assert first[0] - last[0] == pytest.approx(each)
    assert first[1] - last[1] == pytest.approx(2 * each)
    assert _seconds(_plan(compile=True)) == pytest.approx(last)


def test_images_need_no_gradient() -> None:
    plan = _plan(channels_last=True)
    whole, stem = (_seconds(plan, input_gradient=value) for value in (True, False))
    assert whole[0] == stem[0]
    assert stem[1] < 0.7 * whole[1]


def test_few_channels_cost_as_many_as_a_load_has() -> None:
    plan = _plan(channels_last=True)
    read = 64.0 * 56**2
    three, eight = (_seconds(plan, k=9.0 * c, read=c * read)[0] for c in (3, 8))
    assert three == pytest.approx(eight, rel=0.1)


def test_groups_lie_side_by_side_in_a_tile() -> None:
    """32 groups of 8 channels have an inner width of 16 channels, as an instruction has: far less
    than 256, and than 32 tiles of 8 columns."""
    plan = _plan(channels_last=True)
    grouped = sum(_seconds(plan, k=9.0 * 8, n=8.0, batch=32.0))
    assert grouped < 0.3 * sum(_seconds(plan))


def test_single_channels_are_bound_by_windows_or_by_memory() -> None:
    plan = _plan(channels_last=True)
    shape: dict[str, Any] = {"n": 1.0, "batch": 256.0}
    small, large = (_seconds(plan, k=taps, taps=taps, **shape)[0] for taps in (9.0, 49.0))
    assert 3 < large / small < 49 / 9
    m = machine(plan)
    windows = 2.0 * 49 * 64 * 56**2 * 256
    caches = float(m.vector_rate) * float(convolutions.DEPTHWISE)
    assert large == pytest.approx(windows / caches, rel=0.05)
    read, weights = 64.0 * 56**2 * 256, 256.0
    memory = 2 * (2 * read + weights) / float(m.memory_bandwidth * m.stream_frac)
    assert _seconds(plan, k=1.0, taps=1.0, **shape)[0] == pytest.approx(memory, rel=0.15)


def test_fp32_multiplies_less_where_the_kernel_is_of_three_by_three() -> None:
    """F(2x2, 3x3) of Winograd, at stride 1; fp32 units read channels first as they lie."""
    plan = _plan(precision="fp32")
    dense = _seconds(plan)[0]
    strided = _seconds(plan, read=4 * 64.0 * 56**2 * 256)[0]
    assert 1.8 < strided / dense < 2.3
    assert _seconds(_plan(precision="fp32", channels_last=True))[0] == dense


def test_statistics_of_norms_may_come_with_a_convolution() -> None:
    row = next(row for row in ROWS if row.id == "timm-nhwc-01")
    options = row.request()
    (apart,) = images.scores([row])
    assert options.fused_norm is None
    fused = estimate(options.changed(fused_norm=True), brief=True).step.seconds
    assert 0.8 < fused / apart.seconds < 0.98
