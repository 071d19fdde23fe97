"""A foreign format: a table from its names to ours, read both ways, and functions for what does not
map one to one.

A module of this folder with a `FORMAT` is a format; nothing else has to name it. Every argument of
a file ends in one of four ways: read (it states an option or a part of the model), implied (it
follows from others, or is the program's default), irrelevant (it moves neither memory nor time), or
not understood.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from planner.inputs.readers import read_toml
from planner.specs.base import PlanError
from planner.specs.options import MECHANISMS

Use = Literal["read", "implied", "irrelevant", "not understood"]
SQUARE = "bucket_of_width"  # bytes per square of the hidden size: no option, a bucket is
STEPS = "steps"  # of a run: no option, for its tokens are
RL = "rl"  # `rl.NAME` is an option of only `dpplan rl`; None: it is open there
MODEL = "model."  # prefix of model fields, for arguments that correspond to no option
_UNREAD = Path(__file__).with_name("arguments.toml")
_AGAIN = re.compile(r" \(line \d+\)$")  # how a key is named that a file gives twice
_WRONG_KIND = (TypeError, ValueError, ArithmeticError)  # a word where a reader computes
UNSET = object()  # the default of an argument that says nothing where it is left out


@dataclass(frozen=True)
class Value:
    """A value of a file and the line on which it stands; 0 where that is not known.

    unknown: names of variables in it that the file does not set, so that the value is unknown;
    program: whose default it is, where the file leaves it out; alias: the argument of the file that
    says it, where that has another name.
    """

    value: Any
    line: int = 0
    unknown: tuple[str, ...] = ()
    file: str = ""
    program: str = ""
    alias: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}" if self.line else self.file


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Argument:
    """One argument that says one thing.

    name: theirs, in the plain spelling that `parse` gives; option: our option that it states, or
    `model.` and a field of the model.
    words: our value by theirs; the first of several that mean the same is written. factor: ours is
    theirs times this. negated: a switch that says the contrary. default: what the program does
    where it is left out, as a value of theirs.
    meaning: our value from theirs where no table says it, None where it says nothing; raises
    ValueError with the rest of a sentence ("'x' ..."). writes: theirs from ours, None where it
    cannot be said.
    also: other names of it. note: the part of its effect that is not modelled.
    """

    name: str
    option: str
    words: Mapping[Any, Any] = field(default_factory=dict)
    factor: float = 1
    negated: bool = False
    default: Any = UNSET
    meaning: Callable[[Any], Any] = _same
    writes: Callable[[Any], Any] = _same
    also: tuple[str, ...] = ()
    note: str = ""

    def ours(self, value: Any) -> Any:
        """Our value. Raises ValueError where theirs has none."""
        if self.words:
            is_spelled = value in self.words or not isinstance(value, str)
            key = value if is_spelled else value.lower()
            if key not in self.words:
                known = ", ".join(str(word) for word in self.words)
                raise ValueError(f"is not one of {known}")
            return self.words[key]
        if self.negated:
            return not value
        if self.factor != 1:
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{value!r} is not a number")
            product = value * self.factor
            return int(product) if product == int(product) else product
        return self.meaning(value)

    def theirs(self, value: Any) -> Any:
        """Their value for ours; None where it cannot be said."""
        if self.words:
            return next((word for word, ours in self.words.items() if ours == value), None)
        if self.negated:
            return not value
        if self.factor != 1:
            quotient = value / self.factor
            return int(quotient) if quotient == int(quotient) else quotient
        return self.writes(value)


@dataclass(frozen=True)
class Used:
    """How an argument was used."""

    value: Any
    use: Use
    note: str = ""


@dataclass(frozen=True)
class Stated:
    """An option or a field of the model, the argument that states it, and where that stands.

    implied: it follows from others or is what the program does by itself, and gives way to what a
    file states. None: the option is known to be as the stack has it.
    """

    value: Any
    argument: str
    place: str
    implied: bool = False

    @property
    def weight(self) -> int:
        """Precedence: a file's statement wins over a known default of the stack, that over what a
        file implies, and all over a program's default."""
        if not self.implied:
            return 3
        return 2 if self.value is None else int(bool(self.place))


class Answer:
    """Options and arguments that one format has read so far; mutable.

    values: the arguments by name. `options` and `model` are by our name, `arguments` by theirs;
    notes: sentences on more than one argument; is_part: another file sets what this one leaves out,
    so that the program's defaults do not apply.
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values
        self.options: dict[str, Stated] = {}
        self.model: dict[str, Stated] = {}
        self.arguments: dict[str, Used] = {}
        self.notes: list[str] = []
        self.is_part = False

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an argument; the default where it is left out, null, or not known."""
        value = self.values.get(name)
        return default if value is None or value.unknown or value.value is None else value.value

    def state(self, option: str, value: Any, name: str, note: str = "") -> None:
        """An argument states an option, or with `model.` before it a field of the model. What is
        None states nothing, and the argument is read nevertheless."""
        given = self.values[name]
        if given.program:
            self.mark(name, "implied", f"not given: the default of {given.program}")
            stated = self._stated(option)
            if value is not None and (stated is None or stated.implied):
                self._put(option, Stated(value, name, "", implied=True))
            return
        self.mark(name, "read", note)
        if value is not None:
            self._put(option, Stated(value, name, given.place))

    def imply(self, option: str, value: Any, note: str, *names: str) -> None:
        """An option follows from arguments, or without any is what the program does by itself."""
        for name in names:
            if name in self.values:
                self.mark(name, "implied", note)
        if self.is_part and not any(name in self.values for name in names):
            return
        place = self.values[names[0]].place if names and names[0] in self.values else ""
        stated = self._stated(option)
        if stated is None or stated.implied:
            self._put(option, Stated(value, names[0] if names else note, place, implied=True))

    def leave(self, option: str, name: str) -> None:
        """An argument sets an option to the default of the stack, over what other files imply."""
        if self._stated(option) is None:
            self._put(option, Stated(None, name, self.values[name].place, implied=True))

    def mark(self, name: str, use: Use, note: str = "") -> None:
        """Set an argument's status; 'read' and 'not understood' are never downgraded."""
        value = self.values.get(name)
        if value is not None and value.unknown and use in ("read", "implied"):
            use, note = "not understood", _unset(value)
        fields = self.arguments[name].use if name in self.arguments else None
        stays = fields == "read" or (fields == "not understood" and use != "read")
        if name in self.values and not stays:
            self.arguments[name] = Used(self.values[name].value, use, note)

    def drop(self, *names: str) -> None:
        """Take back what arguments state that do not act beside others."""
        for name in names:
            options = self.model if name.startswith(MODEL) else self.options
            options.pop(name.removeprefix(MODEL), None)

    def note_default(self, argument: Argument) -> None:
        """Take the program's default of an argument that is left out."""
        value = argument.default
        ours = argument.ours(value)
        if ours is not None and self._stated(argument.option) is None:
            self._put(argument.option, Stated(ours, argument.name, "", implied=True))
            self.arguments[argument.name] = Used(value, "implied", "not given: the default")

    def said_otherwise(self) -> None:
        """Give what arguments of other names say to those that stand in the file, and leave out
        defaults that nothing has read."""
        names = {name: value.alias for name, value in self.values.items() if value.alias}
        for name, theirs in names.items():
            used = self.arguments.pop(name, None)
            if used is not None and theirs in self.values:
                self.arguments[theirs] = replace(used, value=self.values[theirs].value)
        for stated in (self.options, self.model):
            for option, entry in stated.items():
                stated[option] = replace(entry, argument=names.get(entry.argument, entry.argument))

    def option(self, name: str) -> Any:
        """The value of an option of dpplan so far; None if no argument states it."""
        stated = self._stated(name)
        return None if stated is None else stated.value

    def _stated(self, name: str) -> Stated | None:
        options = self.model if name.startswith(MODEL) else self.options
        return options.get(name.removeprefix(MODEL))

    def _put(self, name: str, stated: Stated) -> None:
        options = self.model if name.startswith(MODEL) else self.options
        options[name.removeprefix(MODEL)] = stated


def of_mechanisms(table: str) -> tuple[Argument, ...]:
    """Arguments of a table that the modules of mechanisms state."""
    named = (each.ARGUMENTS.get(table, {}).items() for each in MECHANISMS)
    return tuple(Argument(name, option) for pairs in named for name, option in pairs)


def _unset(value: Value) -> str:
    return f"the file does not set {', '.join(value.unknown)}"


def _nothing(values: Mapping[str, Value], answer: Answer) -> None:
    return None


def _no_more(values: Mapping[str, Value]) -> dict[str, Value]:
    return {}


def _none_irrelevant(values: Mapping[str, Value]) -> Iterable[str]:
    return ()


@dataclass(frozen=True, eq=False)
class Format:
    """A foreign format.

    kind: its id; title: for people. detect: whether a text, under its file's name, is in this
    format or has a part in it; whole: no part of such a text is in another format, except the
    launcher of a script. parse: the arguments of a text by name in one plain spelling. table: what
    is one to one.
    irrelevant: patterns of names that move neither memory nor time. lacks: patterns of names that
    do move them and that no estimate has, with why. off: patterns of switches that are off where
    they are left out, so that one that is off says nothing.
    added: arguments that others say in the words of the table, and defaults of the program that the
    file is for; left: its arguments that move nothing.
    read_more: what is not one to one. What is written is a `target.Target`, by the same table.
    written_as: kind of the target that writes these arguments, where that is another; writable:
    whether it writes files that have these; spelled: a name as its files have it.
    """

    kind: str
    title: str
    detect: Callable[[str, str], bool]
    parse: Callable[[str], Mapping[str, Value]]
    table: tuple[Argument, ...]
    whole: bool = False
    irrelevant: tuple[str, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)
    off: tuple[str, ...] = ()
    read_more: Callable[[Mapping[str, Value], Answer], None] = _nothing
    added: Callable[[Mapping[str, Value]], dict[str, Value]] = _no_more
    left: Callable[[Mapping[str, Value]], Iterable[str]] = _none_irrelevant
    written_as: str = ""
    writable: Callable[[Mapping[str, Value]], bool] = bool
    spelled: Callable[[str], str] = str

    def read(self, values: Mapping[str, Value]) -> Answer:
        """The answer of these arguments; every one gets a status. Raises ValueError where several
        values have types that their arguments do not take, and PlanError where the reader
        refuses them."""
        try:
            return self._read(values)
        except PlanError:
            raise
        except _WRONG_KIND as error:
            why = str(error)
        for name, value in values.items():
            is_number = isinstance(value.value, int | float) and value.value > 0
            if value.unknown or is_number:
                continue
            why = f"{value.value!r} is not a value of it"
            try:
                answer = self._read({**values, name: replace(value, unknown=(why,))})
            except _WRONG_KIND:
                continue
            answer.arguments[name] = Used(value.value, "not understood", why)
            return answer
        raise ValueError(f"has values that their arguments do not have ({why})")

    def _read(self, given: Mapping[str, Value]) -> Answer:
        values = {**given, **self.added(given)}
        answer = Answer(values)
        for argument in self.table:
            self._read_argument(argument, answer)
        self.read_more(values, answer)
        for argument in self.table:  # after what arguments say, wherever they say it
            names = (argument.name, *argument.also)
            values_read = [values[name] for name in names if name in values]
            left = all(value.value is None and not value.unknown for value in values_read)
            if left and argument.default is not UNSET and not answer.is_part:
                answer.note_default(argument)
        answer.said_otherwise()
        for name in self.left(given):
            answer.mark(name, "irrelevant")
        for name, value in given.items():
            if name not in answer.arguments:
                answer.arguments[name] = self._rest(name, value)
        return answer

    def _read_argument(self, argument: Argument, answer: Answer) -> None:
        for name in (argument.name, *argument.also):
            value = answer.values.get(name)
            if value is None:
                continue
            if value.unknown:
                continue  # said with the rest
            try:
                ours = None if value.value is None else argument.ours(value.value)
            except (ValueError, TypeError) as error:
                answer.mark(name, "not understood", str(error))
                continue
            answer.state(argument.option, ours, name, argument.note)

    def _rest(self, name: str, value: Value) -> Used:
        """Status of an argument that no table or function has read."""
        if _matches(name, self.irrelevant):
            return Used(value.value, "irrelevant")
        if value.value is None and not value.unknown:
            return Used(None, "irrelevant", "is null, which states nothing")
        if value.value in (False, [], 0) and _matches(name, self.off):
            return Used(value.value, "irrelevant", "is off, as where it is left out")
        if value.unknown:
            return Used(value.value, "not understood", _unset(value))
        if again := _AGAIN.search(name):
            return Used(value.value, "irrelevant", f"{name[: again.start()]} is given again below")
        why = next((why for key, why in self.lacks.items() if fnmatchcase(name, key)), "")
        return Used(value.value, "not understood", why)


def unread(kind: str) -> dict[str, Any]:
    """`irrelevant`, `lacks` and `off` of a format, from planner/formats/arguments.toml."""
    table = _unread()[kind]
    bases = [unread(name) for name in table.get("with", ())]
    why = {name: says for says, names in table.get("lacks", {}).items() for name in names}
    return {
        "irrelevant": (*_each(bases, "irrelevant"), *table.get("irrelevant", ())),
        "lacks": {name: says for base in bases for name, says in base["lacks"].items()} | why,
        "off": (*_each(bases, "off"), *table.get("off", ())),
    }


def _each(bases: list[dict[str, Any]], key: str) -> list[str]:
    return [name for base in bases for name in base[key]]


@cache
def _unread() -> dict[str, Any]:
    return read_toml(_UNREAD.read_text("utf-8"))


def patterns(text: str) -> tuple[str, ...]:
    """Patterns of names, which a text lists with blanks between."""
    return tuple(text.split())


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
