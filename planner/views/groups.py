"""Parts of the step and of memory in few groups, each with one color on every chart."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from dataclasses import dataclass

from planner.specs.components import AROUND, COMMUNICATION, STEP, class_of
from planner.views.figures import BLUE, CYAN, GREEN, GREY, INDIGO, OCHRE, PURPLE, ROSE, SILVER

SEEN = 1e-6  # share of a whole below which a part is not shown, such as the remainder of a smooth
# maximum
_LIGHTEST = 0.45  # of the way to white that the last part of a group goes


@dataclass(frozen=True)
class Group:
    """Parts that are drawn together: their name and color."""

    name: str
    color: str


COMPUTE = Group("compute and memory traffic", BLUE)
EXPOSED = Group("exposed communication", ROSE)
HIDDEN = Group("communication beside compute", ROSE)
BUBBLE = Group("pipeline bubble", OCHRE)
WAITING = Group("overhead and waiting", SILVER)
WEIGHTS = Group("weights", INDIGO)
GRADIENTS = Group("gradients", GREEN)
OPTIMIZER = Group("optimizer", CYAN)
ACTIVATIONS = Group("activations", PURPLE)
OUTSIDE = Group("driver, allocator, communicators", GREY)

_MEMORY = {
    **dict.fromkeys(
        (
            *("parameters", "reference_model", "gathered_layers", "dequantised_weights"),
            *("cast_copies", "low_precision_copies"),
        ),
        WEIGHTS,
    ),
    **dict.fromkeys(("gradients", "gradient_copies", "communication_buckets"), GRADIENTS),
    **dict.fromkeys(("optimizer", "optimizer_temporaries"), OPTIMIZER),
    **dict.fromkeys(("fragmentation", "context", "communicators", "workspaces"), OUTSIDE),
}


def step_group(component: str) -> Group:
    """The group of a component of the step."""
    if component in AROUND:
        return WAITING
    kind = class_of(component)
    if kind in (COMMUNICATION, "host link"):
        return EXPOSED
    return BUBBLE if kind == STEP["bubble"].kind else COMPUTE


def memory_group(component: str) -> Group:
    """The group of a component of memory; working space of the passes counts with activations."""
    return _MEMORY.get(component, ACTIVATIONS)


def grouped(
    parts: Mapping[str, float], groups: Mapping[str, Group]
) -> dict[Group, dict[str, float]]:
    """Parts that are seen by group, groups in the order of their first part."""
    out: dict[Group, dict[str, float]] = {}
    whole = sum(parts.values())
    for name, value in parts.items():
        if value > SEEN * whole:
            out.setdefault(groups[name], {})[name] = value
    return out


def shades(groups: Mapping[str, Group]) -> dict[str, str]:
    """A color for each part: its group's, lighter from one part of it to the next."""
    members: dict[Group, list[str]] = {}
    for name, group in groups.items():
        members.setdefault(group, []).append(name)
    return {
        name: lighter(group.color, _LIGHTEST * i / max(len(names) - 1, 1))
        for group, names in members.items()
        for i, name in enumerate(names)
    }


def lighter(color: str, share: float) -> str:
    """A color some share of the way to white."""
    if share == 0:
        return color
    channels = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in channels)


_LIGHT = 140.0  # luma from which dark text is read better than white, of 255


def is_light(color: str) -> bool:
    """Whether text on it is dark."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue > _LIGHT  # ITU-R BT.601


_FIRST_HUE, _LAST_HUE = 0.58, 0.03  # blue over green and yellow to red, for ranks in order
_LIGHTNESS, _SATURATION = 0.62, 0.5


def ramp(at: float) -> str:
    """A color for a place from 0 to 1 in an order, such as pipeline stages; alike in
    lightness, so that text on it is read everywhere."""
    hue = _FIRST_HUE + (_LAST_HUE - _FIRST_HUE) * at
    channels = colorsys.hls_to_rgb(hue, _LIGHTNESS, _SATURATION)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)
