"""The answer of a verb: a document, which shows as text, as tables in a notebook, and as data
frames."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from planner.cli import finish
from planner.error import PlanError

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

    from planner.views.view import Block, View

D = TypeVar("D")


class Answer(Generic[D]):
    """document: the answer as `--json` has it, with attributes; verb: what answered; status: exit
    status of the command, 0 where it answered and, of a plan, where that fits."""

    def __init__(self, verb: str, answer: finish.Answer) -> None:
        self.verb = verb
        self.document: D = answer.document
        self.status = answer.status
        self._answer = answer

    @property
    def fits(self) -> bool:
        """Whether the status is 0: the plan fits, and its requirements hold."""
        return self.status == 0

    @property
    def command(self) -> str:
        """The command that repeats it; empty where the answer names none."""
        return str(getattr(self.document, "command", ""))

    @cached_property
    def view(self) -> View:
        """The sentences, tables and charts that are shown."""
        from planner.views.view import with_doubts

        return with_doubts(self._answer.view(), self.document)

    def __str__(self) -> str:
        from planner.views.text import PIPED, ascii_of, block_lines

        blocks = [block_lines(ascii_of(block), PIPED) for block in self.view.blocks]
        return "\n".join([*("\n".join([*lines, ""]) for lines in blocks), *self._answer.after()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Sentences and tables; charts of the view are `figures`."""
        from planner.views.html import parts_of
        from planner.views.page import environment

        template = environment(Path(__file__).parent / "templates").get_template("notebook.html")
        parts = parts_of(self.view)
        parts["lines"] = list(map(_under_label, parts["lines"]))
        return template.render(view=parts, command=self.command)

    def to_dict(self) -> Any:
        """The document as dicts, lists and plain values."""
        from planner.specs.document import plain

        return plain(self.document)

    def to_json(self, indent: int | None = None) -> str:
        """The document as JSON."""
        from planner.specs.document import to_json

        return to_json(self.document, indent)

    @property
    def tables(self) -> list[str]:
        """Titles of the tables that are shown, which `to_pandas` takes."""
        return [block.title for block in self._tables.values()]

    def to_pandas(self, table: str | None = None) -> DataFrame:
        """A data frame: a row per layout, request or method where `--csv` has them; else a row per
        entry, or one row with the keys of the document joined by dots. table: title of a table
        that is shown. Raises PlanError where pandas is missing, or the table."""
        from planner.units import UNIT_WORDS
        from planner.views.cells import column

        try:
            import pandas
        except ImportError:
            remedy = "needs pandas, which is missing: pip install dpplan[pandas]"
            raise PlanError("to_pandas", None, remedy) from None
        if table is not None:
            block = self._table(table)
            columns = list(map(column, block.header))
            titles = [c.title + f" ({c.unit})" * (c.unit in UNIT_WORDS) for c in columns]
            return pandas.DataFrame([list(row) for row in block.rows], columns=titles)
        if "csv" in self._answer.files:
            text = self._answer.files["csv"]()
            return pandas.read_csv(io.StringIO(str(text)))
        return pandas.json_normalize(self.to_dict())

    @property
    def figures(self) -> dict[str, Figure]:
        """Charts by title, as plotly's figures, which a notebook draws."""
        from plotly.graph_objects import Figure

        from planner.views.chart import Chart
        from planner.views.figures import TEMPLATE

        view = (self._answer.paper or self._answer.view)()
        charts = [part if isinstance(part, Chart) else part.chart for part in view.parts]
        return {
            chart.title: Figure(
                {**chart.figure, "layout": {"template": TEMPLATE, **chart.figure["layout"]}}
            )
            for chart in charts
            if chart is not None
        }

    def save(self, path: str | Path) -> None:
        """Write the whole answer as a page that opens without a network, as `--html` does."""
        from planner.inputs import files

        page = finish.page_of(self._answer)
        files.write_text(files.result(str(path), "save"), "save", page)

    @property
    def _tables(self) -> Mapping[str, Block]:
        return {block.title.lower(): block for block in self.view.blocks if block.rows}

    def _table(self, title: str) -> Block:
        from planner.specs.options.words import near

        known = self._tables
        if title.lower() not in known:
            hint = near(title, known) or f"tables: {', '.join(self.tables) or 'none'}"
            raise PlanError("table", title, f"is not shown; {hint}".strip())
        return known[title.lower()]


def _under_label(line: dict[str, Any]) -> dict[str, Any]:
    """An indented line of the screen goes on under the text of the label above it."""
    text = str(line.get("text", ""))
    if line["kind"] != "said" or not text.startswith("  "):
        return line
    return {"kind": "named", "label": "", "text": text.strip()}
