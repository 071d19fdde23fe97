"""Templates: one environment, everything escaped, numbers with their full value beside what is
shown."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from planner.show.figures import cell_text
from planner.specs.document import to_json
from planner.units import show
from web.texts import LABELS, TEXTS, text

FOLDER = Path(__file__).parent


@cache
def environment() -> Environment:
    """The templates of web/templates."""
    env = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    env.globals.update(t=text, texts=TEXTS, labels=LABELS, cell=cell_text, show=show)
    env.filters["data"] = data
    return env


def data(value: Any) -> Markup:
    """JSON inside a page: nothing in it can end the element or the page."""
    plain = to_json(value)
    return Markup(
        plain.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def rendered(template: str, **values: Any) -> str:
    """A template with its values."""
    return environment().get_template(template).render(**values)
