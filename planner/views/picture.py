"""The plan as pictures: the cluster with what each GPU holds, the step as a bar of time, memory as
a bar against capacity. Drawn as SVG, for the page, for reports, and for paper."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from planner.ledger import Array
from planner.specs.documents.estimate import Report, Step
from planner.specs.documents.memory import Memory, Stage
from planner.specs.documents.plan import Cluster, Layout
from planner.units import percent, show, span
from planner.views.figures import INK, RED, ROSE, SLATE
from planner.views.groups import HIDDEN, OUTSIDE, Group, grouped, memory_group, ramp, step_group
from planner.views.svg import HATCHED, drawing, element, hatch, inks, shown_as, title
from planner.views.view import Block, words


@dataclass(frozen=True)
class Key:
    """An entry of a legend: color, label, and what it amounts to. hatched: it adds nothing."""

    color: str
    label: str
    value: str = ""
    hatched: bool = False

    @property
    def ground(self) -> str:
        """Its field as a style sheet paints it."""
        color = shown_as(self.color)
        if not self.hatched:
            return color
        return f"repeating-linear-gradient(135deg, {color} 0 2px, transparent 2px 4px)"


@dataclass(frozen=True)
class Picture:
    """A drawing with the sentence that it shows and its legend. markup: SVG text."""

    name: str
    title: str
    says: str
    markup: str
    keys: Sequence[Key]


def pictures(r: Report) -> list[Picture]:
    """The three of a plan, in the order of a page."""
    return [cluster(r), step(r.step), memory(r.memory)]


def picture_block(r: Report) -> Block:
    """The picture as a block of a view."""
    return Block("The plan as a picture", only="page", pictures=pictures(r))


# ------------------------------------------------------------------------------------------ bars

_BAR_PX, _BESIDE_PX = 26, 9  # height of a bar, and of what runs beside it
_ROOM = 1.005  # of the longest, so that its end is not cut


def _segments(parts: Sequence[tuple[Group, float, str]], whole: float) -> str:
    """Parts of a bar one behind the other: group, size, hover text."""
    out, before = [], 0.0
    for group, size, says in parts:
        place = {"x": f"{100 * before / whole:.2f}%", "width": f"{100 * size / whole:.2f}%"}
        out.append(element("rect", title(says), height=_BAR_PX, **place, **inks(group.color)))
        before += size
    return "".join(out)


def _says(group: Group, parts: dict[str, float], unit: str) -> str:
    """A group with its parts, for those who point at it."""
    inside = ", ".join(f"{words(name)} {show(size, unit)}" for name, size in parts.items())
    return f"{group.name} {show(sum(parts.values()), unit)}: {inside}"


def step(s: Step) -> Picture:
    """The step as a bar: what adds to it end to end, below it communication beside compute."""
    parts = grouped(s.components, {name: step_group(name) for name in s.components})
    whole, hidden = s.seconds, sum(s.hidden.values())
    most = _ROOM * max(s.high, whole)
    sums = {group: sum(inside.values()) for group, inside in parts.items()}
    drawn = [_segments([(g, sums[g], _says(g, inside, "s")) for g, inside in parts.items()], most)]
    if hidden > 0:
        beside = {
            "y": _BAR_PX + 3,
            "height": _BESIDE_PX,
            "width": f"{100 * min(hidden / most, 1):.2f}%",
        }
        drawn += [
            hatch(ROSE),
            element("rect", title(_says(HIDDEN, s.hidden, "s")), fill=HATCHED, **beside),
        ]
    middle = _BAR_PX / 2
    low, high = (f"{100 * end / most:.2f}%" for end in (s.low, s.high))
    says = f"80 % band {span(s.low, s.high, 's')}"
    whisker = element("line", x1=low, x2=high, y1=middle, y2=middle)
    ends = "".join(
        element("line", x1=end, x2=end, y1=middle - 6, y2=middle + 6) for end in (low, high)
    )
    drawn.append(element("g", title(says), whisker, ends, stroke_width=2, **inks("none", INK)))
    keys = [
        Key(g.color, g.name, f"{show(size, 's')}, {percent(size / whole, 0)}")
        for g, size in sums.items()
    ]
    if hidden > 0:
        keys.append(Key(HIDDEN.color, HIDDEN.name, show(hidden, "s"), hatched=True))
    text = ", ".join(f"{key.label} {key.value}" for key in keys)
    height = _BAR_PX + (_BESIDE_PX + 3) * (hidden > 0)
    return Picture(
        "step",
        "One step",
        f"{show(whole, 's')}, {says}",
        drawing(f"One step of {show(whole, 's')}: {text}", *drawn, width="100%", height=height),
        keys,
    )


def memory(m: Memory) -> Picture:
    """Memory of the fullest GPU as a bar against what can be allocated."""
    sizes = {**m.components, **structs.asdict(m.outside)}
    parts = grouped(sizes, {name: memory_group(name) for name in sizes})
    order = sorted(parts, key=lambda group: group is OUTSIDE)  # what is outside comes last
    most = max(m.capacity_bytes, m.device_bytes)
    rows = [(g, sum(parts[g].values()), _says(g, parts[g], "B")) for g in order]
    at = 100 * m.capacity_bytes / most
    free = m.capacity_bytes - m.device_bytes
    frame = element(
        "rect",
        title(f"{show(m.capacity_bytes, 'B')} can be allocated"),
        width=f"{at:.2f}%",
        height=_BAR_PX,
        stroke_width=2,
        **inks("none", RED if free < 0 else SLATE),
    )
    keys = [Key(g.color, g.name, show(size, "B")) for g, size, _ in rows]
    short = f"{show(-free, 'B')} more than there is" if free < 0 else f"{show(free, 'B')} free"
    says = f"{show(m.device_bytes, 'B')} of {show(m.capacity_bytes, 'B')}, {short}"
    text = ", ".join(f"{key.label} {key.value}" for key in keys)
    return Picture(
        "memory",
        "Memory of the fullest GPU",
        says,
        drawing(f"{says}: {text}", _segments(rows, most), frame, width="100%", height=_BAR_PX),
        keys,
    )


# --------------------------------------------------------------------------------------- cluster

_WIDTH = 960.0
_GAP = 10.0  # between nodes
_MOST_GPUS = 128  # that are drawn each by itself; of more, fields of one or several nodes
_MOST_FIELDS = 256
_FIELDS_A_ROW = 32
_ROW_GPUS = 4  # of a node that stand in one row
_LEAST_PX = 15  # of a field with a number
_STRIPES = 8  # of a field, at most
_MOST_STAGES = 12  # that the legend names one by one
_FAINTEST = 0.55  # of the last tensor rank
_CHUNK = re.compile(r"[tm](?:\*(\d+))?")


@dataclass(frozen=True)
class Ranks:
    """Coordinates of every GPU in the order of ranks; one array for each axis."""

    tp: Array
    cp: Array
    dp: Array
    pp: Array

    @classmethod
    def of(cls, layout: Layout) -> Ranks:
        """The ranks of a layout: the first axis of its placement has neighbours."""
        axes = layout.placement.split("-")
        sizes = [getattr(layout, axis) for axis in axes]
        gpus = np.arange(math.prod(sizes))
        strides = np.cumprod([1, *sizes[:-1]])
        return cls(
            **{
                axis: gpus // stride % size
                for axis, stride, size in zip(axes, strides, sizes, strict=True)
            }
        )


def holds(stages: Sequence[Stage], layout: Layout) -> list[str]:
    """Which layers each stage holds, in words; their numbers where a stage holds one chunk."""
    out, before = [], 0
    whole = f", 1/{layout.tp} of each" if layout.tp > 1 else ""
    for stage in stages:
        chunks = stage.holds.split("|")
        layers = sum(int(times or 1) for times in _CHUNK.findall(stage.holds))
        if layers == 0 or layers != stage.layers:  # such as of encoders
            contents = f"{stage.layers:.3g} layers"
        elif len(chunks) > 1:
            contents = f"{layers} layers in {len(chunks)} chunks"
        else:
            contents = f"layer{'s' * (layers > 1)} {before + 1}" + (
                f" to {before + layers}" if layers > 1 else ""
            )
        before += layers
        ends = [
            name for letter, name in (("E", "embedding"), ("L", "head")) if letter in stage.holds
        ]
        out.append(" and ".join([contents, *ends]) + whole)
    return out


def _bytes(stage: Stage, m: Memory) -> str:
    """Memory of a GPU of a stage, by group."""
    sizes = {
        **stage.components,
        "fragmentation": stage.reserved_bytes - stage.peak_bytes,
        "context": m.outside.context,
        "communicators": m.outside.communicators,
    }
    parts = grouped(sizes, {name: memory_group(name) for name in sizes})
    inside = ", ".join(f"{g.name} {show(sum(p.values()), 'B')}" for g, p in parts.items())
    return f"{show(sum(sizes.values()), 'B')}: {inside}"


def cluster(r: Report) -> Picture:
    """Nodes and GPUs, colored by pipeline stage, else by replica; lighter from one tensor rank to
    the next. Of many GPUs, fields of several nodes beside one node GPU by GPU."""
    layout, ranks = r.layout, Ranks.of(r.layout)
    count, each = len(ranks.tp), max(r.cluster.gpus_per_node, 1)
    by_stage = layout.pp > 1
    axis, size = (ranks.pp, layout.pp) if by_stage else (ranks.dp, layout.dp)
    colors = [ramp(i / max(size - 1, 1)) for i in range(size)]
    stages = r.memory.per_stage
    contents = [
        f"{layers}; {_bytes(stage, r.memory)}"
        for layers, stage in zip(holds(stages, layout), stages, strict=True)
    ]

    def gpu(i: int, x: float, y: float, wide: float, high: float) -> str:
        stage = int(ranks.pp[i])
        at = [f"replica {ranks.dp[i]}"]
        at += [f"stage {stage}"] if by_stage else []
        at += [f"tensor rank {ranks.tp[i]} of {layout.tp}"] if layout.tp > 1 else []
        at += [f"context rank {ranks.cp[i]} of {layout.cp}"] if layout.cp > 1 else []
        inside = contents[min(stage, len(contents) - 1)]
        text = f"GPU {i} of node {i // each}: {', '.join(at)}. {inside}"
        faint = 1 - (1 - _FAINTEST) * int(ranks.tp[i]) / max(layout.tp - 1, 1)
        box = {"x": x, "y": y, "width": wide, "height": high, "rx": 3}
        shape = element("rect", fill=colors[int(axis[i])], fill_opacity=faint, **box)
        number = str(ranks.dp[i])
        if wide < 8 * len(number) or high < _LEAST_PX:
            return element("g", title(text), shape)
        middle = {"x": x + wide / 2, "y": y + high / 2 + 4}
        return element("g", title(text), shape, element("text", number, **middle))

    def node(i: int, x: float, y: float, wide: float) -> tuple[str, float]:
        """GPUs of a node, drawn, and the height."""
        mine = range(i * each, min((i + 1) * each, count))
        across = _across(each)
        cell = (wide - 8) / across
        high = min(cell * 0.8, 30.0)
        inside = [
            gpu(g, x + 4 + k % across * cell, y + 4 + k // across * (high + 2), cell - 2, high)
            for k, g in enumerate(mine)
        ]
        tall = 6 + math.ceil(each / across) * (high + 2)
        frame = {"x": x, "y": y, "width": wide, "height": tall, "rx": 5}
        return element("rect", class_="frame", **frame) + "".join(inside), tall

    nodes = math.ceil(count / each)
    if count <= _MOST_GPUS:
        columns = _columns(nodes)
        wide = min((_WIDTH - (columns - 1) * _GAP) / columns, 52.0 * _across(each) + 8)
        drawn, top, row = [], 0.0, 0.0
        for i in range(nodes):
            if i and i % columns == 0:
                top += row + _GAP
            markup, row = node(i, i % columns * (wide + _GAP), top, wide)
            drawn.append(markup)
        total, width = top + row, min(columns, nodes) * (wide + _GAP) - _GAP
        note = f"{count} GPU{'s' * (count > 1)} in {nodes} node{'s' * (nodes > 1)}"
    else:
        first, tall = node(0, 0, 0, 30.0 * _across(each) + 8)
        brief = [text.partition(":")[0] for text in contents]  # without the parts of its memory
        fields, below, per = _fields(ranks, axis, colors, each, by_stage, brief)
        moved = element("g", *fields, transform=f"translate(0 {tall + _GAP:.6g})")
        drawn, total, width = [first, moved], tall + _GAP + below, _WIDTH
        note = (
            f"{count:,} GPUs in {nodes:,} nodes: node 0 GPU by GPU, then"
            f" {'a node' if per == 1 else f'{per} nodes'} in each field"
        )
    return Picture(
        "cluster",
        "Cluster",
        note,
        drawing(
            f"{note}. {_divided(layout)}",
            *drawn,
            viewBox=f"0 0 {width:.6g} {total:.6g}",
            style=f"max-width:{width:.0f}px",
            class_="cluster",
            text_anchor="middle",
        ),
        _cluster_keys(layout, colors, r.cluster, by_stage),
    )


def _across(gpus: int) -> int:
    """GPUs of a node in a row: all of up to four, else a divisor that makes it twice as wide."""
    if gpus <= _ROW_GPUS:
        return gpus
    return next(d for d in range(math.ceil(math.sqrt(2 * gpus)), gpus + 1) if gpus % d == 0)


def _columns(nodes: int) -> int:
    return next(most for most in (nodes, 4, 8, 16, 32) if nodes <= min(most * 4, most * most, 128))


def _fields(
    ranks: Ranks,
    axis: Array,
    colors: Sequence[str],
    each: int,
    by_stage: bool,
    contents: Sequence[str],
) -> tuple[list[str], float, int]:
    """Fields of whole nodes, striped where several stages share them; their height, and the nodes
    of one."""
    count = len(axis)
    nodes = math.ceil(count / each)
    per = 2 ** max(0, math.ceil(math.log2(nodes / _MOST_FIELDS)))
    amount = math.ceil(nodes / per)
    across = min(amount, _FIELDS_A_ROW)
    wide, high = _WIDTH / across, min(_WIDTH / across * 0.55, 26.0)
    out = []
    for i in range(amount):
        mine = slice(i * per * each, min((i + 1) * per * each, count))
        values = np.unique(axis[mine])
        shown = (
            values
            if len(values) <= _STRIPES
            else values[np.linspace(0, len(values) - 1, 8).astype(int)]
        )
        stripe = (wide - 2) / len(shown)
        x, y = i % across * wide, i // across * (high + 2)
        last = min((i + 1) * per, nodes) - 1
        text = f"node {i * per}" if last == i * per else f"nodes {i * per} to {last}"
        text = f"{text}: {_range('replica', ranks.dp[mine])}"
        if by_stage:
            text += f", {_range('stage', values)}"
            text += f". {contents[int(values[0])]}" if len(values) == 1 else ""
        bars = "".join(
            element(
                "rect", x=x + k * stripe, y=y, width=stripe, height=high, fill=colors[int(value)]
            )
            for k, value in enumerate(shown)
        )
        out.append(element("g", title(text), bars))
    return out, math.ceil(amount / across) * (high + 2), per


def _range(name: str, values: Array) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{name} {low}" if low == high else f"{name}s {low} to {high}"


def _divided(layout: Layout) -> str:
    inside = [
        f"{size} {name}"
        for size, name in (
            (layout.pp, "pipeline stages"),
            (layout.tp, "tensor ranks"),
            (layout.cp, "context ranks"),
        )
        if size > 1
    ]
    replicas = f"{layout.dp:,} replica{'s' * (layout.dp > 1)}"
    return f"{replicas} of {' x '.join(inside)}" if inside else f"{replicas} of one GPU"


def _cluster_keys(
    layout: Layout, colors: Sequence[str], cluster: Cluster, by_stage: bool
) -> list[Key]:
    """The meaning of colors, and how the work is divided."""
    name = "stage" if by_stage else "replica"
    last = len(colors) - 1
    shown = range(last + 1) if last < _MOST_STAGES else (0, last // 3, 2 * last // 3, last)
    keys = [Key(colors[i], f"{name} {i}") for i in shown]
    divided = _divided(layout)
    notes = ["lighter: higher tensor rank"] if layout.tp > 1 else []
    notes += ["number: replica"] if by_stage and cluster.gpus <= _MOST_GPUS else []
    return [*keys, Key("", "; ".join([divided, *notes]))]
