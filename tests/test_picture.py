"""The plan as pictures: every GPU once, where its ranks are; bars as long as what they mean."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from planner import api
from planner.specs.document import changed
from planner.specs.documents.estimate import Estimate
from planner.views import full, picture
from planner.views.groups import memory_group, shades, step_group

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plan() -> Estimate:
    options = {"model": "llama-2-70b", "gpu": "h100-sxm5-80gb", "gpus": 64, "tp": 4, "pp": 4}
    return api.estimate(
        api.read_options({**options, "vpp": 1, "stack": "megatron-core"}), brief=True
    )


def titles(drawn: picture.Picture) -> list[str]:
    tree = ElementTree.fromstring(drawn.markup)
    return [str(each.text) for each in tree.iter(f"{_SVG}title")]


def test_every_gpu_is_drawn_once_where_its_ranks_are(plan: Estimate) -> None:
    """Tensor ranks are neighbours, and stages come last or before replicas, as placed."""
    hovers = titles(picture.cluster(plan))
    assert [int(re.findall(r"GPU (\d+) of node", text)[0]) for text in hovers] == list(range(64))
    assert all(f"tensor rank {i % 4} of 4" in text for i, text in enumerate(hovers))
    assert all(f"replica {i // 4 % 4}, stage {i // 16}" in text for i, text in enumerate(hovers))
    assert "layers 1 to 20 and embedding, 1/4 of each" in hovers[0]
    assert "layers 61 to 80 and head, 1/4 of each" in hovers[-1]
    other = changed(plan, layout=changed(plan.layout, placement="tp-cp-pp-dp"))
    hovers = titles(picture.cluster(other))
    assert all(f"replica {i // 16}, stage {i // 4 % 4}" in text for i, text in enumerate(hovers))


@pytest.mark.parametrize("gpus", [128, 1024, 16384])
def test_many_gpus_are_fields_of_nodes(plan: Estimate, gpus: int) -> None:
    """Fields cover every node once, in at most so many that they are seen."""
    layout = changed(plan.layout, dp=gpus // 16, shard_group=gpus // 16)
    nodes = gpus // 8
    cluster = changed(plan.cluster, gpus=gpus, nodes=nodes)
    drawn = picture.cluster(changed(plan, layout=layout, cluster=cluster))
    fields = [text for text in titles(drawn) if text.startswith("node")]
    if gpus == 128:
        assert not fields
        assert len(titles(drawn)) == 128
        return
    covered: list[int] = []
    for text in fields:
        low, high = re.fullmatch(r"nodes? (\d+)(?: to (\d+))?: .*", text).groups()  # type: ignore[union-attr]
        covered += range(int(low), int(high or low) + 1)
    assert covered == list(range(nodes))
    assert len(fields) <= 256
    assert len(drawn.markup) < 60_000


def test_bars_are_as_long_as_what_they_stand_for(plan: Estimate) -> None:
    step = plan.step
    rects = list(ElementTree.fromstring(picture.step(step).markup).iter(f"{_SVG}rect"))
    adding = [rect for rect in rects if rect.get("height") == "26"]
    whole = sum(float(str(rect.get("width")).rstrip("%")) for rect in adding)
    assert whole == pytest.approx(100 * step.seconds / (1.005 * step.high), abs=0.1)
    beside = next(rect for rect in rects if rect.get("height") == "9")
    hidden = sum(step.hidden.values()) / (1.005 * step.high)
    assert float(str(beside.get("width")).rstrip("%")) == pytest.approx(100 * hidden, abs=0.1)
    assert picture.step(step).says in full.view(plan).parts[0].pictures[1].says  # type: ignore[union-attr]


@pytest.mark.parametrize("share", [0.5, 1.5])
def test_memory_is_drawn_against_what_there_is(plan: Estimate, share: float) -> None:
    memory = changed(plan.memory, capacity_bytes=plan.memory.device_bytes / share)
    drawn = picture.memory(memory)
    *parts, frame = ElementTree.fromstring(drawn.markup).iter(f"{_SVG}rect")
    used = sum(float(str(rect.get("width")).rstrip("%")) for rect in parts)
    ratio = used / float(str(frame.get("width")).rstrip("%"))
    assert ratio == pytest.approx(share, rel=1e-3)
    assert ("more than there is" in drawn.says) == (share > 1)


def test_a_color_stands_for_a_thing(plan: Estimate) -> None:
    """No two parts of memory, nor of the step, have the same color."""
    for parts, group in (
        (plan.memory.components, memory_group),
        (plan.step.components, step_group),
    ):
        colors = shades({name: group(name) for name in parts})
        assert len(set(colors.values())) == len(parts)
    assert memory_group("gradients") != memory_group("workspaces")
    assert math.isclose(sum(plan.step.components.values()), plan.step.seconds)
