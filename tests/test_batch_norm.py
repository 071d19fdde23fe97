"""`dpplan batchnorm`: bytes and time of synchronised batch norm."""

from __future__ import annotations

import pytest
from command import dpplan, refused

from planner.formulas import stragglers
from planner.formulas.stragglers import batch_norm_backward_bytes, batch_norm_forward_bytes
from planner.verbs.batchnorm import model_channels


def test_batch_norm_by_hand() -> None:
    # 64 channels in fp32: mean, 1/std and count are 129 numbers of 4 B; backward two sums, 128
    assert float(batch_norm_forward_bytes(64.0, 4.0)) == 516
    assert float(batch_norm_backward_bytes(64.0, 4.0)) == 512
    assert float(stragglers.batch_norm_forward_bytes(0.0, 4.0)) == 4


def test_batch_norms_of_resnet() -> None:
    widths = model_channels("resnet-50")
    assert (len(widths), sum(widths)) == (53, 26_560)  # 53,120 scales and shifts
    document = dpplan("batchnorm", "--gpu", "a100", "--gpus", 64, "--json").json()
    assert document["forward"]["bytes"] == (2 * 26_560 + 53) * 4
    assert document["backward"]["bytes"] == 2 * 26_560 * 4
    assert document["seconds"] == pytest.approx(
        document["forward"]["seconds"] + document["backward"]["seconds"]
    )
    answer = dpplan(
        "batchnorm", "--gpu", "a100", "--gpus", 64, "--channels", "64,256x3", "--json"
    ).json()
    assert (answer["layers"], answer["channels"]) == (4, 832)
    fewer = dpplan("batchnorm", "--gpu", "a100", "--gpus", 8, "--json").json()
    assert fewer["seconds"] < document["seconds"]
    refused(dpplan("batchnorm", "--gpu", "a100", "--gpus", 8, "--channels", "64,a"), "--channels")
    refused(dpplan("batchnorm", "--gpu", "a100", "--gpus", 8, "--channels", "0"), "--channels")
