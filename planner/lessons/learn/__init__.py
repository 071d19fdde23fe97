"""The verb `learn`: lessons whose every figure is computed, with inputs that can be moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Any

from planner.lessons.documents import (
    ClaimEntry,
    Claims,
    FormulaInput,
    Lesson,
    LessonClaim,
    LessonEntry,
    LessonFigure,
    LessonInput,
    Lessons,
)
from planner.lessons.learn.commands import document
from planner.lessons.learn.expression import Missing, Names, call_of, value_of
from planner.lessons.learn.text import Computed, filled, sections
from planner.lessons.learn.written import Bound, ClaimOf, Input, Written, lessons
from planner.lessons.view import shown
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, plain
from planner.units import UnitError, parse_count

COVERAGE = "coverage"  # in place of a lesson: the table of all claims
Setting = int | float | str


def listed() -> Lessons:
    """All lessons, in the order in which they build on each other."""
    entries = [
        LessonEntry(name, lesson.title, lesson.lead, len(lesson.claims))
        for name, lesson in lessons().items()
    ]
    return Lessons(SCHEMA_VERSION, entries)


def claims() -> Claims:
    """All claims by number. Their bounds are checked where a lesson is made."""
    entries = [
        ClaimEntry(
            claim.number, claim.of, claim.claim, claim.verdict, f"dpplan {claim.command}", name
        )
        for name, written in lessons().items()
        for claim in written.claims
    ]
    return Claims(SCHEMA_VERSION, sorted(entries, key=lambda entry: entry.number))


def lesson(name: str, given: Mapping[str, str], *, claims: bool = True) -> Lesson:
    """One lesson with the figures of these inputs. Raises PlanError naming the wrong input.

    given: inputs by name, as typed. claims: also check the claims of the sources, whose commands do
    not depend on the inputs.
    """
    if name not in lessons():
        known = ", ".join((*lessons(), COVERAGE))
        raise PlanError("lesson", name, f"must be one of {known}")
    written = lessons()[name]
    values = {key: entry.start for key, entry in written.inputs.items()} | _set(written, given)
    problems: list[str] = []
    names = _names(written, values, problems)
    figures = {key: _figure(key, written, names) for key in written.figures}
    commands = {
        key: f"dpplan {_command(written, key, values)}"
        for key, words in written.commands.items()
        if _inputs_of(words) <= values.keys()  # others belong to a chart, which gives the rest
    }
    computed = Computed(
        written=written,
        values=values,
        names=names,
        moved=lambda more: _names(written, {**values, **more}, problems),
        figures=figures,
        commands=commands,
    )
    return Lesson(
        schema_version=SCHEMA_VERSION,
        name=name,
        title=written.title,
        lead=written.lead,
        inputs=[_input(key, entry, values[key]) for key, entry in written.inputs.items()],
        commands=commands,
        figures=figures,
        sections=sections(computed),
        problems=list(dict.fromkeys(problems)),
        claims=list(_claims(name)) if claims else [],
    )


def _set(written: Written, given: Mapping[str, str]) -> dict[str, Setting]:
    """Given inputs, each converted to its type. Raises PlanError."""
    for key in given:
        if key not in written.inputs:
            known = ", ".join(written.inputs) or "none"
            raise PlanError("--set", key[:50], f"is not an input of this lesson; it has {known}")
    return {key: _setting(written.inputs[key], key, text) for key, text in given.items()}


def _setting(entry: Input, key: str, text: str) -> Setting:
    wrong = f"{key}={text}"[:80]
    if entry.choices and isinstance(entry.choices[0], str):
        if text not in entry.choices:
            raise PlanError("--set", wrong, f"must be one of {', '.join(map(str, entry.choices))}")
        return text
    try:
        value = parse_count(text)
    except UnitError as error:
        raise PlanError("--set", wrong, str(error)) from None
    if entry.choices and value not in entry.choices:
        known = ", ".join(f"{choice:g}" for choice in entry.choices if not isinstance(choice, str))
        raise PlanError("--set", wrong, f"must be one of {known}")
    if (entry.least is not None and value < entry.least) or (
        entry.most is not None and value > entry.most
    ):
        raise PlanError("--set", wrong, f"must be between {entry.least:g} and {entry.most:g}")
    return value


def _input(key: str, entry: Input, value: Setting) -> LessonInput:
    return LessonInput(
        key, entry.label, value, entry.start, list(entry.choices), entry.least, entry.most
    )


def _inputs_of(words: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(words) if name}


def _command(written: Written, key: str, values: Mapping[str, Setting]) -> str:
    typed = {
        name: value if isinstance(value, str) else f"{value:.15g}" for name, value in values.items()
    }
    return written.commands[key].format_map(typed)


def _names(written: Written, values: Mapping[str, Setting], problems: list[str]) -> Names:
    """Values of the names in an expression: an input, a figure, or a command's document."""
    names: dict[str, Any] = dict(values)

    def name(wanted: str) -> Any:
        if wanted not in names:
            if wanted in written.figures:
                names[wanted] = value_of(written.figures[wanted].of, name)
            elif wanted in written.commands:
                names[wanted] = _answered(_command(written, wanted, values), problems)
            else:
                raise ValueError(f"{wanted!r} is not an input, figure or command of this lesson")
        return names[wanted]

    return name


def _answered(command: str, problems: list[str]) -> Any:
    try:
        return document(command)
    except PlanError as error:
        problems.append(str(error))
        raise Missing(str(error)) from None


def _figure(key: str, written: Written, names: Names) -> LessonFigure:
    """A figure with its value; of a formula, with the numbers that went in."""
    figure = written.figures[key]
    try:
        value = names(key)
        called = call_of(figure.of, names)
    except Missing:
        return LessonFigure(key, None, "-", figure.says or figure.of)
    plainly = LessonFigure(key, value, shown(value, figure.unit), figure.says or figure.of)
    if called is None:
        return plainly
    formula, inputs = called
    return LessonFigure(
        **{name: getattr(plainly, name) for name in ("name", "value", "shown", "says")},
        formula=formula.name,
        equation=formula.equation,
        source=formula.source,
        inputs=[FormulaInput(argument, number) for argument, number in inputs.items()],
    )


# ------------------------------------------------------------------------------------------- claims


@cache
def _claims(name: str) -> Sequence[LessonClaim]:
    return [_claim(claim) for claim in lessons()[name].claims]


def _claim(claim: ClaimOf) -> LessonClaim:
    answer = claimed(claim.command)

    def names(wanted: str) -> Any:
        if wanted != "it":
            raise ValueError(f"{wanted!r}: a claim knows `it`, the document of its command")
        return answer

    return LessonClaim(
        number=claim.number,
        of=claim.of,
        claim=claim.claim,
        verdict=claim.verdict,
        why=filled(claim.why, names),
        command=f"dpplan {claim.command}",
        broken=[sentence for bound in claim.holds if (sentence := _broken(bound, names))],
    )


def claimed(command: str) -> Any:
    """The document of a claim's command, of a lesson without the claims of its own."""
    verb, _, rest = command.partition(" ")
    if verb != "learn":
        return document(command)
    name, *more = rest.split()
    return plain(lesson(name, settings(more[1::2]), claims=False))


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """Inputs by name, of "NAME=VALUE" each. Raises PlanError."""
    for pair in pairs:
        if "=" not in pair:
            raise PlanError("--set", pair, "must be NAME=VALUE, such as gpus=8")
    apart = [pair.partition("=") for pair in pairs]
    return {name.strip(): value.strip() for name, _, value in apart}


def _broken(bound: Bound, names: Names) -> str | None:
    value = value_of(bound.of, names)
    holds = (
        (bound.least is None or value >= bound.least)
        and (bound.most is None or value <= bound.most)
        and (bound.equals is None or value == bound.equals)
    )
    return None if holds else f"{bound.of} is {value!r}"
