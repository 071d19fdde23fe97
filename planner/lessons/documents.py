"""The answers of `dpplan learn`."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import UNSET, Document, Unset, key

ANSWERS = {"learn": "Lessons", "learn LESSON": "Lesson", "learn coverage": "Claims"}


Value = int | float | str | bool | None


class LessonInput(Document):
    """An input of a lesson that the reader can change."""

    name: Annotated[str, key("as --set takes it")]
    label: Annotated[str, key("in words")]
    value: Annotated[int | float | str, key("used for the figures")]
    start: Annotated[int | float | str, key("where nothing is set")]
    choices: Annotated[
        list[int | float | str], key("values that it can have; empty: any between ends")
    ]
    least: Annotated[float | None, key("smallest number")]
    most: Annotated[float | None, key("largest number")]


class FormulaInput(Document):
    """A number that went into a formula."""

    name: Annotated[str, key("argument of the formula")]
    value: Annotated[Value, key("its value, in base units")]


class LessonFigure(Document):
    """A figure of a lesson."""

    name: Annotated[str, key("as the text refers to it")]
    value: Annotated[Value, key("in base units; null where these inputs have none")]
    shown: Annotated[str, key("as it is read")]
    says: Annotated[str, key("the figure in words")]
    formula: Annotated[str | Unset, key("name of its formula")] = UNSET
    equation: Annotated[str | Unset, key("its equation")] = UNSET
    source: Annotated[str | Unset, key("where the equation is from")] = UNSET
    inputs: Annotated[list[FormulaInput] | Unset, key("what went into it")] = UNSET


class LessonTable(Document):
    """A table; a column whose name begins with ">" has numbers."""

    header: Annotated[list[str], key("names of the columns")]
    rows: Annotated[list[list[str]], key("cells as they are read")]


class LessonChart(Document):
    """Figures against one input."""

    title: Annotated[str, key("heading")]
    kind: Annotated[str, key("lines or bars")]
    across: Annotated[str, key("the input on the horizontal axis")]
    unit: Annotated[str, key("base unit of the values")]
    log: Annotated[str, key("axes in powers of ten: x, y, xy or none")]
    points: Annotated[list[int | float | str], key("values of that input")]
    labels: Annotated[list[str], key("the same as they are read")]
    series: Annotated[dict[str, list[float | None]], key("values by name of the line")]
    now: Annotated[int | float | str | None, key("the point that the inputs are at")]


class LessonItem(Document):
    """A paragraph, formula, table, chart or command of a lesson: one of the keys is set."""

    text: Annotated[str | Unset, key("Markdown with {0}, {1} for its figures")] = UNSET
    figures: Annotated[list[str] | Unset, key("the figures of the text as they are read")] = UNSET
    formula: Annotated[LessonFigure | Unset, key("a formula with its numbers")] = UNSET
    table: Annotated[LessonTable | Unset, key("a table")] = UNSET
    chart: Annotated[LessonChart | Unset, key("a chart")] = UNSET
    command: Annotated[str | Unset, key("the command of the figures")] = UNSET
    answer: Annotated[str | Unset, key("to the question in `text`, whose figures go on")] = UNSET


class LessonSection(Document):
    """A part of a lesson under a heading."""

    title: Annotated[str, key("heading, empty for the first part")]
    items: Annotated[list[LessonItem], key("what stands there")]


class LessonClaim(Document):
    """A claim of the sources that the project began from, and the command that checks it."""

    number: Annotated[int, key("in the table of all claims")]
    of: Annotated[str, key("which source")]
    claim: Annotated[str, key("in our words")]
    verdict: Annotated[str, key("holds, partly, wrong, not modelled or no number")]
    why: Annotated[str, key("what is right or wrong in it, with the numbers of the command")]
    command: Annotated[str, key("that gives the numbers")]
    broken: Annotated[list[str], key("bounds that the numbers should keep and do not")]


class ClaimEntry(Document):
    """A claim of the sources in the table of all."""

    number: Annotated[int, key("as lessons count it")]
    of: Annotated[str, key("which source")]
    claim: Annotated[str, key("in our words")]
    verdict: Annotated[str, key("holds, partly, wrong, not modelled or no number")]
    command: Annotated[str, key("that gives the numbers")]
    lesson: Annotated[str, key("that explains them")]


class Claims(Document):
    """All claims of the sources that lessons check."""

    schema_version: Annotated[int, key("1")]
    claims: Annotated[list[ClaimEntry], key("by number")]


class LessonEntry(Document):
    """A lesson in the list."""

    name: Annotated[str, key("as `dpplan learn` takes it")]
    title: Annotated[str, key("heading")]
    lead: Annotated[str, key("the question that it answers")]
    claims: Annotated[int, key("claims of the sources that it checks")]


class Lessons(Document):
    """All lessons."""

    schema_version: Annotated[int, key("1")]
    lessons: Annotated[list[LessonEntry], key("in the order in which they build on each other")]


class Lesson(Document):
    """A lesson with its figures."""

    schema_version: Annotated[int, key("1")]
    name: Annotated[str, key("as `dpplan learn` takes it")]
    title: Annotated[str, key("heading")]
    lead: Annotated[str, key("the question that it answers")]
    inputs: Annotated[list[LessonInput], key("what can be moved")]
    commands: Annotated[dict[str, str], key("used for the figures, by name")]
    figures: Annotated[dict[str, LessonFigure], key("by name")]
    sections: Annotated[list[LessonSection], key("the text")]
    problems: Annotated[list[str], key("why these inputs have no answer")]
    claims: Annotated[list[LessonClaim], key("of the sources")]
