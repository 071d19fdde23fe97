"""Templates of the dashboard and of the reports, with texts and data inside pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from planner import plugins
from planner.specs.document import UNSET, changed, to_json
from planner.units import percent
from planner.views.chart import Chart
from planner.views.drawn import Leads, nowhere, svg
from planner.views.page import environment as of_reports
from planner.views.view import quantity
from web.texts import TEXTS, text

FOLDER = Path(__file__).parent
_SEND = Markup("<!--send-->")  # `{{ send }}`: what stands before it goes out


@cache
def environment() -> Environment:
    """The templates of web/templates, of the parts, and of the reports."""
    env = of_reports(FOLDER / "templates", *plugins.folders("web/templates"))
    env.globals.update(t=text, texts=TEXTS, send=_SEND, percent=percent)
    env.filters.update(data=data, quantity=quantity)
    return env


def data(value: Any) -> Markup:
    """JSON inside a page: nothing in it can end the element or the page."""
    return Markup(
        to_json(value)
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def rendered(template: str, **values: Any) -> str:
    """A template with its values."""
    return environment().get_template(template).render(**values)


def drawn(
    chart: Chart,
    links: Sequence[str | None] | None = None,
    leads: Leads = nowhere,
    tables: bool = True,
) -> Chart:
    """A chart as it is seen. links: where each row of its table leads; leads: where each of its
    points does; tables: with its table as HTML."""
    table = rendered("table.html", chart=chart, links=links) if tables else UNSET
    return changed(chart, drawn=svg(chart, leads), table=table)


async def streamed(template: str, **values: Any) -> AsyncIterator[str]:
    """A template while its parts become ready: asynchronous functions are awaited where they are
    called, and what stands before `{{ send }}` goes out first."""
    pieces: list[str] = []
    async for piece in _asynchronous().get_template(template).generate_async(**values):
        if piece == _SEND:
            yield "".join(pieces)
            pieces.clear()
        else:
            pieces.append(piece)
    yield "".join(pieces)


@cache
def _asynchronous() -> Environment:
    return environment().overlay(enable_async=True)
