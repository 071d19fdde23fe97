"""Lessons as they are written: planner/lessons/texts/NAME.md, settings in TOML between two lines of
`+++`, then the text.

Settings: `number`, `title`, `lead`; `inputs`, what a reader can move; `commands` of dpplan without
its name, with inputs in braces; `figures`, expressions over both; `charts`; `questions`; `claims`.
In the text `{{ expression | unit }}` is a figure. A paragraph that is `{{ formula NAME }}`,
`{{ parts EXPRESSION | unit }}`, `{{ chart NAME }}` or `{{ command NAME }}` is a formula with its
numbers, a table, a chart, a command.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from planner.inputs.readers import read_toml

FOLDER = Path(__file__).resolve().parent.parent / "texts"
_FENCE = "+++\n"


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number between two ends, or one of several choices."""

    label: str
    start: int | float | str
    choices: tuple[int | float | str, ...] = ()
    least: float | None = None
    most: float | None = None


class FigureOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expression under a name. unit: of planner.units.show, "," for a count, "%", or "x" for a
    factor; says: what it is."""

    of: str
    unit: str = ""
    says: str = ""


class ChartOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Expressions over values of one input, which may belong to the chart only."""

    title: str
    over: str
    values: tuple[int | float | str, ...]
    across: str
    series: dict[str, str]
    unit: str = ""
    over_unit: str = ""
    kind: str = "lines"
    log: str = ""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A short question and its answer, both with figures."""

    ask: str
    answer: str


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on an expression over `it`, the document of the claim's command."""

    of: str
    least: float | None = None
    most: float | None = None
    equals: int | float | str | bool | None = None


class ClaimOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim of a source, in our words, the command that checks it, and what must hold."""

    number: int
    of: str
    claim: str
    verdict: str
    why: str
    command: str
    holds: tuple[Bound, ...]


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lesson before anything is computed."""

    number: int
    title: str
    lead: str
    inputs: dict[str, Input] = {}
    commands: dict[str, str] = {}
    figures: dict[str, FigureOf] = {}
    charts: dict[str, ChartOf] = {}
    questions: tuple[Question, ...] = ()
    claims: tuple[ClaimOf, ...] = ()
    text: str = ""


@cache
def lessons() -> dict[str, Written]:
    """All lessons by name, in their order."""
    found = {path.stem: _read(path) for path in FOLDER.glob("*.md")}
    return dict(sorted(found.items(), key=lambda pair: pair[1].number))


def _read(path: Path) -> Written:
    _, settings, text = path.read_text("utf-8").split(_FENCE, 2)
    return msgspec.convert({**read_toml(settings), "text": text.strip()}, Written)
