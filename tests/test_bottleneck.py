"""The largest part of a step and its share: in the document and on the page."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from planner import api
from planner.estimate import Estimates
from planner.estimate.step import StepTime
from planner.report.bottleneck import bottleneck, exposed_s
from planner.specs.components import BOTTLENECKS, COMMUNICATION, STEP
from planner.specs.document import changed
from planner.verbs.estimate import chosen
from web import view

OPTIONS = {
    "model": "gpt3-1.3b",
    "gpu": "a100",
    "gpus": 16,
    "tp": 2,
    "pp": 2,
    "zero": 1,
    "micro_batch": 1,
    "stack": "megatron-core",
    "placement": "tp-cp-pp-dp",  # replicas on other nodes, whatever schedule is picked
}
# communication that stays inside a node here, and that crosses nodes
OF_WIRE = {"intra-node link": "tensor_parallel", "network": "data_parallel"}


@cache
def _estimates() -> Estimates:
    return chosen(api.read_options(OPTIONS))


def _led_by(name: str) -> StepTime:
    """A step where one component takes twice as long as all others together."""
    time = _estimates().time
    part = OF_WIRE.get(name) or next(
        part for part, component in STEP.items() if component.kind == name
    )
    rest = {other: leaf for other, leaf in time.components.items() if other != part}
    most = 2 * sum(rest.values())
    return replace(time, components={**rest, part: most}, seconds=sum(rest.values()) + most)


@pytest.mark.parametrize("name", BOTTLENECKS)
def test_it_is_the_largest_share_of_the_step(name: str) -> None:
    time = _led_by(name)
    shares = {wire: leaf / time.seconds for wire, leaf in exposed_s(time).items()}
    for part, leaf in time.components.items():
        if STEP[part].kind != COMMUNICATION:
            kind = STEP[part].kind
            shares[kind] = shares.get(kind, 0.0) + leaf / time.seconds
    result, share = bottleneck(time)
    assert result == name
    assert share == pytest.approx(max(float(np.ravel(share)[0]) for share in shares.values()))
    assert share > 0.6
    assert sum(float(np.ravel(share)[0]) for share in shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", BOTTLENECKS)
def test_the_page_says_the_share_of_the_document(name: str) -> None:
    step = api.estimate(api.read_options({**OPTIONS, "advice": 0})).step
    led = changed(step, bottleneck=name, bottleneck_frac=0.4321)
    assert " 43 %" in view.bottleneck(led)


def test_drives_that_hold_the_optimizer_have_their_share() -> None:
    """They were said to take 0 % of the step."""
    values = {"model": "llama-2-7b", "gpu": "h200", "gpus": 8, "offload": "params-nvme"}
    values |= {"nvme_read": "1 GB/s", "nvme_write": "1 GB/s"}
    step = api.estimate(api.read_options({**values, "advice": 0})).step
    assert step.bottleneck == "NVMe drives"
    assert step.bottleneck_frac == pytest.approx(step.components["nvme"] / step.seconds)
    assert step.bottleneck_frac == max(step.components.values()) / step.seconds
