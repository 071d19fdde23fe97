"""docs/questions: questions engineers ask, the commands that answer them, and the answers,
filled in from the commands' own JSON documents.

docs/questions.toml holds one table per question: `ask`, `commands`, `answer` with figures in
braces, and `holds`, what must be true of the answer and why. A figure `{1:step.seconds|s}` is the
value at that path in the document of the second command, in a unit (of `planner.units.show`), as a
count (`,`), a share (`%`) or as it stands. The command's sentence on stderr is at the path `said`,
its exit status at `status`.
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from typing import Any

import msgspec

from pages.sheets import sheets
from pages.text import NOTICE, ROOT, code, run
from planner.units import percent, show

SOURCE = ROOT / "docs" / "questions.toml"

_FIGURE = re.compile(r"\{(?:(\d+):)?([^{}|]+)(?:\|([^{}]+))?\}")


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of one figure, and the reason: a published number, a law, common sense."""

    of: str  # path, with the number of the command before a colon
    why: str
    over: str | None = None  # a path whose value divides it
    least: float | None = None
    most: float | None = None
    equals: str | float | bool | None = None
    contains: str | None = None


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question, the commands that answer it (without `dpplan`), the answer, and its checks."""

    ask: str
    commands: tuple[str, ...]
    answer: str
    holds: tuple[Check, ...]


class Chapter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    question: tuple[Question, ...]


@cache
def chapters() -> tuple[Chapter, ...]:
    """All questions, by chapter."""
    return msgspec.convert(tomllib.loads(SOURCE.read_text("utf-8"))["chapter"], tuple[Chapter, ...])


@cache
def document(command: str) -> dict[str, Any]:
    """The command's JSON document with its exit status and its sentence on stderr."""
    status, out, err = run(f"dpplan {command} --json")
    sentence = err.strip().removeprefix("error: ")
    return (json.loads(out) if out.lstrip().startswith("{") else {}) | {
        "status": status,
        "said": sentence,
    }


def figure(question: Question, at: str) -> Any:
    """The value at a path such as `1:step.seconds`; list items by number or, as `[key=value]`, by
    what they hold."""
    number, _, path = at.rpartition(":")
    value: Any = document(question.commands[int(number or 0)])
    for step in re.findall(r"\[[^\]]*\]|[^.\[\]]+", path):
        if step.startswith("["):
            key, _, wanted = step[1:-1].partition("=")
            value = next(item for item in value if str(item[key]) == wanted)
        else:
            value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _shown(value: Any, form: str | None) -> str:
    if form is None:
        return str(value)
    if form == ",":
        return f"{value:,.0f}"
    return percent(value) if form == "%" else show(value, form)


def answered(question: Question) -> str:
    """The answer with its figures."""

    def fill(match: re.Match[str]) -> str:
        number, path, form = match.groups()
        return _shown(figure(question, f"{number or 0}:{path}"), form)

    return _FIGURE.sub(fill, question.answer)


def broken(question: Question, check: Check) -> str | None:
    """None where the check holds, else what was found."""
    value = figure(question, check.of)
    if check.over is not None:
        value = value / figure(question, check.over)
    holds = (
        (check.least is None or value >= check.least)
        and (check.most is None or value <= check.most)
        and (check.equals is None or value == check.equals)
        and (check.contains is None or check.contains in str(value))
    )
    return None if holds else f"{check.of} is {value!r}"


def all_broken() -> list[str]:
    """A line for each check of a question that does not hold."""
    checks = [(q, check) for chapter in chapters() for q in chapter.question for check in q.holds]
    return [f"{q.ask} {fault}: {c.why}" for q, c in checks if (fault := broken(q, c)) is not None]


def _written(number: int, question: Question) -> str:
    commands = "\n".join(f"dpplan {command}" for command in question.commands)
    checks = "".join(f"- {_bounds(check)}: {check.why}\n" for check in question.holds)
    return (
        f"### {number}. {question.ask}\n\n{code(commands, 'sh')}\n{answered(question)}\n\n"
        f"Checked:\n\n{checks}"
    )


def _bounds(check: Check) -> str:
    subject = f"`{check.of}`" + (f" over `{check.over}`" if check.over else "")
    if check.contains is not None:
        return f'{subject} has "{check.contains}"'
    if check.equals is not None:
        value = check.equals
        shown = str(value).lower() if isinstance(value, bool | str) else f"{value:,g}"
        return f"{subject} is {shown}"
    if check.least is None:
        return f"{subject} is at most {check.most:,g}"
    if check.most is None:
        return f"{subject} is at least {check.least:,g}"
    return f"{subject} is between {check.least:,g} and {check.most:,g}"


def folder() -> dict[str, str]:
    """Pages of docs/questions by name, one per chapter."""
    return sheets(_text(), "questions")


def _text() -> str:
    number, out = 0, []
    for chapter in chapters():
        out.append(f"## {chapter.title}\n")
        for question in chapter.question:
            number += 1
            out.append(_written(number, question))
    return (
        f"{NOTICE}# {number} questions\n\n"
        "What engineers ask before they rent or launch, the command that answers it, and the"
        " answer. Every command runs when this page is built, every figure in an answer comes from"
        " the command's JSON document, and the checks below each answer are tests: where a check"
        " has a number, its reason says where the number is from.\n\n" + "\n".join(out)
    )
