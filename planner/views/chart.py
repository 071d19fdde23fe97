"""A chart as data: a plotly figure, the sentence that sums it up, and the table that says the
same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from planner.specs.document import UNSET, Document, Unset, key
from planner.views.cells import Cell, Column

Figure = dict[str, Any]
Trace = dict[str, Any]


class Choice(Document):
    """A variant of a figure."""

    label: Annotated[str, key("name of the variant")]
    restyle: Annotated[dict[str, list[Any]], key("what plotly's restyle takes: values by trace")]
    chosen: Annotated[bool, key("the figure as it is drawn at first")]


class Chart(Document):
    """A figure, the sentence that sums it up, and the table that says the same."""

    name: Annotated[str, key("id")]
    title: Annotated[str, key("heading")]
    summary: Annotated[str, key("what the chart shows, in a sentence")]
    figure: Annotated[Figure, key("a plotly figure")]
    columns: Annotated[tuple[Column, ...], key("columns of the table")] = ()
    rows: Annotated[Sequence[Sequence[Cell]], key("rows of the table")] = ()
    caption: Annotated[str, key("how to read the figure")] = ""
    choices: Annotated[Sequence[Choice], key("variants of the figure")] = ()
    select: Annotated[
        Literal["layout", "gpus"] | Unset, key("what choosing a point of the figure fixes")
    ] = UNSET
    states: Annotated[
        Sequence[dict[str, str] | None],
        key("what choosing a row of the table changes in the address; empty: left out"),
    ] = ()
    table: Annotated[str | Unset, key("the table as HTML, on request")] = UNSET
    drawn: Annotated[str | Unset, key("the figure as SVG, on request")] = UNSET
    order: Annotated[str, key("in which order the rows of the table stand")] = ""
