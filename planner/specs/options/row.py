"""An option: a field of a record, and a row of the table.

    tp: int | None = None

with its row in options.json (`table`), or from outside this folder with the row in the annotation:

    tp: Annotated[int | None, option("Tensor-parallel degree", label="Tensor parallel")] = None

Command line, scenario files, their JSON Schema, the page's form, sweeps and the documentation are
made of the rows. Nothing heavy is imported here: `--help` reads the table.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

NAME_LENGTH = 4096  # characters of a catalogue name or a path
TEXT_LENGTH = 200  # of anything else that is typed: numbers with units, words
Form = Literal["shown", "folded", "absent"]


@dataclass(frozen=True)
class Group:
    """Options that belong together: a panel of --help, a group of fields of the form."""

    name: str
    title: str
    hint: str = ""


@dataclass(frozen=True)
class Alias:
    """Another word for a value of an option; value None: the word is recognised and refused.

    note: what the word means beyond the value, or the alternative to take.
    """

    word: str
    value: Any
    note: str = ""


@dataclass(frozen=True)
class Reading:
    """An option that was typed in other words than the value it came to.

    name: of the option that was typed; of: of the option that holds the value; says: a sentence for
    the answer.
    """

    name: str
    typed: object
    of: str
    value: object
    says: str


@dataclass(frozen=True)
class Needs:
    """A condition on other options without which an option has no effect and is refused.

    holds: whether it does in a request, as a record of options; says: why the option does nothing
    where it does not, and the remedy; give: the options to state, for its help; verbs: to which it
    applies, all where empty.
    """

    holds: Callable[[Any], bool]
    says: str
    give: str = ""
    verbs: frozenset[str] = frozenset()


def beside(why: str, *names: str, verbs: frozenset[str] = frozenset()) -> Needs:
    """Needs that one of these options is given. why: what the option belongs to, as in "applies to
    own hardware"."""
    give = " or ".join(map(flag, names))
    return Needs(
        lambda given: any(getattr(given, name) is not None for name in names),
        f"{why}: give {give}, too",
        give,
        verbs,
    )


@dataclass(frozen=True)
class option:
    """The declaration of an option beside its name, type and default.

    help: a sentence in the field's terms. label: a few words, for the form.
    unit: in which a bare number is read, "" where there is none; needs_unit: units between which a
    bare number is ambiguous, so that it is refused; or_unit: of another dimension, in which it may
    be given as well. least, most: bounds in that unit, of each number where a text holds several;
    or_zero: 0 lies within them as well. Every number has both: what nature or arithmetic allows,
    and where they allow all, a choice, some hundred times beyond what exists. example: a value that
    parses, as text; of a switch it is "true". unset: what holds where it is left out, in words.
    catalogue: kind of catalogue entry it names. file: it names a file that is read or written, or a
    folder that is written into. length: characters at most, where it is text. verbs: which take it,
    all of the record's where empty; why_not: why others do not; needs: what has to hold beside it
    for it to act; strategies: of data parallelism that it is a setting of, all where empty;
    several: verbs to which it may be given several times. aliases: other words for its values.
    each: unit of each of several numbers in a text. reads: what a text such as 128k or 60d counts,
    where the value is a plain number: tokens of a context (k is 1,024), or the unit that the number
    is in.
    read: checks a text, and gives it in one spelling. form: whether the page shows it at once or
    folded; slider: drawn as one. short: another flag for it on the command line. brief: the help in
    a few words, for the short --help, which shows of the options of a request only those that have
    it, of a verb's own those that are not folded. argument: what stands for it in the usage of a
    command, where it is a word and no flag. free: values that a search may choose where a request
    leaves the option open, the usually best first ("words": those that a stack has; true: degrees
    and kinds of a layout). start: a search begins with the first of these values that a stack has,
    instead of what the stack does, and looks at the others ("first") or does not, since it is
    never slower and never needs more memory ("always"); or with the value with which the fastest
    layouts of each kind are fastest ("probe").
    """

    help: str
    label: str = ""
    unit: str = ""
    needs_unit: tuple[str, ...] = ()
    or_unit: str = ""
    least: float | None = None
    most: float | None = None
    or_zero: bool = False
    example: str = ""
    unset: str = ""
    catalogue: str = ""
    file: Literal["", "read", "written", "folder"] = ""
    length: int = 0
    verbs: frozenset[str] = frozenset()
    why_not: str = ""
    needs: Needs | None = None
    strategies: tuple[str, ...] = ()
    several: frozenset[str] = frozenset()
    aliases: tuple[Alias, ...] = ()
    each: str = ""
    reads: str = ""
    read: Callable[[str], str] | None = None
    form: Form = "absent"
    slider: bool = False
    short: str = ""
    brief: str = ""
    group: Group | None = None
    argument: str = ""
    free: bool | Literal["words"] | tuple[Any, ...] = False
    start: Literal["", "first", "always", "probe"] = ""


@dataclass(frozen=True)
class Row:
    """One option with what its declaration and its place say of it."""

    name: str
    kind: Any  # its annotation without None: int, float | str, Literal[...], tuple[str, ...]
    annotation: Any  # as declared
    default: Any  # dataclasses.MISSING where it must be given
    group: Group
    verbs: frozenset[str]
    says: option

    @property
    def flag(self) -> str:
        """Spelling on the command line: "global_batch" -> "--global-batch"."""
        return self.name if self.says.argument else flag(self.name)

    @property
    def types(self) -> tuple[Any, ...]:
        """The types a value may have."""
        return get_args(self.kind) if get_origin(self.kind) in (Union, UnionType) else (self.kind,)

    @property
    def choices(self) -> tuple[Any, ...]:
        """The allowed words; empty where other values are allowed."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def takes_words(self) -> bool:
        """Whether texts are words for a value: of another type, or from a fixed list."""
        return bool(self.choices or self.says.aliases or self.says.reads)

    @property
    def is_switch(self) -> bool:
        return self.kind is bool

    @property
    def is_several(self) -> bool:
        """Whether it may be given several times."""
        return get_args(self.kind)[1:] == (...,)

    @property
    def is_number(self) -> bool:
        """Whether it can be swept: a number, or text with a unit."""
        return self.kind in (int, float) or (bool(self.says.unit) and not self.says.catalogue)

    @property
    def is_catalogued(self) -> bool:
        """Whether it names an entry of the catalogue, and nothing else (a storage may be a
        speed)."""
        return bool(self.says.catalogue) and not self.says.unit

    @property
    def is_needed(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def length(self) -> int:
        """Characters of a text at most."""
        named = self.says.catalogue or self.says.file
        return self.says.length or (NAME_LENGTH if named else TEXT_LENGTH)

    @property
    def help(self) -> str:
        """Help of an option: its sentence, values, needed options and default."""
        words = re.findall(r"[\w-]+", self.says.help)
        unsaid = not self.says.argument and not {*map(str, self.choices)} <= {*words}
        values = f"; one of {', '.join(map(str, self.choices))}" if unsaid else ""
        again = "; may be given again" if self.is_several else ""
        needs = f"; needs {self.needs}" if self.needs else ""
        return f"{self.says.help}{values}{needs}{again}" + (
            f" [default: {self.unset}]" if self.unset else ""
        )

    @property
    def brief(self) -> str:
        """Its help in a few words: the first clause, where no shorter one is declared."""
        return self.says.brief or re.split(r"[:;] | \(|, (?:e\.g\.|such as) ", self.says.help)[0]

    @property
    def needs(self) -> str:
        """Options that have to be given beside it in every verb, "" where none."""
        needs = self.says.needs
        return needs.give if needs and not needs.verbs else ""

    @property
    def also(self) -> str:
        """Other words for its values, as the end of a sentence."""
        words = [alias.word for alias in self.says.aliases if alias.value is not None]
        return f"; also {', '.join(words)}" if words else ""

    @property
    def unset(self) -> str:
        """The default in words; "" if leaving it out has no meaning."""
        if self.says.unset or self.is_needed or self.default in (None, False, ()):
            return self.says.unset
        return str(self.default)


def why_not(row: Row, verb: str) -> str:
    """Why a verb does not take an option."""
    owners = " and ".join(f"`dpplan {owner}`" for owner in sorted(row.verbs))
    reason = row.says.why_not or f"belongs to {owners}"
    return f"{reason}; leave it out of `dpplan {verb}`"


def flag(name: str) -> str:
    """Command-line spelling of an option: "global_batch" -> "--global-batch"."""
    return "--" + name.replace("_", "-")
