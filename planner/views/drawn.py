"""A figure as SVG: the part of plotly's figures that `planner.views.figures` makes. A page shows it
without a script, and paper has it; plotly itself is for who opens a chart large."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from planner.views import axes
from planner.views.axes import Axis
from planner.views.chart import Chart, Trace
from planner.views.figures import GREY, GRID_LINE, GROUND, INK, SILVER, SLATE
from planner.views.groups import is_light, lighter, ramp
from planner.views.svg import HATCHED, drawing, element, hatch, inks, title, words

WIDTH = 600.0
_HEIGHT = 330.0
_LETTER = 8.5  # pixels of a letter, about, where a narrow page makes it 15 high
_LINE = 19.0  # of a line of the legend
_TOP, _RIGHT, _BOTTOM, _LEFT = 12.0, 14.0, 46.0, 62.0
_MOST_LEFT = 230.0
_ROW = 26.0
_FEWEST = 2  # traces that need names
_THIN = 12  # pixels from which a field has room for its text
_EDGE = 8.0  # of the legend
_MOST_MARKS = 300  # of a trace, each drawn with a label of its own

Leads = Callable[[Any], str | None]
"""The address that a point leads to, of what a figure keeps with it."""


def nowhere(_: Any) -> None:
    """No point leads anywhere."""


@dataclass(frozen=True)
class _Ground:
    """Both axes of a drawing, and where its points lead."""

    x: Axis
    y: Axis
    leads: Leads


def svg(chart: Chart, leads: Leads = nowhere) -> str:
    """The figure of a chart as SVG text."""
    data, layout = chart.figure["data"], chart.figure["layout"]
    level = any(trace.get("orientation") == "h" for trace in data)
    legend, keys_px = _legend(data)
    rows = layout.get("yaxis", {}).get("categoryarray", ())
    height = _HEIGHT if not level else max(_ROW * len(rows) + _TOP + _BOTTOM, 120.0)
    height += keys_px
    shapes = layout.get("shapes", ())
    xs, ys = _values(data, layout)
    ys += [shape["y0"] for shape in shapes if shape.get("xref") == "paper"]
    names = [str(value) for value in (rows or ys) if isinstance(value, str)]
    longest = max((_LETTER * len(name) + 14 for name in names), default=_LEFT)
    left = min(max(longest, 34.0), _MOST_LEFT) if names else _LEFT
    left += _LINE if names and not level and layout.get("yaxis", {}).get("title") else 0.0
    top, bottom = _TOP + keys_px, height - _BOTTOM
    across = axes.axis(layout.get("xaxis", {}), xs, left, WIDTH - _RIGHT)
    spec = layout.get("yaxis", {})
    down = spec.get("autorange") == "reversed"
    upright = axes.axis(spec, ys, *((top, bottom) if down else (bottom, top)))
    ground = _Ground(across, upright, leads)
    stacks: dict[Any, tuple[float, float]] = {}
    parts = [
        *_grid(ground, left, bottom, level),
        *(_trace(trace, ground, layout.get("barmode", ""), stacks) for trace in data),
        *(_shape(shape, ground, top, bottom, left) for shape in shapes),
        *(_note(note, ground, top, bottom) for note in layout.get("annotations", ())),
    ]
    return drawing(
        f"{chart.title}. {chart.summary}".strip(),
        hatch(SLATE),
        *parts,
        legend,
        viewBox=f"0 0 {WIDTH:g} {height:.6g}",
        class_="drawn",
    )


def _values(data: Sequence[Trace], layout: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Values on either axis, with the sums of stacked bars and the ends of level ones."""
    xs: list[Any] = []
    ys: list[Any] = []
    sums: dict[Any, list[float]] = {}
    for trace in data:
        if trace.get("orientation") == "h":
            ends = [base + length for base, length in zip(trace["base"], trace["x"], strict=True)]
            more = trace.get("error_x", {}).get("array", [0.0] * len(ends))
            xs += [*trace["base"], *(end + m for end, m in zip(ends, more, strict=False))]
            ys += trace["y"]
            continue
        xs += trace["x"]
        if trace["type"] == "bar" and layout.get("barmode") in ("stack", "relative"):
            for x, y in zip(trace["x"], trace["y"], strict=True):
                negative, positive = sums.setdefault(x, [0.0, 0.0])
                sums[x] = [negative + min(y, 0.0), positive + max(y, 0.0)]
        else:
            ys += [y for y in trace["y"] if y is not None]
        for values, along in ((xs, "x"), (ys, "y")):
            band = trace.get(f"error_{along}", {})
            values += [v + m for v, m in zip(trace[along], band.get("array", ()), strict=False)]
            values += [
                v - m for v, m in zip(trace[along], band.get("arrayminus", ()), strict=False)
            ]
    ys += [end for pair in sums.values() for end in pair]
    if any(trace["type"] == "bar" for trace in data) and not any(isinstance(y, str) for y in ys):
        ys.append(0.0)
    return xs, ys


# ------------------------------------------------------------------------------ ground and words


def _text(text: str, x: float, y: float, anchor: str = "start", **more: object) -> str:
    return element("text", words(text), x=x, y=y, text_anchor=anchor, **more)


def _cut(text: str, px: float) -> str:
    most = int(px / _LETTER)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _grid(g: _Ground, left: float, bottom: float, level: bool) -> list[str]:
    lines, texts = [], []
    ends = sorted((g.y.start, g.y.end))
    every = _every(g.x)
    for i, (value, name) in enumerate(g.x.ticks):
        at = g.x.pixel(value)
        if g.x.kind != "category":
            lines.append(element("line", x1=at, x2=at, y1=ends[0], y2=ends[1]))
        if name and i % every == 0:
            room = g.x.step * every if g.x.kind == "category" else WIDTH
            texts.append(_text(_cut(name, room), at, bottom + 16, "middle"))
    thin = max(1, math.ceil(13 / g.y.step)) if g.y.kind == "category" else 1
    for i, (value, name) in enumerate(g.y.ticks):
        at = g.y.pixel(value)
        if g.y.kind != "category":
            lines.append(element("line", x1=left, x2=WIDTH - _RIGHT, y1=at, y2=at))
        if i % thin == 0:
            texts.append(_text(_cut(name, left - 8), left - 6, at + 4, "end"))
    if g.x.title:
        texts.append(_text(g.x.title, (left + WIDTH - _RIGHT) / 2, bottom + 36, "middle"))
    if g.y.title and not level:
        middle = (ends[0] + ends[1]) / 2
        turned = f"rotate(-90 12 {middle:.6g})"
        texts.append(_text(g.y.title, 12.0, middle, "middle", transform=turned))
    frame = element("path", d=f"M{left:.6g} {ends[0]:.6g}V{ends[1]:.6g}H{WIDTH - _RIGHT:.6g}")
    return [
        element("g", *lines, **inks("", GRID_LINE)),
        element("g", frame, **inks("none", GREY)),
        element("g", *texts, class_="axis", aria_hidden="true"),
    ]


def _every(x: Axis) -> int:
    """Every how many names of categories have room beside each other."""
    if x.kind != "category":
        return 1
    longest = max((len(name) for _, name in x.ticks), default=1)
    return max(1, math.ceil(min(longest, 12) * _LETTER / x.step))


def _color(trace: Trace) -> str:
    marker, line = trace.get("marker", {}), trace.get("line", {})
    color = line.get("color") or marker.get("color") or GREY
    return color if isinstance(color, str) else GREY


def _legend(data: Sequence[Trace]) -> tuple[str, float]:
    """Names of the traces in lines from the top, and their height; nothing for one."""
    named = [t for t in data if t.get("showlegend", True) and t.get("name")]
    named = [t for t in named if t["type"] != "heatmap"]
    if len(named) < _FEWEST:
        return "", 0.0
    out, x, y = [], _EDGE, 12.0
    for trace in named:
        long = _LETTER * len(str(trace["name"])) + 30
        if x > _EDGE and x + long > WIDTH:
            x, y = _EDGE, y + _LINE
        color = _color(trace)
        if trace["type"] == "bar" or ("marker" in trace and "line" not in trace):
            hatched = "pattern" in trace.get("marker", {})
            fill = {"fill": HATCHED} if hatched else inks(color)
            out.append(element("rect", x=x, y=y - 9, width=10, height=10, rx=2, **fill))
        else:
            dash = _DASHES.get(trace.get("line", {}).get("dash", "solid"))
            line = {"x1": x - 2, "x2": x + 12, "y1": y - 4, "y2": y - 4, "stroke_width": 2}
            out.append(element("line", stroke_dasharray=dash, **line, **inks("", color)))
        out.append(_text(str(trace["name"]), x + 16, y))
        x += long
    return element("g", *out, class_="names", aria_hidden="true"), y + 8


_DASHES = {"dash": "7 4", "dot": "2 4", "dashdot": "7 3 2 3"}


def _shape(shape: dict[str, Any], g: _Ground, top: float, bottom: float, left: float) -> str:
    """A level or an upright line over the whole figure."""
    line = shape["line"]
    more = {"stroke_width": line.get("width", 1), "stroke_dasharray": _DASHES.get(line["dash"])}
    if shape.get("xref") == "paper":
        y = g.y.at(shape["y0"])
        ends = {"x1": left, "x2": WIDTH - _RIGHT, "y1": y, "y2": y}
    else:
        x = g.x.at(shape["x0"])
        ends = {"x1": x, "x2": x, "y1": top, "y2": bottom}
    return element("line", **ends, **more, **inks("", line["color"]))


def _note(note: dict[str, Any], g: _Ground, top: float, bottom: float) -> str:
    paper_x, paper_y = note.get("xref") == "paper", note.get("yref") == "paper"
    x = g.x.start + note["x"] * (g.x.end - g.x.start) if paper_x else g.x.pixel(note["x"])
    y = bottom + note["y"] * (top - bottom) if paper_y else g.y.at(note["y"])
    y += {"bottom": -4, "top": 12}.get(note.get("yanchor", ""), 4) - note.get("yshift", 0)
    anchor = {"left": "start", "right": "end"}.get(note.get("xanchor", ""), "middle")
    x += note.get("xshift", 0)
    if anchor == "start" and x + _LETTER * len(note["text"]) > WIDTH:
        x, anchor = x - 2 * note.get("xshift", 0), "end"
    return _text(note["text"], x, y, anchor, class_="note", **inks(note["font"]["color"]))


# --------------------------------------------------------------------------------------- traces


def _trace(trace: Trace, g: _Ground, barmode: str, stacks: dict[Any, tuple[float, float]]) -> str:
    if trace["type"] == "heatmap":
        return _heatmap(trace, g)
    if trace["type"] == "bar":
        level = trace.get("orientation") == "h"
        return _level(trace, g) if level else _upright(trace, g, barmode, stacks)
    return _scatter(trace, g)


def _hover_text(trace: Trace, i: int) -> str:
    """The hover text of a mark."""
    texts = trace.get("text")
    if not texts or "hovertemplate" not in trace:
        return ""
    hover = str(texts[i])
    place = trace["y"] if trace.get("orientation") == "h" else trace["x"]
    if trace["type"] == "bar":
        name = "" if trace.get("orientation") == "h" else f", {trace['name']}"
        hover = f"{place[i]}{name}: {hover}"
    return hover.replace("<br>", "\n")


def _mark(trace: Trace, i: int, g: _Ground, shape: str) -> str:
    """A mark with what it says, linked where it leads anywhere."""
    hover = _hover_text(trace, i)
    kept = trace.get("customdata")
    to = g.leads(kept[i]) if kept is not None and kept[i] is not None else None
    whole = element("g", title(hover), shape) if hover else shape
    if not to:
        return whole
    return element("a", whole, href=to, class_="state", aria_label=hover or str(trace["name"]))


def _upright(trace: Trace, g: _Ground, barmode: str, stacks: dict[Any, tuple[float, float]]) -> str:
    wide = min(g.x.step * 0.8, 90.0) if g.x.kind == "category" else 12.0
    out = []
    for i, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        low, high = stacks.get(x, (0.0, 0.0)) if barmode else (0.0, 0.0)
        start, end = (high, high + y) if y >= 0 else (low, low + y)
        stacks[x] = (low, end) if y >= 0 else (end, high)
        if y == 0:
            continue
        top, bottom = sorted((g.y.at(start), g.y.at(end)))
        box = {"x": g.x.at(x) - wide / 2, "y": top, "width": wide, "height": bottom - top}
        out.append(_mark(trace, i, g, element("rect", **box)))
    return element("g", *out, **inks(_color(trace)))


def _level(trace: Trace, g: _Ground) -> str:
    high = min(g.y.step * 0.8, 22.0)
    marker, band = trace["marker"], trace.get("error_x")
    fill = {"fill": HATCHED} if "pattern" in marker else inks(_color(trace))
    outside = trace.get("textposition") in ("outside", "inside")
    out = []
    if len(trace["y"]) > _MOST_MARKS:
        boxes = "".join(
            f"M{g.x.at(base):.5g} {g.y.at(row) - high / 2:.5g}H{g.x.at(base + length):.5g}"
            f"v{high:.4g}H{g.x.at(base):.5g}z"
            for row, base, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
        )
        return element("path", d=boxes, **fill)
    for i, (row, base, length) in enumerate(
        zip(trace["y"], trace["base"], trace["x"], strict=True)
    ):
        start, end, y = g.x.at(base), g.x.at(base + length), g.y.at(row)
        box = {"x": start, "y": y - high / 2, "width": max(end - start, 0.5), "height": high}
        out.append(_mark(trace, i, g, element("rect", **box, **fill)))
        if band and "array" in band:
            out.append(_band(g, base + length, y, band, i))
        if outside and "text" in trace:
            out.append(_beside(str(trace["text"][i]), start, end, y, trace, g))
    return element("g", *out)


def _beside(text: str, start: float, end: float, y: float, trace: Trace, g: _Ground) -> str:
    """The text of a level bar: inside where the trace says so, else behind it, or before it
    where room is short."""
    if trace["textposition"] == "inside":
        has_room = _LETTER * len(text) + 10 < end - start
        ink = INK if is_light(_color(trace)) else GROUND
        return _text(text, start + 6, y + 4, style=f"fill:{ink}") if has_room else ""
    if end + 6 + _LETTER * len(text) <= WIDTH:
        return _text(text, end + 5, y + 4, class_="note")
    return _text(text, start - 5, y + 4, "end", class_="note")


def _band(g: _Ground, x: float, y: float, band: dict[str, Any], i: int) -> str:
    """A level line from the low to the high end of a band."""
    low, high = g.x.at(x - band["arrayminus"][i]), g.x.at(x + band["array"][i])
    path = f"M{low:.6g} {y - 5:.6g}v10m0-5H{high:.6g}m0-5v10"
    return element("path", d=path, stroke_width=1.8, **inks("none", band.get("color", INK)))


def _upright_band(g: _Ground, x: float, y: float, band: dict[str, Any], i: int) -> str:
    """A vertical band."""
    low, high = g.y.at(y - band["arrayminus"][i]), g.y.at(y + band["array"][i])
    path = f"M{x - 5:.6g} {low:.6g}h10m-5 0V{high:.6g}m-5 0h10"
    return element("path", d=path, stroke_width=1.8, **inks("none", band.get("color", INK)))


def _scatter(trace: Trace, g: _Ground) -> str:
    points = [
        (i, g.x.at(x), g.y.at(y))
        for i, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True))
        if y is not None
    ]
    color, out = _color(trace), []
    if "lines" in trace["mode"] and points:
        line = trace["line"]
        bend = "H{x:.6g}V{y:.6g}" if line.get("shape") == "hv" else "L{x:.6g} {y:.6g}"
        path = f"M{points[0][1]:.6g} {points[0][2]:.6g}" + "".join(
            bend.format(x=x, y=y) for _, x, y in points[1:]
        )
        dash = _DASHES.get(line.get("dash", "solid"))
        width = line.get("width", 1.5)
        out.append(
            element(
                "path", d=path, stroke_width=width, stroke_dasharray=dash, **inks("none", color)
            )
        )
    if "markers" in trace["mode"] or "marker" in trace:
        out.append(_markers(trace, points, g))
    return element("g", *out)


def _markers(trace: Trace, points: Sequence[tuple[int, float, float]], g: _Ground) -> str:
    marker = trace["marker"]
    size = marker.get("size", 7)
    color, symbol = _color({"marker": marker}), marker.get("symbol", "circle")
    opacity = marker.get("opacity", 1.0)
    look = {"opacity": opacity if opacity != 1 else None}
    silent = "text" not in trace and "customdata" not in trace
    if silent or len(points) > _MOST_MARKS:  # many, as one path of dots
        dots = "".join(f"M{x:.5g} {y:.5g}h0" for _, x, y in points)
        round_ = {"stroke_linecap": "round", "stroke_width": size}
        return element("path", d=dots, **round_, **look, **inks("none", color))
    out, level, upright = [], trace.get("error_x"), trace.get("error_y")
    for i, x, y in points:
        if level:
            out.append(_band(g, trace["x"][i], y, {"color": color, **level}, i))
        if upright:
            out.append(_upright_band(g, x, trace["y"][i], {"color": color, **upright}, i))
        out.append(_mark(trace, i, g, _symbol(symbol, x, y, size, color)))
    return element("g", *out, **look, **inks(color))


def _symbol(name: str, x: float, y: float, size: float, color: str) -> str:
    half = size / 2
    look = inks("none", color) if name.endswith("open") else {}
    kind = name.removesuffix("-open")
    if kind == "square":
        return element("rect", x=x - half, y=y - half, width=size, height=size, **look)
    if kind in ("diamond", "star", "triangle-up"):
        sides = {"diamond": 4, "star": 10, "triangle-up": 3}[kind]
        corners = []
        for k in range(sides):
            far = half * (1.25 if kind != "star" or k % 2 == 0 else 0.5)
            turn = 2 * math.pi * k / sides - math.pi / 2
            corners.append(f"{x + far * math.cos(turn):.5g} {y + far * math.sin(turn):.5g}")
        return element("polygon", points=" ".join(corners), **look)
    return element("circle", cx=x, cy=y, r=half, **look)


def _heatmap(trace: Trace, g: _Ground) -> str:
    """Fields of a grid, colored from the smallest to the largest value; plain ones of one color."""
    values = [z for row in trace["z"] for z in row if z is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    plain = trace.get("showscale") is False
    out = []
    wide, tall = g.x.step - 2, g.y.step - 2
    kept = trace.get("customdata")
    for j, row in enumerate(trace["y"]):
        for i, column in enumerate(trace["x"]):
            if (z := trace["z"][j][i]) is None:
                continue
            at = (z - low) / ((high - low) or 1.0)
            look = inks(SILVER) if plain else {"fill": lighter(ramp(at), 0.25)}
            x, y = g.x.at(column), g.y.at(row)
            box = {"x": x - wide / 2, "y": y - tall / 2, "width": wide, "height": tall, "rx": 3}
            text = str(trace["text"][j][i])
            hover = f"{row}, {column}: {text}"
            shape = element("rect", **box, **look)
            if _LETTER * len(text) < wide and tall > _THIN:
                shape += _text(text, x, y + 4, "middle", class_="inside")
            to = g.leads(kept[j][i]) if kept and kept[j][i] else None
            field = element("g", title(hover), shape)
            out.append(
                element("a", field, href=to, class_="state", aria_label=hover) if to else field
            )
    return element("g", *out)
