"""Drawings as SVG text: they need no script, print as they are, and follow a light or dark ground.

A drawing is made of elements as text. Colors are from `planner.views.figures`; what they become
on a dark ground stands beside them, for pages whose color scheme is dark.
"""

from __future__ import annotations

from html import escape

from planner.views.figures import DARK_TWINS

_HATCH = "hatched"  # id of the pattern of what adds nothing


def element(name: str, *inside: str, **attributes: object) -> str:
    """An element; `_` in the name of an attribute stands for `-`, one at its end is left out.
    inside: elements, or text that `words` has escaped."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{''.join(inside)}</{name}>" if inside else f"<{name}{pairs}/>"


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def words(text: str) -> str:
    """Text inside an element."""
    return escape(text, quote=False)


def title(text: str) -> str:
    """The hover text of a part."""
    return element("title", words(text))


def inks(fill: str = "", stroke: str = "") -> dict[str, str]:
    """Attributes of colors: plain ones, and twins by the color scheme of the page."""
    plain = {name: color for name, color in (("fill", fill), ("stroke", stroke)) if color}
    twins = [f"{name}:{shown_as(color)}" for name, color in plain.items() if color in DARK_TWINS]
    return {**plain, **({"style": ";".join(twins)} if twins else {})}


def shown_as(color: str) -> str:
    """A color as a style sheet has it, for a light and for a dark ground."""
    return f"light-dark({color},{DARK_TWINS[color]})" if color in DARK_TWINS else color


def hatch(color: str) -> str:
    """The definition of the hatched ground, which `HATCHED` fills with."""
    lines = element("path", d="M0 6L6 0", stroke_width="1.6", **inks("none", color))
    pattern = {"width": "6", "height": "6", "patternUnits": "userSpaceOnUse"}
    return element("defs", element("pattern", lines, id=_HATCH, **pattern))


HATCHED = f"url(#{_HATCH})"


def drawing(label: str, *inside: str, **attributes: object) -> str:
    """A whole drawing; label: what it shows, for those who do not see it."""
    role = "group" if any("<a " in part for part in inside) else "img"  # an image has no links
    more = {"xmlns": "http://www.w3.org/2000/svg", "role": role, "aria_label": label}
    return element("svg", *inside, **more, **attributes)
