"""Lessons as blocks of text, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from planner.lessons.documents import (
    ClaimEntry,
    Claims,
    Lesson,
    LessonChart,
    LessonClaim,
    LessonFigure,
    LessonItem,
    Lessons,
    LessonTable,
)
from planner.specs.document import UNSET
from planner.units import percent, show
from planner.views.view import Block, Fixed

_SUFFIXES = (("bytes_per_s", "B/s"), ("flop_per_s", "FLOP/s"), ("_bytes", "traffic"), ("_s", "s"))
_POINTS = ("- ", "1. ")


def shown(value: Any, unit: str = "") -> str:
    """A value as it is read. unit: of planner.units.show, "," for a count, "%" of a share, "x" for
    a factor."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == ",":
        return f"{value:,.0f}"
    if unit == "x":
        return f"{show(float(value), '1')} times"
    return percent(value) if unit == "%" else show(float(value), unit)


def list_blocks(lessons: Lessons) -> list[Block]:
    """The names of the lessons."""
    rows = [[lesson.name, lesson.title, str(lesson.claims)] for lesson in lessons.lessons]
    text = ["`dpplan learn NAME` prints one, `dpplan serve` has them with inputs that move"]
    order = "in the order in which they build on each other"
    return [Block("Lessons", text, ["name", "title", ">claims"], rows, order=order)]


VERDICTS = {
    "holds": "hold",
    "partly": "hold in part",
    "wrong": "are wrong",
    "not modelled": "concern effects that are not modelled",
}


def claims_lead(claims: Claims) -> str:
    """How many claims there are, and how many of each verdict."""
    verdicts = [claim.verdict for claim in claims.claims]
    counts = ", ".join(f"{verdicts.count(word)} {words}" for word, words in VERDICTS.items())
    return (
        f"{len(verdicts)} claims that a reader could not check with the planner at first, each with"
        f" the command that gives the numbers and the lesson that explains them: {counts}. Every"
        " command runs in the tests, and what a verdict rests on is tested of its answer."
    )


def claim_blocks(claims: Claims) -> list[Block]:
    """All claims, the lesson and the command of each."""
    lines = [line for entry in claims.claims for line in _entry_lines(entry)]
    return [
        Block("Claims of our sources", [claims_lead(claims)]),
        Block("Claims and their commands", lines),
    ]


def _entry_lines(entry: ClaimEntry) -> Iterator[str]:
    claim = f"{entry.number}. {entry.claim} ({entry.of})"
    yield f"{claim}: {entry.verdict}; dpplan learn {entry.lesson}"
    yield Fixed(entry.command)


def lesson_blocks(lesson: Lesson) -> list[Block]:
    """A lesson: its inputs, its text part by part, and the claims that it checks."""
    inputs = [[f"{entry.name}={number(entry.value)}", entry.label] for entry in lesson.inputs]
    head = Block(lesson.title, [lesson.lead, *lesson.problems])
    moved = Block("What can be moved (--set)", [], ["input", "what it is"], inputs, order="given")
    out = [head, *([moved] if inputs else [])]
    for section in lesson.sections:
        text: list[str] = []
        blocks: list[Block] = []
        for item in section.items:
            table = table_of(item)
            if table is not None:
                blocks.append(_block(table, item))
            else:
                text += lines(item)
        if text or blocks:
            out += [Block(section.title or "In short", text), *blocks]
    if lesson.claims:
        claims = [line for claim in lesson.claims for line in _claim_lines(claim)]
        out.append(Block("Claims of our sources", claims))
    return out


def lines(item: LessonItem) -> list[str]:
    """A paragraph, formula or command as lines."""
    if item.formula is not UNSET:
        return [formula_line(item.formula)]
    if item.command is not UNSET:
        return [Fixed(item.command)]
    text = paragraph(item)
    if text.startswith("|"):  # a table: its rows without the rule below the header
        rows = text.splitlines()
        return [Fixed(row) for row in (rows[0], *rows[2:])]
    if text.startswith(_POINTS):
        return [line for line in text.splitlines() if line]
    return [_one_line(text)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def paragraph(item: LessonItem) -> str:
    """The text of an item with its figures; of a question, with the answer."""
    text = "" if item.text is UNSET else item.text
    if item.answer is not UNSET:
        text = f"{text} Answer: {item.answer}"
    return text.format(*([] if item.figures is UNSET else item.figures))


def formula_line(figure: LessonFigure) -> str:
    """A formula with its numbers and its source."""
    if figure.equation is UNSET or figure.inputs is UNSET:
        return f"{figure.says} = {figure.shown}"
    numbers = ", ".join(
        f"{entry.name} {number(entry.value, entry.name)}" for entry in figure.inputs
    )
    return (
        f"{figure.says}: {figure.equation} = {figure.shown} with {numbers}; source: {figure.source}"
    )


def number(value: object, name: str = "") -> str:
    """A number as people read it, a word as it is. name: of an argument, which ends in its unit."""
    if not isinstance(value, float | int):
        return str(value)
    unit = next((unit for suffix, unit in _SUFFIXES if name.endswith(suffix)), "")
    if unit or not float(value).is_integer():
        return show(float(value), unit) if unit else f"{value:,.6g}"
    return f"{value:,.0f}"


def _typed(value: float | str) -> str:
    """A setting as --set takes it."""
    return value if isinstance(value, str) else f"{value:.15g}"


def table_of(item: LessonItem) -> LessonTable | None:
    """The table of an item, or that behind its chart."""
    if item.chart is not UNSET:
        return chart_table(item.chart)
    return None if item.table is UNSET else item.table


def height(value: float | None, unit: str) -> str:
    """A value of a chart as it is read."""
    return "-" if value is None else shown(value, unit)


def chart_table(chart: LessonChart) -> LessonTable:
    """The numbers behind a chart."""
    rows = [
        [label, *(height(heights[i], chart.unit) for heights in chart.series.values())]
        for i, label in enumerate(chart.labels)
    ]
    return LessonTable([chart.across, *(f">{name}" for name in chart.series)], rows)


def _block(table: LessonTable, item: LessonItem) -> Block:
    title = "Parts" if item.chart is UNSET else item.chart.title
    order = "largest first" if item.chart is UNSET else f"by {item.chart.across}"
    return Block(title, [], table.header, table.rows, order=order)


def _claim_lines(claim: LessonClaim) -> Iterator[str]:
    yield f"{claim.number}. {claim.claim} ({claim.of}): {claim.verdict}. {_one_line(claim.why)}"
    yield Fixed(claim.command)


# --------------------------------------------------------------------------------------- a page


def markdown(lesson: Lesson) -> str:
    """A lesson as a page of Markdown."""
    inputs = "; ".join(f"{entry.label}: {number(entry.value)}" for entry in lesson.inputs)
    moved = f"dpplan learn {lesson.name}"
    if lesson.inputs:
        first = lesson.inputs[0]
        moved += f" --set {first.name}={_typed(first.value)}"
    out = [f"# {lesson.title}", lesson.lead]
    if inputs:
        out.append(
            f"The figures follow from these inputs. {inputs}. Move them on the page of `dpplan"
            f" serve` under `/learn/{lesson.name}`, or with `{moved}`."
        )
    for section in lesson.sections:
        out += [f"## {section.title}"] * bool(section.title)
        out += [_markdown(item) for item in section.items]
    out += claims_markdown(lesson.claims)
    return "\n\n".join(out) + "\n"


def claims_markdown(claims: Sequence[LessonClaim]) -> list[str]:
    """The claims that a lesson checks."""
    out = ["## Claims of our sources"] if claims else []
    for claim in claims:
        out.append(
            f"**{claim.number}. {claim.claim}** ({claim.of}): **{claim.verdict}**."
            f" {claim.why.strip()}\n\n"
            f"```sh\n{claim.command}\n```"
        )
    return out


def _markdown(item: LessonItem) -> str:
    table = table_of(item)
    if table is not None:
        title = "" if item.chart is UNSET else f"**{item.chart.title}**\n\n"
        return title + _table(table)
    if item.command is not UNSET:
        return f"```sh\n{item.command}\n```"
    if item.formula is not UNSET:
        return formula_markdown(item.formula)
    if item.answer is UNSET:
        return paragraph(item)
    figures = [] if item.figures is UNSET else item.figures
    ask = "" if item.text is UNSET else item.text.format(*figures)
    answer = item.answer.format(*figures)
    head = f'<details markdown="1">\n<summary>{ask.strip()}</summary>'
    return f"{head}\n\n{answer.strip()}\n\n</details>"


def formula_markdown(figure: LessonFigure) -> str:
    """A formula with its numbers, as a quotation."""
    if figure.equation is UNSET or figure.inputs is UNSET:
        return f"> {figure.says} = **{figure.shown}**"
    numbers = ", ".join(
        f"`{entry.name}` {number(entry.value, entry.name)}" for entry in figure.inputs
    )
    return (
        f"> {figure.says}: `{figure.equation}` = **{figure.shown}**\n>\n> with {numbers}. Source:"
        f" {figure.source}"
    )


def _table(table: LessonTable) -> str:
    names = [name.lstrip(">") for name in table.header]
    rule = ["---:" if name.startswith(">") else "---" for name in table.header]
    return "\n".join("| " + " | ".join(row) + " |" for row in [names, rule, *table.rows])
